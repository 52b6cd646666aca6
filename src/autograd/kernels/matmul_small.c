/* Products too small for a library: see matmul.h. */
#include "autograd/kernels/kernels.h"
#include "autograd/kernels/matmul.h"
#include "autograd/kernels/matmul_parts.h"

static void run_in_library(const MatmulSmall *p) {
  if (p->a.narrow)
    matmul_bf16_uncounted(p);
  else
    matmul_run(&(MatmulProduct){p->transpose_a, p->transpose_b, p->m, p->n, p->k, 1, p->a.wide, p->lda, p->b.wide, p->ldb, p->add ? 1 : 0,
                                p->c, p->ldc});
}

void matmul_small(int count, const MatmulSmall *product) {
  const double begun = matmul_count_begin();
  const bool vectors = kernels() != kernels_named("portable");
  ProductBf16 *narrow = kernels_product_bf16();
  int64_t multiplied = 0;
  for (const MatmulSmall *p = product; p < product + count; p++) {
    if (!vectors)
      run_in_library(p);
    else if (p->a.narrow)
      narrow(p->transpose_a, p->transpose_b, p->m, p->n, p->k, p->a.narrow, p->lda, p->b.narrow, p->ldb, p->add, p->c, p->ldc);
    else
      kernels()->product(p->transpose_a, p->transpose_b, p->m, p->n, p->k, p->a.wide, p->lda, p->b.wide, p->ldb, p->add, p->c, p->ldc);
    multiplied += p->m * p->n * p->k;
  }
  matmul_count_end(multiplied, 1, 1, begun);
}
