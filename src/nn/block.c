/* A block: linear maps, attention, MLP, and the order of its steps, whole or in parts. A node's rows are cut into S parts (layout_part), so
 * that codes are under way while the node still computes; a whole block takes the same steps with one part. For each block, where h are the
 * rows after its first norm:
 *
 *   begin of each part: h; at site kv also k and v; its codes leave
 *   q, k, v of all rows (site kv: q alone)                    the parts' codes are under way
 *   for each part: finish, K and V of the remote rows that came into their place
 *   for each part: attention, output projection, MLP; then begin of the next block's part
 *
 * sim/schedule.c states the same for plans and simulations. The rows of a part depend on no other rows; where all are wanted in one piece
 * (products that are faster on many rows) they are copied together, which costs a thousandth of such a product. With one part nothing is
 * copied. */
#include "nn/block.h"
#include "autograd/ops/decode_attention.h"
#include "autograd/ops/ops.h"
#include "autograd/tape.h"
#include "base/rng.h"
#include "nn/block_internal.h"
#include "nn/config.h"
#include "nn/exchange.h"
#include "nn/kv_cache.h"
#include <stdio.h>
#include <string.h>

/* ---- norms and linear maps */

Tensor *block_norm(const BlockContext *context, Tape *tape, Tensor *x, int weight, int bias) {
  double eps = context->config->norm_eps;
  Tensor *scale = block_param(context, weight);
  if (bias < 0) return op_rms_norm(tape, x, scale, eps);
  return op_layer_norm(tape, x, scale, block_param(context, bias), eps);
}

/* act(W x + b + adapter_scale B A x) + residual; not both an activation and a residual. */
static Tensor *project(const BlockContext *context, Tape *tape, Tensor *x, const Projection *projection, Activation activation,
                       Tensor *residual) {
  Tensor *weight = block_param(context, projection->weight), *bias = block_param(context, projection->bias);
  if (projection->lora_a < 0) return op_linear_part(tape, x, weight, bias, &projection->part, activation, residual);
  Tensor *inner = op_linear(tape, x, block_param(context, projection->lora_a), NULL, ACTIVATION_NONE, NULL);
  Tensor *outer = op_linear(tape, inner, block_param(context, projection->lora_b), NULL, ACTIVATION_NONE, NULL);
  residual = residual ? op_add_scaled(tape, residual, outer, context->adapter_scale) : op_scale(tape, outer, context->adapter_scale);
  if (residual == NULL) return NULL;
  return op_activate(tape, op_linear_part(tape, x, weight, bias, &projection->part, ACTIVATION_NONE, residual), activation);
}

Tensor *block_map(const BlockContext *context, Tape *tape, Tensor *x, const Projection *projection) {
  return project(context, tape, x, projection, ACTIVATION_NONE, NULL);
}

BlockKeys block_keys(const BlockContext *context, const BlockParams *block, Tape *tape, Tensor *x) {
  Tensor *k = block_map(context, tape, x, &block->key);
  return (BlockKeys){k, block_map(context, tape, x, &block->value)};
}

Tensor *block_rotate(const BlockContext *context, Tape *tape, Tensor *x, int64_t heads, const int32_t *positions) {
  const RopeTable *table = context->rope;
  if (table == NULL || x == NULL) return x;
  return op_rope(tape, x, &(Rope){table->cosine, table->sine, table->count, (int)heads}, positions);
}

/* ---- values that are not finite */

const char *block_place(const ModelConfig *config, int index, char text[BLOCK_PLACE]) {
  if (index < 0 || index >= config->blocks)
    snprintf(text, BLOCK_PLACE, "%s", index < 0 ? "the embedding" : "the head");
  else
    snprintf(text, BLOCK_PLACE, "block %d of %lld, counted from 0,", index, (long long)config->blocks);
  return text;
}

Tensor *block_checked(const BlockContext *context, Tape *tape, int index, Tensor *x) {
  char place[BLOCK_PLACE];
  if (x == NULL || (x->value == NULL && x->narrow == NULL) || tape_planning(tape) || tensor_is_finite(x)) return x;
  if (context->not_finite != NULL && *context->not_finite == BLOCK_NONE) *context->not_finite = index;
  if (tape_recording(tape)) return x;
  tape_fail(tape, STATUS_NUMERIC,
            "%s gives numbers that are not finite: the checkpoint's weights are damaged or too large; get it again, or train it again "
            "with a lower --learning-rate",
            block_place(context->config, index, place));
  return NULL;
}

bool block_status(Tape *tape, Status status) {
  if (status != STATUS_OK) tape_fail(tape, status, "%s", status_message());
  return status == STATUS_OK;
}

/* ---- attention and what follows */

/* Of class tokens towards what is quantised: rows that travel in full are not, and training would undo it. */
static real class_bias(const BlockContext *context, const Tape *tape) {
  const bool whole = context->exchange != NULL && context->exchange->whole_rows;
  return whole || tape_learning(tape) ? 0 : (real)context->config->astra.class_bias;
}

/* The layout's spans; where no tokens of other devices are looked at, without their places among these. */
static const AttentionSpan *spans_of(const TokenLayout *layout, bool apart, Tape *tape) {
  if (!apart || layout->remote == 0) return layout->span;
  AttentionSpan *spans = tape_alloc(tape, (size_t)layout->spans * sizeof *spans);
  for (int s = 0; spans != NULL && s < layout->spans; s++)
    spans[s] = (AttentionSpan){.begin = layout->span[s].begin, .count = layout->span[s].count};
  return spans;
}

Tensor *block_attend(const BlockContext *context, Tape *tape, Tensor *q, BlockKeys own, BlockKeys remote, const uint8_t *lost,
                     const BlockWanted *wanted) {
  const ModelConfig *config = context->config;
  const TokenLayout *layout = context->layout;
  if (q == NULL) return NULL;
  bool each = lost != NULL && context->exchange != NULL && context->exchange->lost_of_spans;
  const AttentionSpan *spans = spans_of(layout, remote.k == NULL, tape);
  if (spans == NULL) return NULL;
  bool looks_ahead = wanted->of_span != NULL && !wanted->part; /* nothing comes after the last token */
  AttentionOptions options = {.heads = (int)config->heads,
                              .kv_heads = (int)config->kv_heads,
                              .causal = context->causal && !looks_ahead,
                              .spans = layout->spans,
                              .span = spans,
                              .lost = lost,
                              .lost_stride = each ? q->shape[0] * layout->remote : 0,
                              .queries = wanted->of_span,
                              .first_query = wanted->first,
                              .first_bias = class_bias(context, tape)};
  return op_attention(tape, q, own.k, own.v, remote.k, remote.v, &options);
}

/* residual + branch as `sum` has it, or stochastic depth: the branch is left out of a sample with a probability that rises linearly from 0
 * in the first block to context->drop_path in the last, and else counts 1 / (1 - probability) times. The draws are a function of the seed,
 * the block, the branch (0: attention, 1: MLP) and the sample alone: recomputed blocks draw the same again. */
static Tensor *drop_branch(const BlockContext *context, int index, int branch, Tape *tape, Tensor *residual, Tensor *sum) {
  int64_t blocks = context->config->blocks;
  double probability = blocks > 1 ? context->drop_path * index / (double)(blocks - 1) : context->drop_path;
  if (probability == 0 || sum == NULL) return sum;
  int64_t samples = sum->shape[0];
  real *scale = tape_alloc(tape, (size_t)samples * sizeof *scale);
  if (scale == NULL) return NULL;
  Rng rng;
  rng_init(&rng, context->drop_seed, 2 * (uint64_t)index + (uint64_t)branch);
  for (int64_t b = 0; b < context->drop_first; b++) (void)rng_uniform(&rng); /* of samples that another process has */
  for (int64_t b = 0; b < samples; b++) scale[b] = rng_uniform(&rng) < probability ? 0 : (real)(1 / (1 - probability));
  return op_drop_path(tape, residual, sum, scale);
}

Tensor *block_tail(const BlockContext *context, const BlockParams *block, int index, Tape *tape, Tensor *mixed, Tensor *residual) {
  if (mixed == NULL) return NULL;
  const Projection *up = &block->up, *down = &block->down;
  const Activation activation = context->config->activation;
  Tensor *x = drop_branch(context, index, 0, tape, residual, project(context, tape, mixed, &block->output, ACTIVATION_NONE, residual));
  if (x == NULL) return NULL;
  Tensor *h = block_norm(context, tape, x, block->norm2_weight, block->norm2_bias), *y;
  if (block->gate.weight < 0 && up->lora_a < 0 && down->lora_a < 0) {
    const LinearMap inner = {block_param(context, up->weight), block_param(context, up->bias), &up->part};
    const LinearMap outer = {block_param(context, down->weight), block_param(context, down->bias), &down->part};
    y = op_mlp(tape, h, &inner, activation, &outer, x);
  } else {
    Tensor *hidden = block->gate.weight < 0 ? project(context, tape, h, up, activation, NULL)
                                            : op_swiglu(tape, block_map(context, tape, h, &block->gate), block_map(context, tape, h, up));
    y = hidden == NULL ? NULL : project(context, tape, hidden, down, ACTIVATION_NONE, x);
  }
  return drop_branch(context, index, 1, tape, x, y);
}

/* ---- attention over a cache */

static bool read_codes(const BlockContext *context, int index, int site, Tape *tape, DecodeCodes *codes) {
  KvCache *cache = context->cache;
  const KvCodewords *words = &cache->codewords[index * cache->setup.sites + site];
  *codes = (DecodeCodes){.codebook = words->reals,
                         .narrow = words->narrow,
                         .kind = words->kind,
                         .groups = cache->setup.groups,
                         .entries = cache->setup.entries};
  return block_status(tape, kv_cache_unpack(cache, index, site, &codes->codes));
}

bool block_decode_projections(const BlockContext *context, const BlockParams *block, Tape *tape, DecodeProjection *key,
                              DecodeProjection *value) {
  const Projection *k = block_remote_key(block), *v = block_remote_value(block);
  if (k->lora_a >= 0 || v->lora_a >= 0)
    return tape_fail(tape, STATUS_UNSUPPORTED, "decoding with adapters: fold them into the weights first"), false;
  *key = (DecodeProjection){block_param(context, k->weight), block_param(context, k->bias), k->part};
  *value = (DecodeProjection){block_param(context, v->weight), block_param(context, v->bias), v->part};
  return true;
}

/* Attention of q [1, 1, D] over what context->cache holds, the row just stored included. Adapters of the key and value projections must
 * have been folded in where there are remote tokens. */
static Tensor *decode(const BlockContext *context, const BlockParams *block, int index, Tape *tape, Tensor *q) {
  const ModelConfig *config = context->config;
  const RopeTable *table = context->rope;
  const KvCache *cache = context->cache;
  Rope rope = table ? (Rope){table->cosine, table->sine, table->count, (int)config->heads} : (Rope){.count = 0};
  const KvCacheBlock held = kv_cache_block(cache, index);
  DecodeAttention options = {.heads = (int)config->heads,
                             .kv_heads = (int)config->kv_heads,
                             .keys = held.keys,
                             .values = held.values,
                             .kind = cache->setup.kind,
                             .rows = cache->rows + 1,
                             .remote = cache->remote,
                             .lost = held.lost,
                             .marks = held.marks,
                             .rope = table ? &rope : NULL};
  if (cache->remote == 0) return op_decode_attention(tape, q, &options);
  options.positions = cache->positions;
  const bool site_kv = config->astra.site == SITE_KV;
  if (!read_codes(context, index, 0, tape, site_kv ? &options.k : &options.x)) return NULL;
  if (site_kv && !read_codes(context, index, 1, tape, &options.v)) return NULL;
  if (site_kv && block->rotation.weight < 0) return op_decode_attention(tape, q, &options);
  if (!block_decode_projections(context, block, tape, &options.key, &options.value)) return NULL;
  return op_decode_attention(tape, q, &options);
}

/* ---- rows in one piece and in parts */

/* One part of the rows: tensors [B, rows, ...]. */
typedef struct Part {
  int64_t first, rows; /* of those of this process */
  Tensor *x, *h;       /* the block's input, and after its first norm */
  Tensor *k, *v;       /* site kv: of h */
} Part;

typedef struct Parts {
  const BlockContext *context;
  Tape *tape;
  bool kv; /* keys and values are what is exchanged; else rows after the first norm */
  int count;
  Part *part; /* [count] */
} Parts;

/* K and V of a block's remote rows, as they come. */
typedef struct Arrived {
  BlockKeys keys;
  const uint8_t *lost; /* [B, remote], or of each span (exchange.h); NULL: none */
  uint8_t *marks;      /* the same array while it is filled part by part */
} Arrived;

static Tensor *view(Tape *tape, Tensor *whole, int64_t first, int64_t rows) {
  int64_t width = tensor_width(whole);
  Tensor *part = tape_constant(tape, 3, (int64_t[]){1, rows, width}, whole->value ? whole->value + first * width : NULL);
  if (part == NULL || whole->value != NULL) return part;
  part->narrow = whole->narrow + first * width;
  part->narrow_kind = whole->narrow_kind;
  return part;
}

static void *numbers_of(const Tensor *tensor) { return tensor->value ? (void *)tensor->value : tensor->narrow; }
static size_t number_size(const Tensor *tensor) { return tensor->value ? sizeof *tensor->value : sizeof *tensor->narrow; }

/* Which member of a part: tensors of all parts have the same width. */
typedef Tensor **PartMember(Part *part);
static Tensor **member_x(Part *part) { return &part->x; }
static Tensor **member_h(Part *part) { return &part->h; }
static Tensor **member_k(Part *part) { return &part->k; }
static Tensor **member_v(Part *part) { return &part->v; }

/* The parts' rows together: [B, rows, width]; the part's own tensor where there is one. */
static Tensor *joined(const Parts *parts, PartMember *member) {
  Tensor *one = *member(&parts->part[0]);
  if (parts->count == 1 || one == NULL) return one;
  int64_t width = tensor_width(one);
  const size_t row = (size_t)width * number_size(one);
  Tensor *whole = tape_tensor_like(parts->tape, one, 3, (int64_t[]){1, parts->context->layout->rows, width});
  for (int p = 0; p < parts->count && whole != NULL && !tape_planning(parts->tape); p++) {
    const Part *part = &parts->part[p];
    if (part->rows > 0)
      memcpy((char *)numbers_of(whole) + (size_t)part->first * row, numbers_of(*member(&parts->part[p])), (size_t)part->rows * row);
  }
  return whole;
}

/* ---- to the others */

/* Whether the devices' tokens are apart in this block: codes end before it (AstraConfig.exchange_blocks), rows in full do not. */
static bool is_apart(const BlockContext *context, int index) {
  return context->exchange != NULL && !context->exchange->whole_rows && index >= config_end_coded(context->config);
}

/* A node without others has nobody to exchange with. */
static Exchange *exchange_of(const BlockContext *context, int index) {
  const bool alone = context->layout->devices == 1 && context->layout->self >= 0;
  return alone || is_apart(context, index) ? NULL : context->exchange;
}

/* Whether this exchange has rows in the basis that is quantised. */
static bool rotates(const BlockParams *block, const Exchange *exchange) { return block->rotation.weight >= 0 && !exchange->whole_rows; }

static void set_predictor(const BlockContext *context, const BlockParams *block, Exchange *exchange) {
  const Projection *const sites[EXCHANGE_SITES] = {&block->prediction, &block->prediction_value};
  for (int i = 0; i < EXCHANGE_SITES; i++) {
    const bool predicts = sites[i]->weight >= 0 && !exchange->whole_rows;
    exchange->predict_weight[i] = predicts ? block_param(context, sites[i]->weight) : NULL;
    exchange->predict_bias[i] = predicts ? block_param(context, sites[i]->bias) : NULL;
  }
}

/* Whether every device computes the block's tokens itself. */
static bool is_known(const BlockContext *context, int index, const Exchange *exchange) {
  return index < config_first_coded(context->config) && exchange->know != NULL;
}

/* The means at the positions of these tokens (-1: class token), [B, count, W]; NULL, without a failure, where there are none. */
static Tensor *position_means(const Parts *parts, const BlockParams *block, int site, int64_t batch, const int32_t *token, int64_t count) {
  if (block->position_mean[site] < 0) return NULL;
  int32_t *rows = tape_alloc(parts->tape, (size_t)(batch * count) * sizeof *rows);
  if (rows == NULL) return NULL;
  for (int64_t i = 0; i < batch * count && !tape_planning(parts->tape); i++) rows[i] = 1 + token[i % count];
  return op_token_embed(parts->tape, block_param(parts->context, block->position_mean[site]), NULL, rows, NULL, batch, count);
}

/* Rows as they are quantised: in their basis, less the means at their positions. */
static Tensor *rotated_rows(const Parts *parts, const BlockParams *block, int site, const Part *part, Tensor *rows) {
  Tensor *y = block_map(parts->context, parts->tape, rows, site == 0 ? &block->rotation : &block->rotation_value);
  if (y == NULL) return NULL;
  Tensor *means = position_means(parts, block, site, y->shape[0], parts->context->layout->row_token + part->first, part->rows);
  return means == NULL ? y : op_add_scaled(parts->tape, op_widen(parts->tape, y), means, -1);
}

/* Keys and values are computed part by part where they are what leaves, or what is watched. */
static bool keys_first(const Parts *parts, int index) {
  return parts->kv && (!is_apart(parts->context, index) || parts->context->watch != NULL);
}

static bool begin_part(const Parts *parts, const BlockParams *block, int index, int p) {
  const BlockContext *context = parts->context;
  Part *part = &parts->part[p];
  Exchange *const told[] = {context->watch, exchange_of(context, index)};
  Tensor *rotated[EXCHANGE_SITES] = {NULL, NULL};
  part->h = block_norm(context, parts->tape, part->x, block->norm1_weight, block->norm1_bias);
  if (part->h != NULL && keys_first(parts, index)) {
    BlockKeys keys = block_keys(context, block, parts->tape, part->h);
    part->k = keys.k, part->v = keys.v;
  }
  Tensor *const rows[EXCHANGE_SITES] = {parts->kv ? part->k : part->h, parts->kv ? part->v : NULL};
  for (int i = 0; i < 2; i++) {
    if (told[i] == NULL || is_known(context, index, told[i]) || !rotates(block, told[i]) || rotated[0] != NULL) continue;
    rotated[0] = rotated_rows(parts, block, 0, part, rows[0]);
    if (parts->kv) rotated[1] = rotated_rows(parts, block, 1, part, rows[1]);
  }
  if (tape_status(parts->tape) != STATUS_OK) return false;
  if (p == 0 && is_apart(context, index) && context->exchange->pass != NULL &&
      !block_status(parts->tape, context->exchange->pass(context->exchange, index)))
    return false;
  for (int i = 0; i < 2; i++) {
    if (told[i] == NULL) continue;
    Tensor *const *h = rotates(block, told[i]) ? rotated : rows;
    set_predictor(context, block, told[i]);
    const Status status = is_known(context, index, told[i]) ? told[i]->know(told[i], parts->tape, context->layout, p, part->h, NULL)
                                                            : told[i]->begin(told[i], parts->tape, context->layout, index, p, h);
    if (!block_status(parts->tape, status)) return false;
  }
  return true;
}

/* ---- from the others */

static int64_t count_runs(const ExchangeRows *rows) {
  int64_t sum = 0;
  for (int64_t r = 0; r < rows->runs; r++) sum += rows->run[r].count;
  return sum;
}

/* All remote rows, one run after another: nothing to be moved. */
static bool all_in_place(const ExchangeRows *rows, int64_t remote) {
  int64_t next = 0;
  for (int64_t r = 0; r < rows->runs; r++) {
    if (rows->run[r].place != next) return false;
    next += rows->run[r].count;
  }
  return rows->run == NULL || next == remote;
}

/* Rows of `from` [B, their sum, width], `size` bytes each, into their places of `to` [B, remote, width]. */
static void place_rows(const ExchangeRows *rows, int64_t batch, int64_t remote, const void *from, size_t size, void *to) {
  const char *at = from;
  for (int64_t b = 0; b < batch; b++)
    for (int64_t r = 0; r < rows->runs; r++) {
      size_t bytes = (size_t)rows->run[r].count * size;
      memcpy((char *)to + (size_t)(b * remote + rows->run[r].place) * size, at, bytes);
      at += bytes;
    }
}

/* `from` becomes, or goes into, *to [B, remote, kv width]. */
static bool take_tensor(const Parts *parts, const ExchangeRows *rows, Tensor *from, Tensor **to) {
  const int64_t remote = parts->context->layout->remote, count = rows->run == NULL ? remote : count_runs(rows);
  if (from->shape[1] != count)
    return tape_fail(parts->tape, STATUS_BAD_VALUE, "the exchange hands over %lld rows where %lld are counted", (long long)from->shape[1],
                     (long long)count) == STATUS_OK;
  if (*to == NULL && all_in_place(rows, remote)) return (*to = from) != NULL;
  int64_t batch = from->shape[0], width = tensor_width(from);
  if (*to == NULL) *to = tape_tensor_like(parts->tape, from, 3, (int64_t[]){batch, remote, width});
  if (*to == NULL) return false;
  if (!tape_planning(parts->tape)) place_rows(rows, batch, remote, numbers_of(from), (size_t)width * number_size(from), numbers_of(*to));
  return true;
}

/* Which rows were lost, at site kv at either site: such a token cannot be used. lost [sites] of `count` marks each. */
static bool take_lost(const Parts *parts, const ExchangeRows rows[EXCHANGE_SITES], bool of_spans, int64_t batch, Arrived *arrived) {
  const TokenLayout *layout = parts->context->layout;
  const uint8_t *a = rows[0].lost, *b = parts->kv ? rows[1].lost : NULL, *lost = a != NULL ? a : b;
  size_t all = (size_t)(batch * layout->remote * (of_spans ? layout->spans : 1));
  if (a != NULL && b != NULL) {
    size_t count = rows[0].run == NULL ? all : (size_t)(batch * count_runs(&rows[0]));
    uint8_t *either = tape_alloc(parts->tape, count);
    for (size_t i = 0; either != NULL && i < count; i++) either[i] = a[i] | b[i];
    lost = either;
  }
  if (arrived->marks == NULL && all_in_place(&rows[0], layout->remote)) arrived->lost = lost;
  if (arrived->lost == lost || lost == NULL || tape_planning(parts->tape)) return tape_status(parts->tape) == STATUS_OK;
  if (arrived->marks == NULL) {
    arrived->lost = arrived->marks = tape_alloc(parts->tape, all);
    if (arrived->marks == NULL) return false;
    memset(arrived->marks, 0, all);
  }
  place_rows(&rows[0], batch, layout->remote, lost, 1, arrived->marks);
  return true;
}

/* Adds the means at their positions to rows that have arrived. */
static void add_means(const Parts *parts, const BlockParams *block, ExchangeRows rows[EXCHANGE_SITES]) {
  const TokenLayout *layout = parts->context->layout;
  const int64_t count = rows[0].run == NULL ? layout->remote : count_runs(&rows[0]);
  int32_t *token = tape_alloc(parts->tape, (size_t)count * sizeof *token);
  if (token == NULL) return;
  if (rows[0].run == NULL) memcpy(token, layout->remote_token, (size_t)count * sizeof *token);
  for (int64_t r = 0, at = 0; r < rows[0].runs; at += rows[0].run[r++].count)
    memcpy(token + at, layout->remote_token + rows[0].run[r].place, (size_t)rows[0].run[r].count * sizeof *token);
  for (int site = 0; site < EXCHANGE_SITES && rows[site].x != NULL; site++) {
    Tensor *means = position_means(parts, block, site, rows[site].x->shape[0], token, count);
    rows[site].x = op_add(parts->tape, op_widen(parts->tape, rows[site].x), means);
  }
}

/* K and V of what arrived of a part go into their places; at site kv the two sites are keys and values already, unless they are in another
 * basis. */
static bool finish_part(const Parts *parts, const BlockParams *block, int index, int p, Arrived *arrived) {
  const TokenLayout *layout = parts->context->layout;
  Tape *tape = parts->tape;
  Exchange *exchange = exchange_of(parts->context, index);
  ExchangeRows rows[EXCHANGE_SITES] = {{.runs = 0}, {.runs = 0}};
  set_predictor(parts->context, block, exchange);
  if (!block_status(tape, exchange->finish(exchange, tape, layout, index, p, rows))) return false;
  for (int64_t r = 0; r < rows[0].runs; r++) {
    const int64_t place = rows[0].run[r].place, count = rows[0].run[r].count;
    if (place < 0 || count < 0 || count > layout->remote - place)
      return tape_fail(tape, STATUS_BAD_VALUE, "the exchange hands over rows from %lld on, of %lld", (long long)place,
                       (long long)layout->remote) == STATUS_OK;
  }
  if (rows[0].run != NULL && count_runs(&rows[0]) == 0) return true;
  if (block->position_mean[0] >= 0 && !exchange->whole_rows) add_means(parts, block, rows);
  BlockKeys keys = {rows[0].k, rows[0].v};
  if (parts->kv && !rotates(block, exchange))
    keys = (BlockKeys){rows[0].x, rows[1].x};
  else if (rows[0].x != NULL && exchange->whole_rows)
    keys = block_keys(parts->context, block, tape, rows[0].x);
  else if (rows[0].x != NULL) {
    keys.k = block_map(parts->context, tape, rows[0].x, block_remote_key(block));
    keys.v = block_map(parts->context, tape, rows[parts->kv ? 1 : 0].x, block_remote_value(block));
  }
  if (tape_status(tape) != STATUS_OK) return false;
  if (keys.k == NULL || keys.v == NULL) return tape_fail(tape, STATUS_BAD_VALUE, "the exchange hands over no rows") == STATUS_OK;
  return take_tensor(parts, &rows[0], keys.k, &arrived->keys.k) && take_tensor(parts, &rows[0], keys.v, &arrived->keys.v) &&
         take_lost(parts, rows, exchange->lost_of_spans, keys.k->shape[0], arrived);
}

/* The others' rows of a block whose tokens every device computes itself. In training they are among this process's own. */
static bool finish_known(const Parts *parts, const BlockParams *block, Exchange *exchange, Arrived *arrived) {
  const BlockContext *context = parts->context;
  const TokenLayout *layout = context->layout;
  Tape *tape = parts->tape;
  Tensor *h;
  if (layout->self < 0)
    h = op_gather_rows(tape, joined(parts, member_h), layout->shared_row, layout->shared_rows);
  else if (context->known != NULL)
    h = block_norm(context, tape, context->known, block->norm1_weight, block->norm1_bias);
  else
    return tape_fail(tape, STATUS_BAD_VALUE, "the ids of the other devices' tokens are not given") == STATUS_OK;
  if (h == NULL || !block_status(tape, exchange->know(exchange, tape, layout, 0, NULL, h))) return false;
  arrived->keys = block_keys(context, block, tape, h);
  return arrived->keys.k != NULL && arrived->keys.v != NULL;
}

static bool finish_all(const Parts *parts, const BlockParams *block, int index, Arrived *arrived) {
  Exchange *exchange = exchange_of(parts->context, index);
  *arrived = (Arrived){.lost = NULL};
  if (parts->context->layout->remote == 0 || is_apart(parts->context, index)) return true;
  if (exchange == NULL)
    return tape_fail(parts->tape, STATUS_BAD_VALUE, "the layout has remote tokens but there is no exchange") == STATUS_OK;
  if (is_known(parts->context, index, exchange)) return finish_known(parts, block, exchange, arrived);
  for (int p = 0; p < parts->count; p++)
    if (!finish_part(parts, block, index, p, arrived)) return false;
  if (arrived->keys.k != NULL && arrived->keys.v != NULL) return true;
  return tape_fail(parts->tape, STATUS_BAD_VALUE, "the exchange hands over none of %lld rows", (long long)parts->context->layout->remote) ==
         STATUS_OK;
}

/* ---- a block */

/* What a block's attention looks at; whatever the rows that ask. */
typedef struct Seen {
  BlockKeys own;
  Arrived arrived;
} Seen;

/* Remote rows and own ones behind them, as one: a cache without codes keeps all tokens in full. */
static real *all_rows(Tape *tape, const Tensor *remote, const Tensor *own) {
  const int64_t before = tensor_count(remote), behind = tensor_count(own);
  real *rows = tape_alloc(tape, (size_t)(before + behind) * sizeof *rows);
  if (rows == NULL) return NULL;
  memcpy(rows, remote->value, (size_t)before * sizeof *rows);
  memcpy(rows + before, own->value, (size_t)behind * sizeof *rows);
  return rows;
}

/* Into the cache, for later tokens, where there is one. Of the others' tokens it keeps codes, or what was made of them: rows that travelled
 * in full have no place there. */
static bool keep(const BlockContext *context, Tape *tape, int index, const Seen *seen) {
  const BlockKeys own = seen->own;
  if (context->cache == NULL || tape_planning(tape)) return true;
  if (own.k == NULL || own.v == NULL) return false;
  if (context->layout->remote > 0 && context->exchange != NULL && context->exchange->whole_rows)
    return tape_fail(tape, STATUS_UNSUPPORTED, "rows of other devices in full have no place in the cache that decoding needs") == STATUS_OK;
  if (own.k->shape[0] != 1) return tape_fail(tape, STATUS_BAD_VALUE, "a cache holds one sequence, not a batch") == STATUS_OK;
  const Tensor *k = op_widen(tape, own.k), *v = op_widen(tape, own.v);
  if (k == NULL || v == NULL) return false;
  const int64_t remote = context->layout->remote;
  if (remote == 0 || context->cache->setup.sites > 0)
    return block_status(tape, kv_cache_store(context->cache, index, own.k->shape[1], k->value, v->value, seen->arrived.lost, remote));
  const Tensor *remote_k = op_widen(tape, seen->arrived.keys.k), *remote_v = op_widen(tape, seen->arrived.keys.v);
  if (remote_k == NULL || remote_v == NULL) return false;
  const real *keys = all_rows(tape, remote_k, k), *values = all_rows(tape, remote_v, v);
  if (keys == NULL || values == NULL) return false;
  return block_status(tape, kv_cache_store(context->cache, index, remote + k->shape[1], keys, values, seen->arrived.lost, remote));
}

/* Everything up to attention, of a block that has begun. Queries of the wanted rows, and at site x own keys and values, are computed while
 * codes are under way; rotary positions come after quantisation, so that one codeword serves them all. *any: rows are wanted; where none is
 * the codes are exchanged all the same, since the others wait for them. */
static bool see(const Parts *parts, const BlockParams *block, int index, const BlockWanted *wanted, bool any, Tensor **q, Seen *seen) {
  const BlockContext *context = parts->context;
  Tape *tape = parts->tape;
  Tensor *h = any ? joined(parts, member_h) : NULL;
  seen->own = (BlockKeys){NULL, NULL};
  *q = any ? block_map(context, tape, block_wanted_of(wanted, tape, h), &block->query) : NULL;
  if (any && keys_first(parts, index))
    seen->own = (BlockKeys){joined(parts, member_k), joined(parts, member_v)};
  else if (any)
    seen->own = block_keys(context, block, tape, h);
  if (!finish_all(parts, block, index, &seen->arrived) || !any) return false;
  *q = block_rotate(context, tape, *q, context->config->heads, wanted->token);
  seen->own.k = block_rotate(context, tape, seen->own.k, context->config->kv_heads, context->layout->row_token);
  seen->arrived.keys.k = block_rotate(context, tape, seen->arrived.keys.k, context->config->kv_heads, context->layout->remote_token);
  return keep(context, tape, index, seen);
}

/* Attention and what follows of the rows that ask. */
static Tensor *rest(const Parts *parts, const BlockParams *block, int index, const Seen *seen, Tensor *q, const BlockWanted *wanted,
                    Tensor *residual) {
  const BlockContext *context = parts->context;
  bool cached = context->cache != NULL && context->cache->rows > 0;
  Tensor *mixed = cached ? decode(context, block, index, parts->tape, q)
                         : block_attend(context, parts->tape, q, seen->own, seen->arrived.keys, seen->arrived.lost, wanted);
  return block_tail(context, block, index, parts->tape, mixed, residual);
}

/* A block that has begun, of the wanted rows in one piece; NULL, without a failure, where there are none. */
static Tensor *end_block(const Parts *parts, const BlockParams *block, int index, ModelRows rows) {
  const BlockWanted wanted = block_wanted(parts->context->layout, rows);
  Tensor *q;
  Seen seen;
  const bool any = wanted.count > 0;
  Tensor *residual = any ? block_wanted_of(&wanted, parts->tape, joined(parts, member_x)) : NULL;
  if (!see(parts, block, index, &wanted, any, &q, &seen)) return NULL;
  return rest(parts, block, index, &seen, q, &wanted, residual);
}

static Parts parts_of(const BlockContext *context, Tape *tape, int count, Part *part) {
  bool whole = context->exchange != NULL && context->exchange->whole_rows;
  int sites = whole ? config_whole_sites(context->config) : config_sites(context->config);
  return (Parts){.context = context, .tape = tape, .kv = sites == EXCHANGE_SITES, .count = count, .part = part};
}

/* Between the residual stream that comes in and the one that goes out activations are narrow, where the tape uses bf16. */
Tensor *block_forward(const BlockContext *context, const BlockParams *block, int index, ModelRows rows, Tape *tape, Tensor *x) {
  const bool before = tape_narrow(tape, true);
  Part part = {.rows = context->layout->rows, .x = x};
  const Parts parts = parts_of(context, tape, 1, &part);
  Tensor *y = begin_part(&parts, block, index, 0) ? end_block(&parts, block, index, rows) : NULL;
  tape_narrow(tape, before);
  return y;
}

/* ---- a block as a segment of the tape, so that its values need not be kept (autograd/tape.h): inputs and outputs are the rows and
 * what the exchange carries from block to block */

_Static_assert(1 + EXCHANGE_CARRIED == TAPE_SEGMENT_ENDS, "the rows, and what is carried");

typedef struct BlockRun {
  BlockContext context;
  const BlockParams *block;
  int index;
  ModelRows rows;
} BlockRun;

static Tensor **carried_by(const BlockContext *context) { return context->exchange ? context->exchange->carried : NULL; }

/* What is carried is exchanged for the segment's own while it runs. */
static void run(Tape *tape, void *data, Tensor *const *input, Tensor **output) {
  BlockRun *job = data;
  Tensor **carried = carried_by(&job->context), *before[EXCHANGE_CARRIED];
  for (int i = 0; carried && i < EXCHANGE_CARRIED; i++) before[i] = carried[i], carried[i] = input[1 + i];
  output[0] = block_forward(&job->context, job->block, job->index, job->rows, tape, input[0]);
  for (int i = 0; carried && i < EXCHANGE_CARRIED; i++) output[1 + i] = carried[i], carried[i] = before[i];
}

static Tensor *recompute_block(const BlockRun *block, Tape *tape, Tensor *x) {
  BlockRun *job = tape_alloc(tape, sizeof *job);
  Tensor **carried = carried_by(&block->context), *output[TAPE_SEGMENT_ENDS];
  if (job == NULL) return NULL;
  *job = *block;
  TapeSegment segment = {.run = run, .context = job, .input = {x}};
  for (int i = 0; carried && i < EXCHANGE_CARRIED; i++) segment.input[1 + i] = carried[i];
  tape_segment(tape, &segment, output);
  for (int i = 0; carried && i < EXCHANGE_CARRIED; i++) carried[i] = output[1 + i];
  return output[0];
}

/* ---- blocks in parts */

/* Block `index`, whose parts have begun: the x of each part becomes its output. `next` NULL: it is the last one that carries all rows. */
static bool advance(const Parts *parts, const BlockParams *block, const BlockParams *next, int index) {
  const BlockWanted all = block_wanted(parts->context->layout, MODEL_ROWS_ALL);
  Tensor *q;
  Seen seen;
  if (!see(parts, block, index, &all, true, &q, &seen) || q == NULL) return false;
  for (int p = 0; p < parts->count; p++) {
    Part *part = &parts->part[p];
    if (part->rows == 0) continue;
    const BlockWanted wanted = {.of_span = &part->rows, .part = true, .first = part->first, .count = part->rows};
    Tensor *x = rest(parts, block, index, &seen, view(parts->tape, q, part->first, part->rows), &wanted, part->x);
    if ((part->x = block_checked(parts->context, parts->tape, index, x)) == NULL) return false;
    if (next != NULL && !begin_part(parts, next, index + 1, p)) return false;
  }
  return true;
}

static bool cut(const Parts *parts, Tensor *x) {
  const TokenLayout *layout = parts->context->layout;
  if (x->shape[0] != 1 || layout->spans != 1 || layout->self < 0)
    return tape_fail(parts->tape, STATUS_BAD_VALUE, "%d parts of %lld samples: several parts are for one sample on a node", parts->count,
                     (long long)x->shape[0]) == STATUS_OK;
  for (int p = 0; p < parts->count; p++) {
    Part *part = &parts->part[p];
    int64_t first_shared, shared;
    *part = (Part){.x = NULL};
    layout_part(layout, parts->count, p, &part->first, &part->rows, &first_shared, &shared);
    part->x = view(parts->tape, x, part->first, part->rows);
    if (part->x == NULL) return false;
  }
  return true;
}

static Tensor *encode_in_parts(const BlockContext *context, const BlockParams *blocks, ModelRows rows, Tape *tape, Tensor *x) {
  const int cuts = context->exchange->parts, count = (int)context->config->blocks, last = count - 1;
  const int whole = rows == MODEL_ROWS_ALL ? count : last;
  Part *part = tape_alloc(tape, (size_t)cuts * sizeof *part);
  const Parts parts = parts_of(context, tape, cuts, part);
  if (x == NULL || part == NULL || !cut(&parts, x)) return NULL;
  for (int p = 0; p < cuts; p++)
    if (part[p].rows > 0 && !begin_part(&parts, &blocks[0], 0, p)) return NULL;
  for (int index = 0; index < whole; index++)
    if (!advance(&parts, &blocks[index], index < last ? &blocks[index + 1] : NULL, index)) return NULL;
  if (rows == MODEL_ROWS_ALL) return joined(&parts, member_x);
  return block_checked(context, tape, last, end_block(&parts, &blocks[last], last, rows));
}

/* ---- all blocks */

Tensor *block_encode_all(const BlockContext *context, const BlockParams *blocks, int recomputed, ModelRows rows, Tape *tape, Tensor *x) {
  const int count = (int)context->config->blocks;
  const bool decoding = context->cache != NULL && context->cache->rows > 0;
  const Exchange *exchange = exchange_of(context, 0);
  /* Parts are for the time spent waiting for others: a node alone, training and a step of decoding have none. */
  if (exchange != NULL && exchange->parts > 1 && !tape_recording(tape) && context->watch == NULL && context->outputs == NULL && !decoding) {
    const bool before = tape_narrow(tape, true); /* as in block_forward */
    x = encode_in_parts(context, blocks, rows, tape, x);
    tape_narrow(tape, before);
    return x;
  }
  for (int index = 0; index < count && x != NULL; index++) {
    const BlockRun whole = {*context, &blocks[index], index, index == count - 1 ? rows : MODEL_ROWS_ALL};
    const bool segment = index < recomputed || !tape_recording(tape);
    Tensor *y = segment ? recompute_block(&whole, tape, x) : block_forward(context, whole.block, index, whole.rows, tape, x);
    x = block_checked(context, tape, index, y);
    if (context->outputs != NULL && x != NULL && index < count - 1) context->outputs->take(context->outputs, tape, index, x);
  }
  return x;
}
