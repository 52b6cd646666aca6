/* Products with weights of 8 and 4 bits (lowbit.h): C = X W^T with W [outputs, inputs] as it is stored and X quantised to int8,
 * each row by itself, so that the result of a row does not depend on the rows beside it. Counted as products (matmul.h). */
#ifndef AUTOGRAD_MATMUL_LOWBIT_H
#define AUTOGRAD_MATMUL_LOWBIT_H
#include "autograd/kernels/matmul.h"
#include "autograd/lowbit.h"
#include <stdbool.h>

/* Called for pieces of C, [rows, columns] from (row, column) on, by the thread that computes them: before, and after while they are in its
 * cache. c [rows, columns], `ldc` apart: the piece. */
typedef void MatmulLowbitPiece(void *context, int64_t row, int64_t rows, int64_t column, int64_t columns, real *c, int64_t ldc);

typedef struct MatmulLowbit {
  const LowbitMatrix *weight;
  const PackedMatrix *packed;    /* the same int8 numbers for oneDNN (matmul_pack), which multiplies many rows with them; or NULL */
  int64_t first_output, outputs; /* of the matrix */
  int64_t first_input, inputs;   /* of the matrix; block weights: a multiple of LOWBIT_BLOCK. At most LOWBIT_MAX_INPUTS */
  int64_t rows;
  const real *x;          /* [rows, inputs], `ldx` apart */
  const uint16_t *x_bf16; /* or, where x is NULL, the same in bf16 */
  int64_t ldx;
  bool add; /* to what C holds (after `before`) */
  real *c;  /* [rows, outputs], `ldc` apart; NULL: each piece exists in scratch until `after` returns */
  int64_t ldc;
  MatmulLowbitPiece *before, *after; /* or NULL */
  void *context;                     /* of both */
} MatmulLowbit;

/* Over the pool, or on the calling thread inside a threads_for body. scratch [matmul_lowbit_scratch(product)] bytes, on a cache line, may
 * serve one product at a time. */
void matmul_lowbit(const MatmulLowbit *product, void *scratch);
size_t matmul_lowbit_scratch(const MatmulLowbit *product);

/* The same weights with x in full, widened into scratch some outputs at a time, each number once: C [m, count] = A W^T of outputs
 * [first, first + count), A [m, inputs]; back: C [m, inputs] = A W, A [m, count]. On the calling thread, added to C or not. scratch
 * [matmul_narrow_scratch()] may serve all threads of the pool at once. */
void matmul_lowbit_widened(const LowbitMatrix *weight, bool back, int64_t first, int64_t count, int64_t m, const real *a, int64_t lda,
                           bool add, real *c, int64_t ldc, real *scratch);

#endif
