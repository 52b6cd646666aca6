/* The table of strategies, and what each costs a device. */
#include "nn/strategy.h"
#include "base/share.h"
#include "base/status.h"
#include "nn/config.h"
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static const StrategyFacts facts[STRATEGY_COUNT] = {
    [STRATEGY_ASTRA] =
        {.name = "astra", .needs_codebooks = true, .divides_tokens = true, .sends_codes = true, .decodes = true, .right_answers = true},
    [STRATEGY_SINGLE] = {.name = "single", .decodes = true, .right_answers = true},
    [STRATEGY_TP] = {.name = "tp", .right_answers = true},
    [STRATEGY_SP] = {.name = "sp", .divides_tokens = true, .right_answers = true},
    [STRATEGY_BP_AG] = {.name = "bp-ag"},
    [STRATEGY_BP_SP] = {.name = "bp-sp"},
};

const StrategyFacts *strategy_facts(Strategy strategy) { return &facts[strategy]; }

const char *strategy_list(const char *separator, bool plain, char list[STRATEGY_LIST]) {
  size_t used = 0;
  list[0] = 0;
  for (int i = 0; i < STRATEGY_COUNT && used < STRATEGY_LIST; i++)
    if (!plain || !facts[i].needs_codebooks)
      used += (size_t)snprintf(list + used, STRATEGY_LIST - used, "%s%s", used ? separator : "", facts[i].name);
  return list;
}

Status strategy_find(Strategy *strategy, const char *name) {
  char names[STRATEGY_LIST];
  for (int i = 0; i < STRATEGY_COUNT; i++) {
    *strategy = (Strategy)i;
    if (strcmp(facts[i].name, name) == 0) return STATUS_OK;
  }
  return status_set(STATUS_BAD_VALUE, "unknown strategy \"%s\"; accepted are %s", name, strategy_list(", ", false, names));
}

Status strategy_check_retained(int64_t retained, int64_t blocks) {
  if (retained >= 1 && retained <= blocks) return STATUS_OK;
  return status_set(STATUS_BAD_VALUE, "%lld retained blocks: between 1 and %lld are accepted", (long long)retained, (long long)blocks);
}

/* ---- Cost on a device ---- */

/* A product of [m, k] and [k, n] is 2 m n k operations. Attention is counted by the keys that a query sees; the tiles of a causal mask
 * compute somewhat more. */

enum { NUMBER = 4 /* bytes of a float, in memory and when sent */, BITS = 8 };

/* Products with weights for one row. */
static double square(const ModelConfig *c) { return 2.0 * (double)c->width * (double)c->width; } /* q, and output */
static double matrices(const ModelConfig *c) { return c->activation == ACTIVATION_NONE ? 3 : 2; }
static double mlp(const ModelConfig *c) { return 2.0 * matrices(c) * (double)c->width * (double)c->mlp; }
static double keys_and_values(const ModelConfig *c) { return 4.0 * (double)c->width * (double)config_kv_width(c); }

/* Two norms and two residuals are read and written, of rows that do not go on only the first norm; the activation reads the hidden rows
 * (SwiGLU two of them) and writes them. */
static double passes(const ModelConfig *c, double rows, double asking) { return NUMBER * (2.0 * rows + 6.0 * asking) * (double)c->width; }
static double activations(const ModelConfig *c, double rows) { return NUMBER * rows * (double)c->mlp * matrices(c); }

/* ---- rows */

/* Rows of this device, of other devices that it sees, and of those of its own that go on. */
typedef struct Rows {
  double own, remote, asking;
} Rows;

static bool has_one_class_row(const ModelConfig *c, Strategy strategy) {
  return !config_is_decoder(c) && (strategy == STRATEGY_SP || c->astra.class_token == CLASS_SINGLE);
}

static bool is_divided(Strategy strategy, const DeviceShare *share) {
  return share->devices > 1 && strategy_facts(strategy)->divides_tokens;
}

static Rows rows_of(const ModelConfig *c, Strategy strategy, const DeviceShare *share) {
  bool decoder = config_is_decoder(c), one = has_one_class_row(c, strategy), here = !one || share->device == 0;
  Rows rows = {.own = (double)share->tokens + !decoder};
  if (is_divided(strategy, share)) {
    rows.own = (double)share->own + (!decoder && here);
    rows.remote = share->apart ? 0 : decoder ? (double)share->before : (double)(share->tokens - share->own) + (one && !here);
  }
  rows.asking = rows.own;
  if (share->last) rows.asking = !is_divided(strategy, share) || (decoder ? share->device == share->devices - 1 : here);
  return rows;
}

/* Where no row is wanted, own keys and values are not needed either; those of others are computed as they arrive. */
static DeviceCost block(const ModelConfig *c, const Rows *rows) {
  const double own = rows->asking > 0 ? rows->own : 0;
  /* Pairs of a query and a key. In a causal model all rows ask, each seeing half of them, or only the last one does, which sees all. */
  const bool halved = config_is_decoder(c) && rows->asking > 1;
  const double pairs = rows->asking * (rows->remote + (halved ? (rows->own + 1) / 2 : rows->own));
  return (DeviceCost){.rows = rows->own,
                      .wanted = rows->asking,
                      .linear = rows->asking * (2 * square(c) + mlp(c)) + (own + rows->remote) * keys_and_values(c),
                      .queries = rows->asking * square(c),
                      .keys = own * keys_and_values(c),
                      .remote = rows->remote * keys_and_values(c),
                      .attention = 4.0 * (double)c->width * pairs, /* scores and sums of values: 2 products of the head width */
                      .other_bytes = passes(c, rows->own, rows->asking) + activations(c, rows->asking)};
}

/* Own keys and values are sent, and so are computed where no row is wanted, too. */
static void keys_leave(const ModelConfig *c, const Rows *rows, DeviceCost *cost) {
  const double keys = rows->own * keys_and_values(c);
  cost->linear += keys - cost->keys, cost->keys = keys;
}

static double rows_bits(const ModelConfig *c, double rows) { return rows * (double)c->width * NUMBER * BITS; }

/* ---- tokens divided */

/* With grouped queries keys and values are sent (config_whole_sites): receivers project nothing, senders always do. */
static DeviceCost sequence(const ModelConfig *c, const Rows *rows) {
  DeviceCost cost = block(c, rows);
  double sites = config_whole_sites(c);
  cost.sent_bits = rows->own * sites * (double)config_whole_width(c) * NUMBER * BITS;
  if (sites == 1) return cost;
  cost.linear -= cost.remote, cost.remote = 0;
  keys_leave(c, rows, &cost);
  return cost;
}

static DeviceCost astra(const ModelConfig *c, const DeviceShare *share, const Rows *rows, bool tables) {
  DeviceCost cost = block(c, rows);
  if (share->known || share->apart) return cost;
  double sites = config_sites(c), width = (double)config_site_width(c);
  const double prediction = c->astra.prediction ? 2.0 * sites * sites * width * width : 0; /* of a token */
  double shared = (double)share->own + (has_one_class_row(c, STRATEGY_ASTRA) && share->device == 0);
  bool projected = c->astra.site == SITE_X ? !tables : c->astra.rotation;
  cost.assign = shared * sites * 2.0 * (double)c->astra.codebook_size * width;
  cost.sent_bits = shared * sites * config_code_bits(c);
  cost.basis = rows->own * ((c->astra.rotation ? sites * 2.0 * width * width : 0) + prediction);
  cost.linear += cost.basis;
  if (projected && c->astra.site == SITE_KV) {
    const double remote = rows->remote * sites * 2.0 * width * width;
    cost.linear += remote - cost.remote, cost.remote = remote;
  }
  if (!projected) cost.linear -= cost.remote, cost.remote = 0;
  if (c->astra.site == SITE_KV) keys_leave(c, rows, &cost);
  cost.remote += rows->remote * prediction, cost.linear += rows->remote * prediction;
  if (c->astra.site == SITE_X && tables)
    cost.table_bytes = rows->remote * (double)c->astra.groups * 2 * (double)config_kv_width(c) * NUMBER;
  if (c->astra.site == SITE_KV || !tables) cost.other_bytes += 2 * rows->remote * sites * width * NUMBER;
  return cost;
}

/* ---- heads and columns divided */

/* The fraction of `count` columns or rows that this device has. */
static double part(const DeviceShare *share, double count) {
  return count > 0 ? (double)share_even_count((int64_t)count, share->devices, share->device) / count : 0;
}

/* Every device computes all norms and residuals. */
static DeviceCost heads(const ModelConfig *c, const DeviceShare *share, const Rows *rows) {
  double some = part(share, (double)c->kv_heads), columns = part(share, (double)c->mlp);
  DeviceCost cost = block(c, rows);
  cost.queries *= some, cost.keys *= some;
  cost.linear = some * (rows->asking * 2 * square(c) + rows->own * keys_and_values(c)) + columns * rows->asking * mlp(c);
  cost.attention *= some;
  cost.other_bytes = passes(c, rows->own, rows->asking) + columns * activations(c, rows->asking);
  return cost;
}

/* A retained block: columns of all streams are joined; then all of it, or a share of its rows with keys and values of all, whatever is
 * wanted, and rows are joined. */
static DeviceCost retained_block(const ModelConfig *c, Strategy strategy, const DeviceShare *share, const Rows *rows) {
  if (strategy == STRATEGY_BP_AG) {
    DeviceCost cost = block(c, rows);
    cost.sent_bits = rows_bits(c, rows->own / share->devices);
    return cost;
  }
  double some = part(share, rows->own);
  Rows all = {.own = rows->own, .asking = rows->own};
  DeviceCost cost = block(c, &all);
  cost.wanted = rows->asking;
  cost.queries *= some;
  cost.linear = some * rows->own * (2 * square(c) + mlp(c)) + cost.keys;
  cost.attention *= some;
  cost.other_bytes *= some;
  cost.sent_bits = 2 * rows_bits(c, rows->own / share->devices);
  return cost;
}

/* ---- all */

DeviceCost device_cost(const ModelConfig *config, Strategy strategy, const DeviceShare *share, bool tables) {
  const Rows rows = rows_of(config, strategy, share);
  DeviceCost cost;
  if (share->devices == 1) return block(config, &rows);
  switch (strategy) {
  case STRATEGY_ASTRA:
    return astra(config, share, &rows, tables);
  case STRATEGY_SP:
    return sequence(config, &rows);
  case STRATEGY_TP:
    cost = heads(config, share, &rows); /* with two sums, each a reduce-scatter and an all-gather of the rows that go on */
    cost.sent_bits = 4 * rows_bits(config, rows.asking / share->devices);
    return cost;
  case STRATEGY_BP_AG:
  case STRATEGY_BP_SP:
    return retained_block(config, strategy, share, &rows);
  default:
    return block(config, &rows);
  }
}

DeviceCost device_cost_decoupled(const ModelConfig *config, const DeviceShare *share) {
  const Rows rows = rows_of(config, STRATEGY_BP_AG, share);
  return heads(config, share, &rows);
}

static void add(DeviceCost *sum, DeviceCost cost, double times) {
  sum->linear += times * cost.linear;
  sum->queries += times * cost.queries;
  sum->keys += times * cost.keys;
  sum->remote += times * cost.remote;
  sum->basis += times * cost.basis;
  sum->attention += times * cost.attention;
  sum->assign += times * cost.assign;
  sum->table_bytes += times * cost.table_bytes;
  sum->other_bytes += times * cost.other_bytes;
  sum->sent_bits += times * cost.sent_bits;
}

DeviceCost device_cost_all(const ModelConfig *config, Strategy strategy, const DeviceShare *share, int retained) {
  bool decoupled = share->devices > 1 && (strategy == STRATEGY_BP_AG || strategy == STRATEGY_BP_SP);
  DeviceShare usual = *share, last = *share;
  DeviceCost sum = {0};
  double exchanging = decoupled ? retained : (double)config->blocks;
  usual.last = false;
  const bool codes = strategy == STRATEGY_ASTRA && share->devices > 1;
  const int known = codes ? config_first_coded(config) : 0, apart = codes ? (int)config->blocks - config_end_coded(config) : 0;
  last.apart = apart > 0;
  add(&sum, device_cost(config, strategy, &usual, false), exchanging - known - fmax(apart, 1));
  add(&sum, device_cost(config, strategy, &last, false), 1);
  add(&sum, device_cost_decoupled(config, &usual), (double)config->blocks - exchanging);
  usual.known = true;
  if (known > 0) add(&sum, device_cost(config, strategy, &usual, false), known);
  usual.known = false, usual.apart = true;
  if (apart > 1) add(&sum, device_cost(config, strategy, &usual, false), apart - 1);
  return sum;
}
