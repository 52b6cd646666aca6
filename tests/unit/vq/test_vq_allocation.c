/* Once everything is set up, assigning, averaging, noise and lookup ask for no memory. */
#include "autograd/kernels/matmul.h"
#include "base/threads.h"
#include "unit/count_allocations.h"
#include "unit/vq/vq_check.h"
#include "unit/vq/vq_points.h"
#include "vq/codebook.h"
#include "vq/ema.h"
#include "vq/navq.h"

enum { W = 96, K = 70, ROWS = 500 };

static void one_step(Codebook *book, CodebookEma *ema, Navq *navq, const real *x, int32_t *codes, real *q, void *scratch, Rng *rng) {
  const EmaOptions options = {0.9, 1e-5, 0.5};
  double distortion;
  codebook_assign(book, x, ROWS, codes, &distortion, scratch);
  codebook_lookup(book, codes, ROWS, q);
  navq_update(navq, x, q, ROWS, scratch);
  navq_sample(navq, 1, 1, 1, ROWS, q, scratch);
  ema_update(ema, book, x, codes, ROWS, &options, rng);
}

static void check_steps(int64_t groups, NoiseCovariance kind) {
  Codebook book;
  CodebookEma ema;
  Navq navq;
  Rng rng;
  rng_init(&rng, 1, 1);
  assert_int_equal(codebook_init(&book, groups, K, W, NULL), STATUS_OK);
  real *start = points_normal(K * W, 1), *x = points_normal(ROWS * W, 2), *q = malloc(ROWS * W * sizeof *q);
  memcpy(book.codewords, start, K * W * sizeof *start);
  codebook_refresh(&book);
  assert_int_equal(ema_init(&ema, &book, 1), STATUS_OK);
  assert_int_equal(navq_init(&navq, groups, W, kind), STATUS_OK);
  navq.refresh = 1;
  int32_t *codes = malloc((size_t)(ROWS * groups) * sizeof *codes);
  size_t size = codebook_assign_scratch(&book, ROWS), other = navq_scratch(&navq, ROWS);
  void *scratch = malloc(size > other ? size : other);
  one_step(&book, &ema, &navq, x, codes, q, scratch, &rng);
  long before = allocations_so_far();
  for (int step = 0; step < 5; step++) one_step(&book, &ema, &navq, x, codes, q, scratch, &rng);
  assert_int_equal(allocations_so_far(), before);
  free(scratch);
  free(codes);
  navq_release(&navq);
  ema_release(&ema);
  codebook_release(&book);
  free(start);
  free(x);
  free(q);
}

static void nothing_is_allocated_in_a_step(void **state) {
  (void)state;
  allocations_need_count();
  assert_int_equal(threads_start(2), STATUS_OK);
  matmul_reserve();
  for (int64_t groups = 1; groups <= 8; groups += 7) {
    check_steps(groups, NOISE_FULL);
    check_steps(groups, NOISE_DIAGONAL);
    check_steps(groups, NOISE_JOINT);
  }
  threads_stop();
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(nothing_is_allocated_in_a_step)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
