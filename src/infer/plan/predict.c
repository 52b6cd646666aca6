/* Timelines of strategies. A block of ASTRA is cut into what can be done before the others' codes are there (q, k, v of own tokens), what
 * needs them (keys and values of the others' tokens, part by part) and the rest, part by part: the order of block.c. */
#include "infer/plan/predict.h"
#include "base/share.h"
#include "infer/patches.h"
#include "infer/sim/schedule.h"
#include "infer/transport/packet.h"
#include "infer/wire.h"
#include "nn/kv_tables.h"
#include "nn/tensor_parallel.h"
#include <math.h>
#include <stdlib.h>

static double kv_width(const ModelConfig *config) { return (double)config->width / (double)config->heads * (double)config->kv_heads; }

static DeviceShare share_of(const PlanCase *plan, int device, bool last) {
  DeviceShare share = {.device = device, .devices = plan->devices, .own = plan->counts[device], .tokens = plan->tokens, .last = last};
  for (int d = 0; d < device; d++) share.before += plan->counts[d];
  return share;
}

static DeviceCost cost_of(const PlanCase *plan, int device, bool tables, bool last) {
  const DeviceShare share = share_of(plan, device, last);
  return device_cost(plan->config, plan->strategy, &share, tables);
}

/* ---- tables */

bool predict_uses_tables(const PlanCase *plan, int device) {
  const ModelConfig *config = plan->config;
  const DeviceProfile *profile = &plan->profiles[device];
  double rows = KV_TABLES_ROWS, width = (double)config->width, kv = kv_width(config);
  if (plan->strategy != STRATEGY_ASTRA || config->astra.site != SITE_X || config->astra.prediction || plan->table_blocks < 1) return false;
  double numbers = (double)config->astra.groups * 2 * kv, flops = rows * 4 * width * kv;
  double product = flops * device_profile_rate(profile->linear, plan->tokens, rows) + rows * 2 * width * 4 * profile->byte;
  return kv_tables_pay(&(KvTablesCase){.groups = config->astra.groups,
                                       .bytes = (size_t)(numbers * (double)config->astra.codebook_size) * sizeof(real),
                                       .flops = flops,
                                       .table_time = rows * numbers * sizeof(real) * profile->table,
                                       .product_time = product});
}

/* ---- times */

static double linear_seconds(const PlanCase *plan, int device, double flops, double rows) {
  return flops * device_profile_rate(plan->profiles[device].linear, plan->tokens, rows);
}

static bool is_last(const PlanCase *plan, int block) { return block == (int)plan->config->blocks - 1 && !plan->all_rows; }

/* The rest is computed in as many pieces as there are parts, which decides how fast its products are. Of the last block what is wanted goes
 * on alone, in one piece; a device of which nothing is wanted does what the others' codes need, and no more (block.c). */
static BlockCost cost_of_block(const PlanCase *plan, int device, int block) {
  const ModelConfig *config = plan->config;
  const DeviceProfile *profile = &plan->profiles[device];
  const DeviceShare share = share_of(plan, device, is_last(plan, block));
  bool tables = block < plan->table_blocks && predict_uses_tables(plan, device),
       site_kv = plan->strategy == STRATEGY_ASTRA && config->astra.site == SITE_KV;
  const DeviceCost cost = device_cost(config, plan->strategy, &share, tables);
  int64_t wanted;
  double rows = (double)device_cost_rows(config, plan->strategy, &share, &wanted), width = (double)config->width,
         others = fmax((double)(plan->tokens - plan->counts[device]), 1), asking = (double)wanted;
  double q = 2 * asking * width * width, kv = asking > 0 ? 4 * rows * width * kv_width(config) : 0, pieces = share.last ? 1 : plan->parts;
  /* Products by element of a W x W matrix: W is the width of a site. */
  const double basis = config_sites(config) * 2.0 * config->astra.rotation + 2.0 * config->astra.prediction,
               side = (double)config_site_width(config);
  const double rotation = plan->strategy == STRATEGY_ASTRA ? basis * rows * side * side : 0;
  DeviceCost rest = {
      .linear = fmax(cost.linear - cost.remote - q - kv - rotation, 0), .attention = cost.attention, .other_bytes = cost.other_bytes};
  double height = fmax(asking / pieces, 1);
  BlockCost times;
  times.before = linear_seconds(plan, device, rotation + (site_kv ? 4 * rows * width * kv_width(config) : 0), rows / plan->parts);
  times.own = linear_seconds(plan, device, q, fmax(asking, 1)) + (site_kv ? 0 : linear_seconds(plan, device, kv, rows)) + profile->fixed;
  times.remote = linear_seconds(plan, device, cost.remote, fmax(others / plan->parts, 1)) + cost.table_bytes * profile->table;
  times.rest = device_profile_seconds(profile, &rest, plan->tokens, height);
  times.before += cost.assign * device_profile_rate(profile->assign, plan->tokens, rows / plan->parts);
  return times;
}

double predict_block_seconds(const PlanCase *plan, int device) {
  PlanCase whole = *plan;
  whole.parts = 1, whole.all_rows = true;
  BlockCost cost = cost_of_block(&whole, device, 0);
  return cost.before + cost.own + cost.remote + cost.rest;
}

/* ---- codes, or rows as they are (sp) */

static int sites_of(const PlanCase *plan) {
  return plan->strategy == STRATEGY_SP ? config_whole_sites(plan->config) : config_sites(plan->config);
}

static Status exchange_timeline(const PlanCase *plan, Timeline *timeline, int device) {
  bool causal = config_is_decoder(plan->config);
  BlockCost cost[256];
  MessageSize sent[MAX_PARTS];
  uint64_t senders[MAX_PARTS] = {0};
  if (plan->config->blocks > 256) return status_set(STATUS_UNSUPPORTED, "a plan is for 256 blocks at most");
  for (int block = 0; block < (int)plan->config->blocks; block++) cost[block] = cost_of_block(plan, device, block);
  const bool codes = strategy_facts(plan->strategy)->sends_codes;
  const double bits = cost_of(plan, device, false, false).sent_bits / (double)plan->counts[device] / sites_of(plan); /* of a token */
  const int min_packets = interleave_min(plan->min_packets, plan->parts);
  for (int part = 0; part < plan->parts; part++) {
    int64_t tokens = share_even_count(plan->counts[device], plan->parts, part);
    sent[part] = (MessageSize){0}; /* of the part, at one site */
    if (tokens > 0)
      sent[part] = codes ? schedule_codes(tokens, bits, SCHEDULE_PACKET_MAX, min_packets) : schedule_stream(bits / 8 * (double)tokens);
    if (tokens > 0 && sent[part].packets == 0)
      return status_set(STATUS_BAD_VALUE, "part %d: no message can hold the codes of %lld tokens", part, (long long)tokens);
    for (int d = 0; d < plan->devices; d++)
      if (share_even_count(plan->counts[d], plan->parts, part) > 0) senders[part] |= 1ull << d;
    senders[part] &= schedule_partners(device, plan->devices, causal, false);
  }
  return schedule_exchange(timeline, &(ExchangeSchedule){.blocks = (int)plan->config->blocks,
                                                         .sites = sites_of(plan),
                                                         .parts = plan->parts,
                                                         .cost = cost,
                                                         .sent = sent,
                                                         .senders = senders,
                                                         .receivers = schedule_partners(device, plan->devices, causal, true)});
}

/* ---- heads and columns divided (tp, bp-*), and a device alone */

/* All rows of the sequence; a class token is one of them. */
static int64_t all_rows(const PlanCase *plan) { return plan->tokens + !config_is_decoder(plan->config); }

static double seconds_of(const PlanCase *plan, int device, const DeviceCost *cost, double rows) {
  const DeviceProfile *profile = &plan->profiles[device];
  return profile->fixed + device_profile_seconds(profile, cost, plan->tokens, rows);
}

/* The share of a block's work up to the first of its two sums. */
static double attention_share(const ModelConfig *config) {
  double projections = 2 * (double)config->width + 2 * kv_width(config),
         mlp = (config->activation == ACTIVATION_NONE ? 3 : 2) * (double)config->mlp;
  return projections / (projections + mlp);
}

/* Seconds before each of a block's sums or joins, and after the last. */
static void divided_seconds(const PlanCase *plan, int device, int block, int steps, double seconds[TENSOR_PARALLEL_STEPS + 1]) {
  bool last = is_last(plan, block);
  const DeviceShare share = share_of(plan, device, false);
  const DeviceCost cost = steps > 0 ? cost_of(plan, device, false, last) : device_cost_decoupled(plan->config, &share);
  double whole =
      seconds_of(plan, device, &cost, (double)all_rows(plan) / (plan->strategy == STRATEGY_BP_SP && steps > 0 ? plan->devices : 1));
  /* Of the last block of tp little more than keys and values is left before the first sum. */
  double before = plan->strategy != STRATEGY_TP ? 0 : last ? 1 : attention_share(plan->config);
  seconds[0] = steps > 0 ? before * whole : whole;
  seconds[1] = whole - seconds[0];
  seconds[2] = 0;
}

static Status divided_timeline(const PlanCase *plan, Timeline *timeline, int device) {
  const TensorParallel how = {.strategy = plan->strategy, .retained = plan->retained};
  ReduceStep steps[TENSOR_PARALLEL_STEPS];
  double seconds[TENSOR_PARALLEL_STEPS + 1];
  for (int block = 0; block < (int)plan->config->blocks; block++) {
    int count = tensor_parallel_block_steps(plan->config, &how, block, 1, all_rows(plan), is_last(plan, block) ? 1 : all_rows(plan), steps);
    divided_seconds(plan, device, block, count, seconds);
    for (int i = 0; i <= count; i++) {
      if (seconds[i] > 0) TRY(schedule_compute(timeline, seconds[i]));
      if (i == count) break;
      double bytes = 4.0 * (double)(share_even_count(steps[i].rows, plan->devices, device) * steps[i].width);
      double add = steps[i].sum ? (plan->devices - 1) * bytes * plan->profiles[device].byte : 0;
      TRY(schedule_reduce(timeline, block, i, device, plan->devices, &steps[i], add));
    }
  }
  return STATUS_OK;
}

static Status single_timeline(const PlanCase *plan, Timeline *timeline, int device) {
  double seconds = 0;
  for (int block = 0; block < (int)plan->config->blocks; block++) {
    const DeviceCost cost = cost_of(plan, device, false, is_last(plan, block));
    seconds += seconds_of(plan, device, &cost, (double)all_rows(plan));
  }
  return schedule_compute(timeline, seconds);
}

/* ---- all */

/* Devices, tokens or parts that make no sense. */
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
  if (plan->parts < 1 || plan->parts > MAX_PARTS)
    return status_set(STATUS_BAD_VALUE, "%d parts: 1 to %d are possible", plan->parts, MAX_PARTS);
  if (plan->strategy == STRATEGY_ASTRA && plan->config->astra.groups < 1)
    return status_set(STATUS_BAD_VALUE, "a plain model has no codes to send: --groups says for how many to plan");
  return STATUS_OK;
}

static Status device_timeline(const PlanCase *plan, Timeline *timeline, int device) {
  timeline->tokens = plan->counts[device];
  if (plan->input_bytes > 0 && plan->input_rates[device] > 0) { /* a device that waits for its input does nothing else */
    double bits = 8 * plan->input_bytes * (double)plan->counts[device];
    TRY(timeline_add(timeline, &(Event){.kind = EVENT_FIXED, .seconds = bits / plan->input_rates[device]}));
  }
  switch (plan->strategy) {
  case STRATEGY_TP:
  case STRATEGY_BP_AG:
  case STRATEGY_BP_SP:
    return divided_timeline(plan, timeline, device);
  case STRATEGY_SINGLE:
    return single_timeline(plan, timeline, device);
  default:
    return plan->devices > 1 ? exchange_timeline(plan, timeline, device) : single_timeline(plan, timeline, device);
  }
}

bool predict_models_loss(const PlanCase *plan) {
  return strategy_facts(plan->strategy)->sends_codes && plan->reliability && plan->reliability->mode != RELIABILITY_STREAM;
}

enum { DRAWS = 7 };

static int by_latency(const void *a, const void *b) {
  double x = ((const SimResult *)a)->latency, y = ((const SimResult *)b)->latency;
  return (x > y) - (x < y);
}

/* With loss or jitter: the median of some requests, each of another seed. */
Status predict_latency(const PlanCase *plan, SimResult *result) {
  Timeline timelines[WIRE_NODES] = {0}, worked[WIRE_NODES] = {0};
  SimResult drawn[DRAWS];
  LinkOptions links = *plan->links;
  double input = 0;
  const bool datagrams = predict_models_loss(plan);
  links.overhead = datagrams ? SCHEDULE_DATAGRAM_OVERHEAD : SCHEDULE_SEGMENT_OVERHEAD;
  if (!datagrams) links.loss = 0;
  const int draws = links.loss > 0 || links.jitter > 0 ? DRAWS : 1;
  const SimOptions options = {.reliability = datagrams ? plan->reliability : NULL, .ends = plan->ends, .scale = plan->scale};
  Status status = check(plan);
  for (int d = 0; status == STATUS_OK && d < plan->devices; d++) status = device_timeline(plan, &timelines[d], d);
  if (status == STATUS_OK && plan->work) status = packet_work_add(plan->work, timelines, plan->devices, datagrams, worked);
  for (int i = 0; status == STATUS_OK && i < draws; i++, links.seed++)
    status = simulate_run(plan->work ? worked : timelines, plan->devices, &links, &options, &drawn[i]);
  if (status == STATUS_OK && plan->with_input) status = predict_input(plan, &input);
  if (status == STATUS_OK) {
    qsort(drawn, (size_t)draws, sizeof *drawn, by_latency);
    *result = drawn[draws / 2];
    result->latency += input;
  }
  for (int d = 0; d < WIRE_NODES; d++) timeline_release(&timelines[d]), timeline_release(&worked[d]);
  return status;
}

/* ---- the input: a simulation of nothing else ---- */

Status predict_input(const PlanCase *plan, double *seconds) {
  Timeline timelines[WIRE_NODES] = {0};
  LinkOptions links = *plan->links;
  SimResult result;
  TRY(check(plan));
  links.overhead = SCHEDULE_SEGMENT_OVERHEAD;
  links.loss = 0;
  const bool own = strategy_facts(plan->strategy)->divides_tokens, color = plan->config->channels == 3;
  Status status = STATUS_OK;
  for (int d = 1; status == STATUS_OK && d < plan->devices; d++) {
    double bytes = WIRE_HEADER;
    if (config_is_decoder(plan->config))
      bytes += 4.0 * (double)plan->tokens;
    else
      bytes += (double)patches_bytes(plan->config, 1, own ? plan->counts[d] : plan->tokens, color);
    status = schedule_send(&timelines[0], 0, 0, d, schedule_stream(bytes), 1ull << d);
    if (status == STATUS_OK) status = schedule_wait(&timelines[d], 0, 0, d, 1);
  }
  if (status == STATUS_OK) status = simulate_run(timelines, plan->devices, &links, &(SimOptions){.scale = 1, .ends = plan->ends}, &result);
  if (status == STATUS_OK) *seconds = result.latency;
  for (int d = 0; d < WIRE_NODES; d++) timeline_release(&timelines[d]);
  return status;
}
