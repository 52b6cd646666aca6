/* The loop of one node process. Sockets between nodes are network.c's; who started the process is no matter here.
 * Two requests can be in its memory at once: the one that is computed and the next one, which the leader sends ahead. */
#include "infer/node.h"
#include "autograd/tape.h"
#include "base/arena.h"
#include "base/clock.h"
#include "base/threads.h"
#include "infer/network.h"
#include "vq/pack.h"
#include <sched.h>
#include <stdlib.h>
#include <string.h>

typedef struct NodeRequest {
  uint8_t *pixels; /* float32, little-endian */
  WireHeader header;
  bool arrived;
} NodeRequest;

typedef struct Node {
  const NodeSetup *setup;
  int self, nodes;
  TokenLayout layout;
  Network network;
  bool networked;
  Link control;
  bool stop;
  Arena *arena;
  Tape *tape;
  NodeRequest requests[2];
  uint32_t announced, answered; /* numbers of the last request that began to arrive, and that was answered */
  real *pixels;                 /* [batch, C, H, W] */
  uint8_t *results[2];          /* header | statistics | replicas | codes */
  uint8_t hello[WIRE_HEADER], progress[WIRE_HEADER], error[WIRE_HEADER + WIRE_TEXT];
} Node;

static const size_t arena_bytes = (size_t)1 << 36; /* of address space; pages come as they are touched */
static const double linger_seconds = 30;           /* of a failed node, for the leader to learn why */

size_t node_request_bytes(const Weights *weights, int64_t batch) { return (size_t)(batch * weights_pixels(weights)) * 4; }

size_t node_result_bytes(const Weights *weights, const TokenLayout *layout, int64_t batch, bool codes) {
  size_t bytes = WIRE_STATISTICS + (size_t)(batch * layout->class_rows * weights->config->width) * 4;
  if (!codes) return bytes;
  size_t token = pack_bytes_per_token(weights->books[0].groups, weights->books[0].entries);
  return bytes + (size_t)weights->book_count * (size_t)(batch * layout->shared_rows) * token;
}

/* ---- the leader's messages ---- */

static Status check_request(const Node *node, const WireHeader *header) {
  if (header->request != node->announced + 1)
    return status_set(STATUS_BAD_VALUE, "sent request %u after request %u", header->request, node->announced);
  if (header->count < 1 || header->count > node->setup->batch_most)
    return status_set(STATUS_BAD_VALUE, "sent a request of %u pictures; 1 to %lld were agreed", header->count,
                      (long long)node->setup->batch_most);
  if (header->bytes != node_request_bytes(node->setup->weights, header->count))
    return status_set(STATUS_BAD_VALUE, "sent %u bytes of pixels for %u pictures", header->bytes, header->count);
  if ((header->flags & WIRE_WANT_CODES) && !(node->networked && node->setup->keep_codes))
    return status_set(STATUS_BAD_VALUE, "asked for codes, which was not agreed");
  return STATUS_OK;
}

static Status place_request(void *context, Link *link, const WireHeader *header, uint8_t **payload) {
  Node *node = context;
  (void)link;
  if (header->kind == WIRE_BYE && header->bytes == 0) {
    *payload = node->hello;
    return STATUS_OK;
  }
  if (header->kind != WIRE_REQUEST) return status_set(STATUS_BAD_VALUE, "sent an unexpected %s message", wire_kind_name(header->kind));
  TRY(check_request(node, header));
  NodeRequest *slot = &node->requests[header->request & 1];
  *payload = slot->arrived ? NULL : slot->pixels;
  return STATUS_OK;
}

static Status deliver_request(void *context, Link *link, const WireHeader *header, uint8_t *payload) {
  Node *node = context;
  (void)link, (void)payload;
  if (header->kind == WIRE_BYE) {
    node->stop = true;
    return STATUS_OK;
  }
  NodeRequest *slot = &node->requests[header->request & 1];
  slot->header = *header;
  slot->arrived = true;
  node->announced = header->request;
  return STATUS_OK;
}

/* ---- messages to the leader ---- */

static Status send_control(Node *node, uint8_t *message, WireHeader header) {
  header.sender = (uint8_t)node->self;
  wire_pack(&header, message);
  TRY(link_send(&node->control, message, WIRE_HEADER + (size_t)header.bytes));
  return links_step(&(Link *){&node->control}, 1, 0);
}

/* A sign of life: one that is still on its way does for both. Its failure shows at the next step of the links. */
static void report_progress(void *context, int block) {
  Node *node = context;
  if (node->control.fd < 0 || link_pending(&node->control)) return;
  send_control(node, node->progress, (WireHeader){.kind = WIRE_PROGRESS, .block = (uint8_t)block, .request = node->answered + 1});
}

/* ---- one request ---- */

static Tensor *encode(Node *node, const NodeRequest *request) {
  const ModelConfig *config = node->setup->weights->config;
  int64_t shape[4] = {request->header.count, config->channels, config->image, config->image};
  wire_parse_reals(request->pixels, (size_t)(shape[0] * weights_pixels(node->setup->weights)), node->pixels);
  tape_clear(node->tape);
  Tensor *pixels = tape_constant(node->tape, 4, shape, node->pixels);
  return model_encode(node->setup->weights->model, node->tape, &(ModelInput){.pixels = pixels}, &node->layout,
                      node->networked ? &node->network.exchange : NULL, MODEL_ROWS_CLASS);
}

static void fill_result(Node *node, const WireHeader *request, const Tensor *replicas, uint8_t *message) {
  uint8_t *at = message + WIRE_HEADER + WIRE_STATISTICS;
  wire_pack_statistics(&node->network.statistics, message + WIRE_HEADER);
  if (replicas) {
    wire_pack_reals(replicas->value, (size_t)tensor_count(replicas), at);
    at += 4 * (size_t)tensor_count(replicas);
  }
  if (request->flags & WIRE_WANT_CODES) memcpy(at, node->network.kept, network_kept_bytes(&node->network));
}

typedef struct Traffic {
  LinkCount sent, received;
} Traffic;

static Traffic count_traffic(const Node *node) {
  Traffic sum = {0};
  for (int d = 0; node->networked && d < node->nodes; d++) {
    const Link *link = &node->network.peers[d].link;
    sum.sent.bytes += link->sent.bytes, sum.sent.messages += link->sent.messages;
    sum.received.bytes += link->received.bytes, sum.received.messages += link->received.messages;
  }
  return sum;
}

/* What a request cost. Bytes that a peer sends ahead count where they arrive. */
static void finish_statistics(Node *node, Traffic before, double seconds) {
  NodeStatistics *s = &node->network.statistics;
  Traffic after = count_traffic(node);
  s->bytes_sent = after.sent.bytes - before.sent.bytes;
  s->bytes_received = after.received.bytes - before.received.bytes;
  s->messages_sent = after.sent.messages - before.sent.messages;
  s->messages_received = after.received.messages - before.received.messages;
  s->compute = seconds - s->quantise - s->send - s->wait;
  if (s->compute < 0) s->compute = 0;
}

static Status answer(Node *node, NodeRequest *request) {
  const WireHeader header = request->header;
  bool codes = header.flags & WIRE_WANT_CODES;
  double start = clock_now();
  Traffic before = count_traffic(node);
  if (node->networked) TRY(network_begin_request(&node->network, header.request, header.count, codes));
  Tensor *replicas = encode(node, request);
  TRY(tape_status(node->tape));
  if (node->networked) TRY(network_flush(&node->network));
  finish_statistics(node, before, clock_now() - start);
  request->arrived = false;
  uint8_t *result = node->results[header.request & 1];
  fill_result(node, &header, replicas, result);
  node->answered = header.request;
  size_t bytes = node_result_bytes(node->setup->weights, &node->layout, header.count, codes);
  return send_control(
      node, result,
      (WireHeader){.kind = WIRE_RESULT, .flags = header.flags, .request = header.request, .count = header.count, .bytes = (uint32_t)bytes});
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

static Status start_network(Node *node, const int *sockets) {
  const NodeSetup *setup = node->setup;
  const ModelConfig *config = setup->weights->config;
  if (node->nodes == 1) return STATUS_OK;
  NetworkSetup network = {.self = node->self,
                          .nodes = node->nodes,
                          .layout = &node->layout,
                          .books = setup->weights->books,
                          .blocks = (int)config->blocks,
                          .sites = config_sites(config),
                          .batch_most = setup->batch_most,
                          .timeout = setup->timeout,
                          .sockets = sockets,
                          .keep_codes = setup->keep_codes};
  TRY(network_init(&node->network, &network));
  node->network.links[node->nodes] = &node->control;
  node->network.progress = report_progress;
  node->network.progress_context = node;
  node->networked = true;
  return STATUS_OK;
}

static Status allocate(Node *node) {
  const NodeSetup *setup = node->setup;
  size_t pixels = node_request_bytes(setup->weights, setup->batch_most);
  size_t result = WIRE_HEADER + node_result_bytes(setup->weights, &node->layout, setup->batch_most, node->networked && setup->keep_codes);
  bool memory =
      (node->pixels = malloc(pixels / 4 * sizeof(real))) && (node->arena = arena_new(arena_bytes)) && (node->tape = tape_new(node->arena));
  for (int i = 0; i < 2; i++) memory = memory && (node->requests[i].pixels = malloc(pixels)) && (node->results[i] = malloc(result));
  if (!memory)
    return status_set(STATUS_NO_MEMORY, "no memory for requests of %lld pictures; use a smaller --batch", (long long)setup->batch_most);
  tape_record(node->tape, false);
  return STATUS_OK;
}

static Status start(Node *node, const int *sockets) {
  TRY(start_threads(node));
  TRY(partition_layout(node->setup->partition, node->setup->weights->config->astra.class_token, node->self, &node->layout));
  TRY(start_network(node, sockets));
  TRY(allocate(node));
  return send_control(node, node->hello, (WireHeader){.kind = WIRE_HELLO});
}

/* Tells the leader why, and stays until it lets go: a process that has ended would look like the one to blame. */
static void confess(Node *node) {
  const char *text = status_message();
  size_t length = strnlen(text, WIRE_TEXT);
  memcpy(node->error + WIRE_HEADER, text, length);
  int accused = node->networked ? node->network.accused : -1;
  double until = clock_now() + linger_seconds;
  if (node->control.fd < 0) return;
  WireHeader header = {.kind = WIRE_ERROR, .request = node->answered + 1, .count = (uint32_t)(accused + 1), .bytes = (uint32_t)length};
  Status status = send_control(node, node->error, header);
  while (status == STATUS_OK && !node->stop && clock_now() < until) status = links_step(&(Link *){&node->control}, 1, 1);
}

static void release(Node *node) {
  threads_stop();
  if (node->networked) network_release(&node->network);
  link_close(&node->control);
  tape_free(node->tape);
  arena_free(node->arena);
  layout_release(&node->layout);
  free(node->pixels);
  for (int i = 0; i < 2; i++) {
    free(node->requests[i].pixels);
    free(node->results[i]);
  }
}

int node_run(const NodeSetup *setup, int self, int control, const int *sockets) {
  Node node = {.setup = setup, .self = self, .nodes = setup->partition->nodes, .network = {.accused = -1}};
  LinkSink sink = {.context = &node,
                   .most_payload = node_request_bytes(setup->weights, setup->batch_most),
                   .place = place_request,
                   .deliver = deliver_request};
  Status status = link_open(&node.control, control, -1, &sink);
  if (status == STATUS_OK) status = start(&node, sockets);
  if (status == STATUS_OK) status = serve(&node);
  /* The leader is gone: so is the reason to be here. */
  bool failed = status != STATUS_OK && node.control.fd >= 0;
  if (failed) confess(&node);
  release(&node);
  return failed ? 1 : 0;
}
