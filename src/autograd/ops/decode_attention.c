/* Attention of one new token: see decode_attention.h. Scores lie in one row a head, [remote | own], so that one softmax covers both.
 *
 * Three passes over the pool: by kv head, what each head needs of its query, and its scores of the rows in full; by remote rows, their
 * scores; after the softmax, by remote rows again, their weighted sum, in a partial for each thread; by kv head, the output. A remote row
 * exists only while its tile is worked on: looking it up twice costs less than writing and reading it. */
#include "autograd/ops/decode_attention.h"
#include "autograd/ops/op_common.h"

enum { TILE = 64 /* remote rows: the tile stays in the second-level cache */ };

typedef struct Decode {
  Tensor *q, *y;
  DecodeAttention options;
  int64_t heads, kv_heads, per_kv, head_width, kv_width, in; /* H, KV, H/KV, d, KV d, D (site x) */
  int64_t keys;                                              /* R + rows */
  real *scores;                                              /* [H, R + rows] */
  real *offset;                                              /* [H]: q . bk, the same for all remote rows */
  real *query;   /* what a head's scores of remote rows are a product with: [H, D] Wk^T q, or q itself [H, d] */
  real *tile;    /* [threads, TILE, tile_width] rows, and behind them [TILE, KV d] projected keys */
  real *sum;     /* [threads, H, sum_width]: weighted sums of remote rows, of width D (site x) or d */
  real *scratch; /* of matmul_narrow */
  int64_t tile_width, sum_width;
} Decode;

static bool is_site_x(const Decode *job) { return job->options.remote > 0 && job->options.key.weight != NULL; }
/* Remote keys are computed, tile by tile; otherwise the key projection was applied to the query (`query`). */
static bool projects_keys(const Decode *job) { return is_site_x(job) && job->options.rope != NULL; }
static real *tile_of(const Decode *job, int thread) { return job->tile + thread * TILE * (job->tile_width + job->kv_width); }
static real *sum_of(const Decode *job, int thread) { return job->sum + thread * job->heads * job->sum_width; }
static real *scores_of(const Decode *job, int64_t head) { return job->scores + head * job->keys; }

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

static const real *bias_of(const DecodeProjection *side) { return side->bias ? side->bias->value + side->part.first : NULL; }

/* ---- by kv head: queries, and scores of the rows in full ---- */

static void start_head_group(const Decode *job, int64_t kv) {
  const int64_t d = job->head_width, head = kv * job->per_kv;
  const real *q = job->q->value + head * d, *bias = bias_of(&job->options.key);
  real *scores = scores_of(job, head) + job->options.remote;
  if (job->options.kind == NARROW_NONE)
    matmul_single(false, true, job->per_kv, job->options.rows, d, 1, q, d, (const real *)job->options.keys + kv * d, job->kv_width, 0,
                  scores, job->keys);
  else
    matmul_narrow(true, job->per_kv, job->options.rows, d, q, d, job->options.kind, (const uint16_t *)job->options.keys + kv * d,
                  job->kv_width, false, scores, job->keys, job->scratch);
  if (!is_site_x(job) || projects_keys(job)) return;
  multiply(job, &job->options.key, false, job->per_kv, kv * d, d, q, d, false, job->query + head * job->in, job->in);
  for (int64_t i = 0; i < job->per_kv; i++) job->offset[head + i] = bias ? kernels()->dot(d, q + i * d, bias + kv * d) : 0;
}

static void start_body(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  for (int64_t kv = begin; kv < end; kv++) start_head_group(context, kv);
}

/* ---- by remote rows: scores ---- */

static void look_up(const DecodeCodes *source, int64_t width, int64_t first, int64_t count, real *rows) {
  const int64_t groups = source->groups, part = width / groups;
  for (int64_t r = 0; r < count; r++)
    for (int64_t g = 0; g < groups; g++) {
      const int64_t at = (g * source->entries + source->codes[(first + r) * groups + g]) * part;
      if (source->narrow != NULL)
        kernels()->widen(source->kind, part, source->narrow + at, rows + r * width + g * part);
      else
        memcpy(rows + r * width + g * part, source->codebook + at, (size_t)part * sizeof *rows);
    }
}

/* Keys of remote rows [first, first + count), after rotation. */
static const real *remote_keys(const Decode *job, int64_t first, int64_t count, real *tile) {
  const DecodeAttention *options = &job->options;
  real *keys = is_site_x(job) ? tile + TILE * job->tile_width : tile;
  if (is_site_x(job)) {
    const real *bias = bias_of(&options->key);
    look_up(&options->x, job->in, first, count, tile);
    for (int64_t r = 0; bias && r < count; r++) memcpy(keys + r * job->kv_width, bias, (size_t)job->kv_width * sizeof *keys);
    multiply(job, &options->key, true, count, 0, job->kv_width, tile, job->in, bias != NULL, keys, job->kv_width);
  } else {
    look_up(&options->k, job->kv_width, first, count, keys);
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

static void score_tile(const Decode *job, int64_t first, int64_t count, real *tile) {
  if (is_site_x(job) && !projects_keys(job)) { /* against the inputs of the key projection */
    look_up(&job->options.x, job->in, first, count, tile);
    for (int64_t head = 0; head < job->heads; head++)
      for (int64_t r = 0; r < count; r++) scores_of(job, head)[first + r] = job->offset[head];
    matmul_single(false, true, job->heads, count, job->in, 1, job->query, job->in, tile, job->in, 1, job->scores + first, job->keys);
    return;
  }
  const int64_t d = job->head_width;
  const real *keys = remote_keys(job, first, count, tile);
  for (int64_t kv = 0; kv < job->kv_heads; kv++) {
    const int64_t head = kv * job->per_kv;
    matmul_single(false, true, job->per_kv, count, d, 1, job->q->value + head * d, d, keys + kv * d, job->kv_width, 0,
                  scores_of(job, head) + first, job->keys);
  }
}

static void score_body(void *context, int64_t begin, int64_t end, int thread) {
  const Decode *job = context;
  for (int64_t at = begin; at < end; at += TILE) score_tile(job, at, at + TILE < end ? TILE : end - at, tile_of(job, thread));
  for (int64_t r = begin; job->options.lost && r < end; r++)
    for (int64_t head = 0; job->options.lost[r] && head < job->heads; head++) scores_of(job, head)[r] = (real)-INFINITY;
}

/* ---- softmax, and by remote rows: weighted sums ---- */

static void softmax_body(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  const Decode *job = context;
  for (int64_t head = begin; head < end; head++)
    kernels()->softmax(job->keys, (real)(1 / sqrt((double)job->head_width)), scores_of(job, head));
}

static void sum_body(void *context, int64_t begin, int64_t end, int thread) {
  const Decode *job = context;
  real *tile = tile_of(job, thread), *sum = sum_of(job, thread);
  const int64_t d = job->head_width;
  for (int64_t at = begin; at < end; at += TILE) {
    const int64_t count = at + TILE < end ? TILE : end - at;
    look_up(is_site_x(job) ? &job->options.x : &job->options.v, job->tile_width, at, count, tile);
    if (is_site_x(job))
      matmul_single(false, false, job->heads, job->in, count, 1, job->scores + at, job->keys, tile, job->in, 1, sum, job->in);
    for (int64_t kv = 0; !is_site_x(job) && kv < job->kv_heads; kv++)
      matmul_single(false, false, job->per_kv, d, count, 1, scores_of(job, kv * job->per_kv) + at, job->keys, tile + kv * d, job->kv_width,
                    1, sum + kv * job->per_kv * d, d);
  }
}

/* ---- by kv head: the output ---- */

static void add_bias(const Decode *job, int64_t head, const real *bias) {
  double share = 0;
  for (int64_t r = 0; r < job->options.remote; r++) share += (double)scores_of(job, head)[r];
  kernels()->axpy(job->head_width, (real)share, bias + head / job->per_kv * job->head_width, job->y->value + head * job->head_width);
}

static void finish_head_group(const Decode *job, int64_t kv) {
  const int64_t d = job->head_width, head = kv * job->per_kv, count = job->per_kv * job->sum_width;
  real *y = job->y->value + head * d, *sum = job->sum + head * job->sum_width;
  const real *scores = scores_of(job, head) + job->options.remote;
  if (job->options.kind == NARROW_NONE)
    matmul_single(false, false, job->per_kv, d, job->options.rows, 1, scores, job->keys, (const real *)job->options.values + kv * d,
                  job->kv_width, 0, y, d);
  else
    matmul_narrow(false, job->per_kv, d, job->options.rows, scores, job->keys, job->options.kind,
                  (const uint16_t *)job->options.values + kv * d, job->kv_width, false, y, d, job->scratch);
  if (job->options.remote == 0) return;
  for (int thread = 1; thread < threads_count(); thread++) kernels()->add(count, sum_of(job, thread) + head * job->sum_width, sum);
  if (is_site_x(job)) {
    const real *bias = bias_of(&job->options.value);
    multiply(job, &job->options.value, true, job->per_kv, kv * d, d, sum, job->in, true, y, d);
    for (int64_t i = 0; bias && i < job->per_kv; i++) add_bias(job, head + i, bias);
  } else {
    kernels()->add(count, sum, y);
  }
}

static void finish_body(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  for (int64_t kv = begin; kv < end; kv++) finish_head_group(context, kv);
}

/* ---- the operation ---- */

static void count_products(const Decode *job) {
  const int64_t remote = job->options.remote, side = is_site_x(job) ? job->in : job->head_width;
  for (int i = 0; i < 2; i++) matmul_count_only(job->heads, job->options.rows, job->head_width);
  if (remote == 0) return;
  matmul_count_only(job->heads, remote, side); /* the sum */
  matmul_count_only(job->heads, remote, projects_keys(job) ? job->head_width : side);
  if (!is_site_x(job)) return;
  matmul_count_only(job->heads, job->head_width, job->in);
  matmul_count_only(projects_keys(job) ? remote : job->per_kv, job->kv_width, job->in);
}

static bool is_widened(const Tensor *weight) { return weight->narrow_kind != NARROW_NONE || weight->lowbit != NULL; }

static bool allocate(Tape *tape, Decode *job) {
  const DecodeAttention *options = &job->options;
  const int64_t threads = threads_count();
  const bool widened = is_site_x(job) && (is_widened(options->key.weight) || is_widened(options->value.weight));
  job->scores = tape_alloc(tape, (size_t)(job->heads * job->keys) * sizeof(real));
  if (options->kind != NARROW_NONE || widened) job->scratch = tape_alloc(tape, (size_t)matmul_narrow_scratch() * sizeof(real));
  if (options->remote == 0) return tape_status(tape) == STATUS_OK;
  job->offset = tape_alloc(tape, (size_t)job->heads * sizeof(real));
  job->query = tape_alloc(tape, (size_t)(job->heads * job->sum_width) * sizeof(real));
  job->tile = tape_alloc(tape, (size_t)(threads * TILE * (job->tile_width + job->kv_width)) * sizeof(real));
  job->sum = tape_alloc(tape, (size_t)(threads * job->heads * job->sum_width) * sizeof(real));
  return tape_status(tape) == STATUS_OK;
}

static void decode_forward(Tape *tape, void *record) {
  Decode *job = record;
  size_t mark = tape_scratch_begin(tape);
  if (allocate(tape, job) && tape_planning(tape)) {
    count_products(job);
  } else if (tape_status(tape) == STATUS_OK) {
    const int64_t remote = job->options.remote;
    threads_for(job->kv_heads, 1, start_body, job);
    threads_for(remote, TILE, score_body, job);
    threads_for(job->heads, 1, softmax_body, job);
    if (remote) memset(job->sum, 0, (size_t)(threads_count() * job->heads * job->sum_width) * sizeof(real));
    threads_for(remote, TILE, sum_body, job);
    threads_for(job->kv_heads, 1, finish_body, job);
  }
  tape_scratch_end(tape, mark);
}

static const OpKind DECODE_ATTENTION = {"decode_attention", decode_forward, NULL};

/* ---- checks ---- */

static bool codes_fit(const DecodeCodes *source, int64_t rows, int64_t width) {
  if (source->codes == NULL || (source->codebook == NULL && source->narrow == NULL) || source->groups < 1 || width % source->groups != 0)
    return false;
  int outside = 0;
  for (int64_t i = 0; i < rows * source->groups; i++) outside |= source->codes[i] < 0 || source->codes[i] >= source->entries;
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
  const DecodeAttention *options = &job->options;
  const bool planning = tape_planning(tape);
  for (int64_t r = 0; !planning && options->rope && r < options->remote; r++)
    if (options->positions == NULL || options->positions[r] < 0 || options->positions[r] >= options->rope->count)
      return tape_fail(tape, STATUS_BAD_VALUE, "decode_attention: a position is outside the tables");
  if (options->rope && job->head_width % 2) return tape_fail(tape, STATUS_BAD_VALUE, "decode_attention: heads of odd width do not turn");
  if (!is_site_x(job)) {
    if (planning || (codes_fit(&options->k, options->remote, job->kv_width) && codes_fit(&options->v, options->remote, job->kv_width)))
      return STATUS_OK;
  } else if (projection_fits(&options->key, job->kv_width, job->in) && projection_fits(&options->value, job->kv_width, job->in) &&
             (planning || codes_fit(&options->x, options->remote, job->in))) {
    return STATUS_OK;
  }
  return tape_fail(tape, STATUS_BAD_VALUE, "decode_attention: a code is outside its codebook, or the codebooks and weights do not fit");
}

Tensor *op_decode_attention(Tape *tape, Tensor *q, const DecodeAttention *options) {
  OP_REQUIRE(q, options);
  if ((q = op_widen(tape, q)) == NULL) return NULL;
  int64_t heads = options->heads, kv_heads = options->kv_heads, width = tensor_width(q);
  OP_CHECK(!tape_recording(tape), "decode_attention: it has no gradient");
  OP_CHECK(tape_planning(tape) || (options->keys && options->values), "decode_attention: keys or values are missing");
  OP_CHECK(tensor_rows(q) == 1 && heads > 0 && kv_heads > 0 && heads % kv_heads == 0 && width % heads == 0 && options->rows > 0 &&
               options->remote >= 0,
           "decode_attention: one row of %lld columns, %lld heads and %lld kv heads do not go together", (long long)width, (long long)heads,
           (long long)kv_heads);
  Tensor *y = tape_tensor(tape, q->dims, q->shape);
  Decode *job = tape_alloc(tape, sizeof *job);
  if (y == NULL || job == NULL) return NULL;
  *job = (Decode){.q = q, .y = y, .options = *options, .heads = heads, .kv_heads = kv_heads, .per_kv = heads / kv_heads};
  job->head_width = width / heads;
  job->kv_width = kv_heads * job->head_width;
  job->keys = options->remote + options->rows;
  if (is_site_x(job)) job->in = options->key.weight->shape[options->key.part.transposed ? 0 : 1];
  job->tile_width = is_site_x(job) ? job->in : job->kv_width;
  job->sum_width = is_site_x(job) ? job->in : job->head_width;
  if (options->remote > 0 && check_remote(tape, job) != STATUS_OK) return NULL;
  tape_apply(tape, &DECODE_ATTENTION, job, y);
  return tape_status(tape) == STATUS_OK ? y : NULL;
}
