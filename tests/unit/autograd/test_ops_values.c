/* Every operation's output against plain loops in double written here, what the operations refuse, and the modes without recording. */
#include "unit/autograd/tape_fixture.h"

#define LEAF(i) (&fixture.leaf[i])

/* ---- linear ---- */

static double gelu(double z, Activation activation) {
  if (activation == ACTIVATION_NONE) return z;
  if (activation == ACTIVATION_GELU) return 0.5 * z * erfc(-z * sqrt(0.5));
  return 0.5 * z * (1 + tanh(sqrt(2 / 3.14159265358979323846) * (z + 0.044715 * z * z * z)));
}

static void check_linear(int64_t rows, Activation activation, bool with_bias, bool with_residual, bool recording) {
  enum { IN = 13, OUT = 19 };
  Fixture fixture;
  fixture_open(&fixture, 1);
  tape_record(fixture.tape, recording);
  const real *x = fixture_leaf(&fixture, true, 2, rows, IN, 0)->value, *weight = fixture_leaf(&fixture, true, OUT, IN, 0, 0)->value;
  const real *bias = fixture_leaf(&fixture, true, OUT, 0, 0, 0)->value, *residual = fixture_leaf(&fixture, true, 2, rows, OUT, 0)->value;
  const Tensor *y = op_linear(fixture.tape, LEAF(0), LEAF(1), with_bias ? LEAF(2) : NULL, activation, with_residual ? LEAF(3) : NULL);
  check_shape(y, 3, 2, rows, OUT);
  assert_int_equal(y->needs_grad, recording);
  for (int64_t i = 0; i < 2 * rows * OUT; i++) {
    double sum = with_bias ? (double)bias[i % OUT] : 0;
    for (int64_t l = 0; l < IN; l++) sum += (double)x[i / OUT * IN + l] * (double)weight[i % OUT * IN + l];
    check_value("linear", i, y->value[i], gelu(sum, activation) + (with_residual ? (double)residual[i] : 0));
  }
  fixture_close(&fixture);
}

static void test_linear(void **state) {
  (void)state;
  for (int flags = 0; flags < 8; flags++)
    for (int activation = ACTIVATION_NONE; activation <= ACTIVATION_GELU_TANH; activation++)
      if (!(flags & 2) || activation == ACTIVATION_NONE)
        check_linear(flags & 4 ? 70 : 1, (Activation)activation, flags & 1, flags & 2, activation != ACTIVATION_GELU || flags & 1);
}

/* ---- norms ---- */

static void test_norms(void **state) {
  (void)state;
  enum { ROWS = 21, D = 35 };
  Fixture fixture;
  fixture_open(&fixture, 2);
  const real *x = fixture_leaf(&fixture, true, 3, ROWS / 3, D, 0)->value, *weight = fixture_leaf(&fixture, true, D, 0, 0, 0)->value;
  const real *bias = fixture_leaf(&fixture, true, D, 0, 0, 0)->value;
  const Tensor *y = op_layer_norm(fixture.tape, LEAF(0), LEAF(1), LEAF(2), 1e-3), *z = op_rms_norm(fixture.tape, LEAF(0), LEAF(1), 1e-3);
  check_shape(y, 3, 3, ROWS / 3, D);
  check_shape(z, 3, 3, ROWS / 3, D);
  for (int64_t i = 0; i < ROWS * D; i++) {
    const real *row = x + i / D * D;
    double mean = 0, variance = 0, squares = 0;
    for (int d = 0; d < D; d++) mean += (double)row[d] / D;
    for (int d = 0; d < D; d++)
      variance += ((double)row[d] - mean) * ((double)row[d] - mean) / D, squares += (double)row[d] * (double)row[d] / D;
    const double w = (double)weight[i % D];
    check_value("layer_norm", i, y->value[i], ((double)x[i] - mean) / sqrt(variance + 1e-3) * w + (double)bias[i % D]);
    check_value("rms_norm", i, z->value[i], (double)x[i] / sqrt(squares + 1e-3) * w);
  }
  fixture_close(&fixture);
}

/* ---- patch embedding ---- */

static void test_patch_embed(void **state) {
  (void)state;
  enum { B = 2, C = 3, H = 4, W = 6, P = 2, D = 5, ACROSS = W / P, ROWS = 7 };
  static const int32_t row_token[ROWS] = {-1, 4, 0, -1, 2, 5, 1}, outside[] = {6};
  Fixture fixture;
  fixture_open(&fixture, 4);
  const real *pixels = fixture_leaf(&fixture, false, B, C, H, W)->value, *weight = fixture_leaf(&fixture, true, D, C, P, P)->value;
  const real *bias = fixture_leaf(&fixture, true, D, 0, 0, 0)->value, *position = fixture_leaf(&fixture, true, 1, 7, D, 0)->value;
  const real *token = fixture_leaf(&fixture, true, 1, 1, D, 0)->value;
  const Tensor *y = op_patch_embed(fixture.tape, LEAF(0), LEAF(1), LEAF(2), LEAF(3), LEAF(4), P, row_token, ROWS);
  check_shape(y, 3, B, ROWS, D);
  for (int64_t i = 0; i < B * ROWS * D; i++) {
    const int64_t d = i % D, t = row_token[i / D % ROWS], b = i / D / ROWS;
    double want = (double)position[(t + 1) * D + d] + (double)(t < 0 ? token[d] : bias[d]);
    for (int64_t c = 0; t >= 0 && c < C; c++)
      for (int64_t r = 0; r < P; r++)
        for (int64_t s = 0; s < P; s++)
          want += (double)weight[((d * C + c) * P + r) * P + s] *
                  (double)pixels[((b * C + c) * H + t / ACROSS * P + r) * W + t % ACROSS * P + s];
    check_value("patch_embed", i, y->value[i], want);
  }
  assert_null(op_patch_embed(fixture.tape, LEAF(0), LEAF(1), LEAF(2), LEAF(3), LEAF(4), P, outside, 1));
  fixture_clear(&fixture);
  assert_null(op_patch_embed(fixture.tape, LEAF(0), LEAF(1), LEAF(2), LEAF(3), LEAF(4), 3, row_token, ROWS)); /* 3 does not divide 4 */
  fixture_close(&fixture);
}

/* ---- rows against constant ones ---- */

static void test_row_error(void **state) {
  (void)state;
  enum { B = 2, S = 3, T = 4, D = 5 };
  static const int32_t rows[S] = {3, 0, 3}, outside[S] = {0, 4, 1};
  static real target[B * T * D], nothing[B * T * D];
  Fixture fixture;
  fixture_open(&fixture, 5);
  const real *x = fixture_leaf(&fixture, true, B, S, D, 0)->value;
  double error = 0, power = 0;
  for (int i = 0; i < B * T * D; i++) target[i] = (real)(i % 7) / 3 - 1;
  for (int64_t i = 0; i < B * S * D; i++) {
    const double t = (double)target[(i / D / S * T + rows[i / D % S]) * D + i % D];
    error += ((double)x[i] - t) * ((double)x[i] - t);
    power += t * t;
  }
  check_value("row_error", 0, op_row_error(fixture.tape, LEAF(0), target, T, rows, NULL)->value[0], error / power);
  static const double given = 2.5, none = 0;
  check_value("row_error of a power", 0, op_row_error(fixture.tape, LEAF(0), target, T, rows, &given)->value[0], error / given);
  assert_true(op_row_error(fixture.tape, LEAF(0), target, T, rows, &none)->value[0] == 0);
  assert_true(op_row_error(fixture.tape, LEAF(0), nothing, T, rows, NULL)->value[0] == 0);
  assert_null(op_row_error(fixture.tape, LEAF(0), target, T, outside, NULL));
  fixture_close(&fixture);
}

/* ---- rows and sums ---- */

static void test_rows_and_sums(void **state) {
  (void)state;
  enum { B = 2, S = 5, D = 7 };
  static const int32_t rows[] = {4, 0, 3}, outside[] = {5};
  Fixture fixture;
  fixture_open(&fixture, 5);
  const real *a = fixture_leaf(&fixture, true, B, S, D, 0)->value, *b = fixture_leaf(&fixture, true, B, S, D, 0)->value;
  const Tensor *sum = op_add(fixture.tape, LEAF(0), LEAF(1)), *some = op_gather_rows(fixture.tape, LEAF(0), rows, 3);
  static const real weights[] = {(real)0.5, (real)0.2, (real)0.1, 0, (real)0.2};
  const Tensor *mean = op_mean_replicas(fixture.tape, LEAF(0), NULL), *weighted = op_mean_replicas(fixture.tape, LEAF(0), weights);
  check_shape(sum, 3, B, S, D);
  check_shape(some, 3, B, 3, D);
  check_shape(mean, 2, B, D, 0);
  for (int64_t i = 0; i < B * S * D; i++) check_value("add", i, sum->value[i], (double)a[i] + (double)b[i]);
  for (int64_t i = 0; i < B * 3 * D; i++) assert_true(some->value[i] == a[(i / D / 3 * S + rows[i / D % 3]) * D + i % D]);
  for (int64_t i = 0; i < B * D; i++) {
    double want = 0, want_weighted = 0;
    for (int64_t s = 0; s < S; s++) {
      want += (double)a[(i / D * S + s) * D + i % D] / S;
      want_weighted += (double)a[(i / D * S + s) * D + i % D] * (double)weights[s];
    }
    check_value("mean_replicas", i, mean->value[i], want);
    check_value("mean_replicas, weighted", i, weighted->value[i], want_weighted);
  }
  const Tensor *both = op_join(fixture.tape, LEAF(0), fixture_leaf(&fixture, true, B, S, 2, 0));
  check_shape(both, 3, B, S, D + 2);
  for (int64_t i = 0; i < B * S * (D + 2); i++)
    assert_true(both->value[i] == (i % (D + 2) < D ? a[i / (D + 2) * D + i % (D + 2)] : LEAF(2)->value[i / (D + 2) * 2 + i % (D + 2) - D]));
  Tensor *one = weigh(fixture.tape, LEAF(0)), *other = weigh(fixture.tape, LEAF(1));
  check_value("add_scaled", 0, op_add_scaled(fixture.tape, one, other, -0.5)->value[0], weigh_sum(LEAF(0)) - 0.5 * weigh_sum(LEAF(1)));
  assert_null(op_gather_rows(fixture.tape, LEAF(0), outside, 1));
  fixture_clear(&fixture);
  fixture_leaf(&fixture, true, 3, 0, 0, 0);
  assert_null(op_add(fixture.tape, LEAF(0), LEAF(2)));
  fixture_clear(&fixture);
  assert_null(op_add(fixture.tape, LEAF(0), NULL));
  assert_int_not_equal(tape_status(fixture.tape), STATUS_OK);
  fixture_close(&fixture);
}

static void test_drop_path(void **state) {
  (void)state;
  static const real scale[] = {0, 1, (real)2.5};
  Fixture fixture;
  fixture_open(&fixture, 6);
  Tensor *residual = fixture_leaf(&fixture, true, 3, 4, 5, 0), *sum = fixture_leaf(&fixture, true, 3, 4, 5, 0),
         *other = fixture_leaf(&fixture, true, 3, 4, 6, 0);
  const Tensor *y = op_drop_path(fixture.tape, residual, sum, scale);
  for (int64_t i = 0; i < 60; i++) {
    double from = (double)residual->value[i], to = (double)sum->value[i];
    check_value("drop_path", i, y->value[i], from + (double)scale[i / 20] * (to - from));
    if (i < 20) assert_true(y->value[i] == residual->value[i]);
  }
  sum->value[0] = INFINITY; /* left out is left out */
  assert_true(op_drop_path(fixture.tape, residual, sum, scale)->value[0] == residual->value[0]);
  assert_null(op_drop_path(fixture.tape, residual, other, scale));
  fixture_close(&fixture);
}

/* An op that runs out of memory in its forward gives no tensor whose numbers somebody would take for an answer. */
static void run_out(Tape *tape, void *record) {
  (void)record;
  tape_fail(tape, STATUS_NO_MEMORY, "no room for scratch");
}

static void test_no_tensor_after_a_failure(void **state) {
  (void)state;
  static const OpKind kind = {.name = "scratch", .forward = run_out};
  Fixture fixture;
  fixture_open(&fixture, 8);
  Tensor *x = fixture_leaf(&fixture, true, 4, 5, 0, 0);
  assert_int_equal(tape_status(fixture.tape), STATUS_OK);
  assert_null(tape_apply(fixture.tape, &kind, NULL, x));
  assert_int_equal(tape_status(fixture.tape), STATUS_NO_MEMORY);
  assert_null(op_scale(fixture.tape, x, 2)); /* nor does any other behind it */
  fixture_close(&fixture);
}

/* ---- cross-entropy ---- */

enum { CE_ROWS = 6, CE_CLASSES = 9 };

static double cross_entropy(const real *logits, const CrossEntropy *options) {
  double sum = 0;
  int counted = 0;
  for (int64_t m = 0; m < CE_ROWS; m++) {
    if (options->labels[m] < 0) continue;
    double total = 0;
    for (int v = 0; v < CE_CLASSES; v++) total += exp((double)logits[m * CE_CLASSES + v]);
    for (int v = 0; v < CE_CLASSES; v++) {
      const double mix = options->mix ? (double)options->mix[m] : 1;
      const double hot = mix * (options->labels[m] == v) + (options->mix ? (1 - mix) * (options->other[m] == v) : 0);
      double q = (1 - options->smoothing) * hot + options->smoothing / CE_CLASSES;
      if (options->teacher) q = (1 - options->teaching) * q + options->teaching * (double)options->teacher[m * CE_CLASSES + v];
      sum -= q * ((double)logits[m * CE_CLASSES + v] - log(total));
    }
    counted++;
  }
  return counted ? sum / counted : 0;
}

static void draw_distributions(Rng *rng, int64_t rows, int64_t classes, real *p) {
  for (int64_t m = 0; m < rows; m++) {
    double total = 0;
    for (int64_t v = 0; v < classes; v++) total += (double)(p[m * classes + v] = (real)(rng_uniform(rng) + 0.01));
    for (int64_t v = 0; v < classes; v++) p[m * classes + v] = (real)((double)p[m * classes + v] / total);
  }
}

static void test_cross_entropy(void **state) {
  (void)state;
  static const int32_t labels[] = {2, 0, -1, 8, 5, 4}, other[] = {1, 0, 3, 7, 6, 8}, none[] = {-1, -1, -1, -1, -1, -1};
  static const int32_t high[] = {0, 0, 0, 0, 0, CE_CLASSES}, low[] = {-2, 0, 0, 0, 0, 0};
  static const real mix[] = {(real)0.25, 1, (real)0.5, 0, (real)0.9, (real)0.4};
  real taught[CE_ROWS * CE_CLASSES];
  int64_t correct = -1;
  const CrossEntropy cases[] = {{.labels = labels, .correct = &correct},
                                {.labels = labels, .smoothing = 0.1},
                                {.labels = labels, .other = other, .mix = mix, .smoothing = 0.2},
                                {.labels = none},
                                {.labels = labels, .teacher = taught, .teaching = 0.7},
                                {.labels = labels, .other = other, .mix = mix, .smoothing = 0.2, .teacher = taught, .teaching = 1}};
  Fixture fixture;
  fixture_open(&fixture, 7);
  draw_distributions(&fixture.rng, CE_ROWS, CE_CLASSES, taught);
  real *logits = fixture_leaf(&fixture, true, CE_ROWS, CE_CLASSES, 0, 0)->value;
  logits[0 * CE_CLASSES + 2] = logits[3 * CE_CLASSES + 8] = 6; /* right */
  logits[1 * CE_CLASSES + 1] = logits[4 * CE_CLASSES + 1] = logits[5 * CE_CLASSES + 1] = logits[2 * CE_CLASSES] = 6;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const Tensor *y = op_cross_entropy(fixture.tape, LEAF(0), &cases[i]);
    check_shape(y, 1, 1, 0, 0);
    check_value("cross_entropy", (int64_t)i, y->value[0], cross_entropy(logits, &cases[i]));
  }
  assert_int_equal(correct, 2);
  const real kept = logits[1 * CE_CLASSES];
  logits[1 * CE_CLASSES] = NAN; /* of a label 0 nothing is larger than that, and it is not right */
  assert_non_null(op_cross_entropy(fixture.tape, LEAF(0), &cases[0]));
  assert_int_equal(correct, 2);
  logits[1 * CE_CLASSES] = kept;
  for (int64_t i = 0; i < CE_ROWS * CE_CLASSES; i++) logits[i] = (real)(i % 2 ? 900 : -900); /* nothing overflows */
  assert_true(isfinite(op_cross_entropy(fixture.tape, LEAF(0), &cases[2])->value[0]));
  assert_null(op_cross_entropy(fixture.tape, LEAF(0), &(CrossEntropy){.labels = high}));
  fixture_clear(&fixture);
  assert_null(op_cross_entropy(fixture.tape, LEAF(0), &(CrossEntropy){.labels = low}));
  fixture_close(&fixture);
}

/* ---- quantisation ---- */

enum { QUANTISE_WIDTH = 6 };

typedef struct GivenNoise {
  QuantiseNoise quantise;
  const real *numbers; /* [rows, QUANTISE_WIDTH] */
} GivenNoise;

static void draw_given(const QuantiseNoise *self, int64_t first, int64_t rows, real *noise, real *scratch) {
  const real *numbers = ((const GivenNoise *)self)->numbers;
  assert_true(first % QUANTISE_ROWS == 0 && rows <= QUANTISE_ROWS);
  memset(scratch, 0x7f, (size_t)(rows * QUANTISE_WIDTH) * sizeof *scratch);
  memcpy(noise, numbers + first * QUANTISE_WIDTH, (size_t)(rows * QUANTISE_WIDTH) * sizeof *noise);
}

static void test_quantise(void **state) {
  (void)state;
  enum { ROWS = 70, D = QUANTISE_WIDTH, G = 3, K = 5, PART = D / G };
  Fixture fixture;
  fixture_open(&fixture, 8);
  const real *x = fixture_leaf(&fixture, true, 2, ROWS / 2, D, 0)->value;
  real codebook[G * K * PART], noise[ROWS * D];
  int32_t codes[ROWS * G];
  fixture_randomise(&fixture, codebook, G * K * PART);
  fixture_randomise(&fixture, noise, ROWS * D);
  for (int i = 0; i < ROWS * G; i++) codes[i] = (int32_t)rng_below(&fixture.rng, K);
  double distance = 0;
  const GivenNoise given = {{draw_given}, noise};
  Quantise options = {codebook, G, K, codes, &given.quantise, &distance, QUANTISE_STRAIGHT, NULL};
  Tensor *commitment = NULL, *clean_commitment = NULL;
  const Tensor *y = op_quantise(fixture.tape, LEAF(0), &options, &commitment);
  options.noise = NULL;
  const Tensor *clean = op_quantise(fixture.tape, LEAF(0), &options, &clean_commitment);
  check_shape(y, 3, 2, ROWS / 2, D);
  double sum = 0;
  for (int64_t i = 0; i < ROWS * D; i++) {
    const int64_t row = i / D, group = i % D / PART;
    const real q = codebook[(group * K + codes[row * G + group]) * PART + i % PART];
    sum += ((double)x[i] - (double)q) * ((double)x[i] - (double)q) / ROWS;
    assert_true(clean->value[i] == q);
    check_value("quantise", i, y->value[i], (double)q + (double)noise[i]);
  }
  check_value("commitment", 0, commitment->value[0], sum); /* without the noise */
  check_value("distance", 0, (real)distance, sum * ROWS);
  assert_true(commitment->value[0] == clean_commitment->value[0]);
  codes[7] = K;
  assert_null(op_quantise(fixture.tape, LEAF(0), &options, &commitment));
  fixture_clear(&fixture);
  codes[7] = 0, options.groups = 4; /* does not divide 6 */
  assert_null(op_quantise(fixture.tape, LEAF(0), &options, &commitment));
  fixture_close(&fixture);
}

/* ---- attention against a dense masked softmax ---- */

typedef struct AttentionCase {
  int64_t batch, rows, remote, head;
  int heads, kv_heads;
  bool causal;
  int spans;
  AttentionSpan span[4];
  double lost; /* share of remote rows that never arrived */
  double bias; /* of the first row of each span */
} AttentionCase;

/* May query `i` see column `j` (own rows first, then remote ones)? */
static bool visible(const AttentionCase *c, const uint8_t *lost, int64_t i, int64_t j) {
  const AttentionSpan *span = c->span;
  while (i >= span->begin + span->count) span++;
  if (j < c->rows) return j >= span->begin && j < span->begin + span->count && (!c->causal || j <= i);
  j -= c->rows;
  if (j >= span->own && j < span->own + span->own_count) return false;
  return (!c->causal || j < span->own) && !lost[j];
}

static bool starts_span(const AttentionCase *c, int64_t i) {
  for (int s = 0; s < c->spans; s++)
    if (c->span[s].begin == i) return true;
  return false;
}

static void dense_row(const AttentionCase *c, const Fixture *fixture, const uint8_t *lost, int64_t b, int64_t i, int64_t head, double *y) {
  const int64_t columns = c->rows + c->remote, d = c->head, kv = head / (c->heads / c->kv_heads), stride = c->kv_heads * d;
  double total = 0;
  memset(y, 0, (size_t)d * sizeof *y);
  for (int64_t j = 0; j < columns; j++) {
    if (!visible(c, lost + b * c->remote, i, j)) continue;
    const int64_t at = (j < c->rows ? b * c->rows + j : b * c->remote + j - c->rows) * stride + kv * d;
    const real *k = fixture->leaf[j < c->rows ? 1 : 3].value + at, *v = fixture->leaf[j < c->rows ? 2 : 4].value + at;
    double score = 0;
    for (int64_t e = 0; e < d; e++) score += (double)fixture->leaf[0].value[((b * c->rows + i) * c->heads + head) * d + e] * (double)k[e];
    const double p = exp(score / sqrt((double)d) + (j >= c->rows && starts_span(c, i) ? c->bias : 0));
    total += p;
    for (int64_t e = 0; e < d; e++) y[e] += p * (double)v[e];
  }
  for (int64_t e = 0; e < d; e++) y[e] /= total;
}

static void check_attention(const AttentionCase *c, bool recording) {
  Fixture fixture;
  fixture_open(&fixture, 9);
  tape_record(fixture.tape, recording);
  fixture_leaf(&fixture, true, c->batch, c->rows, c->heads * c->head, 0);
  for (int side = 0; side < 2; side++) fixture_leaf(&fixture, true, c->batch, c->rows, c->kv_heads * c->head, 0);
  for (int side = 0; c->remote && side < 2; side++) fixture_leaf(&fixture, true, c->batch, c->remote, c->kv_heads * c->head, 0);
  uint8_t lost[1024] = {0};
  assert_true(c->batch * c->remote <= 1024);
  for (int64_t i = 0; i < c->batch * c->remote; i++) lost[i] = rng_uniform(&fixture.rng) < c->lost;
  const AttentionOptions options = {.heads = c->heads,
                                    .kv_heads = c->kv_heads,
                                    .causal = c->causal,
                                    .spans = c->spans,
                                    .span = c->span,
                                    .lost = c->lost > 0 ? lost : NULL,
                                    .first_bias = (real)c->bias};
  const Tensor *y = op_attention(fixture.tape, LEAF(0), LEAF(1), LEAF(2), c->remote ? LEAF(3) : NULL, c->remote ? LEAF(4) : NULL, &options);
  check_shape(y, 3, c->batch, c->rows, c->heads * c->head);
  double want[64];
  for (int64_t item = 0; item < c->batch * c->rows * c->heads; item++) {
    dense_row(c, &fixture, lost, item / c->heads / c->rows, item / c->heads % c->rows, item % c->heads, want);
    for (int64_t e = 0; e < c->head; e++) check_value("attention", item * c->head + e, y->value[item * c->head + e], want[e]);
  }
  fixture_close(&fixture);
}

static void test_attention(void **state) {
  (void)state;
  static const AttentionCase cases[] = {
      {2, 11, 0, 8, 3, 3, false, 1, {{0, 11, 0, 0}}, 0, 0},
      {2, 11, 0, 8, 4, 2, true, 1, {{0, 11, 0, 0}}, 0, 0},
      {1, 1, 0, 4, 1, 1, true, 1, {{0, 1, 0, 0}}, 0, 0},
      {1, 300, 0, 5, 2, 1, true, 1, {{0, 300, 0, 0}}, 0, 0}, /* three tiles */
      {2, 20, 16, 8, 2, 2, false, 4, {{0, 5, 0, 4}, {5, 5, 4, 4}, {10, 5, 8, 4}, {15, 5, 12, 4}}, 0, 0},
      {2, 20, 16, 8, 2, 2, false, 4, {{0, 10, 0, 9}, {10, 1, 9, 0}, {11, 7, 9, 6}, {18, 2, 15, 1}}, 0.3, 0}, /* uneven, one row, lost */
      {2, 20, 20, 8, 4, 2, true, 3, {{0, 9, 0, 9}, {9, 1, 9, 1}, {10, 10, 10, 10}}, 0.3, 0},
      {1, 290, 280, 4, 2, 2, false, 2, {{0, 150, 0, 145}, {150, 140, 145, 135}}, 0.1, 0},
      {2, 20, 16, 8, 2, 2, false, 4, {{0, 10, 0, 9}, {10, 1, 9, 0}, {11, 7, 9, 6}, {18, 2, 15, 1}}, 0.3, -0.8},
      {1, 290, 280, 4, 2, 2, false, 2, {{0, 150, 0, 145}, {150, 140, 145, 135}}, 0.1, 1.5}, /* of the first tile alone */
      {2, 6, 9, 8, 2, 1, false, 1, {{0, 6, 3, 6}}, 0, -0.5},
      {2, 6, 9, 8, 2, 2, false, 1, {{0, 6, 3, 6}}, 1, 0}}; /* a node that hears nothing sees itself alone */
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    for (int recording = 0; recording < 2; recording++) check_attention(&cases[i], recording);
}

static void test_attention_refuses(void **state) {
  (void)state;
  static const AttentionSpan whole = {0, 6, 0, 0}, part = {0, 5, 0, 0}, beyond = {0, 6, 8, 2};
  Fixture fixture;
  fixture_open(&fixture, 10);
  for (int i = 0; i < 3; i++) fixture_leaf(&fixture, true, 2, 6, 8, 0);
  for (int i = 0; i < 2; i++) fixture_leaf(&fixture, true, 2, 9, 8, 0);
  const AttentionOptions good = {.heads = 2, .kv_heads = 2, .spans = 1, .span = &whole};
  const AttentionOptions bad[] = {{.heads = 3, .kv_heads = 3, .spans = 1, .span = &whole},
                                  {.heads = 4, .kv_heads = 3, .spans = 1, .span = &whole},
                                  {.heads = 2, .kv_heads = 1, .spans = 1, .span = &whole},
                                  {.heads = 2, .kv_heads = 2, .spans = 1, .span = &part},
                                  {.heads = 2, .kv_heads = 2, .spans = 1, .span = &whole, .causal = true, .first_bias = 1},
                                  {.heads = 2, .kv_heads = 2, .spans = 1, .span = &whole, .first_bias = (real)NAN},
                                  {.heads = 2, .kv_heads = 2, .spans = 1, .span = &beyond}};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    assert_null(op_attention(fixture.tape, LEAF(0), LEAF(1), LEAF(2), LEAF(3), LEAF(4), &bad[i]));
    assert_int_equal(tape_status(fixture.tape), STATUS_BAD_VALUE);
    fixture_clear(&fixture);
  }
  assert_null(op_attention(fixture.tape, LEAF(0), LEAF(1), LEAF(2), LEAF(3), NULL, &good));
  fixture_clear(&fixture);
  assert_non_null(op_attention(fixture.tape, LEAF(0), LEAF(1), LEAF(2), LEAF(3), LEAF(4), &good));
  fixture_close(&fixture);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_linear),
      cmocka_unit_test(test_norms),
      cmocka_unit_test(test_patch_embed),
      cmocka_unit_test(test_row_error),
      cmocka_unit_test(test_rows_and_sums),
      cmocka_unit_test(test_drop_path),
      cmocka_unit_test(test_no_tensor_after_a_failure),
      cmocka_unit_test(test_cross_entropy),
      cmocka_unit_test(test_quantise),
      cmocka_unit_test(test_attention),
      cmocka_unit_test(test_attention_refuses),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
