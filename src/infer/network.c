/* Codes between nodes. Leaves out: what a request is (node.c) and lost messages: a stream delivers all of them or fails. */
#include "infer/network.h"
#include "base/clock.h"
#include "infer/patience.h"
#include "vq/pack.h"
#include <stdlib.h>
#include <string.h>

static const Codebook *book_at(const Network *net, int block, int site) { return &net->setup.books[block * net->setup.sites + site]; }
static uint64_t sequence_of(const Network *net, uint32_t request, int block) {
  return (uint64_t)(request - 1) * (uint64_t)net->setup.blocks + (uint64_t)block;
}
static size_t slot_index(const Network *net, uint64_t sequence, int site) {
  return (size_t)(sequence & 1) * (size_t)net->setup.sites + (size_t)site;
}
static int64_t shared_of(const TokenLayout *layout, int node) {
  return node < layout->devices ? layout->device_shared[node + 1] - layout->device_shared[node] : 0;
}
static int64_t most_of(const NetworkSetup *setup, int node) {
  return setup->batch_most * (setup->tokens_most ? setup->tokens_most : shared_of(setup->layout, node));
}

size_t network_message_bytes(int64_t groups, int64_t entries, int64_t tokens) {
  return WIRE_HEADER + (size_t)tokens * pack_bytes_per_token(groups, entries);
}

/* ---- receiving ---- */

static Status refuse(const WireHeader *header, const Network *net, uint64_t expected) {
  unsigned blocks = (unsigned)net->setup.blocks;
  return status_set(STATUS_BAD_VALUE, "sent codes of request %u, block %d where request %u, block %u was expected", header->request,
                    header->block, (unsigned)(expected / blocks) + 1, (unsigned)(expected % blocks));
}

/* The place in the sequence is right, or it will be once this node begins the request (*early). */
static Status check_turn(const Network *net, const NetworkPeer *peer, const WireHeader *header, bool *early) {
  uint64_t sequence = sequence_of(net, header->request, header->block), expected = peer->next[header->site];
  bool between = header->block == 0 && expected % (uint64_t)net->setup.blocks == 0;
  *early = net->setup.tokens_most && between && sequence > expected;
  return sequence == expected || *early ? STATUS_OK : refuse(header, net, expected);
}

/* With the layouts of texts the exact number is known when the codes are taken (take_codes). */
static Status check_length(const Network *net, const NetworkPeer *peer, const WireHeader *header) {
  bool fixed = net->setup.tokens_most == 0;
  int64_t most = most_of(&net->setup, peer->link.peer);
  if (header->count > 0 && header->count <= most && !(fixed && header->count % peer->tokens) &&
      header->bytes == header->count * net->token_bytes)
    return STATUS_OK;
  return status_set(STATUS_BAD_VALUE, "sent %u bytes for %u tokens; at most %lld are possible, %zu bytes each", header->bytes,
                    header->count, (long long)most, net->token_bytes);
}

static Status place_codes(void *context, Link *link, const WireHeader *header, uint8_t **payload) {
  Network *net = context;
  NetworkPeer *peer = &net->peers[link->peer];
  if (header->kind != WIRE_CODES)
    return status_set(STATUS_BAD_VALUE, "sent a %s message, only codes are expected", wire_kind_name(header->kind));
  if (header->sender != link->peer) return status_set(STATUS_BAD_VALUE, "sent a message in the name of node %d", header->sender);
  if (header->block >= net->setup.blocks || header->site >= net->setup.sites || header->request == 0)
    return status_set(STATUS_BAD_VALUE, "sent codes of block %d, site %d; the model has %d blocks of %d", header->block, header->site,
                      net->setup.blocks, net->setup.sites);
  if (net->setup.causal && link->peer > net->setup.self) return status_set(STATUS_BAD_VALUE, "sent codes to a node before it");
  uint64_t sequence = sequence_of(net, header->request, header->block);
  bool early;
  TRY(check_turn(net, peer, header, &early));
  TRY(check_length(net, peer, header));
  *payload = NULL;
  if (early) return STATUS_OK;
  bool free_slot = sequence < peer->taken[header->site] + 2;
  *payload = free_slot ? peer->slots + slot_index(net, sequence, header->site) * peer->slot_bytes : NULL;
  return STATUS_OK;
}

static Status deliver_codes(void *context, Link *link, const WireHeader *header, uint8_t *payload) {
  Network *net = context;
  NetworkPeer *peer = &net->peers[link->peer];
  (void)payload;
  peer->slot_count[slot_index(net, peer->next[header->site]++, header->site)] = header->count;
  return STATUS_OK;
}

/* ---- moving messages ---- */

void network_gone(Network *net, int node) {
  if (node == net->setup.self) return;
  net->peers[node].gone = true;
  link_close(&net->peers[node].link);
}

/* A failure of the links that is a peer's: it is gone, or accused. */
static Status step(Network *net, double seconds) {
  Status status = links_step(net->links, net->setup.nodes + 1, seconds);
  if (status == STATUS_OK) return STATUS_OK;
  for (int d = 0; d < net->setup.nodes; d++) {
    NetworkPeer *peer = &net->peers[d];
    if (d == net->setup.self || peer->gone || peer->link.status == STATUS_OK) continue;
    net->accused = d;
    if (net->setup.mask) network_gone(net, d);
  }
  if (!net->setup.mask || net->accused < 0) return status;
  net->accused = -1;
  return STATUS_OK;
}

/* A peer whose messages satisfy `waiting`, or -1. */
typedef bool Waiting(const Network *net, const NetworkPeer *peer, uint64_t sequence, int site);
static bool waits_for_codes(const Network *net, const NetworkPeer *peer, uint64_t sequence, int site) {
  (void)net;
  return peer->sends && !peer->gone && peer->next[site] <= sequence;
}
static bool waits_to_send(const Network *net, const NetworkPeer *peer, uint64_t sequence, int site) {
  (void)sequence, (void)site;
  return link_pending(&peer->link) > 2 * net->setup.sites - 1;
}
static bool waits_to_flush(const Network *net, const NetworkPeer *peer, uint64_t sequence, int site) {
  (void)net, (void)sequence, (void)site;
  return link_pending(&peer->link) > 0;
}

static int first_waiting(const Network *net, Waiting *waiting, uint64_t sequence, int site) {
  for (int d = 0; d < net->setup.nodes; d++) {
    if (d != net->setup.self && waiting(net, &net->peers[d], sequence, site)) return d;
  }
  return -1;
}

static uint64_t bytes_moved(const Network *net) {
  uint64_t bytes = 0;
  for (int d = 0; d < net->setup.nodes; d++) bytes += net->peers[d].link.sent.bytes + net->peers[d].link.received.bytes;
  return bytes;
}

static Status accuse(Network *net, int node, Status status) {
  net->accused = node;
  return status;
}

static Status check_cancelled(const Network *net) {
  return net->cancelled && *net->cancelled ? status_set(STATUS_INTERRUPTED, "the request was cancelled") : STATUS_OK;
}

/* Until nobody is waited for any more. */
static Status wait_while(Network *net, Waiting *waiting, uint64_t sequence, int site) {
  Patience patience;
  bool over = false;
  int late;
  patience_start(&patience, net->setup.timeout, bytes_moved(net), clock_now());
  while ((late = first_waiting(net, waiting, sequence, site)) >= 0) {
    if (net->setup.mask && (over || !link_is_open(&net->peers[late].link))) {
      network_gone(net, late);
      continue;
    }
    if (!link_is_open(&net->peers[late].link)) return accuse(net, late, status_set(STATUS_PEER, "node %d: the connection is closed", late));
    if (over)
      return accuse(net, late,
                    status_set(STATUS_TIMEOUT, "node %d did not answer within %g s; --timeout gives it longer", late, net->setup.timeout));
    TRY(step(net, patience_slice(&patience)));
    TRY(check_cancelled(net));
    over = patience_ends(&patience, bytes_moved(net), clock_now());
  }
  return STATUS_OK;
}

Status network_flush(Network *net) { return wait_while(net, waits_to_flush, 0, 0); }

/* ---- the exchange ---- */

/* This node's shared rows of every sample, together: [B, own, W]. */
static void gather(Network *net, const TokenLayout *layout, const Tensor *h) {
  int64_t width = tensor_width(h), own = layout->shared_rows;
  for (int64_t b = 0; b < h->shape[0]; b++) {
    for (int64_t i = 0; i < own; i++) {
      memcpy(net->gathered + (b * own + i) * width, h->value + (b * layout->rows + layout->shared_row[i]) * width,
             (size_t)width * sizeof(real));
    }
  }
}

/* The slot is free: every peer has taken its last content, or it could not have let this node come here; wait_while proves it. */
static Status fill_message(Network *net, int block, int site, int64_t tokens, uint8_t **message, size_t *size) {
  const Codebook *book = book_at(net, block, site);
  uint64_t sequence = sequence_of(net, net->request, block);
  TRY(wait_while(net, waits_to_send, sequence, site));
  *message = net->outgoing + slot_index(net, sequence, site) * net->outgoing_bytes;
  *size = network_message_bytes(book->groups, book->entries, tokens);
  WireHeader header = {.kind = WIRE_CODES,
                       .sender = (uint8_t)net->setup.self,
                       .block = (uint8_t)block,
                       .site = (uint8_t)site,
                       .request = net->request,
                       .count = (uint32_t)tokens,
                       .bytes = (uint32_t)(*size - WIRE_HEADER)};
  wire_pack(&header, *message);
  pack_codes(net->codes, tokens, book->groups, book->entries, *message + WIRE_HEADER);
  if (net->keep) {
    size_t bytes = *size - WIRE_HEADER;
    memcpy(net->kept + (size_t)(block * net->setup.sites + site) * bytes, *message + WIRE_HEADER, bytes);
  }
  return STATUS_OK;
}

static Status send_to_all(Network *net, const uint8_t *message, size_t size) {
  for (int d = 0; d < net->setup.nodes; d++) {
    if (d == net->setup.self || !net->peers[d].hears || net->peers[d].gone) continue;
    Status status = link_send(&net->peers[d].link, message, size);
    if (status != STATUS_OK) {
      net->accused = d;
      return status;
    }
  }
  return step(net, 0);
}

static Status network_begin(Exchange *self, Tape *tape, const TokenLayout *layout, int block, int site, Tensor *h) {
  Network *net = (Network *)self;
  (void)tape;
  if (h->shape[0] != net->batch)
    return status_set(STATUS_BAD_VALUE, "a batch of %lld in a request of %lld", (long long)h->shape[0], (long long)net->batch);
  if (net->progress && site == 0) net->progress(net->progress_context, block);
  TRY(check_cancelled(net));
  if (!net->heard_by_any) return STATUS_OK;
  double start = clock_now();
  int64_t tokens = net->batch * layout->shared_rows;
  uint8_t *message;
  size_t size;
  gather(net, layout, h);
  codebook_assign(book_at(net, block, site), net->gathered, tokens, net->codes, NULL, net->scratch);
  TRY(fill_message(net, block, site, tokens, &message, &size));
  double filled = clock_now();
  TRY(send_to_all(net, message, size));
  net->statistics.quantise += filled - start;
  net->statistics.send += clock_now() - filled;
  return STATUS_OK;
}

/* One peer's codes -> its rows of `out` [B, remote, W], which start at `offset` in every sample. */
static Status take_codes(Network *net, int node, int block, int site, int64_t offset, int64_t remote, real *out) {
  NetworkPeer *peer = &net->peers[node];
  const Codebook *book = book_at(net, block, site);
  uint64_t sequence = sequence_of(net, net->request, block);
  size_t slot = slot_index(net, sequence, site);
  net->accused = node;
  if (peer->slot_count[slot] != net->batch * peer->tokens)
    return status_set(STATUS_BAD_VALUE, "node %d: sent codes of %u tokens, %lld were expected", node, peer->slot_count[slot],
                      (long long)(net->batch * peer->tokens));
  if (pack_unpack(peer->slots + slot * peer->slot_bytes, net->batch * peer->tokens, book->groups, book->entries, net->codes) != STATUS_OK)
    return status_wrap(STATUS_BAD_VALUE, "node %d: block %d", node, block);
  for (int64_t b = 0; b < net->batch; b++)
    codebook_lookup(book, net->codes + b * peer->tokens * book->groups, peer->tokens, out + (b * remote + offset) * book->width);
  if (net->heard) net->heard(net->heard_context, block, site, offset, peer->tokens, peer->slots + slot * peer->slot_bytes);
  peer->taken[site] = sequence + 1;
  net->accused = -1;
  return STATUS_OK;
}

/* Of a peer that is gone and has not sent them: zeroes, which attention passes over. */
static Status mask_tokens(Network *net, Tape *tape, int node, int64_t offset, Tensor *remote, uint8_t **lost) {
  int64_t rows = remote->shape[1], tokens = net->peers[node].tokens, width = tensor_width(remote);
  bool first = !*lost;
  if (first && !(*lost = tape_alloc(tape, (size_t)(net->batch * rows)))) return tape_status(tape);
  if (first) memset(*lost, 0, (size_t)(net->batch * rows));
  for (int64_t b = 0; b < net->batch; b++) {
    memset(*lost + b * rows + offset, 1, (size_t)tokens);
    memset(remote->value + (b * rows + offset) * width, 0, (size_t)(tokens * width) * sizeof(real));
  }
  net->statistics.masked += (uint64_t)(net->batch * tokens);
  return STATUS_OK;
}

static Status network_finish(Exchange *self, Tape *tape, const TokenLayout *layout, int block, int site, Tensor **remote,
                             const uint8_t **lost) {
  Network *net = (Network *)self;
  int64_t shape[3] = {net->batch, layout->remote, book_at(net, block, site)->width}, offset = 0;
  uint64_t sequence = sequence_of(net, net->request, block);
  uint8_t *marks = NULL;
  *remote = tape_tensor(tape, 3, shape);
  if (!*remote) return tape_status(tape);
  double start = clock_now();
  TRY(wait_while(net, waits_for_codes, sequence, site));
  double arrived = clock_now();
  for (int d = 0; d < net->setup.nodes; d++) {
    const NetworkPeer *peer = &net->peers[d];
    if (d == net->setup.self || !peer->sends) continue;
    if (peer->next[site] <= sequence)
      TRY(mask_tokens(net, tape, d, offset, *remote, &marks));
    else
      TRY(take_codes(net, d, block, site, offset, layout->remote, (*remote)->value));
    offset += peer->tokens;
  }
  *lost = marks;
  net->statistics.wait += arrived - start;
  net->statistics.quantise += clock_now() - arrived;
  return STATUS_OK;
}

/* Which peers are heard and hear in this request, and where their messages begin. */
static void meet_peers(Network *net) {
  const NetworkSetup *setup = &net->setup;
  net->heard_by_any = false;
  for (int d = 0; d < setup->nodes; d++) {
    NetworkPeer *peer = &net->peers[d];
    if (d == setup->self) continue;
    peer->tokens = shared_of(setup->layout, d);
    bool takes_part = peer->tokens > 0 && setup->layout->rows > 0;
    peer->sends = takes_part && !(setup->causal && d > setup->self);
    peer->hears = takes_part && !(setup->causal && d < setup->self);
    net->heard_by_any |= peer->hears;
    uint64_t first = sequence_of(net, net->request, 0);
    for (int site = 0; peer->sends && site < setup->sites; site++) {
      if (peer->next[site] < first) peer->next[site] = peer->taken[site] = first;
    }
  }
}

Status network_begin_request(Network *net, uint32_t request, int64_t batch, bool keep) {
  if (request != net->request + 1) return status_set(STATUS_BAD_VALUE, "request %u after request %u", request, net->request);
  if (batch < 1 || batch > net->setup.batch_most)
    return status_set(STATUS_BAD_VALUE, "a request of %lld samples; 1 to %lld are possible", (long long)batch,
                      (long long)net->setup.batch_most);
  if (keep && !net->kept) return status_set(STATUS_BAD_VALUE, "codes were asked for, but no room was made for them");
  net->request = request;
  net->batch = batch;
  net->keep = keep;
  net->statistics = (NodeStatistics){0};
  meet_peers(net);
  return STATUS_OK;
}

/* ---- memory ---- */

static size_t kept_bytes(const NetworkSetup *setup, size_t token_bytes) {
  return setup->keep_codes ? (size_t)(setup->blocks * setup->sites) * (size_t)most_of(setup, setup->self) * token_bytes : 0;
}

/* Codes of the largest message of any node. */
static size_t most_codes(const NetworkSetup *setup) {
  int64_t most = 0;
  for (int d = 0; d < setup->nodes; d++) most = most_of(setup, d) > most ? most_of(setup, d) : most;
  return (size_t)(most * setup->books[0].groups);
}

/* Numbered messages (slots) of each peer, and what is needed to make one. A few words for each peer are not counted. */
size_t network_bytes(const Network *net) {
  const NetworkSetup *setup = &net->setup;
  if (!net->peers) return 0;
  size_t bytes = 2 * (size_t)setup->sites * net->outgoing_bytes + kept_bytes(setup, net->token_bytes) + most_codes(setup) * sizeof(int32_t);
  bytes += (size_t)(most_of(setup, setup->self) * setup->books[0].width) * sizeof(real) + codebook_assign_scratch(&setup->books[0]);
  for (int d = 0; d < setup->nodes; d++) bytes += d == setup->self ? 0 : 2 * (size_t)setup->sites * net->peers[d].slot_bytes;
  return bytes;
}

static Status allocate_peer(Network *net, int node) {
  NetworkPeer *peer = &net->peers[node];
  size_t slots = 2 * (size_t)net->setup.sites;
  peer->tokens = shared_of(net->setup.layout, node);
  peer->slot_bytes = (size_t)most_of(&net->setup, node) * net->token_bytes;
  peer->next = calloc((size_t)net->setup.sites, sizeof *peer->next);
  peer->taken = calloc((size_t)net->setup.sites, sizeof *peer->taken);
  peer->slots = malloc(slots * peer->slot_bytes);
  peer->slot_count = calloc(slots, sizeof *peer->slot_count);
  if (!peer->next || !peer->taken || !peer->slots || !peer->slot_count)
    return status_set(STATUS_NO_MEMORY, "no memory for the codes of node %d", node);
  LinkSink sink = {.context = net, .most_payload = peer->slot_bytes, .place = place_codes, .deliver = deliver_codes};
  link_open_channel(&peer->link, net->setup.channels[node], node, &sink);
  net->setup.channels[node] = NULL;
  net->links[node] = &peer->link;
  return STATUS_OK;
}

static Status allocate_own(Network *net) {
  const NetworkSetup *setup = &net->setup;
  const Codebook *book = &setup->books[0];
  size_t own = (size_t)most_of(setup, setup->self), sites = (size_t)setup->sites;
  net->outgoing_bytes = WIRE_HEADER + own * net->token_bytes;
  net->outgoing = malloc(2 * sites * net->outgoing_bytes);
  net->gathered = malloc(own * (size_t)book->width * sizeof(real));
  net->codes = malloc(most_codes(setup) * sizeof(int32_t));
  net->scratch = malloc(codebook_assign_scratch(book));
  if (setup->keep_codes) net->kept = malloc(kept_bytes(setup, net->token_bytes));
  if (!net->outgoing || !net->gathered || !net->codes || !net->scratch || (setup->keep_codes && !net->kept))
    return status_set(STATUS_NO_MEMORY, "no memory for codes of %lld samples; use a smaller --batch", (long long)setup->batch_most);
  return STATUS_OK;
}

static Status network_allocate(Network *net) {
  const NetworkSetup *setup = &net->setup;
  net->peers = calloc((size_t)setup->nodes, sizeof *net->peers);
  for (int d = 0; net->peers && d < setup->nodes; d++) link_clear(&net->peers[d].link);
  net->links = calloc((size_t)setup->nodes + 1, sizeof(Link *));
  if (!net->peers || !net->links) return status_set(STATUS_NO_MEMORY, "no memory for %d peers", setup->nodes);
  TRY(allocate_own(net));
  for (int d = 0; d < setup->nodes; d++) {
    if (d != setup->self) TRY(allocate_peer(net, d));
  }
  return STATUS_OK;
}

Status network_init(Network *net, const NetworkSetup *setup) {
  *net = (Network){.exchange = {.begin = network_begin, .finish = network_finish}, .setup = *setup, .accused = -1};
  if (setup->blocks > 255 || 2 * setup->sites > LINK_QUEUE)
    return status_set(STATUS_UNSUPPORTED, "%d blocks of %d sites: the wire format numbers at most 255 blocks", setup->blocks, setup->sites);
  net->token_bytes = pack_bytes_per_token(setup->books[0].groups, setup->books[0].entries);
  int64_t longest = setup->tokens_most ? setup->tokens_most : setup->layout->shared;
  if ((double)setup->batch_most * (double)longest * (double)net->token_bytes > (double)INT32_MAX)
    return status_set(STATUS_BAD_VALUE, "a batch of %lld makes messages that are too long; use a smaller --batch",
                      (long long)setup->batch_most);
  Status status = network_allocate(net);
  if (status != STATUS_OK) network_release(net);
  return status;
}

void network_release(Network *net) {
  for (int d = 0; net->peers && d < net->setup.nodes; d++) {
    NetworkPeer *peer = &net->peers[d];
    link_close(&peer->link);
    free(peer->next);
    free(peer->taken);
    free(peer->slots);
    free(peer->slot_count);
  }
  free(net->peers);
  free(net->links);
  free(net->outgoing);
  free(net->gathered);
  free(net->codes);
  free(net->scratch);
  free(net->kept);
  *net = (Network){.accused = -1};
}
