/* LayerNorm and RMSNorm over the last dimension. Kept for backward: x and per row the mean and 1 / deviation.
 * The gradients of weight and bias are summed per thread and then over threads in order. */
#include "autograd/ops/op_common.h"

typedef struct Norm {
  Tensor *x, *weight, *bias, *y; /* bias NULL: RMSNorm */
  real *mean, *rstd;             /* [rows] */
  real eps;
  int64_t rows, width;
  real *dx, *partial; /* of backward: partial [threads, 2, width] */
  bool add;
} Norm;

static void layer_body(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  Norm *job = context;
  for (int64_t row = begin; row < end; row++)
    kernels()->layer_norm(job->width, job->x->value + row * job->width, job->weight->value, job->bias->value, job->eps,
                          job->y->value + row * job->width, job->mean + row, job->rstd + row);
}

static void rms_body(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  Norm *job = context;
  for (int64_t row = begin; row < end; row++)
    kernels()->rms_norm(job->width, job->x->value + row * job->width, job->weight->value, job->eps, job->y->value + row * job->width,
                        job->rstd + row);
}

static void layer_forward(Tape *tape, void *record) {
  Norm *job = record;
  tape_for(tape, job->rows, OP_ROW_GRAIN, layer_body, job);
}

static void rms_forward(Tape *tape, void *record) {
  Norm *job = record;
  tape_for(tape, job->rows, OP_ROW_GRAIN, rms_body, job);
}

static real *row_grad(const Norm *job, int64_t row) {
  if (job->dx == NULL) return NULL;
  real *dx = job->dx + row * job->width;
  if (!job->add) memset(dx, 0, (size_t)job->width * sizeof(real));
  return dx;
}

static void layer_backward_body(void *context, int64_t begin, int64_t end, int thread) {
  Norm *job = context;
  real *dweight = job->partial + thread * 2 * job->width;
  for (int64_t row = begin; row < end; row++)
    kernels()->layer_norm_backward(job->width, job->x->value + row * job->width, job->weight->value, job->mean[row], job->rstd[row],
                                   job->y->grad + row * job->width, row_grad(job, row), dweight, dweight + job->width);
}

static void rms_backward_body(void *context, int64_t begin, int64_t end, int thread) {
  Norm *job = context;
  for (int64_t row = begin; row < end; row++)
    kernels()->rms_norm_backward(job->width, job->x->value + row * job->width, job->weight->value, job->rstd[row],
                                 job->y->grad + row * job->width, row_grad(job, row), job->partial + thread * 2 * job->width);
}

static void add_partials(const Norm *job, real *dweight, real *dbias) {
  for (int thread = 0; thread < threads_count(); thread++) {
    const real *partial = job->partial + thread * 2 * job->width;
    if (dweight) kernels()->add(job->width, partial, dweight);
    if (dbias) kernels()->add(job->width, partial + job->width, dbias);
  }
}

static void backward_with(Tape *tape, Norm *job, ThreadsBody *body) {
  job->dx = tape_grad(tape, job->x, &job->add);
  real *dweight = tape_grad_zeroed(tape, job->weight), *dbias = tape_grad_zeroed(tape, job->bias);
  size_t mark = tape_scratch_begin(tape), bytes = (size_t)(threads_count() * 2 * job->width) * sizeof(real);
  job->partial = tape_alloc(tape, bytes);
  if (job->partial != NULL && !tape_planning(tape)) {
    memset(job->partial, 0, bytes);
    threads_for(job->rows, OP_ROW_GRAIN, body, job);
    add_partials(job, dweight, dbias);
  }
  tape_scratch_end(tape, mark);
}

static void layer_backward(Tape *tape, void *record) { backward_with(tape, record, layer_backward_body); }
static void rms_backward(Tape *tape, void *record) { backward_with(tape, record, rms_backward_body); }

static const OpKind LAYER_NORM = {"layer_norm", layer_forward, layer_backward};
static const OpKind RMS_NORM = {"rms_norm", rms_forward, rms_backward};

static Tensor *norm(Tape *tape, const OpKind *kind, Tensor *x, Tensor *weight, Tensor *bias, double eps) {
  int64_t width = tensor_width(x), rows = tensor_rows(x);
  OP_CHECK(tensor_count(weight) == width && (!bias || tensor_count(bias) == width), "%s: x has %lld columns, the weight %lld numbers",
           kind->name, (long long)width, (long long)tensor_count(weight));
  Tensor *y = op_like(tape, x, width);
  Norm *job = tape_alloc(tape, sizeof *job);
  real *mean = tape_alloc(tape, (size_t)rows * sizeof(real)), *rstd = tape_alloc(tape, (size_t)rows * sizeof(real));
  if (y == NULL || job == NULL || mean == NULL || rstd == NULL) return NULL;
  *job = (Norm){.x = x, .weight = weight, .bias = bias, .y = y, .mean = mean, .rstd = rstd, .eps = (real)eps, .rows = rows, .width = width};
  y->needs_grad = tape_recording(tape) && (op_wants(x) || op_wants(weight) || op_wants(bias));
  tape_apply(tape, kind, job, y);
  return y;
}

Tensor *op_layer_norm(Tape *tape, Tensor *x, Tensor *weight, Tensor *bias, double eps) {
  OP_REQUIRE(x, weight, bias);
  return norm(tape, &LAYER_NORM, x, weight, bias, eps);
}

Tensor *op_rms_norm(Tape *tape, Tensor *x, Tensor *weight, double eps) {
  OP_REQUIRE(x, weight);
  return norm(tape, &RMS_NORM, x, weight, NULL, eps);
}
