/* The operations of decoders against plain loops in double written here, and what they refuse: parts of a weight, 16-bit weights, token
 * embedding, rotary positions, SwiGLU, the next-token loss, the last row's attention. */
#include "unit/autograd/tape_fixture.h"

#define LEAF(i) (&fixture.leaf[i])

/* ---- parts of a weight ---- */

enum { IN = 13, OUT = 19 };

typedef struct PartCase {
  int64_t rows;
  LinearPart part;
  NarrowKind kind;
  bool bias, residual;
} PartCase;

static void check_part(const PartCase *c) {
  Fixture fixture;
  fixture_open(&fixture, 1);
  tape_record(fixture.tape, false);
  const int64_t count = c->part.count, d0 = c->part.transposed ? IN : OUT, d1 = c->part.transposed ? OUT : IN;
  const real *x = fixture_leaf(&fixture, false, 2, c->rows, IN, 0)->value;
  real *wide = NULL;
  if (c->kind != NARROW_NONE) fixture_narrow_leaf(&fixture, c->kind, d0, d1, &wide);
  const real *weight = wide ? wide : fixture_leaf(&fixture, false, d0, d1, 0, 0)->value;
  const real *bias = fixture_leaf(&fixture, false, OUT, 0, 0, 0)->value;
  const real *residual = fixture_leaf(&fixture, false, 2, c->rows, count, 0)->value;
  const Tensor *y =
      op_linear_part(fixture.tape, LEAF(0), LEAF(1), c->bias ? LEAF(2) : NULL, &c->part, ACTIVATION_NONE, c->residual ? LEAF(3) : NULL);
  check_shape(y, 3, 2, c->rows, count);
  for (int64_t i = 0; i < 2 * c->rows * count; i++) {
    const int64_t o = c->part.first + i % count;
    double sum = (c->bias ? (double)bias[o] : 0) + (c->residual ? (double)residual[i] : 0);
    for (int64_t l = 0; l < IN; l++) sum += (double)x[i / count * IN + l] * (double)weight[c->part.transposed ? l * OUT + o : o * IN + l];
    check_value("linear_part", i, y->value[i], sum);
  }
  free(wide);
  fixture_close(&fixture);
}

static void test_linear_part(void **state) {
  (void)state;
  static const int64_t spans[][2] = {{0, OUT}, {0, 7}, {7, 5}, {12, 7}, {18, 1}}, rows[] = {1, 3, 20, 100};
  for (int s = 0; s < 5; s++)
    for (int r = 0; r < 4; r++)
      for (int flags = 0; flags < 8; flags++)
        for (int kind = NARROW_NONE; kind <= NARROW_BF16; kind++)
          check_part(&(PartCase){rows[r], {spans[s][0], spans[s][1], flags & 1}, (NarrowKind)kind, flags & 2, flags & 4});
}

static void test_linear_part_refuses(void **state) {
  (void)state;
  Fixture fixture;
  fixture_open(&fixture, 2);
  fixture_leaf(&fixture, true, 4, IN, 0, 0), fixture_leaf(&fixture, true, OUT, IN, 0, 0), fixture_leaf(&fixture, true, 5, 0, 0, 0);
  static const LinearPart bad[] = {{-1, 3, false}, {17, 3, false},        {0, 0, false},
                                   {0, -2, false}, {INT64_MAX, 2, false}, {2, INT64_MAX, false}};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
    check_op_refused(&fixture, op_linear_part(fixture.tape, LEAF(0), LEAF(1), NULL, &bad[i], ACTIVATION_NONE, NULL), "19 outputs");
  const LinearPart part = {2, 5, false}, transposed = {0, 5, true};
  check_op_refused(&fixture, op_linear_part(fixture.tape, LEAF(0), LEAF(1), NULL, &transposed, ACTIVATION_NONE, NULL), "transposed");
  check_op_refused(&fixture, op_linear_part(fixture.tape, LEAF(0), LEAF(1), LEAF(2), &part, ACTIVATION_NONE, NULL),
                   "bias"); /* not sliced */
  fixture_close(&fixture);
}

/* ---- token embedding ---- */

static void test_token_embed(void **state) {
  (void)state;
  enum { V = 7, P = 6, D = 5, B = 2, S = 3 };
  static const int32_t ids[] = {3, 0, 3, 6, 1, 0}, positions[] = {5, 0, 2}, high[] = {0, 7}, low[] = {0, 0, -1}, far[] = {0, 6, 1};
  for (int kind = NARROW_NONE; kind <= NARROW_BF16; kind++) {
    Fixture fixture;
    fixture_open(&fixture, 3);
    real *wide = NULL;
    if (kind != NARROW_NONE) fixture_narrow_leaf(&fixture, (NarrowKind)kind, V, D, &wide);
    const real *table = wide ? wide : fixture_leaf(&fixture, true, V, D, 0, 0)->value;
    const real *position = fixture_leaf(&fixture, true, P, D, 0, 0)->value;
    const Tensor *y = op_token_embed(fixture.tape, LEAF(0), LEAF(1), ids, positions, B, S);
    const Tensor *bare = op_token_embed(fixture.tape, LEAF(0), NULL, ids, NULL, B, S);
    check_shape(y, 3, B, S, D), check_shape(bare, 3, B, S, D);
    for (int64_t i = 0; i < B * S * D; i++) {
      const real row = table[ids[i / D] * D + i % D];
      assert_true(bare->value[i] == row);
      assert_true(y->value[i] == row + position[positions[i / D % S] * D + i % D]);
    }
    check_op_refused(&fixture, op_token_embed(fixture.tape, LEAF(0), NULL, high, NULL, 1, 2), "id 7 of row 1 is outside [0, 7)");
    check_op_refused(&fixture, op_token_embed(fixture.tape, LEAF(0), NULL, low, NULL, 3, 1), "id -1 of row 2");
    check_op_refused(&fixture, op_token_embed(fixture.tape, LEAF(0), LEAF(1), ids, far, 1, 3), "position 6 of row 1 is outside [0, 6)");
    check_op_refused(&fixture, op_token_embed(fixture.tape, LEAF(0), LEAF(1), ids, NULL, 1, 3), "together");
    free(wide);
    fixture_close(&fixture);
  }
}

/* ---- rotary positions ---- */

enum { PLACES = 9, HALF = 5, HEADS = 3, TURNED = HEADS * 2 * HALF };

static void fill_tables(real *cosine, real *sine) {
  for (int p = 0; p < PLACES; p++)
    for (int i = 0; i < HALF; i++) {
      const double angle = p * pow(10000, -(double)i / HALF);
      cosine[p * HALF + i] = (real)cos(angle), sine[p * HALF + i] = (real)sin(angle);
    }
}

static void test_rope(void **state) {
  (void)state;
  enum { B = 2, S = 4 };
  static const int32_t positions[] = {3, 0, 8, 1}, outside[] = {0, 1, 9, 2};
  real cosine[PLACES * HALF], sine[PLACES * HALF];
  fill_tables(cosine, sine);
  const Rope rope = {cosine, sine, PLACES, HEADS}, odd = {cosine, sine, PLACES, 2 * HEADS};
  Fixture fixture;
  fixture_open(&fixture, 4);
  const real *x = fixture_leaf(&fixture, true, B, S, TURNED, 0)->value;
  const Tensor *y = op_rope(fixture.tape, LEAF(0), &rope, positions);
  check_shape(y, 3, B, S, TURNED);
  for (int64_t i = 0; i < B * S * TURNED; i++) {
    const int64_t e = i % (2 * HALF), p = positions[i / TURNED % S];
    const double angle = (double)p * pow(10000, -(double)(e % HALF) / HALF);
    const double other = (double)(e < HALF ? -x[i + HALF] : x[i - HALF]);
    check_value("rope", i, y->value[i], (double)x[i] * cos(angle) + other * sin(angle));
    if (p == 0) assert_true(y->value[i] == x[i]);
  }
  check_op_refused(&fixture, op_rope(fixture.tape, LEAF(0), &rope, outside), "position 9 of row 2 is outside [0, 9)");
  check_op_refused(&fixture, op_rope(fixture.tape, LEAF(0), &odd, positions), "even width"); /* heads of 5 */
  fixture_close(&fixture);
}

/* Heads that are wider than what one is widened in, where either side is in bf16; x alone need not be. */
static void test_rope_of_wide_heads(void **state) {
  (void)state;
  enum { WIDE = 1026 };
  static const int32_t positions[] = {0, 0};
  real cosine[WIDE / 2], sine[WIDE / 2] = {0};
  for (int i = 0; i < WIDE / 2; i++) cosine[i] = 1;
  const Rope rope = {cosine, sine, 1, 1};
  Fixture fixture;
  fixture_open(&fixture, 6);
  fixture_leaf(&fixture, true, 1, 2, WIDE, 0);
  tape_use_bf16(fixture.tape, true);
  assert_non_null(op_rope(fixture.tape, LEAF(0), &rope, positions));
  tape_narrow(fixture.tape, true);
  check_op_refused(&fixture, op_rope(fixture.tape, LEAF(0), &rope, positions), "heads of 1026 numbers in bf16");
  fixture_close(&fixture);
}

/* ---- SwiGLU and scale ---- */

static void test_swiglu_and_scale(void **state) {
  (void)state;
  Fixture fixture;
  fixture_open(&fixture, 5);
  real *gate = fixture_leaf(&fixture, true, 2, 3, 37, 0)->value;
  const real *up = fixture_leaf(&fixture, true, 2, 3, 37, 0)->value;
  fixture_leaf(&fixture, true, 2, 3, 36, 0);
  gate[0] = -200, gate[1] = 200; /* nothing overflows */
  const Tensor *y = op_swiglu(fixture.tape, LEAF(0), LEAF(1)), *z = op_scale(fixture.tape, LEAF(1), -1.75);
  check_shape(y, 3, 2, 3, 37), check_shape(z, 3, 2, 3, 37);
  for (int64_t i = 0; i < 2 * 3 * 37; i++) {
    check_value("swiglu", i, y->value[i], (double)gate[i] / (1 + exp(-(double)gate[i])) * (double)up[i]);
    check_value("scale", i, z->value[i], -1.75 * (double)up[i]);
  }
  check_op_refused(&fixture, op_swiglu(fixture.tape, LEAF(0), LEAF(2)), "222 and 216");
  fixture_close(&fixture);
}

/* ---- next-token loss ---- */

typedef struct LossCase {
  int64_t rows, entries;
  NarrowKind kind;
  double smoothing;
  double uncounted; /* share of the rows */
} LossCase;

typedef struct Expected {
  double loss;
  int64_t correct, counted;
} Expected;

/* Fills row_loss, and returns the rest. */
static Expected expect(const LossCase *c, const real *x, const real *table, const int32_t *labels, double *row_loss) {
  enum { D = IN };
  Expected sum = {0};
  double *logit = malloc((size_t)c->entries * sizeof *logit);
  assert_non_null(logit);
  for (int64_t r = 0; r < c->rows; r++) {
    double max = -INFINITY, total = 0, mean = 0;
    int64_t best = 0;
    row_loss[r] = 0;
    if (labels[r] < 0) continue;
    for (int64_t v = 0; v < c->entries; v++) {
      logit[v] = 0;
      for (int d = 0; d < D; d++) logit[v] += (double)x[r * D + d] * (double)table[v * D + d];
      if (logit[v] > max) max = logit[v], best = v;
      mean += logit[v] / (double)c->entries;
    }
    for (int64_t v = 0; v < c->entries; v++) total += exp(logit[v] - max);
    const double lse = max + log(total), own = logit[labels[r]];
    row_loss[r] = lse - own;
    sum.loss += lse - (1 - c->smoothing) * own - c->smoothing * mean;
    sum.correct += best == labels[r], sum.counted++;
  }
  free(logit);
  if (sum.counted) sum.loss /= (double)sum.counted;
  return sum;
}

static void check_vocab_loss(const LossCase *c, bool recording) {
  Fixture fixture;
  fixture_open(&fixture, 6);
  tape_record(fixture.tape, recording);
  const real *x = fixture_leaf(&fixture, true, 1, c->rows, IN, 0)->value;
  real *wide = NULL;
  if (c->kind != NARROW_NONE) fixture_narrow_leaf(&fixture, c->kind, c->entries, IN, &wide);
  const real *table = wide ? wide : fixture_leaf(&fixture, true, c->entries, IN, 0, 0)->value;
  int32_t *labels = malloc((size_t)c->rows * sizeof *labels);
  real *row_loss = malloc((size_t)c->rows * sizeof *row_loss);
  double *want = malloc((size_t)c->rows * sizeof *want);
  assert_true(labels && row_loss && want);
  for (int64_t r = 0; r < c->rows; r++) {
    labels[r] = rng_uniform(&fixture.rng) < c->uncounted ? -1 : (int32_t)rng_below(&fixture.rng, (uint64_t)c->entries);
    row_loss[r] = (real)NAN;
  }
  int64_t correct = -1;
  const VocabLoss options = {.labels = labels, .smoothing = c->smoothing, .correct = &correct, .row_loss = row_loss};
  const Tensor *y = op_vocab_loss(fixture.tape, LEAF(0), LEAF(1), &options);
  check_shape(y, 1, 1, 0, 0);
  assert_int_equal(y->needs_grad, recording);
  const Expected expected = expect(c, x, table, labels, want);
  check_value("vocab_loss", 0, y->value[0], expected.loss);
  for (int64_t r = 0; r < c->rows; r++) check_value("row loss", r, row_loss[r], want[r]);
  assert_int_equal(correct, expected.correct);
  assert_true(expected.counted < 20 || expected.correct > 0); /* the count is one of something */
  free(wide), free(labels), free(row_loss), free(want);
  fixture_close(&fixture);
}

static void test_vocab_loss(void **state) {
  (void)state;
  static const LossCase cases[] = {{40, 11, NARROW_NONE, 0, 0},     {40, 11, NARROW_NONE, 0.1, 0.3}, {1, 300, NARROW_NONE, 0, 0},
                                   {5, 11, NARROW_NONE, 0.2, 1},    {600, 5, NARROW_NONE, 0, 0}, /* several slices */
                                   {600, 5, NARROW_NONE, 0.1, 0.5}, {40, 11, NARROW_F16, 0, 0.2},    {300, 5, NARROW_BF16, 0.1, 0}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    for (int recording = 0; recording < 2; recording++) check_vocab_loss(&cases[i], recording);
}

/* With the model itself as its teacher the loss is the mean entropy of its predictions, and with teaching in between, a mean of both
 * losses. */
static void test_vocab_loss_teacher(void **state) {
  (void)state;
  enum { ROWS = 7, ENTRIES = 6 };
  static const int32_t labels[ROWS] = {0, 5, 2, -1, 3, 1, 4};
  Fixture fixture;
  fixture_open(&fixture, 8);
  const real *x = fixture_leaf(&fixture, true, 1, ROWS, IN, 0)->value, *table = fixture_leaf(&fixture, true, ENTRIES, IN, 0, 0)->value;
  double entropy = 0;
  for (int r = 0; r < ROWS; r++) {
    double p[ENTRIES], total = 0;
    for (int v = 0; v < ENTRIES; v++) {
      double logit = 0;
      for (int d = 0; d < IN; d++) logit += (double)x[r * IN + d] * (double)table[v * IN + d];
      total += p[v] = exp(logit);
    }
    for (int v = 0; v < ENTRIES && labels[r] >= 0; v++) entropy -= p[v] / total * log(p[v] / total) / (ROWS - 1);
  }
  VocabLoss options = {.labels = labels, .teacher = LEAF(0), .teacher_table = LEAF(1), .teaching = 1};
  const double taught = (double)op_vocab_loss(fixture.tape, LEAF(0), LEAF(1), &options)->value[0];
  options.teaching = 0.25;
  const double mixed = (double)op_vocab_loss(fixture.tape, LEAF(0), LEAF(1), &options)->value[0];
  const double plain = (double)op_vocab_loss(fixture.tape, LEAF(0), LEAF(1), &(VocabLoss){.labels = labels})->value[0];
  check_value("taught by itself", 0, taught, entropy);
  check_value("mixed", 0, mixed, 0.75 * plain + 0.25 * entropy);
  fixture_close(&fixture);
}

/* Equal logits: the lowest index is the one that was predicted. */
static void test_vocab_loss_ties(void **state) {
  (void)state;
  enum { V = 37, ROWS = 3 };
  static const int32_t labels[ROWS] = {4, 5, 36};
  int64_t correct = -1;
  Fixture fixture;
  fixture_open(&fixture, 7);
  fixture_leaf(&fixture, true, ROWS, 2, 0, 0);
  real *x = fixture.leaf[0].value, *table = fixture_leaf(&fixture, true, V, 2, 0, 0)->value;
  for (int i = 0; i < 2 * ROWS; i++) x[i] = 1;
  for (int i = 0; i < 2 * V; i++) table[i] = i / 2 >= 4 ? 1 : (real)0.5; /* 4 and all after it */
  assert_non_null(op_vocab_loss(fixture.tape, LEAF(0), LEAF(1), &(VocabLoss){.labels = labels, .correct = &correct}));
  assert_int_equal(correct, 1);
  table[2 * 20] = (real)NAN; /* a broken model predicts nothing */
  assert_non_null(op_vocab_loss(fixture.tape, LEAF(0), LEAF(1), &(VocabLoss){.labels = labels, .correct = &correct}));
  assert_int_equal(correct, 0);
  fixture_close(&fixture);
}

static void test_vocab_loss_refuses(void **state) {
  (void)state;
  static const int32_t high[] = {0, 4, 5}, low[] = {0, -2, 0};
  Fixture fixture;
  fixture_open(&fixture, 8);
  fixture_leaf(&fixture, true, 3, 4, 0, 0), fixture_leaf(&fixture, true, 5, 4, 0, 0), fixture_leaf(&fixture, true, 5, 3, 0, 0);
  check_op_refused(&fixture, op_vocab_loss(fixture.tape, LEAF(0), LEAF(1), &(VocabLoss){.labels = high}), "label 5 of row 2");
  check_op_refused(&fixture, op_vocab_loss(fixture.tape, LEAF(0), LEAF(1), &(VocabLoss){.labels = low}), "label -2 of row 1");
  check_op_refused(&fixture, op_vocab_loss(fixture.tape, LEAF(0), LEAF(2), &(VocabLoss){.labels = high}), "4 columns");
  check_op_refused(&fixture, op_vocab_loss(fixture.tape, LEAF(0), LEAF(1), &(VocabLoss){0}), "missing");
  fixture_close(&fixture);
}

/* ---- attention of the last row alone ---- */

/* A decoder's last row sees all that came before, so asked without the causal mask it gives what it gives among all rows with the mask. */
static void test_last_row(void **state) {
  (void)state;
  enum { B = 2, S = 12, R = 12, HEADS_Q = 4, KV = 2, D = 6, LAST = S - 1 };
  static const AttentionSpan spans[] = {{0, 5, 0, 5}, {5, 3, 5, 3}, {8, 4, 8, 4}};
  static const int64_t one[] = {0, 0, 1};
  static const int32_t last[] = {LAST};
  Fixture fixture;
  fixture_open(&fixture, 9);
  fixture_leaf(&fixture, true, B, S, HEADS_Q * D, 0);
  for (int i = 0; i < 2; i++) fixture_leaf(&fixture, true, B, S, KV * D, 0);
  for (int i = 0; i < 2; i++) fixture_leaf(&fixture, true, B, R, KV * D, 0);
  const AttentionOptions all = {.heads = HEADS_Q, .kv_heads = KV, .causal = true, .spans = 3, .span = spans};
  AttentionOptions alone = all;
  alone.causal = false, alone.queries = one;
  Tensor *q = op_gather_rows(fixture.tape, LEAF(0), last, 1);
  const Tensor *whole = op_attention(fixture.tape, LEAF(0), LEAF(1), LEAF(2), LEAF(3), LEAF(4), &all);
  const Tensor *y = op_attention(fixture.tape, q, LEAF(1), LEAF(2), LEAF(3), LEAF(4), &alone);
  check_shape(y, 3, B, 1, HEADS_Q * D);
  for (int64_t i = 0; i < B * HEADS_Q * D; i++)
    check_value("last row", i, y->value[i], (double)whole->value[(i / (HEADS_Q * D) * S + LAST) * HEADS_Q * D + i % (HEADS_Q * D)]);
  fixture_close(&fixture);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_linear_part),        cmocka_unit_test(test_linear_part_refuses),
      cmocka_unit_test(test_token_embed),        cmocka_unit_test(test_rope),
      cmocka_unit_test(test_rope_of_wide_heads), cmocka_unit_test(test_swiglu_and_scale),
      cmocka_unit_test(test_vocab_loss),         cmocka_unit_test(test_vocab_loss_teacher),
      cmocka_unit_test(test_vocab_loss_ties),    cmocka_unit_test(test_vocab_loss_refuses),
      cmocka_unit_test(test_last_row),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
