/* What the kinds of products share; private to matmul*.c. */
#ifndef AUTOGRAD_MATMUL_PARTS_H
#define AUTOGRAD_MATMUL_PARTS_H
#include "autograd/kernels/matmul.h"
#include <stdbool.h>
#include <stdint.h>

enum {
  MATMUL_GRAIN = 16,             /* rows or columns of a thread's piece: a whole number of register tiles */
  MATMUL_POOLED_MIN = 256 * 1024 /* multiply-adds under which waking the pool costs more than it saves */
};

typedef struct MatmulProduct {
  bool transpose_a, transpose_b;
  int64_t m, n, k;
  real alpha;
  const real *a;
  int64_t lda;
  const real *b;
  int64_t ldb;
  real beta;
  real *c;
  int64_t ldc;
} MatmulProduct;

void matmul_run(const MatmulProduct *product); /* on the calling thread, not counted */

void matmul_bf16_uncounted(const MatmulSmall *product); /* likewise, of A and B in bf16 */

double matmul_count_begin(void);
void matmul_count_end(int64_t m, int64_t n, int64_t k, double begun);

static inline int64_t matmul_lesser(int64_t a, int64_t b) { return a < b ? a : b; }

#endif
