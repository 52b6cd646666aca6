/* The loop of one node process. Sockets between nodes are network.c's; who started the process is no matter here.
 * Two requests can be in its memory at once: the one that is computed and the next one, which the leader sends ahead. */
#include "infer/node.h"
#include "base/arena.h"
#include "base/clock.h"
#include "base/threads.h"
#include "infer/node_parts.h"
#include <math.h>
#include <sched.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

static const size_t arena_bytes = (size_t)1 << 36; /* of address space; pages come as they are touched */
static const double linger_seconds = 30;           /* of a failed node, for the leader to learn why */

/* ---- the leader's messages ---- */

static Status check_request(const Node *node, const WireHeader *header, Request *request) {
  if (header->request != node->announced + 1)
    return status_set(STATUS_BAD_VALUE, "sent request %u after request %u", header->request, node->announced);
  TRY(request_read(request, node->setup, header));
  if (request->codes && !(node->networked && node->setup->keep_codes))
    return status_set(STATUS_BAD_VALUE, "asked for codes, which was not agreed");
  return STATUS_OK;
}

static bool is_order(const WireHeader *header) { return header->kind == WIRE_BYE || header->kind == WIRE_STOP; }

static Status place_request(void *context, Link *link, const WireHeader *header, uint8_t **payload) {
  Node *node = context;
  Request request;
  (void)link;
  if (is_order(header) && header->bytes == 0) {
    *payload = node->hello;
    return STATUS_OK;
  }
  TRY(check_request(node, header, &request));
  NodeRequest *slot = &node->requests[header->request & 1];
  *payload = slot->arrived ? NULL : slot->payload;
  return STATUS_OK;
}

static Status deliver_request(void *context, Link *link, const WireHeader *header, uint8_t *payload) {
  Node *node = context;
  (void)link, (void)payload;
  if (header->kind == WIRE_BYE) node->stop = true;
  if (header->kind == WIRE_STOP) node->text.stopped = header->request;
  if (is_order(header)) return STATUS_OK;
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
  TRY(link_send(&node->control, message, WIRE_HEADER + (size_t)header.bytes));
  return links_step(&(Link *){&node->control}, 1, 0);
}

/* A sign of life: one that is still on its way does for both. Its failure shows at the next step of the links. */
void node_report_progress(void *context, int block) {
  Node *node = context;
  if (!link_is_open(&node->control) || link_pending(&node->control)) return;
  node_send(node, node->progress, (WireHeader){.kind = WIRE_PROGRESS, .block = (uint8_t)block, .request = node->answered + 1});
}

static Status report_pulse(Exchange *self, Tape *tape, const TokenLayout *layout, int block, int site, Tensor *h) {
  Node *node = (Node *)((char *)self - offsetof(Node, pulse));
  (void)tape, (void)layout, (void)h;
  if (site == 0 && !node->counted) node_report_progress(node, block); /* while it decodes, tokens are signs of life */
  return STATUS_OK;
}

/* ---- what a request costs ---- */

void node_finish_statistics(Node *node) {
  NodeStatistics *s = &node->network.statistics;
  if (node->counted) return;
  network_finish_statistics(&node->network);
  s->elapsed = clock_now() - node->began;
  s->compute = fmax(0, s->elapsed - s->quantise - s->send - s->wait);
  node->counted = true;
}

/* ---- one request ---- */

Exchange *node_exchange(Node *node) { return node->networked ? &node->network.exchange : NULL; }

static NodeAnswer *answer_of(uint8_t kind) {
  static const struct {
    uint8_t kind;
    NodeAnswer *answer;
  } rows[] = {
      {WIRE_REQUEST, node_pictures_answer}, {WIRE_PROMPT, node_text_prompt}, {WIRE_SCORE, node_text_score}, {WIRE_LAST, node_text_last}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    if (rows[i].kind == kind) return rows[i].answer;
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
  if (!node->networked) return STATUS_OK;
  NetworkRequest network = {.number = request->number,
                            .batch = request->request.batch,
                            .keep = request->request.codes,
                            .whole = request->request.kind == WIRE_PROMPT}; /* rows that go to a cache */
  return network_begin_request(&node->network, &network);
}

/* Bytes that a peer sends ahead count where they arrive. */
static Status compute(Node *node, const NodeRequest *request, uint8_t *result) {
  const NodeSetup *setup = node->setup;
  RequestShare share = request_share(&node->layout);
  size_t codes = request_code_bytes(setup, &request->request, &share);
  TRY(answer_of(request->request.kind)(node, request, result + WIRE_STATISTICS));
  node_finish_statistics(node);
  wire_pack_statistics(&node->network.statistics, result);
  if (codes) memcpy(result + request_answer_bytes(setup, &request->request, &share) - codes, node->network.kept, codes);
  return STATUS_OK;
}

static Status answer(Node *node, NodeRequest *slot) {
  const Request request = slot->request;
  uint32_t number = slot->number;
  uint8_t *result = node->results[number & 1];
  TRY(begin(node, slot));
  TRY(compute(node, slot, result + WIRE_HEADER));
  RequestShare share = request_share(&node->layout);
  slot->arrived = false;
  node->answered = number;
  return node_send(node, result,
                   (WireHeader){.kind = WIRE_RESULT,
                                .flags = request.codes ? WIRE_WANT_CODES : 0,
                                .request = number,
                                .count = (uint32_t)request.batch,
                                .bytes = (uint32_t)request_answer_bytes(node->setup, &request, &share)});
}

static Status serve(Node *node) {
  while (!node->stop) {
    NodeRequest *next = &node->requests[(node->answered + 1) & 1];
    if (next->arrived)
      TRY(answer(node, next));
    else
      TRY(links_step(&(Link *){&node->control}, 1, 3600));
  }
  return STATUS_OK;
}

/* ---- beginning and end ---- */

/* A node of several threads gets cores of its own where there are enough for all nodes: the pool binds its workers to what is allowed. */
static void choose_cores(int self, int nodes, int threads) {
  cpu_set_t allowed, own;
  if (threads < 2 || nodes < 2 || sched_getaffinity(0, sizeof allowed, &allowed) != 0 || nodes * threads > CPU_COUNT(&allowed)) return;
  CPU_ZERO(&own);
  for (int core = 0, seen = 0; core < CPU_SETSIZE; core++) {
    if (!CPU_ISSET(core, &allowed)) continue;
    if (seen / threads == self) CPU_SET(core, &own);
    seen++;
  }
  sched_setaffinity(0, sizeof own, &own); /* a refusal costs speed only */
}

static Status start_threads(const Node *node) {
  if (node->setup->threads == 1) return STATUS_OK;
  choose_cores(node->self, node->nodes, node->setup->threads);
  return threads_start(node->setup->threads);
}

static NetworkSetup network_setup(const Node *node) {
  const NodeSetup *setup = node->setup;
  const ModelConfig *config = setup->weights->config;
  return (NetworkSetup){.self = node->self,
                        .nodes = node->nodes,
                        .layout = &node->layout,
                        .books = setup->weights->books,
                        .blocks = (int)config->blocks,
                        .sites = config_sites(config),
                        .batch_most = setup->batch_most,
                        .keep_codes = setup->keep_codes,
                        .causal = setup->split != NULL,
                        .tokens_most = setup->tokens_most,
                        .parts = setup->network ? setup->network->parts : 1,
                        .least_packets = setup->network ? setup->network->reliability.least_packets : 1,
                        .lose = setup->network && setup->network->links.lose_tokens ? &setup->network->links : NULL,
                        .courier = node->courier};
}

/* The leader may have orders, or may be gone, while codes are waited for. */
static Status look_at_leader(void *context) { return links_step(&(Link *){&((Node *)context)->control}, 1, 0); }

static Status open_channels(const int *sockets, int nodes, Channel **channels) {
  Status status = STATUS_OK;
  for (int d = 0; d < nodes; d++) {
    Status opened = sockets[d] < 0 ? STATUS_OK : channel_plain(&channels[d], sockets[d]);
    if (opened != STATUS_OK) status = opened;
  }
  for (int d = 0; status != STATUS_OK && d < nodes; d++) channel_free(channels[d]);
  return status;
}

/* Its thread is there before the pool binds threads to cores. */
static Status start_courier(Node *node, const int *sockets) {
  const ClusterSetup *wanted = node->setup->network;
  NetworkSetup network = network_setup(node);
  Channel *channels[WIRE_NODES] = {0};
  Reliability reliability = wanted ? wanted->reliability : (Reliability){.mode = RELIABILITY_STREAM};
  CarrierPeers peers = {.self = node->self,
                        .nodes = node->nodes,
                        .channels = channels,
                        .datagrams = wanted && wanted->transport == TRANSPORT_UDP,
                        .mtu = wanted ? wanted->mtu : 0,
                        .seconds = node->setup->timeout};
  if (node->nodes == 1) return STATUS_OK;
  reliability.timeout = node->setup->timeout;
  CourierSetup courier = {.reliability = &reliability,
                          .links = wanted && wanted->shaped ? &wanted->links : NULL,
                          .timeout = reliability.timeout,
                          .open = carrier_peers_open,
                          .open_context = &peers};
  network_courier(&network, &courier);
  peers.packet_most = PACKET_HEADER + courier.slot_bytes;
  TRY(open_channels(sockets, node->nodes, channels));
  return courier_start(&node->courier, &courier);
}

static Status start_network(Node *node) {
  NetworkSetup network = network_setup(node);
  if (node->nodes == 1) return STATUS_OK;
  TRY(network_init(&node->network, &network));
  node->network.progress = node_report_progress;
  node->network.progress_context = node->network.check_context = node;
  node->network.check = look_at_leader;
  node->networked = true;
  return STATUS_OK;
}

static Status allocate(Node *node) {
  const NodeSetup *setup = node->setup;
  RequestShare share = request_share(&node->layout);
  if (setup->split) share = (RequestShare){.sent_rows = setup->tokens_most, .last = true};
  size_t payload = request_most_bytes(setup), result = WIRE_HEADER + request_most_answer_bytes(setup, &share);
  bool memory = (node->arena = arena_new(arena_bytes)) && (node->tape = tape_new(node->arena));
  node->message_bytes = 2 * (payload + result);
  for (int i = 0; i < 2; i++) memory = memory && (node->requests[i].payload = malloc(payload)) && (node->results[i] = malloc(result));
  if (!memory) return status_set(STATUS_NO_MEMORY, "no memory for requests of %lld; use a smaller --batch", (long long)setup->batch_most);
  tape_record(node->tape, false);
  return STATUS_OK;
}

static Status start_layout(Node *node) {
  const NodeSetup *setup = node->setup;
  if (setup->split) return node_text_start(node);
  return partition_layout(setup->partition, setup->weights->config->astra.class_token, node->self, &node->layout);
}

static Status start(Node *node, const int *sockets) {
  TRY(start_layout(node));
  TRY(start_courier(node, sockets));
  TRY(start_threads(node));
  TRY(start_network(node));
  TRY(allocate(node));
  if (!node->networked && node->setup->split) model_watch(node->setup->weights->model, &node->pulse);
  return node_send(node, node->hello, (WireHeader){.kind = WIRE_HELLO});
}

/* Tells the leader why, and stays until it lets go: a process that has ended would look like the one to blame. */
static void confess(Node *node) {
  const char *text = status_message();
  size_t length = strnlen(text, WIRE_TEXT);
  memcpy(node->error + WIRE_HEADER, text, length);
  int accused = node->networked ? node->network.accused : -1;
  double until = clock_now() + linger_seconds;
  if (!link_is_open(&node->control)) return;
  WireHeader header = {.kind = WIRE_ERROR, .request = node->answered + 1, .count = (uint32_t)(accused + 1), .bytes = (uint32_t)length};
  Status status = node_send(node, node->error, header);
  while (status == STATUS_OK && !node->stop && clock_now() < until) status = links_step(&(Link *){&node->control}, 1, 1);
}

static void release(Node *node) {
  threads_stop();
  courier_stop(node->courier);
  if (node->networked) network_release(&node->network);
  link_close(&node->control);
  tape_free(node->tape);
  arena_free(node->arena);
  layout_release(&node->layout);
  node_text_release(node);
  for (int i = 0; i < 2; i++) {
    free(node->requests[i].payload);
    free(node->results[i]);
  }
}

int node_run(const NodeSetup *setup, int self, int control, const int *sockets) {
  Node node = {
      .setup = setup, .self = self, .nodes = node_setup_count(setup), .pulse = {.begin = report_pulse}, .network = {.accused = -1}};
  LinkSink sink = {.context = &node, .most_payload = request_most_bytes(setup), .place = place_request, .deliver = deliver_request};
  Status status = link_open(&node.control, control, -1, &sink);
  if (status == STATUS_OK) status = start(&node, sockets);
  if (status == STATUS_OK) status = serve(&node);
  /* The leader is gone: so is the reason to be here. */
  bool failed = status != STATUS_OK && link_is_open(&node.control);
  if (failed) confess(&node);
  release(&node);
  return failed ? 1 : 0;
}
