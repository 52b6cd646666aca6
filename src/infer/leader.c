/* Requests and answers of a cluster. Leaves out: how processes are made (processes.c), what a node does (node.c), pictures. */
#include "infer/leader.h"
#include "autograd/tape.h"
#include "base/arena.h"
#include "base/clock.h"
#include "infer/link.h"
#include "infer/node.h"
#include "infer/processes.h"
#include "vq/pack.h"
#include <stdlib.h>
#include <string.h>

/* A request under way. Slot request & 1. */
typedef struct LeaderRequest {
  uint8_t *message;      /* header | pixels: one copy, read by all links */
  uint8_t **results;     /* [nodes] payloads */
  bool *arrived;         /* [nodes] */
  NodeStatistics *nodes; /* [nodes] */
  uint32_t number;       /* 0: free */
  int64_t batch;
} LeaderRequest;

struct Leader {
  const Weights *weights;
  const Partition *partition;
  LeaderOptions options;
  NodeSetup setup; /* what the children run on */
  Processes processes;
  int nodes;
  Link *control;       /* [nodes] */
  Link **links;        /* [nodes] */
  TokenLayout *layout; /* [nodes] */
  LeaderRequest requests[LEADER_DEPTH];
  uint32_t submitted, collected;
  bool *ready;        /* [nodes] has said hello */
  uint64_t *progress; /* [nodes] how far each has come: request (blocks + 2) + block */
  int complainer, accused;
  char (*complaints)[WIRE_TEXT + 1]; /* [nodes] */
  NodeStatistics *totals;            /* [nodes] */
  int64_t class_rows;                /* of all nodes */
  real *replicas, *logits;
  int32_t *codes, *node_codes;
  Arena *arena;
  Tape *tape;
  uint8_t bye[WIRE_HEADER];
};

static const size_t arena_bytes = (size_t)1 << 32;
static const double explain_seconds = 0.5; /* for the system to tell which child has died */
static const double watch_seconds = 0.25;  /* between two looks at the stop flag */
static const double stop_seconds = 2;      /* for nodes to leave by themselves */

int leader_nodes(const Leader *leader) { return leader->nodes; }
pid_t leader_pid(const Leader *leader, int node) { return leader->processes.pid[node]; }
const NodeStatistics *leader_totals(const Leader *leader) { return leader->totals; }
const Weights *leader_weights(const Leader *leader) { return leader->weights; }
const Partition *leader_partition(const Leader *leader) { return leader->partition; }
int leader_under_way(const Leader *leader) { return (int)(leader->submitted - leader->collected); }

/* ---- messages of nodes ---- */

static LeaderRequest *request_of(Leader *leader, uint32_t number) {
  LeaderRequest *request = &leader->requests[number & 1];
  return number && request->number == number ? request : NULL;
}

static Status place_result(Leader *leader, int node, const WireHeader *header, uint8_t **payload) {
  LeaderRequest *request = request_of(leader, header->request);
  if (!request || request->arrived[node])
    return status_set(STATUS_BAD_VALUE, "answered request %u, which nobody waits for", header->request);
  size_t expected = node_result_bytes(leader->weights, &leader->layout[node], request->batch, leader->options.codes);
  if (header->count != request->batch || header->bytes != expected)
    return status_set(STATUS_BAD_VALUE, "answered with %u bytes for %u pictures; %zu for %lld were expected", header->bytes, header->count,
                      expected, (long long)request->batch);
  *payload = request->results[node];
  return STATUS_OK;
}

static Status place_message(void *context, Link *link, const WireHeader *header, uint8_t **payload) {
  Leader *leader = context;
  int node = link->peer;
  if (header->sender != node) return status_set(STATUS_BAD_VALUE, "sent a message in the name of node %d", header->sender);
  if (header->kind == WIRE_RESULT) return place_result(leader, node, header, payload);
  if (header->kind == WIRE_ERROR && header->bytes <= WIRE_TEXT && header->count <= (uint32_t)leader->nodes) {
    *payload = (uint8_t *)leader->complaints[node];
    return STATUS_OK;
  }
  bool known = header->kind == WIRE_HELLO || (header->kind == WIRE_PROGRESS && header->block < leader->weights->config->blocks);
  if (!known || header->bytes) return status_set(STATUS_BAD_VALUE, "sent an unexpected %s message", wire_kind_name(header->kind));
  *payload = leader->bye;
  return STATUS_OK;
}

static void note_progress(Leader *leader, int node, uint32_t request, uint64_t block) {
  leader->progress[node] = (uint64_t)request * (uint64_t)(leader->weights->config->blocks + 2) + block;
}

/* The link stays open: a node whose control stream ends leaves, and then looks like the one that died. */
static void take_complaint(Leader *leader, int node, const WireHeader *header) {
  if (leader->complainer < 0) {
    leader->complainer = node;
    leader->accused = (int)header->count - 1;
  }
  char *complaint = leader->complaints[node];
  complaint[header->bytes] = 0;
  for (char *c = complaint; *c; c++) {
    if ((unsigned char)*c < ' ') *c = ' '; /* no control characters from a socket to a terminal */
  }
}

static Status deliver_message(void *context, Link *link, const WireHeader *header, uint8_t *payload) {
  Leader *leader = context;
  int node = link->peer;
  if (header->kind == WIRE_ERROR) take_complaint(leader, node, header);
  if (header->kind == WIRE_HELLO) leader->ready[node] = true;
  if (header->kind == WIRE_PROGRESS) note_progress(leader, node, header->request, header->block + 1U);
  if (header->kind != WIRE_RESULT) return STATUS_OK;
  LeaderRequest *request = request_of(leader, header->request);
  TRY(wire_parse_statistics(payload, &request->nodes[node]));
  request->arrived[node] = true;
  note_progress(leader, node, header->request, (uint64_t)leader->weights->config->blocks + 1);
  return STATUS_OK;
}

/* ---- waiting, and who is to blame ---- */

/* The cause is a dead child, if there is one; else what a node has said; else what the links say. A child's end may show a moment after
 * its sockets have closed. */
static Status explain(Leader *leader, Status status) {
  char text[128];
  int dead = processes_find_dead(&leader->processes, status == STATUS_PEER ? explain_seconds : 0, text, sizeof text);
  if (dead >= 0) return status_set(STATUS_PEER, "node %d (pid %d) %s", dead, (int)leader_pid(leader, dead), text);
  int from = leader->complainer, about = leader->accused;
  if (from < 0) return status;
  const char *complaint = leader->complaints[from];
  if (about < 0) return status_set(STATUS_PEER, "node %d (pid %d): %s", from, (int)leader_pid(leader, from), complaint);
  return status_set(STATUS_PEER, "%s (node %d is pid %d; reported by node %d)", complaint, about, (int)leader_pid(leader, about), from);
}

static uint64_t bytes_moved(const Leader *leader) {
  uint64_t bytes = 0;
  for (int d = 0; d < leader->nodes; d++) bytes += leader->control[d].sent.bytes + leader->control[d].received.bytes;
  return bytes;
}

/* The node that is waited for and has come least far. */
static Status report_silence(const Leader *leader, const bool *arrived) {
  int late = -1;
  for (int d = 0; d < leader->nodes; d++) {
    if (!arrived[d] && (late < 0 || leader->progress[d] < leader->progress[late])) late = d;
  }
  return status_set(STATUS_TIMEOUT, "node %d (pid %d) did not answer within %g s", late, (int)leader_pid(leader, late),
                    leader->options.timeout);
}

static bool all_true(const bool *flags, int count) {
  for (int i = 0; i < count; i++) {
    if (!flags[i]) return false;
  }
  return true;
}

/* Until every node has set its flag. Silence is judged over all nodes: while any of them gets on, a long request is only long. The nodes
 * know best whom they wait for, so they are given a moment to say it first. */
static Status wait_for(Leader *leader, const bool *arrived) {
  double heard = clock_now(), patience = leader->options.timeout + 1;
  uint64_t moved = bytes_moved(leader);
  while (!all_true(arrived, leader->nodes)) {
    if (leader->options.stop && *leader->options.stop) return status_set(STATUS_INTERRUPTED, "interrupted");
    Status status = links_step(leader->links, leader->nodes, watch_seconds);
    if (status == STATUS_OK && leader->complainer >= 0) status = STATUS_PEER;
    if (status != STATUS_OK) return explain(leader, status);
    if (bytes_moved(leader) != moved) heard = clock_now();
    moved = bytes_moved(leader);
    if (clock_now() - heard > patience) return report_silence(leader, arrived);
  }
  return STATUS_OK;
}

/* ---- requests ---- */

Status leader_submit(Leader *leader, const float *pixels, int64_t batch) {
  if (leader_under_way(leader) >= LEADER_DEPTH) return status_set(STATUS_BAD_VALUE, "%d requests are under way already", LEADER_DEPTH);
  if (batch < 1 || batch > leader->options.batch_most)
    return status_set(STATUS_BAD_VALUE, "a request of %lld pictures; 1 to %lld are possible", (long long)batch,
                      (long long)leader->options.batch_most);
  uint32_t number = ++leader->submitted;
  LeaderRequest *request = &leader->requests[number & 1];
  request->number = number;
  request->batch = batch;
  memset(request->arrived, 0, (size_t)leader->nodes * sizeof *request->arrived);
  WireHeader header = {.kind = WIRE_REQUEST,
                       .sender = WIRE_LEADER,
                       .flags = leader->options.codes ? WIRE_WANT_CODES : 0,
                       .request = number,
                       .count = (uint32_t)batch,
                       .bytes = (uint32_t)node_request_bytes(leader->weights, batch)};
  wire_pack(&header, request->message);
  wire_pack_floats(pixels, (size_t)(batch * weights_pixels(leader->weights)), request->message + WIRE_HEADER);
  Status status = STATUS_OK;
  for (int d = 0; d < leader->nodes && status == STATUS_OK; d++)
    status = link_send(&leader->control[d], request->message, WIRE_HEADER + (size_t)header.bytes);
  if (status == STATUS_OK) status = links_step(leader->links, leader->nodes, 0);
  return status == STATUS_OK ? STATUS_OK : explain(leader, status);
}

/* All replicas [B, class_rows, D], in the order of the nodes, as the training emulation has them. */
static void gather_replicas(Leader *leader, const LeaderRequest *request) {
  int64_t width = leader->weights->config->width, first = 0;
  for (int d = 0; d < leader->nodes; d++) {
    int64_t rows = leader->layout[d].class_rows;
    const uint8_t *from = request->results[d] + WIRE_STATISTICS;
    for (int64_t b = 0; b < request->batch; b++)
      wire_parse_reals(from + (size_t)(b * rows * width) * 4, (size_t)(rows * width),
                       leader->replicas + (b * leader->class_rows + first) * width);
    first += rows;
  }
}

static Status classify(Leader *leader, const LeaderRequest *request) {
  int64_t shape[3] = {request->batch, leader->class_rows, leader->weights->config->width};
  gather_replicas(leader, request);
  tape_clear(leader->tape);
  Tensor *replicas = tape_constant(leader->tape, 3, shape, leader->replicas);
  Tensor *logits = model_classify(leader->weights->model, leader->tape, replicas);
  if (!logits) return tape_status(leader->tape);
  memcpy(leader->logits, logits->value, (size_t)tensor_count(logits) * sizeof(real));
  return STATUS_OK;
}

/* A node's codes of one block and site, [B, shared rows, G] -> their places in [B, T, G]. A single class token has codes too, but no place
 * among the content tokens. */
static void place_node_codes(Leader *leader, int node, int64_t first, int64_t batch, int32_t *out) {
  const TokenLayout *layout = &leader->layout[node];
  int64_t groups = leader->weights->books[0].groups, tokens = leader->partition->tokens;
  int64_t skip = layout->shared_rows - leader->partition->counts[node];
  for (int64_t b = 0; b < batch; b++) {
    for (int64_t i = skip; i < layout->shared_rows; i++) {
      int32_t token = leader->partition->order[first + i - skip];
      memcpy(out + (b * tokens + token) * groups, leader->node_codes + (b * layout->shared_rows + i) * groups,
             (size_t)groups * sizeof(int32_t));
    }
  }
}

static Status gather_codes(Leader *leader, const LeaderRequest *request) {
  const Weights *weights = leader->weights;
  const Codebook *book = &weights->books[0];
  int64_t first = 0, set = request->batch * leader->partition->tokens * book->groups;
  for (int d = 0; d < leader->nodes; d++) {
    const TokenLayout *layout = &leader->layout[d];
    int64_t rows = request->batch * layout->shared_rows;
    const uint8_t *packed = request->results[d] + node_result_bytes(weights, layout, request->batch, false);
    for (int i = 0; i < weights->book_count; i++, packed += (size_t)rows * pack_bytes_per_token(book->groups, book->entries)) {
      if (pack_unpack(packed, rows, book->groups, book->entries, leader->node_codes) != STATUS_OK)
        return status_wrap(STATUS_BAD_VALUE, "node %d: codes of block %d", d, i);
      place_node_codes(leader, d, first, request->batch, leader->codes + i * set);
    }
    first += leader->partition->counts[d];
  }
  return STATUS_OK;
}

static void add_totals(Leader *leader, const NodeStatistics *nodes) {
  for (int d = 0; d < leader->nodes; d++) {
    NodeStatistics *sum = &leader->totals[d];
    sum->compute += nodes[d].compute, sum->quantise += nodes[d].quantise;
    sum->send += nodes[d].send, sum->wait += nodes[d].wait;
    sum->bytes_sent += nodes[d].bytes_sent, sum->bytes_received += nodes[d].bytes_received;
    sum->messages_sent += nodes[d].messages_sent, sum->messages_received += nodes[d].messages_received;
  }
}

Status leader_collect(Leader *leader, LeaderAnswer *answer) {
  if (!leader_under_way(leader)) return status_set(STATUS_BAD_VALUE, "no request is under way");
  LeaderRequest *request = &leader->requests[(leader->collected + 1) & 1];
  TRY(wait_for(leader, request->arrived));
  leader->collected++;
  request->number = 0;
  TRY(classify(leader, request));
  if (leader->options.codes) TRY(gather_codes(leader, request));
  add_totals(leader, request->nodes);
  *answer = (LeaderAnswer){
      .batch = request->batch, .logits = leader->logits, .codes = leader->options.codes ? leader->codes : NULL, .nodes = request->nodes};
  return STATUS_OK;
}

/* ---- beginning and end ---- */

static Status check_options(const Weights *weights, const Partition *partition, const LeaderOptions *options) {
  if (partition->nodes > 1 && !weights->books)
    return status_set(
        STATUS_BAD_VALUE,
        "a plain model (no codebooks) runs on one node only: use --nodes 1, or fine-tune it for several with astra-train --groups");
  if (options->batch_most < 1 || (double)options->batch_most * (double)weights_pixels(weights) * 4 > (double)INT32_MAX)
    return status_set(STATUS_BAD_VALUE, "a batch of %lld pictures is too large for one request; use a smaller --batch",
                      (long long)options->batch_most);
  if (options->codes && partition->nodes < 2) return status_set(STATUS_BAD_VALUE, "one node exchanges no codes");
  return STATUS_OK;
}

static Status allocate_request(Leader *leader, LeaderRequest *request) {
  size_t nodes = (size_t)leader->nodes;
  bool memory = (request->message = malloc(WIRE_HEADER + node_request_bytes(leader->weights, leader->options.batch_most))) &&
                (request->results = calloc(nodes, sizeof(uint8_t *))) && (request->arrived = calloc(nodes, sizeof(bool))) &&
                (request->nodes = calloc(nodes, sizeof(NodeStatistics)));
  for (int d = 0; memory && d < leader->nodes; d++) {
    size_t bytes = node_result_bytes(leader->weights, &leader->layout[d], leader->options.batch_most, leader->options.codes);
    memory = (request->results[d] = malloc(bytes));
  }
  return memory ? STATUS_OK : status_set(STATUS_NO_MEMORY, "no memory for requests; use a smaller --batch");
}

static Status allocate_answer(Leader *leader) {
  const ModelConfig *config = leader->weights->config;
  size_t batch = (size_t)leader->options.batch_most;
  bool memory = (leader->arena = arena_new(arena_bytes)) && (leader->tape = tape_new(leader->arena)) &&
                (leader->replicas = malloc(batch * (size_t)(leader->class_rows * config->width) * sizeof(real))) &&
                (leader->logits = malloc(batch * (size_t)config->classes * sizeof(real)));
  if (leader->options.codes) {
    size_t codes = batch * (size_t)((leader->partition->tokens + 1) * leader->weights->books[0].groups) * sizeof(int32_t);
    memory = memory && (leader->codes = malloc((size_t)leader->weights->book_count * codes)) && (leader->node_codes = malloc(codes));
  }
  if (!memory) return status_set(STATUS_NO_MEMORY, "no memory for answers; use a smaller --batch");
  tape_record(leader->tape, false);
  return STATUS_OK;
}

static Status allocate(Leader *leader) {
  size_t nodes = (size_t)leader->nodes;
  bool memory = (leader->control = calloc(nodes, sizeof(Link))) && (leader->links = calloc(nodes, sizeof(Link *))) &&
                (leader->layout = calloc(nodes, sizeof(TokenLayout))) && (leader->ready = calloc(nodes, sizeof(bool))) &&
                (leader->progress = calloc(nodes, sizeof(uint64_t))) && (leader->complaints = calloc(nodes, sizeof *leader->complaints)) &&
                (leader->totals = calloc(nodes, sizeof(NodeStatistics)));
  if (!memory) return status_set(STATUS_NO_MEMORY, "no memory for %d nodes", leader->nodes);
  for (int d = 0; d < leader->nodes; d++) {
    link_clear(&leader->control[d]);
    leader->links[d] = &leader->control[d];
    TRY(partition_layout(leader->partition, leader->weights->config->astra.class_token, d, &leader->layout[d]));
    leader->class_rows += leader->layout[d].class_rows;
  }
  for (int i = 0; i < LEADER_DEPTH; i++) TRY(allocate_request(leader, &leader->requests[i]));
  return allocate_answer(leader);
}

static int child(void *context, int node, int control, const int *sockets) { return node_run(context, node, control, sockets); }

static Status start_nodes(Leader *leader) {
  LinkSink sink = {.context = leader, .place = place_message, .deliver = deliver_message};
  TRY(processes_start(&leader->processes, leader->nodes, child, &leader->setup));
  for (int d = 0; d < leader->nodes; d++) {
    sink.most_payload = node_result_bytes(leader->weights, &leader->layout[d], leader->options.batch_most, leader->options.codes);
    if (sink.most_payload < WIRE_TEXT) sink.most_payload = WIRE_TEXT;
    TRY(link_open(&leader->control[d], leader->processes.control[d], d, &sink));
    leader->processes.control[d] = -1;
  }
  return wait_for(leader, leader->ready);
}

Status leader_start(Leader **out, const Weights *weights, const Partition *partition, const LeaderOptions *options) {
  *out = NULL;
  TRY(check_options(weights, partition, options));
  Leader *leader = calloc(1, sizeof *leader);
  if (!leader) return status_set(STATUS_NO_MEMORY, "no memory for a leader");
  *leader = (Leader){.weights = weights,
                     .partition = partition,
                     .options = *options,
                     .setup = {weights, partition, options->batch_most, options->timeout, options->threads, options->codes},
                     .nodes = partition->nodes,
                     .complainer = -1,
                     .accused = -1};
  Status status = allocate(leader);
  if (status == STATUS_OK) status = start_nodes(leader);
  if (status != STATUS_OK) {
    leader_stop(leader);
    return status;
  }
  *out = leader;
  return STATUS_OK;
}

/* Says bye, which idle nodes follow at once; those that compute or hang are killed after a moment. */
static void dismiss(Leader *leader) {
  wire_pack(&(WireHeader){.kind = WIRE_BYE, .sender = WIRE_LEADER}, leader->bye);
  bool idle = leader_under_way(leader) == 0;
  for (int d = 0; leader->control && d < leader->nodes; d++) {
    Link *link = &leader->control[d];
    bool told = idle && link->fd >= 0 && link_send(link, leader->bye, WIRE_HEADER) == STATUS_OK;
    if (told) links_step(&link, 1, 0);
    link_close(link);
  }
  processes_stop(&leader->processes, idle ? stop_seconds : 0);
}

void leader_stop(Leader *leader) {
  if (!leader) return;
  dismiss(leader);
  for (int i = 0; i < LEADER_DEPTH; i++) {
    LeaderRequest *request = &leader->requests[i];
    for (int d = 0; request->results && d < leader->nodes; d++) free(request->results[d]);
    free(request->message);
    free(request->results);
    free(request->arrived);
    free(request->nodes);
  }
  for (int d = 0; leader->layout && d < leader->nodes; d++) layout_release(&leader->layout[d]);
  tape_free(leader->tape);
  arena_free(leader->arena);
  free(leader->control);
  free(leader->links);
  free(leader->layout);
  free(leader->ready);
  free(leader->progress);
  free(leader->complaints);
  free(leader->totals);
  free(leader->replicas);
  free(leader->logits);
  free(leader->codes);
  free(leader->node_codes);
  free(leader);
}
