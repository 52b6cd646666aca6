/* Activations -> packets of codes -> codewords, or rows as they are: what begin and finish of the exchange do between the model and the
 * transport. */
#include "base/clock.h"
#include "infer/network.h"
#include "infer/transport/packet.h"
#include "vq/pack.h"
#include <math.h>
#include <string.h>

enum { ROW_NUMBER = 4 /* bytes */ };

static const Codebook *book_at(const Network *net, int block, int site) { return &net->setup.books[block * net->setup.sites + site]; }
static const PacketRules *rules_of(const Network *net) { return &net->rules[net->request.number & 1]; }

/* Of each group. */
static const RansTable *coding_at(const Network *net, int block, int site) {
  return net->setup.coding + (int64_t)(block * net->setup.sites + site) * net->setup.books[0].groups;
}

/* ---- what leaves ---- */

typedef struct PartPlace {
  int64_t first, rows;          /* of the process's rows */
  int64_t first_shared, shared; /* among those that are shared */
} PartPlace;

/* The part's shared rows of every sample, together: [B, shared, W]. */
static void gather(Network *net, const TokenLayout *layout, const PartPlace *at, int64_t first, const Tensor *h) {
  int64_t width = tensor_width(h), rows = h->shape[1];
  for (int64_t b = 0; b < h->shape[0]; b++) {
    for (int64_t i = 0; i < at->shared; i++) {
      int64_t row = layout->shared_row[at->first_shared + i] - first;
      tensor_read(h, (b * rows + row) * width, width, net->gathered + (b * at->shared + i) * width);
    }
  }
}

/* Codes as answers to the leader carry them: each token's packed by itself, [B, own]. */
static void keep(Network *net, const TokenLayout *layout, const PartPlace *at, int block, int site) {
  const Codebook *book = book_at(net, block, site);
  int64_t own = layout->shared_rows, batch = net->request.batch;
  uint8_t *set = net->kept + (size_t)(block * net->setup.sites + site) * (size_t)(batch * own) * net->token_bytes;
  for (int64_t b = 0; b < batch; b++)
    pack_codes(net->codes + b * at->shared * book->groups, at->shared, book->groups, book->entries,
               set + (size_t)(b * own + at->first_shared) * net->token_bytes);
}

static int packets_for(const Network *net, int64_t tokens) {
  size_t max = net->setup.transport ? transport_thread_max_packet(net->setup.transport) : net->setup.max_packet;
  int min = interleave_min(net->setup.min_packets, net->parts);
  int packets = interleave_packets(tokens, network_token_bits(&net->setup), max, min > 1 ? min : 1);
  if (packets == 0 || packets > net->max_packets) packets = net->max_packets; /* larger ones: the backend must cut them */
  return packets < tokens ? packets : (int)tokens;
}

/* Codes [tokens, G] in the order of packets; `back`: from there. */
static void reorder(const Network *net, int64_t tokens, int packets, bool back) {
  size_t groups = (size_t)net->setup.books[0].groups;
  int32_t *ordered = net->ordered;
  for (int f = 0; f < packets; f++) {
    int64_t count = interleave_count(tokens, packets, f);
    for (int64_t i = 0; i < count; i++, ordered += groups) {
      int32_t *token = net->codes + (size_t)interleave_token(packets, f, i) * groups;
      memcpy(back ? token : ordered, back ? ordered : token, groups * sizeof *token);
    }
  }
}

/* Codes of `tokens` tokens into a packet at `bytes`, entropy-coded where that is shorter than packed, which is `packed` bytes. */
static void fill_packet(const Network *net, TransportPacket *packet, const int32_t *codes, int64_t tokens, size_t packed, uint8_t *bytes) {
  const Codebook *book = &net->setup.books[0];
  size_t coded = 0;
  if (net->setup.coding)
    coded = rans_encode(coding_at(net, packet->header.block, packet->header.site), codes, tokens, book->groups, bytes, packed - 1);
  if (coded == 0) pack_dense(codes, tokens, book->groups, book->entries, bytes);
  if (coded > 0) packet->header.flags |= PACKET_CODED;
  packet->payload = bytes;
  packet->bytes = coded > 0 ? coded : packed;
}

static void fill_packets(Network *net, NetworkGroup *group, const Packet *of, int64_t tokens) {
  const Codebook *book = &net->setup.books[0];
  const int32_t *codes = net->ordered;
  uint8_t *bytes = group->bytes;
  uint64_t receivers = (uint64_t)__builtin_popcountll(net->receivers);
  for (int f = 0; f < of->count; f++) {
    int64_t count = interleave_count(tokens, of->count, f);
    size_t packed = pack_dense_bytes(count, book->groups, book->entries);
    TransportPacket *packet = &group->packets[f];
    *packet = (TransportPacket){.header = *of};
    packet->header.index = (uint16_t)f;
    fill_packet(net, packet, codes, count, packed, bytes);
    codes += count * book->groups;
    bytes += packet->bytes;
    net->statistics.coded_bits += 8 * packet->bytes * receivers;
    net->statistics.packed_bits += 8 * packed * receivers;
  }
}

static void pack_row(const Tensor *h, int64_t first, int64_t width, uint8_t *bytes) {
  enum { PIECE = 256 };
  real piece[PIECE];
  for (int64_t at = 0; at < width; at += PIECE) {
    const int64_t count = width - at < PIECE ? width - at : PIECE;
    tensor_read(h, first + at, count, piece);
    wire_pack_reals(piece, (size_t)count, bytes + at * ROW_NUMBER);
  }
}

/* Rows of tokens, as they are. */
static void fill_rows(const Network *net, const TokenLayout *layout, const PartPlace *at, int64_t first, const Tensor *h,
                      NetworkGroup *group, const Packet *of) {
  int64_t width = tensor_width(h), rows = h->shape[1], tokens = net->request.batch * at->shared;
  uint8_t *bytes = group->bytes;
  for (int f = 0; f < of->count; f++) {
    int64_t count = interleave_count(tokens, of->count, f);
    group->packets[f] = (TransportPacket){.header = *of, .payload = bytes, .bytes = (size_t)(count * width) * ROW_NUMBER};
    group->packets[f].header.index = (uint16_t)f;
    for (int64_t i = 0; i < count; i++, bytes += width * ROW_NUMBER) {
      int64_t token = interleave_token(of->count, f, i), row = layout->shared_row[at->first_shared + token % at->shared] - first;
      pack_row(h, (token / at->shared * rows + row) * width, width, bytes);
    }
  }
}

static NetworkGroup *group_of(const Network *net, int block, int site, int part) {
  uint64_t sequence = (uint64_t)(net->request.number - 1) * (uint64_t)net->setup.blocks + (uint64_t)block;
  int parts = net->setup.parts > 1 ? net->setup.parts : 1;
  return &net->groups[((int)(sequence % (uint64_t)net->ring) * net->setup.sites + site) * parts + part];
}

Status network_encode_part(Network *net, const TokenLayout *layout, int block, int site, int part, int64_t first, const Tensor *h,
                           const TransportPacket **packets, int *count) {
  NetworkGroup *group = group_of(net, block, site, part);
  PartPlace at;
  layout_part(layout, net->parts, part, &at.first, &at.rows, &at.first_shared, &at.shared);
  if (h->shape[1] != at.rows || first != at.first)
    return status_set(STATUS_BAD_VALUE, "part %d of block %d has rows %lld to %lld, not %lld to %lld", part, block, (long long)at.first,
                      (long long)(at.first + at.rows), (long long)first, (long long)(first + h->shape[1]));
  int64_t tokens = net->request.batch * at.shared;
  *packets = group->packets;
  *count = 0;
  if (tokens == 0) return STATUS_OK;
  *count = packets_for(net, tokens);
  Packet of = {.request = net->request.number,
               .block = (uint8_t)block,
               .site = (uint8_t)site,
               .part = (uint8_t)part,
               .type = net->setup.whole_rows ? PACKET_RAW : PACKET_CODES,
               .count = (uint16_t)*count};
  if (net->setup.whole_rows) {
    fill_rows(net, layout, &at, first, h, group, &of);
    return STATUS_OK;
  }
  gather(net, layout, &at, first, h);
  codebook_assign(book_at(net, block, site), net->gathered, tokens, net->codes, NULL, net->scratch);
  if (net->request.keep) keep(net, layout, &at, block, site);
  reorder(net, tokens, *count, false);
  fill_packets(net, group, &of, tokens);
  return STATUS_OK;
}

/* ---- what comes ---- */

/* A node's share of the rows of a part: [B, rows] of which `rows` stand from `offset` on in each sample. */
typedef struct PeerRows {
  int node;
  int64_t rows, offset, remote;
  uint8_t *lost; /* [B, remote] */
} PeerRows;

static void mask(Network *net, const PeerRows *peer, int64_t token) {
  uint8_t *mark = &peer->lost[token / peer->rows * peer->remote + peer->offset + token % peer->rows];
  net->statistics.masked += !*mark;
  *mark = 1;
}

static Status unpack_packet(const Network *net, const TransportPacket *packet, int block, int site, int64_t tokens, int32_t *codes) {
  const Codebook *book = &net->setup.books[0];
  if (packet->header.flags & PACKET_CODED)
    return rans_decode(coding_at(net, block, site), tokens, book->groups, packet->payload, packet->bytes, codes);
  return pack_dense_unpack(packet->payload, tokens, book->groups, book->entries, codes);
}

/* Codes in the order of packets; tokens of those that did not come get code 0, which nobody looks at. */
static Status unpack(Network *net, const PeerRows *peer, const TransportArrival *arrival, int block, int site) {
  const Codebook *book = &net->setup.books[0];
  int64_t tokens = net->request.batch * peer->rows;
  int32_t *codes = net->ordered;
  for (int f = 0; f < arrival->count; f++) {
    const TransportPacket *packet = &arrival->packets[f];
    int64_t count = interleave_count(tokens, arrival->count, f);
    if (!packet->payload) {
      memset(codes, 0, (size_t)(count * book->groups) * sizeof *codes);
      for (int64_t i = 0; i < count; i++) mask(net, peer, interleave_token(arrival->count, f, i));
    } else if (unpack_packet(net, packet, block, site, count, codes) != STATUS_OK) {
      net->fault = peer->node;
      return status_wrap(STATUS_BAD_VALUE, "node %d: block %d", peer->node, block);
    }
    codes += count * book->groups;
  }
  reorder(net, tokens, arrival->count, true);
  return STATUS_OK;
}

static void mask_all(Network *net, const PeerRows *peer) {
  int64_t tokens = net->request.batch * peer->rows;
  memset(net->codes, 0, (size_t)(tokens * net->setup.books[0].groups) * sizeof *net->codes);
  for (int64_t i = 0; i < tokens; i++) mask(net, peer, i);
}

/* `lose` counts packets: here each token is one. */
static void lose_tokens(Network *net, const PeerRows *peer) {
  for (int64_t i = 0; net->losers && i < net->request.batch * peer->rows; i++) {
    if (link_model_loses(&net->losers[peer->node])) mask(net, peer, i);
  }
}

/* Codes of one peer -> its rows, or their keys and values. */
static void look_up(const Network *net, const PeerRows *peer, int block, int site, ExchangeRows *rows) {
  const Codebook *book = book_at(net, block, site);
  for (int64_t b = 0; b < net->request.batch; b++) {
    const int32_t *codes = net->codes + b * peer->rows * book->groups;
    int64_t row = b * peer->remote + peer->offset;
    if (rows->x) {
      codebook_lookup(book, codes, peer->rows, rows->x->value + row * book->width);
      continue;
    }
    int64_t width = tensor_width(rows->k);
    kv_tables_sum(net->setup.keys, block, codes, peer->rows, rows->k->value + row * width, width, rows->v->value + row * width, width);
  }
}

static Status take_row(const uint8_t *bytes, int64_t width, real *row) {
  wire_parse_reals(bytes, (size_t)width, row);
  for (int64_t i = 0; i < width; i++) {
    if (!isfinite(row[i])) return status_set(STATUS_BAD_VALUE, "sent a number that is not finite");
  }
  return STATUS_OK;
}

/* Rows in full: nothing can take the place of one that did not come. */
static Status take_rows(Network *net, const PeerRows *peer, const TransportArrival *arrival, int block, Tensor *x) {
  int64_t width = tensor_width(x);
  net->fault = peer->node;
  if (arrival->count == 0 || arrival->missing > 0)
    return status_set(STATUS_PEER, "node %d: block %d: is gone, and nothing can take the place of its rows", peer->node, block);
  for (int f = 0; f < arrival->count; f++) {
    int64_t count = interleave_count(net->request.batch * peer->rows, arrival->count, f);
    for (int64_t i = 0; i < count; i++) {
      int64_t token = interleave_token(arrival->count, f, i);
      real *row = x->value + (token / peer->rows * peer->remote + peer->offset + token % peer->rows) * width;
      if (take_row(arrival->packets[f].payload + i * width * ROW_NUMBER, width, row) != STATUS_OK)
        return status_wrap(STATUS_BAD_VALUE, "node %d: block %d", peer->node, block);
    }
  }
  net->fault = -1;
  return STATUS_OK;
}

static Status take_codes(Network *net, const PeerRows *peer, const TransportArrival *arrival, int block, int site, int64_t place,
                         ExchangeRows *rows) {
  if (net->setup.whole_rows) return take_rows(net, peer, arrival, block, rows->x);
  const Codebook *book = book_at(net, block, site);
  if (arrival->count)
    TRY(unpack(net, peer, arrival, block, site));
  else
    mask_all(net, peer);
  lose_tokens(net, peer);
  double start = clock_now();
  look_up(net, peer, block, site, rows);
  if (rows->k) net->statistics.tables += clock_now() - start;
  if (!net->heard) return STATUS_OK;
  pack_codes(net->codes, peer->rows, book->groups, book->entries, net->aligned);
  net->heard(net->heard_context, block, site, place, peer->rows, net->aligned);
  return STATUS_OK;
}

/* Where rows of a device begin in the remote sequence of this one. */
static int64_t remote_begin(const TokenLayout *layout, int node) {
  return layout->device_shared[node] - (node > layout->self ? layout->shared_rows : 0);
}

/* Rows [B, R, W], or keys and values where the block has tables of them. */
static bool make_tensors(const Network *net, Tape *tape, int block, int site, int64_t remote, ExchangeRows *rows) {
  const KvTables *keys = net->setup.keys;
  bool whole = net->setup.whole_rows, ready = !whole && keys && kv_tables_has(keys, block);
  int64_t width = whole ? net->setup.width : ready ? kv_tables_width(keys) : book_at(net, block, site)->width;
  const int64_t shape[3] = {net->request.batch, remote, width};
  if (!ready) return (rows->x = tape_tensor(tape, 3, shape)) != NULL;
  rows->k = tape_tensor(tape, 3, shape);
  rows->v = tape_tensor(tape, 3, shape);
  return rows->k && rows->v;
}

static Status make_rows(const Network *net, Tape *tape, int block, int site, int part, int64_t *remote, ExchangeRows *rows,
                        ExchangeRun **runs, uint8_t **lost) {
  const PacketRules *rules = rules_of(net);
  uint64_t senders = network_part_senders(net, part);
  *rows = (ExchangeRows){.runs = __builtin_popcountll(senders)};
  *remote = 0;
  for (int d = 0; d < net->setup.nodes; d++) *remote += senders >> d & 1 ? rules->part_rows[d * rules->parts + part] : 0;
  size_t marks = (size_t)(net->request.batch * *remote);
  *runs = tape_alloc(tape, (size_t)(rows->runs + 1) * sizeof **runs);
  *lost = tape_alloc(tape, marks + 1);
  if (!make_tensors(net, tape, block, site, *remote, rows) || !*runs || !*lost) return tape_status(tape);
  memset(*lost, 0, marks);
  rows->run = *runs;
  return STATUS_OK;
}

Status network_decode_part(Network *net, Tape *tape, const TokenLayout *layout, int block, int site, int part,
                           const TransportArrival *arrivals, ExchangeRows *rows) {
  uint64_t senders = network_part_senders(net, part), masked = net->statistics.masked;
  ExchangeRun *run;
  PeerRows peer = {0};
  TRY(make_rows(net, tape, block, site, part, &peer.remote, rows, &run, &peer.lost));
  for (int d = 0; d < net->setup.nodes; d++) {
    int64_t first;
    if (!(senders >> d & 1)) continue;
    layout_part_shared(layout, d, net->parts, part, &first, &peer.rows);
    peer.node = d;
    *run++ = (ExchangeRun){.place = remote_begin(layout, d) + first, .count = peer.rows};
    TRY(take_codes(net, &peer, &arrivals[d], block, site, remote_begin(layout, d) + first, rows));
    peer.offset += peer.rows;
  }
  if (net->statistics.masked > masked) rows->lost = peer.lost;
  return STATUS_OK;
}
