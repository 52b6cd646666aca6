/* Timelines of strategies. A block of ASTRA is cut into what can be done before the others' codes are there (q, k, v of own tokens), what
 * needs them (keys and values of the others' tokens, part by part) and the rest, part by part: the order of block_parts.c. */
#include "infer/plan/predict.h"
#include "infer/virtual/strategy_events.h"
#include "infer/wire/interleave.h"
#include "infer/wire/packet.h"
#include <math.h>

static DeviceCost cost_of(const PlanCase *plan, Strategy strategy, int device, bool tables) {
  return device_cost(plan->config, strategy, plan->counts[device], plan->tokens, plan->devices, tables);
}

static double kv_width(const ModelConfig *config) { return (double)config->width / (double)config->heads * (double)config->kv_heads; }

/* Phases of a block on one device, seconds; `remote` and `rest` are of all parts together. */
typedef struct Phases {
  double before; /* site kv: keys and values, which are what is sent */
  double own;    /* q, and at site x keys and values */
  double remote; /* keys and values of the others */
  double rest;   /* attention, output, MLP */
  double assign; /* the next block's codes */
  double fixed;
} Phases;

static double linear_seconds(const PlanCase *plan, int device, double flops, double rows) {
  return flops * device_profile_rate(plan->profiles[device].linear, plan->tokens, rows);
}

/* A device's rows: its tokens and its class token. */
static double rows_of(const PlanCase *plan, int device) {
  return (double)plan->counts[device] + (plan->config->astra.class_token == CLASS_DISTRIBUTED && !config_is_decoder(plan->config));
}

/* parts: how many pieces the rest is computed in, which decides how fast its products are. */
static Phases phases_of(const PlanCase *plan, int device, int parts, bool wanted_only) {
  const ModelConfig *config = plan->config;
  const DeviceProfile *profile = &plan->profiles[device];
  const DeviceCost looked_up = cost_of(plan, STRATEGY_ASTRA, device, true), whole = cost_of(plan, plan->strategy, device, plan->tables);
  double rows = rows_of(plan, device), width = (double)config->width, others = (double)(plan->tokens - plan->counts[device]);
  double q = 2 * rows * width * width, kv = 4 * rows * width * kv_width(config);
  bool site_kv = plan->strategy == STRATEGY_ASTRA && config->astra.site == SITE_KV;
  DeviceCost rest = {.linear = fmax(looked_up.linear - q - kv, 0), .attention = whole.attention, .other_bytes = whole.other_bytes};
  double part_of = wanted_only ? 1 / rows : 1; /* of the rows */
  Phases phases = {.fixed = profile->fixed};
  phases.before = site_kv ? linear_seconds(plan, device, kv, rows / parts) : 0;
  phases.own = linear_seconds(plan, device, q * part_of, rows * part_of) + (site_kv ? 0 : linear_seconds(plan, device, kv, rows));
  phases.remote =
      linear_seconds(plan, device, fmax(whole.linear - looked_up.linear, 0), fmax(others / parts, 1)) + whole.table_bytes * profile->byte;
  phases.rest = part_of * device_profile_seconds(profile, &rest, plan->tokens, rows / parts);
  phases.assign = whole.assign * device_profile_rate(profile->assign, plan->tokens, rows / parts);
  return phases;
}

double predict_block_seconds(const PlanCase *plan, int device) {
  Phases p = phases_of(plan, device, 1, false);
  return p.before + p.own + p.remote + p.rest + p.assign + p.fixed;
}

/* ---- codes, or rows as they are (sp) */

static int64_t part_tokens(int64_t tokens, int parts, int part) { return tokens / parts + (part < tokens % parts); }

/* Devices that see this one's tokens (to), or whose tokens it sees. */
static uint64_t partners(const PlanCase *plan, int device, bool to) {
  uint64_t others = strategy_events_others(device, plan->devices), before = (1ull << device) - 1;
  if (!config_is_decoder(plan->config)) return others;
  return to ? others & ~before : others & before;
}

static Status send_part(const PlanCase *plan, Timeline *timeline, int device, int block, int part) {
  uint64_t to = partners(plan, device, true);
  int sites = plan->strategy == STRATEGY_ASTRA ? config_sites(plan->config) : 1;
  int64_t tokens = part_tokens(plan->counts[device], plan->parts, part);
  double bits = cost_of(plan, plan->strategy, device, plan->tables).sent_bits / (double)plan->counts[device] / sites;
  if (to == 0 || tokens == 0) return STATUS_OK;
  for (int site = 0; site < sites; site++) {
    GroupSize size = strategy_facts(plan->strategy)->sends_codes
                         ? group_size_codes(tokens, bits, GROUP_PACKET_MOST, interleave_least(plan->least_packets, plan->parts))
                         : group_size_stream(bits / 8 * (double)tokens);
    TRY(strategy_events_send(timeline, block, site, part, size, to));
  }
  return STATUS_OK;
}

static Status wait_part(const PlanCase *plan, Timeline *timeline, int device, int block, int part) {
  int sites = plan->strategy == STRATEGY_ASTRA ? config_sites(plan->config) : 1;
  uint64_t from = 0;
  for (int d = 0; d < plan->devices; d++)
    if (part_tokens(plan->counts[d], plan->parts, part) > 0) from |= 1ull << d;
  from &= partners(plan, device, false);
  for (int site = 0; from != 0 && site < sites; site++) TRY(strategy_events_wait(timeline, block, site, part, from));
  return STATUS_OK;
}

static Status begin_part(const PlanCase *plan, Timeline *timeline, int device, int block, int part, const Phases *phases) {
  TRY(strategy_events_compute(timeline, (phases->before + phases->assign) / plan->parts));
  return send_part(plan, timeline, device, block, part);
}

static Status exchange_block(const PlanCase *plan, Timeline *timeline, int device, int block) {
  int blocks = (int)plan->config->blocks;
  bool last = block == blocks - 1;
  Phases phases = phases_of(plan, device, plan->parts, last && !plan->all_rows);
  TRY(strategy_events_compute(timeline, phases.own + phases.fixed));
  for (int part = 0; part < plan->parts; part++) {
    TRY(wait_part(plan, timeline, device, block, part));
    TRY(strategy_events_compute(timeline, phases.remote / plan->parts));
  }
  for (int part = 0; part < plan->parts; part++) {
    TRY(strategy_events_compute(timeline, phases.rest / plan->parts));
    if (!last) TRY(begin_part(plan, timeline, device, block + 1, part, &phases));
  }
  return STATUS_OK;
}

static Status exchange_timeline(const PlanCase *plan, Timeline *timeline, int device) {
  Phases phases = phases_of(plan, device, plan->parts, false);
  for (int part = 0; part < plan->parts; part++) TRY(begin_part(plan, timeline, device, 0, part, &phases));
  for (int block = 0; block < (int)plan->config->blocks; block++) TRY(exchange_block(plan, timeline, device, block));
  return STATUS_OK;
}

/* ---- heads and columns divided (tp, bp-*), and a device alone */

/* Bytes of one row for each of the rows that a device holds where they are divided. */
static double row_bytes(const PlanCase *plan) { return 4.0 * (double)plan->config->width; }

/* All rows of the sequence; a class token is one of them. */
static double all_rows(const PlanCase *plan) { return (double)plan->tokens + !config_is_decoder(plan->config); }

static double block_seconds(const PlanCase *plan, Strategy strategy, int device) {
  const DeviceProfile *profile = &plan->profiles[device];
  DeviceCost cost = device_cost_retained(plan->config, strategy, plan->counts[device], plan->tokens, plan->devices, plan->retained);
  return profile->fixed + device_profile_seconds(profile, &cost, plan->tokens, all_rows(plan));
}

/* The share of a block's work up to the first of its two sums. */
static double attention_share(const ModelConfig *config) {
  double projections = 2 * (double)config->width + 2 * kv_width(config),
         mlp = (config->activation == ACTIVATION_NONE ? 3 : 2) * (double)config->mlp;
  return projections / (projections + mlp);
}

/* Of what precedes attention, that for keys and values. */
static double kv_share(const ModelConfig *config) { return 1 / (1 + (double)config->width / kv_width(config)); }

/* One block, of which `part` of the rows are wanted: all, or in the last block one. */
static Status tensor_block(const PlanCase *plan, Timeline *timeline, int device, int block, double part) {
  double seconds = block_seconds(plan, STRATEGY_TP, device), share = attention_share(plan->config), bytes[WIRE_NODES];
  double before = part < 1 ? kv_share(plan->config) : 1;
  int64_t counts[WIRE_NODES];
  layout_even_counts((int64_t)all_rows(plan), plan->devices, counts);
  for (int d = 0; d < plan->devices; d++) bytes[d] = part * (double)counts[d] * row_bytes(plan);
  double add = (plan->devices - 1) * bytes[device] * plan->profiles[device].byte;
  TRY(strategy_events_compute(timeline, before * share * seconds));
  TRY(strategy_events_sum(timeline, block, 0, device, plan->devices, bytes, add));
  TRY(strategy_events_compute(timeline, part * (1 - share) * seconds));
  return strategy_events_sum(timeline, block, 1, device, plan->devices, bytes, add);
}

static Status tensor_timeline(const PlanCase *plan, Timeline *timeline, int device) {
  int blocks = (int)plan->config->blocks;
  for (int block = 0; block < blocks; block++)
    TRY(tensor_block(plan, timeline, device, block, block < blocks - 1 || plan->all_rows ? 1 : 1 / all_rows(plan)));
  return STATUS_OK;
}

/* The last `retained` blocks are computed together: columns are gathered before each, and with bp-sp rows after it. */
static Status block_timeline(const PlanCase *plan, Timeline *timeline, int device) {
  double seconds = block_seconds(plan, plan->strategy, device), own = all_rows(plan) * row_bytes(plan) / plan->devices;
  int blocks = (int)plan->config->blocks;
  for (int block = 0; block < blocks; block++) {
    bool together = block >= blocks - plan->retained;
    if (together) TRY(strategy_events_gather(timeline, block, 0, device, plan->devices, own));
    TRY(strategy_events_compute(timeline, seconds));
    if (together && plan->strategy == STRATEGY_BP_SP) TRY(strategy_events_gather(timeline, block, 1, device, plan->devices, own));
  }
  return STATUS_OK;
}

static Status single_timeline(const PlanCase *plan, Timeline *timeline, int device) {
  double blocks = (double)plan->config->blocks, seconds = block_seconds(plan, STRATEGY_SINGLE, device);
  if (!plan->all_rows)
    blocks -= 1 - attention_share(plan->config) * kv_share(plan->config); /* of the last block little more than keys and values */
  return strategy_events_compute(timeline, blocks * seconds);
}

/* ---- all */

static Status check(const PlanCase *plan) {
  int64_t sum = 0;
  if (plan->devices < 1 || plan->devices > WIRE_NODES)
    return status_set(STATUS_BAD_VALUE, "%d devices: a plan is for 1 to %d", plan->devices, WIRE_NODES);
  for (int d = 0; d < plan->devices; d++) {
    if (plan->counts[d] < 1)
      return status_set(STATUS_BAD_VALUE, "device %d has %lld tokens; each needs one", d, (long long)plan->counts[d]);
    sum += plan->counts[d];
  }
  if (sum != plan->tokens)
    return status_set(STATUS_BAD_VALUE, "the devices have %lld tokens of %lld", (long long)sum, (long long)plan->tokens);
  if (plan->parts < 1 || plan->parts > PARTS_MOST)
    return status_set(STATUS_BAD_VALUE, "%d parts: 1 to %d are possible", plan->parts, PARTS_MOST);
  if (plan->strategy == STRATEGY_ASTRA && plan->config->astra.groups < 1)
    return status_set(STATUS_BAD_VALUE, "a plain model has no codes to send: --groups says for how many to plan");
  return STATUS_OK;
}

/* A device that waits for its input does nothing else. */
static Status input_event(const PlanCase *plan, Timeline *timeline, int device) {
  if (plan->input_bytes <= 0 || plan->input_rates[device] <= 0) return STATUS_OK;
  double bits = 8 * plan->input_bytes * (double)plan->counts[device];
  return strategy_events_compute(timeline, bits / plan->input_rates[device] / (plan->scale > 0 ? plan->scale : 1));
}

static Status device_timeline(const PlanCase *plan, Timeline *timeline, int device) {
  timeline->tokens = plan->counts[device];
  TRY(input_event(plan, timeline, device));
  switch (plan->strategy) {
  case STRATEGY_TP:
    return tensor_timeline(plan, timeline, device);
  case STRATEGY_BP_AG:
  case STRATEGY_BP_SP:
    return block_timeline(plan, timeline, device);
  case STRATEGY_SINGLE:
    return single_timeline(plan, timeline, device);
  default:
    return plan->devices > 1 ? exchange_timeline(plan, timeline, device) : single_timeline(plan, timeline, device);
  }
}

Status predict_timelines(const PlanCase *plan, Timeline *timelines) {
  TRY(check(plan));
  for (int d = 0; d < plan->devices; d++) TRY(device_timeline(plan, &timelines[d], d));
  return STATUS_OK;
}

Status predict_latency(const PlanCase *plan, SimResult *result) {
  Timeline timelines[WIRE_NODES] = {0};
  LinkOptions links = *plan->links;
  bool codes = strategy_facts(plan->strategy)->sends_codes;
  links.overhead = codes ? GROUP_DATAGRAM_OVERHEAD : GROUP_SEGMENT_OVERHEAD;
  if (!codes) links.loss = 0; /* a stream hides it */
  const SimOptions options = {.reliability = codes ? plan->reliability : NULL, .scale = plan->scale, .multicast = plan->multicast && codes};
  Status status = predict_timelines(plan, timelines);
  if (status == STATUS_OK) status = net_sim_run(timelines, plan->devices, &links, &options, result);
  for (int d = 0; d < WIRE_NODES; d++) timeline_release(&timelines[d]);
  return status;
}
