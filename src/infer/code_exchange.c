/* Codes between nodes: contents of packets, partners, and memory. The transport moves the packets. */
#include "infer/code_exchange.h"
#include "autograd/ops/ops.h"
#include "base/clock.h"
#include "infer/transport/packet.h"
#include "vq/pack.h"
#include "vq/rans.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROW_NUMBER = 4 /* bytes */ };

static int parts_of(const CodeExchangeSetup *setup) { return setup->parts > 1 ? setup->parts : 1; }
static int64_t shared_of(const TokenLayout *layout, int span) {
  return span < layout->devices ? layout->device_shared[span + 1] - layout->device_shared[span] : 0;
}
static int64_t max_of(const CodeExchangeSetup *setup, int node) {
  return setup->batch_max * (setup->tokens_max ? setup->tokens_max : shared_of(setup->layout, node));
}
static int64_t max_of_any(const CodeExchangeSetup *setup) {
  int64_t max = 0;
  for (int d = 0; d < setup->nodes; d++) max = max_of(setup, d) > max ? max_of(setup, d) : max;
  return max;
}
/* Tokens that a node has of the others at most. */
static size_t max_of_others(const CodeExchangeSetup *setup) {
  size_t sum = 0;
  if (setup->tokens_max) return (size_t)max_of(setup, setup->self);
  for (int d = 0; d < setup->nodes; d++) sum += d != setup->self ? (size_t)max_of(setup, d) : 0;
  return sum;
}
static bool has(uint64_t peers, int peer) { return peers >> peer & 1; }
static int node_of(const CodeExchange *ex, int span) { return (ex->request.first + span) % ex->setup.nodes; }
static int span_of(const CodeExchange *ex, int node) { return (node - ex->request.first + ex->setup.nodes) % ex->setup.nodes; }

/* Each packet of a message ends with a whole byte. */
static size_t payload_max(const CodeExchangeSetup *setup, int64_t tokens) {
  if (setup->whole_rows) return (size_t)tokens * (size_t)setup->width * 4;
  return pack_dense_bytes(tokens, setup->books[0].groups, setup->books[0].entries) + (size_t)(tokens < MAX_PACKETS ? tokens : MAX_PACKETS);
}

CodeExchangeSetup code_exchange_setup_of(const ModelConfig *config, bool whole) {
  return (CodeExchangeSetup){.blocks = whole ? (int)config->blocks : config_end_coded(config) - config_first_coded(config),
                             .first = whole ? 0 : config_first_coded(config),
                             .sites = whole ? config_whole_sites(config) : config_sites(config),
                             .whole_rows = whole,
                             .width = config_whole_width(config),
                             .known_width = whole ? 0 : config_known_width(config)};
}

void code_exchange_transport(const CodeExchangeSetup *setup, TransportSetup *transport) {
  int64_t max = max_of_any(setup);
  transport->self = setup->self;
  transport->nodes = setup->nodes;
  transport->blocks = setup->blocks;
  transport->sites = setup->sites;
  transport->parts = parts_of(setup);
  transport->max_message_bytes = payload_max(setup, max);
  transport->max_packets = (int)(max < MAX_PACKETS ? max : MAX_PACKETS);
  transport->ahead = setup->tokens_max > 0;
}

/* The model's block is on the wire: */
static uint8_t wire_block(const CodeExchange *ex, int block) { return (uint8_t)(block - ex->setup.first); }

static MessageKey key_of(const CodeExchange *ex, int block, int site, int part) {
  return (MessageKey){.request = ex->request.number, .block = wire_block(ex, block), .site = (uint8_t)site, .part = (uint8_t)part};
}

static int set_at(const CodeExchange *ex, int block, int site) { return wire_block(ex, block) * ex->setup.sites + site; }
static const Codebook *book_at(const CodeExchange *ex, int block, int site) { return &ex->setup.books[set_at(ex, block, site)]; }
static const PacketRules *rules_of(const CodeExchange *ex) { return &ex->rules[ex->request.number & 1]; }

/* Of each group. */
static const RansTable *coding_at(const CodeExchange *ex, int block, int site) {
  return ex->setup.coding + set_at(ex, block, site) * ex->setup.books[0].groups;
}

/* ---- messages that are sent ---- */

typedef struct PartPlace {
  int64_t first, rows;          /* of the process's rows */
  int64_t first_shared, shared; /* among those that are shared */
} PartPlace;

/* Codes as answers to the leader carry them: each token's packed by itself, [B, own]. */
static void keep(CodeExchange *ex, const TokenLayout *layout, const PartPlace *at, int block, int site) {
  const Codebook *book = book_at(ex, block, site);
  int64_t own = layout->shared_rows, batch = ex->request.batch;
  uint8_t *set = ex->kept + (size_t)set_at(ex, block, site) * (size_t)(batch * own) * ex->token_bytes;
  for (int64_t b = 0; b < batch; b++)
    pack_codes(ex->codes + b * at->shared * book->groups, at->shared, book->groups, book->entries,
               set + (size_t)(b * own + at->first_shared) * ex->token_bytes);
}

/* Codes [tokens, G] in the order of packets; `back`: from there. */
static void reorder(const CodeExchange *ex, int64_t tokens, int packets, bool back) {
  size_t groups = (size_t)ex->setup.books[0].groups;
  int32_t *ordered = ex->ordered;
  for (int f = 0; f < packets; f++) {
    int64_t count = interleave_count(tokens, packets, f);
    for (int64_t i = 0; i < count; i++, ordered += groups) {
      int32_t *token = ex->codes + (size_t)interleave_token(packets, f, i) * groups;
      memcpy(back ? token : ordered, back ? ordered : token, groups * sizeof *token);
    }
  }
}

/* Codes in the order of packets, each packet's entropy-coded where that is shorter. */
static void fill_packets(CodeExchange *ex, CodeMessage *message, const Packet *of, int64_t tokens) {
  const Codebook *book = &ex->setup.books[0];
  const int32_t *codes = ex->ordered;
  uint8_t *bytes = message->bytes;
  uint64_t receivers = (uint64_t)__builtin_popcountll(ex->receivers);
  for (int f = 0; f < of->count; f++) {
    int64_t count = interleave_count(tokens, of->count, f);
    size_t packed = pack_dense_bytes(count, book->groups, book->entries), coded = 0;
    TransportPacket *packet = &message->packets[f];
    if (ex->setup.coding)
      coded = rans_encode(coding_at(ex, ex->setup.first + of->block, of->site), codes, count, book->groups, bytes, packed - 1);
    if (coded == 0) pack_dense(codes, count, book->groups, book->entries, bytes);
    *packet = (TransportPacket){.header = *of, .payload = bytes, .bytes = coded > 0 ? coded : packed};
    packet->header.index = (uint16_t)f;
    if (coded > 0) packet->header.flags |= PACKET_CODED;
    codes += count * book->groups;
    bytes += packet->bytes;
    ex->statistics.coded_bits += 8 * packet->bytes * receivers;
    ex->statistics.packed_bits += 8 * packed * receivers;
  }
}

/* Rows of tokens, as they are. */
static void fill_rows(const CodeExchange *ex, const TokenLayout *layout, const PartPlace *at, const Tensor *h, CodeMessage *message,
                      const Packet *of) {
  enum { PIECE = 256 };
  int64_t width = tensor_width(h), rows = h->shape[1], tokens = ex->request.batch * at->shared;
  uint8_t *bytes = message->bytes;
  real piece[PIECE];
  for (int f = 0; f < of->count; f++) {
    int64_t count = interleave_count(tokens, of->count, f);
    message->packets[f] = (TransportPacket){.header = *of, .payload = bytes, .bytes = (size_t)(count * width) * ROW_NUMBER};
    message->packets[f].header.index = (uint16_t)f;
    for (int64_t i = 0; i < count; i++, bytes += width * ROW_NUMBER) {
      int64_t token = interleave_token(of->count, f, i), row = layout->shared_row[at->first_shared + token % at->shared] - at->first;
      for (int64_t first = 0; first < width; first += PIECE) {
        const int64_t numbers = width - first < PIECE ? width - first : PIECE;
        tensor_read(h, (token / at->shared * rows + row) * width + first, numbers, piece);
        wire_pack_reals(piece, (size_t)numbers, bytes + first * ROW_NUMBER);
      }
    }
  }
}

/* ---- predictions: both sides know the rows of the block before as receivers have them, and what is expected of the next ones */

/* Something is expected of the tokens of the block at work. */
static bool expects(const CodeExchange *ex, int site) { return ex->exchange.predict_weight[site] != NULL; }

/* P numbers of each known row [tokens, known_width] -> `before`. */
static void copy_known(const CodeExchange *ex, const real *known, int64_t tokens, int64_t inputs, real *before) {
  for (int64_t i = 0; i < tokens; i++) memcpy(before + i * inputs, known + i * ex->setup.known_width, (size_t)inputs * sizeof *known);
}

/* Rows of the block before [1, tokens, P] -> what is expected now of a site. */
static Tensor *expected_of(const CodeExchange *ex, Tape *tape, int site, Tensor *before) {
  const Exchange *exchange = &ex->exchange;
  return op_widen(tape, op_linear(tape, before, exchange->predict_weight[site], exchange->predict_bias[site], ACTIVATION_NONE, NULL));
}

/* For them, where something is expected. */
static Tensor *make_before(const CodeExchange *ex, Tape *tape, int site, int64_t tokens) {
  return tape_tensor(tape, 3, (int64_t[]){1, tokens, ex->exchange.predict_weight[site]->shape[1]});
}

/* What is expected takes a lost token's place in attention, too, which about halves what lost packets cost (docs/results/loss.md). Of an
 * image's first block that is the mean at its position, which its codes are relative to. */
static bool stands_in(const CodeExchange *ex) { return ex->remote != NULL; }

static void add_to(real *to, const real *from, int64_t count, real factor) {
  for (int64_t i = 0; i < count; i++) to[i] += factor * from[i];
}

/* A site's rows as receivers have them [tokens, W] -> known [tokens, known_width]: a token's sites go there side by side, once all are
 * there, since each is expected of the block before. Until then they stay in pending [tokens, W]. */
static void remember(const CodeExchange *ex, int site, const real *rows, int64_t tokens, real *pending, real *known) {
  const size_t width = (size_t)ex->setup.books[0].width, row = width * sizeof *rows;
  if (site + 1 < ex->setup.sites) {
    memcpy(pending, rows, (size_t)tokens * row);
    return;
  }
  for (size_t i = 0; i < (size_t)tokens; i++) {
    real *to = known + i * (size_t)ex->setup.known_width;
    if (site > 0) memcpy(to, pending + i * width, row);
    memcpy(to + (size_t)site * width, rows + i * width, row);
  }
}

/* Codes of the gathered rows [tokens, W], of which those of one sample begin with the shared row `first`. */
static Status assign(CodeExchange *ex, Tape *tape, int block, int site, int64_t first, int64_t tokens) {
  const Codebook *book = book_at(ex, block, site);
  real *own = ex->own ? ex->own + first * ex->setup.known_width : NULL; /* several samples are one part, and begin with 0 */
  const int64_t numbers = tokens * book->width;
  const Tensor *expected = NULL;
  if (own && expects(ex, site)) {
    Tensor *before = make_before(ex, tape, site, tokens);
    if (before) copy_known(ex, own, tokens, tensor_width(before), before->value);
    if (!before || !(expected = expected_of(ex, tape, site, before))) return tape_status(tape);
    add_to(ex->gathered, expected->value, numbers, -1);
  }
  codebook_assign(book, ex->gathered, tokens, ex->codes, NULL, ex->scratch);
  if (!own) return STATUS_OK;
  codebook_lookup(book, ex->codes, tokens, ex->gathered);
  if (expected) add_to(ex->gathered, expected->value, numbers, 1);
  remember(ex, site, ex->gathered, tokens, ex->pending, own);
  return STATUS_OK;
}

/* rows->x [B, R, W], codewords, becomes the tokens themselves, of which what was lost is as expected. lost [B, R]. */
static Status complete(const CodeExchange *ex, Tape *tape, const TokenLayout *layout, int site, const ExchangeRows *rows,
                       const uint8_t *lost) {
  const int64_t count = rows->x->shape[1], width = tensor_width(rows->x), all = layout->remote, known = ex->setup.known_width;
  const Tensor *expected = NULL;
  Tensor *before = expects(ex, site) ? make_before(ex, tape, site, ex->request.batch * count) : NULL;
  int64_t row = 0;
  for (int64_t b = 0; before && b < ex->request.batch; b++)
    for (int64_t r = 0; r < rows->runs; row += rows->run[r++].count)
      copy_known(ex, ex->remote + (b * all + rows->run[r].place) * known, rows->run[r].count, tensor_width(before),
                 before->value + row * tensor_width(before));
  if (before) expected = expected_of(ex, tape, site, before);
  if (expects(ex, site) && !expected) return tape_status(tape);
  for (row = 0; row < ex->request.batch * count; row++)
    if (lost[row]) memset(rows->x->value + row * width, 0, (size_t)width * sizeof(real));
  if (expected) add_to(rows->x->value, expected->value, ex->request.batch * count * width, 1);
  row = 0;
  for (int64_t b = 0; b < ex->request.batch; b++)
    for (int64_t r = 0; r < rows->runs; row += rows->run[r++].count)
      remember(ex, site, rows->x->value + row * width, rows->run[r].count, ex->pending + row * width,
               ex->remote + (b * all + rows->run[r].place) * known);
  return STATUS_OK;
}

/* Rows [B, rows, D] that all devices know in full. shared: which rows of each sample, [count]; NULL: all of them. */
static void know_rows(const CodeExchange *ex, const Tensor *h, const int32_t *shared, int64_t first, int64_t count, real *known) {
  const int64_t width = tensor_width(h);
  for (int64_t b = 0; b < h->shape[0]; b++)
    for (int64_t i = 0; i < count; i++) {
      const int64_t row = shared ? shared[i] - first : i;
      tensor_read(h, (b * h->shape[1] + row) * width, width, known + (b * count + i) * ex->setup.known_width);
    }
}

static Status know(Exchange *self, Tape *tape, const TokenLayout *layout, int part, Tensor *own, Tensor *remote) {
  const CodeExchange *ex = (CodeExchange *)self;
  if (own) {
    PartPlace at;
    layout_part(layout, ex->exchange.parts, part, &at.first, &at.rows, &at.first_shared, &at.shared);
    if (ex->progress && part == 0) ex->progress(ex->progress_context, 0);
    know_rows(ex, own, layout->shared_row + at.first_shared, at.first, at.shared, ex->own + at.first_shared * ex->setup.known_width);
  }
  if (remote) know_rows(ex, remote, NULL, 0, layout->remote, ex->remote);
  return tape_status(tape);
}

Status code_exchange_encode_part(CodeExchange *ex, Tape *tape, const TokenLayout *layout, int block, int site, int part, const Tensor *h,
                                 const TransportPacket **packets, int *count) {
  /* The message's memory is free again `ring` blocks later. */
  uint64_t sequence = (uint64_t)(ex->request.number - 1) * (uint64_t)ex->setup.blocks + wire_block(ex, block);
  CodeMessage *message = &ex->messages[((int)(sequence % (uint64_t)ex->ring) * ex->setup.sites + site) * parts_of(&ex->setup) + part];
  PartPlace at;
  layout_part(layout, ex->exchange.parts, part, &at.first, &at.rows, &at.first_shared, &at.shared);
  if (h->shape[0] != ex->request.batch)
    return status_set(STATUS_BAD_VALUE, "a batch of %lld in a request of %lld", (long long)h->shape[0], (long long)ex->request.batch);
  if (h->shape[1] != at.rows)
    return status_set(STATUS_BAD_VALUE, "part %d of %d of block %d has %lld rows, not %lld", part, ex->exchange.parts, block,
                      (long long)at.rows, (long long)h->shape[1]);
  int64_t tokens = ex->request.batch * at.shared;
  *packets = message->packets;
  *count = 0;
  if (tokens == 0) return STATUS_OK;
  size_t max = ex->setup.transport ? transport_thread_max_packet(ex->setup.transport) : ex->setup.max_packet;
  int min = interleave_min(ex->setup.min_packets, ex->exchange.parts);
  int needed = interleave_packets(tokens, ex->token_bits, max, min > 1 ? min : 1);
  if (needed == 0 || needed > ex->max_packets) needed = ex->max_packets; /* larger ones: the backend must cut them */
  *count = needed < tokens ? needed : (int)tokens;
  Packet of = {.request = ex->request.number,
               .block = wire_block(ex, block),
               .site = (uint8_t)site,
               .part = (uint8_t)part,
               .type = ex->setup.whole_rows ? PACKET_RAW : PACKET_CODES,
               .count = (uint16_t)*count};
  if (ex->setup.whole_rows) {
    fill_rows(ex, layout, &at, h, message, &of);
    return STATUS_OK;
  }
  const int64_t width = tensor_width(h);
  for (int64_t i = 0; i < tokens; i++) { /* the part's shared rows of every sample, together: [B, shared, W] */
    int64_t row = layout->shared_row[at.first_shared + i % at.shared] - at.first;
    tensor_read(h, (i / at.shared * at.rows + row) * width, width, ex->gathered + i * width);
  }
  TRY(assign(ex, tape, block, site, at.first_shared, tokens));
  if (ex->request.keep) keep(ex, layout, &at, block, site);
  reorder(ex, tokens, *count, false);
  fill_packets(ex, message, &of, tokens);
  return STATUS_OK;
}

/* ---- messages that are received ---- */

/* A node's share of the rows of a part: [B, rows] of which `rows` stand from `offset` on in each sample. */
typedef struct PeerRows {
  int node;
  int64_t rows, offset, remote;
  uint8_t *lost; /* [B, remote] */
} PeerRows;

/* Where a token of the peer is among those of all. */
static int64_t row_of(const PeerRows *peer, int64_t token) { return token / peer->rows * peer->remote + peer->offset + token % peer->rows; }

static void mask(CodeExchange *ex, const PeerRows *peer, int64_t token) {
  uint8_t *mark = &peer->lost[row_of(peer, token)];
  ex->statistics.masked += !*mark;
  *mark = 1;
}

/* Codes in the order of packets, then of tokens; missing ones become code 0, which is not used. */
static Status unpack(CodeExchange *ex, const PeerRows *peer, const TransportArrival *arrival, int block, int site) {
  const Codebook *book = &ex->setup.books[0];
  int64_t tokens = ex->request.batch * peer->rows;
  int32_t *codes = ex->ordered;
  for (int f = 0; f < arrival->count; f++) {
    const TransportPacket *packet = &arrival->packets[f];
    int64_t count = interleave_count(tokens, arrival->count, f);
    Status status = STATUS_OK;
    if (!packet->payload) {
      memset(codes, 0, (size_t)(count * book->groups) * sizeof *codes);
      for (int64_t i = 0; i < count; i++) mask(ex, peer, interleave_token(arrival->count, f, i));
    } else if (packet->header.flags & PACKET_CODED) {
      status = rans_decode(coding_at(ex, block, site), count, book->groups, packet->payload, packet->bytes, codes);
    } else {
      status = pack_dense_unpack(packet->payload, count, book->groups, book->entries, codes);
    }
    if (status != STATUS_OK) {
      ex->fault = peer->node;
      return status_wrap(STATUS_BAD_VALUE, "node %d: block %d", peer->node, block);
    }
    codes += count * book->groups;
  }
  reorder(ex, tokens, arrival->count, true);
  return STATUS_OK;
}

/* Codes of one peer -> its rows, or their keys and values. */
static void look_up(const CodeExchange *ex, const PeerRows *peer, int block, int site, ExchangeRows *rows) {
  const Codebook *book = book_at(ex, block, site);
  for (int64_t b = 0; b < ex->request.batch; b++) {
    const int32_t *codes = ex->codes + b * peer->rows * book->groups;
    int64_t row = b * peer->remote + peer->offset;
    if (rows->x) {
      codebook_lookup(book, codes, peer->rows, rows->x->value + row * book->width);
      continue;
    }
    int64_t width = tensor_width(rows->k);
    kv_tables_sum(ex->setup.keys, block, codes, peer->rows, rows->k->value + row * width, width, rows->v->value + row * width, width);
  }
}

/* Rows in full: a missing one cannot be replaced. */
static Status take_rows(CodeExchange *ex, const PeerRows *peer, const TransportArrival *arrival, int block, Tensor *x) {
  int64_t width = tensor_width(x);
  ex->fault = peer->node;
  if (arrival->count == 0 || arrival->missing > 0)
    return status_set(STATUS_PEER, "node %d: block %d: is gone, and nothing can take the place of its rows", peer->node, block);
  for (int f = 0; f < arrival->count; f++) {
    int64_t count = interleave_count(ex->request.batch * peer->rows, arrival->count, f);
    for (int64_t i = 0; i < count; i++) {
      int64_t token = interleave_token(arrival->count, f, i);
      real *row = x->value + row_of(peer, token) * width;
      wire_parse_reals(arrival->packets[f].payload + i * width * ROW_NUMBER, (size_t)width, row);
      for (int64_t w = 0; w < width; w++)
        if (!isfinite(row[w]))
          return status_set(STATUS_BAD_VALUE, "node %d: block %d: sent a number that is not finite", peer->node, block);
    }
  }
  ex->fault = -1;
  return STATUS_OK;
}

/* The loss model counts packets: here each token is one, with its codes of all sites, which are taken in turn. */
static bool loses(CodeExchange *ex, const PeerRows *peer, int site, int64_t token) {
  uint8_t *lost = &ex->lost[row_of(peer, token)];
  if (site == 0) *lost = link_model_loses(&ex->losers[peer->node]);
  return *lost;
}

static Status take_codes(CodeExchange *ex, const PeerRows *peer, const TransportArrival *arrival, int block, int site, int64_t place,
                         ExchangeRows *rows) {
  if (ex->setup.whole_rows) return take_rows(ex, peer, arrival, block, rows->x);
  const Codebook *book = book_at(ex, block, site);
  const int64_t tokens = ex->request.batch * peer->rows;
  if (arrival->count) {
    TRY(unpack(ex, peer, arrival, block, site));
  } else {
    memset(ex->codes, 0, (size_t)(tokens * book->groups) * sizeof *ex->codes);
    for (int64_t i = 0; i < tokens; i++) mask(ex, peer, i);
  }
  for (int64_t i = 0; ex->losers && i < tokens; i++)
    if (loses(ex, peer, site, i)) mask(ex, peer, i);
  double start = clock_now();
  look_up(ex, peer, block, site, rows);
  if (rows->k) ex->statistics.tables += clock_now() - start;
  if (!ex->heard) return STATUS_OK;
  pack_codes(ex->codes, peer->rows, book->groups, book->entries, ex->aligned);
  ex->heard(ex->heard_context, block, site, place, peer->rows, ex->aligned);
  return STATUS_OK;
}

/* Where rows of a span begin in the remote sequence of this one. */
static int64_t remote_begin(const TokenLayout *layout, int span) {
  return layout->device_shared[span] - (span > layout->self ? layout->shared_rows : 0);
}

/* Nodes that send something of this part (bits). */
static uint64_t part_senders(const CodeExchange *ex, int part) {
  const PacketRules *rules = rules_of(ex);
  uint64_t senders = 0;
  for (int d = 0; d < ex->setup.nodes; d++) {
    if (has(ex->senders, d) && rules->part_rows[d * rules->parts + part] > 0) senders |= (uint64_t)1 << d;
  }
  return senders;
}

/* Tensors of rows [B, R, W], or of keys and values where the block has tables of them; runs, and marks of lost rows. */
static Status make_rows(const CodeExchange *ex, Tape *tape, int block, int site, int part, int64_t *remote, ExchangeRows *rows,
                        ExchangeRun **runs, uint8_t **lost) {
  const PacketRules *rules = rules_of(ex);
  uint64_t senders = part_senders(ex, part);
  *rows = (ExchangeRows){.runs = __builtin_popcountll(senders)};
  *remote = 0;
  for (int d = 0; d < ex->setup.nodes; d++) *remote += senders >> d & 1 ? rules->part_rows[d * rules->parts + part] : 0;
  size_t marks = (size_t)(ex->request.batch * *remote);
  *runs = tape_alloc(tape, (size_t)(rows->runs + 1) * sizeof **runs);
  *lost = tape_alloc(tape, marks + 1);
  const KvTables *keys = ex->setup.keys;
  bool whole = ex->setup.whole_rows, ready = !whole && keys && kv_tables_has(keys, block);
  int64_t width = whole ? ex->setup.width : ready ? kv_tables_width(keys) : book_at(ex, block, site)->width;
  const int64_t shape[3] = {ex->request.batch, *remote, width};
  if (!ready) rows->x = tape_tensor(tape, 3, shape);
  if (ready) rows->k = tape_tensor(tape, 3, shape);
  if (ready) rows->v = tape_tensor(tape, 3, shape);
  if (!(ready ? rows->k && rows->v : rows->x != NULL) || !*runs || !*lost) return tape_status(tape);
  memset(*lost, 0, marks);
  rows->run = *runs;
  return STATUS_OK;
}

Status code_exchange_decode_part(CodeExchange *ex, Tape *tape, const TokenLayout *layout, int block, int site, int part,
                                 const TransportArrival *arrivals, ExchangeRows *rows) {
  uint64_t senders = part_senders(ex, part), masked = ex->statistics.masked;
  ExchangeRun *run;
  PeerRows peer = {0};
  TRY(make_rows(ex, tape, block, site, part, &peer.remote, rows, &run, &peer.lost));
  for (int span = 0; span < ex->setup.nodes; span++) {
    const int d = node_of(ex, span);
    int64_t first;
    if (!(senders >> d & 1)) continue;
    layout_part_shared(layout, span, ex->exchange.parts, part, &first, &peer.rows);
    peer.node = d;
    *run++ = (ExchangeRun){.place = remote_begin(layout, span) + first, .count = peer.rows};
    TRY(take_codes(ex, &peer, &arrivals[d], block, site, remote_begin(layout, span) + first, rows));
    peer.offset += peer.rows;
  }
  if (ex->remote) TRY(complete(ex, tape, layout, site, rows, peer.lost));
  if (ex->statistics.masked > masked && !stands_in(ex)) rows->lost = peer.lost;
  return STATUS_OK;
}

/* ---- the exchange ---- */

static Status note_fault(CodeExchange *ex, Status status) {
  if (status != STATUS_OK && ex->setup.transport) ex->fault = transport_thread_state(ex->setup.transport).fault;
  return status;
}

static Status go_on(const CodeExchange *ex) {
  return ex->cancelled && *ex->cancelled ? status_set(STATUS_INTERRUPTED, "the request was cancelled") : STATUS_OK;
}

/* While the transport is waited for. */
static Status look_around(void *context) {
  const CodeExchange *ex = context;
  if (ex->check) TRY(ex->check(ex->check_context));
  return go_on(ex);
}

/* A block begins. */
static Status pass(Exchange *self, int block) {
  const CodeExchange *ex = (CodeExchange *)self;
  if (ex->progress) ex->progress(ex->progress_context, block);
  return go_on(ex);
}

static Status begin(Exchange *self, Tape *tape, const TokenLayout *layout, int block, int part, Tensor *const h[EXCHANGE_SITES]) {
  CodeExchange *ex = (CodeExchange *)self;
  NodeStatistics *s = &ex->statistics;
  TRY(part == 0 ? pass(self, block) : go_on(ex));
  s->parts++;
  for (int site = 0; ex->receivers && site < ex->setup.sites; site++) {
    MessageKey key = key_of(ex, block, site, part);
    const TransportPacket *packets;
    int count;
    double start = clock_now();
    TRY(note_fault(ex, transport_thread_reserve(ex->setup.transport, key, look_around, ex)));
    double reserved = clock_now();
    TRY(code_exchange_encode_part(ex, tape, layout, block, site, part, h[site], &packets, &count));
    double encoded = clock_now();
    if (count) TRY(note_fault(ex, transport_thread_submit(ex->setup.transport, key, packets, count, ex->receivers)));
    s->wait += reserved - start;
    s->quantise += encoded - reserved;
    s->send += clock_now() - encoded;
  }
  return STATUS_OK;
}

static Status finish(Exchange *self, Tape *tape, const TokenLayout *layout, int block, int part, ExchangeRows rows[EXCHANGE_SITES]) {
  CodeExchange *ex = (CodeExchange *)self;
  uint64_t senders = part_senders(ex, part);
  for (int site = 0; site < ex->setup.sites; site++) {
    MessageKey key = key_of(ex, block, site, part);
    double start = clock_now();
    TRY(note_fault(ex, transport_thread_take(ex->setup.transport, key, senders, ex->arrivals, look_around, ex)));
    double arrived = clock_now();
    TRY(code_exchange_decode_part(ex, tape, layout, block, site, part, ex->arrivals, &rows[site]));
    transport_thread_done(ex->setup.transport, key, senders);
    ex->statistics.wait += arrived - start;
    ex->statistics.quantise += clock_now() - arrived;
  }
  return STATUS_OK;
}

/* ---- requests ---- */

/* The transport reads the rules of the last request until it has these: they have memory of their own. */
static void make_rules(CodeExchange *ex) {
  const CodeExchangeSetup *setup = &ex->setup;
  int64_t *rows = ex->part_rows + (ex->request.number & 1) * (unsigned)(setup->nodes * parts_of(setup));
  for (int d = 0; d < setup->nodes; d++) {
    for (int p = 0; p < ex->exchange.parts; p++) {
      int64_t first, count = 0;
      if (span_of(ex, d) < setup->layout->devices) layout_part_shared(setup->layout, span_of(ex, d), ex->exchange.parts, p, &first, &count);
      rows[d * ex->exchange.parts + p] = count;
    }
  }
  ex->rules[ex->request.number & 1] = (PacketRules){.coded = setup->coding != NULL,
                                                    .blocks = setup->blocks,
                                                    .sites = setup->sites,
                                                    .parts = ex->exchange.parts,
                                                    .width = setup->width,
                                                    .raw = setup->whole_rows,
                                                    .part_rows = rows};
  if (setup->whole_rows) return;
  PacketRules *rules = &ex->rules[ex->request.number & 1];
  rules->groups = setup->books[0].groups;
  rules->entries = setup->books[0].entries;
  rules->width = setup->books[0].width;
}

/* Of texts, whose lengths differ: choose_packets has checked all others. */
static Status check_packets(const CodeExchange *ex) {
  const PacketRules *rules = rules_of(ex);
  for (int p = 0; ex->receivers && p < rules->parts; p++) {
    const int64_t tokens = ex->request.batch * rules->part_rows[ex->setup.self * rules->parts + p];
    if (tokens > 0 && !interleave_packets(tokens, ex->token_bits, ex->max_packet, interleave_min(ex->setup.min_packets, rules->parts)))
      return status_set(STATUS_UNSUPPORTED,
                        "%lld tokens of this device make more than %d packets of %zu bytes; shorter texts are possible%s",
                        (long long)tokens, MAX_PACKETS, ex->max_packet, ex->setup.whole_rows ? "" : ", or --transport tcp");
  }
  return STATUS_OK;
}

Status code_exchange_begin_request(CodeExchange *ex, const CodeExchangeRequest *request) {
  const CodeExchangeSetup *setup = &ex->setup;
  if (request->number != ex->request.number + 1)
    return status_set(STATUS_BAD_VALUE, "request %u after request %u", request->number, ex->request.number);
  if (request->batch < 1 || request->batch > setup->batch_max)
    return status_set(STATUS_BAD_VALUE, "a request of %lld samples; 1 to %lld are possible", (long long)request->batch,
                      (long long)setup->batch_max);
  if (request->keep && !ex->kept) return status_set(STATUS_BAD_VALUE, "codes were asked for, but no room was made for them");
  ex->request = *request;
  ex->exchange.parts = request->batch > 1 || request->whole ? 1 : parts_of(setup);
  ex->statistics = (NodeStatistics){0};
  ex->senders = ex->receivers = 0;
  for (int d = 0; d < setup->nodes; d++) {
    const int span = span_of(ex, d), own = span_of(ex, setup->self);
    if (d == setup->self || shared_of(setup->layout, span) == 0 || setup->layout->rows == 0) continue;
    if (!(setup->causal && span > own)) ex->senders |= (uint64_t)1 << d;
    if (!(setup->causal && span < own)) ex->receivers |= (uint64_t)1 << d;
  }
  make_rules(ex);
  TRY(check_packets(ex));
  if (!setup->transport) return STATUS_OK;
  return note_fault(ex, transport_thread_begin_request(setup->transport, request->number, request->batch, &ex->rules[request->number & 1],
                                                       ex->senders, ex->receivers));
}

/* ---- memory ---- */

static size_t kept_bytes(const CodeExchangeSetup *setup, size_t token_bytes) {
  return setup->keep_codes ? (size_t)(setup->blocks * setup->sites) * (size_t)max_of(setup, setup->self) * token_bytes : 0;
}
static size_t message_count(const CodeExchange *ex) { return (size_t)(ex->ring * ex->setup.sites * parts_of(&ex->setup)); }

/* Of own, remote and pending; 0 without predictions. */
static size_t known_numbers(const CodeExchangeSetup *setup) {
  const size_t own = (size_t)max_of(setup, setup->self), others = max_of_others(setup);
  const size_t pending = setup->sites > 1 ? (own > others ? own : others) * (size_t)setup->books[0].width : 0;
  return setup->known_width ? (own + others) * (size_t)setup->known_width + pending : 0;
}

/* The transport's included. */
static size_t memory_of(const CodeExchange *ex) {
  const CodeExchangeSetup *setup = &ex->setup;
  size_t bytes = message_count(ex) * (ex->message_bytes + (size_t)ex->max_packets * sizeof(TransportPacket));
  if (setup->whole_rows) return bytes + transport_thread_state(setup->transport).memory;
  size_t max = (size_t)max_of_any(setup), own = (size_t)max_of(setup, setup->self), groups = (size_t)setup->books[0].groups;
  if (setup->known_width) bytes += known_numbers(setup) * sizeof(real);
  bytes += 2 * max * groups * sizeof(int32_t) + max * ex->token_bytes + kept_bytes(setup, ex->token_bytes);
  bytes += own * (size_t)setup->books[0].width * sizeof(real) + codebook_assign_scratch(&setup->books[0], (int64_t)own);
  return bytes + transport_thread_state(setup->transport).memory;
}

static bool allocate_codes(CodeExchange *ex) {
  const CodeExchangeSetup *setup = &ex->setup;
  const Codebook *book = &setup->books[0];
  size_t own = (size_t)max_of(setup, setup->self), max = (size_t)max_of_any(setup);
  if (setup->known_width) {
    if (!(ex->own = malloc(known_numbers(setup) * sizeof(real) + 1))) return false;
    ex->remote = ex->own + own * (size_t)setup->known_width;
    ex->pending = ex->remote + max_of_others(setup) * (size_t)setup->known_width;
  }
  return (ex->gathered = malloc(own * (size_t)book->width * sizeof(real))) &&
         (ex->codes = malloc(max * (size_t)book->groups * sizeof(int32_t))) &&
         (ex->ordered = malloc(max * (size_t)book->groups * sizeof(int32_t))) && (ex->aligned = malloc(max * ex->token_bytes)) &&
         (ex->scratch = malloc(codebook_assign_scratch(book, (int64_t)own))) &&
         (!setup->keep_codes || (ex->kept = malloc(kept_bytes(setup, ex->token_bytes))));
}

static Status allocate(CodeExchange *ex) {
  const CodeExchangeSetup *setup = &ex->setup;
  size_t nodes = (size_t)setup->nodes;
  bool memory = (ex->part_rows = calloc(2 * nodes * (size_t)parts_of(setup), sizeof *ex->part_rows)) &&
                (ex->arrivals = calloc(nodes, sizeof *ex->arrivals)) && (setup->whole_rows || allocate_codes(ex));
  if (!memory)
    return status_set(STATUS_NO_MEMORY, "no memory for codes of %lld samples; use a smaller --batch or --max-context",
                      (long long)setup->batch_max);
  if (setup->lose) {
    TRY(link_loss_check(setup->lose));
    ex->loss = *setup->lose;
    ex->loss.lose_tokens = false; /* here tokens are lost, not packets */
    ex->losers = calloc(nodes, sizeof *ex->losers);
    ex->lost = calloc(max_of_others(setup) + 1, sizeof *ex->lost);
    if (!ex->losers || !ex->lost) return status_set(STATUS_NO_MEMORY, "no memory for %d links", setup->nodes);
    for (int d = 0; d < setup->nodes; d++) link_model_init(&ex->losers[d], &ex->loss, d, setup->self);
  }
  memory = (ex->messages = calloc(message_count(ex), sizeof *ex->messages)) != NULL;
  for (size_t i = 0; memory && i < message_count(ex); i++)
    memory = (ex->messages[i].bytes = malloc(ex->message_bytes)) &&
             (ex->messages[i].packets = calloc((size_t)ex->max_packets, sizeof(TransportPacket)));
  return memory ? STATUS_OK : status_set(STATUS_NO_MEMORY, "no memory for packets; use a smaller --batch or --max-context");
}

/* Room for twice the packets that are needed now, should routes turn out to be narrower. Most texts are shorter than the longest, which may
 * be too long: each is checked when its request begins. */
static Status choose_packets(CodeExchange *ex) {
  const CodeExchangeSetup *setup = &ex->setup;
  int64_t own = max_of(setup, setup->self);
  ex->max_packet = setup->transport ? transport_thread_max_packet(setup->transport) : setup->max_packet;
  int packets = own ? interleave_packets(own, ex->token_bits, ex->max_packet, setup->min_packets) : 1;
  if (!packets && setup->tokens_max == 0)
    return status_set(STATUS_BAD_VALUE, "a batch of %lld makes more than %d packets of %zu bytes; use a smaller --batch or --max-context",
                      (long long)setup->batch_max, MAX_PACKETS, ex->max_packet);
  ex->max_packets = packets && 2 * packets + 8 < MAX_PACKETS ? 2 * packets + 8 : MAX_PACKETS;
  return STATUS_OK;
}

Status code_exchange_init(CodeExchange *ex, const CodeExchangeSetup *setup) {
  const Exchange exchange = {.begin = begin, .finish = finish, .know = setup->first ? know : NULL, .pass = pass, .parts = 1};
  *ex = (CodeExchange){.exchange = exchange, .setup = *setup, .fault = -1};
  ex->exchange.whole_rows = setup->whole_rows;
  if (setup->blocks > PACKET_BLOCKS || setup->sites > PACKET_SITES || parts_of(setup) > MAX_PARTS)
    return status_set(STATUS_UNSUPPORTED, "%d blocks of %d sites in %d parts: packets number at most %d, %d and %d", setup->blocks,
                      setup->sites, parts_of(setup), PACKET_BLOCKS, PACKET_SITES, MAX_PARTS);
  if (setup->whole_rows && (parts_of(setup) > 1 || setup->lose || setup->keep_codes))
    return status_set(STATUS_BAD_VALUE, "whole rows travel in one part, without loss, and have no codes");
  if (!setup->whole_rows) ex->token_bytes = pack_bytes_per_token(setup->books[0].groups, setup->books[0].entries);
  ex->token_bits = setup->whole_rows ? 32.0 * (double)setup->width : (double)setup->books[0].groups * pack_bits(setup->books[0].entries);
  ex->ring = setup->transport ? transport_thread_state(setup->transport).ring : 2;
  ex->message_bytes = payload_max(setup, max_of(setup, setup->self));
  Status status = choose_packets(ex);
  if (status == STATUS_OK) status = allocate(ex);
  if (status == STATUS_OK)
    ex->memory = memory_of(ex);
  else
    code_exchange_release(ex);
  return status;
}

void code_exchange_release(CodeExchange *ex) {
  for (size_t i = 0; ex->messages && i < message_count(ex); i++) {
    free(ex->messages[i].bytes);
    free(ex->messages[i].packets);
  }
  free(ex->messages);
  free(ex->part_rows);
  free(ex->arrivals);
  free(ex->gathered);
  free(ex->own);
  free(ex->codes);
  free(ex->ordered);
  free(ex->aligned);
  free(ex->scratch);
  free(ex->kept);
  free(ex->losers);
  free(ex->lost);
  *ex = (CodeExchange){.fault = -1};
}
