/* Beginning and end of a cluster. Leaves out: requests (leader_request.c), what nodes say (leader_messages.c), waiting (leader_wait.c), how
 * processes are made (processes.c), what a node does (node.c). */
#include "infer/leader_parts.h"
#include "infer/node.h"
#include <math.h>
#include <stdlib.h>

static const size_t arena_bytes = (size_t)1 << 32;
static const double stop_seconds = 2; /* for nodes to leave by themselves */

int leader_nodes(const Leader *leader) { return leader->nodes; }
pid_t leader_pid(const Leader *leader, int node) { return leader->processes.pid[node]; }
const NodeStatistics *leader_totals(const Leader *leader) { return leader->totals; }
const Weights *leader_weights(const Leader *leader) { return leader->setup.weights; }
const Partition *leader_partition(const Leader *leader) { return leader->setup.partition; }
const int64_t *leader_tokens(const Leader *leader) { return leader->tokens; }
int64_t leader_tokens_most(const Leader *leader) { return leader->setup.tokens_most; }

/* ---- what is possible ---- */

static Status check_plain(const Weights *weights, int nodes) {
  if (nodes == 1 || weights->books) return STATUS_OK;
  return status_set(
      STATUS_BAD_VALUE,
      "a plain model (no codebooks) runs on one node only: use --nodes 1, or fine-tune it for several with astra-train --groups");
}

static Status check_setup(const NodeSetup *setup) {
  TRY(check_plain(setup->weights, node_setup_count(setup)));
  const ModelConfig *config = setup->weights->config;
  double numbers = setup->split ? 2 * (double)setup->tokens_most : (double)weights_pixels(setup->weights);
  if (setup->split && (setup->tokens_most < 1 || setup->tokens_most > config->context))
    return status_set(STATUS_BAD_VALUE, "a context of %lld tokens: 1 to %lld are possible with this model", (long long)setup->tokens_most,
                      (long long)config->context);
  if (setup->split) numbers = fmax(numbers, (double)config->vocabulary);
  if (setup->batch_most < 1 || (double)setup->batch_most * numbers * 4 > (double)INT32_MAX)
    return status_set(STATUS_BAD_VALUE, "a batch of %lld is too large for one request; use a smaller --batch",
                      (long long)setup->batch_most);
  if (setup->keep_codes && node_setup_count(setup) < 2) return status_set(STATUS_BAD_VALUE, "one node exchanges no codes");
  return STATUS_OK;
}

/* ---- memory ---- */

/* The largest share of a node. */
static RequestShare most_of(const Leader *leader, int node) {
  if (leader->setup.split) return (RequestShare){.sent_rows = leader->setup.tokens_most, .last = true};
  return request_share(&leader->layout[node]);
}

static Status allocate_request(Leader *leader, LeaderRequest *request) {
  size_t nodes = (size_t)leader->nodes;
  bool memory = (request->message = malloc(WIRE_HEADER + request_most_bytes(&leader->setup))) &&
                (request->results = calloc(nodes, sizeof(uint8_t *))) && (request->arrived = calloc(nodes, sizeof(bool))) &&
                (request->nodes = calloc(nodes, sizeof(NodeStatistics))) && (request->counts = calloc(nodes, sizeof(int64_t))) &&
                (request->shares = calloc(nodes, sizeof(RequestShare)));
  for (int d = 0; memory && d < leader->nodes; d++) {
    RequestShare most = most_of(leader, d);
    memory = (request->results[d] = malloc(request_most_answer_bytes(&leader->setup, &most)));
  }
  return memory ? STATUS_OK : status_set(STATUS_NO_MEMORY, "no memory for requests; use a smaller --batch");
}

static Status allocate_answer(Leader *leader) {
  const NodeSetup *setup = &leader->setup;
  const ModelConfig *config = setup->weights->config;
  int64_t tokens = setup->split ? setup->tokens_most : setup->partition->tokens,
          width = setup->split ? config->vocabulary : config->classes;
  size_t batch = (size_t)setup->batch_most;
  bool memory = (leader->arena = arena_new(arena_bytes)) && (leader->tape = tape_new(leader->arena)) &&
                (leader->logits = malloc(batch * (size_t)width * sizeof(real)));
  if (setup->split)
    memory = memory && (leader->made = malloc((size_t)tokens * sizeof *leader->made)) &&
             (leader->decoding = calloc((size_t)leader->nodes, sizeof *leader->decoding));
  else
    memory = memory && (leader->replicas = malloc(batch * (size_t)(leader->class_rows * config->width) * sizeof(real)));
  if (setup->keep_codes) {
    size_t codes = batch * (size_t)((tokens + 1) * setup->weights->books[0].groups) * sizeof(int32_t);
    memory = memory && (leader->codes = malloc((size_t)setup->weights->book_count * codes)) && (leader->node_codes = malloc(codes));
  }
  if (!memory) return status_set(STATUS_NO_MEMORY, "no memory for answers; use a smaller --batch");
  tape_record(leader->tape, false);
  return STATUS_OK;
}

static Status build_layouts(Leader *leader) {
  const NodeSetup *setup = &leader->setup;
  for (int d = 0; setup->partition && d < leader->nodes; d++) {
    TRY(partition_layout(setup->partition, setup->weights->config->astra.class_token, d, &leader->layout[d]));
    leader->class_rows += leader->layout[d].class_rows;
    leader->tokens[d] = setup->partition->counts[d];
  }
  return STATUS_OK;
}

static Status allocate(Leader *leader) {
  size_t nodes = (size_t)leader->nodes;
  bool memory = (leader->control = calloc(nodes, sizeof(Link))) && (leader->links = calloc(nodes, sizeof(Link *))) &&
                (leader->layout = calloc(nodes, sizeof(TokenLayout))) && (leader->ready = calloc(nodes, sizeof(bool))) &&
                (leader->progress = calloc(nodes, sizeof(uint64_t))) && (leader->complaints = calloc(nodes, sizeof *leader->complaints)) &&
                (leader->totals = calloc(nodes, sizeof(NodeStatistics))) && (leader->tokens = calloc(nodes, sizeof(int64_t)));
  if (!memory) return status_set(STATUS_NO_MEMORY, "no memory for %d nodes", leader->nodes);
  for (int d = 0; d < leader->nodes; d++) {
    link_clear(&leader->control[d]);
    leader->links[d] = &leader->control[d];
  }
  TRY(build_layouts(leader));
  for (int i = 0; i < LEADER_DEPTH; i++) TRY(allocate_request(leader, &leader->requests[i]));
  return allocate_answer(leader);
}

/* ---- beginning ---- */

static int child(void *context, int node, int control, const int *sockets) { return node_run(context, node, control, sockets); }

static Status start_nodes(Leader *leader) {
  LinkSink sink = leader_messages_sink;
  sink.context = leader;
  TRY(processes_start(&leader->processes, leader->nodes, child, &leader->setup));
  for (int d = 0; d < leader->nodes; d++) {
    RequestShare most = most_of(leader, d);
    sink.most_payload = request_most_answer_bytes(&leader->setup, &most);
    if (sink.most_payload < WIRE_TEXT) sink.most_payload = WIRE_TEXT;
    int control = leader->processes.control[d];
    leader->processes.control[d] = -1;
    TRY(link_open(&leader->control[d], control, d, &sink));
  }
  return leader_wait(leader, leader_wait_all, leader->ready);
}

static Status start(Leader **out, const NodeSetup *setup, const LeaderOptions *options) {
  *out = NULL;
  TRY(check_setup(setup));
  Leader *leader = calloc(1, sizeof *leader);
  if (!leader) return status_set(STATUS_NO_MEMORY, "no memory for a leader");
  *leader = (Leader){.options = *options, .setup = *setup, .nodes = node_setup_count(setup), .complainer = -1, .accused = -1};
  Status status = allocate(leader);
  if (status == STATUS_OK) status = start_nodes(leader);
  if (status == STATUS_OK)
    *out = leader;
  else
    leader_stop(leader);
  return status;
}

Status leader_start(Leader **leader, const Weights *weights, const Partition *partition, const LeaderOptions *options) {
  NodeSetup setup = {.weights = weights,
                     .partition = partition,
                     .batch_most = options->batch_most,
                     .timeout = options->timeout,
                     .threads = options->threads,
                     .keep_codes = options->codes,
                     .network = options->network};
  return start(leader, &setup, options);
}

Status leader_start_text(Leader **leader, const Weights *weights, const TokenSplit *split, const LeaderOptions *options) {
  NodeSetup setup = {.weights = weights,
                     .batch_most = options->batch_most,
                     .timeout = options->timeout,
                     .threads = options->threads,
                     .keep_codes = options->codes,
                     .network = options->network,
                     .split = split,
                     .tokens_most = options->tokens_most ? options->tokens_most : weights->config->context};
  return start(leader, &setup, options);
}

/* ---- end ---- */

/* Says bye, which idle nodes follow at once; those that compute or hang are killed after a moment. */
static void dismiss(Leader *leader) {
  wire_pack(&(WireHeader){.kind = WIRE_BYE, .sender = WIRE_LEADER}, leader->bye);
  bool idle = leader_under_way(leader) == 0;
  for (int d = 0; leader->control && d < leader->nodes; d++) {
    Link *link = &leader->control[d];
    bool told = idle && link_is_open(link) && link_send(link, leader->bye, WIRE_HEADER) == STATUS_OK;
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
    free(request->counts);
    free(request->shares);
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
  free(leader->tokens);
  free(leader->decoding);
  free(leader->made);
  free(leader->replicas);
  free(leader->logits);
  free(leader->codes);
  free(leader->node_codes);
  free(leader);
}
