/* Mixed-precision attention: see attention.h. Scores exist tile by tile: some rows of q of one head by some of the keys that they see. A
 * running softmax joins the tiles of a row (Milakov and Gimelshein, 2018; Dao et al., 2022): what was summed so far is scaled whenever a
 * larger score turns up. Kept for backward: q, k, v, the output and each row's log-sum-exp, from which a tile's probabilities follow.
 *
 *                  own rows    remote rows before and after
 *   a tile of one span:     [ local | before ..... | after ... ]     cut into blocks of columns, one product each a piece
 *
 *   several small spans:    [ span 0 | all remote rows          ]     own rows stacked, the remote ones in one product:
 *                           [ span 1 |  own copies masked       ]     fewer and larger products than span by span
 *
 * Local columns come first, so that a row's first block always holds a key that it sees. Keys after a causal tile's last query are not
 * computed. Work is shared out in a fixed order: forward by (sample, head, tile), backward by (sample, kv head), whose gradients of k and v
 * belong to one thread.
 *
 * Inputs in bf16 give an output and gradients in bf16. Scores, softmax and all sums are in full; probabilities and the gradients of scores
 * are rounded for their products, outputs and gradients once, when they are complete: those of k and v add up in scratch of one (sample, kv
 * head). */
#include "autograd/ops/op_common.h"
#include "base/number.h"

enum {
  TILE_ROWS = 128,
  BLOCK_COLUMNS = 256,
  BLOCK_MAX = BLOCK_COLUMNS + BLOCK_COLUMNS / 2, /* a rest of up to half a block is done with the one before it */
  CAUSAL_STEP = 32,                              /* keys on the diagonal that share a product: the later, the fewer queries see them */
  STACKED_MAX = 128,                             /* own rows of a span that may share a tile with others */
  KEY_COST = 8,
  PRODUCT_COST = 80, /* overhead of each key of a product, and of each product, counted in scores */
  MAX_PARTS = TILE_ROWS + 2
};

/* Rows of q that are worked on together: a part of one span's, or all of several spans'. The same for every sample and head. */
typedef struct Tile {
  int span, spans;
  int64_t query, count; /* rows of q */
  int64_t first;        /* of one span: the first of them, counted in the span */
} Tile;

/* Of full width it can always be added to; in bf16 `add` says whether it holds something. */
typedef struct Gradient {
  Numbers array;
  bool add;
} Gradient;

typedef struct Attention {
  Tensor *q, *k, *v, *remote_k, *remote_v, *y;
  real *lse; /* [B, heads, Q] */
  AttentionOptions options;
  int64_t batch, queries, rows, remote, head_width; /* B, Q, S, R, d */
  real scale;
  Tile *tile;
  int64_t tiles;
  int64_t score_count; /* of the largest block */
  int64_t repeats;     /* while planning: how often each product is to be counted */
  bool narrow;         /* q, k, v, y and their gradients are in bf16 */
  real *scratch;       /* [threads, scratch_size] */
  int64_t scratch_size;
  Gradient dq, dk, dv, dremote_k, dremote_v;
} Attention;

enum { ROW_SUMS = 3 }; /* numbers of each row of a tile, of which forward and backward use as many */

/* Keys that lie together, rows [row, row + count) of k and v, of this process or remote, as columns of some rows of a block. */
typedef struct Part {
  bool remote;
  int64_t row, count, column;
  int64_t query, queries; /* rows of the tile */
  bool first;             /* of these rows, in the whole tile */
} Part;

/* One tile of one sample and head, and a block of its columns. */
typedef struct Work {
  const Attention *job;
  const Tile *tile;
  int64_t sample, head, kv_head;
  int piece;                /* which part of the columns comes next: local, remote before, remote after */
  int64_t done;             /* rows of that piece that were in earlier blocks */
  int64_t columns, stride;  /* of this block; stride: an odd number of cache lines, so that a column spreads over the cache's sets */
  int64_t local, local_row; /* its first columns are own rows, from this one of the span on */
  int parts;
  Part *part;             /* [MAX_PARTS] */
  real *scores, *dscores; /* [count, stride] */
  real *row_sums;         /* [ROW_SUMS, TILE_ROWS] */
  /* Only in bf16: */
  uint16_t *rounded, *drounded; /* [count, stride] scores as operands */
  real *out;                    /* [TILE_ROWS, d] y, or dq */
  real *stage;                  /* [2, d] */
  real *kv_sums;                /* [2, S + R, d] gradients of keys, and of values */
} Work;

static int64_t q_stride(const Attention *job) { return job->options.heads * job->head_width; }
static int64_t kv_stride(const Attention *job) { return job->options.kv_heads * job->head_width; }
static int64_t span_queries(const AttentionOptions *options, int s) {
  return options->queries ? options->queries[s] : options->span[s].count;
}

/* ---- tiles */

/* What some spans cost when they are done one by one, or as one tile. */
static double cost_alone(const Attention *job, int s) {
  const AttentionSpan *span = &job->options.span[s];
  const bool causal = job->options.causal;
  const int64_t pieces = 1 + (span->own > 0) + (!causal && span->own + span->own_count < job->remote);
  const int64_t keys = span->count + (causal ? span->own : job->remote - span->own_count);
  return (double)((span_queries(&job->options, s) + KEY_COST) * keys + pieces * PRODUCT_COST);
}

static double cost_together(const Attention *job, int first, int end) {
  int64_t queries = 0, local = 0, remote = job->options.causal ? job->options.span[end - 1].own : job->remote;
  for (int s = first; s < end; s++) {
    const int64_t own = span_queries(&job->options, s);
    queries += own;
    if (own > 0) local += (own + KEY_COST) * job->options.span[s].count + PRODUCT_COST;
  }
  return (double)((queries + KEY_COST) * remote + local + PRODUCT_COST);
}

/* The span after the last one that goes well into one tile with span `first`. */
static int last_together(const Attention *job, int first) {
  int64_t queries = 0;
  double alone = 0;
  int end = first + 1;
  for (int s = first; s < job->options.spans; s++) {
    queries += span_queries(&job->options, s);
    alone += span_queries(&job->options, s) > 0 ? cost_alone(job, s) : 0;
    if (queries > TILE_ROWS || job->options.span[s].count > STACKED_MAX) break;
    if (cost_together(job, first, s + 1) <= alone) end = s + 1;
  }
  return end;
}

/* How many tiles there are; writes them when `tile` is not NULL. The rows of a span are cut evenly, in multiples of 16. */
static int64_t make_tiles(const Attention *job, Tile *tile) {
  int64_t tiles = 0, query = 0;
  for (int s = 0, end; s < job->options.spans; s = end) {
    int64_t count = 0;
    end = last_together(job, s);
    for (int i = s; i < end; i++) count += span_queries(&job->options, i);
    const int64_t cuts = (count + TILE_ROWS - 1) / TILE_ROWS, step = cuts ? ((count + cuts - 1) / cuts + 15) / 16 * 16 : 0;
    for (int64_t at = 0; at < count; at += step, tiles++)
      if (tile) tile[tiles] = (Tile){s, end - s, query + at, number_lesser(step, count - at), job->options.first_query + at};
    query += count;
  }
  return tiles;
}

/* ---- columns */

/* Rows of piece 0 (own ones; of several spans the longest), 1 and 2 (remote ones before and after the own; of several spans all in 1). */
static int64_t piece_rows(const Attention *job, const Tile *tile, int piece) {
  const AttentionSpan *span = &job->options.span[tile->span], *last = span + tile->spans - 1;
  const bool causal = job->options.causal;
  int64_t longest = 0;
  for (int s = 0; piece == 0 && s < tile->spans; s++) {
    const int64_t rows = causal && tile->spans == 1 ? tile->first + tile->count : span[s].count;
    longest = rows > longest ? rows : longest;
  }
  if (piece == 0) return longest;
  if (tile->spans > 1) return piece == 2 ? 0 : causal ? last->own : job->remote;
  if (piece == 1) return job->remote ? span->own : 0;
  return causal ? 0 : job->remote - span->own - span->own_count;
}

static void add_part(Work *work, Part part) {
  if (part.count > 0 && part.queries > 0) work->part[work->parts++] = part;
}

/* Own rows [row, row + count) of the span as the first columns, for queries [query, query + queries) of the tile, the first of which
 * is row `first` of the span; keys on the diagonal in steps, each without the queries that come before it. */
static void add_local(Work *work, const AttentionSpan *span, int64_t row, int64_t count, int64_t query, int64_t queries, int64_t first) {
  int64_t done = 0;
  while (done < count) {
    const int64_t hidden = work->job->options.causal && row + done > first ? row + done - first : 0, level = first - (row + done);
    int64_t step = count - done;
    if (work->job->options.causal) step = number_lesser(step, level >= CAUSAL_STEP ? level : CAUSAL_STEP);
    add_part(work, (Part){.row = span->begin + row + done,
                          .count = step,
                          .column = done,
                          .query = query + hidden,
                          .queries = queries - hidden,
                          .first = row + done == 0});
    done += step;
  }
}

/* The next `count` columns of a piece. Own rows of several spans lie beside the queries of their span, all in the same columns. */
static void add_piece(Work *work, int64_t count) {
  const Tile *tile = work->tile;
  const AttentionSpan *span = &work->job->options.span[tile->span];
  const int64_t start = work->piece == 1 ? 0 : span->own + span->own_count;
  int64_t query = 0;
  if (work->piece > 0)
    add_part(work, (Part){.remote = true, .row = start + work->done, .count = count, .column = work->columns, .queries = tile->count});
  else if (tile->spans == 1)
    add_local(work, span, work->done, count, 0, tile->count, tile->first);
  for (int s = 0; work->piece == 0 && tile->spans > 1 && s < tile->spans; s++) {
    const int64_t queries = span_queries(&work->job->options, tile->span + s);
    if (queries > 0) add_local(work, &span[s], 0, span[s].count, query, queries, 0);
    query += queries;
  }
}

/* The next block of columns; false: there are none left. */
static bool next_block(Work *work) {
  const Attention *job = work->job;
  const Tile *tile = work->tile;
  int64_t left = -work->done;
  for (int piece = work->piece; piece < 3; piece++) left += piece_rows(job, tile, piece);
  const int64_t room = left <= BLOCK_MAX ? left : BLOCK_COLUMNS;
  work->columns = work->local = work->parts = 0;
  work->local_row = work->done;
  while (work->columns < room) {
    const int64_t rows = piece_rows(job, tile, work->piece), count = number_lesser(rows - work->done, room - work->columns);
    add_piece(work, count);
    if (work->piece == 0) work->local = count;
    work->columns += count, work->done += count;
    if (work->done == rows) work->piece++, work->done = 0;
  }
  work->stride = (work->columns + 15) / 16 * 16 | 16;
  return work->columns > 0;
}

/* ---- masks: minus infinity where a query may not look; and the bias, less of a mask */

static void mask_columns(const Work *work, int64_t row, int64_t from, int64_t to) {
  for (int64_t j = from; j < to; j++) work->scores[row * work->stride + j] = (real)-INFINITY;
}

/* Later rows of the own span, and columns beyond it where spans are stacked. */
static void mask_local(const Work *work) {
  const AttentionOptions *options = &work->job->options;
  const bool stacked = work->tile->spans > 1;
  int64_t query = 0;
  for (int s = work->tile->span; s < work->tile->span + work->tile->spans; s++) {
    const int64_t queries = stacked ? span_queries(options, s) : work->tile->count, first = stacked ? 0 : work->tile->first;
    for (int64_t i = 0; i < queries; i++) {
      const int64_t seen = (options->causal ? first + i + 1 : options->span[s].count) - work->local_row;
      if (seen < work->local) mask_columns(work, query + i, seen > 0 ? seen : 0, work->local);
    }
    query += queries;
  }
}

/* Before the scores are scaled. */
static void bias_columns(const Work *work, int64_t row, const Part *part) {
  const real bias = work->job->options.first_bias / work->job->scale;
  for (int64_t j = part->column; j < part->column + part->count; j++) work->scores[row * work->stride + j] += bias;
}

/* The own copies where the rows of several spans are one piece, what comes after them (causal), and rows that never arrived; and the bias
 * of first rows. */
static void mask_remote(const Work *work, const Part *part) {
  const AttentionOptions *options = &work->job->options;
  int64_t query = 0;
  for (int s = work->tile->span; s < work->tile->span + work->tile->spans; s++) {
    const AttentionSpan *span = &options->span[s];
    const int64_t queries = work->tile->spans > 1 ? span_queries(options, s) : part->queries, end = part->row + part->count;
    const int64_t from = span->own > part->row ? number_lesser(span->own, end) : part->row;
    const int64_t to = options->causal ? end : number_lesser(span->own + span->own_count, end);
    const int64_t first = work->tile->spans > 1 ? 0 : work->tile->first;
    const uint8_t *lost = options->lost ? options->lost + s * options->lost_stride + work->sample * work->job->remote + part->row : NULL;
    if (first == 0 && queries > 0 && options->first_bias != 0) bias_columns(work, query, part);
    for (int64_t i = query; i < query + queries; i++) {
      if (work->tile->spans > 1) mask_columns(work, i, part->column + from - part->row, part->column + to - part->row);
      for (int64_t j = 0; lost && j < part->count; j++)
        if (lost[j]) work->scores[i * work->stride + part->column + j] = (real)-INFINITY;
    }
    query += queries;
  }
}

static void mask_block(const Work *work) {
  if (work->local > 0) mask_local(work);
  for (int p = 0; p < work->parts; p++)
    if (work->part[p].remote) mask_remote(work, &work->part[p]);
}

/* ---- products of a block, one for each part; while planning they are counted, once for all samples and heads */

static void multiply(const Work *work, int count, const MatmulSmall *product) {
  const int64_t repeats = work->job->repeats;
  if (repeats == 0) matmul_small(count, product);
  for (int i = 0; repeats > 0 && i < count; i++) matmul_count_only(repeats * product[i].m, product[i].n, product[i].k);
}

static int64_t q_at(const Work *work) {
  const Attention *job = work->job;
  return (work->sample * job->queries + work->tile->query) * q_stride(job) + work->head * job->head_width;
}

static int64_t kv_at(const Work *work, const Part *part) {
  const Attention *job = work->job;
  return (work->sample * (part->remote ? job->remote : job->rows) + part->row) * kv_stride(job) + work->kv_head * job->head_width;
}

static Numbers keys_or_values(const Work *work, const Part *part, bool values) {
  const Attention *job = work->job;
  const Tensor *tensor = values ? part->remote ? job->remote_v : job->v : part->remote ? job->remote_k : job->k;
  return numbers_from(tensor_numbers(tensor), kv_at(work, part));
}

/* scores [count, columns] = a [count, d] times the keys or values, a with the stride of q. */
static void against_parts(const Work *work, Numbers a, bool values, real *scores) {
  const int64_t d = work->job->head_width, lda = q_stride(work->job), ldb = kv_stride(work->job);
  MatmulSmall product[MAX_PARTS];
  for (int i = 0; i < work->parts; i++) {
    const Part *part = &work->part[i];
    product[i] = (MatmulSmall){.transpose_b = true, .m = part->queries, .n = part->count, .k = d, .lda = lda, .ldb = ldb};
    product[i].a = numbers_from(a, part->query * lda), product[i].b = keys_or_values(work, part, values);
    product[i].c = scores + part->query * work->stride + part->column, product[i].ldc = work->stride;
  }
  multiply(work, work->parts, product);
}

/* out [count, d], rows `ldc` apart, += weights [count, columns] times the keys or values; a row's first part overwrites it unless `add`. */
static void through_parts(const Work *work, Numbers weights, bool values, bool add, real *out, int64_t ldc) {
  const int64_t d = work->job->head_width, ldb = kv_stride(work->job);
  MatmulSmall product[MAX_PARTS];
  for (int i = 0; i < work->parts; i++) {
    const Part *part = &work->part[i];
    product[i] = (MatmulSmall){.add = add || !part->first, .m = part->queries, .n = d, .k = part->count, .ldb = ldb, .ldc = ldc};
    product[i].a = numbers_from(weights, part->query * work->stride + part->column), product[i].lda = work->stride;
    product[i].b = keys_or_values(work, part, values), product[i].c = out + part->query * ldc;
  }
  multiply(work, work->parts, product);
}

/* Where a part's gradients add up, rows *stride apart; NULL: not wanted. */
static real *gradient_sums(const Work *work, const Part *part, bool values, int64_t *stride) {
  const Attention *job = work->job;
  const Gradient *to = values ? part->remote ? &job->dremote_v : &job->dv : part->remote ? &job->dremote_k : &job->dk;
  if (!numbers_exist(to->array)) return NULL;
  *stride = job->narrow ? job->head_width : kv_stride(job);
  if (!job->narrow) return to->array.wide + kv_at(work, part);
  return work->kv_sums + ((values ? job->rows + job->remote : 0) + (part->remote ? job->rows : 0) + part->row) * job->head_width;
}

/* The gradients of keys or values += weights^T [columns, count] times a [count, d]. */
static void into_parts(const Work *work, Numbers weights, Numbers a, bool values) {
  const int64_t d = work->job->head_width, ldb = q_stride(work->job);
  MatmulSmall product[MAX_PARTS];
  int count = 0;
  for (int i = 0; i < work->parts; i++) {
    const Part *part = &work->part[i];
    int64_t ldc = 0;
    real *to = gradient_sums(work, part, values, &ldc);
    if (to == NULL) continue;
    MatmulSmall *p = &product[count++];
    *p = (MatmulSmall){.transpose_a = true, .add = true, .m = part->count, .n = d, .k = part->queries, .ldb = ldb, .c = to, .ldc = ldc};
    p->a = numbers_from(weights, part->query * work->stride + part->column), p->lda = work->stride;
    p->b = numbers_from(a, part->query * ldb);
  }
  multiply(work, count, product);
}

/* ---- bf16 */

/* Scores as an operand of a product: rounded, where the inputs are. */
static Numbers operand(const Work *work, real *scores, uint16_t *rounded) {
  if (!work->job->narrow) return (Numbers){.wide = scores};
  for (int64_t i = 0; work->job->repeats == 0 && i < work->tile->count; i++)
    kernels()->narrow(work->columns, scores + i * work->stride, rounded + i * work->stride);
  return (Numbers){.narrow = rounded};
}

/* Rows of sums [rows, d] become, or are added to, rows of bf16 `stride` apart from number `at` on. */
static void write_rows(const Attention *job, Gradient to, int64_t at, int64_t stride, int64_t rows, real *sums, real *stage) {
  const int64_t d = job->head_width;
  for (int64_t i = 0; numbers_exist(to.array) && i < rows; i++, sums += d, at += stride) {
    if (to.add) kernels()->add(d, numbers_read(to.array, at, d, stage), sums);
    numbers_written(to.array, at, d, sums);
  }
}

static void write_kv_gradients(const Work *work) {
  const Attention *job = work->job;
  const int64_t d = job->head_width, rows = job->rows, remote = job->remote, stride = kv_stride(job);
  const int64_t local_at = work->sample * rows * stride + work->kv_head * d, remote_at = work->sample * remote * stride + work->kv_head * d;
  real *keys = work->kv_sums, *values = keys + (rows + remote) * d;
  write_rows(job, job->dk, local_at, stride, rows, keys, work->stage);
  write_rows(job, job->dv, local_at, stride, rows, values, work->stage);
  write_rows(job, job->dremote_k, remote_at, stride, remote, keys + rows * d, work->stage);
  write_rows(job, job->dremote_v, remote_at, stride, remote, values + rows * d, work->stage);
}

/* ---- forward and backward of a tile */

static real *tile_lse(const Work *work) {
  const Attention *job = work->job;
  return job->lse + (work->sample * job->options.heads + work->head) * job->queries + work->tile->query;
}

static void forward_tile(Work *work) {
  const Attention *job = work->job;
  const bool planning = job->repeats > 0;
  const Numbers y = tensor_numbers(job->y);
  const int64_t at = q_at(work), count = work->tile->count, d = job->head_width, stride = job->narrow ? d : q_stride(job);
  real *out = job->narrow ? work->out : y.wide + at, *max = work->row_sums, *sum = max + TILE_ROWS, *factor = sum + TILE_ROWS;
  for (int64_t i = 0; !planning && i < count; i++) max[i] = (real)-INFINITY, sum[i] = 0;
  for (bool first = true; next_block(work); first = false) {
    against_parts(work, numbers_from(tensor_numbers(job->q), at), false, work->scores);
    if (!planning) {
      mask_block(work);
      kernels()->softmax_tile(count, work->columns, work->stride, job->scale, work->scores, max, sum, factor);
      if (!first) kernels()->scale_rows(count, d, stride, factor, out);
    }
    through_parts(work, operand(work, work->scores, work->rounded), true, false, out, stride);
  }
  if (planning) return;
  real *lse = tile_lse(work);
  for (int64_t i = 0; i < count; i++) {
    lse[i] = max[i] + (real)log((double)sum[i]);
    factor[i] = 1 / sum[i];
  }
  kernels()->scale_rows(count, d, stride, factor, out);
  if (job->narrow) write_rows(job, (Gradient){y, false}, at, q_stride(job), count, out, work->stage);
}

static void backward_tile(Work *work) {
  const Attention *job = work->job;
  const bool planning = job->repeats > 0;
  const int64_t at = q_at(work), count = work->tile->count, d = job->head_width;
  const Numbers q = numbers_from(tensor_numbers(job->q), at), dy = numbers_from(tensor_grad(job->y), at);
  const Numbers y = numbers_from(tensor_numbers(job->y), at);
  real *dot = work->row_sums, *dq = job->narrow ? work->out : numbers_from(job->dq.array, at).wide;
  for (int64_t i = 0; !planning && i < count; i++) {
    const int64_t row = i * q_stride(job);
    dot[i] = kernels()->dot(d, numbers_read(dy, row, d, work->stage), numbers_read(y, row, d, work->stage + d));
  }
  while (next_block(work)) {
    against_parts(work, q, false, work->scores);
    against_parts(work, dy, true, work->dscores);
    if (!planning) {
      mask_block(work);
      kernels()->softmax_tile_backward(count, work->columns, work->stride, job->scale, tile_lse(work), dot, work->scores, work->dscores);
    }
    const Numbers dscores = operand(work, work->dscores, work->drounded);
    into_parts(work, operand(work, work->scores, work->rounded), dy, true);
    into_parts(work, dscores, q, false);
    if (!numbers_exist(job->dq.array)) continue;
    through_parts(work, dscores, false, !job->narrow && job->dq.add, dq, job->narrow ? d : q_stride(job));
  }
  if (!planning && job->narrow) write_rows(job, job->dq, at, q_stride(job), count, dq, work->stage);
}

static void run_tile(Work *work, int64_t head, int64_t index, bool backward) {
  const Attention *job = work->job;
  Part parts[MAX_PARTS];
  work->tile = &job->tile[index], work->part = parts;
  work->head = head, work->kv_head = head / (job->options.heads / job->options.kv_heads);
  work->piece = 0, work->done = 0;
  if (backward)
    backward_tile(work);
  else
    forward_tile(work);
}

/* What a thread works in: its share of the scratch, as scratch_size counts it. */
static Work thread_work(const Attention *job, int thread) {
  real *at = job->scratch + thread * job->scratch_size;
  Work work = {.job = job, .row_sums = at};
  work.scores = at += ROW_SUMS * TILE_ROWS;
  work.dscores = work.stage = at += job->score_count;
  if (!job->narrow) return work;
  work.rounded = (uint16_t *)(at += job->score_count), work.drounded = work.rounded + job->score_count;
  work.out = at += job->score_count;
  work.stage = at += TILE_ROWS * job->head_width;
  work.kv_sums = at + 2 * job->head_width;
  return work;
}

static bool sums_kv_gradients(const Attention *job) {
  return job->narrow && (numbers_exist(job->dk.array) || numbers_exist(job->dv.array) || numbers_exist(job->dremote_k.array) ||
                         numbers_exist(job->dremote_v.array));
}

static int64_t scratch_size(const Attention *job, bool backward) {
  int64_t size = ROW_SUMS * TILE_ROWS + 2 * job->score_count;
  if (job->narrow) size += job->score_count + (TILE_ROWS + 2) * job->head_width;
  if (backward && sums_kv_gradients(job)) size += 2 * (job->rows + job->remote) * job->head_width;
  return (size + 15) / 16 * 16;
}

static void forward_body(void *context, int64_t begin, int64_t end, int thread) {
  const Attention *job = context;
  Work work = thread_work(job, thread);
  for (int64_t item = begin; item < end; item++) {
    work.sample = item / job->tiles / job->options.heads;
    run_tile(&work, item / job->tiles % job->options.heads, item % job->tiles, false);
  }
}

static void backward_body(void *context, int64_t begin, int64_t end, int thread) {
  const Attention *job = context;
  const int64_t kv_heads = job->options.kv_heads, per_kv = job->options.heads / kv_heads;
  const bool sums = sums_kv_gradients(job);
  Work work = thread_work(job, thread);
  for (int64_t item = begin; item < end; item++) {
    work.sample = item / kv_heads;
    if (sums) memset(work.kv_sums, 0, (size_t)(2 * (job->rows + job->remote) * job->head_width) * sizeof(real));
    for (int64_t i = 0; i < per_kv * job->tiles; i++) run_tile(&work, item % kv_heads * per_kv + i / job->tiles, i % job->tiles, true);
    if (sums) write_kv_gradients(&work);
  }
}

static void run_tiles(Tape *tape, Attention *job, bool backward) {
  const size_t mark = tape_scratch_begin(tape);
  const int64_t pairs = job->batch * (backward ? job->options.kv_heads : job->options.heads);
  job->scratch_size = scratch_size(job, backward);
  job->scratch = tape_alloc(tape, (size_t)(threads_count() * job->scratch_size) * sizeof(real));
  job->repeats = tape_planning(tape) ? job->batch * job->options.heads : 0;
  if (job->scratch != NULL && job->repeats == 0)
    threads_for(backward ? pairs : pairs * job->tiles, 1, backward ? backward_body : forward_body, job);
  Work work = {.job = job};
  for (int64_t i = 0; job->repeats > 0 && i < job->tiles; i++) run_tile(&work, 0, i, backward);
  tape_scratch_end(tape, mark);
}

static void attention_forward(Tape *tape, void *record) { run_tiles(tape, record, false); }

static Gradient gradient_of(Tape *tape, Tensor *input) {
  Gradient gradient = {.add = true};
  if (input != NULL && input->narrow)
    gradient.array = tape_grad_numbers(tape, input, &gradient.add);
  else
    gradient.array.wide = tape_grad_zeroed(tape, input);
  return gradient;
}

/* One tensor may be several of the inputs. In bf16 gradients are asked for in the order in which they are written, those of queries first;
 * in full width those of queries come last, which must not overwrite what the others have zeroed. */
static void attention_backward(Tape *tape, void *record) {
  Attention *job = record;
  if (job->narrow) job->dq.array = tape_grad_numbers(tape, job->q, &job->dq.add);
  job->dk = gradient_of(tape, job->k), job->dv = gradient_of(tape, job->v);
  job->dremote_k = gradient_of(tape, job->remote_k), job->dremote_v = gradient_of(tape, job->remote_v);
  if (!job->narrow) job->dq.array = tape_grad_numbers(tape, job->q, &job->dq.add);
  run_tiles(tape, job, true);
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

/* Of several spans, `queries` does not say where in a span they stand. */
static bool queries_fit(const AttentionOptions *options, int64_t queries) {
  int64_t sum = 0;
  for (int s = 0; s < options->spans; s++) sum += span_queries(options, s);
  if (sum != queries || options->first_query < 0) return false;
  if (options->queries == NULL || options->spans != 1) return options->first_query == 0 && !(options->causal && options->queries);
  return options->queries[0] > 0 && options->first_query <= options->span[0].count - options->queries[0];
}

/* The tiles, and the room that the largest block of scores takes. */
static bool plan_tiles(Tape *tape, Attention *job) {
  job->tiles = make_tiles(job, NULL);
  job->tile = tape_alloc(tape, (size_t)job->tiles * sizeof *job->tile);
  if (job->tile == NULL) return false;
  make_tiles(job, job->tile);
  Part parts[MAX_PARTS];
  for (int64_t i = 0; i < job->tiles; i++)
    for (Work work = {.job = job, .tile = &job->tile[i], .part = parts}; next_block(&work);) {
      const int64_t scores = job->tile[i].count * work.stride;
      job->score_count = scores > job->score_count ? scores : job->score_count;
    }
  return true;
}

static bool is_bf16(const Tensor *tensor) { return tensor->narrow != NULL && tensor->narrow_kind == NARROW_BF16; }

Tensor *op_attention(Tape *tape, Tensor *q, Tensor *k, Tensor *v, Tensor *remote_k, Tensor *remote_v, const AttentionOptions *options) {
  OP_REQUIRE(q, k, v, options);
  OP_CHECK((remote_k == NULL) == (remote_v == NULL), "attention: remote keys and values come together");
  const bool narrow = is_bf16(q) && is_bf16(k) && is_bf16(v) && (!remote_k || (is_bf16(remote_k) && is_bf16(remote_v)));
  if (!narrow) {
    q = op_widen(tape, q), k = op_widen(tape, k), v = op_widen(tape, v);
    if (remote_k != NULL) remote_k = op_widen(tape, remote_k), remote_v = op_widen(tape, remote_v);
    if (tape_status(tape) != STATUS_OK) return NULL;
  }
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
  OP_CHECK(isfinite(options->first_bias) && !(options->causal && options->first_bias != 0),
           "attention: a bias of first rows that is finite, and none with a causal mask");
  OP_CHECK(options->lost_stride == 0 || options->lost_stride == batch * remote,
           "attention: masks of the spans %lld numbers apart, not %lld", (long long)options->lost_stride, (long long)(batch * remote));
  Tensor *y = tape_tensor_like(tape, q, q->dims, q->shape);
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
                     .narrow = narrow,
                     .scale = (real)(1 / sqrt((double)head_width))};
  if (!plan_tiles(tape, job)) return NULL;
  y->needs_grad = tape_recording(tape) && (op_wants(q) || op_wants(k) || op_wants(v) || op_wants(remote_k) || op_wants(remote_v));
  return tape_apply(tape, &ATTENTION, job, y);
}
