/* What every test of operations starts from: a tape over its own arena, random leaf tensors, and a loss that weighs any output. */
#ifndef TESTS_TAPE_FIXTURE_H
#define TESTS_TAPE_FIXTURE_H
#include "autograd/ops/ops.h"
#include "autograd/tape.h"
#include "base/arena.h"
#include "base/rng.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { FIXTURE_LEAVES = 8 };

typedef struct Fixture {
  Arena *arena;
  Tape *tape;
  Rng rng;
  int leaves;
  Tensor leaf[FIXTURE_LEAVES]; /* values from malloc, gradients on the tape */
} Fixture;

static inline void fixture_open(Fixture *fixture, uint64_t seed) {
  *fixture = (Fixture){.arena = arena_new((size_t)64 << 20)};
  assert_non_null(fixture->arena);
  fixture->tape = tape_new(fixture->arena);
  assert_non_null(fixture->tape);
  tape_record(fixture->tape, true);
  rng_init(&fixture->rng, seed, 0);
}

static inline void fixture_close(Fixture *fixture) {
  tape_free(fixture->tape);
  arena_free(fixture->arena);
  for (int i = 0; i < fixture->leaves; i++) {
    free(fixture->leaf[i].value);
    free((void *)(uintptr_t)fixture->leaf[i].narrow);
  }
}

/* Empties the tape; the leaves stay, without gradients. */
static inline void fixture_clear(Fixture *fixture) {
  tape_clear(fixture->tape);
  for (int i = 0; i < fixture->leaves; i++) {
    fixture->leaf[i].grad = NULL;
    fixture->leaf[i].grad_filled = false;
  }
}

static inline void fixture_randomise(Fixture *fixture, real *values, int64_t count) {
  for (int64_t i = 0; i < count; i++) values[i] = (real)rng_normal(&fixture->rng);
}

/* A leaf of normal numbers; trailing dimensions that are 0 are left out. */
static inline Tensor *fixture_leaf(Fixture *fixture, bool needs_grad, int64_t d0, int64_t d1, int64_t d2, int64_t d3) {
  assert_true(fixture->leaves < FIXTURE_LEAVES);
  Tensor *leaf = &fixture->leaf[fixture->leaves++];
  *leaf = (Tensor){.dims = d3 ? 4 : d2 ? 3 : d1 ? 2 : 1, .shape = {d0, d1, d2, d3}, .needs_grad = needs_grad};
  leaf->value = malloc((size_t)tensor_count(leaf) * sizeof(real));
  assert_non_null(leaf->value);
  fixture_randomise(fixture, leaf->value, tensor_count(leaf));
  return leaf;
}

/* A frozen 16-bit leaf [d0, d1] of numbers between 1/8 and 4 of either sign; *wide (malloc'd, the caller's) are the same numbers. */
static inline Tensor *fixture_narrow_leaf(Fixture *fixture, NarrowKind kind, int64_t d0, int64_t d1, real **wide) {
  assert_true(fixture->leaves < FIXTURE_LEAVES);
  Tensor *leaf = &fixture->leaf[fixture->leaves++];
  uint16_t *bits = malloc((size_t)(d0 * d1) * sizeof *bits);
  *wide = malloc((size_t)(d0 * d1) * sizeof **wide);
  assert_true(bits != NULL && *wide != NULL);
  const int fraction_bits = kind == NARROW_F16 ? 10 : 7, exponent = kind == NARROW_F16 ? 12 : 124;
  for (int64_t i = 0; i < d0 * d1; i++) {
    const int64_t power = (int64_t)rng_below(&fixture->rng, 5) - 3, fraction = (int64_t)rng_below(&fixture->rng, 1u << fraction_bits);
    const bool negative = rng_below(&fixture->rng, 2);
    bits[i] = (uint16_t)((negative ? 0x8000 : 0) | (exponent + 3 + power) << fraction_bits | fraction);
    (*wide)[i] = (real)((negative ? -1 : 1) * ldexp(1 + (double)fraction / (1 << fraction_bits), (int)power));
  }
  *leaf = (Tensor){.dims = 2, .shape = {d0, d1}, .narrow = bits, .narrow_kind = kind};
  return leaf;
}

/* ---- what an operation's output is compared with ---- */

static inline void check_value(const char *what, int64_t i, real got, double want) {
  if (fabs((double)got - want) <= (REAL_IS_DOUBLE ? 1e-12 : 2e-5) * fmax(1, fabs(want))) return;
  fail_msg("%s [%d]: %.9g, expected %.9g", what, (int)i, (double)got, want);
}

static inline void check_shape(const Tensor *tensor, int dims, int64_t d0, int64_t d1, int64_t d2) {
  const int64_t shape[] = {d0, d1, d2};
  if (!tensor) fail_msg("the operation failed: %s", status_message());
  assert_int_equal(tensor->dims, dims);
  for (int d = 0; d < dims; d++) assert_int_equal(tensor->shape[d], shape[d]);
}

/* The operation was refused with a message that has this word. */
static inline void check_op_refused(Fixture *fixture, const Tensor *y, const char *word) {
  assert_null(y);
  assert_int_equal(tape_status(fixture->tape), STATUS_BAD_VALUE);
  if (!strstr(status_message(), word)) fail_msg("\"%s\" does not say \"%s\"", status_message(), word);
  fixture_clear(fixture);
}

/* ---- sum of weight[i] y[i], with weights that are a function of i ---- */

static inline double weigh_weight(int64_t i) { return sin(1.7 * (double)i + 0.4) + 0.1; }

static inline double weigh_sum(const Tensor *y) {
  double sum = 0;
  for (int64_t i = 0; i < tensor_count(y); i++) sum += weigh_weight(i) * (double)y->value[i];
  return sum;
}

typedef struct Weigh {
  Tensor *y, *loss;
} Weigh;

static inline void weigh_forward(Tape *tape, void *record) {
  (void)tape;
  Weigh *job = record;
  job->loss->value[0] = (real)weigh_sum(job->y);
}

static inline void weigh_backward(Tape *tape, void *record) {
  Weigh *job = record;
  real *dy = tape_grad_zeroed(tape, job->y);
  for (int64_t i = 0; dy && i < tensor_count(job->y); i++) dy[i] += job->loss->grad[0] * (real)weigh_weight(i);
}

static const OpKind WEIGH = {"weigh", weigh_forward, weigh_backward};

static inline Tensor *weigh(Tape *tape, Tensor *y) {
  if (!y) return NULL;
  Weigh *job = tape_alloc(tape, sizeof *job);
  Tensor *loss = tape_tensor(tape, 1, (const int64_t[]){1});
  if (!job || !loss) return NULL;
  *job = (Weigh){y, loss};
  loss->needs_grad = y->needs_grad;
  tape_apply(tape, &WEIGH, job, loss);
  return loss;
}

#endif
