/* Text and JSON of results. Figures come from the leader's sums; nothing is measured here. */
#include "infer/report.h"
#include "base/text.h"
#include "infer/node_share.h"
#include "nn/json_build.h"
#include "nn/strategy.h"
#include <math.h>

static NodeStatistics sum_of_nodes(const Leader *leader) {
  NodeStatistics sum = {0};
  for (int d = 0; d < leader_nodes(leader); d++) {
    sum.bytes_sent += leader_sums(leader)->nodes[d].bytes_sent;
    sum.payload_sent += leader_sums(leader)->nodes[d].payload_sent;
    sum.coded_bits += leader_sums(leader)->nodes[d].coded_bits;
    sum.packed_bits += leader_sums(leader)->nodes[d].packed_bits;
  }
  return sum;
}

static bool sends_codes(const Leader *leader) { return leader_strategy(leader)->sends_codes; }
static bool divides_tokens(const Leader *leader) { return leader_strategy(leader)->divides_tokens; }

/* Tokens of each node: of one image, or of all texts together, which differ in length. */
static const int64_t *tokens_held(const Leader *leader) {
  return leader_setup(leader)->partition ? leader_sums(leader)->tokens : leader_sums(leader)->rows;
}

/* A sum over everything that was sent, per token, block, site and receiver: a node of images sends to all others, one of a text to those
 * after it. */
static double per_token(const Leader *leader, int64_t samples, uint64_t sum) {
  const Weights *weights = leader_weights(leader);
  const Partition *partition = leader_setup(leader)->partition;
  int nodes = leader_nodes(leader), after = 0; /* nodes that take part behind this one */
  double copies = 0;                           /* of all tokens */
  if (nodes < 2 || samples < 1 || !sends_codes(leader)) return 0;
  if (partition)
    copies = (double)(nodes - 1) * (double)(partition->tokens + (weights->config->astra.class_token == CLASS_SINGLE)) * (double)samples;
  for (int d = nodes - 1; d >= 0 && !partition; d--) {
    const int64_t tokens = tokens_held(leader)[d];
    copies += (double)tokens * after;
    after += tokens > 0;
  }
  copies *= (double)weights->book_count;
  return copies > 0 ? (double)sum / copies : 0;
}

/* The share of the transfer time of codes in which the node did not wait for them; NAN where it was not measured. */
static double hidden_share(const NodeStatistics *node) {
  if (node->span <= 0) return NAN;
  double hidden = 1 - node->wait / node->span;
  return hidden < 0 ? 0 : hidden > 1 ? 1 : hidden;
}

void report_plan_line(FILE *out, double predicted, double measured) {
  fprintf(out, "predicted %.1f ms per sample", 1e3 * predicted);
  if (measured > 0) fprintf(out, ", measured %.1f ms (%+.0f%%)", 1e3 * measured, 100 * (measured / predicted - 1));
  fputc('\n', out);
}

double report_fpar(const Leader *leader) {
  int64_t sum = 0, squares = 0;
  for (int d = 0; d < leader_nodes(leader); d++) {
    sum += leader_sums(leader)->tokens[d];
    squares += leader_sums(leader)->tokens[d] * leader_sums(leader)->tokens[d];
  }
  if (sum == 0) return 0;
  return divides_tokens(leader) ? (double)squares / ((double)sum * (double)sum) : 1;
}

/* Missing packets and tokens; a run without any has no such table. */
static void report_losses(FILE *out, const Leader *leader) {
  bool missing = false;
  for (int d = 0; d < leader_nodes(leader); d++) {
    const NodeStatistics *s = &leader_sums(leader)->nodes[d];
    missing |= s->lost + s->late + s->masked + s->resent > 0;
  }
  if (!missing) return;
  fprintf(out, "%4s %12s %12s %12s %12s %14s %12s\n", "node", "packets lost", "packets late", "tokens lost", "tokens late", "tokens masked",
          "sent again");
  for (int d = 0; d < leader_nodes(leader); d++) {
    const NodeStatistics *s = &leader_sums(leader)->nodes[d];
    fprintf(out, "%4d %12llu %12llu %12llu %12llu %14llu %12llu\n", d, (unsigned long long)s->lost, (unsigned long long)s->late,
            (unsigned long long)s->lost_tokens, (unsigned long long)s->late_tokens, (unsigned long long)s->masked,
            (unsigned long long)s->resent);
  }
}

void report_nodes(FILE *out, const Leader *leader) {
  fprintf(out, "%4s %7s %12s %12s %10s %10s %8s %14s %14s\n", "node", "tokens", "compute ms", "quantise ms", "send ms", "wait ms", "hidden",
          "bytes sent", "bytes received");
  for (int d = 0; d < leader_nodes(leader); d++) {
    const NodeStatistics *s = &leader_sums(leader)->nodes[d];
    char hidden[16] = "-";
    if (isfinite(hidden_share(s))) snprintf(hidden, sizeof hidden, "%.0f%%", 100 * hidden_share(s));
    fprintf(out, "%4d %7lld %12.1f %12.1f %10.1f %10.1f %8s %14llu %14llu\n", d, (long long)leader_sums(leader)->tokens[d],
            1e3 * s->compute, 1e3 * s->quantise, 1e3 * s->send, 1e3 * s->wait, hidden, (unsigned long long)s->bytes_sent,
            (unsigned long long)s->bytes_received);
  }
  report_losses(out, leader);
  const NodeStatistics sum = sum_of_nodes(leader);
  if (sum.coded_bits < sum.packed_bits)
    fprintf(out, "entropy coding: %.1f%% of the bits that codes take packed\n", 100 * (double)sum.coded_bits / (double)sum.packed_bits);
  if (leader_nodes(leader) > 1 && sends_codes(leader)) fprintf(out, "full-precision attention rate %.3f\n", report_fpar(leader));
}

json_t *report_nodes_json(const Leader *leader) {
  json_t *list = json_array();
  for (int d = 0; d < leader_nodes(leader); d++) {
    const NodeStatistics *s = &leader_sums(leader)->nodes[d];
    json_t *node = json_pack("{s:i, s:I, s:f, s:f, s:f, s:f, s:f, s:o}", "node", d, "tokens", (json_int_t)leader_sums(leader)->tokens[d],
                             "compute_ms", 1e3 * s->compute, "quantise_ms", 1e3 * s->quantise, "send_ms", 1e3 * s->send, "wait_ms",
                             1e3 * s->wait, "span_ms", 1e3 * s->span, "hidden", json_build_number(hidden_share(s)));
#define REPORT_COUNT(name) json_object_set_new(node, #name, json_integer((json_int_t)s->name));
    WIRE_COUNTS(REPORT_COUNT)
#undef REPORT_COUNT
    json_object_set_new(node, "recovered", json_integer(0)); /* by parity packets, which were removed; stays for readers of this schema */
    json_object_set_new(node, "tables_ms", json_real(1e3 * s->tables));
    json_array_append_new(list, node);
  }
  return list;
}

ReportSent report_sent(const Leader *leader, int64_t samples) {
  const NodeStatistics sum = sum_of_nodes(leader);
  return (ReportSent){.bytes = sum.bytes_sent,
                      .codes = leader_nodes(leader) > 1 && sends_codes(leader),
                      .token_bytes = per_token(leader, samples, sum.payload_sent),
                      .coded_bits = per_token(leader, samples, sum.coded_bits),
                      .packed_bits = per_token(leader, samples, sum.packed_bits)};
}

void report_bits(FILE *out, const ReportSent *sent) {
  if (sent->coded_bits < sent->packed_bits)
    fprintf(out, "entropy coding: %.2f bits per token instead of %.2f (%+.1f%%)\n", sent->coded_bits, sent->packed_bits,
            100 * (sent->coded_bits / sent->packed_bits - 1));
}

/* ---- traffic between the nodes, and by the formulas of nn/strategy.h summed over the devices that take part ---- */

/* T of an image, or of all texts together, and how many nodes take part in it. */
static int64_t tokens_of(const Leader *leader, int *taking_part) {
  const int64_t *counts = tokens_held(leader);
  bool divided = divides_tokens(leader);
  int64_t tokens = 0;
  *taking_part = 0;
  for (int d = 0; d < leader_nodes(leader); d++) {
    *taking_part += counts[d] > 0;
    tokens = divided ? tokens + counts[d] : counts[d] > tokens ? counts[d] : tokens;
  }
  return tokens;
}

/* Codes and rows of a text's tokens go only to later devices; everything else to all others. What a text's device sends is in proportion
 * to its tokens, so that all texts together have the figure of a token. */
static double traffic_formula(const Leader *leader, const ModelConfig *config, bool all_rows) {
  const NodeSetup *setup = leader_setup(leader);
  Strategy strategy = node_share_strategy(setup);
  DeviceShare share = {.last = !all_rows};
  double bytes = 0;
  share.tokens = tokens_of(leader, &share.devices);
  bool later_only = strategy_facts(strategy)->divides_tokens && !leader_setup(leader)->partition;
  if (strategy == STRATEGY_SINGLE || share.devices < 2) return 0;
  for (int d = 0; d < leader_nodes(leader); d++) {
    share.own = tokens_held(leader)[d];
    if (share.own == 0) continue;
    double bits = device_cost_all(config, strategy, &share, setup->retained).sent_bits; /* to each receiver */
    bytes += (share.devices - 1 - (later_only ? share.device : 0)) * bits / 8;
    share.before += share.own;
    share.device++;
  }
  return bytes / (double)share.tokens;
}

/* By the formula for each bit rate that answers were computed with, at most `room` of them; the mean over their samples is comparable with
 * what was measured. */
typedef struct RateTraffic {
  int groups;
  int64_t samples;
  double bytes; /* of a token */
} RateTraffic;

static int traffic_of_rates(const Leader *leader, bool all_rows, RateTraffic rates[CONFIG_RATES], double *mean) {
  ModelConfig config = *leader_weights(leader)->config; /* borrows all that it points to */
  const int64_t *samples = leader_sums(leader)->rate_samples;
  int64_t total = 0;
  int count = 0;
  *mean = 0;
  for (int r = 0; r < config_rates(&config) || r == 0; r++) {
    if (samples[r] == 0) continue;
    if (config_rates(&config) > 0) config.astra.groups = config_rate_groups(leader_weights(leader)->config, r);
    rates[count] = (RateTraffic){config.astra.groups, samples[r], traffic_formula(leader, &config, all_rows)};
    *mean += (double)samples[r] * rates[count++].bytes;
    total += samples[r];
  }
  if (total > 0) *mean /= (double)total;
  return count;
}

static double traffic_measured(const Leader *leader, int64_t samples) {
  int devices;
  double tokens = (double)tokens_of(leader, &devices), bytes = 0;
  if (leader_setup(leader)->partition) tokens *= (double)samples;
  for (int d = 0; d < leader_nodes(leader); d++) bytes += (double)leader_sums(leader)->nodes[d].payload_sent;
  return tokens > 0 ? bytes / tokens : 0;
}

void report_traffic(FILE *out, const Leader *leader, int64_t samples, bool all_rows) {
  RateTraffic rates[CONFIG_RATES];
  double mean;
  const int count = traffic_of_rates(leader, all_rows, rates, &mean);
  if (leader_nodes(leader) < 2 || samples < 1) return;
  fprintf(out, "strategy %s sent %g bytes per token over all nodes; by its formula %g",
          strategy_facts(leader_setup(leader)->strategy)->name, traffic_measured(leader, samples), mean);
  for (int r = 0; r < count && count > 1; r++)
    fprintf(out, "%s%g with %d group%s (%lld sample%s)", r ? ", " : ": ", rates[r].bytes, rates[r].groups, text_plural(rates[r].groups),
            (long long)rates[r].samples, text_plural(rates[r].samples));
  fputc('\n', out);
}

void report_traffic_json(json_t *value, const Leader *leader, int64_t samples, bool all_rows) {
  RateTraffic rates[CONFIG_RATES];
  double mean;
  if (!value) return;
  const int count = traffic_of_rates(leader, all_rows, rates, &mean);
  json_object_set_new(value, "bytes_per_token", json_real(traffic_measured(leader, samples)));
  json_object_set_new(value, "bytes_per_token_formula", json_real(mean));
  if (config_rates(leader_weights(leader)->config) < 2) return;
  json_t *list = json_array();
  for (int r = 0; r < count; r++)
    json_array_append_new(list, json_pack("{s:i, s:I, s:f}", "groups", rates[r].groups, "samples", (json_int_t)rates[r].samples,
                                          "bytes_per_token_formula", rates[r].bytes));
  json_object_set_new(value, "rates", list);
}

void report_rates(FILE *out, const Leader *leader) {
  const ModelConfig *config = leader_weights(leader)->config;
  const int64_t *samples = leader_sums(leader)->rate_samples;
  int used = 0, told = 0;
  for (int r = 0; r < config_rates(config); r++) used += samples[r] > 0;
  for (int r = 0; r < config_rates(config) && used > 1; r++) {
    if (samples[r] == 0) continue;
    const int groups = config_rate_groups(config, r);
    fprintf(out, "%s%lld with %d group%s", told++ ? ", " : "samples by bit rate: ", (long long)samples[r], groups, text_plural(groups));
  }
  if (told > 0) fputc('\n', out);
}

void report_rates_json(json_t *value, const Leader *leader) {
  const ModelConfig *config = leader_weights(leader)->config;
  const int64_t *samples = leader_sums(leader)->rate_samples;
  if (!value || config_rates(config) < 2) return;
  json_t *list = json_array();
  for (int r = 0; r < config_rates(config); r++) {
    if (samples[r] == 0) continue;
    json_array_append_new(list, json_pack("{s:i, s:I}", "groups", config_rate_groups(config, r), "samples", (json_int_t)samples[r]));
  }
  json_object_set_new(value, "rates", list);
}
