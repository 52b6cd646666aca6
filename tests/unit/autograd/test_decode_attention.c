/* Attention of one token over rows that exist as codes alone, against the ordinary operations on rows that were looked up, projected and
 * turned one and all: both sites, fused and transposed weights, 16 bits, grouped heads, rotary positions, lost rows, one thread and two. */
#include "autograd/kernels/matmul.h"
#include "autograd/ops/decode_attention.h"
#include "base/threads.h"
#include "unit/autograd/tape_fixture.h"

enum { PLACES = 400, ENTRIES = 16, MAX_REMOTE = 200, MAX_CODES = MAX_REMOTE * 8 };

typedef struct Case {
  const char *name;
  int heads, kv_heads;
  int64_t head, in;     /* in: D, 0: site kv */
  int64_t groups, rows; /* groups of x, or of k and v */
  int64_t remote;
  bool transposed, bias, rope;
  NarrowKind kind;
  double lost;
} Case;

typedef struct Setting {
  Fixture fixture;
  const Case *c;
  Tensor *q, *keys, *values, *weight, *bias; /* weight: both projections in one, the keys' behind 3 others, the values' behind them */
  real *wide;
  real cosine[PLACES * 8], sine[PLACES * 8], *book[2];
  int32_t codes[2][MAX_CODES], positions[MAX_REMOTE];
  uint8_t lost[MAX_REMOTE];
  Rope rope;
  DecodeAttention options;
} Setting;

static int64_t kv_width(const Case *c) { return c->kv_heads * c->head; }

static void open_weight(Setting *s) {
  const Case *c = s->c;
  const int64_t out = 3 + 2 * kv_width(c) + 2, d0 = c->transposed ? c->in : out, d1 = c->transposed ? out : c->in;
  if (c->kind != NARROW_NONE)
    s->weight = fixture_narrow_leaf(&s->fixture, c->kind, d0, d1, &s->wide);
  else
    s->weight = fixture_leaf(&s->fixture, false, d0, d1, 0, 0);
  s->bias = c->bias ? fixture_leaf(&s->fixture, false, out, 0, 0, 0) : NULL;
  s->options.key = (DecodeProjection){s->weight, s->bias, {3, kv_width(c), c->transposed}};
  s->options.value = (DecodeProjection){s->weight, s->bias, {3 + kv_width(c), kv_width(c), c->transposed}};
}

static void open_codes(Setting *s) {
  const Case *c = s->c;
  const int64_t width = c->in ? c->in : kv_width(c);
  for (int side = 0; side < 2; side++) {
    s->book[side] = malloc((size_t)(ENTRIES * width) * sizeof(real));
    assert_non_null(s->book[side]);
    fixture_randomise(&s->fixture, s->book[side], ENTRIES * width);
    for (int64_t i = 0; i < c->remote * c->groups; i++) s->codes[side][i] = (int32_t)rng_below(&s->fixture.rng, ENTRIES);
  }
  s->options.k = (DecodeCodes){.codes = s->codes[0], .codebook = s->book[0], .groups = c->groups, .entries = ENTRIES};
  s->options.v = (DecodeCodes){.codes = s->codes[1], .codebook = s->book[1], .groups = c->groups, .entries = ENTRIES};
  if (!c->in) return;
  s->options.x = s->options.k;
  s->options.k = s->options.v = (DecodeCodes){0};
}

static void setting_open(Setting *s, const Case *c) {
  *s = (Setting){.c = c};
  fixture_open(&s->fixture, 1);
  tape_record(s->fixture.tape, false);
  s->q = fixture_leaf(&s->fixture, false, 1, 1, c->heads * c->head, 0);
  s->keys = fixture_leaf(&s->fixture, false, 1, c->rows, kv_width(c), 0);
  s->values = fixture_leaf(&s->fixture, false, 1, c->rows, kv_width(c), 0);
  if (c->in) open_weight(s);
  open_codes(s);
  for (int64_t i = 0; i < PLACES * c->head / 2; i++) s->cosine[i] = (real)cos(0.37 * (double)i), s->sine[i] = (real)sin(0.37 * (double)i);
  for (int64_t r = 0; r < c->remote; r++) {
    s->positions[r] = (int32_t)(2 * r % PLACES);
    s->lost[r] = rng_uniform(&s->fixture.rng) < c->lost;
  }
  s->rope = (Rope){s->cosine, s->sine, PLACES, c->kv_heads};
  DecodeAttention *o = &s->options;
  o->heads = c->heads, o->kv_heads = c->kv_heads, o->rows = c->rows, o->remote = c->remote;
  o->keys = s->keys->value, o->values = s->values->value;
  if (c->lost > 0) o->lost = s->lost, o->marks = c->remote;
  if (c->rope) o->rope = &s->rope, o->positions = s->positions;
}

static void setting_close(Setting *s) {
  free(s->book[0]), free(s->book[1]), free(s->wide);
  fixture_close(&s->fixture);
}

/* ---- the same by ordinary operations ---- */

static Tensor *looked_up(Setting *s, int side, int64_t width) {
  const Case *c = s->c;
  const int64_t part = width / c->groups;
  Tensor *rows = tape_tensor(s->fixture.tape, 3, (int64_t[]){1, c->remote, width});
  for (int64_t i = 0; i < c->remote * width; i++) {
    const int64_t group = i % width / part, code = s->codes[side][i / width * c->groups + group];
    rows->value[i] = s->book[side][(group * ENTRIES + code) * part + i % part];
  }
  return rows;
}

static Tensor *materialised(Setting *s) {
  const Case *c = s->c;
  Tape *tape = s->fixture.tape;
  const AttentionSpan span = {0, c->rows, 0, 0};
  const int64_t one = 1;
  const AttentionOptions attention = {
      .heads = c->heads, .kv_heads = c->kv_heads, .spans = 1, .span = &span, .queries = &one, .lost = c->lost > 0 ? s->lost : NULL};
  Tensor *k = NULL, *v = NULL;
  if (c->remote && c->in) {
    Tensor *x = looked_up(s, 0, c->in);
    k = op_linear_part(tape, x, s->weight, s->bias, &s->options.key.part, ACTIVATION_NONE, NULL);
    v = op_linear_part(tape, x, s->weight, s->bias, &s->options.value.part, ACTIVATION_NONE, NULL);
  } else if (c->remote) {
    k = looked_up(s, 0, kv_width(c)), v = looked_up(s, 1, kv_width(c));
  }
  if (c->remote && c->rope) k = op_rope(tape, k, &s->rope, s->positions);
  return op_attention(tape, s->q, s->keys, s->values, k, v, &attention);
}

/* Logits of two or three hundred inputs are large here, so the softmax is peaked: |q| is made small. */
static void check_case(const Case *c) {
  Setting *s = malloc(sizeof *s);
  assert_non_null(s);
  setting_open(s, c);
  for (int64_t i = 0; i < c->heads * c->head; i++) s->q->value[i] *= (real)0.2;
  Tensor *want = materialised(s);
  if (!want) fail_msg("%s: %s", c->name, status_message());
  Tensor *y = op_decode_attention(s->fixture.tape, s->q, &s->options), *again = op_decode_attention(s->fixture.tape, s->q, &s->options);
  if (!y) fail_msg("%s: %s", c->name, status_message());
  double size = 0, worst = 0;
  for (int64_t i = 0; i < c->heads * c->head; i++) {
    size = fmax(size, fabs((double)want->value[i]));
    const double off = fabs((double)y->value[i] - (double)want->value[i]);
    worst = fmax(worst, isnan(off) ? INFINITY : off);
  }
  if (!(worst <= (REAL_IS_DOUBLE ? 1e-12 : 1e-5) * size)) fail_msg("%s: off by %g of %g", c->name, worst, size);
  assert_memory_equal(y->value, again->value, (size_t)(c->heads * c->head) * sizeof(real));
  setting_close(s);
  free(s);
}

/* Marks of rows in full: as if the rows that they leave had been all. */
static void lost_rows_in_full_are_as_none(void **state) {
  (void)state;
  static const Case c = {"rows in full, lost", 4, 2, 6, 0, 1, 9, 0, .lost = 0.4};
  enum { MARKS = 6 };
  static const uint8_t lost[MARKS] = {0, 1, 1, 0, 0, 1};
  Setting *s = malloc(sizeof *s);
  assert_non_null(s);
  setting_open(s, &c);
  s->options.lost = lost, s->options.marks = MARKS;
  const Tensor *y = op_decode_attention(s->fixture.tape, s->q, &s->options);
  if (!y) fail_msg("%s", status_message());
  const size_t row = (size_t)kv_width(&c) * sizeof(real);
  int64_t left = 0;
  for (int64_t r = 0; r < c.rows; r++) {
    if (r < MARKS && lost[r]) continue;
    memmove(s->keys->value + left * kv_width(&c), s->keys->value + r * kv_width(&c), row);
    memmove(s->values->value + left++ * kv_width(&c), s->values->value + r * kv_width(&c), row);
  }
  s->options.lost = NULL, s->options.rows = left;
  const Tensor *want = op_decode_attention(s->fixture.tape, s->q, &s->options);
  if (!want) fail_msg("%s", status_message());
  double size = 0, worst = 0;
  for (int64_t i = 0; i < c.heads * c.head; i++) {
    size = fmax(size, fabs((double)want->value[i]));
    const double off = fabs((double)y->value[i] - (double)want->value[i]);
    worst = fmax(worst, isnan(off) ? INFINITY : off);
  }
  if (!(worst <= (REAL_IS_DOUBLE ? 1e-12 : 1e-5) * size)) fail_msg("off by %g of %g", worst, size);
  setting_close(s);
  free(s);
}

static const Case cases[] = {
    {"no remote rows", 4, 2, 6, 0, 1, 9, 0, .rope = true},
    {"site x, no remote rows yet", 4, 2, 6, 20, 5, 9, 0, .bias = true},
    {"site x", 4, 4, 6, 24, 8, 9, 37, .bias = false},
    {"site x, bias", 4, 4, 6, 24, 8, 1, 37, .bias = true},
    {"site x, transposed", 3, 3, 8, 24, 4, 9, 150, .transposed = true, .bias = true},
    {"site x, grouped heads", 4, 2, 6, 20, 5, 9, 150, .bias = true},
    {"site x, one kv head", 12, 1, 6, 20, 1, 9, 150, .transposed = true, .bias = true}, /* more rows than go as vectors */
    {"site x, half", 4, 2, 6, 20, 5, 9, 70, .kind = NARROW_F16, .bias = true},
    {"site x, bfloat, transposed", 12, 1, 6, 20, 5, 9, 70, .kind = NARROW_BF16, .transposed = true},
    {"site x, rope", 4, 2, 6, 20, 5, 9, 150, .rope = true, .bias = true},
    {"site x, rope, half, transposed", 4, 2, 6, 20, 5, 9, 150, .kind = NARROW_F16, .rope = true, .transposed = true},
    {"site x, lost rows", 4, 2, 6, 20, 5, 3, 130, .lost = 0.5, .bias = true},
    {"site x, all lost", 4, 2, 6, 20, 5, 3, 130, .lost = 1, .bias = true},
    {"site kv", 4, 4, 6, 0, 8, 9, 37, .rope = false},
    {"site kv, rope, grouped heads", 6, 2, 8, 0, 4, 9, 199, .rope = true},
    {"site kv, one group across heads", 6, 3, 4, 0, 1, 9, 64, .rope = true, .lost = 0.2},
};

static void as_ordinary_operations_on_all_rows(void **state) {
  (void)state;
  for (int threads = 1; threads <= 2; threads++) {
    assert_int_equal(threads_start(threads), STATUS_OK);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) check_case(&cases[i]);
    threads_stop();
  }
}

/* A single query meets keys and values of 16 bits where they lie: the same from one array of all heads' rows as from pages of each head's.
 */
static void pages_of_16_bits_are_as_one_array(void **state) {
  (void)state;
  enum { HEADS = 3, HEAD = 20, ROWS = 150, PAGE = 32, PAGES = (ROWS + PAGE - 1) / PAGE, SIDES = 2 };
  static uint16_t whole[SIDES][ROWS][HEADS][HEAD], paged[PAGES][SIDES][HEADS][PAGE][HEAD];
  const uint8_t *side[SIDES], *page[PAGES];
  for (int i = 0; i < SIDES; i++) side[i] = (const uint8_t *)whole[i];
  for (int i = 0; i < PAGES; i++) page[i] = (const uint8_t *)paged[i];
  for (NarrowKind kind = NARROW_F16; kind <= NARROW_BF16; kind++) {
    Fixture f;
    fixture_open(&f, 2);
    tape_record(f.tape, false);
    Tensor *q = fixture_leaf(&f, false, 1, 1, HEADS * HEAD, 0);
    for (int64_t i = 0; i < (int64_t)sizeof whole / (int64_t)sizeof(uint16_t); i++) {
      const int64_t s = i / (ROWS * HEADS * HEAD), row = i / (HEADS * HEAD) % ROWS, head = i / HEAD % HEADS, at = i % HEAD;
      const float number = (float)rng_normal(&f.rng);
      const uint16_t narrow = kind == NARROW_F16 ? narrow_half(number) : narrow_bfloat(number);
      whole[s][row][head][at] = paged[row / PAGE][s][head][row % PAGE][at] = narrow;
    }
    DecodeSequence sequence = {.queries = 1, .key_page = &side[0], .value_page = &side[1], .rows = ROWS};
    DecodeBatch options = {.heads = HEADS,
                           .kv_heads = HEADS,
                           .kind = kind,
                           .page = ROWS,
                           .row_step = (int64_t)HEADS * HEAD,
                           .head_step = HEAD,
                           .sequence = &sequence,
                           .count = 1};
    const Tensor *of_whole = op_decode_batch(f.tape, q, &options);
    sequence.key_page = sequence.value_page = page;
    sequence.values = sizeof paged[0][0];
    options.page = PAGE, options.row_step = HEAD, options.head_step = (int64_t)PAGE * HEAD;
    const Tensor *of_pages = op_decode_batch(f.tape, q, &options);
    if (of_whole == NULL || of_pages == NULL) fail_msg("%s", status_message());
    for (int i = 0; i < HEADS * HEAD; i++) assert_true(fabs((double)of_pages->value[i] - (double)of_whole->value[i]) < 1e-5);
    fixture_close(&f);
  }
}

/* Memory and products of a plan are those of a run; a plan reads no array. */
static void planning_counts_what_it_takes(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Setting *s = malloc(sizeof *s);
    assert_non_null(s);
    setting_open(s, &cases[i]);
    size_t bytes[2];
    double flops[2];
    for (int planning = 1; planning >= 0; planning--) {
      tape_free(s->fixture.tape);
      arena_free(s->fixture.arena);
      s->fixture.arena = arena_new((size_t)16 << 20);
      s->fixture.tape = tape_new(s->fixture.arena);
      tape_plan(s->fixture.tape, planning);
      matmul_reset_count();
      DecodeAttention options = s->options;
      if (planning) options.keys = options.values = NULL, options.x.codes = options.k.codes = options.v.codes = options.positions = NULL;
      assert_non_null(op_decode_attention(s->fixture.tape, s->q, &options));
      bytes[planning] = tape_peak_bytes(s->fixture.tape), flops[planning] = matmul_counted().flops;
    }
    assert_int_equal(bytes[0], bytes[1]);
    assert_true(flops[0] > 0 && flops[0] == flops[1]);
    setting_close(s);
    free(s);
  }
}

static void check_refused(Setting *s, const char *word) {
  assert_null(op_decode_attention(s->fixture.tape, s->q, &s->options));
  assert_int_equal(tape_status(s->fixture.tape), STATUS_BAD_VALUE);
  if (!strstr(status_message(), word)) fail_msg("\"%s\" does not say \"%s\"", status_message(), word);
  fixture_clear(&s->fixture);
}

static void what_does_not_fit_is_refused(void **state) {
  (void)state;
  static const Case kv = {"", 4, 2, 6, 0, 3, 9, 20, .rope = true}, x = {"", 4, 2, 6, 20, 5, 9, 20, .bias = true};
  Setting *s = malloc(sizeof *s);
  assert_non_null(s);
  setting_open(s, &kv);
  s->codes[1][33] = ENTRIES, check_refused(s, "code"), s->codes[1][33] = -1, check_refused(s, "code"), s->codes[1][33] = 0;
  s->positions[7] = PLACES, check_refused(s, "position"), s->positions[7] = 0;
  s->options.k.groups = 5, check_refused(s, "codebook"), s->options.k.groups = 3;
  s->options.rows = 0, check_refused(s, "go together"), s->options.rows = 9;
  s->options.kv_heads = 3, check_refused(s, "go together"), s->options.kv_heads = 2;
  s->options.keys = NULL, check_refused(s, "missing"), s->options.keys = s->keys->value;
  tape_record(s->fixture.tape, true), check_refused(s, "gradient"), tape_record(s->fixture.tape, false);
  assert_non_null(op_decode_attention(s->fixture.tape, s->q, &s->options));
  setting_close(s);
  setting_open(s, &x);
  s->codes[0][99] = ENTRIES, check_refused(s, "code"), s->codes[0][99] = 0;
  s->options.value.part.first = 1000, check_refused(s, "fit"), s->options.value.part.first = INT64_MAX, check_refused(s, "fit");
  s->options.value.part.first = 0, s->options.key.part.count = 6, check_refused(s, "fit");
  setting_close(s);
  free(s);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(as_ordinary_operations_on_all_rows), cmocka_unit_test(lost_rows_in_full_are_as_none),
      cmocka_unit_test(pages_of_16_bits_are_as_one_array),  cmocka_unit_test(planning_counts_what_it_takes),
      cmocka_unit_test(what_does_not_fit_is_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
