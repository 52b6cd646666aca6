/* The optimizer against AdamW written down plainly in double, its promises on threads and bad gradients, and the schedule's corners. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/threads.h"
#include "train/optimizer.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PARAMS = 3, STEPS = 6, LARGEST = 40000 }; /* the largest takes three chunks */

static const double TOLERANCE = REAL_IS_DOUBLE ? 1e-12 : 2e-6;

static void make_params(ParamSet *set, uint64_t seed) {
  memset(set, 0, sizeof *set);
  assert_int_equal(param_add(set, PARAM_NORMAL, true, 2, (int64_t[]){200, 200}, "matrix"), 0);
  assert_int_equal(param_add(set, PARAM_NORMAL, false, 1, (int64_t[]){17}, "bias"), 1);
  assert_int_equal(param_add(set, PARAM_NORMAL, true, 2, (int64_t[]){3, 5}, "head"), 2);
  assert_int_equal(param_allocate(set, true), STATUS_OK);
  Rng rng;
  rng_init(&rng, seed, 0);
  param_initialise(set, &rng);
}

static void draw_gradients(ParamSet *set, Rng *rng) {
  for (size_t p = 0; p < set->count; p++)
    for (int64_t i = 0; i < tensor_count(&set->list[p].tensor); i++) set->list[p].tensor.grad[i] = (real)(0.1 * rng_normal(rng));
}

typedef struct Plain { /* one parameter, in double */
  double w[LARGEST], m[LARGEST], v[LARGEST], average[LARGEST];
} Plain;

static double plain_norm(const ParamSet *set, double scale) {
  double sum = 0;
  for (size_t p = 0; p < set->count; p++)
    for (int64_t i = 0; i < tensor_count(&set->list[p].tensor); i++) {
      double g = scale * (double)set->list[p].tensor.grad[i];
      sum += g * g;
    }
  return sqrt(sum);
}

static void plain_step(Plain *plain, const ParamSet *set, const OptimizerOptions *o, int step, double factor, double scale) {
  const double norm = plain_norm(set, scale), keep = fmin(o->average, (1.0 + step) / (10.0 + step));
  if (o->clip > 0 && norm > o->clip) scale *= o->clip / norm;
  for (size_t p = 0; p < set->count; p++)
    for (int64_t i = 0; i < tensor_count(&set->list[p].tensor); i++) {
      Plain *x = &plain[p];
      const double g = scale * (double)set->list[p].tensor.grad[i];
      x->m[i] = o->beta1 * x->m[i] + (1 - o->beta1) * g;
      x->v[i] = o->beta2 * x->v[i] + (1 - o->beta2) * g * g;
      const double m = x->m[i] / (1 - pow(o->beta1, step)), v = x->v[i] / (1 - pow(o->beta2, step));
      const double decay = set->list[p].decay ? o->decay : 0;
      x->w[i] -= o->rate * factor * (m / (sqrt(v) + o->eps) + decay * x->w[i]);
      x->average[i] = keep * x->average[i] + (1 - keep) * x->w[i];
    }
}

static void assert_follows(const ParamSet *set, const Optimizer *optimizer, const Plain *plain) {
  for (size_t p = 0; p < set->count; p++) {
    const Tensor *tensor = &set->list[p].tensor;
    const int64_t offset = tensor->value - set->values;
    for (int64_t i = 0; i < tensor_count(tensor); i++) {
      assert_true(fabs((double)tensor->value[i] - plain[p].w[i]) <= TOLERANCE);
      assert_true(fabs((double)((const real *)optimizer->first.numbers)[offset + i] - plain[p].m[i]) <= TOLERANCE);
      assert_true(fabs((double)((const real *)optimizer->second.numbers)[offset + i] - plain[p].v[i]) <= TOLERANCE);
      if (optimizer->average) assert_true(fabs((double)optimizer->average[offset + i] - plain[p].average[i]) <= TOLERANCE);
    }
  }
}

static void check_against_plain(const OptimizerOptions *options, double scale) {
  ParamSet set;
  Optimizer optimizer;
  make_params(&set, 3);
  Plain *plain = calloc(PARAMS, sizeof *plain);
  assert_non_null(plain);
  for (size_t p = 0; p < PARAMS; p++)
    for (int64_t i = 0; i < tensor_count(&set.list[p].tensor); i++)
      plain[p].w[i] = plain[p].average[i] = (double)set.list[p].tensor.value[i];
  assert_int_equal(optimizer_init(&optimizer, &set, options), STATUS_OK);
  Rng rng;
  rng_init(&rng, 4, 0);
  for (int step = 1; step <= STEPS; step++) {
    const double factor = 1.0 / step;
    double norm;
    draw_gradients(&set, &rng);
    assert_int_equal(optimizer_step(&optimizer, factor, scale, &norm), STATUS_OK);
    assert_true(fabs(norm / plain_norm(&set, scale) - 1) < 1e-6);
    plain_step(plain, &set, options, step, factor, scale);
    assert_follows(&set, &optimizer, plain);
  }
  assert_int_equal(optimizer.steps, STEPS);
  optimizer_release(&optimizer);
  param_release(&set);
  free(plain);
}

static void adam_as_written(void **state) {
  (void)state;
  check_against_plain(&(OptimizerOptions){0.01, 0.9, 0.999, 1e-8, 0, 0, 0, 0, 0, 0}, 1);
}

static void adamw_with_everything(void **state) {
  (void)state;
  check_against_plain(&(OptimizerOptions){0.01, 0.9, 0.98, 1e-6, 0.3, 1.0, 0.95, 0, 0, 0}, 0.25);
}

static void clip_above_the_norm_does_nothing(void **state) {
  (void)state;
  check_against_plain(&(OptimizerOptions){0.01, 0.8, 0.99, 1e-8, 0.05, 1e6, 0.5, 0, 0, 0}, 1);
}

/* Gradient zero: only the decay moves, and only where it applies. */
static void decay_touches_matrices_only(void **state) {
  (void)state;
  ParamSet set;
  Optimizer optimizer;
  double norm;
  make_params(&set, 8);
  param_zero_grads(&set);
  const real matrix = set.list[0].tensor.value[5], bias = set.list[1].tensor.value[5];
  assert_int_equal(optimizer_init(&optimizer, &set, &(OptimizerOptions){0.1, 0.9, 0.999, 1e-8, 0.5, 0, 0, 0, 0, 0}), STATUS_OK);
  assert_int_equal(optimizer_step(&optimizer, 1, 1, &norm), STATUS_OK);
  assert_true(norm == 0);
  assert_true(fabs((double)set.list[0].tensor.value[5] - 0.95 * (double)matrix) < 1e-7 * fabs((double)matrix) + 1e-9);
  assert_true(set.list[1].tensor.value[5] == bias);
  optimizer_release(&optimizer);
  param_release(&set);
}

static void run_with_threads(int threads, int moments, real *values, double *norms) {
  ParamSet set;
  Optimizer optimizer;
  assert_int_equal(threads_start(threads), STATUS_OK);
  make_params(&set, 5);
  assert_int_equal(optimizer_init(&optimizer, &set, &(OptimizerOptions){0.01, 0.9, 0.999, 1e-8, 0.1, 0.5, 0.9, moments, 7, 0}), STATUS_OK);
  Rng rng;
  rng_init(&rng, 6, 0);
  for (int step = 0; step < STEPS; step++) {
    draw_gradients(&set, &rng);
    assert_int_equal(optimizer_step(&optimizer, 1, 1, &norms[step]), STATUS_OK);
  }
  memcpy(values, set.values, (size_t)set.total * sizeof *values);
  optimizer_release(&optimizer);
  param_release(&set);
  threads_stop();
}

static void threads_do_not_change_a_bit(void **state) {
  (void)state;
  static real one[LARGEST + 64], four[LARGEST + 64];
  double norms_one[STEPS], norms_four[STEPS];
  for (int moments = 0; moments < OPTIMIZER_MOMENTS; moments++) {
    run_with_threads(1, moments, one, norms_one);
    run_with_threads(4, moments, four, norms_four);
    assert_memory_equal(one, four, sizeof one);
    assert_memory_equal(norms_one, norms_four, sizeof norms_one);
  }
}

/* A quadratic bowl with noisy gradients: narrow moments lead down it as floats do. Another seed draws otherwise, the same one alike. */
static double descend(int moments, int64_t seed, int steps, real *values) {
  enum { NOISE = 65537 /* prime: each step begins elsewhere in the table */ };
  static double noise[NOISE];
  ParamSet set;
  Optimizer optimizer;
  Rng rng;
  double norm, sum = 0;
  make_params(&set, 5);
  rng_init(&rng, 9, 0);
  for (int i = 0; i < NOISE; i++) noise[i] = rng_normal(&rng);
  int64_t drawn = 0;
  assert_int_equal(optimizer_init(&optimizer, &set, &(OptimizerOptions){0.003, 0.9, 0.999, 1e-8, 0, 0, 0, moments, seed, 0}), STATUS_OK);
  for (int step = 0; step < steps; step++) {
    for (size_t p = 0; p < set.count; p++)
      for (int64_t i = 0; i < tensor_count(&set.list[p].tensor); i++)
        set.list[p].tensor.grad[i] = (real)((1 + i % 100) * ((double)set.list[p].tensor.value[i] - 0.3 + 0.1 * noise[drawn++ % NOISE]));
    assert_int_equal(optimizer_step(&optimizer, 1 - (double)step / steps, 1, &norm), STATUS_OK);
  }
  for (int64_t i = 0; i < LARGEST; i++) sum += pow((double)set.list[0].tensor.value[i] - 0.3, 2) / LARGEST;
  memcpy(values, set.values, (size_t)set.total * sizeof *values);
  optimizer_release(&optimizer);
  param_release(&set);
  return sum;
}

static void narrow_moments_lead_to_the_same_place(void **state) {
  (void)state;
  static real values[3][LARGEST + 64];
  enum { DOWN = 300, FEW = 20 };
  const double wide = descend(OPTIMIZER_32_BITS, 7, DOWN, values[0]);
  for (int moments = OPTIMIZER_16_BITS; moments < OPTIMIZER_MOMENTS; moments++) {
    const double narrow = descend(moments, 7, DOWN, values[0]);
    print_message("left of the way: %.4g with floats, %.4g in %d bits\n", wide, narrow, 32 >> moments);
    assert_true(wide < 2e-3 && narrow < 1.1 * wide); /* from 0.09 */
    descend(moments, 7, FEW, values[0]);
    descend(moments, 7, FEW, values[1]);
    descend(moments, 8, FEW, values[2]);
    assert_memory_equal(values[0], values[1], sizeof values[0]);
    assert_memory_not_equal(values[0], values[2], sizeof values[0]);
  }
}

static void narrow_moments_take_less(void **state) {
  (void)state;
  ParamSet set;
  make_params(&set, 5);
  const double total = (double)set.total;
  assert_true(optimizer_moment_bytes(&set, &(OptimizerOptions){.moments = OPTIMIZER_32_BITS}) == 2 * sizeof(real) * total);
  assert_true(optimizer_moment_bytes(&set, &(OptimizerOptions){.moments = OPTIMIZER_16_BITS}) == 4 * total);
  assert_true(optimizer_moment_bytes(&set, &(OptimizerOptions){.moments = OPTIMIZER_8_BITS}) ==
              2 * total + 2 * sizeof(float) * (157 + 1 + 1)); /* 200 x 200, 17, 15 */
  param_release(&set);
}

static void bad_gradients_are_named(void **state) {
  (void)state;
  ParamSet set;
  Optimizer optimizer;
  Rng rng;
  double norm;
  make_params(&set, 5);
  rng_init(&rng, 6, 0);
  draw_gradients(&set, &rng);
  real *before = malloc((size_t)set.total * sizeof *before);
  assert_non_null(before);
  memcpy(before, set.values, (size_t)set.total * sizeof *before);
  assert_int_equal(optimizer_init(&optimizer, &set, &(OptimizerOptions){0.01, 0.9, 0.999, 1e-8, 0.1, 0.5, 0, 0, 0, 0}), STATUS_OK);
  const real bad[] = {(real)NAN, (real)INFINITY, (real)-INFINITY};
  for (size_t i = 0; i < 3; i++) {
    set.list[1].tensor.grad[16] = bad[i];
    set.list[2].tensor.grad[0] = (real)NAN;
    assert_int_equal(optimizer_step(&optimizer, 1, 1, &norm), STATUS_NUMERIC);
    assert_non_null(strstr(status_message(), "gradient of bias"));
    assert_memory_equal(before, set.values, (size_t)set.total * sizeof *before);
    assert_int_equal(optimizer.steps, 0);
  }
  set.list[1].tensor.grad[16] = set.list[2].tensor.grad[0] = 0;
  assert_int_equal(optimizer_step(&optimizer, 1, 1, &norm), STATUS_OK);
  optimizer_release(&optimizer);
  param_release(&set);
  free(before);
}

static void bad_options_are_refused(void **state) {
  (void)state;
  ParamSet set;
  Optimizer optimizer;
  make_params(&set, 1);
  const OptimizerOptions bad[] = {
      {-1, 0.9, 0.99, 1e-8, 0, 0, 0, 0, 0, 0},          {1e-3, 1, 0.99, 1e-8, 0, 0, 0, 0, 0, 0},
      {1e-3, 0.9, -0.1, 1e-8, 0, 0, 0, 0, 0, 0},        {1e-3, 0.9, 0.99, 0, 0, 0, 0, 0, 0, 0},
      {1e-3, 0.9, 0.99, 1e-8, -1, 0, 0, 0, 0, 0},       {1e-3, 0.9, 0.99, 1e-8, 0, -1, 0, 0, 0, 0},
      {1e-3, 0.9, 0.99, 1e-8, 0, 0, 1, 0, 0, 0},        {1e-3, 0.9, 0.99, 1e-8, 0, 0, 0, 3, 0, 0},
      {(double)NAN, 0.9, 0.99, 1e-8, 0, 0, 0, 0, 0, 0},
  };
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    assert_int_equal(optimizer_init(&optimizer, &set, &bad[i]), STATUS_BAD_VALUE);
    optimizer_release(&optimizer);
  }
  param_release(&set);
}

static void schedule_corners(void **state) {
  (void)state;
  assert_true(optimizer_schedule(0, 10, 110, 0) == 0);
  assert_true(fabs(optimizer_schedule(5, 10, 110, 0) - 0.5) < 1e-15);
  assert_true(optimizer_schedule(10, 10, 110, 0) == 1);
  assert_true(fabs(optimizer_schedule(60, 10, 110, 0.1) - 0.55) < 1e-12);
  assert_true(fabs(optimizer_schedule(35, 10, 110, 0) - (0.5 + 0.25 * sqrt(2))) < 1e-12);
  assert_true(optimizer_schedule(110, 10, 110, 0.1) == 0.1);
  assert_true(optimizer_schedule(999, 10, 110, 0.1) == 0.1);
  assert_true(optimizer_schedule(0, 0, 100, 0) == 1);
  assert_true(optimizer_schedule(99, 0, 100, 0) > 0);
  assert_true(optimizer_schedule(9, 10, 10, 0) == 0.9);
  assert_true(optimizer_schedule(10, 10, 10, 0.25) == 0.25);
  for (int64_t step = 10; step < 110; step++) assert_true(optimizer_schedule(step, 10, 110, 0) > optimizer_schedule(step + 1, 10, 110, 0));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(adam_as_written),
      cmocka_unit_test(adamw_with_everything),
      cmocka_unit_test(clip_above_the_norm_does_nothing),
      cmocka_unit_test(decay_touches_matrices_only),
      cmocka_unit_test(threads_do_not_change_a_bit),
      cmocka_unit_test(narrow_moments_lead_to_the_same_place),
      cmocka_unit_test(narrow_moments_take_less),
      cmocka_unit_test(bad_gradients_are_named),
      cmocka_unit_test(bad_options_are_refused),
      cmocka_unit_test(schedule_corners),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
