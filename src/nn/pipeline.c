/* The order of a block's steps, whole or in parts. A node's rows are cut into S parts (layout_part), so that codes are under way while the
 * node still computes; a whole block takes the same steps with one part. For each block, where h are the rows after its first norm:
 *
 *   begin of each part: h; at site kv also k and v; its codes leave
 *   q, k, v of all rows (site kv: q alone)                    the parts' codes are under way
 *   for each part: finish, K and V of the remote rows that came into their place
 *   for each part: attention, output projection, MLP; then begin of the next block's part
 *
 * sim/schedule.c states the same for plans and simulations. Rows of a part stand by themselves; where all are wanted in one piece (products
 * that are faster on many rows) they are copied together, which costs a thousandth of such a product. With one part nothing is copied. */
#include "autograd/tape.h"
#include "nn/block_internal.h"
#include <string.h>

/* Of one part of the rows: tensors [B, rows, ...]. */
typedef struct Part {
  int64_t first, rows; /* of this process */
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

/* ---- rows in one piece and in parts */

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

/* A node without others has nobody to exchange with. */
static Exchange *exchange_of(const BlockContext *context) {
  return context->layout->devices == 1 && context->layout->self >= 0 ? NULL : context->exchange;
}

static bool begin_part(const Parts *parts, const BlockParams *block, int index, int p) {
  const BlockContext *context = parts->context;
  Part *part = &parts->part[p];
  Exchange *const told[] = {context->watch, exchange_of(context)};
  part->h = block_norm(context, parts->tape, part->x, block->norm1_weight, block->norm1_bias);
  if (part->h != NULL && parts->kv) {
    BlockKeys keys = block_keys(context, block, parts->tape, part->h);
    part->k = keys.k, part->v = keys.v;
  }
  if (tape_status(parts->tape) != STATUS_OK) return false;
  Tensor *const h[EXCHANGE_SITES] = {parts->kv ? part->k : part->h, parts->kv ? part->v : NULL};
  for (int i = 0; i < 2; i++)
    if (told[i] != NULL && !block_status(parts->tape, told[i]->begin(told[i], parts->tape, context->layout, index, p, h))) return false;
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

static bool runs_fit(Tape *tape, const ExchangeRows *rows, int64_t remote) {
  for (int64_t r = 0; r < rows->runs; r++)
    if (rows->run[r].place < 0 || rows->run[r].count < 0 || rows->run[r].count > remote - rows->run[r].place)
      return tape_fail(tape, STATUS_BAD_VALUE, "the exchange hands over rows from %lld on, of %lld", (long long)rows->run[r].place,
                       (long long)remote) == STATUS_OK;
  return true;
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
static bool take_lost(const Parts *parts, const ExchangeRows rows[EXCHANGE_SITES], int64_t batch, Arrived *arrived) {
  const TokenLayout *layout = parts->context->layout;
  const uint8_t *a = rows[0].lost, *b = parts->kv ? rows[1].lost : NULL, *lost = a != NULL ? a : b;
  bool of_spans = exchange_of(parts->context)->lost_of_spans;
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

/* K and V of the rows of a part; the keys of the two sites at `kv` come as they are. */
static bool keys_of_rows(const Parts *parts, const BlockParams *block, const ExchangeRows rows[EXCHANGE_SITES], BlockKeys *keys) {
  if (parts->kv)
    *keys = (BlockKeys){rows[0].x, rows[1].x};
  else if (rows[0].x != NULL)
    *keys = block_keys(parts->context, block, parts->tape, rows[0].x);
  else
    *keys = (BlockKeys){rows[0].k, rows[0].v};
  if (tape_status(parts->tape) != STATUS_OK) return false;
  if (keys->k != NULL && keys->v != NULL) return true;
  return tape_fail(parts->tape, STATUS_BAD_VALUE, "the exchange hands over no rows") == STATUS_OK;
}

static bool finish_part(const Parts *parts, const BlockParams *block, int index, int p, Arrived *arrived) {
  const TokenLayout *layout = parts->context->layout;
  Exchange *exchange = exchange_of(parts->context);
  ExchangeRows rows[EXCHANGE_SITES] = {{.runs = 0}, {.runs = 0}};
  BlockKeys keys;
  if (!block_status(parts->tape, exchange->finish(exchange, parts->tape, layout, index, p, rows))) return false;
  if (!runs_fit(parts->tape, &rows[0], layout->remote)) return false;
  if (rows[0].run != NULL && count_runs(&rows[0]) == 0) return true;
  return keys_of_rows(parts, block, rows, &keys) && take_tensor(parts, &rows[0], keys.k, &arrived->keys.k) &&
         take_tensor(parts, &rows[0], keys.v, &arrived->keys.v) && take_lost(parts, rows, keys.k->shape[0], arrived);
}

static bool finish_all(const Parts *parts, const BlockParams *block, int index, Arrived *arrived) {
  *arrived = (Arrived){.lost = NULL};
  if (parts->context->layout->remote == 0) return true;
  if (exchange_of(parts->context) == NULL)
    return tape_fail(parts->tape, STATUS_BAD_VALUE, "the layout has remote tokens but there is no exchange") == STATUS_OK;
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

/* Into the cache, for later tokens, where there is one. Of the others' tokens a cache keeps codes: rows in full have no place there. */
static bool keep(const BlockContext *context, Tape *tape, int index, const Seen *seen) {
  const BlockKeys own = seen->own;
  if (context->cache == NULL || tape_planning(tape)) return true;
  if (own.k == NULL || own.v == NULL) return false;
  if (context->layout->remote > 0 && context->exchange != NULL && context->exchange->whole_rows)
    return tape_fail(tape, STATUS_UNSUPPORTED, "rows of other devices in full have no place in the cache that decoding needs") == STATUS_OK;
  if (own.k->shape[0] != 1) return tape_fail(tape, STATUS_BAD_VALUE, "a cache holds one sequence, not a batch") == STATUS_OK;
  const Tensor *k = op_widen(tape, own.k), *v = op_widen(tape, own.v);
  if (k == NULL || v == NULL) return false;
  return block_status(tape, kv_cache_store(context->cache, index, own.k->shape[1], k->value, v->value, seen->arrived.lost));
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
  if (any && parts->kv) seen->own = (BlockKeys){joined(parts, member_k), joined(parts, member_v)};
  if (any && !parts->kv) seen->own = block_keys(context, block, tape, h);
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
  Tensor *mixed = cached ? block_decode(context, block, index, parts->tape, q)
                         : block_attend(context, parts->tape, q, seen->own, seen->arrived.keys, seen->arrived.lost, wanted);
  return block_tail(context, block, index, parts->tape, mixed, residual);
}

/* A block that has begun, of the wanted rows in one piece; NULL, without a failure, where there are none. */
static Tensor *end_block(const Parts *parts, const BlockParams *block, int index, ModelRows rows) {
  BlockWanted wanted;
  Tensor *q;
  Seen seen;
  block_wanted(parts->context->layout, rows, &wanted);
  bool any = wanted.count > 0;
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
  Tensor **carried = carried_by(&job->context), *before = carried ? *carried : NULL;
  if (carried) *carried = input[1];
  output[0] = block_forward(&job->context, job->block, job->index, job->rows, tape, input[0]);
  if (!carried) return;
  output[1] = *carried;
  *carried = before;
}

static Tensor *recompute_block(const BlockContext *context, const BlockParams *block, int index, ModelRows rows, Tape *tape, Tensor *x) {
  BlockRun *job = tape_alloc(tape, sizeof *job);
  Tensor **carried = carried_by(context), *output[TAPE_SEGMENT_ENDS];
  if (job == NULL) return NULL;
  *job = (BlockRun){*context, block, index, rows};
  tape_segment(tape, &(TapeSegment){.run = run, .context = job, .input = {x, carried ? *carried : NULL}}, output);
  if (carried) *carried = output[1];
  return output[0];
}

/* ---- blocks in parts */

/* The rest of a block for one part of its rows: its x becomes the block's output. */
static bool advance_part(const Parts *parts, const BlockParams *block, int index, const Seen *seen, Tensor *q, int p) {
  Part *part = &parts->part[p];
  const BlockWanted wanted = {.of_span = &part->rows, .part = true, .first = part->first, .count = part->rows};
  Tensor *x = rest(parts, block, index, seen, view(parts->tape, q, part->first, part->rows), &wanted, part->x);
  part->x = block_checked(parts->context, parts->tape, index, x);
  return part->x != NULL;
}

/* Block `index`; `next` NULL: it is the last one that carries all rows. */
static bool advance(const Parts *parts, const BlockParams *block, const BlockParams *next, int index) {
  BlockWanted all;
  Tensor *q;
  Seen seen;
  block_wanted(parts->context->layout, MODEL_ROWS_ALL, &all);
  if (!see(parts, block, index, &all, true, &q, &seen) || q == NULL) return false;
  for (int p = 0; p < parts->count; p++) {
    if (parts->part[p].rows == 0) continue;
    if (!advance_part(parts, block, index, &seen, q, p)) return false;
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

static Tensor *encode(const Parts *parts, const BlockParams *blocks, int count, ModelRows rows) {
  const int last = count - 1, whole = rows == MODEL_ROWS_ALL ? count : last;
  for (int p = 0; p < parts->count; p++)
    if (parts->part[p].rows > 0 && !begin_part(parts, &blocks[0], 0, p)) return NULL;
  for (int index = 0; index < whole; index++)
    if (!advance(parts, &blocks[index], index < last ? &blocks[index + 1] : NULL, index)) return NULL;
  if (rows == MODEL_ROWS_ALL) return joined(parts, member_x);
  return block_checked(parts->context, parts->tape, last, end_block(parts, &blocks[last], last, rows));
}

static Tensor *encode_in_parts(const BlockContext *context, const BlockParams *blocks, int count, ModelRows rows, Tape *tape, Tensor *x) {
  const bool before = tape_narrow(tape, true); /* as in block_forward */
  const int cuts = context->exchange->parts;
  Part *part = tape_alloc(tape, (size_t)cuts * sizeof *part);
  const Parts parts = parts_of(context, tape, cuts, part);
  Tensor *y = x != NULL && part != NULL && cut(&parts, x) ? encode(&parts, blocks, count, rows) : NULL;
  tape_narrow(tape, before);
  return y;
}

/* ---- all blocks */

/* Parts are a matter of waiting for others: not of a node alone, of training, nor of a step of decoding. */
static bool in_parts(const BlockContext *context, const Tape *tape) {
  bool decoding = context->cache != NULL && context->cache->rows > 0;
  const Exchange *exchange = exchange_of(context);
  return exchange != NULL && exchange->parts > 1 && !tape_recording(tape) && context->watch == NULL && !decoding;
}

Tensor *pipeline_encode(const BlockContext *context, const BlockParams *blocks, int recomputed, ModelRows rows, Tape *tape, Tensor *x) {
  const int count = (int)context->config->blocks;
  if (in_parts(context, tape)) return encode_in_parts(context, blocks, count, rows, tape, x);
  for (int index = 0; index < count && x != NULL; index++) {
    const ModelRows carried = index == count - 1 ? rows : MODEL_ROWS_ALL;
    const bool segment = index < recomputed || !tape_recording(tape);
    Tensor *y = segment ? recompute_block(context, &blocks[index], index, carried, tape, x)
                        : block_forward(context, &blocks[index], index, carried, tape, x);
    x = block_checked(context, tape, index, y);
  }
  return x;
}
