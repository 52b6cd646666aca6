/* Start and stop of a cluster, and the requests of callers. The only one of the leader's files that knows
 * about threads: a heartbeat thread sends PINGs to
 * workers between calls, and everything that reads or writes a connection runs under one lock (hold, release), on either thread. Leaves
 * out: what a node does (node.c). */
#include "infer/cluster/leader.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "base/threads.h"
#include "infer/cluster/hello.h"
#include "infer/cluster/leader_internal.h"
#include "infer/node_share.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static const size_t arena_bytes = (size_t)1 << 32;

int leader_nodes(const Leader *leader) { return leader->membership.count; }
pid_t leader_pid(const Leader *leader, int node) {
  return leader->membership.devices[node].gone ? 0 : leader->membership.devices[node].pid;
}
const Address *leader_address(const Leader *leader, int node) {
  return leader->membership.devices[node].forked ? NULL : &leader->membership.devices[node].address;
}
bool leader_worker(const Leader *leader, int node, char text[LEADER_WORKER]) {
  const LeaderDevice *device = &leader->membership.devices[node];
  if (!device->forked) membership_worker(device, text);
  return !device->forked;
}
const LeaderSums *leader_sums(const Leader *leader) { return &leader->sums; }
const Weights *leader_weights(const Leader *leader) { return leader->setup.weights; }
const NodeSetup *leader_setup(const Leader *leader) { return &leader->setup; }
int64_t leader_tokens_max(const Leader *leader) { return leader->setup.tokens_max; }
const StrategyFacts *leader_strategy(const Leader *leader) { return strategy_facts(node_share_strategy(&leader->setup)); }

/* ---- checks ---- */

static Status check_setup(const NodeSetup *setup) {
  TRY(node_share_check(setup));
  const ModelConfig *config = setup->weights->config;
  if (setup->split && (setup->tokens_max < 1 || setup->tokens_max > config->context))
    return status_set(STATUS_BAD_VALUE, "a context of %lld tokens: 1 to %lld are possible with this model", (long long)setup->tokens_max,
                      (long long)config->context);
  TRY(node_share_check_batch(setup));
  if (setup->keep_codes && node_setup_count(setup) < 2) return status_set(STATUS_BAD_VALUE, "one node exchanges no codes");
  return STATUS_OK;
}

/* ---- memory ---- */

/* Everything that does not depend on how many devices take part. */
static Status allocate_request(Leader *leader, LeaderRequest *request) {
  const NodeSetup *setup = &leader->setup;
  const RequestShare all = {.tokens = leader->given ? leader->given->tokens : 0};
  size_t devices = (size_t)leader->membership.room, pixels = (size_t)(setup->batch_max * weights_pixels(setup->weights));
  bool memory = (request->message = malloc(devices * (WIRE_HEADER + PATCHES_HEAD) + request_max_bytes(setup, &all))) &&
                (request->offset = calloc(devices, sizeof(size_t))) && (request->size = calloc(devices, sizeof(size_t))) &&
                (request->results = calloc(devices, sizeof(uint8_t *))) && (request->arrived = calloc(devices, sizeof(bool))) &&
                (request->nodes = calloc(devices, sizeof(NodeStatistics))) && (request->counts = calloc(devices, sizeof(int64_t))) &&
                (request->shares = calloc(devices, sizeof(RequestShare)));
  if (leader->given) memory = memory && (request->pixels = malloc(pixels * sizeof *request->pixels)) && (request->levels = malloc(pixels));
  return memory ? STATUS_OK : status_set(STATUS_NO_MEMORY, "no memory for requests; use a smaller --batch or --max-context");
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
             (leader->decoding = calloc((size_t)leader->membership.room, sizeof *leader->decoding));
  else
    memory = memory && (leader->replicas = malloc(batch * (size_t)(leader->membership.room * config->width) * sizeof(real))) &&
             (leader->class_tokens = malloc((size_t)leader->membership.room * sizeof *leader->class_tokens));
  if (setup->keep_codes) {
    size_t codes = batch * (size_t)((tokens + 1) * config_rate_groups(config, config_rates(config) - 1)) * sizeof(int32_t);
    memory = memory && (leader->codes = malloc((size_t)setup->weights->book_count * codes)) && (leader->node_codes = malloc(codes));
  }
  if (!memory) return status_set(STATUS_NO_MEMORY, "no memory for answers; use a smaller --batch or --max-context");
  tape_record(leader->tape, false);
  tape_use_bf16(leader->tape, setup->weights->bf16);
  return STATUS_OK;
}

static Status allocate_devices(Leader *leader) {
  size_t devices = (size_t)leader->membership.room;
  bool memory =
      (leader->epoch.device_of = calloc(devices, sizeof(int))) && (leader->epoch.connections = calloc(devices, sizeof(Connection *))) &&
      (leader->epoch.layout = calloc(devices, sizeof(TokenLayout))) && (leader->epoch.setups = calloc(devices, sizeof(uint8_t *))) &&
      (leader->epoch.progress = calloc(devices, sizeof(uint64_t))) &&
      (leader->epoch.complaints = calloc(devices, sizeof *leader->epoch.complaints)) &&
      (leader->sums.nodes = calloc(devices, sizeof(NodeStatistics))) && (leader->last = calloc(devices, sizeof(NodeStatistics))) &&
      (leader->sums.tokens = calloc(devices, sizeof(int64_t))) && (leader->sums.rows = calloc(devices, sizeof(int64_t))) &&
      (leader->sums.last_tokens = calloc(devices, sizeof(int64_t))) && (leader->epoch.gone = calloc(devices, sizeof *leader->epoch.gone));
  if (!memory) return status_set(STATUS_NO_MEMORY, "no memory for %d nodes", leader->membership.count);
  return STATUS_OK;
}

/* ---- heartbeat: the caller may be busy for long between two calls. A process that is stopped (Ctrl-Z, a debugger, a frozen machine) sends
 * no PINGs ---- */

typedef struct Heartbeat {
  pthread_t thread;
  pthread_mutex_t held;
  pthread_cond_t stops;
  bool runs, stop; /* runs: there is a thread */
} Heartbeat;

/* Between the two this thread owns the connections. */
static void hold(Leader *leader) {
  if (leader->heartbeat) pthread_mutex_lock(&leader->heartbeat->held);
}

static void release(Leader *leader) {
  if (leader->heartbeat) pthread_mutex_unlock(&leader->heartbeat->held);
}

static void *beat(void *context) {
  Leader *leader = context;
  Heartbeat *h = leader->heartbeat;
  pthread_mutex_lock(&h->held);
  while (!h->stop) {
    const double next = clock_now() + MEMBERSHIP_PING_SECONDS;
    while (!h->stop && threads_wait(&h->stops, &h->held, next)) continue;
    if (!h->stop) membership_ping(&leader->membership);
  }
  pthread_mutex_unlock(&h->held);
  return NULL;
}

static void stop_heartbeat(Leader *leader) {
  Heartbeat *h = leader->heartbeat;
  if (!h) return;
  hold(leader);
  h->stop = true;
  pthread_cond_signal(&h->stops);
  release(leader);
  if (h->runs) pthread_join(h->thread, NULL);
  pthread_mutex_destroy(&h->held);
  pthread_cond_destroy(&h->stops);
  free(h);
  leader->heartbeat = NULL;
}

static Status start_heartbeat(Leader *leader) {
  Heartbeat *h = leader->heartbeat = calloc(1, sizeof *h);
  if (!h) return status_no_memory(NULL, "signs of life");
  pthread_mutex_init(&h->held, NULL);
  threads_condition_init(&h->stops);
  h->runs = threads_spawn(&h->thread, beat, leader) == 0;
  if (h->runs) return STATUS_OK;
  stop_heartbeat(leader);
  return status_set(STATUS_NO_MEMORY, "cannot start a thread for signs of life");
}

/* ---- start ---- */

/* Connects to all devices. */
static Status connect_devices(Leader *leader) {
  const Weights *weights = leader->setup.weights;
  const ClusterSetup *network = leader->options.network;
  if (network && network->entropy == ENTROPY_ON && !weights->coding)
    return status_set(STATUS_BAD_VALUE,
                      "entropy coding: the checkpoint has no frequencies of codes (astra-kmeans frequencies counts them)");
  TRY(fingerprint_weights(weights, &leader->fingerprints));
  leader->membership = (Membership){.count = leader->membership.count,
                                    .room = leader->membership.room,
                                    .cluster = &leader->cluster,
                                    .weights = weights,
                                    .fingerprints = &leader->fingerprints,
                                    .threads = leader->options.threads,
                                    .timeout = leader->options.timeout,
                                    .stop = leader->options.stop,
                                    .sink = leader_requests_sink};
  leader->membership.sink.context = leader;
  leader->membership.sink.max_payload = PROBE_MAX;
  return membership_open(&leader->membership);
}

/* Tokens of the largest request: devices are measured with as many. */
static int64_t max_tokens(const Leader *leader) {
  return leader->setup.split ? leader->setup.tokens_max : config_tokens(leader->weights.config);
}

/* Measures the devices and lets the caller divide the tokens accordingly. */
static Status divide(Leader *leader) {
  DeviceMeasure *measured = calloc((size_t)leader->membership.count, sizeof *measured);
  if (!measured) return status_set(STATUS_NO_MEMORY, "no memory to measure %d devices", leader->membership.count);
  hold(leader);
  Status status = leader_probe_run(&leader->membership, max_tokens(leader), measured);
  release(leader);
  if (status == STATUS_OK)
    status = leader->options.divide(leader->options.divide_context, measured, leader->membership.count, leader->options.stop,
                                    &leader->options.groups);
  free(measured);
  return status;
}

static Status make(Leader **out, Leader wanted) {
  NodeSetup *setup = &wanted.setup;
  *out = NULL;
  if (wanted.options.network) {
    setup->strategy = wanted.options.network->strategy;
    setup->retained = wanted.options.network->retained;
    if (setup->strategy == STRATEGY_SP && !setup->split) setup->class_token = CLASS_SINGLE;
  }
  TRY(check_setup(setup));
  Leader *leader = calloc(1, sizeof *leader);
  if (!leader) return status_no_memory(NULL, "a leader");
  *leader = wanted;
  leader->weights = *wanted.setup.weights;
  leader->setup.weights = &leader->weights;
  leader->groups = leader->weights.config->astra.groups;
  leader->epoch.complainer = leader->epoch.fault = -1;
  leader->membership.count = node_setup_count(setup);
  leader->cluster = wanted.options.cluster ? *wanted.options.cluster : (ClusterOptions){.local = leader->membership.count};
  leader->membership.room = leader->cluster.grows ? WIRE_NODES : leader->membership.count;
  int devices = leader->cluster.local + leader->cluster.peer_count;
  Status status = STATUS_OK;
  if (devices != leader->membership.count)
    status = status_set(STATUS_BAD_USAGE, "the tokens are divided among %d nodes, and there are %d", leader->membership.count, devices);
  if (status == STATUS_OK) status = allocate_devices(leader);
  for (int i = 0; i < LEADER_DEPTH && status == STATUS_OK; i++) status = allocate_request(leader, &leader->queue.requests[i]);
  if (status == STATUS_OK) status = allocate_answer(leader);
  if (status == STATUS_OK) status = leader_sequences_allocate(leader);
  if (status == STATUS_OK)
    *out = leader;
  else
    leader_stop(leader);
  return status;
}

static Status start(Leader **out, Leader wanted) {
  TRY(make(out, wanted));
  Leader *leader = *out;
  Status status = connect_devices(leader);
  /* Nothing is forked from here on, so threads may be started. To divide the tokens can take minutes. */
  if (status == STATUS_OK && leader->cluster.peer_count > 0) status = start_heartbeat(leader);
  if (status == STATUS_OK && leader->options.divide) status = divide(leader);
  if (status == STATUS_OK && leader->options.groups > 0 && config_rates(leader->weights.config) > 1)
    status = weights_use_rate(&leader->weights, leader->options.groups);
  leader->groups = leader->weights.config->astra.groups;
  rate_choice_init(&leader->rate, leader->weights.config, leader->groups);
  hold(leader);
  if (status == STATUS_OK) status = leader_epoch_start(leader);
  release(leader);
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
                            .sequences = options->sequences,
                            .tokens_max = options->tokens_max ? options->tokens_max : weights->config->context,
                            .class_token = CLASS_NONE}};
}

Status leader_start_text(Leader **leader, const Weights *weights, const TokenSplit *split, const LeaderOptions *options) {
  return start(leader, for_texts(weights, split, options));
}

Status leader_measure(const Weights *weights, const Partition *partition, const TokenSplit *split, const LeaderOptions *options,
                      DeviceMeasure *measured) {
  Leader *leader;
  TRY(make(&leader, split ? for_texts(weights, split, options) : for_images(weights, partition, options)));
  Status status = connect_devices(leader);
  if (status == STATUS_OK) status = leader_probe_run(&leader->membership, max_tokens(leader), measured);
  leader_stop(leader);
  return status;
}

/* ---- requests ---- */

int leader_under_way(const Leader *leader) { return (int)(leader->queue.submitted - leader->queue.collected); }

bool leader_takes_more(const Leader *leader) {
  return leader_under_way(leader) == 0 ||
         (leader_under_way(leader) < LEADER_DEPTH && !leader_epoch_rests(leader) && !leader_epoch_rate_due(leader));
}

/* How the bit rate follows from an answer: by the device that waited least of those that codes came to. Who waits for a slower device waits
 * longer than that one does, which finds its codes there; a slow link makes all of them wait. To the device of a text's first span nobody
 * sends codes; what it receives are queries. */
static void note_rate(Leader *leader, const LeaderRequest *slot) {
  const int first = leader->setup.split ? node_share_first(&leader->setup, slot->request.tokens, slot->request.home) : -1;
  double compute = 0, wait = 0, share = -1;
  for (int d = 0; d < leader->epoch.nodes; d++) {
    const NodeStatistics *node = &slot->nodes[d];
    if (d == first || slot->missing >> leader->epoch.device_of[d] & 1 || node->compute <= 0 || node->messages_received == 0) continue;
    if (share >= 0 && node->wait / node->compute >= share) continue;
    share = node->wait / node->compute, compute = node->compute, wait = node->wait;
  }
  const int groups = share < 0 ? leader->groups : rate_choice_note(&leader->rate, compute, wait);
  if (groups == leader->groups) return;
  log_info("%d group%s from the next request on: devices waited %.0f%% of the time that they computed with %d", groups, text_plural(groups),
           100 * share, leader->groups);
  leader->groups = groups;
}

static Status open_request(Leader *leader, const Request *request, LeaderRequest **slot) {
  if (leader_under_way(leader) >= LEADER_DEPTH) return status_set(STATUS_BAD_VALUE, "%d requests are under way already", LEADER_DEPTH);
  if (request->batch < 1 || request->batch > leader->options.batch_max)
    return status_set(STATUS_BAD_VALUE, "a request of %lld %s; 1 to %lld are possible", (long long)request->batch,
                      request_unit(&leader->setup), (long long)leader->options.batch_max);
  hold(leader);
  Status status = leader_epoch_rejoin(leader);
  release(leader);
  TRY(status);
  *slot = &leader->queue.requests[(leader->queue.submitted + 1) & 1];
  (*slot)->request = *request;
  (*slot)->wants_codes = request->codes;
  (*slot)->request.codes = request->codes && leader->setup.keep_codes;
  return STATUS_OK;
}

static uint8_t *payload_of(LeaderRequest *slot) { return slot->message + WIRE_HEADER; }

static Status send_request(Leader *leader, LeaderRequest *slot) {
  slot->missing = slot->given_up = 0;
  slot->reruns = 0;
  slot->began = slot->turn = clock_now();
  leader->queue.submitted++;
  hold(leader);
  Status status = leader_requests_send(leader, slot, leader->queue.submitted - leader->epoch.base);
  if (status != STATUS_OK) status = leader_epoch_recover(leader, status);
  release(leader);
  return status;
}

Status leader_check_takes(const Leader *leader, bool texts) {
  if (texts && !leader->given_split) return status_set(STATUS_BAD_VALUE, "a model of images takes no text");
  if (!texts && !leader->given) return status_set(STATUS_BAD_VALUE, "a language model takes no images");
  return STATUS_OK;
}

Status leader_submit(Leader *leader, const float *pixels, int64_t batch) {
  TRY(leader_check_takes(leader, false));
  Request request = {.kind = WIRE_CLASSIFY, .codes = leader->options.codes, .batch = batch, .tokens = leader->given->tokens};
  LeaderRequest *slot = NULL;
  TRY(open_request(leader, &request, &slot));
  /* Kept until answered: a rerun may distribute them differently. */
  slot->request.levels = patches_find_levels(&leader->levels, leader->setup.weights->config, pixels, batch, slot->levels);
  if (!slot->request.levels) memcpy(slot->pixels, pixels, (size_t)(batch * weights_pixels(leader->setup.weights)) * sizeof *slot->pixels);
  return send_request(leader, slot);
}

Status leader_check_ids(const int32_t *ids, int64_t count, int64_t min, int64_t vocabulary) {
  for (int64_t i = 0; i < count; i++) {
    if (ids[i] < min || ids[i] >= vocabulary)
      return status_set(STATUS_BAD_VALUE, "id %d at place %lld; the model's vocabulary has %lld tokens", (int)ids[i], (long long)i,
                        (long long)vocabulary);
  }
  return STATUS_OK;
}

static Status open_text(Leader *leader, const Request *request, const int32_t *ids, LeaderRequest **slot) {
  bool classes = leader->setup.weights->config->classes > 0;
  TRY(leader_check_takes(leader, true));
  if (classes != (request->kind == WIRE_CLASSIFY))
    return status_set(STATUS_BAD_VALUE, "the model %s", classes ? "classifies texts, and predicts no tokens" : "has no classes of texts");
  if (request->tokens < 1 || request->tokens > leader->setup.tokens_max)
    return status_set(STATUS_BAD_VALUE, "a text of %lld tokens; 1 to %lld are possible", (long long)request->tokens,
                      (long long)leader->setup.tokens_max);
  TRY(leader_check_ids(ids, request->batch * request->tokens, 0, leader->setup.weights->config->vocabulary));
  return open_request(leader, request, slot);
}

/* Whether a prompt can be gone on from. */
static Status check_decodes(const Leader *leader) {
  const StrategyFacts *strategy = strategy_facts(leader->setup.strategy);
  if (!strategy->decodes)
    return status_set(STATUS_UNSUPPORTED, "strategy %s has no key-value cache: astra and single continue from prompts", strategy->name);
  return STATUS_OK;
}

Status leader_text_prompt(Leader *leader, const int32_t *ids, int64_t count, const Sampling *sampling) {
  LeaderRequest *slot = NULL;
  if (leader_under_way(leader)) return status_set(STATUS_BAD_VALUE, "another request is under way");
  TRY(check_decodes(leader));
  TRY(open_text(leader, &(Request){.kind = WIRE_PROMPT, .batch = 1, .tokens = count}, ids, &slot));
  leader->queue.made_count = leader->queue.taken = 0;
  Sampling packed = *sampling;
  request_sampling(byte_cursor_to(payload_of(slot)), NULL, &packed);
  request_pack_ids(ids, count, payload_of(slot) + REQUEST_SAMPLING);
  return send_request(leader, slot);
}

Status leader_text_score(Leader *leader, const int32_t *ids, const int32_t *labels, int64_t batch, int64_t tokens) {
  LeaderRequest *slot = NULL;
  TRY(leader_check_ids(labels, batch * tokens, -1, leader->setup.weights->config->vocabulary));
  TRY(open_text(leader, &(Request){.kind = WIRE_SCORE, .batch = batch, .tokens = tokens}, ids, &slot));
  request_pack_ids(ids, batch * tokens, payload_of(slot));
  request_pack_ids(labels, batch * tokens, payload_of(slot) + 4 * batch * tokens);
  return send_request(leader, slot);
}

static Status ask_last(Leader *leader, uint8_t kind, const int32_t *ids, int64_t batch, int64_t tokens) {
  LeaderRequest *slot = NULL;
  TRY(open_text(leader, &(Request){.kind = kind, .codes = leader->options.codes, .batch = batch, .tokens = tokens}, ids, &slot));
  request_pack_ids(ids, batch * tokens, payload_of(slot));
  return send_request(leader, slot);
}

Status leader_text_last(Leader *leader, const int32_t *ids, int64_t batch, int64_t tokens) {
  return ask_last(leader, WIRE_LAST, ids, batch, tokens);
}

Status leader_text_classify(Leader *leader, const int32_t *ids, int64_t batch, int64_t tokens) {
  return ask_last(leader, WIRE_CLASSIFY, ids, batch, tokens);
}

/* ---- new tokens ---- */

static Status wait(Leader *leader, const LeaderRequest *slot, bool token) {
  hold(leader);
  Status status = leader_epoch_wait(leader, slot, token);
  release(leader);
  return status;
}

static bool prompt_under_way(Leader *leader) {
  return leader_under_way(leader) && leader_requests_oldest(leader)->request.kind == WIRE_PROMPT;
}

Status leader_text_next(Leader *leader, int32_t *id, bool *more) {
  *more = false;
  if (!prompt_under_way(leader)) return status_set(STATUS_BAD_VALUE, "no prompt is under way");
  TRY(wait(leader, leader_requests_oldest(leader), true));
  *more = leader->queue.taken < leader->queue.made_count;
  if (*more) *id = leader->queue.made[leader->queue.taken++];
  return STATUS_OK;
}

Status leader_text_stop(Leader *leader) {
  if (!prompt_under_way(leader)) return status_set(STATUS_BAD_VALUE, "no prompt is under way");
  const LeaderRequest *slot = leader_requests_oldest(leader);
  Status status = STATUS_OK;
  hold(leader);
  wire_pack(&(WireHeader){.kind = WIRE_STOP, .sender = WIRE_LEADER, .request = slot->number}, leader->queue.stop);
  for (int d = 0; d < leader->epoch.nodes && status == STATUS_OK; d++) {
    if (slot->shares[d].last && !slot->arrived[d]) status = connection_send(leader->epoch.connections[d], leader->queue.stop, WIRE_HEADER);
  }
  if (status == STATUS_OK) status = connections_step(leader->epoch.connections, leader->epoch.nodes, 0);
  if (status != STATUS_OK) status = leader_epoch_recover(leader, status);
  release(leader);
  return status;
}

/* ---- sequences ---- */

bool leader_is_here(const Leader *leader, int device) {
  return leader->membership.devices[device].state == DEVICE_READY && leader->membership.devices[device].node >= 0;
}

bool leader_is_joining(const Leader *leader, int device) {
  const DeviceState state = leader->membership.devices[device].state;
  return state == DEVICE_FETCHES || state == DEVICE_GREETED || (state >= DEVICE_HERE && !leader_is_here(leader, device));
}

int leader_sequences_held(const Leader *leader) { return leader->sequences.count; }

int leader_sequences_on(const Leader *leader, int device) {
  int count = 0;
  for (int i = 0; i < leader->sequences.count; i++) {
    const LeaderSequence *sequence = &leader->sequences.list[i];
    count += !sequence->over && leader->epoch.device_of[sequence->node] == device;
  }
  return count;
}

Status leader_sequence_start(Leader *leader, const int32_t *ids, int64_t count, const SequenceOptions *options, int device,
                             uint32_t *number) {
  LeaderSequences *q = &leader->sequences;
  LeaderRequest *slot = NULL;
  const bool room = leader_is_here(leader, device) && leader_sequences_on(leader, device) < leader->setup.sequences;
  if (q->lost || !room || !leader_takes_more(leader)) return status_set(STATUS_BUSY, "no room for another sequence");
  TRY(check_decodes(leader));
  TRY(open_text(leader, &(Request){.kind = WIRE_SEQUENCE, .batch = 1, .tokens = count}, ids, &slot));
  if (q->lost || !leader_is_here(leader, device)) return status_set(STATUS_BUSY, "the devices have changed");
  const int node = leader->membership.devices[device].node;
  slot->request.home = 1 + node;
  SequenceOptions packed = *options;
  request_sequence(byte_cursor_to(payload_of(slot)), NULL, &packed);
  request_pack_ids(ids, count, payload_of(slot) + REQUEST_SEQUENCE);
  int32_t *text = NULL; /* that another device may draft for */
  if (leader->epoch.nodes > 1 && (options->speculation == SPECULATION_AUTO || options->speculation == SPECULATION_DRAFT)) {
    text = malloc((size_t)leader->setup.tokens_max * sizeof *text); /* NULL: it goes on without drafts */
    if (text) memcpy(text, ids, (size_t)count * sizeof *ids);
  }
  const int64_t context = leader->setup.tokens_max + 1 - count, max = options->sampling.max;
  *number = leader->queue.submitted + 1 - leader->epoch.base;
  q->list[q->count++] = (LeaderSequence){.number = *number,
                                         .node = node,
                                         .prompt = (uint32_t)count,
                                         .made = (uint32_t)options->sampling.made,
                                         .max = (uint32_t)(options->sampling.made + (max < context ? max : context)),
                                         .text = text,
                                         .count = count,
                                         .wanted = q->wishes[node],
                                         .drafter = -1};
  return send_request(leader, slot);
}

void leader_sequence_stop(Leader *leader, uint32_t number) {
  LeaderSequence *sequence = leader_sequences_find(leader, number);
  if (sequence) sequence->unwanted = true;
}

/* Prompts that all nodes have computed are over; what follows is their tokens. */
static Status collect_prompts(Leader *leader) {
  while (leader_under_way(leader)) {
    const LeaderRequest *slot = leader_requests_oldest(leader);
    LeaderAnswer answer;
    for (int d = 0; d < leader->epoch.nodes; d++) {
      if (!slot->arrived[d]) return STATUS_OK;
    }
    LeaderSequence *sequence = leader_sequences_find(leader, slot->number);
    if (sequence) sequence->here = true;
    if (sequence && sequence->over) leader_sequences_end(leader, sequence);
    TRY(leader_collect(leader, &answer));
  }
  return STATUS_OK;
}

Status leader_sequences_poll(Leader *leader, int also, double seconds, LeaderTakeToken *take, void *context, SequenceLoss *lost) {
  LeaderSequences *q = &leader->sequences;
  hold(leader);
  Status status = q->token_count > 0 || q->lost ? STATUS_OK : leader_epoch_poll(leader, also, seconds);
  if (status == STATUS_OK && leader_epoch_rests(leader)) {
    leader_epoch_drop_sequences(leader);
    status = leader_epoch_rejoin(leader);
  }
  if (status == STATUS_OK) status = leader_sequences_tell(leader);
  release(leader);
  TRY(status);
  TRY(collect_prompts(leader));
  for (int i = 0; i < q->token_count; i++) take(context, &q->tokens[i]);
  q->token_count = 0;
  *lost = q->lost;
  q->lost = SEQUENCES_KEPT;
  hold(leader);
  status = leader_sequences_tell(leader); /* of those that the caller does not want any more: there may be no poll after this one */
  release(leader);
  return status;
}

void leader_use_groups(Leader *leader, int groups) {
  leader->options.adapt_rate = groups == 0;
  if (groups > 0) leader->groups = groups;
  rate_choice_init(&leader->rate, leader->weights.config, leader->groups);
}

/* Whether the work can be divided among so many. */
static bool can_divide(const Leader *leader, int nodes) {
  const TokenSplit split = {.nodes = nodes};
  const Partition partition = {.nodes = nodes};
  NodeSetup setup = leader->setup;
  setup.split = leader->given_split ? &split : NULL;
  setup.partition = leader->given_split ? NULL : &partition;
  return node_share_check(&setup) == STATUS_OK && (!leader->given || nodes <= leader->given->tokens);
}

void leader_add_workers(Leader *leader, const Address *found, int count) {
  Membership *membership = &leader->membership;
  char text[ADDRESS_TEXT];
  hold(leader);
  for (int i = 0; i < count && leader->cluster.grows; i++) {
    const int before = membership->count;
    int place;
    if (before < membership->room && !can_divide(leader, before + 1)) membership->room = before;
    if (!membership_add(membership, &found[i], found, count, &place)) break;
    if (place < 0) continue;
    leader->sums.nodes[place] = (NodeStatistics){0}; /* of the lost worker whose place it takes */
    leader->sums.rows[place] = leader->sums.tokens[place] = 0;
    log_info("found worker %s", address_text(&found[i], text));
  }
  release(leader);
}

int leader_groups(const Leader *leader) { return leader->groups; }

bool leader_is_deserted(const Leader *leader) {
  return leader->cluster.on_failure != ON_FAILURE_ABORT && leader->cluster.peer_count > 0 && leader->epoch.nodes == 0;
}

Status leader_watch(Leader *leader) {
  const bool stopped = leader->options.stop && *leader->options.stop;
  Status status = STATUS_OK;
  hold(leader);
  if (leader_is_deserted(leader)) {
    status = stopped ? status_set(STATUS_BUSY, "interrupted") : leader_epoch_return(leader);
  } else if (leader_under_way(leader) == 0 && leader->sequences.count == 0 && !stopped) {
    status = connections_step(leader->epoch.connections, leader->epoch.nodes, 0);
    if (status == STATUS_OK && leader->epoch.complainer >= 0) status = STATUS_PEER;
    status = status == STATUS_OK ? leader_epoch_rejoin(leader) : leader_epoch_recover(leader, status);
  }
  release(leader);
  return status;
}

/* ---- answers ---- */

/* Seconds from when the node that had its input last had it. Those with tokens of an image end together; a text ends with its last span. */
static double elapsed_of(const Leader *leader, const LeaderRequest *slot) {
  double min = 0;
  for (int d = 0; d < leader->epoch.nodes; d++) {
    const double elapsed = slot->nodes[d].elapsed;
    const bool counts = leader->setup.split ? slot->shares[d].last : slot->counts[d] > 0;
    if (counts && !(slot->missing >> leader->epoch.device_of[d] & 1) && (min <= 0 || elapsed < min)) min = elapsed;
  }
  return min;
}

/* Statistics by device, and times per sample, from the input and from submission. Devices that have taken part are cleared of faults. */
static void sum_up(Leader *leader, const LeaderRequest *slot) {
  const double samples = (double)slot->request.batch, min = elapsed_of(leader, slot) / samples,
               request = (clock_now() - slot->began) / samples;
  memset(leader->sums.last_tokens, 0, (size_t)leader->membership.count * sizeof *leader->sums.last_tokens);
  memset(leader->last, 0, (size_t)leader->membership.count * sizeof *leader->last);
  for (int d = 0; d < leader->epoch.nodes; d++) {
    int m = leader->epoch.device_of[d];
    if (slot->missing >> m & 1) continue;
    leader->sums.last_tokens[m] = slot->counts[d];
    leader->sums.rows[m] += slot->counts[d] * slot->request.batch;
    leader->last[m] = slot->nodes[d];
    leader->membership.devices[m].pause = leader->membership.devices[m].faults = 0;
    wire_add_statistics(&leader->sums.nodes[m], &slot->nodes[d]);
  }
  if (slot->request.tokens > leader->longest) leader->sums.fastest = leader->sums.fastest_request = 0; /* a shorter one's is no measure */
  if (slot->request.tokens >= leader->longest) {
    leader->longest = slot->request.tokens;
    memcpy(leader->sums.tokens, leader->sums.last_tokens, (size_t)leader->membership.count * sizeof *leader->sums.last_tokens);
    if (min > 0 && (leader->sums.fastest <= 0 || min < leader->sums.fastest)) leader->sums.fastest = min;
    if (leader->sums.fastest_request <= 0 || request < leader->sums.fastest_request) leader->sums.fastest_request = request;
  }
  leader->sums.rate_samples[config_rate(leader->weights.config)] += slot->request.batch;
  leader->sums.reruns += slot->reruns;
  leader->sums.masked += (slot->missing | slot->given_up) != 0;
}

Status leader_collect(Leader *leader, LeaderAnswer *answer) {
  if (!leader_under_way(leader)) return status_set(STATUS_BAD_VALUE, "no request is under way");
  LeaderRequest *slot = leader_requests_oldest(leader);
  TRY(wait(leader, slot, false));
  leader->queue.collected++;
  slot->number = 0;
  if (leader_under_way(leader)) leader_requests_oldest(leader)->turn = clock_now();
  sum_up(leader, slot);
  if (leader->options.adapt_rate && leader->epoch.nodes > 1 && leader->groups == leader->weights.config->astra.groups)
    note_rate(leader, slot);
  for (int m = 0; m < leader->membership.count; m++) {
    char name[MEMBERSHIP_NAME];
    if ((slot->given_up & ~slot->missing) >> m & 1)
      log_warning("%s was silent for too long: others went on without its tokens, and this answer is incomplete",
                  membership_name(&leader->membership, m, name));
  }
  *answer = (LeaderAnswer){.batch = slot->request.batch,
                           .tokens = slot->request.tokens,
                           .counts = leader->sums.last_tokens,
                           .nodes = leader->last,
                           .missing = slot->missing | slot->given_up,
                           .reruns = slot->reruns};
  TRY(leader_requests_take(leader, slot, answer));
  return weights_unchanged(leader->setup.weights); /* the leader computes the head with them */
}

Status leader_forget(Leader *leader) {
  leader->queue.collected = leader->queue.submitted; /* answers to these may still come, until the epoch has ended */
  hold(leader);
  const Status status = leader_epoch_renew(leader);
  release(leader);
  return status;
}

/* ---- stop ---- */

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

static void release_devices(Leader *leader) {
  for (int d = 0; leader->epoch.layout && d < leader->membership.count; d++) layout_release(&leader->epoch.layout[d]);
  free(leader->epoch.device_of);
  free(leader->epoch.connections);
  free(leader->epoch.layout);
  free(leader->epoch.setups);
  free(leader->epoch.progress);
  free(leader->epoch.complaints);
  free(leader->sums.nodes);
  free(leader->last);
  free(leader->sums.tokens);
  free(leader->sums.rows);
  free(leader->sums.last_tokens);
  free(leader->epoch.gone);
}

void leader_stop(Leader *leader) {
  if (!leader) return;
  stop_heartbeat(leader);
  membership_close(&leader->membership, leader_under_way(leader) == 0);
  leader_epoch_close(leader);
  for (int i = 0; i < LEADER_DEPTH; i++) release_request(&leader->queue.requests[i]);
  release_devices(leader);
  partition_release(&leader->partition);
  leader_sequences_release(leader);
  tape_free(leader->tape);
  arena_free(leader->arena);
  free(leader->decoding);
  free(leader->queue.made);
  free(leader->replicas);
  free(leader->class_tokens);
  free(leader->logits);
  free(leader->codes);
  free(leader->node_codes);
  free(leader);
}
