/* What devices compute of one operation: some queries of a span, some inputs of a weight, attention with losses of each device's own.
 * Values against the whole operation or plain loops in double, gradients against central differences (gradcheck.h). */
#include "unit/autograd/gradcheck.h"

#define LEAF(i) (&fixture->leaf[i])

/* ---- some queries of a span */

enum { HEADS = 4, KV_HEADS = 2, HEAD = 6 };

typedef struct QueryCase {
  const char *name;
  int64_t batch, rows, remote;
  AttentionSpan span;
  bool causal;
  double lost;
  int64_t first, count; /* of the gradient test; the value test cuts at every `count` rows */
} QueryCase;

static const QueryCase query_cases[] = {
    {"queries, plain", 2, 11, 0, {0, 11, 0, 0}, false, 0, 3, 4},
    {"queries, causal", 2, 11, 0, {0, 11, 0, 0}, true, 0, 3, 4},
    {"queries, causal, one row", 1, 7, 5, {0, 7, 5, 0}, true, 0, 6, 1},
    {"queries, remote", 2, 9, 12, {0, 9, 4, 0}, false, 0, 0, 4},
    {"queries, remote, causal, lost", 2, 9, 12, {0, 9, 12, 0}, true, 0.3, 5, 4},
    {"queries, own copies unseen, lost", 1, 6, 9, {0, 6, 2, 3}, false, 0.4, 2, 3},
};

static void open_queries(Fixture *fixture, const QueryCase *c, int64_t queries, uint8_t *lost) {
  fixture_open(fixture, 3);
  fixture_leaf(fixture, true, c->batch, queries, HEADS * HEAD, 0);
  for (int i = 0; i < 2; i++) fixture_leaf(fixture, true, c->batch, c->rows, KV_HEADS * HEAD, 0);
  for (int i = 0; i < 2 && c->remote > 0; i++) fixture_leaf(fixture, true, c->batch, c->remote, KV_HEADS * HEAD, 0);
  for (int64_t i = 0; i < c->batch * c->remote; i++) lost[i] = rng_uniform(&fixture->rng) < c->lost;
}

static Tensor *attend(Fixture *fixture, const QueryCase *c, const uint8_t *lost, Tensor *q, int64_t first, const int64_t *count) {
  return op_attention(fixture->tape, q, LEAF(1), LEAF(2), c->remote ? LEAF(3) : NULL, c->remote ? LEAF(4) : NULL,
                      &(AttentionOptions){.heads = HEADS,
                                          .kv_heads = KV_HEADS,
                                          .causal = c->causal,
                                          .spans = 1,
                                          .span = &c->span,
                                          .lost = c->lost > 0 ? lost : NULL,
                                          .queries = count,
                                          .first_query = first});
}

/* The queries in pieces of `step` are the rows of the whole; in one piece, its bits. */
static void check_pieces(const QueryCase *c, int64_t step) {
  static uint8_t lost[4096];
  static int32_t every[1024];
  Fixture held, *fixture = &held;
  open_queries(fixture, c, c->rows, lost);
  const int64_t width = HEADS * HEAD;
  for (int64_t i = 0; i < c->rows; i++) every[i] = (int32_t)i;
  const Tensor *whole = attend(fixture, c, lost, LEAF(0), 0, NULL);
  assert_non_null(whole);
  for (int64_t first = 0; first < c->rows; first += step) {
    int64_t count = first + step < c->rows ? step : c->rows - first;
    const Tensor *y = attend(fixture, c, lost, op_gather_rows(fixture->tape, LEAF(0), every + first, count), first, &count);
    if (y == NULL) fail_msg("%s: %s", c->name, status_message());
    for (int64_t i = 0; i < c->batch * count * width; i++) {
      int64_t row = i / width % count, b = i / width / count;
      const real *same = &whole->value[(b * c->rows + first + row) * width + i % width];
      if (count == c->rows) assert_memory_equal(same, &y->value[i], sizeof *same);
      check_value(c->name, i, y->value[i], (double)*same);
    }
  }
  fixture_close(fixture);
}

static void test_queries(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof query_cases / sizeof *query_cases; i++) {
    check_pieces(&query_cases[i], query_cases[i].count);
    check_pieces(&query_cases[i], query_cases[i].rows);
  }
  check_pieces(&(QueryCase){"queries, three tiles", 1, 300, 40, {0, 300, 40, 0}, true, 0.2, 0, 0}, 130);
  check_pieces(&(QueryCase){"queries, three tiles, not causal", 1, 300, 40, {0, 300, 20, 0}, false, 0.2, 0, 0}, 130);
}

typedef struct QueryContext {
  const QueryCase *c;
  const uint8_t *lost;
} QueryContext;

static Tensor *build_queries(Fixture *fixture, const void *context, Tensor **second) {
  const QueryContext *q = context;
  *second = op_scale(fixture->tape, LEAF(1), 0.5); /* a gradient is there already */
  return attend(fixture, q->c, q->lost, LEAF(0), q->c->first, &q->c->count);
}

static void test_query_gradients(void **state) {
  (void)state;
  uint8_t lost[64];
  for (size_t i = 0; i < sizeof query_cases / sizeof *query_cases; i++) {
    Fixture fixture;
    open_queries(&fixture, &query_cases[i], query_cases[i].count, lost);
    gradcheck(&fixture, query_cases[i].name, build_queries, &(QueryContext){&query_cases[i], lost});
    fixture_close(&fixture);
  }
}

/* Keys behind the last query get a gradient of exactly zero. */
static void test_queries_do_not_look_ahead(void **state) {
  (void)state;
  const QueryCase c = {"", 1, 8, 0, {0, 8, 0, 0}, true, 0, 2, 3};
  Fixture fixture;
  open_queries(&fixture, &c, c.count, NULL);
  gradcheck_backward(&fixture, build_queries, &(QueryContext){&c, NULL});
  for (int64_t row = 0; row < c.rows; row++) assert_int_equal(fixture.leaf[2].grad[row * KV_HEADS * HEAD] != 0, row < 5);
  fixture_close(&fixture);
}

static void test_queries_refused(void **state) {
  (void)state;
  static const AttentionSpan whole = {0, 6, 0, 0}, two[] = {{0, 2, 0, 0}, {2, 4, 0, 0}};
  static const int64_t three = 3, none = 0, both[] = {1, 2};
  Fixture held, *fixture = &held;
  fixture_open(fixture, 4);
  fixture_leaf(fixture, true, 2, 3, 8, 0);
  for (int i = 0; i < 2; i++) fixture_leaf(fixture, true, 2, 6, 8, 0);
  const AttentionOptions bad[] = {{.spans = 1, .span = &whole, .queries = &three, .first_query = 4},
                                  {.spans = 1, .span = &whole, .queries = &three, .first_query = -1},
                                  {.spans = 1, .span = &whole, .queries = &three, .first_query = INT64_MAX},
                                  {.spans = 1, .span = &whole, .queries = &none},
                                  {.spans = 1, .span = &whole, .first_query = 1},
                                  {.spans = 2, .span = two, .queries = both, .causal = true},
                                  {.spans = 2, .span = two, .queries = both, .first_query = 1}};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    AttentionOptions options = bad[i];
    options.heads = options.kv_heads = 2;
    check_op_refused(fixture, op_attention(fixture->tape, LEAF(0), LEAF(1), LEAF(2), NULL, NULL, &options), "queries");
  }
  fixture_close(fixture);
}

/* ---- losses of each device's own */

enum { SPANS = 3, SPAN_ROWS = 10, SPAN_REMOTE = 8, SPAN_BATCH = 2 };

static const AttentionSpan spans[SPANS] = {{0, 5, 0, 4}, {5, 1, 4, 0}, {6, 4, 4, 4}};

static void open_spans(Fixture *fixture, uint8_t *lost) {
  fixture_open(fixture, 5);
  fixture_leaf(fixture, true, SPAN_BATCH, SPAN_ROWS, HEADS * HEAD, 0);
  for (int i = 0; i < 2; i++) fixture_leaf(fixture, true, SPAN_BATCH, SPAN_ROWS, KV_HEADS * HEAD, 0);
  for (int i = 0; i < 2; i++) fixture_leaf(fixture, true, SPAN_BATCH, SPAN_REMOTE, KV_HEADS * HEAD, 0);
  for (int i = 0; i < SPANS * SPAN_BATCH * SPAN_REMOTE; i++) lost[i] = rng_uniform(&fixture->rng) < 0.4;
}

static Tensor *attend_spans(Fixture *fixture, const uint8_t *lost, int64_t stride) {
  const AttentionOptions options = {
      .heads = HEADS, .kv_heads = KV_HEADS, .spans = SPANS, .span = spans, .lost = lost, .lost_stride = stride};
  return op_attention(fixture->tape, LEAF(0), LEAF(1), LEAF(2), LEAF(3), LEAF(4), &options);
}

/* Each span's rows are what they are when its mask is everybody's. */
static void test_losses_of_spans(void **state) {
  (void)state;
  uint8_t lost[SPANS * SPAN_BATCH * SPAN_REMOTE];
  Fixture held, *fixture = &held;
  open_spans(fixture, lost);
  const int64_t stride = SPAN_BATCH * SPAN_REMOTE, width = HEADS * HEAD;
  const Tensor *y = attend_spans(fixture, lost, stride);
  assert_non_null(y);
  for (int s = 0; s < SPANS; s++) {
    const Tensor *one = attend_spans(fixture, lost + s * stride, 0);
    for (int b = 0; b < SPAN_BATCH; b++) {
      int64_t at = (b * SPAN_ROWS + spans[s].begin) * width;
      assert_memory_equal(y->value + at, one->value + at, (size_t)(spans[s].count * width) * sizeof(real));
    }
  }
  check_op_refused(fixture, attend_spans(fixture, lost, stride - 1), "apart");
  fixture_close(fixture);
}

static Tensor *build_spans(Fixture *fixture, const void *context, Tensor **second) {
  (void)second;
  return attend_spans(fixture, context, SPAN_BATCH * SPAN_REMOTE);
}

static void test_losses_of_spans_gradients(void **state) {
  (void)state;
  uint8_t lost[SPANS * SPAN_BATCH * SPAN_REMOTE];
  Fixture fixture;
  open_spans(&fixture, lost);
  gradcheck(&fixture, "losses of each device's own", build_spans, lost);
  fixture_close(&fixture);
}

/* ---- some inputs of a weight */

enum { IN = 13, OUT = 19 };

typedef struct ColumnsCase {
  int64_t rows, first_in, ins;
  LinearPart part;
  NarrowKind kind;
  bool bias, residual;
} ColumnsCase;

static void check_columns(const ColumnsCase *c) {
  Fixture held, *fixture = &held;
  fixture_open(fixture, 1);
  tape_record(fixture->tape, false);
  const int64_t count = c->part.count, d0 = c->part.transposed ? IN : OUT, d1 = c->part.transposed ? OUT : IN;
  const real *x = fixture_leaf(fixture, false, 2, c->rows, c->ins, 0)->value;
  real *wide = NULL;
  if (c->kind != NARROW_NONE) fixture_narrow_leaf(fixture, c->kind, d0, d1, &wide);
  const real *weight = wide ? wide : fixture_leaf(fixture, false, d0, d1, 0, 0)->value;
  const real *bias = fixture_leaf(fixture, false, OUT, 0, 0, 0)->value;
  const real *residual = fixture_leaf(fixture, false, 2, c->rows, count, 0)->value;
  const Tensor *y =
      op_linear_columns(fixture->tape, LEAF(0), LEAF(1), c->bias ? LEAF(2) : NULL, &c->part, c->first_in, c->residual ? LEAF(3) : NULL);
  if (y == NULL) fail_msg("%s", status_message());
  assert_int_equal(tensor_count(y), 2 * c->rows * count);
  for (int64_t i = 0; i < 2 * c->rows * count; i++) {
    const int64_t o = c->part.first + i % count;
    double sum = (c->bias ? (double)bias[o] : 0) + (c->residual ? (double)residual[i] : 0);
    for (int64_t l = 0; l < c->ins; l++) {
      const int64_t in = c->first_in + l;
      sum += (double)x[i / count * c->ins + l] * (double)weight[c->part.transposed ? in * OUT + o : o * IN + in];
    }
    check_value("linear_columns", i, y->value[i], sum);
  }
  free(wide);
  fixture_close(fixture);
}

static void test_columns(void **state) {
  (void)state;
  static const int64_t ins[][2] = {{0, IN}, {0, 5}, {5, 4}, {12, 1}}, outs[][2] = {{0, OUT}, {7, 5}}, rows[] = {1, 3, 20, 100};
  for (int i = 0; i < 4 * 2 * 4; i++)
    for (int flags = 0; flags < 8; flags++)
      for (int kind = NARROW_NONE; kind <= NARROW_BF16; kind++)
        check_columns(&(ColumnsCase){rows[i % 4],
                                     ins[i / 8][0],
                                     ins[i / 8][1],
                                     {outs[i / 4 % 2][0], outs[i / 4 % 2][1], flags & 1},
                                     (NarrowKind)kind,
                                     flags & 2,
                                     flags & 4});
}

static Tensor *build_columns(Fixture *fixture, const void *context, Tensor **second) {
  const ColumnsCase *c = context;
  *second = op_scale(fixture->tape, LEAF(1), 0.5); /* a gradient is there already */
  return op_linear_columns(fixture->tape, LEAF(0), LEAF(1), c->bias ? LEAF(2) : NULL, &c->part, c->first_in, c->residual ? LEAF(3) : NULL);
}

/* The inputs left out get a gradient of the other output alone. */
static void test_columns_gradients(void **state) {
  (void)state;
  static const ColumnsCase cases[] = {{5, 0, IN, {0, OUT, false}, NARROW_NONE, true, true},
                                      {5, 4, 6, {0, OUT, false}, NARROW_NONE, true, false},
                                      {5, 4, 6, {3, 7, true}, NARROW_NONE, false, true},
                                      {130, 9, 4, {0, OUT, true}, NARROW_NONE, false, false}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const ColumnsCase *c = &cases[i];
    Fixture fixture;
    fixture_open(&fixture, 6);
    fixture_leaf(&fixture, true, 1, c->rows, c->ins, 0);
    fixture_leaf(&fixture, true, c->part.transposed ? IN : OUT, c->part.transposed ? OUT : IN, 0, 0);
    fixture_leaf(&fixture, true, OUT, 0, 0, 0);
    fixture_leaf(&fixture, true, 1, c->rows, c->part.count, 0);
    gradcheck(&fixture, c->part.transposed ? "columns, transposed" : "columns", build_columns, c);
    fixture_close(&fixture);
  }
}

/* x's gradient through a weight that stays in 16 bits. */
static Tensor *build_narrow(Fixture *fixture, const void *context, Tensor **second) {
  const ColumnsCase *c = context;
  (void)second;
  return op_linear_columns(fixture->tape, LEAF(1), LEAF(0), NULL, &c->part, c->first_in, NULL);
}

static void test_columns_narrow_gradients(void **state) {
  (void)state;
  for (int flags = 0; flags < 4; flags++) {
    const ColumnsCase c = {20, 4, 6, {3, 7, flags & 1}, flags & 2 ? NARROW_F16 : NARROW_BF16, false, false};
    Fixture fixture;
    real *wide;
    fixture_open(&fixture, 7);
    fixture_narrow_leaf(&fixture, c.kind, c.part.transposed ? IN : OUT, c.part.transposed ? OUT : IN, &wide);
    fixture_leaf(&fixture, true, 1, c.rows, c.ins, 0);
    gradcheck(&fixture, "columns, 16-bit weight", build_narrow, &c);
    free(wide);
    fixture_close(&fixture);
  }
}

static void test_columns_refused(void **state) {
  (void)state;
  Fixture held, *fixture = &held;
  fixture_open(fixture, 2);
  fixture_leaf(fixture, true, 4, 5, 0, 0), fixture_leaf(fixture, true, OUT, IN, 0, 0), fixture_leaf(fixture, true, 5, 0, 0, 0);
  const LinearPart all = {0, OUT, false}, beyond = {15, 5, false};
  static const int64_t first[] = {-1, 9, INT64_MAX};
  for (int i = 0; i < 3; i++)
    check_op_refused(fixture, op_linear_columns(fixture->tape, LEAF(0), LEAF(1), NULL, &all, first[i], NULL), "inputs");
  check_op_refused(fixture, op_linear_columns(fixture->tape, LEAF(0), LEAF(1), NULL, &beyond, 0, NULL), "19 outputs");
  check_op_refused(fixture, op_linear_columns(fixture->tape, LEAF(0), LEAF(1), LEAF(2), &all, 0, NULL), "bias");
  check_op_refused(fixture, op_linear_columns(fixture->tape, LEAF(0), LEAF(1), NULL, &all, 0, LEAF(2)), "residual");
  fixture_close(fixture);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_queries),         cmocka_unit_test(test_query_gradients),   cmocka_unit_test(test_queries_do_not_look_ahead),
      cmocka_unit_test(test_queries_refused), cmocka_unit_test(test_losses_of_spans),   cmocka_unit_test(test_losses_of_spans_gradients),
      cmocka_unit_test(test_columns),         cmocka_unit_test(test_columns_gradients), cmocka_unit_test(test_columns_narrow_gradients),
      cmocka_unit_test(test_columns_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
