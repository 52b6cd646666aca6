/* Attention of new tokens: see decode_attention.h. The scores of a row and head lie in one piece, [remote | own], so that one softmax
 * covers both. Rows of a sequence are taken UNIT at a time, which meet each key while it is in the cache.
 *
 * Without remote rows one pass over the pool does it all, by kv head and unit. With them there are more: by kv head, what each head needs
 * of its queries, for all rows in one product, and of each unit the scores of rows in full; by unit and remote tile, their scores; by unit
 * and kv head, softmax and the sum of rows in full; by unit and columns, the weighted sum of remote rows; by kv head, its projection, for
 * all rows in one product. A remote row exists only while its tile is worked on: looking it up twice costs less than writing and reading
 * it.
 *
 * Products of a tile of keys and few queries are too small for BLAS: measured for 32 rows of 64 numbers, one query: dots 118 ns,
 * kernels()->product 206, BLAS 197; sums 91 by product, BLAS 180; four queries 264 and 111 by product, BLAS 568 and 389. */
#include "autograd/ops/decode_attention.h"
#include "autograd/ops/op_common.h"
#include "base/number.h"

enum {
  TILE = 64, /* rows of keys: the tile stays in the second-level cache */
  UNIT = 8   /* queries */
};

typedef struct Unit {
  const DecodeSequence *of;
  int64_t first, rows; /* of q */
  int64_t own, keys;   /* rows in full that the last one sees; remote + own */
  int64_t tile;        /* number of its first remote tile, of all units' */
  real *scores;        /* [rows, H, keys] with remote rows, else NULL */
} Unit;

typedef struct Decode {
  Tensor *q, *y;
  DecodeBatch options;
  int64_t heads, kv_heads, per_kv, head_width, kv_width, in; /* H, KV, H/KV, d, KV d, D (site x) */
  int64_t rows;                                              /* of q */
  int64_t units, tiles, largest;                             /* remote tiles of all units; keys of the largest unit without remote rows */
  int64_t score_count;                                       /* of all units with remote rows */
  int64_t remote;                                            /* maximum of a sequence */
  Unit *unit;                                                /* [units] */
  real *scores;                                              /* of units with remote rows; of each thread [UNIT, H/KV, largest] */
  real *offset;                                              /* [rows, H]: q . bk, the same for all remote rows */
  real *query;   /* [rows, H, D] Wk^T q: what scores of remote rows are a product with (site x without rope) */
  real *tile;    /* [threads, tile_numbers]: remote rows of TILE, and behind them projected keys; or a tile in full of one of 16 bits */
  real *sum;     /* [rows, H, D]: weighted sums of remote rows (site x) */
  real *scratch; /* of matmul_narrow */
  int64_t tile_numbers;
} Decode;

/* Keys and values of remote rows are projections of what the codes say: at site x, and at site kv of rows in another basis. */
static bool is_projected(const Decode *job) { return job->remote > 0 && job->options.key.weight != NULL; }
static bool is_site_x(const DecodeBatch *options) { return options->x.codebook != NULL || options->x.narrow != NULL; }
/* Remote keys are computed, tile by tile; otherwise the key projection was applied to the query (`query`). */
static bool projects_keys(const Decode *job) { return is_projected(job) && job->options.rope != NULL; }
static real *tile_of(const Decode *job, int thread) { return job->tile + thread * job->tile_numbers; }
static int64_t tiles_of(int64_t remote) { return (remote + TILE - 1) / TILE; }
static const real *queries_of(const Decode *job, const Unit *unit, int64_t head) {
  return job->q->value + (unit->first * job->heads + head) * job->head_width;
}
static real *outputs_of(const Decode *job, const Unit *unit, int64_t head) {
  return job->y->value + (unit->first * job->heads + head) * job->head_width;
}

/* C [m, n] = A [m, k] op(W of outputs [first, first + count) of the part), op as for x W^T (forward) or for the way back; inside a body. */
static void multiply(const Decode *job, const DecodeProjection *side, bool forward, int64_t m, int64_t first, int64_t count, const real *a,
                     int64_t lda, bool add, real *c, int64_t ldc) {
  const Tensor *weight = side->weight;
  const int64_t stride = tensor_width(weight), output = side->part.first + first, start = side->part.transposed ? output : output * stride;
  const bool transpose = forward != side->part.transposed;
  const int64_t n = forward ? count : job->in, k = forward ? job->in : count;
  if (weight->lowbit != NULL)
    matmul_lowbit_widened(weight->lowbit, !forward, output, count, m, a, lda, add, c, ldc, job->scratch);
  else if (weight->narrow_kind != NARROW_NONE)
    matmul_narrow(transpose, m, n, k, a, lda, weight->narrow_kind, weight->narrow + start, stride, add, c, ldc, job->scratch);
  else
    matmul_single(false, transpose, m, n, k, 1, a, lda, weight->value + start, stride, add ? 1 : 0, c, ldc);
}

/* The same for all rows of q and the heads of a group: A [rows, H, a_width] and C [rows, H, c_width] from this group's first head on. One
 * product for one row, else one for each head. */
static void multiply_heads(const Decode *job, const DecodeProjection *side, bool forward, int64_t kv, const real *a, int64_t a_width,
                           bool add, real *c, int64_t c_width) {
  const int64_t d = job->head_width, head = kv * job->per_kv;
  a += head * a_width, c += head * c_width;
  if (job->rows == 1) {
    multiply(job, side, forward, job->per_kv, kv * d, d, a, a_width, add, c, c_width);
    return;
  }
  for (int64_t i = 0; i < job->per_kv; i++)
    multiply(job, side, forward, job->rows, kv * d, d, a + i * a_width, job->heads * a_width, add, c + i * c_width, job->heads * c_width);
}

static const real *bias_of(const DecodeProjection *side) { return side->bias ? side->bias->value + side->part.first : NULL; }

/* ---- rows in full, by unit and kv head */

/* Scores of a group's heads: of row r and head i at at + r row_step + i keys. */
typedef struct Scores {
  real *at;
  int64_t row_step;
} Scores;

static Scores scores_of(const Decode *job, const Unit *unit, int64_t kv, int thread) {
  if (unit->scores) return (Scores){unit->scores + kv * job->per_kv * unit->keys, job->heads * unit->keys};
  return (Scores){job->scores + job->score_count + thread * UNIT * job->per_kv * job->largest, job->per_kv * unit->keys};
}

/* Rows `stride` numbers apart; one of both. */
typedef struct Tile {
  const real *wide;
  const uint16_t *narrow;
  int64_t count, stride;
} Tile;

/* Rows of a kv head from `at` on, as many as are in one page and fit a tile. Of 16 bits they are widened once for all queries that meet
 * them, for a single one by its products, in registers. */
static Tile own_tile(const Decode *job, const Unit *unit, bool values, int64_t kv, int64_t at, int thread) {
  const DecodeBatch *options = &job->options;
  const int64_t page = at / options->page, place = at % options->page, start = place * options->row_step + kv * options->head_step;
  const int64_t count = number_lesser(TILE, number_lesser(options->page - place, unit->own - at)), d = job->head_width;
  const uint8_t *base = values ? unit->of->value_page[page] + unit->of->values : unit->of->key_page[page] + unit->of->keys;
  if (options->kind == NARROW_NONE)
    return (Tile){.wide = (const real *)(const void *)base + start, .count = count, .stride = options->row_step};
  const Tile narrow = {.narrow = (const uint16_t *)(const void *)base + start, .count = count, .stride = options->row_step};
  if (unit->rows == 1 && job->per_kv == 1) return narrow;
  real *wide = tile_of(job, thread);
  for (int64_t r = 0; r < count; r++) kernels()->widen(options->kind, d, narrow.narrow + r * narrow.stride, wide + r * d);
  return (Tile){.wide = wide, .count = count, .stride = d};
}

/* Scores against a tile of keys, or sums of one of values (added up with those before). One product for one row, else one for each head. */
static void meet_keys(const Decode *job, const Unit *unit, int64_t kv, Scores s, Tile keys) {
  const int64_t d = job->head_width;
  const real *q = queries_of(job, unit, kv * job->per_kv);
  if (keys.narrow != NULL) {
    memset(s.at, 0, (size_t)keys.count * sizeof *s.at);
    kernels()->narrow_dots(job->options.kind, keys.count, d, keys.narrow, keys.stride, q, s.at);
  } else if (unit->rows == 1 && job->per_kv == 1)
    for (int64_t r = 0; r < keys.count; r++) s.at[r] = kernels()->dot(d, q, keys.wide + r * keys.stride);
  else if (unit->rows == 1)
    kernels()->product(false, true, job->per_kv, keys.count, d, q, d, keys.wide, keys.stride, false, s.at, unit->keys);
  else
    for (int64_t i = 0; i < job->per_kv; i++)
      kernels()->product(false, true, unit->rows, keys.count, d, q + i * d, job->heads * d, keys.wide, keys.stride, false,
                         s.at + i * unit->keys, s.row_step);
}

static void sum_values(const Decode *job, const Unit *unit, int64_t kv, Scores s, Tile values, bool add) {
  const int64_t d = job->head_width;
  real *y = outputs_of(job, unit, kv * job->per_kv);
  if (values.narrow != NULL) {
    if (!add) memset(y, 0, (size_t)d * sizeof *y);
    kernels()->narrow_sums(job->options.kind, values.count, d, values.narrow, values.stride, s.at, y);
  } else if (unit->rows == 1)
    kernels()->product(false, false, job->per_kv, d, values.count, s.at, unit->keys, values.wide, values.stride, add, y, d);
  else
    for (int64_t i = 0; i < job->per_kv; i++)
      kernels()->product(false, false, unit->rows, d, values.count, s.at + i * unit->keys, s.row_step, values.wide, values.stride, add,
                         y + i * d, job->heads * d);
}

static void score_own(const Decode *job, const Unit *unit, int64_t kv, Scores s, int thread) {
  s.at += unit->of->remote;
  for (int64_t at = 0, count; at < unit->own; at += count) {
    const Tile keys = own_tile(job, unit, false, kv, at, thread);
    count = keys.count;
    meet_keys(job, unit, kv, (Scores){s.at + at, s.row_step}, keys);
  }
}

/* Softmax over what each row sees, and the sum of the rows in full. */
static void sum_own(const Decode *job, const Unit *unit, int64_t kv, Scores s, int thread) {
  const real scale = (real)(1 / sqrt((double)job->head_width));
  for (int64_t r = 0; r < unit->rows; r++)
    for (int64_t i = 0; i < job->per_kv; i++) {
      real *row = s.at + r * s.row_step + i * unit->keys;
      const int64_t hidden = unit->rows - 1 - r;
      for (int64_t token = 0; unit->of->lost && token < unit->of->marks; token++)
        if (unit->of->lost[token]) row[token] = (real)-INFINITY;
      kernels()->softmax(unit->keys - hidden, scale, row);
      memset(row + unit->keys - hidden, 0, (size_t)hidden * sizeof *row);
    }
  s.at += unit->of->remote;
  for (int64_t at = 0, count; at < unit->own; at += count) {
    const Tile values = own_tile(job, unit, true, kv, at, thread);
    count = values.count;
    sum_values(job, unit, kv, (Scores){s.at + at, s.row_step}, values, at > 0);
  }
}

static void weigh_body(void *context, int64_t begin, int64_t end, int thread) {
  const Decode *job = context;
  for (int64_t item = begin; item < end; item++) {
    const Unit *unit = &job->unit[item / job->kv_heads];
    const int64_t kv = item % job->kv_heads;
    if (unit->scores) sum_own(job, unit, kv, scores_of(job, unit, kv, thread), thread);
  }
}

/* ---- by kv head: queries on the side of remote rows, and each unit's rows in full */

static void bring_queries(const Decode *job, int64_t kv) {
  const int64_t d = job->head_width;
  const real *bias = bias_of(&job->options.key);
  multiply_heads(job, &job->options.key, false, kv, job->q->value, d, false, job->query, job->in);
  for (int64_t r = 0; r < job->rows; r++)
    for (int64_t i = r * job->heads + kv * job->per_kv; i < r * job->heads + (kv + 1) * job->per_kv; i++)
      job->offset[i] = bias ? kernels()->dot(d, job->q->value + i * d, bias + kv * d) : 0;
}

/* Items: of each kv head its queries, then the units. Units without remote rows are done with this. */
static void own_body(void *context, int64_t begin, int64_t end, int thread) {
  const Decode *job = context;
  for (int64_t item = begin; item < end; item++) {
    const int64_t kv = item / (job->units + 1), number = item % (job->units + 1) - 1;
    if (number < 0) {
      if (is_projected(job) && !projects_keys(job)) bring_queries(job, kv);
      continue;
    }
    const Unit *unit = &job->unit[number];
    const Scores s = scores_of(job, unit, kv, thread);
    score_own(job, unit, kv, s, thread);
    if (!unit->scores) sum_own(job, unit, kv, s, thread);
  }
}

/* ---- remote rows, by unit and tile: scores */

/* Columns [column, column + columns) of rows [first, first + count) of width `width` -> rows [count, columns]. Codewords are anywhere in a
 * codebook of megabytes, so those of the next row are fetched ahead: 16 sequences of GPT-2 with 256 rows as codes take 17 ms of a thread
 * for 12 blocks, and 22 without. (Here: gcc leaves out calls of a function that does nothing but fetch.) */
static void look_up(const DecodeBook *book, const int32_t *codes, int64_t width, int64_t first, int64_t count, int64_t column,
                    int64_t columns, real *rows) {
  const int64_t groups = book->groups, part = width / groups, first_group = column / part, first_place = column % part;
  const int64_t last_group = (column + columns - 1) / part,
                size = book->narrow ? (int64_t)sizeof *book->narrow : (int64_t)sizeof *book->codebook;
  const char *words = book->narrow ? (const char *)book->narrow : (const char *)book->codebook;
  for (int64_t r = 0; r < count; r++, rows += columns) {
    const int32_t *code = codes + (first + r) * groups;
    int64_t place = first_place; /* in the first group; the others begin with theirs */
    for (int64_t group = first_group; r + 1 < count && group <= last_group; group++)
      for (int64_t at = 0; at < part * size; at += 64)
        __builtin_prefetch(words + (group * book->entries + code[groups + group]) * part * size + at);
    for (int64_t group = first_group, done = 0, n; done < columns; done += n, group++, place = 0) {
      const int64_t at = (group * book->entries + code[group]) * part + place;
      n = number_lesser(part - place, columns - done);
      if (book->narrow != NULL)
        kernels()->widen(book->kind, n, book->narrow + at, rows + done);
      else
        memcpy(rows + done, book->codebook + at, (size_t)n * sizeof *rows);
    }
  }
}

/* Rows that are projected to keys (side 0) or values (1): at site x the same. */
static void look_up_side(const Decode *job, const Unit *unit, int side, int64_t first, int64_t count, int64_t column, int64_t columns,
                         real *rows) {
  const DecodeBatch *options = &job->options;
  const DecodeBook *book = is_site_x(options) ? &options->x : side == 0 ? &options->k : &options->v;
  const int32_t *codes = is_site_x(options) ? unit->of->x : side == 0 ? unit->of->k : unit->of->v;
  look_up(book, codes, job->in, first, count, column, columns, rows);
}

/* Keys [count, KV d] of remote rows from `first` on, turned. */
static const real *remote_keys(const Decode *job, const Unit *unit, int64_t first, int64_t count, real *tile) {
  const DecodeBatch *options = &job->options;
  real *keys = tile;
  if (is_projected(job)) {
    const real *bias = bias_of(&options->key);
    keys += TILE * job->in;
    look_up_side(job, unit, 0, first, count, 0, job->in, tile);
    for (int64_t r = 0; bias && r < count; r++) memcpy(keys + r * job->kv_width, bias, (size_t)job->kv_width * sizeof *keys);
    multiply(job, &options->key, true, count, 0, job->kv_width, tile, job->in, bias != NULL, keys, job->kv_width);
  } else {
    look_up(&options->k, unit->of->k, job->kv_width, first, count, 0, job->kv_width, keys);
  }
  const int64_t half = job->head_width / 2;
  for (int64_t r = 0; options->rope && r < count; r++)
    for (int64_t kv = 0; kv < job->kv_heads; kv++) {
      real *key = keys + r * job->kv_width + kv * job->head_width;
      const int64_t angles = options->positions[first + r] * half;
      kernels()->rotate(half, 1, options->rope->cosine + angles, options->rope->sine + angles, key, key);
    }
  return keys;
}

static void score_remote(const Decode *job, const Unit *unit, int64_t first, int thread) {
  const int64_t count = number_lesser(TILE, unit->of->remote - first), heads = unit->rows * job->heads;
  real *tile = tile_of(job, thread);
  if (is_projected(job) && !projects_keys(job)) {
    look_up_side(job, unit, 0, first, count, 0, job->in, tile);
    for (int64_t h = 0; h < heads; h++)
      for (int64_t r = 0; r < count; r++) unit->scores[h * unit->keys + first + r] = job->offset[unit->first * job->heads + h];
    matmul_single(false, true, heads, count, job->in, 1, job->query + unit->first * job->heads * job->in, job->in, tile, job->in, 1,
                  unit->scores + first, unit->keys);
  } else {
    const real *keys = remote_keys(job, unit, first, count, tile);
    for (int64_t kv = 0; kv < job->kv_heads; kv++) {
      const Scores s = scores_of(job, unit, kv, thread);
      meet_keys(job, unit, kv, (Scores){s.at + first, s.row_step},
                (Tile){.wide = keys + kv * job->head_width, .count = count, .stride = job->kv_width});
    }
  }
}

static void score_body(void *context, int64_t begin, int64_t end, int thread) {
  const Decode *job = context;
  const Unit *unit = job->unit;
  for (int64_t item = begin; item < end; item++) {
    while (item >= unit->tile + tiles_of(unit->of->remote)) unit++;
    score_remote(job, unit, (item - unit->tile) * TILE, thread);
  }
}

/* ---- remote rows, by unit and columns: weighted sums */

static void sum_rows(const Decode *job, const Unit *unit, int64_t column, int64_t columns, int thread) {
  real *tile = tile_of(job, thread);
  for (int64_t first = 0, count; first < unit->of->remote; first += count) {
    count = number_lesser(TILE, unit->of->remote - first);
    look_up_side(job, unit, 1, first, count, column, columns, tile);
    matmul_single(false, false, unit->rows * job->heads, columns, count, 1, unit->scores + first, unit->keys, tile, columns, first > 0,
                  job->sum + unit->first * job->heads * job->in + column, job->in);
  }
}

static void sum_remote_values(const Decode *job, const Unit *unit, int64_t kv, int thread) {
  const int64_t d = job->head_width;
  const Scores s = scores_of(job, unit, kv, thread);
  real *tile = tile_of(job, thread);
  for (int64_t first = 0, count; first < unit->of->remote; first += count) {
    count = number_lesser(TILE, unit->of->remote - first);
    look_up(&job->options.v, unit->of->v, job->kv_width, first, count, kv * d, d, tile);
    sum_values(job, unit, kv, (Scores){s.at + first, s.row_step}, (Tile){.wide = tile, .count = count, .stride = d}, true);
  }
}

/* Of the columns of a unit's remote rows: one for each thread that would be without a unit. */
static int64_t slices_of(const Decode *job) {
  if (!is_projected(job)) return job->kv_heads;
  return job->units >= threads_count() ? 1 : number_lesser(threads_count(), job->in);
}

static void sum_body(void *context, int64_t begin, int64_t end, int thread) {
  const Decode *job = context;
  const int64_t slices = slices_of(job);
  for (int64_t item = begin; item < end; item++) {
    const Unit *unit = &job->unit[item / slices];
    const int64_t slice = item % slices, column = job->in * slice / slices;
    if (unit->scores && is_projected(job))
      sum_rows(job, unit, column, job->in * (slice + 1) / slices - column, thread);
    else if (unit->scores)
      sum_remote_values(job, unit, slice, thread);
  }
}

/* ---- site x, by kv head: projected sums */

static void project_body(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  const Decode *job = context;
  const int64_t d = job->head_width;
  const real *bias = bias_of(&job->options.value);
  for (int64_t kv = begin; kv < end; kv++) {
    multiply_heads(job, &job->options.value, true, kv, job->sum, job->in, true, job->y->value, d);
    for (const Unit *unit = job->unit; bias && unit < job->unit + job->units; unit++)
      for (int64_t r = 0; unit->scores && r < unit->rows; r++)
        for (int64_t head = kv * job->per_kv; head < (kv + 1) * job->per_kv; head++) {
          const real *scores = unit->scores + (r * job->heads + head) * unit->keys;
          double share = 0;
          for (int64_t i = 0; i < unit->of->remote; i++) share += (double)scores[i];
          kernels()->axpy(d, (real)share, bias + kv * d, outputs_of(job, unit, r * job->heads + head));
        }
  }
}

/* ---- the operation */

/* Products that are too small to be counted one by one; of a plan those that count themselves, too. */
static void count_products(const Decode *job, bool planning) {
  const int64_t d = job->head_width;
  for (const Unit *unit = job->unit; unit < job->unit + job->units; unit++) {
    const int64_t heads = unit->rows * job->heads, remote = unit->of->remote;
    for (int side = 0; side < 2; side++) matmul_count_only(heads, unit->own + (is_projected(job) ? 0 : remote), d);
    if (remote == 0 || !is_projected(job)) continue;
    if (projects_keys(job)) matmul_count_only(heads, remote, d);
    if (!planning) continue;
    matmul_count_only(heads, remote, job->in); /* the sum */
    matmul_count_only(projects_keys(job) ? remote : heads, projects_keys(job) ? job->kv_width : remote, job->in);
  }
  if (!planning || !is_projected(job)) return;
  for (int side = projects_keys(job); side < 2; side++) matmul_count_only(job->rows * job->heads, d, job->in);
}

static bool is_widened(const Tensor *weight) { return weight->narrow_kind != NARROW_NONE || weight->lowbit != NULL; }

static bool allocate(Tape *tape, Decode *job) {
  const DecodeBatch *options = &job->options;
  const int64_t threads = threads_count(), by_thread = threads * UNIT * job->per_kv * job->largest, rows = job->rows * job->heads;
  const int64_t width = is_projected(job) ? job->in : 0;
  job->tile_numbers = TILE * (job->remote > 0 ? width + job->kv_width : options->kind != NARROW_NONE ? job->head_width : 0);
  job->scores = tape_alloc(tape, (size_t)(job->score_count + by_thread) * sizeof(real));
  job->tile = tape_alloc(tape, (size_t)(threads * job->tile_numbers) * sizeof(real));
  if (!is_projected(job)) return tape_status(tape) == STATUS_OK;
  if (is_widened(options->key.weight) || is_widened(options->value.weight))
    job->scratch = tape_alloc(tape, (size_t)matmul_narrow_scratch() * sizeof(real));
  job->offset = tape_alloc(tape, (size_t)rows * sizeof(real));
  job->query = tape_alloc(tape, (size_t)(projects_keys(job) ? 0 : rows * width) * sizeof(real));
  job->sum = tape_alloc(tape, (size_t)(rows * width) * sizeof(real));
  return tape_status(tape) == STATUS_OK;
}

static void decode_forward(Tape *tape, void *record) {
  Decode *job = record;
  size_t mark = tape_scratch_begin(tape);
  const bool fits = allocate(tape, job), planning = tape_planning(tape);
  if (fits) count_products(job, planning);
  if (fits && !planning) {
    real *scores = job->scores;
    for (Unit *unit = job->unit; unit < job->unit + job->units; unit++) {
      if (unit->of->remote == 0) continue;
      unit->scores = scores;
      scores += unit->rows * job->heads * unit->keys;
    }
    threads_for((job->units + 1) * job->kv_heads, 1, own_body, job);
    threads_for(job->tiles, 1, score_body, job);
    if (job->tiles > 0) threads_for(job->units * job->kv_heads, 1, weigh_body, job);
    if (is_projected(job)) memset(job->sum, 0, (size_t)(job->rows * job->heads * job->in) * sizeof *job->sum); /* of units without */
    if (job->tiles > 0) threads_for(job->units * slices_of(job), 1, sum_body, job);
    if (is_projected(job)) threads_for(job->kv_heads, 1, project_body, job);
  }
  tape_scratch_end(tape, mark);
}

static const OpKind DECODE_ATTENTION = {"decode_attention", decode_forward, NULL};

/* ---- checks ---- */

static bool codes_fit(const DecodeBook *book, const int32_t *codes, int64_t rows, int64_t width, bool planning) {
  if (planning) return true;
  if (codes == NULL || (book->codebook == NULL && book->narrow == NULL) || book->groups < 1 || width % book->groups != 0) return false;
  int outside = 0;
  for (int64_t i = 0; i < rows * book->groups; i++) outside |= codes[i] < 0 || codes[i] >= book->entries;
  return !outside;
}

static bool projection_fits(const DecodeProjection *side, int64_t outputs, int64_t in) {
  const Tensor *weight = side->weight;
  const LinearPart *part = &side->part;
  if (weight == NULL || weight->dims != 2 || weight->shape[part->transposed ? 0 : 1] != in) return false;
  const int64_t all = weight->shape[part->transposed ? 1 : 0];
  return part->count == outputs && part->first >= 0 && part->count <= all - part->first && (!side->bias || tensor_count(side->bias) == all);
}

/* Fails the tape when the remote rows do not go with the rest. */
static Status check_remote(Tape *tape, const Decode *job) {
  const DecodeBatch *options = &job->options;
  const bool planning = tape_planning(tape);
  bool fit = !is_projected(job) ||
             (projection_fits(&options->key, job->kv_width, job->in) && projection_fits(&options->value, job->kv_width, job->in));
  for (int64_t r = 0; !planning && options->rope && r < job->remote; r++)
    if (options->positions == NULL || options->positions[r] < 0 || options->positions[r] >= options->rope->count)
      return tape_fail(tape, STATUS_BAD_VALUE, "decode_attention: a position is outside the tables");
  if (options->rope && job->head_width % 2) return tape_fail(tape, STATUS_BAD_VALUE, "decode_attention: heads of odd width do not turn");
  for (const DecodeSequence *s = options->sequence; fit && s < options->sequence + options->count; s++) {
    if (s->remote == 0) continue;
    if (is_projected(job) && is_site_x(options))
      fit = codes_fit(&options->x, s->x, s->remote, job->in, planning);
    else
      fit = codes_fit(&options->k, s->k, s->remote, is_projected(job) ? job->in : job->kv_width, planning) &&
            codes_fit(&options->v, s->v, s->remote, is_projected(job) ? job->in : job->kv_width, planning);
  }
  if (fit) return STATUS_OK;
  return tape_fail(tape, STATUS_BAD_VALUE, "decode_attention: a code is outside its codebook, or the codebooks and weights do not fit");
}

/* Cuts the queries into units. */
static bool divide(Tape *tape, Decode *job) {
  const DecodeBatch *options = &job->options;
  int64_t first = 0;
  for (int i = 0; i < options->count; i++) job->units += (options->sequence[i].queries + UNIT - 1) / UNIT;
  Unit *unit = job->unit = tape_alloc(tape, (size_t)job->units * sizeof *unit);
  if (unit == NULL) return false;
  for (const DecodeSequence *s = options->sequence; s < options->sequence + options->count; s++)
    for (int64_t done = 0; done < s->queries; done += UNIT, unit++) {
      const int64_t rows = number_lesser(UNIT, s->queries - done);
      *unit = (Unit){.of = s, .first = first, .rows = rows, .own = s->rows - s->queries + done + rows, .tile = job->tiles};
      unit->keys = s->remote + unit->own;
      first += rows;
      job->tiles += tiles_of(s->remote);
      if (s->remote > 0) job->score_count += rows * job->heads * unit->keys;
      if (s->remote == 0 && job->largest < unit->keys) job->largest = unit->keys;
    }
  return true;
}

Tensor *op_decode_batch(Tape *tape, Tensor *q, const DecodeBatch *options) {
  OP_REQUIRE(q, options);
  if ((q = op_widen(tape, q)) == NULL) return NULL;
  const int64_t heads = options->heads, kv_heads = options->kv_heads, width = tensor_width(q);
  int64_t queries = 0, remote = 0;
  bool sound = options->count > 0 && options->page > 0, present = true;
  OP_CHECK(!tape_recording(tape), "decode_attention: it has no gradient");
  for (const DecodeSequence *s = options->sequence; sound && s < options->sequence + options->count; s++) {
    sound = s->queries > 0 && s->rows >= s->queries && s->remote >= 0;
    present &= s->key_page != NULL && s->value_page != NULL;
    queries += s->queries;
    if (remote < s->remote) remote = s->remote;
  }
  OP_CHECK(sound && tensor_rows(q) == queries && heads > 0 && kv_heads > 0 && heads % kv_heads == 0 && width % heads == 0,
           "decode_attention: %lld rows of %lld columns, %lld heads and %lld kv heads do not go together", (long long)tensor_rows(q),
           (long long)width, (long long)heads, (long long)kv_heads);
  OP_CHECK(tape_planning(tape) || present, "decode_attention: keys or values are missing");
  Tensor *y = tape_tensor(tape, q->dims, q->shape);
  Decode *job = tape_alloc(tape, sizeof *job);
  if (y == NULL || job == NULL) return NULL;
  *job = (Decode){.q = q, .y = y, .options = *options, .heads = heads, .kv_heads = kv_heads, .per_kv = heads / kv_heads};
  job->rows = queries;
  job->remote = remote;
  job->head_width = width / heads;
  job->kv_width = kv_heads * job->head_width;
  if (is_projected(job)) job->in = options->key.weight->shape[options->key.part.transposed ? 0 : 1];
  if (remote > 0 && check_remote(tape, job) != STATUS_OK) return NULL;
  if (!divide(tape, job)) return NULL;
  return tape_apply(tape, &DECODE_ATTENTION, job, y);
}

static DecodeBook book_of(const DecodeCodes *codes) {
  return (DecodeBook){codes->codebook, codes->narrow, codes->kind, codes->groups, codes->entries};
}

Tensor *op_decode_attention(Tape *tape, Tensor *q, const DecodeAttention *options) {
  OP_REQUIRE(q, options);
  const uint8_t *const keys = options->keys, *const values = options->values;
  const int64_t head_width = options->heads > 0 ? tensor_width(q) / options->heads : 0;
  DecodeSequence *sequence = tape_alloc(tape, sizeof *sequence);
  const uint8_t **page = tape_alloc(tape, 2 * sizeof *page);
  if (sequence == NULL || page == NULL) return NULL;
  page[0] = keys, page[1] = values;
  *sequence = (DecodeSequence){.queries = 1,
                               .key_page = keys ? page : NULL,
                               .value_page = values ? page + 1 : NULL,
                               .rows = options->rows,
                               .remote = options->remote,
                               .lost = options->lost,
                               .marks = options->marks,
                               .x = options->x.codes,
                               .k = options->k.codes,
                               .v = options->v.codes};
  return op_decode_batch(tape, q,
                         &(DecodeBatch){.heads = options->heads,
                                        .kv_heads = options->kv_heads,
                                        .kind = options->kind,
                                        .page = options->rows,
                                        .row_step = options->kv_heads * head_width,
                                        .head_step = head_width,
                                        .sequence = sequence,
                                        .count = 1,
                                        .x = book_of(&options->x),
                                        .k = book_of(&options->k),
                                        .v = book_of(&options->v),
                                        .key = options->key,
                                        .value = options->value,
                                        .rope = options->rope,
                                        .positions = options->positions});
}
