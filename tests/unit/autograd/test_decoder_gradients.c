/* The gradients of the operations of decoders against central differences (gradcheck.h): parts of a weight, 16-bit weights, token
 * embedding, rotary positions, SwiGLU, the next-token loss with a tied table. */
#include "base/threads.h"
#include "unit/autograd/gradcheck.h"

#define LEAF(i) (&fixture->leaf[i])

/* ---- parts of a weight ---- */

enum { IN = 7, OUT = 12 };

typedef struct PartCase {
  const char *name;
  LinearPart part;
  Activation activation;
  bool residual;
  int64_t rows;
} PartCase;

static Tensor *build_part(Fixture *fixture, const void *context, Tensor **second) {
  (void)second;
  const PartCase *c = context;
  return op_linear_part(fixture->tape, LEAF(0), LEAF(1), LEAF(2), &c->part, c->activation, c->residual ? LEAF(3) : NULL);
}

static void test_linear_part(void **state) {
  (void)state;
  static const PartCase cases[] = {{"part", {3, 5, false}, ACTIVATION_NONE, true, 5},
                                   {"part, gelu", {0, 4, false}, ACTIVATION_GELU, false, 1},
                                   {"transposed", {0, OUT, true}, ACTIVATION_GELU_TANH, false, 5},
                                   {"transposed, part", {4, 8, true}, ACTIVATION_NONE, true, 5},
                                   {"transposed, part, many rows", {7, 2, true}, ACTIVATION_NONE, false, 130}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const PartCase *c = &cases[i];
    Fixture fixture;
    fixture_open(&fixture, 1);
    fixture_leaf(&fixture, true, 1, c->rows, IN, 0);
    fixture_leaf(&fixture, true, c->part.transposed ? IN : OUT, c->part.transposed ? OUT : IN, 0, 0);
    fixture_leaf(&fixture, true, OUT, 0, 0, 0);
    fixture_leaf(&fixture, true, 1, c->rows, c->part.count, 0);
    gradcheck(&fixture, c->name, build_part, c);
    fixture_close(&fixture);
  }
}

/* A fused projection: two of its three parts are used, one twice; the third's gradient is exactly zero. */
static Tensor *build_fused(Fixture *fixture, const void *context, Tensor **second) {
  const bool transposed = *(const bool *)context;
  const LinearPart a = {0, 4, transposed}, b = {8, 4, transposed};
  Tensor *x = LEAF(0), *y = op_linear_part(fixture->tape, x, LEAF(1), LEAF(2), &a, ACTIVATION_NONE, NULL);
  *second = op_linear_part(fixture->tape, x, LEAF(1), LEAF(2), &b, ACTIVATION_NONE, y);
  return op_linear_part(fixture->tape, op_scale(fixture->tape, x, 0.5), LEAF(1), NULL, &b, ACTIVATION_NONE, y);
}

static void test_fused(void **state) {
  (void)state;
  for (int transposed = 0; transposed < 2; transposed++) {
    const bool context = transposed;
    Fixture fixture;
    fixture_open(&fixture, 2);
    fixture_leaf(&fixture, true, 2, 3, IN, 0);
    fixture_leaf(&fixture, true, transposed ? IN : OUT, transposed ? OUT : IN, 0, 0);
    fixture_leaf(&fixture, true, OUT, 0, 0, 0);
    gradcheck(&fixture, transposed ? "fused, transposed" : "fused", build_fused, &context);
    gradcheck_backward(&fixture, build_fused, &context);
    for (int64_t i = 0; i < IN * OUT; i++) {
      const int64_t output = transposed ? i % OUT : i / IN;
      assert_int_equal(fixture.leaf[1].grad[i] == 0, output >= 4 && output < 8);
    }
    fixture_close(&fixture);
  }
}

/* ---- 16-bit weights: the same gradients as with the widened ones, and none of their own ---- */

typedef struct NarrowCase {
  LinearPart part;
  int64_t rows;
} NarrowCase;

static Tensor *build_narrow(Fixture *fixture, const void *context, Tensor **second) {
  const NarrowCase *c = context;
  *second = op_scale(fixture->tape, LEAF(1), 2); /* a gradient is there already */
  return op_linear_part(fixture->tape, LEAF(1), LEAF(0), LEAF(2), &c->part, ACTIVATION_GELU, NULL);
}

static void test_narrow(void **state) {
  (void)state;
  static const NarrowCase cases[] = {
      {{0, OUT, false}, 1}, {{3, 5, false}, 20}, {{0, OUT, true}, 20}, {{3, 5, true}, 2}, {{3, 5, true}, 130}};
  for (int kind = NARROW_F16; kind <= NARROW_BF16; kind++)
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
      const NarrowCase *c = &cases[i];
      Fixture fixture;
      real *wide;
      fixture_open(&fixture, 3);
      fixture_narrow_leaf(&fixture, (NarrowKind)kind, c->part.transposed ? IN : OUT, c->part.transposed ? OUT : IN, &wide);
      fixture_leaf(&fixture, true, 1, c->rows, IN, 0);
      fixture_leaf(&fixture, true, OUT, 0, 0, 0);
      gradcheck(&fixture, kind == NARROW_F16 ? "half weight" : "bfloat weight", build_narrow, c);
      free(wide);
      fixture_close(&fixture);
    }
}

/* ---- token embedding ---- */

typedef struct EmbedCase {
  const int32_t *ids, *positions;
} EmbedCase;

static Tensor *build_embed(Fixture *fixture, const void *context, Tensor **second) {
  const EmbedCase *c = context;
  if (LEAF(0)->value) *second = op_scale(fixture->tape, LEAF(0), -1); /* a gradient is there already */
  return op_token_embed(fixture->tape, LEAF(0), c->positions ? LEAF(1) : NULL, c->ids, c->positions, 2, 4);
}

static void test_token_embed(void **state) {
  (void)state;
  static const int32_t ids[] = {3, 0, 3, 3, 6, 1, 0, 6}, positions[] = {1, 4, 1, 0}; /* repeated rows add up, unnamed ones get zero */
  static const EmbedCase with = {ids, positions}, without = {ids, NULL};
  for (int kind = NARROW_NONE; kind <= NARROW_BF16; kind++) {
    Fixture fixture;
    real *wide = NULL;
    fixture_open(&fixture, 4);
    if (kind == NARROW_NONE)
      fixture_leaf(&fixture, true, 7, 5, 0, 0);
    else
      fixture_narrow_leaf(&fixture, (NarrowKind)kind, 7, 5, &wide);
    fixture_leaf(&fixture, true, 5, 5, 0, 0);
    gradcheck(&fixture, "token_embed, positions", build_embed, &with);
    fixture.leaf[1].needs_grad = false;
    if (kind == NARROW_NONE) gradcheck(&fixture, "token_embed", build_embed, &without);
    free(wide);
    fixture_close(&fixture);
  }
}

/* ---- rotary positions, SwiGLU, scale ---- */

enum { PLACES = 6, HALF = 3 };

static real cosine[PLACES * HALF], sine[PLACES * HALF];

static Tensor *build_rope(Fixture *fixture, const void *context, Tensor **second) {
  (void)context;
  static const int32_t positions[] = {5, 0, 2, 2, 3};
  const Rope rope = {cosine, sine, PLACES, 2};
  Tensor *x = op_add(fixture->tape, LEAF(0), LEAF(1));
  *second = op_scale(fixture->tape, LEAF(0), 2);
  return op_rope(fixture->tape, x, &rope, positions);
}

static Tensor *build_swiglu(Fixture *fixture, const void *context, Tensor **second) {
  (void)context, (void)second;
  return op_swiglu(fixture->tape, LEAF(0), LEAF(1));
}

static Tensor *build_swiglu_of_one(Fixture *fixture, const void *context, Tensor **second) {
  (void)context;
  *second = op_swiglu(fixture->tape, LEAF(1), LEAF(0)); /* gradients of both are there already */
  return op_swiglu(fixture->tape, LEAF(0), LEAF(0));
}

static Tensor *build_scale(Fixture *fixture, const void *context, Tensor **second) {
  (void)context;
  *second = op_scale(fixture->tape, LEAF(1), 3);
  return op_scale(fixture->tape, op_add(fixture->tape, LEAF(0), LEAF(1)), -0.37);
}

static void test_elementwise(void **state) {
  (void)state;
  static const struct {
    const char *name;
    GradBuild *build;
  } cases[] = {{"rope", build_rope}, {"swiglu", build_swiglu}, {"swiglu of one", build_swiglu_of_one}, {"scale", build_scale}};
  for (int i = 0; i < PLACES * HALF; i++) cosine[i] = (real)cos(0.3 * i), sine[i] = (real)sin(0.3 * i);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    for (int frozen = -1; frozen < 2; frozen++) {
      Fixture fixture;
      fixture_open(&fixture, 5);
      for (int leaf = 0; leaf < 2; leaf++) fixture_leaf(&fixture, leaf != frozen, 2, 5, 12, 0);
      gradcheck(&fixture, cases[i].name, cases[i].build, NULL);
      fixture_close(&fixture);
    }
}

/* ---- next-token loss ---- */

enum { V = 9, D = 5, MAX_ROWS = 300 };

typedef struct LossCase {
  const char *name;
  int64_t rows;
  double smoothing, uncounted;
  bool frozen_x, frozen_table;
  NarrowKind kind;
  double factor; /* of the loss in the whole: what arrives at it in backward */
  double teaching;
  int32_t labels[MAX_ROWS];
} LossCase;

static Tensor *build_vocab_loss(Fixture *fixture, const void *context, Tensor **second) {
  (void)second;
  const LossCase *c = context;
  VocabLoss options = {.labels = c->labels, .smoothing = c->smoothing, .teaching = c->teaching};
  if (c->teaching > 0) options.teacher = LEAF(2), options.teacher_table = LEAF(3);
  return op_scale(fixture->tape, op_vocab_loss(fixture->tape, LEAF(0), LEAF(1), &options), c->factor);
}

static void test_vocab_loss(void **state) {
  (void)state;
  LossCase cases[] = {{"vocab_loss", 6, .factor = 10},
                      {"vocab_loss, smoothing, uncounted rows", 12, .smoothing = 0.1, .uncounted = 0.4, .factor = -7},
                      {"vocab_loss, no row counts", 3, .uncounted = 1, .factor = 1},
                      {"vocab_loss, two slices", MAX_ROWS, .uncounted = 0.02, .factor = 10},
                      {"vocab_loss, frozen x", 6, .frozen_x = true, .factor = 10},
                      {"vocab_loss, frozen table", 6, .frozen_table = true, .factor = 10},
                      {"vocab_loss, a teacher", 12, .smoothing = 0.1, .uncounted = 0.2, .teaching = 0.6, .factor = 10},
                      {"vocab_loss, half table", 20, .kind = NARROW_F16, .factor = 10},
                      {"vocab_loss, bfloat table", 6, .smoothing = 0.1, .kind = NARROW_BF16, .factor = 10}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    LossCase *c = &cases[i];
    real *wide = NULL;
    Fixture fixture;
    fixture_open(&fixture, 6);
    fixture_leaf(&fixture, !c->frozen_x, 1, c->rows, D, 0);
    if (c->kind == NARROW_NONE)
      fixture_leaf(&fixture, !c->frozen_table, V, D, 0, 0);
    else
      fixture_narrow_leaf(&fixture, c->kind, V, D, &wide);
    if (c->teaching > 0) { /* of another width, and with no gradient */
      fixture_leaf(&fixture, false, 1, c->rows, D + 2, 0);
      fixture_leaf(&fixture, false, V, D + 2, 0, 0);
    }
    for (int64_t r = 0; r < c->rows; r++)
      c->labels[r] = rng_uniform(&fixture.rng) < c->uncounted ? -1 : (int32_t)rng_below(&fixture.rng, V);
    gradcheck(&fixture, c->name, build_vocab_loss, c);
    gradcheck_backward(&fixture, build_vocab_loss, c);
    for (int64_t j = 0; !c->frozen_x && j < c->rows * D; j++)
      if (c->labels[j / D] < 0) assert_true(fixture.leaf[0].grad[j] == 0);
    free(wide);
    fixture_close(&fixture);
  }
}

/* One table for the input and the loss (tied): both gradients add up, in the parameter's own array, over two batches. */
static Tensor *build_tied(Fixture *fixture, const void *context, Tensor **second) {
  static const int32_t ids[] = {3, 0, 3, 8, 1, 1}, labels[] = {0, 3, 8, 1, -1, 2};
  (void)context;
  Tensor *x = op_token_embed(fixture->tape, LEAF(0), NULL, ids, NULL, 2, 3);
  Tensor *h = op_linear(fixture->tape, x, LEAF(1), NULL, ACTIVATION_GELU, NULL);
  *second = op_scale(fixture->tape, LEAF(0), 0.1);
  return op_scale(fixture->tape, op_vocab_loss(fixture->tape, h, LEAF(0), &(VocabLoss){.labels = labels}), 8);
}

static void test_tied(void **state) {
  (void)state;
  Fixture fixture;
  fixture_open(&fixture, 7);
  fixture_leaf(&fixture, true, V, D, 0, 0);
  fixture_leaf(&fixture, true, D, D, 0, 0);
  gradcheck(&fixture, "vocab_loss, tied table", build_tied, NULL);
  gradcheck_backward(&fixture, build_tied, NULL);
  real *once = gradcheck_copy(&fixture.leaf[0]), own[V * D] = {0};
  for (int batch = 0; batch < 2; batch++) {
    tape_clear(fixture.tape);
    fixture.leaf[1].grad = NULL, fixture.leaf[1].grad_filled = false;
    fixture.leaf[0].grad = own, fixture.leaf[0].grad_filled = true; /* as a parameter has it: outside the arena */
    Tensor *second = NULL, *loss = weigh(fixture.tape, build_tied(&fixture, NULL, &second));
    loss = op_add_scaled(fixture.tape, loss, weigh(fixture.tape, second), 1);
    assert_int_equal(tape_backward(fixture.tape, loss), STATUS_OK);
  }
  for (int i = 0; i < V * D; i++)
    assert_true(fabs((double)own[i] - 2 * (double)once[i]) <= (REAL_IS_DOUBLE ? 1e-13 : 1e-5) * fmax(1, fabs((double)own[i])));
  free(once);
  fixture_close(&fixture);
}

/* ---- the last row's attention ---- */

static Tensor *build_last_row(Fixture *fixture, const void *context, Tensor **second) {
  static const AttentionSpan spans[] = {{0, 4, 0, 4}, {4, 3, 4, 3}};
  static const int64_t one[] = {0, 1};
  (void)context, (void)second;
  const AttentionOptions options = {.heads = 2, .kv_heads = 1, .spans = 2, .span = spans, .queries = one};
  return op_attention(fixture->tape, LEAF(0), LEAF(1), LEAF(2), LEAF(3), LEAF(4), &options);
}

static void test_last_row(void **state) {
  (void)state;
  Fixture fixture;
  fixture_open(&fixture, 8);
  fixture_leaf(&fixture, true, 2, 1, 8, 0);
  for (int i = 0; i < 4; i++) fixture_leaf(&fixture, true, 2, 7, 4, 0);
  gradcheck(&fixture, "attention, last row", build_last_row, NULL);
  fixture_close(&fixture);
}

/* ---- the same bits again, and the same numbers with two threads ---- */

static Tensor *build_everything(Fixture *fixture, const void *context, Tensor **second) {
  const int32_t *ids = context;
  static const int32_t positions[] = {5, 0, 2, 2, 3};
  const Rope rope = {cosine, sine, PLACES, 2};
  const LinearPart up = {6, 12, true}, gate = {20, 12, true};
  Tape *tape = fixture->tape;
  Tensor *x = op_rope(tape, op_token_embed(tape, LEAF(0), LEAF(1), ids, positions, 40, 5), &rope, positions);
  *second = op_swiglu(tape, op_linear_part(tape, x, LEAF(2), LEAF(3), &gate, ACTIVATION_NONE, NULL),
                      op_linear_part(tape, x, LEAF(2), LEAF(3), &up, ACTIVATION_NONE, x));
  return op_scale(tape, op_vocab_loss(tape, *second, LEAF(0), &(VocabLoss){.labels = ids}), 3);
}

static void test_repeats(void **state) {
  (void)state;
  int32_t ids[200];
  Fixture fixture;
  fixture_open(&fixture, 9);
  fixture_leaf(&fixture, true, 30, 12, 0, 0), fixture_leaf(&fixture, true, 6, 12, 0, 0);
  fixture_leaf(&fixture, true, 12, 40, 0, 0), fixture_leaf(&fixture, true, 40, 0, 0, 0);
  for (int i = 0; i < 200; i++) ids[i] = (int32_t)rng_below(&fixture.rng, 30);
  real *grad[3][4]; /* one thread, two threads, two threads again */
  for (int run = 0; run < 3; run++) {
    if (run == 1) assert_int_equal(threads_start(2), STATUS_OK);
    gradcheck_backward(&fixture, build_everything, ids);
    for (int i = 0; i < 4; i++) grad[run][i] = gradcheck_copy(&fixture.leaf[i]);
  }
  threads_stop();
  for (int i = 0; i < 4; i++) {
    const int64_t count = tensor_count(&fixture.leaf[i]);
    assert_memory_equal(grad[1][i], grad[2][i], (size_t)count * sizeof(real));
    for (int64_t j = 0; j < count; j++) {
      const double one = (double)grad[0][i][j], two = (double)grad[1][i][j];
      assert_true(fabs(one - two) <= (REAL_IS_DOUBLE ? 1e-12 : 1e-4) * fmax(1, fabs(one)));
    }
    for (int run = 0; run < 3; run++) free(grad[run][i]);
  }
  fixture_close(&fixture);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_linear_part), cmocka_unit_test(test_fused),       cmocka_unit_test(test_narrow),
      cmocka_unit_test(test_token_embed), cmocka_unit_test(test_elementwise), cmocka_unit_test(test_vocab_loss),
      cmocka_unit_test(test_tied),        cmocka_unit_test(test_last_row),    cmocka_unit_test(test_repeats),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
