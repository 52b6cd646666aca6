/* Gradients against central differences. A test gives leaves and a function that builds one or two outputs from them; the loss is a fixed
 * weighing of every number of the outputs. Each number of each leaf that needs a gradient is moved both ways (a random sample of a large
 * leaf), and the slope is compared with the tape's gradient: in double at relative 1e-6, in float loosely, where it only shows that the
 * float kernels are the same functions. What holds of every operation is checked along the way: a gradient is added to the one that is
 * there, and the gradients of the others are the same beside a leaf that needs none. */
#ifndef TESTS_GRADCHECK_H
#define TESTS_GRADCHECK_H
#include "unit/autograd/tape_fixture.h"
#include <stdio.h>

enum { GRADCHECK_SAMPLE = 150 };

/* Where |slope| is tiny, what the differences themselves cannot resolve is allowed for: the loss is of the order of 10. */
#define GRADCHECK_STEP     (REAL_IS_DOUBLE ? 1e-5 : 1e-2)
#define GRADCHECK_RELATIVE (REAL_IS_DOUBLE ? 1e-6 : 1e-2)
#define GRADCHECK_ABSOLUTE (REAL_IS_DOUBLE ? 2e-9 : 1e-3)

/* Returns the output; may set *second to another one that counts in the loss. */
typedef Tensor *GradBuild(Fixture *fixture, const void *context, Tensor **second);

static inline double gradcheck_loss(Fixture *fixture, GradBuild *build, const void *context) {
  fixture_clear(fixture);
  Tensor *second = NULL, *y = build(fixture, context, &second);
  if (!y) fail_msg("the operation failed: %s", status_message());
  return weigh_sum(y) + (second ? weigh_sum(second) : 0);
}

static inline void gradcheck_run(Fixture *fixture, GradBuild *build, const void *context) {
  Tensor *second = NULL, *y = build(fixture, context, &second), *loss = weigh(fixture->tape, y);
  if (second) loss = op_add_scaled(fixture->tape, loss, weigh(fixture->tape, second), 1);
  if (tape_backward(fixture->tape, loss) != STATUS_OK) fail_msg("backward failed: %s", status_message());
}

/* Runs the tape; the gradients are then in the leaves. */
static inline void gradcheck_backward(Fixture *fixture, GradBuild *build, const void *context) {
  fixture_clear(fixture);
  gradcheck_run(fixture, build, context);
}

/* A copy of a leaf's gradient, zeros where none arrived. The caller frees it. */
static inline real *gradcheck_copy(const Tensor *leaf) {
  real *copy = calloc((size_t)tensor_count(leaf), sizeof *copy);
  assert_non_null(copy);
  if (leaf->grad) memcpy(copy, leaf->grad, (size_t)tensor_count(leaf) * sizeof *copy);
  return copy;
}

static inline double gradcheck_slope(Fixture *fixture, GradBuild *build, const void *context, real *number) {
  const real before = *number, above = before + (real)GRADCHECK_STEP, below = before - (real)GRADCHECK_STEP;
  *number = above;
  const double up = gradcheck_loss(fixture, build, context);
  *number = below;
  const double down = gradcheck_loss(fixture, build, context);
  *number = before;
  return (up - down) / ((double)above - (double)below);
}

/* The worst deviation of a leaf's gradient as a multiple of what is allowed. */
static inline double gradcheck_leaf(Fixture *fixture, const char *what, int index, GradBuild *build, const void *context,
                                    const real *grad) {
  Tensor *leaf = &fixture->leaf[index];
  const int64_t count = tensor_count(leaf), tries = count < GRADCHECK_SAMPLE ? count : GRADCHECK_SAMPLE;
  double worst = 0;
  for (int64_t t = 0; t < tries; t++) {
    const int64_t i = tries == count ? t : (int64_t)rng_below(&fixture->rng, (uint64_t)count);
    const double slope = gradcheck_slope(fixture, build, context, &leaf->value[i]), found = (double)grad[i];
    const double off = fabs(found - slope) / (GRADCHECK_ABSOLUTE + GRADCHECK_RELATIVE * fmax(fabs(slope), fabs(found)));
    if (!(off <= 1)) fail_msg("%s: d loss / d leaf %d [%d] is %.10g, by differences %.10g", what, index, (int)i, found, slope);
    worst = off > worst ? off : worst;
  }
  return worst;
}

/* What is computed twice in another order may differ by roundings. */
static inline void gradcheck_same(const char *what, const char *when, int index, int64_t i, double found, double want) {
  if (fabs(found - want) <= (REAL_IS_DOUBLE ? 1e-12 : 1e-4) * fmax(1, fabs(want))) return;
  fail_msg("%s: d loss / d leaf %d [%d] is %.10g %s, not %.10g", what, index, (int)i, found, when, want);
}

/* Leaves as parameters have them, with gradients of their own memory in which something is already. */
static inline void gradcheck_adds(Fixture *fixture, const char *what, GradBuild *build, const void *context, real *const *grad) {
  real *sum[FIXTURE_LEAVES] = {NULL};
  fixture_clear(fixture);
  for (int i = 0; i < fixture->leaves; i++) {
    Tensor *leaf = &fixture->leaf[i];
    if (!leaf->needs_grad) continue;
    sum[i] = malloc((size_t)tensor_count(leaf) * sizeof **sum);
    assert_non_null(sum[i]);
    for (int64_t j = 0; j < tensor_count(leaf); j++) sum[i][j] = (real)weigh_weight(j);
    leaf->grad = sum[i], leaf->grad_filled = true;
  }
  gradcheck_run(fixture, build, context);
  for (int i = 0; i < fixture->leaves; i++) {
    for (int64_t j = 0; sum[i] && j < tensor_count(&fixture->leaf[i]); j++)
      gradcheck_same(what, "added to another", i, j, (double)sum[i][j], (double)(real)weigh_weight(j) + (double)grad[i][j]);
    free(sum[i]);
  }
  fixture_clear(fixture);
}

/* One leaf after the other needs no gradient. */
static inline void gradcheck_frozen(Fixture *fixture, const char *what, GradBuild *build, const void *context, real *const *grad) {
  int wanted = 0;
  for (int i = 0; i < fixture->leaves; i++) wanted += fixture->leaf[i].needs_grad;
  for (int frozen = 0; wanted > 1 && frozen < fixture->leaves; frozen++) {
    if (!fixture->leaf[frozen].needs_grad) continue;
    fixture->leaf[frozen].needs_grad = false;
    gradcheck_backward(fixture, build, context);
    assert_null(fixture->leaf[frozen].grad);
    for (int i = 0; i < fixture->leaves; i++)
      for (int64_t j = 0; fixture->leaf[i].needs_grad && j < tensor_count(&fixture->leaf[i]); j++)
        gradcheck_same(what, "beside a frozen leaf", i, j, fixture->leaf[i].grad ? (double)fixture->leaf[i].grad[j] : 0,
                       (double)grad[i][j]);
    fixture->leaf[frozen].needs_grad = true;
  }
  fixture_clear(fixture);
}

static inline void gradcheck(Fixture *fixture, const char *what, GradBuild *build, const void *context) {
  real *grad[FIXTURE_LEAVES];
  gradcheck_backward(fixture, build, context);
  for (int i = 0; i < fixture->leaves; i++) {
    if (!fixture->leaf[i].needs_grad) assert_null(fixture->leaf[i].grad);
    grad[i] = gradcheck_copy(&fixture->leaf[i]);
  }
  gradcheck_adds(fixture, what, build, context, grad);
  gradcheck_frozen(fixture, what, build, context, grad);
  double worst = 0;
  for (int i = 0; i < fixture->leaves; i++) {
    if (fixture->leaf[i].needs_grad) worst = fmax(worst, gradcheck_leaf(fixture, what, i, build, context, grad[i]));
    free(grad[i]);
  }
  printf("%-44s worst gradient at %.3f of the tolerance\n", what, worst);
}

#endif
