/* Products with a weight that was packed once, because it does not change: inference. A product copies and transposes nothing of it, and is
 * fast for any number of rows. Counted as products (matmul.h). */
#ifndef AUTOGRAD_MATMUL_PACKED_H
#define AUTOGRAD_MATMUL_PACKED_H
#include "autograd/kernels/numbers.h"
#include "autograd/kernels/product_packed.h"
#include <stddef.h>

/* A weight of [outputs, inputs], however it was stored: words [strips, words of an output, PACKED_STRIP]. The words of PACKED_STRIP
 * outputs lie together; a word is a float, two inputs in bf16, or four in int8. */
typedef struct PackedMatrix {
  int64_t outputs, inputs;
  bool bf16; /* an even number of inputs */
  bool int8; /* zeros fill the last words of an output, up to a multiple of LOWBIT_PIECE inputs; multiplied by matmul_lowbit */
  uint32_t *words;
  ProductPacked *product; /* except of int8 */
  int32_t *offset_sums;   /* int8: of each output, up to a whole strip, 128 times the sum of its numbers; after the words */
} PackedMatrix;

/* Whether such a weight is faster packed, with this processor and backend; words is not read. In int8: where products of many rows run
 * in oneDNN, with AMX or as the backend "onednn-int8" asks. */
bool matmul_packs(const PackedMatrix *matrix);

/* Of matrix->words, which the caller allocates, from the matrix's shape. */
size_t matmul_packed_bytes(const PackedMatrix *matrix);

/* Fills words and product, over the pool; weight: real numbers [outputs, inputs] or, transposed, [inputs, outputs], rounded to bf16 for a
 * bf16 matrix. For an int8 matrix: int8_t numbers [outputs, inputs]; their float scales stay where they are. */
void matmul_pack(PackedMatrix *matrix, const void *weight, bool transposed);

/* Called for pieces of C, [rows, columns] from (row, column) on, by the thread that computes them: before, and after while they are in its
 * cache. */
typedef void MatmulPackedPiece(void *context, int64_t row, int64_t rows, int64_t column, int64_t columns);

typedef struct MatmulPacked {
  const PackedMatrix *weight;
  int64_t first_output, outputs; /* of the matrix; the first is a multiple of PACKED_STRIP */
  int64_t first_input, inputs;   /* of the matrix; in bf16 even numbers */
  int64_t rows;
  const void *x;                     /* [rows, inputs] floats, or in bf16, contiguous */
  const real *bias;                  /* [outputs], or NULL */
  bool add;                          /* to what C holds (after `before`); C in full, no bias */
  Numbers c;                         /* [rows, outputs], contiguous */
  MatmulPackedPiece *before, *after; /* or NULL */
  void *context;                     /* of both */
} MatmulPacked;

/* C = X W^T + bias, over the pool, or on the calling thread inside a threads_for body. A row's result depends neither on the other rows nor
 * on the number of threads. */
void matmul_packed(const MatmulPacked *product);

#endif
