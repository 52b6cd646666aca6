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
