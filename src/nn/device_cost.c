/* Costs by formula: see device_cost.h. A product of [m, k] and [k, n] is 2 m n k operations. Attention is counted by the keys that a query
 * sees; the tiles of a causal mask compute somewhat more. */
#include "nn/device_cost.h"

enum { NUMBER = 4 /* bytes of a float, here and under way */, BITS = 8 };

/* Products with weights for one row. */
static double query_and_rest(const ModelConfig *c) { /* q, output, MLP */
  double matrices = c->activation == ACTIVATION_NONE ? 3 : 2;
  return 2.0 * (double)c->width * (2.0 * (double)c->width + matrices * (double)c->mlp);
}
static double kv_width(const ModelConfig *c) { return (double)(c->width / c->heads * c->kv_heads); }
static double keys_and_values(const ModelConfig *c) { return 4.0 * (double)c->width * kv_width(c); }

/* Scores and their sum of values: 2 products of the head width, over all heads. */
static double looks(const ModelConfig *c, double pairs) { return 4.0 * (double)c->width * pairs; }

/* Two norms and two residuals are read and written; the activation reads the hidden rows (SwiGLU two of them) and writes them. */
static double passes(const ModelConfig *c, double rows) { return NUMBER * rows * 8.0 * (double)c->width; }
static double activations(const ModelConfig *c, double rows) {
  return NUMBER * rows * (double)c->mlp * (c->activation == ACTIVATION_NONE ? 3 : 2);
}

static double class_rows(const ModelConfig *c) { return config_is_decoder(c) ? 0 : 1; }

/* Pairs of a query and a key: rows of this device that see each other and so many remote ones. */
static double pairs(const ModelConfig *c, double rows, double remote) {
  return rows * remote + (config_is_decoder(c) ? rows * (rows + 1) / 2 : rows * rows);
}

static DeviceCost whole(const ModelConfig *c, double rows) {
  return (DeviceCost){.linear = rows * (query_and_rest(c) + keys_and_values(c)),
                      .attention = looks(c, pairs(c, rows, 0)),
                      .other_bytes = passes(c, rows) + activations(c, rows)};
}

/* Tokens divided; remote rows have to be projected. */
static DeviceCost divided(const ModelConfig *c, double rows, double remote) {
  DeviceCost cost = whole(c, rows);
  cost.linear += remote * keys_and_values(c);
  cost.attention = looks(c, pairs(c, rows, remote));
  return cost;
}

/* Payload of rows in full; class rows that are sent with the others are there already. */
static double rows_bits(const ModelConfig *c, double rows) { return rows * (double)c->width * NUMBER * BITS; }

static DeviceCost sequence(const ModelConfig *c, double own, double tokens) {
  DeviceCost cost = divided(c, own + class_rows(c), tokens - own);
  cost.sent_bits = rows_bits(c, own + class_rows(c));
  return cost;
}

static DeviceCost astra(const ModelConfig *c, double own, double tokens, bool tables) {
  DeviceCost cost = divided(c, own + class_rows(c), tokens - own);
  double remote = tokens - own, sites = config_sites(c), width = (double)config_site_width(c);
  double shared = own + (c->astra.class_token == CLASS_SINGLE && !config_is_decoder(c));
  bool projected = c->astra.site == SITE_X && !tables;
  cost.assign = shared * sites * 2.0 * (double)c->astra.codebook_size * width;
  cost.sent_bits = shared * sites * (double)c->astra.groups * config_code_bits(c);
  if (!projected) cost.linear -= remote * keys_and_values(c);
  if (c->astra.site == SITE_X && tables) cost.table_bytes = remote * (double)c->astra.groups * 2 * kv_width(c) * NUMBER;
  if (c->astra.site == SITE_KV || !tables) cost.other_bytes += 2 * remote * sites * width * NUMBER;
  return cost;
}

/* Heads and columns divided: one of so many equal shares of all rows; norms and residuals are everybody's. */
static DeviceCost heads(const ModelConfig *c, double rows, double devices) {
  DeviceCost cost = whole(c, rows);
  cost.linear /= devices;
  cost.attention /= devices;
  cost.other_bytes = passes(c, rows) + activations(c, rows) / devices;
  return cost;
}

/* Two sums, each a reduce-scatter and an all-gather. */
static DeviceCost tensors(const ModelConfig *c, double rows, double devices) {
  DeviceCost cost = heads(c, rows, devices);
  cost.sent_bits = 4 * rows_bits(c, rows / devices);
  return cost;
}

/* A share of the rows; keys and values of all. */
static DeviceCost retained_rows(const ModelConfig *c, double rows, double devices) {
  DeviceCost cost = whole(c, rows);
  cost.linear = rows / devices * query_and_rest(c) + rows * keys_and_values(c);
  cost.attention /= devices;
  cost.other_bytes /= devices;
  return cost;
}

static double mean(double a, double b, double share) { return a * (1 - share) + b * share; }

static DeviceCost decoupled(const ModelConfig *c, Strategy strategy, double rows, double devices, int retained) {
  double share = (double)retained / (double)c->blocks;
  bool by_rows = strategy == STRATEGY_BP_SP;
  DeviceCost most = heads(c, rows, devices), few = by_rows ? retained_rows(c, rows, devices) : whole(c, rows);
  return (DeviceCost){.linear = mean(most.linear, few.linear, share),
                      .attention = mean(most.attention, few.attention, share),
                      .other_bytes = mean(most.other_bytes, few.other_bytes, share),
                      .sent_bits = share * (by_rows ? 2 : 1) * rows_bits(c, rows / devices)};
}

static DeviceCost cost_of(const ModelConfig *config, Strategy strategy, int64_t own, int64_t tokens, int devices, bool tables,
                          int retained) {
  double t = (double)tokens, n = devices == 1 ? t : (double)own, rows = t + class_rows(config);
  DeviceCost cost = whole(config, rows);
  if (devices == 1 || strategy == STRATEGY_SINGLE) return cost;
  if (strategy == STRATEGY_ASTRA) return astra(config, n, t, tables);
  if (strategy == STRATEGY_SP) return sequence(config, n, t);
  if (strategy == STRATEGY_TP) return tensors(config, rows, devices);
  return decoupled(config, strategy, rows, devices, retained);
}

DeviceCost device_cost(const ModelConfig *config, Strategy strategy, int64_t own, int64_t tokens, int devices, bool tables) {
  return cost_of(config, strategy, own, tokens, devices, tables, 1);
}

DeviceCost device_cost_retained(const ModelConfig *config, Strategy strategy, int64_t own, int64_t tokens, int devices, int retained) {
  return cost_of(config, strategy, own, tokens, devices, false, retained);
}
