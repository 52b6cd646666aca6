/* Beginning and end of a cluster. Leaves out: who belongs to it (leader_members.c) and takes part (leader_epoch.c), requests
 * (leader_requests.c), what nodes say (leader_messages.c), waiting (leader_failure.c), what a node does (node.c). */
#include "infer/cluster/leader_internal.h"
#include "infer/node_share.h"
#include <math.h>
#include <openssl/rand.h>
#include <stdlib.h>

static const size_t arena_bytes = (size_t)1 << 32;

int leader_nodes(const Leader *leader) { return leader->membership.count; }
int leader_nodes_here(const Leader *leader) { return leader->epoch.nodes; }
pid_t leader_pid(const Leader *leader, int node) {
  return leader->membership.members[node].forked ? leader->membership.processes.pid[node] : 0;
}
const Address *leader_address(const Leader *leader, int node) {
  return leader->membership.members[node].forked ? NULL : &leader->membership.members[node].address;
}
const NodeStatistics *leader_totals(const Leader *leader) { return leader->sums.totals; }
int leader_reruns(const Leader *leader) { return leader->sums.reruns; }
double leader_fastest(const Leader *leader) { return leader->sums.fastest; }
double leader_fastest_request(const Leader *leader) { return leader->sums.fastest_request; }
int leader_masked(const Leader *leader) { return leader->sums.masked; }
const Weights *leader_weights(const Leader *leader) { return leader->setup.weights; }
const NodeSetup *leader_setup(const Leader *leader) { return &leader->setup; }
const Partition *leader_partition(const Leader *leader) { return leader->given ? &leader->partition : NULL; }
const int64_t *leader_tokens(const Leader *leader) { return leader->sums.tokens; }
int64_t leader_tokens_max(const Leader *leader) { return leader->setup.tokens_max; }

/* ---- what is possible ---- */

static Status check_setup(const NodeSetup *setup) {
  TRY(node_share_check(setup));
  const ModelConfig *config = setup->weights->config;
  double numbers = setup->split ? 2 * (double)setup->tokens_max : (double)weights_pixels(setup->weights);
  if (setup->split && (setup->tokens_max < 1 || setup->tokens_max > config->context))
    return status_set(STATUS_BAD_VALUE, "a context of %lld tokens: 1 to %lld are possible with this model", (long long)setup->tokens_max,
                      (long long)config->context);
  if (setup->split) numbers = fmax(numbers, (double)weights_outputs(setup->weights));
  if (setup->batch_max < 1 || (double)setup->batch_max * numbers * 4 > (double)INT32_MAX)
    return status_set(STATUS_BAD_VALUE, "a batch of %lld is too large for one request; use a smaller --batch", (long long)setup->batch_max);
  if (setup->keep_codes && node_setup_count(setup) < 2) return status_set(STATUS_BAD_VALUE, "one node exchanges no codes");
  return STATUS_OK;
}

/* ---- memory ---- */

/* What holds for any number of members that take part. */
static Status allocate_request(Leader *leader, LeaderRequest *request) {
  const NodeSetup *setup = &leader->setup;
  const RequestShare all = {.tokens = leader->given ? leader->given->tokens : 0};
  size_t members = (size_t)leader->membership.count, pixels = (size_t)(setup->batch_max * weights_pixels(setup->weights));
  bool memory = (request->message = malloc(members * (WIRE_HEADER + PATCHES_HEAD) + request_max_bytes(setup, &all))) &&
                (request->offset = calloc(members, sizeof(size_t))) && (request->size = calloc(members, sizeof(size_t))) &&
                (request->results = calloc(members, sizeof(uint8_t *))) && (request->arrived = calloc(members, sizeof(bool))) &&
                (request->nodes = calloc(members, sizeof(NodeStatistics))) && (request->counts = calloc(members, sizeof(int64_t))) &&
                (request->shares = calloc(members, sizeof(RequestShare)));
  if (leader->given) memory = memory && (request->pixels = malloc(pixels * sizeof *request->pixels)) && (request->levels = malloc(pixels));
  return memory ? STATUS_OK : status_set(STATUS_NO_MEMORY, "no memory for requests; use a smaller --batch");
}

static Status allocate_answer(Leader *leader) {
  const NodeSetup *setup = &leader->setup;
  const ModelConfig *config = setup->weights->config;
  int64_t tokens = setup->split ? setup->tokens_max : leader->given->tokens, width = weights_outputs(setup->weights);
  size_t batch = (size_t)setup->batch_max;
  bool memory = (leader->arena = arena_new(arena_bytes)) && (leader->tape = tape_new(leader->arena)) &&
                (leader->logits = malloc(batch * (size_t)width * sizeof(real)));
  if (setup->split)
    memory = memory && (leader->queue.made = malloc((size_t)tokens * sizeof *leader->queue.made)) &&
             (leader->decoding = calloc((size_t)leader->membership.count, sizeof *leader->decoding));
  else
    memory = memory && (leader->replicas = malloc(batch * (size_t)(leader->membership.count * config->width) * sizeof(real)));
  if (setup->keep_codes) {
    size_t codes = batch * (size_t)((tokens + 1) * setup->weights->books[0].groups) * sizeof(int32_t);
    memory = memory && (leader->codes = malloc((size_t)setup->weights->book_count * codes)) && (leader->node_codes = malloc(codes));
  }
  if (!memory) return status_set(STATUS_NO_MEMORY, "no memory for answers; use a smaller --batch");
  tape_record(leader->tape, false);
  return STATUS_OK;
}

static Status allocate_members(Leader *leader) {
  size_t members = (size_t)leader->membership.count;
  bool memory =
      (leader->membership.members = calloc(members, sizeof *leader->membership.members)) &&
      (leader->epoch.member_of = calloc(members, sizeof(int))) && (leader->epoch.connections = calloc(members, sizeof(Connection *))) &&
      (leader->epoch.layout = calloc(members, sizeof(TokenLayout))) && (leader->epoch.setups = calloc(members, sizeof(uint8_t *))) &&
      (leader->epoch.progress = calloc(members, sizeof(uint64_t))) &&
      (leader->epoch.complaints = calloc(members, sizeof *leader->epoch.complaints)) &&
      (leader->sums.totals = calloc(members, sizeof(NodeStatistics))) && (leader->sums.last = calloc(members, sizeof(NodeStatistics))) &&
      (leader->sums.tokens = calloc(members, sizeof(int64_t))) && (leader->gone = calloc(members, sizeof *leader->gone));
  if (!memory) return status_set(STATUS_NO_MEMORY, "no memory for %d nodes", leader->membership.count);
  for (int m = 0; m < leader->membership.count; m++) {
    LeaderMember *member = &leader->membership.members[m];
    *member = (LeaderMember){.forked = m < leader->cluster.local, .node = -1};
    if (!member->forked) member->address = leader->cluster.peers[m - leader->cluster.local];
    connection_init(&member->connection);
  }
  return STATUS_OK;
}

static Status allocate(Leader *leader) {
  TRY(allocate_members(leader));
  for (int i = 0; i < LEADER_DEPTH; i++) TRY(allocate_request(leader, &leader->queue.requests[i]));
  return allocate_answer(leader);
}

/* ---- beginning ---- */

static Status check_coding(const Leader *leader) {
  const ClusterSetup *network = leader->options.network;
  if (!network || network->entropy != ENTROPY_ON || leader->setup.weights->coding) return STATUS_OK;
  return status_set(STATUS_BAD_VALUE, "entropy coding: the checkpoint has no frequencies of codes (astra-kmeans frequencies counts them)");
}

/* All devices have said WELCOME. */
static Status meet(Leader *leader) {
  const Weights *weights = leader->setup.weights;
  TRY(check_coding(leader));
  TRY(fingerprint_weights(weights, &leader->fingerprints));
  if (leader->given) patches_levels(&leader->levels, weights->config);
  if (RAND_bytes(leader->membership.session, sizeof leader->membership.session) != 1)
    return status_set(STATUS_IO, "the system gives no random numbers");
  return leader_members_open(leader);
}

static Status divide(Leader *leader) {
  LeaderMeasure *measured = calloc((size_t)leader->membership.count, sizeof *measured);
  if (!measured) return status_set(STATUS_NO_MEMORY, "no memory to measure %d devices", leader->membership.count);
  Status status = leader_probe_run(leader, measured);
  if (status == STATUS_OK) status = leader->options.divide(leader->options.divide_context, measured, leader->membership.count);
  free(measured);
  return status;
}

/* The first epoch; one that fails at its beginning is begun again where that is allowed. */
static Status begin(Leader *leader) {
  TRY(meet(leader));
  if (leader->options.divide) TRY(divide(leader));
  Status status = leader_epoch_open(leader);
  return status == STATUS_OK ? STATUS_OK : leader_failure_recover(leader, status);
}

/* How the nodes divide the model, and who has a class token. */
static void choose_strategy(NodeSetup *setup, const LeaderOptions *options) {
  if (!options->network) return;
  setup->strategy = options->network->strategy;
  setup->retained = options->network->retained;
  if (setup->strategy == STRATEGY_SP && !setup->split) setup->class_token = CLASS_SINGLE;
}

static Status check_count(const Leader *leader) {
  int devices = leader->cluster.local + leader->cluster.peer_count;
  if (devices == leader->membership.count) return STATUS_OK;
  return status_set(STATUS_BAD_USAGE, "the tokens are divided among %d nodes, and there are %d", leader->membership.count, devices);
}

static Status make(Leader **out, Leader wanted) {
  *out = NULL;
  choose_strategy(&wanted.setup, &wanted.options);
  TRY(check_setup(&wanted.setup));
  Leader *leader = calloc(1, sizeof *leader);
  if (!leader) return status_set(STATUS_NO_MEMORY, "no memory for a leader");
  *leader = wanted;
  leader->epoch.complainer = leader->epoch.fault = -1;
  leader->membership.count = node_setup_count(&wanted.setup);
  leader->cluster = wanted.options.cluster ? *wanted.options.cluster : (ClusterOptions){.local = leader->membership.count};
  Status status = check_count(leader);
  if (status == STATUS_OK) status = allocate(leader);
  if (status == STATUS_OK)
    *out = leader;
  else
    leader_stop(leader);
  return status;
}

static void beat(void *context) { leader_members_ping(context); }

/* From here on nothing is forked any more. */
static Status start_heartbeat(Leader *leader) {
  return leader->cluster.peer_count > 0 ? heartbeat_start(&leader->heartbeat, LEADER_PING_SECONDS, beat, leader) : STATUS_OK;
}

static Status start(Leader **out, Leader wanted) {
  TRY(make(out, wanted));
  Status status = begin(*out);
  if (status == STATUS_OK) status = start_heartbeat(*out);
  if (status == STATUS_OK) return STATUS_OK;
  leader_stop(*out);
  *out = NULL;
  return status;
}

static Leader for_images(const Weights *weights, const Partition *partition, const LeaderOptions *options) {
  return (Leader){.options = *options,
                  .given = partition,
                  .setup = {.weights = weights,
                            .partition = partition,
                            .batch_max = options->batch_max,
                            .timeout = options->timeout,
                            .keep_codes = options->codes,
                            .class_token = weights->config->astra.class_token}};
}

Status leader_start(Leader **leader, const Weights *weights, const Partition *partition, const LeaderOptions *options) {
  return start(leader, for_images(weights, partition, options));
}

static Leader for_texts(const Weights *weights, const TokenSplit *split, const LeaderOptions *options) {
  return (Leader){.options = *options,
                  .given_split = split,
                  .setup = {.weights = weights,
                            .batch_max = options->batch_max,
                            .timeout = options->timeout,
                            .keep_codes = options->codes,
                            .split = split,
                            .tokens_max = options->tokens_max ? options->tokens_max : weights->config->context,
                            .class_token = CLASS_NONE}};
}

Status leader_start_text(Leader **leader, const Weights *weights, const TokenSplit *split, const LeaderOptions *options) {
  return start(leader, for_texts(weights, split, options));
}

Status leader_measure(const Weights *weights, const Partition *partition, const TokenSplit *split, const LeaderOptions *options,
                      LeaderMeasure *measured) {
  Leader *leader;
  TRY(make(&leader, split ? for_texts(weights, split, options) : for_images(weights, partition, options)));
  Status status = meet(leader);
  if (status == STATUS_OK) status = leader_probe_run(leader, measured);
  leader_stop(leader);
  return status;
}

/* ---- end ---- */

static void release_request(LeaderRequest *request) {
  free(request->message);
  free(request->offset);
  free(request->size);
  free(request->pixels);
  free(request->levels);
  free(request->results);
  free(request->arrived);
  free(request->nodes);
  free(request->counts);
  free(request->shares);
}

static void release_members(Leader *leader) {
  for (int d = 0; leader->epoch.layout && d < leader->membership.count; d++) layout_release(&leader->epoch.layout[d]);
  free(leader->membership.members);
  free(leader->epoch.member_of);
  free(leader->epoch.connections);
  free(leader->epoch.layout);
  free(leader->epoch.setups);
  free(leader->epoch.progress);
  free(leader->epoch.complaints);
  free(leader->sums.totals);
  free(leader->sums.last);
  free(leader->sums.tokens);
  free(leader->gone);
}

void leader_stop(Leader *leader) {
  if (!leader) return;
  heartbeat_stop(leader->heartbeat);
  leader->heartbeat = NULL;
  leader_members_close(leader);
  leader_epoch_close(leader);
  for (int i = 0; i < LEADER_DEPTH; i++) release_request(&leader->queue.requests[i]);
  release_members(leader);
  partition_release(&leader->partition);
  tape_free(leader->tape);
  arena_free(leader->arena);
  free(leader->decoding);
  free(leader->queue.made);
  free(leader->replicas);
  free(leader->logits);
  free(leader->codes);
  free(leader->node_codes);
  free(leader);
}
