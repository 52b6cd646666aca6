/* Muon's direction against the iteration written down plainly in double, its singular values, and what it moves in an optimizer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/threads.h"
#include "train/muon.h"
#include "train/optimizer.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SHAPES = 4, MAX_SIDE = 96, MAX_NUMBERS = MAX_SIDE * MAX_SIDE };
static const int64_t shapes[SHAPES][2] = {{48, 96}, {96, 48}, {64, 64}, {1, 40}};

static void make_params(ParamSet *set) {
  memset(set, 0, sizeof *set);
  for (int i = 0; i < SHAPES; i++) {
    assert_int_equal(param_add(set, PARAM_NORMAL, true, 2, shapes[i], "block.%d", i), i);
    set->list[i].hidden = true;
  }
  assert_int_equal(param_add(set, PARAM_NORMAL, true, 2, (int64_t[]){10, 48}, "head"), SHAPES);
  assert_int_equal(param_allocate(set, true), STATUS_OK);
  Rng rng;
  rng_init(&rng, 3, 0);
  param_initialise(set, &rng);
}

static void draw_gradients(ParamSet *set, uint64_t seed) {
  Rng rng;
  rng_init(&rng, seed, 0);
  for (size_t p = 0; p < set->count; p++)
    for (int64_t i = 0; i < tensor_count(&set->list[p].tensor); i++) set->list[p].tensor.grad[i] = (real)(0.1 * rng_normal(&rng));
}

/* x [rows, columns] <- 3.4445 x - 4.775 x x' x + 2.0315 x x' x x' x, five times from x / |x| */
static void plain_orthogonal(int64_t rows, int64_t columns, double *x) {
  static double gram[MAX_NUMBERS], cube[MAX_NUMBERS], fifth[MAX_NUMBERS];
  double sum = 0;
  for (int64_t i = 0; i < rows * columns; i++) sum += x[i] * x[i];
  for (int64_t i = 0; i < rows * columns; i++) x[i] /= sqrt(sum);
  for (int round = 0; round < 5; round++) {
    memset(gram, 0, sizeof gram), memset(cube, 0, sizeof cube), memset(fifth, 0, sizeof fifth);
    for (int64_t i = 0; i < rows; i++)
      for (int64_t j = 0; j < rows; j++)
        for (int64_t k = 0; k < columns; k++) gram[i * rows + j] += x[i * columns + k] * x[j * columns + k];
    for (int64_t i = 0; i < rows; i++)
      for (int64_t j = 0; j < rows; j++)
        for (int64_t k = 0; k < columns; k++) cube[i * columns + k] += gram[i * rows + j] * x[j * columns + k];
    for (int64_t i = 0; i < rows; i++)
      for (int64_t j = 0; j < rows; j++)
        for (int64_t k = 0; k < columns; k++) fifth[i * columns + k] += gram[i * rows + j] * cube[j * columns + k];
    for (int64_t i = 0; i < rows * columns; i++) x[i] = 3.4445 * x[i] - 4.7750 * cube[i] + 2.0315 * fifth[i];
  }
}

static void direction_as_written(void **state) {
  (void)state;
  ParamSet set;
  make_params(&set);
  static double m[MAX_NUMBERS], expected[MAX_NUMBERS];
  static real momentum[MAX_NUMBERS], direction[MAX_NUMBERS];
  real *scratch = malloc(muon_scratch_bytes(&set));
  assert_non_null(scratch);
  for (int p = 0; p < SHAPES; p++) {
    const int64_t rows = shapes[p][0], columns = shapes[p][1], numbers = rows * columns;
    memset(m, 0, sizeof m), memset(momentum, 0, sizeof momentum);
    for (uint64_t step = 1; step <= 3; step++) {
      draw_gradients(&set, step);
      for (int64_t i = 0; i < numbers; i++) {
        const double g = 0.5 * (double)set.list[p].tensor.grad[i];
        m[i] = 0.95 * m[i] + 0.05 * g;
        expected[i] = 0.95 * m[i] + 0.05 * g;
      }
      plain_orthogonal(rows, columns, expected);
      muon_direction(&set.list[p], (real)0.5, momentum, direction, scratch);
      const double size = 0.2 * sqrt((double)(rows > columns ? rows : columns));
      for (int64_t i = 0; i < numbers; i++) {
        assert_true(fabs((double)momentum[i] - m[i]) <= 1e-6);
        assert_true(fabs((double)direction[i] - size * expected[i]) <= (REAL_IS_DOUBLE ? 1e-9 : 2e-4) * size);
      }
    }
  }
  free(scratch);
  param_release(&set);
}

/* Rows of a wide random direction are nearly orthonormal: the Gram matrix has 1 on its diagonal, as far as five rounds bring it. */
static void singular_values_are_near_one(void **state) {
  (void)state;
  ParamSet set;
  make_params(&set);
  draw_gradients(&set, 7);
  static real momentum[MAX_NUMBERS], direction[MAX_NUMBERS];
  real *scratch = malloc(muon_scratch_bytes(&set));
  assert_non_null(scratch);
  muon_direction(&set.list[0], 1, momentum, direction, scratch);
  const double size = 0.2 * sqrt(96);
  double trace = 0;
  for (int64_t i = 0; i < 48 * 96; i++) trace += pow((double)direction[i] / size, 2) / 48;
  assert_true(trace > 0.5 && trace < 1.45); /* the mean square of singular values of 0.7 to 1.2 */
  memset(set.grads, 0, (size_t)set.total * sizeof *set.grads);
  memset(momentum, 0, sizeof momentum);
  muon_direction(&set.list[0], 1, momentum, direction, scratch);
  for (int64_t i = 0; i < 48 * 96; i++) assert_true(direction[i] == 0);
  free(scratch);
  param_release(&set);
}

static void run_with_threads(int threads, int kind, real *values, size_t room) {
  ParamSet set;
  Optimizer optimizer;
  double norm;
  assert_int_equal(threads_start(threads), STATUS_OK);
  make_params(&set);
  assert_true((size_t)set.total <= room);
  OptimizerOptions options = {
      .rate = 0.01, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .decay = 0.1, .clip = 0.5, .average = 0.9, .kind = kind};
  assert_int_equal(optimizer_init(&optimizer, &set, &options), STATUS_OK);
  for (uint64_t step = 0; step < 4; step++) {
    draw_gradients(&set, step);
    assert_int_equal(optimizer_step(&optimizer, 1, 1, &norm), STATUS_OK);
  }
  memcpy(values, set.values, (size_t)set.total * sizeof *values);
  optimizer_release(&optimizer);
  param_release(&set);
  threads_stop();
}

/* Products may round otherwise where threads cut them elsewhere: what is said of bits holds for the head alone. */
static void threads_agree_and_the_head_is_adams(void **state) {
  (void)state;
  enum { ROOM = 4 * MAX_NUMBERS };
  static real one[ROOM], four[ROOM], again[ROOM], adam[ROOM];
  run_with_threads(1, OPTIMIZER_MUON, one, ROOM);
  run_with_threads(4, OPTIMIZER_MUON, four, ROOM);
  run_with_threads(4, OPTIMIZER_MUON, again, ROOM);
  run_with_threads(1, OPTIMIZER_ADAMW, adam, ROOM);
  assert_memory_equal(four, again, sizeof four); /* as many threads: the same bits */
  for (int i = 0; i < ROOM; i++) assert_true(fabs((double)(one[i] - four[i])) <= (REAL_IS_DOUBLE ? 1e-12 : 1e-5));
  ParamSet set;
  make_params(&set);
  for (int p = 0; p <= SHAPES; p++) {
    const size_t at = (size_t)(set.list[p].tensor.value - set.values), bytes = (size_t)tensor_count(&set.list[p].tensor) * sizeof(real);
    assert_int_equal(memcmp(one + at, adam + at, bytes) == 0, p == SHAPES);
    if (p == SHAPES) assert_memory_equal(one + at, four + at, bytes);
  }
  param_release(&set);
}

static void narrow_moments_are_refused(void **state) {
  (void)state;
  ParamSet set;
  Optimizer optimizer;
  make_params(&set);
  OptimizerOptions options = {.rate = 0.01, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .kind = OPTIMIZER_MUON, .moments = OPTIMIZER_8_BITS};
  assert_int_equal(optimizer_init(&optimizer, &set, &options), STATUS_BAD_USAGE);
  assert_non_null(strstr(status_message(), "--optimizer-bits"));
  optimizer_release(&optimizer);
  param_release(&set);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(direction_as_written),
      cmocka_unit_test(singular_values_are_near_one),
      cmocka_unit_test(threads_agree_and_the_head_is_adams),
      cmocka_unit_test(narrow_moments_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
