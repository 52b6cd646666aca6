/* What several operations do alike: products with weights of either kind. */
#include "autograd/ops/op_common.h"

static void matmul_narrow_weight(Tape *tape, bool transpose_b, int64_t m, int64_t n, int64_t k, const real *a, int64_t lda,
                                 const Tensor *weight, int64_t start, bool add, real *c, int64_t ldc) {
  size_t mark = tape_scratch_begin(tape);
  real *scratch = tape_alloc(tape, (size_t)matmul_narrow_scratch() * sizeof(real));
  if (tape_planning(tape))
    matmul_count_only(m, n, k);
  else if (scratch != NULL)
    matmul_narrow(transpose_b, m, n, k, a, lda, weight->narrow_kind, weight->narrow + start, tensor_width(weight), add, c, ldc, scratch);
  tape_scratch_end(tape, mark);
}

void op_matmul_lowbit(Tape *tape, const MatmulLowbit *product) {
  size_t mark = tape_scratch_begin(tape);
  void *scratch = tape_alloc(tape, matmul_lowbit_scratch(product));
  if (tape_planning(tape))
    matmul_count_only(product->rows, product->outputs, product->inputs);
  else if (scratch != NULL)
    matmul_lowbit(product, scratch);
  tape_scratch_end(tape, mark);
}

static void matmul_lowbit_weight(Tape *tape, bool transpose_b, int64_t m, int64_t n, int64_t k, const real *a, int64_t lda,
                                 const Tensor *weight, bool add, real *c, int64_t ldc) {
  if (transpose_b && n == weight->lowbit->outputs && k == weight->lowbit->inputs)
    op_matmul_lowbit(
        tape, &(MatmulLowbit){
                  .weight = weight->lowbit, .outputs = n, .inputs = k, .rows = m, .x = a, .ldx = lda, .add = add, .c = c, .ldc = ldc});
  else
    tape_fail(tape, STATUS_UNSUPPORTED, "weights of 8 and 4 bits are for inference: no gradient goes through them");
}

void op_matmul_weight(Tape *tape, bool transpose_b, int64_t m, int64_t n, int64_t k, const real *a, int64_t lda, const Tensor *weight,
                      int64_t start, bool add, real *c, int64_t ldc) {
  if (weight->lowbit != NULL)
    matmul_lowbit_weight(tape, transpose_b, m, n, k, a, lda, weight, add, c, ldc);
  else if (weight->narrow_kind != NARROW_NONE)
    matmul_narrow_weight(tape, transpose_b, m, n, k, a, lda, weight, start, add, c, ldc);
  else if (tape_planning(tape))
    matmul_count_only(m, n, k);
  else
    matmul(false, transpose_b, m, n, k, 1, a, lda, weight->value + start, tensor_width(weight), add ? 1 : 0, c, ldc);
}

/* ---- products in bf16 */

typedef struct NarrowJob {
  const Tensor *weight; /* NULL: from */
  Numbers from;
  int64_t start, stride, width; /* numbers between rows, and of a row */
  uint16_t *to;                 /* [rows, width] */
} NarrowJob;

/* `count` of them from `first` on; a weight's may be halves. */
static const real *numbers_in_full(const NarrowJob *job, int64_t first, int64_t count, real *stage) {
  if (job->weight == NULL) return numbers_read(job->from, first, count, stage);
  if (job->weight->value != NULL) return job->weight->value + first;
  kernels()->widen(job->weight->narrow_kind, count, job->weight->narrow + first, stage);
  return stage;
}

static void narrow_rows_body(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  const NarrowJob *job = context;
  real stage[OP_PIECE];
  for (int64_t row = begin; row < end; row++)
    for (int64_t at = 0; at < job->width; at += OP_PIECE) {
      const int64_t count = job->width - at < OP_PIECE ? job->width - at : OP_PIECE;
      const real *wide = numbers_in_full(job, job->start + row * job->stride + at, count, stage);
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
