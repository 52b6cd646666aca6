/* Matrix products through oneDNN, each on the calling thread alone: our pool divides the work, so that no second pool of threads runs. One
 * primitive is made for each shape (0.3 ms) and kept for the thread. Built in where dnnl.h is installed; otherwise every call returns
 * false.
 */
#ifndef AUTOGRAD_ONEDNN_H
#define AUTOGRAD_ONEDNN_H
#include <stdbool.h>
#include <stdint.h>

typedef enum OnednnType { ONEDNN_F32, ONEDNN_BF16, ONEDNN_INT8 } OnednnType;

enum { ONEDNN_STRIP = 64 }; /* columns of an int8 B that lie together */

/* C [M, N] = op(A) op(B) + bias, or C += op(A) op(B); op(A) is [M, K], op(B) is [K, N]; lda, ldb and ldc count numbers from row to row as
 * stored. Sums are in float; a C in bf16 is rounded once.
 *
 * ONEDNN_INT8: A is unsigned bytes, B signed ones, packed as [N / ONEDNN_STRIP][K / 4][ONEDNN_STRIP][4] (ldb is not used), K a multiple of
 * 64 and N of ONEDNN_STRIP; C is int32 (output ONEDNN_INT8) and exact. No bias, nothing transposed. */
typedef struct OnednnProduct {
  bool transpose_a, transpose_b, add;
  OnednnType inputs, output; /* of A and B; of C */
  int64_t m, n, k, lda, ldb, ldc;
  const void *a, *b;
  void *c;
  const float *bias; /* [N], or NULL */
} OnednnProduct;

/* Whether this build and processor run float products well (AVX-512), and bf16 ones (its bf16 instructions, or AMX). */
bool onednn_has_float(void);
bool onednn_has_bf16(void);
bool onednn_has_int8(void); /* 8-bit dot products: VNNI, or AMX */
bool onednn_has_amx(void);  /* tiles of AMX, which multiply both bf16 and int8 */

/* False: oneDNN could not (no memory for another primitive, say), and C is as before. */
bool onednn_product(const OnednnProduct *product);

/* "oneDNN 2.6.3", or NULL where it is not built in. */
const char *onednn_version(void);

#endif
