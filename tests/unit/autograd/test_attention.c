/* Attention in tiles: values and gradients of many layouts against a dense softmax in double, the running maximum, scratch that does not
 * grow with the number of keys, causal tiles that are left out, the same bits for any number of threads. */
#include "autograd/kernels/matmul.h"
#include "base/threads.h"
#include "unit/autograd/gradcheck.h"

#define LEAF(i)   (&fixture->leaf[i])
#define TOLERANCE (REAL_IS_DOUBLE ? 1e-11 : 5e-5)

enum { MAX_SPANS = 8, MAX_WIDTH = 32, BATCH = 2 };

typedef struct Layout {
  int64_t rows, remote, head_width;
  int heads, kv_heads, spans;
  bool causal, with_lost, lost_of_spans;
  AttentionSpan span[MAX_SPANS];
  uint8_t *lost; /* [spans or 1, BATCH, R] */
} Layout;

static Tensor *attend(Fixture *fixture, const Layout *c) {
  const AttentionOptions options = {.heads = c->heads,
                                    .kv_heads = c->kv_heads,
                                    .causal = c->causal,
                                    .spans = c->spans,
                                    .span = c->span,
                                    .lost = c->with_lost ? c->lost : NULL,
                                    .lost_stride = c->lost_of_spans ? BATCH * c->remote : 0};
  return op_attention(fixture->tape, LEAF(0), LEAF(1), LEAF(2), c->remote ? LEAF(3) : NULL, c->remote ? LEAF(4) : NULL, &options);
}

static void open_layout(Fixture *fixture, const Layout *c, uint64_t seed, bool needs_grad) {
  fixture_open(fixture, seed);
  fixture_leaf(fixture, needs_grad, BATCH, c->rows, c->heads * c->head_width, 0);
  for (int i = 0; i < 2; i++) fixture_leaf(fixture, needs_grad, BATCH, c->rows, c->kv_heads * c->head_width, 0);
  for (int i = 0; c->remote && i < 2; i++) fixture_leaf(fixture, needs_grad, BATCH, c->remote, c->kv_heads * c->head_width, 0);
}

/* ---- a dense softmax, and its gradients */

static bool is_visible(const Layout *c, int64_t sample, int s, int64_t query, bool remote, int64_t key) {
  const AttentionSpan *span = &c->span[s];
  if (!remote) return key >= span->begin && key < span->begin + span->count && (!c->causal || key <= query);
  if (key >= span->own && key < span->own + span->own_count) return false;
  if (c->with_lost && c->lost[(c->lost_of_spans ? s * BATCH * c->remote : 0) + sample * c->remote + key]) return false;
  return !c->causal || key < span->own;
}

typedef struct Dense {
  const Fixture *fixture;
  const Layout *c;
  double *y, *grad[5]; /* like q and the leaves */
} Dense;

/* One query of one head: its output, and what dy [d] gives to the gradients. */
static void dense_row(Dense *dense, int64_t sample, int s, int64_t query, int64_t head, const double *dy) {
  const Layout *c = dense->c;
  const int64_t d = c->head_width, kv = head / (c->heads / c->kv_heads), columns = c->rows + c->remote;
  const int64_t q_at = (sample * c->rows + query) * c->heads * d + head * d;
  double *p = calloc((size_t)columns, sizeof *p), *dp = calloc((size_t)columns, sizeof *dp), max = -INFINITY, total = 0, sum = 0;
  int64_t *at = calloc((size_t)columns, sizeof *at);
  const real *q = dense->fixture->leaf[0].value + q_at;
  assert_true(p && dp && at);
  for (int64_t j = 0; j < columns; j++) {
    const bool remote = j >= c->rows;
    const int64_t key = remote ? j - c->rows : j;
    const real *k = dense->fixture->leaf[remote ? 3 : 1].value;
    at[j] = (sample * (remote ? c->remote : c->rows) + key) * c->kv_heads * d + kv * d;
    p[j] = -INFINITY;
    if (!is_visible(c, sample, s, query, remote, key)) continue;
    p[j] = 0;
    for (int64_t e = 0; e < d; e++) p[j] += (double)q[e] * (double)k[at[j] + e] / sqrt((double)d);
    max = fmax(max, p[j]);
  }
  for (int64_t j = 0; j < columns; j++) total += p[j] = exp(p[j] - max);
  for (int64_t j = 0; j < columns; j++) {
    const real *v = dense->fixture->leaf[j >= c->rows ? 4 : 2].value;
    p[j] /= total;
    for (int64_t e = 0; p[j] > 0 && e < d; e++) dense->y[q_at + e] += p[j] * (double)v[at[j] + e], dp[j] += dy[e] * (double)v[at[j] + e];
    sum += p[j] * dp[j];
  }
  for (int64_t j = 0; j < columns; j++) {
    const int side = j >= c->rows ? 3 : 1;
    const double ds = p[j] * (dp[j] - sum) / sqrt((double)d);
    for (int64_t e = 0; p[j] > 0 && e < d; e++) {
      dense->grad[0][q_at + e] += ds * (double)dense->fixture->leaf[side].value[at[j] + e];
      dense->grad[side][at[j] + e] += ds * (double)q[e];
      dense->grad[side + 1][at[j] + e] += p[j] * dy[e];
    }
  }
  free(p), free(dp), free(at);
}

static void check_all(const char *what, const Tensor *tensor, const real *got, const double *want) {
  for (int64_t i = 0; i < tensor_count(tensor); i++)
    if (!(fabs((double)got[i] - want[i]) <= TOLERANCE * fmax(1, fabs(want[i]))))
      fail_msg("%s [%d]: %.9g, expected %.9g", what, (int)i, (double)got[i], want[i]);
}

/* Values and all gradients, for the weights of a loss that tape_fixture.h gives. */
static void check_dense(Fixture *fixture, const Layout *c) {
  static const char *const names[] = {"dq", "dk", "dv", "d remote k", "d remote v"};
  Dense dense = {.fixture = fixture, .c = c, .y = calloc((size_t)tensor_count(LEAF(0)), sizeof(double))};
  const int64_t d = c->head_width, width = c->heads * d;
  assert_non_null(dense.y);
  for (int i = 0; i < fixture->leaves; i++) assert_non_null(dense.grad[i] = calloc((size_t)tensor_count(LEAF(i)), sizeof(double)));
  for (int64_t sample = 0; sample < BATCH; sample++)
    for (int s = 0; s < c->spans; s++)
      for (int64_t query = c->span[s].begin; query < c->span[s].begin + c->span[s].count; query++)
        for (int64_t head = 0; head < c->heads; head++) {
          double dy[MAX_WIDTH];
          for (int64_t e = 0; e < d; e++) dy[e] = weigh_weight((sample * c->rows + query) * width + head * d + e);
          dense_row(&dense, sample, s, query, head, dy);
        }
  fixture_clear(fixture);
  Tensor *y = attend(fixture, c);
  if (y == NULL) fail_msg("attention failed: %s", status_message());
  check_all("y", y, y->value, dense.y);
  assert_int_equal(tape_backward(fixture->tape, weigh(fixture->tape, y)), STATUS_OK);
  for (int i = 0; i < fixture->leaves; i++) check_all(names[i], LEAF(i), LEAF(i)->grad, dense.grad[i]);
  for (int i = 0; i < fixture->leaves; i++) free(dense.grad[i]);
  free(dense.y);
}

/* ---- layouts */

/* Devices of random sizes, one in three of a single row; with replicas of a class token they have one row more than the others see. In one
 * layout of four nobody sees the others' rows. */
static void draw_layout(Layout *c, Rng *rng, int64_t longest) {
  const int replicas = (int)rng_below(rng, 2);
  const bool apart = rng_below(rng, 4) == 0;
  *c = (Layout){.head_width = 1 + (int64_t)rng_below(rng, MAX_WIDTH), .kv_heads = 1 + (int)rng_below(rng, 2)};
  c->heads = c->kv_heads * (1 + (int)rng_below(rng, 2));
  c->spans = 1 + (int)rng_below(rng, MAX_SPANS);
  c->causal = replicas == 0 && rng_below(rng, 2);
  for (int s = 0; s < c->spans; s++) {
    const int64_t own = rng_below(rng, 3) ? 1 + (int64_t)rng_below(rng, (uint64_t)longest) : 1;
    c->span[s] = (AttentionSpan){c->rows, own + replicas, c->remote, apart ? 0 : own};
    c->rows += own + replicas, c->remote += apart ? 0 : own;
  }
  c->with_lost = rng_below(rng, 2) && !apart, c->lost_of_spans = rng_below(rng, 2);
  c->lost = malloc((size_t)(c->spans * BATCH * c->remote) + 1);
  assert_non_null(c->lost);
  for (int64_t i = 0; i < c->spans * BATCH * c->remote; i++) c->lost[i] = rng_uniform(rng) < 0.3;
}

static void random_layouts_are_a_dense_softmax(void **state) {
  (void)state;
  Rng rng;
  rng_init(&rng, 11, 0);
  for (int round = 0; round < 60; round++) {
    Layout c;
    Fixture fixture;
    draw_layout(&c, &rng, round % 3 ? 20 : 80);
    open_layout(&fixture, &c, (uint64_t)round, true);
    check_dense(&fixture, &c);
    fixture_close(&fixture);
    free(c.lost);
  }
}

/* Around the sizes at which tiles of queries and blocks of keys end. */
static void long_rows_are_a_dense_softmax(void **state) {
  (void)state;
  static const int64_t rows[] = {127, 128, 129, 255, 256, 257, 384, 385, 513, 700};
  for (int causal = 0; causal < 2; causal++)
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
      const Layout c = {
          .rows = rows[i], .head_width = 8, .heads = 2, .kv_heads = 1, .spans = 1, .causal = causal, .span = {{0, rows[i], 0, 0}}};
      Fixture fixture;
      open_layout(&fixture, &c, i, true);
      check_dense(&fixture, &c);
      fixture_close(&fixture);
    }
}

/* Keys that grow, or shrink, along the row, so that each block brings a larger maximum, or none; scores up to several hundreds. */
static void maxima_move_from_block_to_block(void **state) {
  (void)state;
  enum { ROWS = 900, WIDTH = 4 };
  for (int falling = 0; falling < 2; falling++) {
    const Layout c = {.rows = ROWS, .head_width = WIDTH, .heads = 1, .kv_heads = 1, .spans = 1, .span = {{0, ROWS, 0, 0}}};
    Fixture held, *fixture = &held;
    open_layout(fixture, &c, 3, true);
    for (int64_t i = 0; i < BATCH * ROWS * WIDTH; i++) {
      const int64_t key = i / WIDTH % ROWS;
      LEAF(0)->value[i] = (real)(1 + 0.01 * (double)(i % 7));
      LEAF(1)->value[i] = (real)(0.2 * (double)(falling ? ROWS - key : key) + 0.01 * (double)(i % 5));
    }
    fixture_clear(fixture);
    const Tensor *y = attend(fixture, &c);
    assert_non_null(y);
    /* Of keys 0.4 apart and more, all but the last hundred have no weight that could be seen. */
    for (int64_t i = 0; i < BATCH * ROWS; i++) {
      double total = 0, want = 0, max = -INFINITY;
      const real *q = LEAF(0)->value + i * WIDTH, *k = LEAF(1)->value + i / ROWS * ROWS * WIDTH,
                 *v = LEAF(2)->value + i / ROWS * ROWS * WIDTH;
      double score[ROWS];
      for (int64_t j = 0; j < ROWS; j++) {
        score[j] = 0;
        for (int64_t e = 0; e < WIDTH; e++) score[j] += (double)q[e] * (double)k[j * WIDTH + e] / 2;
        max = fmax(max, score[j]);
      }
      for (int64_t j = 0; j < ROWS; j++) total += exp(score[j] - max), want += exp(score[j] - max) * (double)v[j * WIDTH];
      const double got = (double)y->value[i * WIDTH];
      if (!(fabs(got - want / total) <= (REAL_IS_DOUBLE ? 1e-9 : 1e-3))) fail_msg("row %d: %.9g, expected %.9g", (int)i, got, want / total);
    }
    fixture_close(fixture);
  }
}

/* ---- bf16 */

/* The leaves' numbers rounded to bf16, in full and as such; the caller's tape has no gradients of them yet. */
static void round_leaves(Fixture *fixture, Tensor narrow[FIXTURE_LEAVES]) {
  for (int i = 0; i < fixture->leaves; i++) {
    const int64_t count = tensor_count(LEAF(i));
    narrow[i] = *LEAF(i);
    narrow[i].value = NULL, narrow[i].narrow_kind = NARROW_BF16;
    assert_non_null(narrow[i].narrow = malloc((size_t)count * sizeof *narrow[i].narrow));
    kernels()->narrow(count, LEAF(i)->value, narrow[i].narrow);
    kernels()->widen(NARROW_BF16, count, narrow[i].narrow, LEAF(i)->value);
  }
}

/* sqrt(sum (a - b)^2 / sum b^2), a in bf16; numbers that are small altogether (one key alone gives no gradient) count as 0.3 each. */
static double deviation(const uint16_t *a, const real *b, int64_t count) {
  double apart = 0, all = 0;
  for (int64_t i = 0; i < count; i++) {
    const double difference = (double)narrow_bfloat_to_float(a[i]) - (double)b[i];
    apart += difference * difference, all += (double)b[i] * (double)b[i];
  }
  return sqrt(apart / fmax(all, 0.09 * (double)count));
}

/* Output and gradients of rounded inputs are those of the same numbers in full, but for the rounding of probabilities, of gradients of
 * scores and of the results: 2^-9 each at most. A gradient that is there already is added to. */
static void check_bf16(Fixture *fixture, const Layout *c, bool twice) {
  Tensor narrow[FIXTURE_LEAVES], full[FIXTURE_LEAVES];
  round_leaves(fixture, narrow);
  memcpy(full, fixture->leaf, sizeof full);
  Tensor *y[2];
  for (int kind = 0; kind < 2; kind++) {
    memcpy(fixture->leaf, kind ? narrow : full, sizeof narrow);
    y[kind] = attend(fixture, c);
    assert_true(y[kind] != NULL && (y[kind]->narrow != NULL) == (kind == 1));
    Tensor *loss = weigh(fixture->tape, op_widen(fixture->tape, y[kind]));
    if (twice) loss = op_add_scaled(fixture->tape, loss, weigh(fixture->tape, op_widen(fixture->tape, attend(fixture, c))), 1);
    assert_int_equal(tape_backward(fixture->tape, loss), STATUS_OK);
    memcpy(kind ? narrow : full, fixture->leaf, sizeof narrow);
  }
  double worst = deviation(y[1]->narrow, y[0]->value, tensor_count(y[0]));
  if (!(worst < 4e-3)) fail_msg("the output is off by %.3g of its size", worst);
  for (int i = 0; i < fixture->leaves; i++) {
    assert_true(narrow[i].grad == NULL && narrow[i].narrow_grad != NULL);
    const double off = deviation(narrow[i].narrow_grad, full[i].grad, tensor_count(&full[i]));
    if (!(off < 1e-2)) fail_msg("gradient %d is off by %.3g of its size", i, off);
    worst = fmax(worst, off);
  }
  memcpy(fixture->leaf, full, sizeof full);
  for (int i = 0; i < fixture->leaves; i++) free(narrow[i].narrow);
}

static void bf16_is_the_same_within_rounding(void **state) {
  (void)state;
  Rng rng;
  rng_init(&rng, 12, 0);
  for (int round = 0; round < 24; round++) {
    Layout c;
    Fixture fixture;
    draw_layout(&c, &rng, 60);
    open_layout(&fixture, &c, (uint64_t)round, true);
    check_bf16(&fixture, &c, round % 2);
    fixture_close(&fixture);
    free(c.lost);
  }
  const Layout longer = {.rows = 600, .head_width = 32, .heads = 4, .kv_heads = 2, .spans = 1, .causal = true, .span = {{0, 600, 0, 0}}};
  Fixture fixture;
  open_layout(&fixture, &longer, 5, true);
  check_bf16(&fixture, &longer, false);
  fixture_close(&fixture);
}

/* ---- one tensor as several of the inputs */

/* Two spans; which of the leaves are q, k, v, remote k and remote v. */
typedef struct Roles {
  int leaf[5];
} Roles;

static const Roles roles[] = {{{0, 1, 1, 1, 1}}, {{0, 0, 1, 1, 1}}, {{0, 1, 0, 1, 0}}, {{0, 1, 1, 0, 1}}, {{0, 0, 0, 0, 0}}};
enum { ROLES = sizeof roles / sizeof *roles };

static Tensor *attend_in_roles(Fixture *fixture, const void *context, Tensor **second) {
  static const AttentionSpan spans[] = {{0, 3, 0, 3}, {3, 5, 3, 5}};
  const int *leaf = ((const Roles *)context)->leaf;
  const AttentionOptions options = {.heads = 2, .kv_heads = 2, .spans = 2, .span = spans};
  (void)second;
  return op_attention(fixture->tape, LEAF(leaf[0]), LEAF(leaf[1]), LEAF(leaf[2]), LEAF(leaf[3]), LEAF(leaf[4]), &options);
}

static void open_roles(Fixture *fixture) {
  fixture_open(fixture, 8);
  for (int i = 0; i < 2; i++) fixture_leaf(fixture, true, BATCH, 8, 2 * 8, 0);
}

static void gradients_of_all_roles_add_up(void **state) {
  (void)state;
  for (int i = 0; i < ROLES; i++) {
    Fixture fixture;
    open_roles(&fixture);
    if (i == ROLES - 1) fixture.leaf[1].needs_grad = false; /* it has no role */
    gradcheck(&fixture, "attention, a tensor in several roles", attend_in_roles, &roles[i]);
    fixture_close(&fixture);
  }
}

/* The gradient of leaf 0. */
static Tensor role_gradient(Fixture *fixture, const Roles *c) {
  Tensor *y = attend_in_roles(fixture, c, NULL);
  assert_int_equal(tape_backward(fixture->tape, weigh(fixture->tape, op_widen(fixture->tape, y))), STATUS_OK);
  return *LEAF(0);
}

static void gradients_of_all_roles_add_up_in_bf16(void **state) {
  (void)state;
  for (int i = 0; i < ROLES; i++) {
    Fixture held, *fixture = &held;
    Tensor narrow[FIXTURE_LEAVES], full[FIXTURE_LEAVES];
    open_roles(fixture);
    round_leaves(fixture, narrow);
    memcpy(full, fixture->leaf, sizeof full);
    const Tensor in_full = role_gradient(fixture, &roles[i]);
    memcpy(fixture->leaf, narrow, sizeof narrow);
    const Tensor in_bf16 = role_gradient(fixture, &roles[i]);
    assert_true(deviation(in_bf16.narrow_grad, in_full.grad, tensor_count(&in_full)) < 1e-2);
    memcpy(fixture->leaf, full, sizeof full);
    for (int leaf = 0; leaf < fixture->leaves; leaf++) free(narrow[leaf].narrow);
    fixture_close(fixture);
  }
}

/* Some inputs in bf16, others in full: the output is in full. */
static void mixed_widths_are_widened(void **state) {
  (void)state;
  const Layout c = {.rows = 40, .head_width = 8, .heads = 2, .kv_heads = 2, .spans = 1, .span = {{0, 40, 0, 0}}};
  Tensor narrow[FIXTURE_LEAVES];
  Fixture held, *fixture = &held;
  open_layout(fixture, &c, 6, true);
  round_leaves(fixture, narrow);
  const Tensor *full = attend(fixture, &c), *mixed;
  const Tensor keys = *LEAF(1);
  *LEAF(1) = narrow[1];
  mixed = attend(fixture, &c);
  assert_true(full != NULL && mixed != NULL && mixed->value != NULL);
  assert_memory_equal(full->value, mixed->value, (size_t)tensor_count(full) * sizeof(real));
  *LEAF(1) = keys;
  for (int i = 0; i < fixture->leaves; i++) free(narrow[i].narrow);
  fixture_close(fixture);
}

/* ---- memory, products, threads */

enum { QUERIES = 64, HEADS = 2, WIDTH = 16 };

/* Arena bytes of forward and backward of QUERIES rows that see `keys` rows, whose own gradients nobody wants. */
static size_t bytes_with(int64_t keys, bool bf16) {
  const int64_t queries = QUERIES;
  const AttentionSpan span = {0, keys, 0, 0};
  Fixture held, *fixture = &held;
  fixture_open(fixture, 1);
  fixture_leaf(fixture, true, 1, QUERIES, HEADS * WIDTH, 0);
  for (int i = 0; i < 2; i++) fixture_leaf(fixture, false, 1, keys, HEADS * WIDTH, 0);
  Tensor narrow[FIXTURE_LEAVES];
  round_leaves(fixture, narrow);
  Tensor *in = bf16 ? narrow : fixture->leaf;
  const AttentionOptions options = {.heads = HEADS, .kv_heads = HEADS, .spans = 1, .span = &span, .queries = &queries};
  Tensor *y = op_attention(fixture->tape, &in[0], &in[1], &in[2], NULL, NULL, &options);
  assert_int_equal(tape_backward(fixture->tape, weigh(fixture->tape, op_widen(fixture->tape, y))), STATUS_OK);
  const size_t bytes = tape_peak_bytes(fixture->tape);
  for (int i = 0; i < fixture->leaves; i++) free(narrow[i].narrow);
  fixture_close(fixture);
  return bytes;
}

static void memory_does_not_grow_with_the_keys(void **state) {
  (void)state;
  for (int bf16 = 0; bf16 < 2; bf16++) { /* the last block is as long as it can be in either */
    const size_t few = bytes_with(1152, bf16), many = bytes_with(20608, bf16);
    if (few != many) fail_msg("%zu bytes with 1,152 keys, %zu with 20,608", few, many);
  }
}

/* A loss that computes nothing but asks for the gradient, for planning. */
typedef struct PlannedLoss {
  Tensor *y;
} PlannedLoss;

static void planned_forward(Tape *tape, void *record) { (void)tape, (void)record; }
static void planned_backward(Tape *tape, void *record) { assert_non_null(tape_grad_zeroed(tape, ((PlannedLoss *)record)->y)); }
static const OpKind PLANNED_LOSS = {"planned", planned_forward, planned_backward};

/* FLOPs of forward and backward over 1,024 rows, done or planned. */
static double flops_with(bool causal, bool planning) {
  enum { ROWS = 1024 };
  const Layout c = {.rows = ROWS, .head_width = 8, .heads = 1, .kv_heads = 1, .spans = 1, .causal = causal, .span = {{0, ROWS, 0, 0}}};
  Fixture fixture;
  open_layout(&fixture, &c, 1, true);
  tape_plan(fixture.tape, planning);
  matmul_reset_count();
  Tensor *y = attend(&fixture, &c);
  Tensor *loss = planning ? tape_tensor(fixture.tape, 1, (int64_t[]){1}) : weigh(fixture.tape, y);
  PlannedLoss planned = {y};
  if (planning) {
    loss->needs_grad = true;
    tape_apply(fixture.tape, &PLANNED_LOSS, &planned, loss);
  }
  assert_int_equal(tape_backward(fixture.tape, loss), STATUS_OK);
  fixture_close(&fixture);
  return matmul_counted().flops;
}

static void causal_tiles_are_left_out(void **state) {
  (void)state;
  const double whole = flops_with(false, false), causal = flops_with(true, false);
  if (!(causal < 0.53 * whole)) fail_msg("a causal mask over 1,024 rows takes %.3f of all products", causal / whole);
  assert_true(flops_with(false, true) == whole && flops_with(true, true) == causal);
}

/* 5 heads, a batch of 2 and uneven spans divide evenly among no number of threads. */
static void bits_are_the_same_for_any_number_of_threads(void **state) {
  (void)state;
  const Layout c = {.rows = 190,
                    .remote = 187,
                    .head_width = 24,
                    .heads = 10,
                    .kv_heads = 5,
                    .spans = 3,
                    .span = {{0, 140, 0, 139}, {140, 20, 139, 19}, {160, 30, 158, 29}}};
  real *first[6] = {NULL};
  for (int threads = 1; threads <= 4; threads++) {
    assert_int_equal(threads_start(threads), STATUS_OK);
    Fixture held, *fixture = &held;
    open_layout(fixture, &c, 7, true);
    fixture_clear(fixture);
    Tensor *y = attend(fixture, &c);
    assert_int_equal(tape_backward(fixture->tape, weigh(fixture->tape, y)), STATUS_OK);
    for (int i = 0; i < 6; i++) {
      const Tensor *tensor = i < 5 ? LEAF(i) : y;
      const real *numbers = i < 5 ? tensor->grad : tensor->value;
      const size_t bytes = (size_t)tensor_count(tensor) * sizeof(real);
      if (threads == 1) {
        assert_non_null(first[i] = malloc(bytes));
        memcpy(first[i], numbers, bytes);
      } else if (memcmp(first[i], numbers, bytes) != 0) {
        fail_msg("array %d differs with %d threads", i, threads);
      }
    }
    fixture_close(fixture);
    threads_stop();
  }
  for (int i = 0; i < 6; i++) free(first[i]);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(random_layouts_are_a_dense_softmax), cmocka_unit_test(long_rows_are_a_dense_softmax),
      cmocka_unit_test(maxima_move_from_block_to_block),    cmocka_unit_test(bf16_is_the_same_within_rounding),
      cmocka_unit_test(gradients_of_all_roles_add_up),      cmocka_unit_test(gradients_of_all_roles_add_up_in_bf16),
      cmocka_unit_test(mixed_widths_are_widened),           cmocka_unit_test(memory_does_not_grow_with_the_keys),
      cmocka_unit_test(causal_tiles_are_left_out),          cmocka_unit_test(bits_are_the_same_for_any_number_of_threads)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
