/* Every operation's gradient against central differences (gradcheck.h), and the paths on which no gradient may flow. */
#include "unit/autograd/gradcheck.h"

#define LEAF(i) (&fixture->leaf[i])

/* ---- linear ---- */

typedef struct LinearCase {
  const char *name;
  Activation activation;
  bool bias, residual;
  int64_t rows;
} LinearCase;

static Tensor *build_linear(Fixture *fixture, const void *context, Tensor **second) {
  (void)second;
  const LinearCase *c = context;
  return op_linear(fixture->tape, LEAF(0), LEAF(1), c->bias ? LEAF(2) : NULL, c->activation, c->residual ? LEAF(3) : NULL);
}

static void test_linear(void **state) {
  (void)state;
  static const LinearCase cases[] = {{"linear", ACTIVATION_NONE, true, false, 5},
                                     {"linear without bias", ACTIVATION_NONE, false, false, 5},
                                     {"linear, residual", ACTIVATION_NONE, true, true, 5},
                                     {"linear, residual without bias", ACTIVATION_NONE, false, true, 1},
                                     {"linear, gelu", ACTIVATION_GELU, true, false, 5},
                                     {"linear, gelu without bias", ACTIVATION_GELU, false, false, 1},
                                     {"linear, gelu by tanh", ACTIVATION_GELU_TANH, true, false, 5},
                                     {"linear, gelu, many rows", ACTIVATION_GELU, true, false, 130}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Fixture fixture;
    fixture_open(&fixture, 1);
    fixture_leaf(&fixture, true, 1, cases[i].rows, 7, 0);
    fixture_leaf(&fixture, true, 9, 7, 0, 0);
    fixture_leaf(&fixture, true, 9, 0, 0, 0);
    fixture_leaf(&fixture, true, 1, cases[i].rows, 9, 0);
    gradcheck(&fixture, cases[i].name, build_linear, &cases[i]);
    fixture_close(&fixture);
  }
}

/* One tensor in three roles: gradients of all of them must add up. */
static Tensor *build_shared(Fixture *fixture, const void *context, Tensor **second) {
  (void)context;
  Tensor *hidden = op_linear(fixture->tape, LEAF(0), LEAF(1), NULL, ACTIVATION_GELU, NULL);
  Tensor *sum = op_add(fixture->tape, op_linear(fixture->tape, hidden, LEAF(1), NULL, ACTIVATION_NONE, LEAF(0)), LEAF(0));
  *second = op_add(fixture->tape, hidden, hidden);
  return sum;
}

static void test_shared(void **state) {
  (void)state;
  Fixture fixture;
  fixture_open(&fixture, 2);
  fixture_leaf(&fixture, true, 3, 6, 0, 0);
  fixture_leaf(&fixture, true, 6, 6, 0, 0);
  gradcheck(&fixture, "tensors used several times", build_shared, NULL);
  fixture_close(&fixture);
}

/* ---- norms ---- */

static Tensor *build_layer_norm(Fixture *fixture, const void *context, Tensor **second) {
  (void)context, (void)second;
  return op_layer_norm(fixture->tape, LEAF(0), LEAF(1), LEAF(2), 1e-5);
}

static Tensor *build_rms_norm(Fixture *fixture, const void *context, Tensor **second) {
  (void)context, (void)second;
  return op_rms_norm(fixture->tape, LEAF(0), LEAF(1), 1e-6);
}

static void test_norms(void **state) {
  (void)state;
  for (int rms = 0; rms < 2; rms++) {
    Fixture fixture;
    fixture_open(&fixture, 3);
    fixture_leaf(&fixture, true, 2, 20, 11, 0);
    fixture_leaf(&fixture, true, 11, 0, 0, 0);
    if (!rms) fixture_leaf(&fixture, true, 11, 0, 0, 0);
    gradcheck(&fixture, rms ? "rms_norm" : "layer_norm", rms ? build_rms_norm : build_layer_norm, NULL);
    fixture_close(&fixture);
  }
}

/* ---- patch embedding ---- */

static Tensor *build_patch_embed(Fixture *fixture, const void *context, Tensor **second) {
  (void)second;
  return op_patch_embed(fixture->tape, LEAF(0), LEAF(1), LEAF(2), LEAF(3), LEAF(4), 2, context, 7);
}

static void test_patch_embed(void **state) {
  (void)state;
  static const int32_t row_token[] = {-1, 4, 0, -1, 2, 5, 1}; /* two class tokens; patch 3 lives elsewhere */
  Fixture fixture;
  fixture_open(&fixture, 5);
  fixture_leaf(&fixture, false, 2, 3, 4, 6);
  fixture_leaf(&fixture, true, 5, 3, 2, 2);
  fixture_leaf(&fixture, true, 5, 0, 0, 0);
  fixture_leaf(&fixture, true, 1, 7, 5, 0);
  fixture_leaf(&fixture, true, 1, 1, 5, 0);
  gradcheck(&fixture, "patch_embed", build_patch_embed, row_token);
  fixture_close(&fixture);
}

/* ---- rows and sums ---- */

static Tensor *build_add(Fixture *fixture, const void *context, Tensor **second) {
  (void)context, (void)second;
  return op_add(fixture->tape, LEAF(0), LEAF(1));
}

/* A left-out sample and one that counts more; the sum's gradient reaches the residual by both ways. */
static Tensor *build_drop_path(Fixture *fixture, const void *context, Tensor **second) {
  (void)context;
  static const real scale[] = {0, (real)1.6};
  *second = op_add(fixture->tape, LEAF(0), LEAF(0)); /* a gradient is there already */
  return op_drop_path(fixture->tape, LEAF(0), op_add(fixture->tape, LEAF(0), LEAF(1)), scale);
}

static Tensor *build_gather(Fixture *fixture, const void *context, Tensor **second) {
  *second = op_add(fixture->tape, LEAF(0), LEAF(1)); /* a gradient is there already when the gathered one arrives */
  return op_gather_rows(fixture->tape, LEAF(0), context, 3);
}

static Tensor *build_join(Fixture *fixture, const void *context, Tensor **second) {
  *second = op_add(fixture->tape, LEAF(0), LEAF(1));
  return op_join(fixture->tape, op_gather_rows(fixture->tape, LEAF(1), context, 3), op_gather_rows(fixture->tape, LEAF(0), context, 3));
}

static Tensor *build_mean(Fixture *fixture, const void *context, Tensor **second) {
  (void)context;
  *second = op_add(fixture->tape, LEAF(0), LEAF(1));
  return op_mean_replicas(fixture->tape, LEAF(0), NULL);
}

static Tensor *build_weighted_mean(Fixture *fixture, const void *context, Tensor **second) {
  static const real weights[] = {(real)0.4, (real)0.3, (real)0.2, (real)0.1, 0, 0};
  (void)context;
  *second = op_add(fixture->tape, LEAF(0), LEAF(1));
  return op_mean_replicas(fixture->tape, LEAF(0), weights);
}

static Tensor *build_add_scaled(Fixture *fixture, const void *context, Tensor **second) {
  (void)context, (void)second;
  Tensor *a = weigh(fixture->tape, LEAF(0)), *b = weigh(fixture->tape, LEAF(1));
  return op_add_scaled(fixture->tape, a, b, -0.37);
}

static void test_rows_and_sums(void **state) {
  (void)state;
  static const int32_t rows[] = {4, 0, 3};
  static const struct {
    const char *name;
    GradBuild *build;
  } cases[] = {{"add", build_add},
               {"drop_path", build_drop_path},
               {"gather_rows", build_gather},
               {"join", build_join},
               {"mean_replicas", build_mean},
               {"mean_replicas, weighted", build_weighted_mean},
               {"add_scaled", build_add_scaled}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Fixture fixture;
    fixture_open(&fixture, 6);
    fixture_leaf(&fixture, true, 2, 5, 7, 0);
    fixture_leaf(&fixture, true, 2, 5, 7, 0);
    gradcheck(&fixture, cases[i].name, cases[i].build, rows);
    fixture_close(&fixture);
  }
}

/* ---- cross-entropy ---- */

static Tensor *build_cross_entropy(Fixture *fixture, const void *context, Tensor **second) {
  (void)second;
  return op_cross_entropy(fixture->tape, LEAF(0), context);
}

static void test_cross_entropy(void **state) {
  (void)state;
  static const int32_t labels[] = {2, 0, 8, 8, 5}, ignored[] = {2, -1, 8, -1, 5}, other[] = {1, 0, 3, 7, 6}, none[] = {-1, -1, -1, -1, -1};
  static const real mix[] = {(real)0.25, 1, (real)0.5, 0, (real)0.9};
  static real taught[5 * 9]; /* rows of (v + row) / sum */
  for (int i = 0; i < 5 * 9; i++) taught[i] = (real)(i % 9 + i / 9) / (real)(36 + 9 * (i / 9));
  static const struct {
    const char *name;
    CrossEntropy options;
  } cases[] = {{"cross_entropy", {.labels = labels}},
               {"cross_entropy, smoothing", {.labels = labels, .smoothing = 0.1}},
               {"cross_entropy, mixup", {.labels = labels, .other = other, .mix = mix}},
               {"cross_entropy, ignored rows", {.labels = ignored}},
               {"cross_entropy, all of it", {.labels = ignored, .other = other, .mix = mix, .smoothing = 0.2}},
               {"cross_entropy, a teacher", {.labels = ignored, .smoothing = 0.2, .teacher = taught, .teaching = 0.7}},
               {"cross_entropy, every row ignored", {.labels = none}}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Fixture fixture;
    fixture_open(&fixture, 7);
    fixture_leaf(&fixture, true, 5, 9, 0, 0);
    gradcheck(&fixture, cases[i].name, build_cross_entropy, &cases[i].options);
    gradcheck_backward(&fixture, build_cross_entropy, &cases[i].options);
    for (int64_t row = 0; row < 5; row++)
      for (int64_t v = 0; cases[i].options.labels[row] < 0 && v < 9; v++) assert_true(fixture.leaf[0].grad[row * 9 + v] == 0);
    fixture_close(&fixture);
  }
}

/* ---- rows against constant ones ---- */

static Tensor *build_row_error(Fixture *fixture, const void *context, Tensor **second) {
  static const int32_t rows[] = {3, 0, 3};
  (void)second;
  return op_row_error(fixture->tape, LEAF(0), context, 4, rows, NULL);
}

static Tensor *build_row_error_of_power(Fixture *fixture, const void *context, Tensor **second) {
  static const int32_t rows[] = {3, 0, 3};
  static const double power = 2.5;
  (void)second;
  return op_row_error(fixture->tape, LEAF(0), context, 4, rows, &power);
}

static void test_row_error(void **state) {
  (void)state;
  static real target[2 * 4 * 5];
  for (int i = 0; i < 2 * 4 * 5; i++) target[i] = (real)(i % 7) / 3 - 1;
  Fixture fixture;
  fixture_open(&fixture, 12);
  fixture_leaf(&fixture, true, 2, 3, 5, 0);
  gradcheck(&fixture, "row_error", build_row_error, target);
  gradcheck(&fixture, "row_error of a power", build_row_error_of_power, target);
  fixture_close(&fixture);
}

/* ---- quantisation ---- */

enum { Q_ROWS = 6, Q_WIDTH = 8, Q_GROUPS = 2, Q_ENTRIES = 5, Q_PART = Q_WIDTH / Q_GROUPS };

static const int32_t q_codes[Q_ROWS * Q_GROUPS] = {0, 4, 1, 1, 3, 2, 0, 0, 4, 3, 2, 2};

typedef struct QuantiseCase {
  QuantiseNoise draws;
  Quantise options;
  real codebook[Q_GROUPS * Q_ENTRIES * Q_PART], noise[Q_ROWS * Q_WIDTH], frozen[Q_ROWS * Q_WIDTH];
} QuantiseCase;

static void draw_noise(const QuantiseNoise *self, int64_t first, int64_t rows, real *noise, real *scratch) {
  const QuantiseCase *c = (const QuantiseCase *)self;
  (void)scratch;
  memcpy(noise, c->noise + first * Q_WIDTH, (size_t)(rows * Q_WIDTH) * sizeof *noise);
}

static void quantise_open(Fixture *fixture, QuantiseCase *c, QuantiseGradient gradient, bool frozen) {
  fixture_open(fixture, 8);
  const Tensor *x = fixture_leaf(fixture, true, 2, Q_ROWS / 2, Q_WIDTH, 0);
  fixture_leaf(fixture, true, 2, Q_ROWS / 2, Q_WIDTH, 0);
  fixture_randomise(fixture, c->codebook, Q_GROUPS * Q_ENTRIES * Q_PART);
  fixture_randomise(fixture, c->noise, Q_ROWS * Q_WIDTH);
  memcpy(c->frozen, x->value, sizeof c->frozen);
  c->draws.draw = draw_noise;
  c->options = (Quantise){c->codebook, Q_GROUPS, Q_ENTRIES, q_codes, &c->draws, NULL, gradient, frozen ? c->frozen : NULL};
}

/* Both outputs; a following product, so that what flows back is not the fixed weights. */
static Tensor *build_quantise(Fixture *fixture, const void *context, Tensor **second) {
  const QuantiseCase *c = context;
  return op_add(fixture->tape, op_quantise(fixture->tape, LEAF(0), &c->options, second), LEAF(1));
}

static Tensor *build_commitment(Fixture *fixture, const void *context, Tensor **second) {
  (void)second;
  const QuantiseCase *c = context;
  Tensor *commitment = NULL;
  op_quantise(fixture->tape, LEAF(0), &c->options, &commitment);
  return commitment;
}

static Tensor *build_tokens(Fixture *fixture, const void *context, Tensor **second) {
  (void)second;
  Tensor *commitment = NULL;
  return build_quantise(fixture, context, &commitment);
}

static void test_quantise(void **state) {
  (void)state;
  static const char *const names[] = {"quantise, straight-through", "quantise, rotation", "quantise, none"};
  for (int gradient = QUANTISE_STRAIGHT; gradient <= QUANTISE_NONE; gradient++) {
    Fixture fixture;
    QuantiseCase c;
    quantise_open(&fixture, &c, (QuantiseGradient)gradient, true);
    gradcheck(&fixture, names[gradient], build_quantise, &c);
    fixture_close(&fixture);
  }
}

/* What training uses (not frozen) gives the gradient that was checked, and leaves the codebook and the noise alone. */
static void test_quantise_frozen_is_real(void **state) {
  (void)state;
  for (int gradient = QUANTISE_STRAIGHT; gradient <= QUANTISE_NONE; gradient++) {
    Fixture fixture;
    QuantiseCase c;
    quantise_open(&fixture, &c, (QuantiseGradient)gradient, true);
    gradcheck_backward(&fixture, build_quantise, &c);
    real *checked = gradcheck_copy(&fixture.leaf[0]);
    c.options.frozen_x = NULL;
    const QuantiseCase before = c;
    gradcheck_backward(&fixture, build_quantise, &c);
    for (int64_t i = 0; i < Q_ROWS * Q_WIDTH; i++)
      assert_true(fabs((double)(checked[i] - fixture.leaf[0].grad[i])) <= (REAL_IS_DOUBLE ? 1e-13 : 1e-5));
    assert_memory_equal(before.codebook, c.codebook, sizeof c.codebook);
    assert_memory_equal(before.noise, c.noise, sizeof c.noise);
    free(checked);
    fixture_close(&fixture);
  }
}

/* The stopped paths are exactly zero: no gradient at all through the tokens, and the commitment's alone when both flow. */
static void test_quantise_none_is_zero(void **state) {
  (void)state;
  Fixture fixture;
  QuantiseCase c;
  quantise_open(&fixture, &c, QUANTISE_NONE, false);
  gradcheck_backward(&fixture, build_tokens, &c);
  const Tensor *x = &fixture.leaf[0];
  for (int64_t i = 0; x->grad && i < Q_ROWS * Q_WIDTH; i++) assert_true(x->grad[i] == 0);
  gradcheck_backward(&fixture, build_commitment, &c);
  real *alone = gradcheck_copy(x);
  gradcheck_backward(&fixture, build_quantise, &c);
  assert_memory_equal(alone, x->grad, Q_ROWS * Q_WIDTH * sizeof(real));
  assert_true(alone[0] != 0);
  free(alone);
  fixture_close(&fixture);
}

/* Straight-through is the identity, bit for bit. */
static void test_quantise_straight_is_identity(void **state) {
  (void)state;
  Fixture fixture;
  QuantiseCase c;
  quantise_open(&fixture, &c, QUANTISE_STRAIGHT, false);
  gradcheck_backward(&fixture, build_tokens, &c);
  assert_memory_equal(fixture.leaf[0].grad, fixture.leaf[1].grad, Q_ROWS * Q_WIDTH * sizeof(real));
  fixture_close(&fixture);
}

/* ---- attention ---- */

typedef struct AttentionCase {
  const char *name;
  int64_t batch, rows, remote, head;
  int heads, kv_heads;
  bool causal;
  int spans;
  AttentionSpan span[3];
  uint8_t lost[2 * 9]; /* [B, R], used when with_lost */
  bool with_lost;
  int64_t queries[3]; /* used when not 0 */
  real first_bias;
} AttentionCase;

static const AttentionCase attention_cases[] = {
    {"attention, plain", .batch = 2, .rows = 5, .head = 4, .heads = 2, .kv_heads = 2, .spans = 1, .span = {{0, 5, 0, 0}}},
    {"attention, causal", .batch = 2, .rows = 5, .head = 4, .heads = 2, .kv_heads = 2, .causal = true, .spans = 1, .span = {{0, 5, 0, 0}}},
    {"attention, plain, two tiles", .batch = 1, .rows = 150, .head = 3, .heads = 1, .kv_heads = 1, .spans = 1, .span = {{0, 150, 0, 0}}},
    {"attention, causal, two tiles", .batch = 1, .rows = 150, .head = 3, .heads = 1, .kv_heads = 1, .causal = true, .spans = 1,
     .span = {{0, 150, 0, 0}}},
    {"attention, three devices", .batch = 2, .rows = 9, .remote = 9, .head = 4, .heads = 2, .kv_heads = 2, .spans = 3,
     .span = {{0, 3, 0, 3}, {3, 3, 3, 3}, {6, 3, 6, 3}}},
    {"attention, uneven, one row alone, replicas", .batch = 2, .rows = 9, .remote = 6, .head = 4, .heads = 2, .kv_heads = 2, .spans = 3,
     .span = {{0, 5, 0, 4}, {5, 1, 4, 0}, {6, 3, 4, 2}}},
    {"attention, devices, causal", .batch = 2, .rows = 9, .remote = 9, .head = 4, .heads = 2, .kv_heads = 2, .causal = true, .spans = 3,
     .span = {{0, 4, 0, 4}, {4, 1, 4, 1}, {5, 4, 5, 4}}},
    {"attention, grouped heads", .batch = 2, .rows = 9, .remote = 9, .head = 3, .heads = 4, .kv_heads = 2, .causal = true, .spans = 2,
     .span = {{0, 4, 0, 4}, {4, 5, 4, 5}}},
    {"attention, lost rows", .batch = 2, .rows = 9, .remote = 9, .head = 4, .heads = 2, .kv_heads = 1, .spans = 3,
     .span = {{0, 3, 0, 3}, {3, 2, 3, 2}, {5, 4, 5, 4}}, .lost = {1, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 1, 1, 1, 1, 1, 1, 1}, .with_lost = true},
    {"attention, class tokens alone ask", .batch = 2, .rows = 9, .remote = 7, .head = 4, .heads = 2, .kv_heads = 2, .spans = 2,
     .span = {{0, 5, 0, 4}, {5, 4, 4, 3}}, .queries = {1, 2}},
    {"attention, first rows with a bias", .batch = 2, .rows = 9, .remote = 6, .head = 4, .heads = 2, .kv_heads = 2, .spans = 3,
     .span = {{0, 5, 0, 4}, {5, 1, 4, 0}, {6, 3, 4, 2}}, .first_bias = (real)-0.7},
    {"attention, first rows alone ask with a bias", .batch = 2, .rows = 9, .remote = 7, .head = 4, .heads = 2, .kv_heads = 2, .spans = 2,
     .span = {{0, 5, 0, 4}, {5, 4, 4, 3}}, .queries = {1, 1}, .first_bias = (real)1.3}};

static Tensor *build_attention(Fixture *fixture, const void *context, Tensor **second) {
  (void)second;
  const AttentionCase *c = context;
  const AttentionOptions options = {.heads = c->heads,
                                    .kv_heads = c->kv_heads,
                                    .causal = c->causal,
                                    .spans = c->spans,
                                    .span = c->span,
                                    .lost = c->with_lost ? c->lost : NULL,
                                    .queries = c->queries[0] ? c->queries : NULL,
                                    .first_bias = c->first_bias};
  return op_attention(fixture->tape, LEAF(0), LEAF(1), LEAF(2), c->remote ? LEAF(3) : NULL, c->remote ? LEAF(4) : NULL, &options);
}

static void test_attention(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof attention_cases / sizeof *attention_cases; i++) {
    const AttentionCase *c = &attention_cases[i];
    Fixture fixture;
    fixture_open(&fixture, 9);
    fixture_leaf(&fixture, true, c->batch, c->queries[0] ? c->queries[0] + c->queries[1] + c->queries[2] : c->rows, c->heads * c->head, 0);
    for (int side = 0; side < 2; side++) fixture_leaf(&fixture, true, c->batch, c->rows, c->kv_heads * c->head, 0);
    for (int side = 0; c->remote && side < 2; side++) fixture_leaf(&fixture, true, c->batch, c->remote, c->kv_heads * c->head, 0);
    gradcheck(&fixture, c->name, build_attention, c);
    fixture_close(&fixture);
  }
}

/* A lost row, and a device's quantised copy of its own rows, get a gradient of exactly zero where nobody sees them. */
static void test_attention_unseen(void **state) {
  (void)state;
  const AttentionCase c = {"",
                           .batch = 1,
                           .rows = 3,
                           .remote = 5,
                           .head = 4,
                           .heads = 1,
                           .kv_heads = 1,
                           .spans = 1,
                           .span = {{0, 3, 1, 2}},
                           .lost = {0, 0, 0, 1, 0},
                           .with_lost = true};
  Fixture fixture;
  fixture_open(&fixture, 10);
  for (int i = 0; i < 3; i++) fixture_leaf(&fixture, true, 1, 3, 4, 0);
  for (int i = 0; i < 2; i++) fixture_leaf(&fixture, true, 1, 5, 4, 0);
  gradcheck_backward(&fixture, build_attention, &c);
  for (int leaf = 3; leaf < 5; leaf++)
    for (int64_t row = 0; row < 5; row++)
      for (int64_t i = 0; i < 4; i++) assert_int_equal(fixture.leaf[leaf].grad[row * 4 + i] != 0, row == 0 || row == 4);
  fixture_close(&fixture);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_linear),
      cmocka_unit_test(test_shared),
      cmocka_unit_test(test_norms),
      cmocka_unit_test(test_patch_embed),
      cmocka_unit_test(test_rows_and_sums),
      cmocka_unit_test(test_cross_entropy),
      cmocka_unit_test(test_row_error),
      cmocka_unit_test(test_quantise),
      cmocka_unit_test(test_quantise_frozen_is_real),
      cmocka_unit_test(test_quantise_none_is_zero),
      cmocka_unit_test(test_quantise_straight_is_identity),
      cmocka_unit_test(test_attention),
      cmocka_unit_test(test_attention_unseen),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
