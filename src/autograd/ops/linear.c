/* act(x W^T + b) + residual, of all outputs or a part of them, and of all inputs or a part, with W stored [out, in] or [in, out],
 * in full or, frozen, in 16, 8 or 4 bits.
 * The bias (and the residual) is written into the output first and the product added to it, which costs no more than the zeroing that BLAS
 * would do; the activation runs on a panel of rows while it is still in cache. Kept for backward: x, and the pre-activation z. */
#include "autograd/ops/op_common.h"

typedef struct Linear {
  Tensor *x, *weight, *bias, *residual, *y;
  real *z; /* [rows, out] before the activation; y's own values when there is none or nothing is recorded */
  Activation activation;
  int64_t rows, in, out; /* of the part */
  bool transposed;
  int64_t stride, start; /* of the weight: numbers from row to row, and where the part begins */
  int64_t first;         /* the part's first output: where its bias begins */
  int64_t first_in;      /* its first input */
} Linear;

enum { PANEL = 1024 /* rows: smaller ones make BLAS pack W again too often, larger ones fall out of the last-level cache */ };

static void start_rows(const Linear *job, int64_t begin, int64_t end) {
  const real *bias = job->bias ? job->bias->value + job->first : NULL;
  for (int64_t row = begin; row < end; row++) {
    real *z = job->z + row * job->out;
    if (job->residual) {
      memcpy(z, job->residual->value + row * job->out, (size_t)job->out * sizeof(real));
      if (bias) kernels()->add(job->out, bias, z);
    } else if (bias) {
      memcpy(z, bias, (size_t)job->out * sizeof(real));
    }
  }
}

static void activate_rows(const Linear *job, int64_t begin, int64_t end) {
  if (job->activation == ACTIVATION_NONE) return;
  int64_t at = begin * job->out, count = (end - begin) * job->out;
  if (job->activation == ACTIVATION_GELU)
    kernels()->bias_gelu(count, NULL, job->z + at, job->y->value + at);
  else
    kernels()->bias_gelu_tanh(count, NULL, job->z + at, job->y->value + at);
}

/* The output holds something already, to which the product is added. */
static bool started(const Linear *job) { return job->bias || job->residual; }

static void panels_body(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  const Linear *job = context;
  for (int64_t at = begin; at < end; at += PANEL) {
    int64_t stop = at + PANEL < end ? at + PANEL : end;
    start_rows(job, at, stop);
    matmul_single(false, !job->transposed, stop - at, job->out, job->in, 1, job->x->value + at * job->in, job->in,
                  job->weight->value + job->start, job->stride, started(job) ? 1 : 0, job->z + at * job->out, job->out);
    activate_rows(job, at, stop);
  }
}

static void activate_body(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  activate_rows(context, begin, end);
}

static void start_body(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  start_rows(context, begin, end);
}

/* ---- weights of 8 and 4 bits: pieces of the output are started and activated while they are in the cache ---- */

static void start_piece(void *context, int64_t row, int64_t rows, int64_t column, int64_t columns) {
  const Linear *job = context;
  const real *bias = job->bias ? job->bias->value + job->first + column : NULL;
  for (int64_t r = row; r < row + rows; r++) {
    real *z = job->z + r * job->out + column;
    if (job->residual) {
      memcpy(z, job->residual->value + r * job->out + column, (size_t)columns * sizeof(real));
      if (bias) kernels()->add(columns, bias, z);
    } else if (bias) {
      memcpy(z, bias, (size_t)columns * sizeof(real));
    }
  }
}

static void activate_piece(void *context, int64_t row, int64_t rows, int64_t column, int64_t columns) {
  const Linear *job = context;
  for (int64_t at = row * job->out + column; at < (row + rows) * job->out; at += job->out) {
    if (job->activation == ACTIVATION_GELU)
      kernels()->bias_gelu(columns, NULL, job->z + at, job->y->value + at);
    else
      kernels()->bias_gelu_tanh(columns, NULL, job->z + at, job->y->value + at);
  }
}

static void lowbit_forward(Tape *tape, Linear *job) {
  op_matmul_lowbit(tape, &(MatmulLowbit){.weight = job->weight->lowbit,
                                         .first_output = job->first,
                                         .outputs = job->out,
                                         .first_input = job->first_in,
                                         .inputs = job->in,
                                         .rows = job->rows,
                                         .x = job->x->value,
                                         .ldx = job->in,
                                         .add = started(job),
                                         .c = job->z,
                                         .ldc = job->out,
                                         .before = started(job) ? start_piece : NULL,
                                         .after = job->activation != ACTIVATION_NONE ? activate_piece : NULL,
                                         .context = job});
}

static void linear_forward(Tape *tape, void *record) {
  Linear *job = record;
  if (job->weight->lowbit) {
    lowbit_forward(tape, job);
    return;
  }
  bool rows_over_pool = job->weight->narrow_kind == NARROW_NONE && job->rows >= 64 * threads_count();
  if (rows_over_pool && !tape_planning(tape)) {
    threads_for(job->rows, OP_ROW_GRAIN, panels_body, job);
  } else { /* few rows, or a weight that each thread should widen a part of: let the product be cut along the outputs */
    tape_for(tape, job->rows, OP_ROW_GRAIN, start_body, job);
    op_matmul_weight(tape, !job->transposed, job->rows, job->out, job->in, job->x->value, job->in, job->weight, job->start, started(job),
                     job->z, job->out);
    tape_for(tape, job->rows, 1, activate_body, job);
  }
}

/* dz = dy act'(z), in place in dy. */
static void activation_backward_body(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  Linear *job = context;
  int64_t at = begin * job->out, count = (end - begin) * job->out;
  real *dy = job->y->grad + at;
  if (job->activation == ACTIVATION_GELU)
    kernels()->gelu_backward(count, job->z + at, dy, dy);
  else
    kernels()->gelu_tanh_backward(count, job->z + at, dy, dy);
}

/* dbias[columns] += sum over rows; columns are shared out, so that the order of the sum is fixed. */
static void bias_backward_body(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  Linear *job = context;
  for (int64_t row = 0; row < job->rows; row++)
    kernels()->add(end - begin, job->y->grad + row * job->out + begin, job->bias->grad + job->first + begin);
}

/* The weight's gradient, dz^T x or, transposed, x^T dz. A part's own rows or columns may be all that is written, so the rest of an empty
 * gradient is zeroed first. */
static void weight_backward(Tape *tape, const Linear *job) {
  bool add = true;
  real *dweight =
      job->out * job->in == tensor_count(job->weight) ? tape_grad(tape, job->weight, &add) : tape_grad_zeroed(tape, job->weight);
  if (dweight == NULL) return;
  const real *dz = job->y->grad, *x = job->x->value;
  if (job->transposed)
    tape_matmul(tape, true, false, job->in, job->out, job->rows, 1, x, job->in, dz, job->out, add ? 1 : 0, dweight + job->start,
                job->stride);
  else
    tape_matmul(tape, true, false, job->out, job->in, job->rows, 1, dz, job->out, x, job->in, add ? 1 : 0, dweight + job->start,
                job->stride);
}

static void linear_backward(Tape *tape, void *record) {
  Linear *job = record;
  bool add;
  real *dx = tape_grad(tape, job->x, &add);
  real *dbias = tape_grad_zeroed(tape, job->bias);
  if (job->activation != ACTIVATION_NONE) tape_for(tape, job->rows, OP_ROW_GRAIN, activation_backward_body, job);
  weight_backward(tape, job);
  if (dbias) tape_for(tape, job->out, 64, bias_backward_body, job);
  if (dx)
    op_matmul_weight(tape, job->transposed, job->rows, job->in, job->out, job->y->grad, job->out, job->weight, job->start, add, dx,
                     job->in);
  if (job->residual) tape_pass_grad(tape, job->y, job->residual);
}

static const OpKind LINEAR = {"linear", linear_forward, linear_backward};

/* Block weights are cut between blocks only; no gradient goes through any. */
static bool lowbit_fits(Tape *tape, const Linear *what, int64_t first_in) {
  const LowbitMatrix *matrix = what->weight->lowbit;
  Status status = STATUS_OK;
  if (matrix->kind != LOWBIT_INT8 && first_in % LOWBIT_BLOCK != 0)
    status =
        tape_fail(tape, STATUS_UNSUPPORTED, "linear: weights in blocks of %d inputs cannot be divided at input %lld: use weights of int8",
                  LOWBIT_BLOCK, (long long)first_in);
  else if (tensor_width(what->x) > LOWBIT_MAX_INPUTS)
    status = tape_fail(tape, STATUS_UNSUPPORTED, "linear: weights of 8 and 4 bits have at most %d inputs, not %lld", LOWBIT_MAX_INPUTS,
                       (long long)tensor_width(what->x));
  else if (tape_recording(tape) && op_wants(what->x))
    status = tape_fail(tape, STATUS_UNSUPPORTED, "linear: weights of 8 and 4 bits are for inference: no gradient goes through them");
  return status == STATUS_OK;
}

/* x against the part's outputs and the inputs [first_in, first_in + x's width) of the weight. The shapes have been checked. */
static Tensor *linear(Tape *tape, const Linear *what, const LinearPart *part, int64_t first_in) {
  Tensor *y = op_like(tape, what->x, part->count);
  Linear *job = tape_alloc(tape, sizeof *job);
  if (y == NULL || job == NULL) return NULL;
  if (what->weight->lowbit && !lowbit_fits(tape, what, first_in)) return NULL;
  OP_CHECK(!what->residual || tensor_count(what->residual) == tensor_count(y), "linear: the residual's shape is not the output's");
  *job = *what;
  job->y = y;
  job->z = y->value;
  job->rows = tensor_rows(what->x);
  job->in = tensor_width(what->x);
  job->out = part->count;
  job->transposed = part->transposed;
  job->stride = what->weight->shape[1];
  job->start = part->transposed ? first_in * job->stride + part->first : part->first * job->stride + first_in;
  job->first = part->first;
  job->first_in = first_in;
  y->needs_grad = tape_recording(tape) && (op_wants(what->x) || op_wants(what->weight) || op_wants(what->bias) || op_wants(what->residual));
  if (y->needs_grad && what->activation != ACTIVATION_NONE) job->z = tape_alloc(tape, (size_t)tensor_count(y) * sizeof(real));
  if (job->z == NULL) return NULL;
  tape_apply(tape, &LINEAR, job, y);
  return y;
}

/* What both forms ask of the outputs. */
static bool outputs_fit(Tape *tape, const Tensor *weight, const Tensor *bias, const LinearPart *part) {
  int64_t outputs = weight->shape[part->transposed ? 1 : 0];
  if (part->first < 0 || part->count <= 0 || part->count > outputs - part->first)
    return tape_fail(tape, STATUS_BAD_VALUE, "linear: the weight has %lld outputs, not %lld from %lld on", (long long)outputs,
                     (long long)part->count, (long long)part->first) == STATUS_OK;
  if (bias && tensor_count(bias) != outputs)
    return tape_fail(tape, STATUS_BAD_VALUE, "linear: the bias has %lld numbers, the weight %lld outputs", (long long)tensor_count(bias),
                     (long long)outputs) == STATUS_OK;
  return true;
}

Tensor *op_linear_part(Tape *tape, Tensor *x, Tensor *weight, Tensor *bias, const LinearPart *part, Activation activation,
                       Tensor *residual) {
  OP_REQUIRE(x, weight, part);
  int64_t in = tensor_width(x);
  OP_CHECK(weight->dims == 2 && weight->shape[part->transposed ? 0 : 1] == in, "linear: x has %lld columns, the weight is [%lld, %lld]%s",
           (long long)in, (long long)weight->shape[0], (long long)weight->shape[1], part->transposed ? ", transposed" : "");
  OP_CHECK(!residual || activation == ACTIVATION_NONE, "linear: a residual goes with no activation only");
  if (!outputs_fit(tape, weight, bias, part)) return NULL;
  return linear(tape, &(Linear){.x = x, .weight = weight, .bias = bias, .residual = residual, .activation = activation}, part, 0);
}

Tensor *op_linear_columns(Tape *tape, Tensor *x, Tensor *weight, Tensor *bias, const LinearPart *part, int64_t first_in, Tensor *residual) {
  OP_REQUIRE(x, weight, part);
  int64_t in = tensor_width(x), inputs = weight->shape[part->transposed ? 0 : 1];
  OP_CHECK(weight->dims == 2 && first_in >= 0 && in <= inputs - first_in, "linear: x has %lld columns, the weight %lld inputs from %lld on",
           (long long)in, (long long)(inputs - first_in), (long long)first_in);
  if (!outputs_fit(tape, weight, bias, part)) return NULL;
  return linear(tape, &(Linear){.x = x, .weight = weight, .bias = bias, .residual = residual}, part, first_in);
}

Tensor *op_linear(Tape *tape, Tensor *x, Tensor *weight, Tensor *bias, Activation activation, Tensor *residual) {
  OP_REQUIRE(x, weight);
  return op_linear_part(tape, x, weight, bias, &(LinearPart){.count = weight->shape[0]}, activation, residual);
}
