/* Epochs: who takes part in the cluster at present, and with which tokens. Memory of requests follows from the shares and is made here;
 * what a request holds of its input outlives the epoch (leader.c). */
#include "infer/cluster/leader_internal.h"
#include "infer/cluster/setup_message.h"
#include "infer/node_share.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- nodes and their tokens */

static void number_nodes(Leader *leader) {
  leader->epoch.nodes = 0;
  for (int m = 0; m < leader->membership.count; m++) {
    LeaderMember *member = &leader->membership.members[m];
    bool here = member->state >= MEMBER_HERE;
    if (here) member->state = MEMBER_HERE;
    member->asked = member->failed = false;
    member->node = here ? leader->epoch.nodes : -1;
    if (!here) continue;
    leader->epoch.member_of[leader->epoch.nodes] = m;
    leader->epoch.connections[leader->epoch.nodes++] = &member->connection;
  }
}

static bool is_even(const Partition *partition) {
  int64_t min = partition->counts[0], max = min;
  for (int d = 1; d < partition->nodes; d++) {
    min = partition->counts[d] < min ? partition->counts[d] : min;
    max = partition->counts[d] > max ? partition->counts[d] : max;
  }
  return max - min <= 1;
}

/* Tokens of each node: as given when all are there; else by the same rule over those that remain. */
static Status count_tokens(const Leader *leader, int64_t counts[WIRE_NODES]) {
  const Partition *given = leader->given;
  double weights[WIRE_NODES];
  layout_even_counts(given->tokens, leader->epoch.nodes, counts);
  if (leader->epoch.nodes == given->nodes) memcpy(counts, given->counts, (size_t)given->nodes * sizeof *counts);
  if (leader->epoch.nodes == given->nodes || is_even(given)) return STATUS_OK;
  for (int d = 0; d < leader->epoch.nodes; d++) weights[d] = (double)given->counts[leader->epoch.member_of[d]];
  return layout_weighted_counts(given->tokens, leader->epoch.nodes, weights, counts);
}

/* The map of tokens stays the one that was asked for. */
static Status share_image(Leader *leader) {
  int64_t counts[WIRE_NODES];
  partition_release(&leader->partition);
  TRY(count_tokens(leader, counts));
  return partition_spread(&leader->partition, leader->given, leader->epoch.nodes, counts);
}

static void share_text(Leader *leader) {
  double max = 0;
  leader->split = (TokenSplit){.nodes = leader->epoch.nodes};
  for (int d = 0; d < leader->epoch.nodes; d++) max = fmax(max, leader->given_split->weights[leader->epoch.member_of[d]]);
  for (int d = 0; d < leader->epoch.nodes; d++)
    leader->split.weights[d] = leader->epoch.nodes == leader->given_split->nodes
                                   ? leader->given_split->weights[d]
                                   : leader->given_split->weights[leader->epoch.member_of[d]] / max;
}

static Status share_tokens(Leader *leader) {
  NodeSetup *setup = &leader->setup;
  setup->split = NULL;
  setup->partition = NULL;
  setup->keep_codes = leader->options.codes && leader->epoch.nodes > 1;
  if (leader->given_split) {
    share_text(leader);
    setup->split = &leader->split;
    return STATUS_OK;
  }
  TRY(share_image(leader));
  setup->partition = &leader->partition;
  for (int d = 0; d < leader->epoch.nodes; d++) TRY(node_share_layout(setup, leader->partition.tokens, d, &leader->epoch.layout[d]));
  return STATUS_OK;
}

/* ---- memory */

/* The largest share of a node. */
static RequestShare max_of(const Leader *leader, int node) {
  if (leader->setup.split) return (RequestShare){.sent_rows = leader->setup.tokens_max, .last = true};
  return node_share_of(&leader->setup, node, &leader->epoch.layout[node]);
}

static Status allocate_results(Leader *leader) {
  bool memory = true;
  for (int d = 0; d < leader->epoch.nodes; d++) {
    RequestShare max = max_of(leader, d);
    size_t bytes = request_max_answer_bytes(&leader->setup, &max);
    for (int i = 0; i < LEADER_DEPTH && memory; i++) memory = (leader->queue.requests[i].results[d] = malloc(bytes)) != NULL;
    leader_member(leader, d)->connection.sink.max_payload = bytes < WIRE_TEXT ? WIRE_TEXT : bytes;
  }
  return memory ? STATUS_OK : status_set(STATUS_NO_MEMORY, "no memory for answers; use a smaller --batch");
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

static Member member_of_setup(const Leader *leader, int node) {
  const LeaderMember *member = leader_member(leader, node);
  Member out = {.reachable = !member->forked, .address = member->reached};
  if (leader->setup.split)
    out.weight = leader->split.weights[node];
  else
    out.tokens = leader->partition.counts[node];
  return out;
}

static Status fingerprint(const Leader *leader, uint64_t *partition) {
  FingerprintShares shares = {.nodes = leader->epoch.nodes, .weights = leader->split.weights};
  if (!leader->setup.split)
    shares = (FingerprintShares){.nodes = leader->epoch.nodes,
                                 .tokens = leader->partition.tokens,
                                 .counts = leader->partition.counts,
                                 .order = leader->partition.order};
  return fingerprint_shares(&shares, partition);
}

static Status describe(const Leader *leader, ClusterSetup *setup) {
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
                          .mask = leader->cluster.on_failure == ON_FAILURE_MASK && strategy_facts(node->strategy)->sends_codes,
                          .fingerprints = leader->fingerprints,
                          .tokens = node->split ? 0 : leader->partition.tokens,
                          .order = leader->partition.order};
  setup->reliability.timeout = node->timeout;
  for (int d = 0; d < leader->epoch.nodes; d++) setup->member[d] = member_of_setup(leader, d);
  return fingerprint(leader, &setup->fingerprints.partition);
}

static Status send_setup(Leader *leader, ClusterSetup *setup, int node) {
  size_t bytes = setup_message_bytes(setup);
  setup->self = node;
  if (!(leader->epoch.setups[node] = malloc(WIRE_HEADER + bytes))) return status_set(STATUS_NO_MEMORY, "no memory for a set-up");
  WireHeader header = {.kind = WIRE_SETUP, .sender = WIRE_LEADER, .count = (uint32_t)leader->epoch.nodes, .bytes = (uint32_t)bytes};
  wire_pack(&header, leader->epoch.setups[node]);
  TRY(setup_message_pack(setup, leader->epoch.setups[node] + WIRE_HEADER));
  return connection_send(leader->epoch.connections[node], leader->epoch.setups[node], WIRE_HEADER + bytes);
}

static Status send_setups(Leader *leader) {
  ClusterSetup *setup = malloc(sizeof *setup);
  if (!setup) return status_set(STATUS_NO_MEMORY, "no memory for a set-up");
  Status status = describe(leader, setup);
  for (int d = 0; d < leader->epoch.nodes && status == STATUS_OK; d++) status = send_setup(leader, setup, d);
  free(setup);
  return status;
}

/* Streams between all that are forked together. */
static Status join(Leader *leader) {
  if (leader->cluster.peer_count > 0) return STATUS_OK;
  for (int a = 0; a < leader->epoch.nodes; a++) {
    for (int b = a + 1; b < leader->epoch.nodes; b++)
      TRY(processes_join(&leader->membership.processes, leader->epoch.member_of[a], b, leader->epoch.member_of[b], a,
                         leader->epoch.number));
  }
  return STATUS_OK;
}

static bool all_ready(const Leader *leader, const bool *arrived) {
  (void)arrived;
  for (int d = 0; d < leader->epoch.nodes; d++) {
    if (leader_member(leader, d)->state != MEMBER_READY) return false;
  }
  return true;
}

static Status begin(Leader *leader) {
  TRY(share_tokens(leader));
  TRY(allocate_results(leader));
  TRY(join(leader));
  Status status = send_setups(leader);
  return status == STATUS_OK ? leader_wait(leader, all_ready, NULL) : leader_wait_explain(leader, status);
}

Status leader_epoch_open(Leader *leader) {
  leader_epoch_close(leader);
  number_nodes(leader);
  if (leader->epoch.nodes == 0) return status_set(STATUS_PEER, "no device is left");
  leader->epoch.number = leader->epoch.number < UINT16_MAX ? leader->epoch.number + 1 : 1;
  leader->epoch.base = leader->queue.collected;
  leader->epoch.complainer = leader->epoch.fault = -1;
  leader->epoch.not_finite = false;
  leader->epoch.parted = false;
  memset(leader->epoch.progress, 0, (size_t)leader->membership.count * sizeof *leader->epoch.progress);
  leader->epoch.setting_up = true;
  Status status = begin(leader);
  leader->epoch.setting_up = false;
  return status;
}
