/* See plan_peers.h. */
#include "cli/plan_peers.h"
#include "cli/infer_cluster.h"
#include "cli/infer_run.h"
#include "infer/plan/split_measured.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static Status measure(const PlanPeersOptions *options, const InferCluster *cluster, const Weights *weights, LeaderMeasure *measured) {
  int nodes = cluster->options.local + cluster->options.peer_count;
  const ClusterSetup plain = {.strategy = STRATEGY_SINGLE, .reliability.mode = RELIABILITY_STREAM, .parts = 1}; /* it has no codes */
  const LeaderOptions leader = {.batch_most = 1,
                                .network = weights->books ? NULL : &plain,
                                .timeout = options->timeout,
                                .threads = options->threads,
                                .stop = infer_run_stop_flag(),
                                .cluster = &cluster->options};
  TokenSplit split;
  Partition partition;
  infer_run_catch_signals();
  if (config_is_decoder(weights->config)) {
    TRY(token_split_init(&split, nodes, NULL));
    return leader_measure(weights, NULL, &split, &leader, measured);
  }
  TRY(partition_even(&partition, config_tokens(weights->config), nodes));
  Status status = leader_measure(weights, &partition, NULL, &leader, measured);
  partition_release(&partition);
  return status;
}

static void name(const InferCluster *cluster, int node, char text[ADDRESS_TEXT]) {
  if (node < cluster->options.local)
    snprintf(text, ADDRESS_TEXT, "this device");
  else
    address_text(&cluster->peers[node - cluster->options.local], text);
}

/* Into the place that its speed gives it. */
static void insert(PlanPeers *peers, const DeviceProfile *profile, const LinkEnd *end, const char *text) {
  int at = peers->count++;
  for (; at > 0 && peers->profiles[at - 1].linear[PROFILE_SIZES - 1] > profile->linear[PROFILE_SIZES - 1]; at--) {
    peers->profiles[at] = peers->profiles[at - 1];
    peers->ends[at] = peers->ends[at - 1];
    memcpy(peers->names[at], peers->names[at - 1], ADDRESS_TEXT);
  }
  peers->profiles[at] = *profile;
  peers->ends[at] = *end;
  snprintf(peers->names[at], ADDRESS_TEXT, "%s", text);
}

static Status measure_cluster(const PlanPeersOptions *options, const Weights *weights, PlanPeers *peers) {
  const InferSettings settings = {
      .peers = options->peers, .key_file = options->key_file, .local = options->local, .wait = options->wait, .on_failure = INFER_ABORT};
  LeaderMeasure measured[WIRE_NODES] = {0};
  LinkEnd ends[WIRE_NODES];
  InferCluster cluster;
  TRY(infer_cluster_open(&cluster, &settings));
  TRY(measure(options, &cluster, weights, measured));
  int nodes = cluster.options.local + cluster.options.peer_count;
  split_measured_ends(measured, nodes, ends);
  for (int d = 0; d < nodes; d++) {
    char text[ADDRESS_TEXT];
    name(&cluster, d, text);
    if (!measured[d].here) continue;
    insert(peers, &measured[d].profile, &ends[d], text);
    peers->linked = peers->linked || measured[d].linked;
  }
  return STATUS_OK;
}

Status plan_peers_measure(const PlanPeersOptions *options, const char *checkpoint, PlanPeers *peers) {
  Weights weights = {0};
  char *directory = NULL;
  *peers = (PlanPeers){.count = 0};
  TRY(infer_run_find(checkpoint, &directory));
  Status status = weights_load(&weights, directory);
  if (status == STATUS_OK) status = measure_cluster(options, &weights, peers);
  weights_release(&weights);
  free(directory);
  return status;
}
