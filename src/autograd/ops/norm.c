/* LayerNorm and RMSNorm over the last dimension, of the residual stream, which is in full width; the output is an activation. Kept for
 * backward: x and per row the mean and 1 / deviation. The gradients of weight and bias are summed per thread and then over threads in
 * order. */
#include "autograd/ops/op_common.h"

typedef struct Norm {
  Tensor *x, *weight, *bias, *y; /* bias NULL: RMSNorm */
  real *mean, *rstd;             /* [rows] */
  real eps;
  int64_t rows, width;
  real *stage;        /* [threads, width], where y is in bf16 */
  real *dx, *partial; /* of backward: partial [threads, 2, width] */
  bool add;
} Norm;

static void forward_body(void *context, int64_t begin, int64_t end, int thread) {
  const Norm *job = context;
  const int64_t width = job->width;
  const Numbers y = tensor_numbers(job->y);
  real *stage = job->stage ? job->stage + thread * width : NULL;
  for (int64_t row = begin; row < end; row++) {
    const real *x = job->x->value + row * width;
    real *to = numbers_place(y, row * width, stage);
    if (job->bias)
      kernels()->layer_norm(width, x, job->weight->value, job->bias->value, job->eps, to, job->mean + row, job->rstd + row);
    else
      kernels()->rms_norm(width, x, job->weight->value, job->eps, to, job->rstd + row);
    numbers_written(y, row * width, width, stage);
  }
}

/* Runs a body with a row of each thread to widen into, where y is in bf16. */
static void with_stage(Tape *tape, Norm *job, ThreadsBody *body) {
  const size_t mark = tape_scratch_begin(tape);
  job->stage = job->y->narrow ? tape_alloc(tape, (size_t)(threads_count() * job->width) * sizeof(real)) : NULL;
  if (job->stage != NULL || !job->y->narrow) tape_for(tape, job->rows, OP_ROW_GRAIN, body, job);
  tape_scratch_end(tape, mark);
}

static void norm_forward(Tape *tape, void *record) { with_stage(tape, record, forward_body); }

static real *row_grad(const Norm *job, int64_t row) {
  if (job->dx == NULL) return NULL;
  real *dx = job->dx + row * job->width;
  if (!job->add) memset(dx, 0, (size_t)job->width * sizeof(real));
  return dx;
}

static void backward_body(void *context, int64_t begin, int64_t end, int thread) {
  const Norm *job = context;
  const int64_t width = job->width;
  real *dweight = job->partial + thread * 2 * width, *stage = job->stage ? job->stage + thread * width : NULL;
  for (int64_t row = begin; row < end; row++) {
    const real *x = job->x->value + row * width, *dy = numbers_read(tensor_grad(job->y), row * width, width, stage);
    if (job->bias)
      kernels()->layer_norm_backward(width, x, job->weight->value, job->mean[row], job->rstd[row], dy, row_grad(job, row), dweight,
                                     dweight + width);
    else
      kernels()->rms_norm_backward(width, x, job->weight->value, job->rstd[row], dy, row_grad(job, row), dweight);
  }
}

static void norm_backward(Tape *tape, void *record) {
  Norm *job = record;
  job->dx = tape_grad(tape, job->x, &job->add);
  real *dweight = tape_grad_zeroed(tape, job->weight), *dbias = tape_grad_zeroed(tape, job->bias);
  size_t mark = tape_scratch_begin(tape), bytes = (size_t)(threads_count() * 2 * job->width) * sizeof(real);
  job->partial = tape_alloc(tape, bytes);
  if (job->partial != NULL) {
    if (!tape_planning(tape)) memset(job->partial, 0, bytes);
    with_stage(tape, job, backward_body);
    for (int thread = 0; !tape_planning(tape) && thread < threads_count(); thread++) {
      const real *partial = job->partial + thread * 2 * job->width;
      if (dweight) kernels()->add(job->width, partial, dweight);
      if (dbias) kernels()->add(job->width, partial + job->width, dbias);
    }
  }
  tape_scratch_end(tape, mark);
}

static const OpKind LAYER_NORM = {"layer_norm", norm_forward, norm_backward};
static const OpKind RMS_NORM = {"rms_norm", norm_forward, norm_backward};

static Tensor *norm(Tape *tape, const OpKind *kind, Tensor *x, Tensor *weight, Tensor *bias, double eps) {
  int64_t width = tensor_width(x), rows = tensor_rows(x);
  OP_CHECK(tensor_count(weight) == width && (!bias || tensor_count(bias) == width), "%s: x has %lld columns, the weight %lld numbers",
           kind->name, (long long)width, (long long)tensor_count(weight));
  OP_CHECK(x->value, "%s: x is not in full width", kind->name);
  Tensor *y = op_activation_like(tape, x, width);
  Norm *job = tape_alloc(tape, sizeof *job);
  real *mean = tape_alloc(tape, (size_t)rows * sizeof(real)), *rstd = tape_alloc(tape, (size_t)rows * sizeof(real));
  if (y == NULL || job == NULL || mean == NULL || rstd == NULL) return NULL;
  *job = (Norm){.x = x, .weight = weight, .bias = bias, .y = y, .mean = mean, .rstd = rstd, .eps = (real)eps, .rows = rows, .width = width};
  y->needs_grad = tape_recording(tape) && (op_wants(x) || op_wants(weight) || op_wants(bias));
  return tape_apply(tape, kind, job, y);
}

Tensor *op_layer_norm(Tape *tape, Tensor *x, Tensor *weight, Tensor *bias, double eps) {
  OP_REQUIRE(x, weight, bias);
  return norm(tape, &LAYER_NORM, x, weight, bias, eps);
}

Tensor *op_rms_norm(Tape *tape, Tensor *x, Tensor *weight, double eps) {
  OP_REQUIRE(x, weight);
  return norm(tape, &RMS_NORM, x, weight, NULL, eps);
}
