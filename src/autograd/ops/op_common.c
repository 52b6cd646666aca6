/* What several operations have in common: products with weights of any width, and activation functions. */
#include "autograd/ops/op_common.h"

void op_matmul_weight(Tape *tape, bool transpose_b, int64_t m, int64_t n, int64_t k, const real *a, int64_t lda, const Tensor *weight,
                      int64_t start, bool add, real *c, int64_t ldc) {
  const LowbitMatrix *lowbit = weight->lowbit;
  if (lowbit != NULL && !(transpose_b && n == lowbit->outputs && k == lowbit->inputs)) {
    tape_fail(tape, STATUS_UNSUPPORTED, "weights of 8 and 4 bits are for inference: no gradient goes through them");
    return;
  }
  const bool narrow = weight->narrow_kind != NARROW_NONE;
  const MatmulLowbit product = {.weight = lowbit, .outputs = n, .inputs = k, .rows = m, .x = a, .ldx = lda, .add = add, .c = c, .ldc = ldc};
  const size_t mark = tape_scratch_begin(tape);
  void *scratch = NULL;
  if (lowbit || narrow)
    scratch = tape_alloc(tape, lowbit ? matmul_lowbit_scratch(&product) : (size_t)matmul_narrow_scratch() * sizeof(real));
  if (tape_planning(tape))
    matmul_count_only(m, n, k);
  else if (!lowbit && !narrow)
    matmul(false, transpose_b, m, n, k, 1, a, lda, weight->value + start, tensor_width(weight), add ? 1 : 0, c, ldc);
  else if (scratch != NULL && lowbit)
    matmul_lowbit(&product, scratch);
  else if (scratch != NULL)
    matmul_narrow(transpose_b, m, n, k, a, lda, weight->narrow_kind, weight->narrow + start, tensor_width(weight), add, c, ldc, scratch);
  tape_scratch_end(tape, mark);
}

/* ---- activation functions, by pieces that stay in the first-level cache */

void op_activate_numbers(Activation activation, Numbers z, Numbers y, int64_t begin, int64_t end) {
  real z_stage[OP_PIECE], y_stage[OP_PIECE];
  for (int64_t at = begin; at < end; at += OP_PIECE) {
    const int64_t count = end - at < OP_PIECE ? end - at : OP_PIECE;
    real *from = (real *)(uintptr_t)numbers_read(z, at, count, z_stage),
         *to = numbers_place(y, at, y_stage); /* without a bias z is only read */
    if (activation == ACTIVATION_GELU)
      kernels()->bias_gelu(count, NULL, from, to);
    else
      kernels()->bias_gelu_tanh(count, NULL, from, to);
    numbers_written(y, at, count, y_stage);
  }
}

void op_activate_backward(Activation activation, Numbers z, Numbers dy, int64_t begin, int64_t end) {
  real z_stage[OP_PIECE], dy_stage[OP_PIECE];
  for (int64_t at = begin; at < end; at += OP_PIECE) {
    const int64_t count = end - at < OP_PIECE ? end - at : OP_PIECE;
    const real *from = numbers_read(z, at, count, z_stage), *grad = numbers_read(dy, at, count, dy_stage);
    real *dz = numbers_place(dy, at, dy_stage);
    if (activation == ACTIVATION_GELU)
      kernels()->gelu_backward(count, from, grad, dz);
    else
      kernels()->gelu_tanh_backward(count, from, grad, dz);
    numbers_written(dy, at, count, dy_stage);
  }
}

/* ---- products in bf16 */

typedef struct NarrowJob {
  const Tensor *weight; /* NULL: from */
  Numbers from;
  int64_t start, stride, width; /* numbers between rows, and of a row */
  uint16_t *to;                 /* [rows, width] */
} NarrowJob;

static void narrow_rows_body(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  const NarrowJob *job = context;
  const Tensor *weight = job->weight;
  const Numbers from = weight == NULL ? job->from : (Numbers){.wide = weight->value};
  real stage[OP_PIECE];
  for (int64_t row = begin; row < end; row++)
    for (int64_t at = 0; at < job->width; at += OP_PIECE) {
      const int64_t count = job->width - at < OP_PIECE ? job->width - at : OP_PIECE, first = job->start + row * job->stride + at;
      const real *wide = stage;
      if (weight != NULL && weight->value == NULL) /* halves */
        kernels()->widen(weight->narrow_kind, count, weight->narrow + first, stage);
      else
        wide = numbers_read(from, first, count, stage);
      kernels()->narrow(count, wide, job->to + row * job->width + at);
    }
}

static const uint16_t *narrowed(Tape *tape, NarrowJob *job, int64_t rows) {
  job->to = tape_alloc(tape, (size_t)(rows * job->width) * sizeof *job->to);
  if (job->to != NULL) tape_for(tape, rows, OP_ROW_GRAIN, narrow_rows_body, job);
  return job->to;
}

const uint16_t *op_in_bf16(Tape *tape, Numbers x, int64_t rows, int64_t width) {
  if (x.narrow != NULL) return x.narrow;
  return narrowed(tape, &(NarrowJob){.from = x, .stride = width, .width = width}, rows);
}

const uint16_t *op_weight_in_bf16(Tape *tape, const Tensor *weight, int64_t start, int64_t rows, int64_t columns, int64_t *stride) {
  *stride = tensor_width(weight);
  if (weight->shadow != NULL) return weight->shadow + start;
  if (weight->narrow_kind == NARROW_BF16) return weight->narrow + start;
  NarrowJob job = {.weight = weight, .start = start, .stride = *stride, .width = columns};
  *stride = columns;
  return narrowed(tape, &job, rows);
}

bool op_weight_is_bf16(const Tape *tape, const Tensor *weight) {
  return tape_uses_bf16(tape) && (weight->shadow != NULL || weight->narrow_kind == NARROW_BF16 || (weight->packed && weight->packed->bf16));
}

void op_matmul_bf16(Tape *tape, bool transpose_a, bool transpose_b, int64_t m, int64_t n, int64_t k, const uint16_t *a, int64_t lda,
                    const uint16_t *b, int64_t ldb, const real *bias, bool add, Numbers c, int64_t ldc) {
  if (tape_planning(tape))
    matmul_count_only(m, n, k);
  else if (tape_status(tape) == STATUS_OK)
    matmul_bf16(transpose_a, transpose_b, m, n, k, a, lda, b, ldb, bias, add, c, ldc);
}
