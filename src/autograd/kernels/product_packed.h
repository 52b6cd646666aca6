/* Products of rows with one strip of a packed matrix (PackedMatrix in matmul.h), in vectors of AVX-512. */
#ifndef AUTOGRAD_PRODUCT_PACKED_H
#define AUTOGRAD_PRODUCT_PACKED_H
#include "autograd/real.h"
#include <stdbool.h>
#include <stdint.h>

enum { PACKED_STRIP = 64 }; /* columns that are packed together: four vectors, so that six rows fill the registers with sums */

/* C [rows, columns] = A B + bias, or C += A B. A word is a float, or the bf16 numbers of two rows of B, of which both belong to A's row. */
typedef struct PackedStrip {
  int64_t rows, words;
  const void *a; /* [rows, words], `row_bytes` apart */
  int64_t row_bytes;
  const uint32_t *b; /* [words, PACKED_STRIP], zeros after the last column */
  const real *bias;  /* [columns], or NULL */
  bool add;          /* to C, which is in full then; without a bias */
  real *wide;        /* C, or */
  uint16_t *narrow;  /* C in bf16, rounded once */
  int64_t ldc, columns;
} PackedStrip;

/* Of floats, or of bf16 with the processor's instructions for them (kernels_native). */
typedef void ProductPacked(const PackedStrip *strip);

#endif
