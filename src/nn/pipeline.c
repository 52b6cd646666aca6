/* Blocks in parts: see pipeline.h. For each block, where h are the rows after its first norm:
 *
 *   q, k, v of all rows (site kv: q alone)                    the parts' codes are under way
 *   for each part: finish, K and V of the remote rows that came into their place
 *   for each part: attention, output projection, MLP; then the next block's norm, and begin
 *
 * Rows of a part stand by themselves; where all are wanted in one piece (products that are faster on many rows) they are copied together,
 * which costs a thousandth of such a product. With one part nothing is copied. */
#include "nn/pipeline.h"
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
  Exchange *exchange; /* NULL: alone */
  bool kv;
  int count;
  Part *part; /* [count] */
} Parts;

/* K and V of a block's remote rows, as they come. */
typedef struct Arrived {
  BlockKeys keys;
  uint8_t *lost; /* [B, remote]; NULL as long as none is */
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

static bool begin_part(const Parts *parts, const BlockParams *block, int index, int p) {
  Part *part = &parts->part[p];
  Tensor *sites[BLOCK_SITES] = {NULL, NULL};
  part->h = block_norm(parts->context, parts->tape, part->x, block->norm1_weight, block->norm1_bias);
  if (part->h == NULL) return false;
  if (parts->kv) {
    BlockKeys keys = block_steps_keys(parts->context, block, parts->tape, part->h);
    sites[0] = part->k = keys.k, sites[1] = part->v = keys.v;
  } else {
    sites[0] = part->h;
  }
  if (tape_status(parts->tape) != STATUS_OK) return false;
  if (parts->exchange == NULL) return true;
  return block_steps_went_well(parts->tape, parts->exchange->parts->begin(parts->exchange, parts->tape, parts->context->layout, index, p,
                                                                          part->first, part->rows, sites));
}

/* ---- from the others */

static int64_t count_runs(const ExchangeRows *rows) {
  int64_t sum = 0;
  for (int64_t r = 0; r < rows->runs; r++) sum += rows->run[r].count;
  return sum;
}

/* One run after another, from the first remote row to the last: nothing to be moved. */
static bool all_in_place(const ExchangeRows *rows, int64_t remote) {
  int64_t next = 0;
  for (int64_t r = 0; r < rows->runs; r++) {
    if (rows->run[r].place != next) return false;
    next += rows->run[r].count;
  }
  return next == remote;
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
  int64_t remote = parts->context->layout->remote;
  if (from == NULL) return false;
  int64_t batch = from->shape[0], width = tensor_width(from);
  if (from->shape[1] != count_runs(rows))
    return tape_fail(parts->tape, STATUS_BAD_VALUE, "the exchange hands over %lld rows where %lld are counted", (long long)from->shape[1],
                     (long long)count_runs(rows)) == STATUS_OK;
  if (*to == NULL && all_in_place(rows, remote)) return (*to = from) != NULL;
  if (*to == NULL) *to = tape_tensor_like(parts->tape, from, 3, (int64_t[]){batch, remote, width});
  if (*to == NULL) return false;
  if (!tape_planning(parts->tape)) place_rows(rows, batch, remote, numbers_of(from), (size_t)width * number_size(from), numbers_of(*to));
  return true;
}

static bool take_lost(const Parts *parts, const ExchangeRows *rows, int64_t batch, Arrived *arrived) {
  size_t all = (size_t)(batch * parts->context->layout->remote);
  if (rows->lost == NULL || tape_planning(parts->tape)) return true;
  if (arrived->lost == NULL) {
    arrived->lost = tape_alloc(parts->tape, all);
    if (arrived->lost == NULL) return false;
    memset(arrived->lost, 0, all);
  }
  place_rows(rows, batch, parts->context->layout->remote, rows->lost, 1, arrived->lost);
  return true;
}

/* K and V of the rows of a part; the keys of the two sites at `kv` come as they are. */
static bool keys_of_rows(const Parts *parts, const BlockParams *block, const ExchangeRows rows[BLOCK_SITES], BlockKeys *keys) {
  if (parts->kv)
    *keys = (BlockKeys){rows[0].x, rows[1].x};
  else if (rows[0].x != NULL)
    *keys = block_steps_keys(parts->context, block, parts->tape, rows[0].x);
  else
    *keys = (BlockKeys){rows[0].k, rows[0].v};
  if (tape_status(parts->tape) != STATUS_OK) return false;
  if (keys->k != NULL && keys->v != NULL) return true;
  return tape_fail(parts->tape, STATUS_BAD_VALUE, "the exchange hands over no rows") == STATUS_OK;
}

static bool finish_part(const Parts *parts, const BlockParams *block, int index, int p, Arrived *arrived) {
  ExchangeRows rows[BLOCK_SITES] = {{.runs = 0}, {.runs = 0}};
  BlockKeys keys;
  int64_t remote = parts->context->layout->remote;
  Status status = parts->exchange->parts->finish(parts->exchange, parts->tape, parts->context->layout, index, p, rows);
  if (!block_steps_went_well(parts->tape, status)) return false;
  if (!runs_fit(parts->tape, &rows[0], remote)) return false;
  if (count_runs(&rows[0]) == 0) return true;
  if (!keys_of_rows(parts, block, rows, &keys)) return false;
  if (!take_tensor(parts, &rows[0], keys.k, &arrived->keys.k) || !take_tensor(parts, &rows[0], keys.v, &arrived->keys.v)) return false;
  const uint8_t *lost = rows[0].lost;
  if (parts->kv) lost = block_steps_lost_of_either(parts->tape, lost, rows[1].lost, keys.k->shape[0] * count_runs(&rows[0]));
  rows[0].lost = lost;
  return tape_status(parts->tape) == STATUS_OK && take_lost(parts, &rows[0], keys.k->shape[0], arrived);
}

static bool finish_all(const Parts *parts, const BlockParams *block, int index, Arrived *arrived) {
  *arrived = (Arrived){{NULL, NULL}, NULL};
  if (parts->context->layout->remote == 0) return true;
  if (parts->exchange == NULL)
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

/* q of the wanted rows is computed first, while codes are under way. *any: rows are wanted. */
static bool see(const Parts *parts, const BlockParams *block, int index, const BlockWanted *wanted, bool any, Tensor **q, Seen *seen) {
  const BlockContext *context = parts->context;
  Tape *tape = parts->tape;
  Tensor *h = any ? joined(parts, member_h) : NULL;
  seen->own = (BlockKeys){NULL, NULL};
  *q = any ? block_steps_map(context, tape, block_steps_wanted_of(wanted, tape, h), &block->query) : NULL;
  if (any && parts->kv) seen->own = (BlockKeys){joined(parts, member_k), joined(parts, member_v)};
  if (any && !parts->kv) seen->own = block_steps_keys(context, block, tape, h);
  if (!finish_all(parts, block, index, &seen->arrived) || !any) return false;
  *q = block_steps_rotate(context, tape, *q, context->config->heads, wanted->token);
  seen->own.k = block_steps_rotate(context, tape, seen->own.k, context->config->kv_heads, context->layout->row_token);
  seen->arrived.keys.k = block_steps_rotate(context, tape, seen->arrived.keys.k, context->config->kv_heads, context->layout->remote_token);
  return block_steps_keep(context, tape, index, seen->own, seen->arrived.lost);
}

static Tensor *mix(const Parts *parts, const Seen *seen, Tensor *q, const BlockWanted *wanted) {
  return block_steps_attend(parts->context, parts->tape, q, seen->own, seen->arrived.keys, seen->arrived.lost, wanted);
}

/* The rest of a block for one part of its rows: its x becomes the block's output. */
static bool advance_part(const Parts *parts, const BlockParams *block, int index, const Seen *seen, Tensor *q, int p) {
  Part *part = &parts->part[p];
  BlockWanted wanted;
  block_steps_wanted(parts->context->layout, MODEL_ROWS_ALL, &wanted);
  if (parts->count > 1) {
    wanted = (BlockWanted){.of_span = &part->rows, .part = true, .first = part->first, .count = part->rows};
    q = view(parts->tape, q, part->first, part->rows);
  }
  Tensor *x = block_steps_tail(parts->context, block, index, parts->tape, mix(parts, seen, q, &wanted), part->x);
  part->x = block_steps_checked(parts->context, parts->tape, index, x);
  return part->x != NULL;
}

/* Block `index`; `next` NULL: it is the last one that carries all rows. */
static bool advance(const Parts *parts, const BlockParams *block, const BlockParams *next, int index) {
  BlockWanted all;
  Tensor *q;
  Seen seen;
  block_steps_wanted(parts->context->layout, MODEL_ROWS_ALL, &all);
  if (!see(parts, block, index, &all, true, &q, &seen) || q == NULL) return false;
  for (int p = 0; p < parts->count; p++) {
    if (parts->part[p].rows == 0) continue;
    if (!advance_part(parts, block, index, &seen, q, p)) return false;
    if (next != NULL && !begin_part(parts, next, index + 1, p)) return false;
  }
  return true;
}

/* The last block, of a few rows in one piece. */
static Tensor *advance_wanted(const Parts *parts, const BlockParams *block, int index, ModelRows rows) {
  BlockWanted wanted;
  Tensor *q;
  Seen seen;
  block_steps_wanted(parts->context->layout, rows, &wanted);
  bool any = wanted.count > 0;
  Tensor *residual = any ? block_steps_wanted_of(&wanted, parts->tape, joined(parts, member_x)) : NULL;
  if (!see(parts, block, index, &wanted, any, &q, &seen)) return NULL;
  Tensor *x = block_steps_tail(parts->context, block, index, parts->tape, mix(parts, &seen, q, &wanted), residual);
  return block_steps_checked(parts->context, parts->tape, index, x);
}

/* ---- the whole */

static bool cut(Parts *parts, Tensor *x) {
  const TokenLayout *layout = parts->context->layout;
  if (parts->count < 1 || (parts->count > 1 && (x->shape[0] != 1 || layout->spans != 1 || layout->self < 0)))
    return tape_fail(parts->tape, STATUS_BAD_VALUE, "%d parts of %lld samples: several parts are for one sample on a node", parts->count,
                     (long long)x->shape[0]) == STATUS_OK;
  parts->part = tape_alloc(parts->tape, (size_t)parts->count * sizeof *parts->part);
  if (parts->part == NULL) return false;
  for (int p = 0; p < parts->count; p++) {
    Part *part = &parts->part[p];
    int64_t first_shared, shared;
    *part = (Part){.rows = layout->rows, .x = x};
    if (parts->count == 1) return true;
    layout_part(layout, parts->count, p, &part->first, &part->rows, &first_shared, &shared);
    part->x = view(parts->tape, x, part->first, part->rows);
    if (part->x == NULL) return false;
  }
  return true;
}

static bool start(Parts *parts, const BlockContext *context, Tape *tape, Tensor *x) {
  Exchange *exchange = block_steps_alone(context) ? NULL : context->exchange;
  *parts = (Parts){.context = context, .tape = tape, .exchange = exchange, .kv = block_steps_shares_keys(context), .count = 1};
  if (exchange != NULL) parts->count = exchange->parts->count(exchange, context->layout, x->shape[0]);
  return cut(parts, x);
}

static Tensor *encode(const BlockContext *context, const BlockParams *blocks, int count, ModelRows rows, Tape *tape, Tensor *x) {
  Parts parts;
  if (x == NULL || !start(&parts, context, tape, x)) return NULL;
  for (int p = 0; p < parts.count; p++)
    if (parts.part[p].rows > 0 && !begin_part(&parts, &blocks[0], 0, p)) return NULL;
  int whole = rows == MODEL_ROWS_ALL ? count : count - 1;
  for (int index = 0; index < whole; index++)
    if (!advance(&parts, &blocks[index], index + 1 < count ? &blocks[index + 1] : NULL, index)) return NULL;
  return rows == MODEL_ROWS_ALL ? joined(&parts, member_x) : advance_wanted(&parts, &blocks[count - 1], count - 1, rows);
}

Tensor *pipeline_encode(const BlockContext *context, const BlockParams *blocks, int count, ModelRows rows, Tape *tape, Tensor *x) {
  const bool before = tape_narrow(tape, true); /* as in block_forward */
  Tensor *y = encode(context, blocks, count, rows, tape, x);
  tape_narrow(tape, before);
  return y;
}
