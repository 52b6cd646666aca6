/* Requests of one node. Channels between nodes are code_exchange.c's; what is agreed on before is device_session.c's.
 * Two requests can be in its memory at once: the one that is computed and the next one, which the leader sends ahead. */
#include "infer/node.h"
#include "autograd/tape_segment.h"
#include "base/arena.h"
#include "base/clock.h"
#include "infer/node_parts.h"
#include "infer/node_share.h"
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

static const size_t arena_bytes = (size_t)1 << 36; /* of address space; pages come as they are touched */

/* ---- the leader's messages ---- */

static Status check_request(const Node *node, const WireHeader *header, Request *request) {
  if (header->request != node->announced + 1)
    return status_set(STATUS_BAD_VALUE, "sent request %u after request %u", header->request, node->announced);
  TRY(request_read(request, node->setup, &node->max, header));
  if (request->codes && !(node->networked && node->setup->keep_codes))
    return status_set(STATUS_BAD_VALUE, "asked for codes, which was not agreed");
  return STATUS_OK;
}

Status node_place(Node *node, const WireHeader *header, uint8_t **payload) {
  Request request;
  if (header->kind == WIRE_STOP && header->bytes == 0) {
    *payload = node->progress;
    return STATUS_OK;
  }
  TRY(check_request(node, header, &request));
  NodeRequest *slot = &node->requests[header->request & 1];
  *payload = slot->arrived ? NULL : slot->payload;
  return STATUS_OK;
}

Status node_deliver(Node *node, const WireHeader *header) {
  if (header->kind == WIRE_STOP) {
    node->text.stopped = header->request;
    return STATUS_OK;
  }
  NodeRequest *slot = &node->requests[header->request & 1];
  TRY(check_request(node, header, &slot->request));
  slot->number = header->request;
  slot->arrived = true;
  node->announced = header->request;
  return STATUS_OK;
}

/* ---- messages to the leader ---- */

Status node_send(Node *node, uint8_t *message, WireHeader header) {
  header.sender = (uint8_t)node->self;
  wire_pack(&header, message);
  TRY(connection_send(node->control, message, WIRE_HEADER + (size_t)header.bytes));
  return connections_step(&(Connection *){node->control}, 1, 0);
}

/* A sign of life: one that is still on its way does for both, and its way is where the leader is heard. Without a leader nobody wants the
 * answer. */
void node_report_progress(void *context, int block) {
  Node *node = context;
  if (!connection_is_open(node->control)) node->cancelled = true;
  if (!node->cancelled && connection_queued(node->control)) connections_step(&(Connection *){node->control}, 1, 0);
  if (node->cancelled || !connection_is_open(node->control) || connection_queued(node->control)) return;
  node_send(node, node->progress, (WireHeader){.kind = WIRE_PROGRESS, .block = (uint8_t)block, .request = node->answered + 1});
}

static Status report_pulse(Exchange *self, Tape *tape, const TokenLayout *layout, int block, int part, Tensor *const h[EXCHANGE_SITES]) {
  Node *node = (Node *)((char *)self - offsetof(Node, pulse));
  (void)tape, (void)layout, (void)part, (void)h;
  if (!node->counted) node_report_progress(node, block); /* while it decodes, tokens are signs of life */
  return node->cancelled ? status_set(STATUS_INTERRUPTED, "the request was cancelled") : STATUS_OK;
}

/* ---- what a request costs ---- */

/* Bytes that have passed since the last request. */
static void count_traffic(Node *node) {
  NodeStatistics *s = &node->network.statistics;
  const TransportCounts now = transport_thread_counts(node->transport), *before = &node->counts;
  s->bytes_sent = now.bytes_sent - before->bytes_sent;
  s->bytes_received = now.bytes_received - before->bytes_received;
  s->payload_sent = now.payload_sent - before->payload_sent;
  s->messages_sent = now.packets_sent - before->packets_sent;
  s->messages_received = now.packets_received - before->packets_received;
  s->lost = now.lost - before->lost;
  s->late = now.late - before->late;
  s->lost_tokens = now.lost_tokens - before->lost_tokens;
  s->late_tokens = now.late_tokens - before->late_tokens;
  s->resent = now.resent - before->resent;
  s->span = now.span - before->span;
  node->counts = now;
}

void node_finish_statistics(Node *node) {
  NodeStatistics *s = &node->network.statistics;
  if (node->counted) return;
  if (node->transport) count_traffic(node);
  if (node->divided) {
    s->wait = node->division.collective.wait;
    s->send = node->division.collective.send;
  }
  s->elapsed = clock_now() - node->began;
  s->compute = fmax(0, s->elapsed - s->quantise - s->send - s->wait);
  node->counted = true;
}

/* ---- one request ---- */

Status node_encode(Node *node, const ModelInput *input, int64_t batch, ModelRows rows, Tensor **encoded) {
  *encoded = NULL;
  if (node->layout.rows == 0) return STATUS_OK;
  if (node->divided) return node_divided_encode(node, input, batch, rows, encoded);
  *encoded =
      model_encode(node->setup->weights->model, node->tape, input, &node->layout, node->networked ? &node->network.exchange : NULL, rows);
  return tape_status(node->tape);
}

static RequestShare own_share(const Node *node) { return node_share_of(node->setup, node->self, &node->layout); }

static NodeAnswer *answer_of(const Node *node, uint8_t kind) {
  static const struct {
    uint8_t kind;
    bool text;
    NodeAnswer *answer;
  } rows[] = {{WIRE_CLASSIFY, false, node_images_answer},
              {WIRE_CLASSIFY, true, node_text_classify},
              {WIRE_PROMPT, true, node_text_prompt},
              {WIRE_SCORE, true, node_text_score},
              {WIRE_LAST, true, node_text_last}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    if (rows[i].kind == kind && rows[i].text == (node->setup->split != NULL)) return rows[i].answer;
  }
  return NULL;
}

static Status begin(Node *node, const NodeRequest *request) {
  if (node->setup->split) TRY(node_text_layout(node, &request->request));
  node->began = clock_now();
  node->counted = false;
  node->network.statistics = (NodeStatistics){0};
  tape_clear(node->tape);
  arena_watch(node->arena);
  arena_watch(node->block_arena);
  if (!node->networked) return STATUS_OK;
  CodeExchangeRequest network = {.number = request->number,
                                 .batch = request->request.batch,
                                 .keep = request->request.codes,
                                 .whole = request->request.kind == WIRE_PROMPT}; /* rows that go to a cache */
  return code_exchange_begin_request(&node->network, &network);
}

/* Bytes that a peer sends ahead count where they arrive. */
static Status compute(Node *node, const NodeRequest *request, uint8_t *result) {
  const NodeSetup *setup = node->setup;
  RequestShare share = own_share(node);
  size_t codes = request_code_bytes(setup, &request->request, &share);
  TRY(answer_of(node, request->request.kind)(node, request, result + WIRE_STATISTICS));
  node_finish_statistics(node);
  wire_pack_statistics(&node->network.statistics, result);
  if (codes) memcpy(result + request_answer_bytes(setup, &request->request, &share) - codes, node->network.kept, codes);
  return STATUS_OK;
}

bool node_has_request(const Node *node) { return node->requests[(node->answered + 1) & 1].arrived; }
int node_fault(const Node *node) { return node->networked ? node->network.fault : node->divided ? node->division.collective.fault : -1; }
uint32_t node_answered(const Node *node) { return node->answered; }
void node_gone(Node *node, int other) {
  if (node->networked && other != node->self) transport_thread_gone(node->transport, other);
}
void node_cancel(Node *node) { node->cancelled = true; }
size_t node_max_payload(const Node *node) { return request_max_bytes(node->setup, &node->max); }

Status node_answer(Node *node) {
  NodeRequest *slot = &node->requests[(node->answered + 1) & 1];
  const Request request = slot->request;
  uint32_t number = slot->number;
  uint8_t *result = node->results[number & 1];
  TRY(begin(node, slot));
  TRY(compute(node, slot, result + WIRE_HEADER));
  TRY(weights_unchanged(node->setup->weights)); /* while this was computed, too */
  RequestShare share = own_share(node);
  slot->arrived = false;
  node->answered = number;
  /* Masked tokens alone may have been lost on the way. */
  bool gave_up = node->networked && node->network.statistics.masked > 0;
  return node_send(node, result,
                   (WireHeader){.kind = WIRE_RESULT,
                                .flags = request.codes ? WIRE_WANT_CODES : 0,
                                .request = number,
                                .count = (uint32_t)request.batch,
                                .block = gave_up ? (uint8_t)(1 + transport_thread_given_up(node->transport)) : 0,
                                .bytes = (uint32_t)request_answer_bytes(node->setup, &request, &share)});
}

/* ---- beginning and end ---- */

/* Decoding goes at about 60 MB/s of packed codes for each peer (tests/bench/bench_rans.c), so that on links of 10 Mbit/s and more a saving
 * below a twentieth takes longer than it saves. All devices have the same frequencies, and choose alike. */
static const double auto_share = 0.95;

static bool sends_codes(const NodeSetup *setup) { return !setup->network || strategy_facts(setup->network->strategy)->sends_codes; }

static const RansTable *choose_coding(const NodeSetup *setup) {
  EntropyChoice choice = setup->network && sends_codes(setup) ? setup->network->entropy : ENTROPY_OFF;
  bool pays = choice == ENTROPY_ON || (choice == ENTROPY_AUTO && setup->weights->coded_share <= auto_share);
  return pays ? setup->weights->coding : NULL;
}

static CodeExchangeSetup network_setup(const Node *node) {
  const NodeSetup *setup = node->setup;
  const ModelConfig *config = setup->weights->config;
  bool whole = setup->strategy == STRATEGY_SP;
  return (CodeExchangeSetup){.self = node->self,
                             .nodes = node->nodes,
                             .layout = &node->layout,
                             .books = setup->weights->books,
                             .blocks = (int)config->blocks,
                             .sites = whole ? config_whole_sites(config) : config_sites(config),
                             .whole_rows = whole,
                             .width = config_whole_width(config),
                             .batch_max = setup->batch_max,
                             .keep_codes = setup->keep_codes,
                             .causal = setup->split != NULL,
                             .tokens_max = setup->tokens_max,
                             .parts = setup->network ? setup->network->parts : 1,
                             .min_packets = setup->network ? setup->network->reliability.min_packets : 1,
                             .lose = setup->network && setup->network->links.lose_tokens ? &setup->network->links : NULL,
                             .keys = sends_codes(setup) ? setup->weights->keys : NULL,
                             .coding = choose_coding(setup),
                             .transport = node->transport};
}

/* The leader may have orders, or may be gone, while codes are waited for. */
Status node_look_at_leader(void *context) { return connections_step(&(Connection *){((Node *)context)->control}, 1, 0); }

typedef struct Opening {
  Node *node;
  BackendPeers *backend;
} Opening;

/* Also while peers are waited for that a transport needs. */
static Status look_while_opening(void *context) {
  const Opening *opening = context;
  Status status = node_look_at_leader(opening->node);
  if (status == STATUS_OK && opening->node->cancelled) status = status_set(STATUS_INTERRUPTED, "given up before it began");
  if (status != STATUS_OK) atomic_store(&opening->backend->give_up, true);
  return status;
}

Status node_start_transport(Node *node, Connection **peers, TransportSetup *transport) {
  const ClusterSetup *wanted = node->setup->network;
  Reliability reliability = wanted ? wanted->reliability : (Reliability){.mode = RELIABILITY_STREAM};
  BackendPeers backend = {.self = node->self,
                          .nodes = node->nodes,
                          .channels = peers,
                          .datagrams = wanted && wanted->transport == TRANSPORT_UDP,
                          .mtu = wanted ? wanted->mtu : 0,
                          .port = wanted ? wanted->member[node->self].address.port : 0,
                          .seconds = node->setup->timeout,
                          .fault = -1};
  backend.agreed = node->setup->agreed;
  backend.agreed_bytes = sizeof node->setup->agreed;
  reliability.timeout = node->setup->timeout;
  transport->reliability = &reliability;
  transport->links = wanted && wanted->shaped ? &wanted->links : NULL;
  transport->timeout = reliability.timeout;
  backend.max_packet = PACKET_HEADER + transport->max_message_bytes;
  const TransportThreadSetup thread = {.transport = *transport,
                                       .open = backend_open,
                                       .open_context = &backend,
                                       .check = look_while_opening,
                                       .check_context = &(Opening){node, &backend}};
  Status status = transport_thread_start(&node->transport, &thread);
  if (status != STATUS_OK) node->network.fault = backend.fault;
  return status;
}

static Status start_network(Node *node, Connection **peers) {
  CodeExchangeSetup network = network_setup(node);
  TransportSetup transport = {.mask = node->setup->mask};
  code_exchange_transport(&network, &transport);
  TRY(node_start_transport(node, peers, &transport));
  network = network_setup(node);
  TRY(code_exchange_init(&node->network, &network));
  node->network.cancelled = &node->cancelled;
  node->network.progress = node_report_progress;
  node->network.progress_context = node->network.check_context = node;
  node->network.check = node_look_at_leader;
  node->networked = true;
  return STATUS_OK;
}

static Status allocate(Node *node) {
  const NodeSetup *setup = node->setup;
  node->max = own_share(node);
  if (setup->split) node->max = (RequestShare){.sent_rows = setup->tokens_max, .last = true};
  size_t payload = request_max_bytes(setup, &node->max), result = WIRE_HEADER + request_max_answer_bytes(setup, &node->max);
  bool memory =
      (node->arena = arena_new(arena_bytes)) && (node->block_arena = arena_new(arena_bytes)) && (node->tape = tape_new(node->arena));
  node->message_bytes = 2 * (payload + result);
  for (int i = 0; i < 2; i++) memory = memory && (node->requests[i].payload = malloc(payload)) && (node->results[i] = malloc(result));
  if (!memory) return status_set(STATUS_NO_MEMORY, "no memory for requests of %lld; use a smaller --batch", (long long)setup->batch_max);
  tape_record(node->tape, false);
  tape_use_bf16(node->tape, setup->weights->bf16);
  tape_segment_use(node->tape, node->block_arena);
  return STATUS_OK;
}

static Status start_layout(Node *node) {
  const NodeSetup *setup = node->setup;
  if (setup->split) return node_text_start(node);
  return node_share_layout(setup, setup->partition->tokens, node->self, &node->layout);
}

static Status start_exchange(Node *node, Connection **peers) {
  if (node_share_strategy(node->setup) == STRATEGY_SINGLE) return STATUS_OK;
  return node_share_everything(node->setup) ? node_divided_start(node, peers) : start_network(node, peers);
}

static Status start(Node *node, Connection **peers) {
  TRY(node_share_check(node->setup));
  TRY(start_layout(node));
  TRY(start_exchange(node, peers));
  TRY(allocate(node));
  if (!node->networked) model_watch(node->setup->weights->model, &node->pulse);
  return STATUS_OK;
}

Status node_new(Node **out, const NodeSetup *setup, int self, Connection *control, Connection **peers, int *fault) {
  Node *node = calloc(1, sizeof *node);
  *out = node;
  Status status = node ? STATUS_OK : status_set(STATUS_NO_MEMORY, "no memory for a node");
  if (node)
    *node = (Node){.setup = setup,
                   .self = self,
                   .nodes = node_setup_count(setup),
                   .control = control,
                   .pulse = {.begin = report_pulse},
                   .network = {.fault = -1},
                   .division = {.collective = {.fault = -1}}};
  if (node) status = start(node, peers);
  for (int d = 0; d < node_setup_count(setup); d++) {
    connection_free(peers[d]);
    peers[d] = NULL;
  }
  if (status == STATUS_OK) return STATUS_OK;
  *fault = node ? node->network.fault : -1;
  node_free(node);
  *out = NULL;
  return status;
}

void node_free(Node *node) {
  if (!node) return;
  if (node->pulse.begin) model_watch(node->setup->weights->model, NULL);
  transport_thread_stop(node->transport);
  if (node->networked) code_exchange_release(&node->network);
  node_divided_release(node);
  tape_free(node->tape);
  arena_free(node->arena);
  arena_free(node->block_arena);
  layout_release(&node->layout);
  node_text_release(node);
  for (int i = 0; i < 2; i++) {
    free(node->requests[i].payload);
    free(node->results[i]);
  }
  free(node);
}
