/* An epoch: which devices take part, and with which tokens; waiting for them; deciding which one is at fault when that fails, and recovery.
 * The only file that knows the policies (ClusterOptions.on_failure). Memory for answers depends on the shares and is allocated here; what a
 * request keeps of its input outlives the epoch (leader.c).
 *
 * Which devices are dropped: reports of others alone prove nothing. All are asked to cancel the epoch (CANCEL), and a device is dropped if
 * it is disconnected or does not confirm in time: within --timeout as always, or at once if it has been silent that long already. The
 * others continue, but each failure is attributed to one device, the one it is about or else the one that reported it; a device with two
 * since it last took part in an answer is dropped as well, although it answers this leader: others cannot reach it, or it keeps failing.
 *
 * When a dropped device is called again: membership.h. It rejoins when no request is in flight: no work of others is discarded for it.
 * Sequences, which may go on without end, are not waited for: they start again with it (leader_sequences_poll).
 *
 * All of it ends when the time limit of a request is over (--request-timeout). */
#include "base/clock.h"
#include "base/log.h"
#include "infer/cluster/connection.h"
#include "infer/cluster/fd_passing.h"
#include "infer/cluster/leader_internal.h"
#include "infer/cluster/setup_message.h"
#include "infer/node_share.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RERUNS_MAX = 3, TRIES_MAX = 4, FAULTS_MAX = 2 };
static const double cancel_seconds = 5, silent_seconds = 1; /* to confirm CANCEL: at least; if it was silent before */
static const double slice_seconds = 0.02;
static const double setting_up_seconds = 15; /* devices connect to each other, which has a shorter time limit */
static const double calling_slice = 0.02;

/* ---- nodes and their tokens */

static void number_nodes(Leader *leader) {
  leader->epoch.nodes = 0;
  for (int m = 0; m < leader->membership.count; m++) {
    LeaderDevice *device = &leader->membership.devices[m];
    bool here = device->state >= DEVICE_HERE;
    if (here) device->state = DEVICE_HERE;
    device->asked = false;
    device->node = here ? leader->epoch.nodes : -1;
    if (!here) continue;
    leader->epoch.device_of[leader->epoch.nodes] = m;
    leader->epoch.connections[leader->epoch.nodes++] = &device->connection;
  }
}

/* The weight of a device's tokens; one that was added since the start has the mean. */
static double given_weight(const Leader *leader, int m) {
  const TokenSplit *split = leader->given_split;
  const Partition *given = leader->given;
  double sum = 0;
  if (given) return m < given->nodes ? (double)given->counts[m] : (double)given->tokens / given->nodes;
  for (int d = 0; d < split->nodes; d++) sum += split->weights[d];
  return m < split->nodes ? split->weights[m] : sum / split->nodes;
}

/* All devices of the start take part, and no others. */
static bool is_as_given(const Leader *leader) {
  const int nodes = leader->given ? leader->given->nodes : leader->given_split->nodes;
  return leader->epoch.nodes == nodes && leader->epoch.device_of[nodes - 1] == nodes - 1;
}

/* Tokens of each node: as given if all take part, else by the same rule over the remaining ones. */
static Status count_tokens(const Leader *leader, int64_t counts[WIRE_NODES]) {
  const Partition *given = leader->given;
  double weights[WIRE_NODES];
  layout_even_counts(given->tokens, leader->epoch.nodes, counts);
  if (is_as_given(leader)) memcpy(counts, given->counts, (size_t)given->nodes * sizeof *counts);
  int64_t min = given->counts[0], max = min;
  for (int d = 1; d < given->nodes; d++) {
    min = given->counts[d] < min ? given->counts[d] : min;
    max = given->counts[d] > max ? given->counts[d] : max;
  }
  if (is_as_given(leader) || max - min <= 1) return STATUS_OK;
  for (int d = 0; d < leader->epoch.nodes; d++) weights[d] = given_weight(leader, leader->epoch.device_of[d]);
  return layout_weighted_counts(given->tokens, leader->epoch.nodes, weights, counts);
}

static Status share_tokens(Leader *leader) {
  NodeSetup *setup = &leader->setup;
  int64_t counts[WIRE_NODES];
  setup->split = NULL;
  setup->partition = NULL;
  setup->keep_codes = leader->options.codes && leader->epoch.nodes > 1;
  if (leader->given_split) {
    double max = 0;
    for (int d = 0; d < leader->epoch.nodes; d++) max = fmax(max, given_weight(leader, leader->epoch.device_of[d]));
    leader->split = (TokenSplit){.nodes = leader->epoch.nodes};
    for (int d = 0; d < leader->epoch.nodes; d++)
      leader->split.weights[d] = given_weight(leader, leader->epoch.device_of[d]) / (is_as_given(leader) ? 1 : max);
    setup->split = &leader->split;
    return STATUS_OK;
  }
  partition_release(&leader->partition);
  TRY(count_tokens(leader, counts));
  TRY(partition_spread(&leader->partition, leader->given, leader->epoch.nodes, counts)); /* by the layout that was asked for */
  setup->partition = &leader->partition;
  for (int d = 0; d < leader->epoch.nodes; d++) TRY(node_share_layout(setup, leader->partition.tokens, 0, d, &leader->epoch.layout[d]));
  return STATUS_OK;
}

/* ---- memory */

static Status allocate_results(Leader *leader) {
  bool memory = true;
  for (int d = 0; d < leader->epoch.nodes; d++) {
    RequestShare max = {.sent_rows = leader->setup.tokens_max, .last = true};
    if (!leader->setup.split) max = node_share_of(&leader->setup, d, &leader->epoch.layout[d]);
    size_t bytes = request_max_answer_bytes(&leader->setup, &max), tokens = request_decoded_max(&leader->setup);
    for (int i = 0; i < LEADER_DEPTH && memory; i++) memory = (leader->queue.requests[i].results[d] = malloc(bytes)) != NULL;
    leader_device(leader, d)->connection.sink.max_payload = fmax(fmax((double)bytes, (double)tokens), WIRE_TEXT);
  }
  return memory ? STATUS_OK : status_set(STATUS_NO_MEMORY, "no memory for answers; use a smaller --batch or --max-context");
}

void leader_epoch_close(Leader *leader) {
  for (int d = 0; d < leader->epoch.nodes; d++) {
    for (int i = 0; i < LEADER_DEPTH; i++) {
      free(leader->queue.requests[i].results[d]);
      leader->queue.requests[i].results[d] = NULL;
    }
    free(leader->epoch.setups[d]);
    leader->epoch.setups[d] = NULL;
  }
}

/* ---- SETUP */

/* Links that are simulated have been there for so many seconds. setup->links.trace is to be released, also after a failure. */
static Status describe(const Leader *leader, double seconds, ClusterSetup *setup) {
  const NodeSetup *node = &leader->setup;
  const ClusterSetup *codes = leader->options.network, streams = {.reliability.mode = RELIABILITY_STREAM, .parts = 1};
  if (!codes) codes = &streams;
  *setup = (ClusterSetup){.epoch = leader->epoch.number,
                          .nodes = leader->epoch.nodes,
                          .strategy = node->strategy,
                          .retained = node->retained,
                          .transport = codes->transport,
                          .reliability = codes->reliability,
                          .parts = codes->parts,
                          .entropy = codes->entropy,
                          .mtu = codes->mtu,
                          .links = codes->links,
                          .shaped = codes->shaped,
                          .class_token = node->class_token,
                          .keep_codes = node->keep_codes,
                          .batch_max = node->batch_max,
                          .tokens_max = node->tokens_max,
                          .sequences = node->sequences,
                          .rate = config_rate(node->weights->config),
                          .mask = leader->cluster.on_failure == ON_FAILURE_MASK && strategy_facts(node->strategy)->sends_codes,
                          .fingerprints = leader->fingerprints,
                          .tokens = node->split ? 0 : leader->partition.tokens,
                          .order = leader->partition.order};
  setup->reliability.timeout = node->timeout;
  TRY(link_trace_rest(&setup->links.trace, &codes->links.trace, seconds));
  FingerprintShares shares = {.nodes = leader->epoch.nodes, .weights = leader->split.weights};
  if (!node->split)
    shares = (FingerprintShares){.nodes = leader->epoch.nodes,
                                 .tokens = leader->partition.tokens,
                                 .counts = leader->partition.counts,
                                 .order = leader->partition.order};
  for (int d = 0; d < leader->epoch.nodes; d++) {
    const LeaderDevice *device = leader_device(leader, d);
    setup->device[d] = (SetupDevice){.reachable = !device->forked, .address = device->reached};
    if (node->split)
      setup->device[d].weight = leader->split.weights[d];
    else
      setup->device[d].tokens = leader->partition.counts[d];
  }
  return fingerprint_shares(&shares, &setup->fingerprints.partition);
}

static Status send_setups(Leader *leader) {
  ClusterSetup *setup = malloc(sizeof *setup);
  if (!setup) return status_no_memory(NULL, "a set-up");
  const double now = clock_now();
  if (leader->epoch.links_began == 0) leader->epoch.links_began = now;
  Status status = describe(leader, now - leader->epoch.links_began, setup);
  size_t bytes = status == STATUS_OK ? setup_message_bytes(setup) : 0;
  WireHeader header = {.kind = WIRE_SETUP, .sender = WIRE_LEADER, .count = (uint32_t)leader->epoch.nodes, .bytes = (uint32_t)bytes};
  for (int d = 0; d < leader->epoch.nodes && status == STATUS_OK; d++) {
    uint8_t *message = leader->epoch.setups[d] = malloc(WIRE_HEADER + bytes);
    setup->self = d;
    if (!message) status = status_no_memory(NULL, "a set-up");
    if (status == STATUS_OK) wire_pack(&header, message);
    if (status == STATUS_OK) status = setup_message_pack(setup, message + WIRE_HEADER);
    if (status == STATUS_OK) status = connection_send(leader->epoch.connections[d], message, WIRE_HEADER + bytes);
  }
  link_trace_release(&setup->links.trace);
  free(setup);
  return status;
}

/* A stream between two processes of this machine: one end is passed to each, with the other's number. */
static Status join_two(const Leader *leader, int a, int b) {
  int pair[2];
  TRY(connection_pair(pair));
  PassedFd to_b = {.kind = FD_STREAM, .epoch = leader->epoch.number, .node = (uint16_t)b, .fd = pair[0]};
  PassedFd to_a = {.kind = FD_STREAM, .epoch = leader->epoch.number, .node = (uint16_t)a, .fd = pair[1]};
  Status status = fd_passing_send(leader_device(leader, a)->passed, &to_b);
  if (status == STATUS_OK) status = fd_passing_send(leader_device(leader, b)->passed, &to_a);
  close(pair[0]);
  close(pair[1]);
  return status;
}

/* ---- waiting, and who is at fault */

static bool interrupted(const Leader *leader) { return leader->options.stop && *leader->options.stop; }

/* Devices number the nodes of this epoch, users the devices of the cluster: "node 2" in a report is replaced by that device's name. */
static Status explain_complaint(const Leader *leader) {
  int from = leader->epoch.complainer, about = leader->epoch.fault, prefix = 0;
  char name[MEMBERSHIP_NAME];
  const char *complaint = leader->epoch.complaints[from];
  Status status = leader->epoch.futile ? STATUS_NUMERIC : STATUS_PEER;
  if (about < 0 || leader->epoch.futile) return status_set(status, "%s: %s", membership_name(&leader->membership, from, name), complaint);
  membership_name(&leader->membership, about, name);
  sscanf(complaint, "node %*d%n", &prefix);
  if (prefix > 0) return status_set(STATUS_PEER, "%s%s (reported by node %d)", name, complaint + prefix, from);
  return status_set(STATUS_PEER, "%s (about %s; reported by node %d)", complaint, name, from);
}

/* The cause of a failure: a dead child, else a disconnected worker, else what a device reported, else what the connections say. */
static Status explain(Leader *leader, Status status) {
  char name[MEMBERSHIP_NAME];
  int broken = -1; /* a worker whose connection has failed */
  bool known;
  for (int d = 0; d < leader->epoch.nodes && broken < 0; d++) {
    const LeaderDevice *device = leader_device(leader, d);
    if (!device->forked && device->state >= DEVICE_HERE && !connection_is_open(&device->connection)) broken = leader->epoch.device_of[d];
  }
  status = membership_explain(&leader->membership, status, status == STATUS_PEER && broken < 0, &known);
  if (known) return status;
  if (broken >= 0 && leader->epoch.complainer < 0) return status_wrap(status, "%s", membership_name(&leader->membership, broken, name));
  if (broken >= 0) return status_set(STATUS_PEER, "%s is gone", membership_name(&leader->membership, broken, name));
  return leader->epoch.complainer < 0 ? status : explain_complaint(leader);
}

/* What shows progress: bytes of all connections. Where sequences live on devices only those that are waited for count: one that has done
 * its part of a prompt goes on decoding meanwhile. Of what is sent to them only the prompt itself counts, not what other devices decode,
 * for which they may draft. The number also changes when one of them arrives: the others have all the time again, in which what that one
 * sent reaches them. */
static uint64_t bytes_moved(Leader *leader, const bool *arrived) {
  const bool some = leader->setup.sequences > 0 && arrived, sends = leader_requests_oldest(leader)->sent <= 0;
  uint64_t bytes = 0;
  for (int d = 0; d < leader->epoch.nodes; d++) {
    const Connection *connection = leader->epoch.connections[d];
    if (some && arrived[d]) continue;
    bytes += connection->received.bytes + (some && !sends ? 0 : connection->sent.bytes);
  }
  return bytes;
}

/* The device that is waited for and has progressed least. */
static int latest(const Leader *leader, const bool *arrived) {
  int late = 0;
  bool found = false;
  for (int d = 0; d < leader->epoch.nodes; d++) {
    bool there = arrived ? arrived[d] : leader_device(leader, d)->state == DEVICE_READY;
    if (there || (found && leader->epoch.progress[d] >= leader->epoch.progress[late])) continue;
    late = d;
    found = true;
  }
  return leader->epoch.device_of[late];
}

/* Seconds left for the request whose turn it is; INFINITY: unlimited. */
static double time_left(const Leader *leader) {
  const double max = leader->cluster.request_timeout;
  if (max <= 0 || leader->queue.submitted == leader->queue.collected) return INFINITY;
  return leader->queue.requests[(leader->queue.collected + 1) & 1].turn + max - clock_now();
}

/* One wait, for `seconds` at most and until `also` can be read (-1: none). arrived: who is not waited for; NULL while an epoch is set up.
 */
static Status look(Leader *leader, IdleTimeout *idle_timeout, const bool *arrived, int also, double seconds) {
  char name[MEMBERSHIP_NAME];
  /* Before a connection moves: where recovery ran out of time, one may be in the middle of an answer whose memory is gone. */
  if (interrupted(leader)) return status_set(STATUS_INTERRUPTED, "interrupted");
  if (time_left(leader) <= 0)
    return status_set(STATUS_TIMEOUT, "the request took longer than --request-timeout %g; last it waited for %s",
                      leader->cluster.request_timeout, membership_name(&leader->membership, latest(leader, arrived), name));
  /* A complaint counts after what arrived before it, perhaps in the same step, has been handled. */
  if (leader->epoch.complainer >= 0) return explain(leader, STATUS_PEER);
  seconds = fmin(seconds, connection_idle_slice(idle_timeout));
  if (membership_poll(&leader->membership)) seconds = fmin(calling_slice, seconds); /* a lost worker is being called */
  membership_ping(&leader->membership);
  Status status = also < 0 ? STATUS_OK : connections_wait(leader->epoch.connections, leader->epoch.nodes, also, seconds);
  if (status == STATUS_OK) status = connections_step(leader->epoch.connections, leader->epoch.nodes, also < 0 ? seconds : 0);
  if (status != STATUS_OK) return explain(leader, status);
  bool sent = true;
  for (int d = 0; sent && d < leader->epoch.nodes; d++) sent = connection_queued(leader->epoch.connections[d]) == 0;
  for (int i = 0; sent && i < LEADER_DEPTH; i++) {
    LeaderRequest *request = &leader->queue.requests[i];
    if (request->number && request->sent <= 0) request->sent = clock_now();
  }
  if (!connection_idle_ends(idle_timeout, bytes_moved(leader, arrived), clock_now())) return STATUS_OK;
  leader->epoch.fault = latest(leader, arrived);
  return status_set(STATUS_TIMEOUT, "%s did not answer within %g s; --timeout gives it longer",
                    membership_name(&leader->membership, leader->epoch.fault, name), idle_timeout->max - 1);
}

/* Silence is evaluated over all nodes, or all that are waited for (bytes_moved): while any of them progresses, the request is just long.
 * Devices know best which one they wait for, so they get a moment to report it first. */
static Status wait_until(Leader *leader, bool (*done)(const Leader *leader, const bool *arrived), const bool *arrived) {
  IdleTimeout idle_timeout;
  double max = leader->epoch.setting_up ? fmax(leader->options.timeout, setting_up_seconds) : leader->options.timeout;
  connection_idle_start(&idle_timeout, max + 1, bytes_moved(leader, arrived), clock_now());
  while (!done(leader, arrived)) TRY(look(leader, &idle_timeout, arrived, -1, INFINITY));
  return STATUS_OK;
}

/* ---- opening one */

static bool all_ready(const Leader *leader, const bool *arrived) {
  (void)arrived;
  for (int d = 0; d < leader->epoch.nodes; d++) {
    if (leader_device(leader, d)->state != DEVICE_READY) return false;
  }
  return true;
}

static Status begin(Leader *leader) {
  TRY(share_tokens(leader));
  TRY(allocate_results(leader));
  for (int a = 0; leader->cluster.peer_count == 0 && a < leader->epoch.nodes; a++) {
    for (int b = a + 1; b < leader->epoch.nodes; b++) TRY(join_two(leader, a, b));
  }
  Status status = send_setups(leader);
  return status == STATUS_OK ? wait_until(leader, all_ready, NULL) : explain(leader, status);
}

/* Numbers all connected devices (DEVICE_HERE or more) as nodes, distributes the tokens, allocates, sends SETUP, waits for READY. */
static Status open_epoch(Leader *leader) {
  leader_epoch_close(leader);
  number_nodes(leader);
  if (leader->epoch.nodes == 0) return status_set(STATUS_PEER, "no device is left");
  leader->epoch.number = leader->epoch.number < UINT16_MAX ? leader->epoch.number + 1 : 1;
  leader->epoch.base = leader->queue.collected;
  for (int i = 0; i < LEADER_DEPTH; i++) leader->queue.requests[i].number = 0; /* what goes on is numbered anew */
  leader->epoch.complainer = leader->epoch.fault = -1;
  leader->epoch.futile = false;
  leader->epoch.parted = false;
  memset(leader->epoch.progress, 0, (size_t)leader->membership.count * sizeof *leader->epoch.progress);
  leader->epoch.setting_up = true;
  Status status = begin(leader);
  leader->epoch.setting_up = false;
  return status;
}

/* ---- dropping devices */

static void drop(Leader *leader, int m, const char *why, bool useless) {
  const int node = leader->membership.devices[m].node;
  char name[MEMBERSHIP_NAME];
  log_warning("%s: %s%scontinuing without it", membership_name(&leader->membership, m, name), why, *why ? "; " : "");
  membership_drop(&leader->membership, m, useless);
  if (node < 0) return;
  connection_init(&leader->epoch.left);
  leader->epoch.connections[node] = &leader->epoch.left;
}

static void drop_dead(Leader *leader) {
  char text[128];
  int dead;
  while ((dead = membership_find_dead(&leader->membership, text, sizeof text)) >= 0) drop(leader, dead, text, false);
}

/* ---- cancelling an epoch */

/* Until all have confirmed or their time is over: a device that computes a block, or waits for codes, answers late. Connections that fail
 * meanwhile are closed. */
static void await_cancelled(Leader *leader) {
  double start = clock_now();
  for (bool waiting = true; waiting;) {
    double waited = clock_now() - start;
    waiting = false;
    for (int d = 0; d < leader->epoch.nodes; d++) {
      const LeaderDevice *device = leader_device(leader, d);
      int m = leader->epoch.device_of[d];
      bool fault = leader->epoch.fault == m && leader->epoch.complainer != m;
      bool silent = fault && clock_now() - device->heard > leader->options.timeout / 2;
      double max = silent ? silent_seconds : fmax(cancel_seconds, leader->options.timeout);
      waiting |= device->asked && connection_is_open(&device->connection) && waited < max;
    }
    if (waiting) connections_step(leader->epoch.connections, leader->epoch.nodes, slice_seconds);
    membership_ping(&leader->membership);
    waiting = waiting && time_left(leader) > 0 && !interrupted(leader);
  }
}

static void give_up_epoch(Leader *leader) {
  wire_pack(&(WireHeader){.kind = WIRE_CANCEL, .sender = WIRE_LEADER}, leader->epoch.cancel);
  for (int d = 0; d < leader->epoch.nodes; d++) {
    LeaderDevice *device = leader_device(leader, d);
    const bool here = device->node == d && connection_is_open(&device->connection); /* and has not come back for the next epoch */
    device->asked = here && connection_send(&device->connection, leader->epoch.cancel, WIRE_HEADER) == STATUS_OK;
  }
  await_cancelled(leader);
  for (int d = 0; d < leader->epoch.nodes; d++) {
    LeaderDevice *device = leader_device(leader, d);
    if (device->state >= DEVICE_HERE && !connection_is_open(&device->connection))
      drop(leader, leader->epoch.device_of[d], "disconnected", false);
  }
  drop_dead(leader);
  if (time_left(leader) <= 0 || interrupted(leader)) return;
  for (int d = 0; d < leader->epoch.nodes; d++) {
    if (leader_device(leader, d)->asked) drop(leader, leader->epoch.device_of[d], "it does not answer", false);
  }
}

/* Attributes the failure to a device, if that is still connected. */
static void count_fault(Leader *leader) {
  int m = leader->epoch.fault >= 0 ? leader->epoch.fault : leader->epoch.complainer;
  if (m < 0 || leader->epoch.futile || leader->membership.devices[m].state < DEVICE_HERE ||
      ++leader->membership.devices[m].faults < FAULTS_MAX)
    return;
  drop(leader, m, leader->epoch.fault >= 0 ? "others cannot work with it" : "it fails again and again", true);
}

/* ---- recovery */

/* Sends all requests in flight again, in a new epoch. */
static Status resend(Leader *leader) {
  for (uint32_t i = leader->queue.collected + 1; i <= leader->queue.submitted; i++) {
    LeaderRequest *slot = &leader->queue.requests[i & 1];
    slot->request.codes = slot->wants_codes && leader->setup.keep_codes;
    slot->missing = slot->given_up = 0;
    slot->reruns++;
    if (slot->request.kind == WIRE_PROMPT) leader->queue.made_count = 0;
    Status status = leader_requests_send(leader, slot, i - leader->epoch.base);
    if (status != STATUS_OK) return explain(leader, status);
  }
  return STATUS_OK;
}

/* Each failed attempt drops a device or is attributed to one, so this ends. */
static Status begin_again(Leader *leader) {
  Status status = STATUS_OK;
  char why[1024] = "";
  for (int tries = 0; tries < TRIES_MAX + FAULTS_MAX * leader->membership.count; tries++) {
    status = open_epoch(leader);
    if (status == STATUS_OK) status = resend(leader);
    if (status == STATUS_OK || leader->epoch.nodes == 0 || interrupted(leader) || time_left(leader) <= 0) return status;
    snprintf(why, sizeof why, "%s", status_message());
    give_up_epoch(leader);
    count_fault(leader);
  }
  return status_set(status, "%s", why);
}

/* One of many texts cannot be computed by any device: the others can go on without it. */
static bool is_of_a_text(const Leader *leader, Status cause) {
  return cause == STATUS_NUMERIC && leader->epoch.futile && leader->setup.sequences > 0;
}

static bool can_recover(Leader *leader, Status cause) {
  bool of_devices = cause == STATUS_PEER || cause == STATUS_TIMEOUT || cause == STATUS_IO || cause == STATUS_BAD_VALUE;
  of_devices = of_devices && leader->cluster.on_failure != ON_FAILURE_ABORT; /* a text's end is no device's failure */
  return (of_devices || is_of_a_text(leader, cause)) && leader->epoch.nodes > 0 && !interrupted(leader);
}

/* After a failure `cause`, explained: drops failed devices, starts a new epoch and sends the requests in flight again. If that is not
 * allowed or fails: an error with its message. */
static Status recover(Leader *leader, Status cause) {
  char why[1024];
  if (!can_recover(leader, cause) || time_left(leader) <= 0) return cause;
  for (uint32_t i = leader->queue.collected + 1; i <= leader->queue.submitted; i++) {
    if (leader->queue.requests[i & 1].reruns >= RERUNS_MAX) return status_wrap(cause, "after %d reruns", RERUNS_MAX);
  }
  /* Tokens that the caller has taken cannot be taken back, and with another partition others may come. */
  if (leader->queue.submitted > leader->queue.collected && leader_requests_oldest(leader)->request.kind == WIRE_PROMPT &&
      leader->queue.taken > 0)
    return status_wrap(cause, "the text had begun");
  snprintf(why, sizeof why, "%s", status_message());
  log_warning("%s", why);
  TRY(leader_sequences_drop_one(leader, is_of_a_text(leader, cause) ? leader->epoch.complained : 0));
  give_up_epoch(leader);
  count_fault(leader);
  Status status = begin_again(leader);
  if (status != STATUS_OK && leader->epoch.nodes == 0) return status_set(STATUS_PEER, "no device is left; at last %s", why);
  if (status == STATUS_OK) log_info("continuing with %d of %d devices", leader->epoch.nodes, leader->membership.count);
  return status;
}

Status leader_epoch_renew(Leader *leader) {
  give_up_epoch(leader);
  return begin_again(leader);
}

Status leader_epoch_recover(Leader *leader, Status cause) { return recover(leader, explain(leader, cause)); }

Status leader_epoch_start(Leader *leader) {
  Status status = open_epoch(leader);
  return status == STATUS_OK ? STATUS_OK : recover(leader, status);
}

/* ---- continuing without a node */

/* Drops disconnected devices that have answered everything. True: there was one, and nothing else has failed. */
static bool drop_answered(Leader *leader) {
  bool all = leader->epoch.complainer < 0 && !leader->epoch.setting_up, any = false;
  for (int d = 0; d < leader->epoch.nodes; d++) {
    LeaderDevice *device = leader_device(leader, d);
    if (device->state < DEVICE_HERE || connection_is_open(&device->connection)) continue;
    bool answered = true;
    for (uint32_t i = leader->queue.collected + 1; i <= leader->queue.submitted; i++) answered &= leader->queue.requests[i & 1].arrived[d];
    if (answered) drop(leader, leader->epoch.device_of[d], "disconnected", false);
    all = all && answered;
    any = true;
  }
  return all && any;
}

/* Whether a request can be answered without this node: others can mask its codes, and nothing is needed that only it computes. */
static bool can_mask(const Leader *leader, const LeaderRequest *request, int node) {
  bool single = leader->setup.class_token == CLASS_SINGLE && node == 0, others = false;
  for (int d = 0; d < leader->epoch.nodes; d++) others |= d != node && !(request->missing >> leader->epoch.device_of[d] & 1);
  return strategy_facts(leader->setup.strategy)->sends_codes && request->request.kind != WIRE_LAST && !single &&
         !request->shares[node].last && others;
}

/* Masks disconnected nodes in all requests in flight. False: impossible, or there are none. */
static bool mask_broken(Leader *leader) {
  bool any = false;
  for (int d = 0; d < leader->epoch.nodes; d++) {
    LeaderDevice *device = leader_device(leader, d);
    if (device->state < DEVICE_HERE || connection_is_open(&device->connection)) continue;
    for (uint32_t i = leader->queue.collected + 1; i <= leader->queue.submitted; i++) {
      LeaderRequest *request = &leader->queue.requests[i & 1];
      if (request->arrived[d]) continue;
      if (!can_mask(leader, request, d)) return false;
      request->arrived[d] = true;
      request->missing |= (uint64_t)1 << leader->epoch.device_of[d];
    }
    uint8_t *gone = leader->epoch.gone[leader->epoch.device_of[d]];
    wire_pack(&(WireHeader){.kind = WIRE_GONE, .sender = WIRE_LEADER, .count = (uint32_t)d}, gone);
    for (int other = 0; other < leader->epoch.nodes; other++) {
      Connection *connection = leader->epoch.connections[other];
      if (other != d && connection_is_open(connection)) connection_send(connection, gone, WIRE_HEADER);
    }
    drop(leader, leader->epoch.device_of[d], "its tokens are masked", false);
    any = true;
  }
  return any;
}

static void disconnect(Leader *leader, int m) {
  LeaderDevice *device = &leader->membership.devices[m];
  if (device->state >= DEVICE_HERE) connection_close(&device->connection);
}

/* A silent device, or one that others report, and a process that has ended are treated as disconnected. Returns the cause where masking
 * does not help. */
static Status try_mask(Leader *leader, Status cause) {
  int fault = leader->epoch.fault;
  char why[1024];
  snprintf(why, sizeof why, "%s", status_message());
  if (leader->cluster.on_failure != ON_FAILURE_MASK || !can_recover(leader, cause) || leader->epoch.setting_up) return cause;
  for (int m = 0; m < leader->cluster.local; m++)
    if (membership_has_ended(&leader->membership, m)) disconnect(leader, m);
  if (fault >= 0) disconnect(leader, fault);
  bool by_others = leader->epoch.complainer >= 0 && leader->epoch.complainer != fault; /* the device that complains has given up */
  if (by_others || !mask_broken(leader)) return cause;
  log_warning("%s", why);
  leader->epoch.complainer = leader->epoch.fault = -1;
  return STATUS_OK;
}

static bool all_arrived(const Leader *leader, const bool *arrived) {
  for (int d = 0; d < leader->epoch.nodes; d++) {
    if (!arrived[d]) return false;
  }
  return true;
}

static bool token_or_all(const Leader *leader, const bool *arrived) {
  return leader->queue.taken < leader->queue.made_count || all_arrived(leader, arrived);
}

Status leader_epoch_wait(Leader *leader, const LeaderRequest *slot, bool token) {
  for (;;) {
    Status status = wait_until(leader, token ? token_or_all : all_arrived, slot->arrived);
    if (status == STATUS_OK) return STATUS_OK;
    if (leader->cluster.on_failure != ON_FAILURE_ABORT && drop_answered(leader)) continue;
    status = try_mask(leader, status);
    if (status != STATUS_OK) TRY(recover(leader, status));
  }
}

/* A device that decodes is silent for too long, while others are not: its tokens are signs of life. Not while prompts are computed: each
 * device owes its part of them, and is found by that. */
static Status find_silent(Leader *leader) {
  char name[MEMBERSHIP_NAME];
  for (int i = 0; i < leader->sequences.count; i++) {
    const LeaderSequence *sequence = &leader->sequences.list[i];
    if (!sequence->here || clock_now() - leader_device(leader, sequence->node)->heard <= leader->options.timeout + 1) continue;
    leader->epoch.fault = leader->epoch.device_of[sequence->node];
    return status_set(STATUS_TIMEOUT, "%s sent no token within %g s; --timeout gives it longer",
                      membership_name(&leader->membership, leader->epoch.fault, name), leader->options.timeout);
  }
  return STATUS_OK;
}

Status leader_epoch_poll(Leader *leader, int also, double seconds) {
  LeaderSequences *q = &leader->sequences;
  const bool prompts = leader->queue.submitted > leader->queue.collected, waits = prompts || q->count > 0;
  bool idle[WIRE_NODES];
  for (int d = 0; d < leader->epoch.nodes; d++) idle[d] = true;
  for (int i = 0; i < q->count; i++) idle[q->list[i].node] = false;
  const bool *arrived = prompts ? leader_requests_oldest(leader)->arrived : idle;
  if (waits && !q->waits) connection_idle_start(&q->idle, leader->options.timeout + 1, bytes_moved(leader, arrived), clock_now());
  q->waits = waits;
  if (!waits) return STATUS_OK;
  const IdleTimeout before = q->idle;
  Status status = look(leader, &q->idle, arrived, also, seconds);
  const double late = connection_idle_late(&before, clock_now());
  for (int d = 0; d < leader->epoch.nodes; d++) leader_device(leader, d)->heard += late;
  if (status == STATUS_OK && !prompts) status = find_silent(leader);
  return status == STATUS_OK ? STATUS_OK : recover(leader, status);
}

/* ---- rejoining */

/* Devices that could take part and do not. */
static int count_waiting(const Leader *leader) {
  int count = 0;
  for (int m = 0; m < leader->membership.count; m++) count += leader->membership.devices[m].state == DEVICE_HERE;
  return count;
}

/* Nodes have lost each other, or this leader one of them. */
static bool is_broken(const Leader *leader) {
  bool broken = leader->epoch.parted;
  for (int d = 0; d < leader->epoch.nodes && !broken; d++)
    broken = leader_device(leader, d)->state != DEVICE_READY || !connection_is_open(leader->epoch.connections[d]);
  return broken;
}

bool leader_epoch_rests(const Leader *leader) {
  return leader->cluster.on_failure != ON_FAILURE_ABORT && (is_broken(leader) || count_waiting(leader) > 0);
}

void leader_epoch_drop_sequences(Leader *leader) { leader_sequences_drop(leader, is_broken(leader) ? SEQUENCES_FAILED : SEQUENCES_MOVED); }

bool leader_epoch_rate_due(const Leader *leader) {
  return leader->groups != leader->weights.config->astra.groups && leader->sequences.count == 0;
}

Status leader_epoch_rejoin(Leader *leader) {
  if (leader->cluster.on_failure != ON_FAILURE_ABORT) membership_poll(&leader->membership);
  if (leader->queue.submitted > leader->queue.collected) return STATUS_OK;
  if (leader_epoch_rate_due(leader)) {
    TRY(weights_use_rate(&leader->weights, leader->groups));
    if (!leader_epoch_rests(leader)) return leader_epoch_start(leader); /* the same devices */
  }
  if (!leader_epoch_rests(leader)) return STATUS_OK;
  int back = count_waiting(leader);
  leader_epoch_drop_sequences(leader);
  give_up_epoch(leader);
  TRY(begin_again(leader));
  if (back > 0) log_info("now using %d of %d devices", leader->epoch.nodes, leader->membership.count);
  return STATUS_OK;
}

Status leader_epoch_return(Leader *leader) {
  leader_sequences_drop(leader, SEQUENCES_FAILED);
  leader->sequences.lost = SEQUENCES_KEPT;
  leader->queue.collected = leader->queue.submitted;
  for (int i = 0; i < LEADER_DEPTH; i++) leader->queue.requests[i].number = 0;
  membership_poll(&leader->membership);
  if (count_waiting(leader) == 0) return status_set(STATUS_BUSY, "no device is back");
  return leader_epoch_rejoin(leader);
}
