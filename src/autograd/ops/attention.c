/* Mixed-precision attention: see attention.h. The keys of a span lie in three pieces, in this order: remote rows before its own, its own
 * rows in full, remote rows after; scores, softmax and gradients run over the three side by side in one scratch row, so nothing is copied
 * and no piece is computed twice. Kept for backward: q, k, v, the output and each row's log-sum-exp.
 * Work is shared out by (sample, kv head): the gradients of k and v of one such pair belong to one thread. */
#include "autograd/ops/op_common.h"

enum { TILE = 128, PIECES = 3 };

typedef struct Attention {
  Tensor *q, *k, *v, *remote_k, *remote_v, *y;
  real *lse; /* [B, heads, Q] */
  AttentionOptions options;
  int64_t batch, queries, rows, remote, head_width; /* B, Q, S, R, d */
  int64_t most_keys;
  real scale;
  real *scratch; /* [threads, 2, TILE, most_keys] */
  real *dq, *dk, *dv, *dremote_k, *dremote_v;
  bool add_q;
} Attention;

/* A run of keys that lie together: rows [row, row + count) of k and v, of this process or remote. */
typedef struct Piece {
  const real *k, *v;
  real *dk, *dv;
  int64_t count, column; /* column: where its scores start */
} Piece;

typedef struct Tile {
  const Attention *job;
  const AttentionSpan *span;
  int64_t sample, head, kv_head;
  int64_t query;        /* the tile's first row of q */
  int64_t first, count; /* its query rows, counted in the span */
  const uint8_t *lost;  /* [R] of this span and sample; NULL: none */
  int64_t keys;
  Piece piece[PIECES];
} Tile;

static int64_t q_stride(const Attention *job) { return job->options.heads * job->head_width; }
static int64_t kv_stride(const Attention *job) { return job->options.kv_heads * job->head_width; }
static int64_t q_at(const Tile *tile) {
  const Attention *job = tile->job;
  return (tile->sample * job->queries + tile->query) * q_stride(job) + tile->head * job->head_width;
}

static real *shifted(real *base, int64_t offset) { return base ? base + offset : NULL; }

static void add_piece(Tile *tile, int index, bool remote, int64_t row, int64_t count) {
  const Attention *job = tile->job;
  int64_t at = (tile->sample * (remote ? job->remote : job->rows) + row) * kv_stride(job) + tile->kv_head * job->head_width;
  Piece *piece = &tile->piece[index];
  *piece = (Piece){.count = count > 0 ? count : 0, .column = tile->keys};
  if (piece->count == 0) return;
  piece->k = (remote ? job->remote_k : job->k)->value + at;
  piece->v = (remote ? job->remote_v : job->v)->value + at;
  piece->dk = shifted(remote ? job->dremote_k : job->dk, at);
  piece->dv = shifted(remote ? job->dremote_v : job->dv, at);
  tile->keys += piece->count;
}

static int64_t span_queries(const AttentionOptions *options, int s) {
  return options->queries ? options->queries[s] : options->span[s].count;
}

/* query: the first row of q of this span. */
static void tile_init(Tile *tile, const Attention *job, int64_t sample, int64_t head, int s, int64_t query, int64_t first) {
  const AttentionSpan *span = &job->options.span[s];
  int64_t left = span_queries(&job->options, s) - first;
  *tile = (Tile){.job = job, .span = span, .sample = sample, .head = head, .query = query + first};
  tile->first = job->options.first_query + first;
  tile->lost = job->options.lost ? job->options.lost + s * job->options.lost_stride + sample * job->remote : NULL;
  tile->count = left < TILE ? left : TILE;
  tile->kv_head = head / (job->options.heads / job->options.kv_heads);
  int64_t after = span->own + span->own_count;
  int64_t local = job->options.causal ? tile->first + tile->count : span->count;
  add_piece(tile, 0, true, 0, job->remote ? span->own : 0);
  add_piece(tile, 1, false, span->begin, local);
  add_piece(tile, 2, true, after, job->options.causal ? 0 : job->remote - after);
}

/* Minus infinity where a query may not look: later rows of its own span (causal), rows that never arrived. */
static void mask_scores(const Tile *tile, real *scores) {
  const Attention *job = tile->job;
  if (job->options.causal)
    for (int64_t i = 0; i < tile->count; i++)
      for (int64_t j = tile->piece[1].column + tile->first + i + 1; j < tile->keys; j++) scores[i * tile->keys + j] = (real)-INFINITY;
  for (int p = 0; tile->lost != NULL && p < PIECES; p += 2) {
    const uint8_t *row = p == 0 ? tile->lost : tile->lost + tile->span->own + tile->span->own_count;
    for (int64_t j = 0; j < tile->piece[p].count; j++)
      for (int64_t i = 0; row[j] && i < tile->count; i++) scores[i * tile->keys + tile->piece[p].column + j] = (real)-INFINITY;
  }
}

/* scores [count, keys] = a [count, d] times the pieces' rows, a with the stride of q. */
static void against_pieces(const Tile *tile, const real *a, bool values, real *scores) {
  const Attention *job = tile->job;
  for (int p = 0; p < PIECES; p++) {
    const Piece *piece = &tile->piece[p];
    if (piece->count)
      matmul_single(false, true, tile->count, piece->count, job->head_width, 1, a, q_stride(job), values ? piece->v : piece->k,
                    kv_stride(job), 0, scores + piece->column, tile->keys);
  }
}

/* out [count, d] (stride of q) = beta out + weights [count, keys] times the pieces' rows. */
static void through_pieces(const Tile *tile, const real *weights, bool values, bool add, real *out) {
  const Attention *job = tile->job;
  for (int p = 0; p < PIECES; p++) {
    const Piece *piece = &tile->piece[p];
    if (!piece->count) continue;
    matmul_single(false, false, tile->count, job->head_width, piece->count, 1, weights + piece->column, tile->keys,
                  values ? piece->v : piece->k, kv_stride(job), add ? 1 : 0, out, q_stride(job));
    add = true;
  }
}

/* The pieces' gradients += weights^T [keys, count] times a [count, d]. */
static void into_pieces(const Tile *tile, const real *weights, const real *a, bool values) {
  const Attention *job = tile->job;
  for (int p = 0; p < PIECES; p++) {
    const Piece *piece = &tile->piece[p];
    real *to = values ? piece->dv : piece->dk;
    if (piece->count && to)
      matmul_single(true, false, piece->count, job->head_width, tile->count, 1, weights + piece->column, tile->keys, a, q_stride(job), 1,
                    to, kv_stride(job));
  }
}

static real *tile_lse(const Tile *tile) {
  const Attention *job = tile->job;
  return job->lse + (tile->sample * job->options.heads + tile->head) * job->queries + tile->query;
}

static void forward_tile(const Tile *tile, real *scores) {
  const Attention *job = tile->job;
  int64_t at = q_at(tile);
  against_pieces(tile, job->q->value + at, false, scores);
  mask_scores(tile, scores);
  real *lse = tile_lse(tile);
  for (int64_t i = 0; i < tile->count; i++) lse[i] = kernels()->softmax(tile->keys, job->scale, scores + i * tile->keys);
  through_pieces(tile, scores, true, false, job->y->value + at);
}

static void backward_tile(const Tile *tile, real *scores, real *dscores) {
  const Attention *job = tile->job;
  int64_t at = q_at(tile);
  const real *dy = job->y->grad + at, *y = job->y->value + at, *lse = tile_lse(tile);
  against_pieces(tile, job->q->value + at, false, scores);
  mask_scores(tile, scores);
  against_pieces(tile, dy, true, dscores);
  for (int64_t i = 0; i < tile->count; i++) {
    int64_t row = i * q_stride(job);
    kernels()->softmax_again(tile->keys, job->scale, lse[i], scores + i * tile->keys);
    real sum = kernels()->dot(job->head_width, dy + row, y + row);
    kernels()->softmax_backward(tile->keys, job->scale, sum, scores + i * tile->keys, dscores + i * tile->keys);
  }
  into_pieces(tile, scores, dy, true);
  into_pieces(tile, dscores, job->q->value + at, false);
  if (job->dq) through_pieces(tile, dscores, false, job->add_q, job->dq + at);
}

static void each_tile_of_head(const Attention *job, int64_t sample, int64_t head, real *scratch, bool backward) {
  int64_t query = 0;
  for (int s = 0; s < job->options.spans; s++) {
    int64_t count = span_queries(&job->options, s);
    for (int64_t first = 0; first < count; first += TILE) {
      Tile tile;
      tile_init(&tile, job, sample, head, s, query, first);
      if (backward)
        backward_tile(&tile, scratch, scratch + TILE * job->most_keys);
      else
        forward_tile(&tile, scratch);
    }
    query += count;
  }
}

static void each_tile(const Attention *job, int64_t begin, int64_t end, int thread, bool backward) {
  real *scratch = job->scratch + thread * 2 * TILE * job->most_keys;
  int64_t kv_heads = job->options.kv_heads, per_kv = job->options.heads / kv_heads;
  for (int64_t item = begin; item < end; item++)
    for (int64_t i = 0; i < per_kv; i++) each_tile_of_head(job, item / kv_heads, item % kv_heads * per_kv + i, scratch, backward);
}

static void forward_body(void *context, int64_t begin, int64_t end, int thread) { each_tile(context, begin, end, thread, false); }
static void backward_body(void *context, int64_t begin, int64_t end, int thread) { each_tile(context, begin, end, thread, true); }

/* While planning: 2 products forward, 5 backward (the scores again, their gradient, and one each for q, k, v). */
static void count_products(const Attention *job, int products) {
  for (int s = 0; s < job->options.spans; s++) {
    const AttentionSpan *span = &job->options.span[s];
    int64_t own = job->options.causal ? job->options.first_query + span_queries(&job->options, s) : span->count;
    int64_t keys = own + (job->options.causal ? span->own : job->remote - span->own_count);
    for (int p = 0; p < products; p++)
      matmul_count_only(job->batch * job->options.heads * span_queries(&job->options, s), keys, job->head_width);
  }
}

static void run_tiles(Tape *tape, Attention *job, ThreadsBody *body, int products) {
  size_t mark = tape_scratch_begin(tape);
  job->scratch = tape_alloc(tape, (size_t)(threads_count() * 2 * TILE * job->most_keys) * sizeof(real));
  if (tape_planning(tape))
    count_products(job, products);
  else if (job->scratch != NULL)
    threads_for(job->batch * job->options.kv_heads, 1, body, job);
  tape_scratch_end(tape, mark);
}

static void attention_forward(Tape *tape, void *record) { run_tiles(tape, record, forward_body, 2); }

static void attention_backward(Tape *tape, void *record) {
  Attention *job = record;
  job->dq = tape_grad(tape, job->q, &job->add_q);
  job->dk = tape_grad_zeroed(tape, job->k);
  job->dv = tape_grad_zeroed(tape, job->v);
  job->dremote_k = tape_grad_zeroed(tape, job->remote_k);
  job->dremote_v = tape_grad_zeroed(tape, job->remote_v);
  run_tiles(tape, job, backward_body, 5);
}

static const OpKind ATTENTION = {"attention", attention_forward, attention_backward};

static bool spans_fit(const AttentionOptions *options, int64_t rows, int64_t remote) {
  int64_t next = 0;
  for (int s = 0; s < options->spans; s++) {
    const AttentionSpan *span = &options->span[s];
    if (span->begin != next || span->count < 1 || span->own < 0 || span->own_count < 0 || span->own + span->own_count > remote)
      return false;
    next += span->count;
  }
  return next == rows;
}

static int64_t count_queries(const AttentionOptions *options) {
  int64_t sum = 0;
  for (int s = 0; s < options->spans; s++) sum += span_queries(options, s);
  return sum;
}

/* Of several spans, `queries` does not say where in a span they stand. */
static bool queries_fit(const AttentionOptions *options, int64_t queries) {
  if (count_queries(options) != queries || options->first_query < 0) return false;
  if (options->queries == NULL || options->spans != 1) return options->first_query == 0 && !(options->causal && options->queries);
  return options->queries[0] > 0 && options->first_query <= options->span[0].count - options->queries[0];
}

static int64_t longest_row(const AttentionOptions *options, int64_t remote) {
  int64_t most = 0;
  for (int s = 0; s < options->spans; s++) most = options->span[s].count > most ? options->span[s].count : most;
  return most + remote;
}

Tensor *op_attention(Tape *tape, Tensor *q, Tensor *k, Tensor *v, Tensor *remote_k, Tensor *remote_v, const AttentionOptions *options) {
  OP_REQUIRE(q, k, v, options);
  OP_CHECK((remote_k == NULL) == (remote_v == NULL), "attention: remote keys and values come together");
  int64_t batch = q->shape[0], queries = q->shape[1], rows = k->shape[1], remote = remote_k ? remote_k->shape[1] : 0;
  int64_t heads = options->heads, kv_heads = options->kv_heads;
  OP_CHECK(q->dims == 3 && k->dims == 3 && heads > 0 && kv_heads > 0 && heads % kv_heads == 0 && q->shape[2] % heads == 0,
           "attention: %lld columns, %lld heads and %lld kv heads do not go together", (long long)tensor_width(q), (long long)heads,
           (long long)kv_heads);
  int64_t head_width = q->shape[2] / heads;
  OP_CHECK(k->shape[0] == batch && k->shape[2] == kv_heads * head_width && tensor_count(v) == tensor_count(k) &&
               (!remote_k ||
                (remote_k->shape[0] == batch && remote_k->shape[2] == k->shape[2] && tensor_count(remote_v) == tensor_count(remote_k))),
           "attention: the shapes of keys and values do not follow from the queries'");
  OP_CHECK(spans_fit(options, rows, remote), "attention: the spans do not cover the %lld rows", (long long)rows);
  OP_CHECK(queries_fit(options, queries), "attention: the spans do not cover the %lld queries", (long long)queries);
  OP_CHECK(options->lost_stride == 0 || options->lost_stride == batch * remote,
           "attention: masks of the spans %lld numbers apart, not %lld", (long long)options->lost_stride, (long long)(batch * remote));
  Tensor *y = op_like(tape, q, q->shape[2]);
  Attention *job = tape_alloc(tape, sizeof *job);
  real *lse = tape_alloc(tape, (size_t)(batch * heads * queries) * sizeof(real));
  if (y == NULL || job == NULL || lse == NULL) return NULL;
  *job = (Attention){.q = q,
                     .k = k,
                     .v = v,
                     .remote_k = remote_k,
                     .remote_v = remote_v,
                     .y = y,
                     .lse = lse,
                     .options = *options,
                     .batch = batch,
                     .queries = queries,
                     .rows = rows,
                     .remote = remote,
                     .head_width = head_width,
                     .most_keys = longest_row(options, remote),
                     .scale = (real)(1 / sqrt((double)head_width))};
  y->needs_grad = tape_recording(tape) && (op_wants(q) || op_wants(k) || op_wants(v) || op_wants(remote_k) || op_wants(remote_v));
  tape_apply(tape, &ATTENTION, job, y);
  return y;
}
