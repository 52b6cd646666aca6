/* Products too small for a library: see matmul.h. */
#include "autograd/kernels/kernels.h"
#include "autograd/kernels/matmul.h"
#include "autograd/kernels/matmul_parts.h"

static void run(const MatmulSmall *p) {
  matmul_run(
      &(MatmulProduct){p->transpose_a, p->transpose_b, p->m, p->n, p->k, 1, p->a, p->lda, p->b, p->ldb, p->add ? 1 : 0, p->c, p->ldc});
}

void matmul_small(int count, const MatmulSmall *product) {
  const double begun = matmul_count_begin();
  const bool vectors = kernels() != kernels_named("portable");
  int64_t multiplied = 0;
  for (const MatmulSmall *p = product; p < product + count; p++) {
    if (vectors)
      kernels()->product(p->transpose_a, p->transpose_b, p->m, p->n, p->k, p->a, p->lda, p->b, p->ldb, p->add, p->c, p->ldc);
    else
      run(p);
    multiplied += p->m * p->n * p->k;
  }
  matmul_count_end(multiplied, 1, 1, begun);
}
