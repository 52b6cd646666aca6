/* Formulas by nn/strategy.h, summed over the devices that take part. */
#include "infer/report_traffic.h"
#include "infer/node_share.h"
#include "nn/strategy.h"

/* T of a sample, and how many nodes take part in it. */
static int64_t tokens_of(const Leader *leader, int *taking_part) {
  const int64_t *counts = leader_tokens(leader);
  bool divided = strategy_facts(node_share_strategy(leader_setup(leader)))->divides_tokens;
  int64_t tokens = 0;
  *taking_part = 0;
  for (int d = 0; d < leader_nodes(leader); d++) {
    *taking_part += counts[d] > 0;
    tokens = divided ? tokens + counts[d] : counts[d] > tokens ? counts[d] : tokens;
  }
  return tokens;
}

/* What one device sends to each receiver in all blocks, in bytes. */
static double sent_bytes(const NodeSetup *setup, Strategy strategy, const DeviceShare *share) {
  return device_cost_all(setup->weights->config, strategy, share, false, setup->retained).sent_bits / 8;
}

/* Codes and rows of a text's tokens go to the devices behind alone; everything else to all others. */
double report_traffic_formula(const Leader *leader, bool all_rows) {
  const NodeSetup *setup = leader_setup(leader);
  Strategy strategy = node_share_strategy(setup);
  DeviceShare share = {.last = !all_rows};
  double bytes = 0;
  share.tokens = tokens_of(leader, &share.devices);
  bool behind_alone = strategy_facts(strategy)->divides_tokens && !leader_partition(leader);
  if (strategy == STRATEGY_SINGLE || share.devices < 2) return 0;
  for (int d = 0; d < leader_nodes(leader); d++) {
    share.own = leader_tokens(leader)[d];
    if (share.own == 0) continue;
    bytes += (share.devices - 1 - (behind_alone ? share.device : 0)) * sent_bytes(setup, strategy, &share);
    share.before += share.own;
    share.device++;
  }
  return bytes / (double)share.tokens;
}

double report_traffic_measured(const Leader *leader, int64_t samples) {
  int devices;
  double tokens = (double)tokens_of(leader, &devices) * (double)samples, bytes = 0;
  for (int d = 0; d < leader_nodes(leader); d++) bytes += (double)leader_totals(leader)[d].payload_sent;
  return tokens > 0 ? bytes / tokens : 0;
}

void report_traffic(FILE *out, const Leader *leader, int64_t samples, bool all_rows) {
  if (leader_nodes(leader) < 2 || samples < 1) return;
  fprintf(out, "strategy %s sent %g bytes a token over all nodes; by its formula %g\n",
          strategy_facts(leader_setup(leader)->strategy)->name, report_traffic_measured(leader, samples),
          report_traffic_formula(leader, all_rows));
}

void report_traffic_json(json_t *value, const Leader *leader, int64_t samples, bool all_rows) {
  if (!value) return;
  json_object_set_new(value, "bytes_per_token", json_real(report_traffic_measured(leader, samples)));
  json_object_set_new(value, "bytes_per_token_formula", json_real(report_traffic_formula(leader, all_rows)));
}
