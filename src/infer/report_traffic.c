/* Formulas by nn/device_cost.h, which counts one block that carries all rows. */
#include "infer/report_traffic.h"
#include "infer/node_share.h"
#include "nn/device_cost.h"

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

/* What a device with `own` tokens sends to each receiver in a block, in bytes. */
static double sent_bytes(const Leader *leader, int64_t own, int64_t tokens, int devices) {
  const NodeSetup *setup = leader_setup(leader);
  return device_cost_retained(setup->weights->config, setup->strategy, own, tokens, devices, setup->retained).sent_bits / 8;
}

/* Codes or rows of tokens: of pictures to all others (as if one device had sent them all, with one class token), of texts to those behind.
 */
static double of_tokens(const Leader *leader, int64_t tokens, int devices) {
  double bytes = 0;
  int behind = devices;
  if (leader_partition(leader)) return (devices - 1) * sent_bytes(leader, tokens, tokens, devices);
  for (int d = 0; d < leader_nodes(leader); d++) {
    int64_t own = leader_tokens(leader)[d];
    if (own > 0) bytes += --behind * sent_bytes(leader, own, tokens, devices);
  }
  return bytes;
}

double report_traffic_formula(const Leader *leader, bool all_rows) {
  const NodeSetup *setup = leader_setup(leader);
  int devices;
  int64_t tokens = tokens_of(leader, &devices);
  double blocks = (double)setup->weights->config->blocks, rows = (double)tokens + (leader_partition(leader) ? 1 : 0);
  Strategy strategy = node_share_strategy(setup);
  if (strategy == STRATEGY_SINGLE || devices < 2) return 0;
  if (strategy_facts(strategy)->divides_tokens) return blocks * of_tokens(leader, tokens, devices) / (double)tokens;
  if (strategy == STRATEGY_TP && !all_rows) blocks -= 1 - 1 / rows; /* the last block's sums are of the wanted row alone */
  return blocks * devices * (devices - 1) * sent_bytes(leader, 0, tokens, devices) / (double)tokens;
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
