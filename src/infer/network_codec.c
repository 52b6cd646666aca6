/* Activations -> packets of codes -> codewords: what begin and finish of the exchange do between the model and the courier. */
#include "infer/network.h"
#include "infer/wire/interleave.h"
#include "vq/pack.h"
#include <string.h>

static const Codebook *book_at(const Network *net, int block, int site) { return &net->setup.books[block * net->setup.sites + site]; }
static const PacketRules *rules_of(const Network *net) { return &net->rules[net->request.number & 1]; }

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
      memcpy(net->gathered + (b * at->shared + i) * width, h->value + (b * rows + row) * width, (size_t)width * sizeof(real));
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
  const Codebook *book = &net->setup.books[0];
  size_t most = net->setup.courier ? courier_packet_most(net->setup.courier) : net->setup.packet_most;
  int least = interleave_least(net->setup.least_packets, net->parts);
  int packets = interleave_packets(tokens, (double)book->groups * pack_bits(book->entries), most, least > 1 ? least : 1);
  if (packets == 0 || packets > net->packets_most) packets = net->packets_most; /* larger ones: the carrier must cut them */
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

static void fill_packets(Network *net, NetworkGroup *group, const Packet *of, int64_t tokens) {
  const Codebook *book = &net->setup.books[0];
  const int32_t *codes = net->ordered;
  uint8_t *bytes = group->bytes;
  for (int f = 0; f < of->count; f++) {
    int64_t count = interleave_count(tokens, of->count, f);
    CourierPacket *packet = &group->packets[f];
    *packet = (CourierPacket){.header = *of, .payload = bytes, .bytes = pack_dense_bytes(count, book->groups, book->entries)};
    packet->header.index = (uint16_t)f;
    pack_dense(codes, count, book->groups, book->entries, bytes);
    codes += count * book->groups;
    bytes += packet->bytes;
  }
  uint64_t bits = 8 * (uint64_t)(bytes - group->bytes) * (uint64_t)__builtin_popcountll(net->hearers);
  net->statistics.coded_bits += bits;
  net->statistics.packed_bits += bits;
}

static NetworkGroup *group_of(const Network *net, int block, int site, int part) {
  uint64_t sequence = (uint64_t)(net->request.number - 1) * (uint64_t)net->setup.blocks + (uint64_t)block;
  int parts = net->setup.parts > 1 ? net->setup.parts : 1;
  return &net->groups[((int)(sequence % (uint64_t)net->ring) * net->setup.sites + site) * parts + part];
}

Status network_encode_part(Network *net, const TokenLayout *layout, int block, int site, int part, int64_t first, const Tensor *h,
                           const CourierPacket **packets, int *count) {
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
  gather(net, layout, &at, first, h);
  codebook_assign(book_at(net, block, site), net->gathered, tokens, net->codes, NULL, net->scratch);
  if (net->request.keep) keep(net, layout, &at, block, site);
  *count = packets_for(net, tokens);
  reorder(net, tokens, *count, false);
  Packet of = {.request = net->request.number,
               .block = (uint8_t)block,
               .site = (uint8_t)site,
               .part = (uint8_t)part,
               .type = PACKET_CODES,
               .count = (uint16_t)*count};
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

/* Codes in the order of packets; tokens of those that did not come get code 0, which nobody looks at. */
static Status unpack(Network *net, const PeerRows *peer, const CourierArrival *arrival, int block) {
  const Codebook *book = &net->setup.books[0];
  int64_t tokens = net->request.batch * peer->rows;
  int32_t *codes = net->ordered;
  for (int f = 0; f < arrival->count; f++) {
    const CourierPacket *packet = &arrival->packets[f];
    int64_t count = interleave_count(tokens, arrival->count, f);
    if (!packet->payload) {
      memset(codes, 0, (size_t)(count * book->groups) * sizeof *codes);
      for (int64_t i = 0; i < count; i++) mask(net, peer, interleave_token(arrival->count, f, i));
    } else if (pack_dense_unpack(packet->payload, count, book->groups, book->entries, codes) != STATUS_OK) {
      net->accused = peer->node;
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
    key_tables_sum(net->setup.keys, block, codes, peer->rows, rows->k->value + row * width, width, rows->v->value + row * width, width);
  }
}

static Status take_codes(Network *net, const PeerRows *peer, const CourierArrival *arrival, int block, int site, int64_t place,
                         ExchangeRows *rows) {
  const Codebook *book = book_at(net, block, site);
  if (arrival->count)
    TRY(unpack(net, peer, arrival, block));
  else
    mask_all(net, peer);
  lose_tokens(net, peer);
  look_up(net, peer, block, site, rows);
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
  const KeyTables *keys = net->setup.keys;
  bool ready = keys && key_tables_has(keys, block);
  const int64_t shape[3] = {net->request.batch, remote, ready ? key_tables_width(keys) : book_at(net, block, site)->width};
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
                           const CourierArrival *arrivals, ExchangeRows *rows) {
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
