/* act(x W^T + b) + residual, of all outputs or a part of them, and of all inputs or a part, with W stored [out, in] or [in, out],
 * in full or, frozen, in 16, 8 or 4 bits.
 * The bias (and the residual) is written into the output first and the product added to it, which costs no more than the zeroing that BLAS
 * would do; the activation runs on a panel of rows while it is still in cache. Kept for backward: x, and the pre-activation z.
 *
 * In bf16 (tape_use_bf16) x, the weight and the gradient that arrives are rounded where they are not in bf16 already; products add up in
 * float, a residual and the gradients of parameters with them. An output without a residual is an activation in bf16 on a narrow tape: its
 * activation function is that of the rounded z, so that training and inference compute the same. */
#include "autograd/ops/op_common.h"

typedef struct Linear {
  Tensor *x, *weight, *bias, *residual, *y;
  Numbers z; /* [rows, out] before the activation; y's own values when there is none or nothing is recorded */
  bool bf16;
  Activation activation;
  int64_t rows, in, out; /* of the part */
  bool transposed;
  int64_t stride, start; /* of the weight: numbers from row to row, and where the part begins */
  int64_t first;         /* the part's first output: where its bias begins */
  int64_t first_in;      /* its first input */
} Linear;

enum { PANEL = 1024 /* rows: smaller ones make BLAS pack W again too often, larger ones fall out of the last-level cache */ };

/* What the product is added to, of some rows and columns: the residual and the bias, at z, rows `stride` apart. */
static void start_piece(void *context, int64_t row, int64_t rows, int64_t column, int64_t columns, real *z, int64_t stride) {
  const Linear *job = context;
  const real *bias = job->bias ? job->bias->value + job->first + column : NULL;
  for (int64_t r = row; r < row + rows; r++, z += stride) {
    if (job->residual) {
      memcpy(z, job->residual->value + r * job->out + column, (size_t)columns * sizeof(real));
      if (bias) kernels()->add(columns, bias, z);
    } else if (bias) {
      memcpy(z, bias, (size_t)columns * sizeof(real));
    }
  }
}

static void start_rows(Linear *job, int64_t begin, int64_t end) {
  start_piece(job, begin, end - begin, 0, job->out, job->z.wide + begin * job->out, job->out);
}

static void activate_rows(const Linear *job, int64_t begin, int64_t end) {
  if (job->activation == ACTIVATION_NONE) return;
  op_activate_numbers(job->activation, job->z, tensor_numbers(job->y), begin * job->out, end * job->out);
}

/* The output holds the bias or the residual, to which the product is added. */
static bool started(const Linear *job) { return job->bias || job->residual; }

static void panels_body(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  Linear *job = context;
  for (int64_t at = begin; at < end; at += PANEL) {
    int64_t stop = at + PANEL < end ? at + PANEL : end;
    start_rows(job, at, stop);
    matmul_single(false, !job->transposed, stop - at, job->out, job->in, 1, job->x->value + at * job->in, job->in,
                  job->weight->value + job->start, job->stride, started(job) ? 1 : 0, job->z.wide + at * job->out, job->out);
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

static const uint16_t *weight_in_bf16(Tape *tape, const Linear *job, int64_t *stride) {
  return op_weight_in_bf16(tape, job->weight, job->start, job->transposed ? job->in : job->out, job->transposed ? job->out : job->in,
                           stride);
}

/* The product adds up in float with the residual, or only with the bias, and is rounded once where the output is narrow. */
static void forward_bf16(Tape *tape, Linear *job) {
  int64_t stride;
  const size_t mark = tape_scratch_begin(tape);
  const uint16_t *x = op_in_bf16(tape, tensor_numbers(job->x), job->rows, job->in), *weight = weight_in_bf16(tape, job, &stride);
  const real *bias = job->bias && !job->residual ? job->bias->value + job->first : NULL;
  if (job->residual) tape_for(tape, job->rows, OP_ROW_GRAIN, start_body, job);
  op_matmul_bf16(tape, false, !job->transposed, job->rows, job->out, job->in, x, job->in, weight, stride, bias, job->residual != NULL,
                 job->z, job->out);
  tape_for(tape, job->rows, 1, activate_body, job);
  tape_scratch_end(tape, mark);
}

/* ---- weights of 8 and 4 bits: pieces of the output are started and activated while they are in the cache ---- */

/* A narrow output is rounded here, from a z that is scratch. */
static void end_piece(void *context, int64_t row, int64_t rows, int64_t column, int64_t columns, real *z, int64_t stride) {
  const Linear *job = context;
  for (int64_t at = row * job->out + column; at < (row + rows) * job->out; at += job->out, z += stride) {
    real *y = job->y->narrow ? z : job->y->value + at;
    if (job->activation == ACTIVATION_GELU) kernels()->bias_gelu(columns, NULL, z, y);
    if (job->activation == ACTIVATION_GELU_TANH) kernels()->bias_gelu_tanh(columns, NULL, z, y);
    if (job->y->narrow) kernels()->narrow(columns, z, job->y->narrow + at);
  }
}

static void forward_lowbit(Tape *tape, Linear *job) {
  const MatmulLowbit product = {.weight = job->weight->lowbit,
                                .packed = job->weight->packed,
                                .first_output = job->first,
                                .outputs = job->out,
                                .first_input = job->first_in,
                                .inputs = job->in,
                                .rows = job->rows,
                                .x = job->x->value,
                                .x_bf16 = job->x->narrow,
                                .ldx = job->in,
                                .add = started(job),
                                .c = job->y->narrow ? NULL : job->z.wide,
                                .ldc = job->out,
                                .before = started(job) ? start_piece : NULL,
                                .after = job->activation != ACTIVATION_NONE || job->y->narrow ? end_piece : NULL,
                                .context = job};
  const size_t mark = tape_scratch_begin(tape);
  void *scratch = tape_alloc(tape, matmul_lowbit_scratch(&product));
  if (tape_planning(tape))
    matmul_count_only(product.rows, product.outputs, product.inputs);
  else if (scratch != NULL)
    matmul_lowbit(&product, scratch);
  tape_scratch_end(tape, mark);
}

/* ---- weights that were packed: pieces in the same way ---- */

static void start_columns(void *context, int64_t row, int64_t rows, int64_t column, int64_t columns) {
  const Linear *job = context;
  start_piece(context, row, rows, column, columns, job->z.wide + row * job->out + column, job->out);
}

static void activate_columns(void *context, int64_t row, int64_t rows, int64_t column, int64_t columns) {
  const Linear *job = context;
  for (int64_t at = row * job->out + column; at < (row + rows) * job->out; at += job->out)
    op_activate_numbers(job->activation, job->z, tensor_numbers(job->y), at, at + columns);
}

static void forward_packed(Tape *tape, Linear *job) {
  const size_t mark = tape_scratch_begin(tape);
  const bool residual = job->residual != NULL;
  const void *x = job->bf16 ? (const void *)op_in_bf16(tape, tensor_numbers(job->x), job->rows, job->in) : job->x->value;
  const MatmulPacked product = {.weight = job->weight->packed,
                                .first_output = job->first,
                                .outputs = job->out,
                                .first_input = job->first_in,
                                .inputs = job->in,
                                .rows = job->rows,
                                .x = x,
                                .bias = job->bias && !residual ? job->bias->value + job->first : NULL,
                                .add = residual,
                                .c = job->z,
                                .before = residual ? start_columns : NULL,
                                .after = job->activation != ACTIVATION_NONE ? activate_columns : NULL,
                                .context = job};
  if (tape_planning(tape))
    matmul_count_only(product.rows, product.outputs, product.inputs);
  else if (tape_status(tape) == STATUS_OK)
    matmul_packed(&product);
  tape_scratch_end(tape, mark);
}

static void forward_wide(Tape *tape, Linear *job) {
  bool rows_over_pool = job->weight->value != NULL && job->rows >= 64 * threads_count();
  if (rows_over_pool && !tape_planning(tape)) {
    threads_for(job->rows, OP_ROW_GRAIN, panels_body, job);
    return;
  } /* else few rows, or a weight that each thread should widen a part of: let the product be cut along the outputs */
  tape_for(tape, job->rows, OP_ROW_GRAIN, start_body, job);
  op_matmul_weight(tape, !job->transposed, job->rows, job->out, job->in, job->x->value, job->in, job->weight, job->start, started(job),
                   job->z.wide, job->out);
  tape_for(tape, job->rows, 1, activate_body, job);
}

static void linear_forward(Tape *tape, void *record) {
  Linear *job = record;
  const PackedMatrix *packed = job->weight->packed;
  const bool whole = job->first % PACKED_STRIP == 0 && (!job->bf16 || (job->first_in % 2 == 0 && job->in % 2 == 0));
  if (job->weight->lowbit)
    forward_lowbit(tape, job);
  else if (packed != NULL && packed->bf16 == job->bf16 && whole)
    forward_packed(tape, job);
  else if (job->bf16)
    forward_bf16(tape, job);
  else
    forward_wide(tape, job);
}

/* ---------------------------------------------------------------- backward */

/* dz = dy act'(z), in place in dy. */
static void activation_backward_body(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  const Linear *job = context;
  op_activate_backward(job->activation, job->z, tensor_grad(job->y), begin * job->out, end * job->out);
}

/* dbias[columns] += sum over rows; the pool divides the columns, so that the order of the sum is fixed. */
static void bias_backward_body(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  const Linear *job = context;
  const Numbers dy = tensor_grad(job->y);
  real stage[OP_PIECE];
  for (int64_t at = begin; at < end; at += OP_PIECE) {
    const int64_t count = end - at < OP_PIECE ? end - at : OP_PIECE;
    for (int64_t row = 0; row < job->rows; row++)
      kernels()->add(count, numbers_read(dy, row * job->out + at, count, stage), job->bias->grad + job->first + at);
  }
}

/* The weight's gradient, dz^T x or, transposed, x^T dz, and the input's. */
static void backward_wide(Tape *tape, const Linear *job, real *dweight, bool add_weight, real *dx, bool add_x) {
  const real *dz = job->y->grad, *x = job->x->value;
  if (dweight != NULL && job->transposed)
    tape_matmul(tape, true, false, job->in, job->out, job->rows, x, job->in, dz, job->out, add_weight ? 1 : 0, dweight + job->start,
                job->stride);
  else if (dweight != NULL)
    tape_matmul(tape, true, false, job->out, job->in, job->rows, dz, job->out, x, job->in, add_weight ? 1 : 0, dweight + job->start,
                job->stride);
  if (dx) op_matmul_weight(tape, job->transposed, job->rows, job->in, job->out, dz, job->out, job->weight, job->start, add_x, dx, job->in);
}

static void backward_bf16(Tape *tape, const Linear *job, real *dweight, bool add_weight, Numbers dx, bool add_x) {
  int64_t stride;
  const size_t mark = tape_scratch_begin(tape);
  const uint16_t *dz = op_in_bf16(tape, tensor_grad(job->y), job->rows, job->out);
  const size_t weight_mark = tape_scratch_begin(tape);
  if (dweight != NULL) {
    const uint16_t *x = op_in_bf16(tape, tensor_numbers(job->x), job->rows, job->in);
    const Numbers to = {.wide = dweight + job->start};
    if (job->transposed)
      op_matmul_bf16(tape, true, false, job->in, job->out, job->rows, x, job->in, dz, job->out, NULL, add_weight, to, job->stride);
    else
      op_matmul_bf16(tape, true, false, job->out, job->in, job->rows, dz, job->out, x, job->in, NULL, add_weight, to, job->stride);
  }
  tape_scratch_end(tape, weight_mark);
  if (numbers_exist(dx)) {
    const uint16_t *weight = weight_in_bf16(tape, job, &stride);
    op_matmul_bf16(tape, false, job->transposed, job->rows, job->in, job->out, dz, job->out, weight, stride, NULL, add_x, dx, job->in);
  }
  tape_scratch_end(tape, mark);
}

static void linear_backward(Tape *tape, void *record) {
  const Linear *job = record;
  bool add_x, add_weight = true;
  const bool whole = job->out * job->in == tensor_count(job->weight); /* of a part the rest of an empty gradient is zeroed first */
  const Numbers dx = tape_grad_numbers(tape, job->x, &add_x);
  real *dbias = tape_grad_zeroed(tape, job->bias);
  real *dweight = whole ? tape_grad(tape, job->weight, &add_weight) : tape_grad_zeroed(tape, job->weight);
  if (job->activation != ACTIVATION_NONE) tape_for(tape, job->rows, OP_ROW_GRAIN, activation_backward_body, record);
  if (job->bf16)
    backward_bf16(tape, job, dweight, add_weight, dx, add_x);
  else
    backward_wide(tape, job, dweight, add_weight, dx.wide, add_x);
  if (dbias) tape_for(tape, job->out, 64, bias_backward_body, record);
  if (job->residual) tape_pass_grad(tape, job->y, job->residual);
}

static const OpKind LINEAR = {"linear", linear_forward, linear_backward};

/* Block weights are divided only between blocks; no gradient goes through any. */
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

/* Room for numbers like those of y. */
static Numbers new_numbers(Tape *tape, const Tensor *y) {
  const size_t count = (size_t)tensor_count(y);
  if (y->narrow) return (Numbers){.narrow = tape_alloc(tape, count * sizeof *y->narrow)};
  return (Numbers){.wide = tape_alloc(tape, count * sizeof *y->value)};
}

static bool runs_in_bf16(const Tape *tape, const Linear *what) {
  return tape_uses_bf16(tape) && what->weight->lowbit == NULL && (what->x->narrow != NULL || op_weight_is_bf16(tape, what->weight));
}

/* Fills `job` for the output y, of x against the part's outputs and the inputs [first_in, first_in + x's width) of the weight. The shapes
 * have been checked. False: the tape has failed. */
static bool prepare(Tape *tape, const Linear *what, const LinearPart *part, int64_t first_in, Tensor *y, Linear *job) {
  if (what->weight->lowbit && !lowbit_fits(tape, what, first_in)) return false;
  if (what->residual && tensor_count(what->residual) != tensor_count(y))
    return tape_fail(tape, STATUS_BAD_VALUE, "linear: the residual's shape is not the output's") == STATUS_OK;
  *job = *what;
  if (what->residual && (job->residual = op_widen(tape, what->residual)) == NULL) return false;
  job->y = y;
  job->z = tensor_numbers(y);
  job->bf16 = runs_in_bf16(tape, what);
  job->rows = tensor_rows(what->x);
  job->in = tensor_width(what->x);
  job->out = part->count;
  job->transposed = part->transposed;
  job->stride = what->weight->shape[1];
  job->start = part->transposed ? first_in * job->stride + part->first : part->first * job->stride + first_in;
  job->first = part->first;
  job->first_in = first_in;
  y->needs_grad = tape_recording(tape) && (op_wants(what->x) || op_wants(what->weight) || op_wants(what->bias) || op_wants(what->residual));
  return true;
}

/* Its output is in bf16 while the tape is narrow. */
static bool gives_activation(const Tape *tape, const Linear *what) {
  return (runs_in_bf16(tape, what) || what->weight->lowbit) && what->residual == NULL;
}

static Tensor *new_output(Tape *tape, const Linear *what, const LinearPart *part) {
  return gives_activation(tape, what) ? op_activation_like(tape, what->x, part->count) : op_like(tape, what->x, part->count);
}

static Tensor *linear(Tape *tape, const Linear *what, const LinearPart *part, int64_t first_in) {
  Tensor *y = new_output(tape, what, part);
  Linear *job = tape_alloc(tape, sizeof *job);
  if (y == NULL || job == NULL || !prepare(tape, what, part, first_in, y, job)) return NULL;
  if (y->needs_grad && what->activation != ACTIVATION_NONE) job->z = new_numbers(tape, y);
  if (!numbers_exist(job->z)) return NULL;
  return tape_apply(tape, &LINEAR, job, y);
}

/* What op_linear_part and op_linear_columns require of the outputs. */
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

/* A whole matrix of `in` inputs. */
static bool map_fits(Tape *tape, int64_t in, const LinearMap *map) {
  const Tensor *weight = map->weight;
  if (weight->dims != 2 || weight->shape[map->part->transposed ? 0 : 1] != in)
    return tape_fail(tape, STATUS_BAD_VALUE, "linear: x has %lld columns, the weight is [%lld, %lld]%s", (long long)in,
                     (long long)weight->shape[0], (long long)weight->shape[1], map->part->transposed ? ", transposed" : "") == STATUS_OK;
  return outputs_fit(tape, weight, map->bias, map->part);
}

Tensor *op_linear_part(Tape *tape, Tensor *x, Tensor *weight, Tensor *bias, const LinearPart *part, Activation activation,
                       Tensor *residual) {
  OP_REQUIRE(x, weight, part);
  OP_CHECK(!residual || activation == ACTIVATION_NONE, "linear: a residual goes with no activation only");
  if (!map_fits(tape, tensor_width(x), &(LinearMap){weight, bias, part})) return NULL;
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

/* ---------------------------------------------------------------- two maps with an activation between them */

typedef struct Mlp {
  Linear up, down;
  Tensor hidden; /* the activation of up's z: its numbers are borrowed while they are needed */
  bool narrow;
} Mlp;

static size_t hidden_bytes(const Mlp *job) {
  return (size_t)tensor_count(&job->hidden) * (job->narrow ? sizeof *job->hidden.narrow : sizeof *job->hidden.value);
}

static bool borrow_hidden(Tape *tape, Mlp *job) {
  void *numbers = tape_borrow(tape, hidden_bytes(job));
  if (job->narrow)
    job->hidden.narrow = numbers;
  else
    job->hidden.value = numbers;
  return numbers != NULL;
}

static void give_back_hidden(Tape *tape, Mlp *job) {
  tape_give_back(tape, job->narrow ? (void *)job->hidden.narrow : job->hidden.value, hidden_bytes(job));
}

static void mlp_forward(Tape *tape, void *record) {
  Mlp *job = record;
  linear_forward(tape, &job->up);
  linear_forward(tape, &job->down);
}

static void mlp_backward(Tape *tape, void *record) {
  Mlp *job = record;
  if (!borrow_hidden(tape, job)) return;
  tape_for(tape, job->up.rows, OP_ROW_GRAIN, activate_body, &job->up);
  linear_backward(tape, &job->down);
  give_back_hidden(tape, job);
  if (!job->hidden.needs_grad) return;
  linear_backward(tape, &job->up);
  tape_give_back(tape, job->narrow ? (void *)job->hidden.narrow_grad : job->hidden.grad, hidden_bytes(job));
  job->hidden.grad = NULL;
  job->hidden.narrow_grad = NULL;
  job->hidden.grad_filled = false;
}

static const OpKind MLP = {"mlp", mlp_forward, mlp_backward};

Tensor *op_mlp(Tape *tape, Tensor *x, const LinearMap *up, Activation activation, const LinearMap *down, Tensor *residual) {
  OP_REQUIRE(x, up, down, up->weight, up->part, down->weight, down->part);
  OP_CHECK(activation != ACTIVATION_NONE, "mlp: without an activation it is one map");
  if (!map_fits(tape, tensor_width(x), up) || !map_fits(tape, up->part->count, down)) return NULL;
  Mlp *job = tape_alloc(tape, sizeof *job);
  const Linear first = {.x = x, .weight = up->weight, .bias = up->bias, .activation = activation};
  if (job == NULL) return NULL;
  job->hidden = (Tensor){.dims = x->dims}; /* like an output of op_linear, except its numbers */
  memcpy(job->hidden.shape, x->shape, sizeof job->hidden.shape);
  job->hidden.shape[x->dims - 1] = up->part->count;
  job->narrow = gives_activation(tape, &first) && tape_is_narrow(tape);
  if (job->narrow) job->hidden.narrow_kind = NARROW_BF16;
  if (!borrow_hidden(tape, job) || !prepare(tape, &first, up->part, 0, &job->hidden, &job->up)) return NULL;
  if (tape_recording(tape)) job->up.z = new_numbers(tape, &job->hidden);
  const Linear second = {.x = &job->hidden, .weight = down->weight, .bias = down->bias, .residual = residual};
  Tensor *y = new_output(tape, &second, down->part);
  if (y == NULL || !numbers_exist(job->up.z) || !prepare(tape, &second, down->part, 0, y, &job->down)) return NULL;
  y = tape_apply(tape, &MLP, job, y);
  give_back_hidden(tape, job);
  return y;
}
