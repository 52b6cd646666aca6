/* Predicts, divides and chooses, in this order. The latency of a strategy: timelines made of what each device computes (nn/strategy.h) at
 * its speed (probe.h), run through the simulated network (sim/simulate.h). How many tokens each device gets: an even share of time first,
 * found by bisection, then small moves while the simulation says that they help. Which strategy is fastest: all of them, sorted. */
#include "infer/plan/planner.h"
#include "base/share.h"
#include "base/text.h"
#include "infer/patches.h"
#include "infer/sim/schedule.h"
#include "infer/strategy/collective.h"
#include "infer/transport/packet.h"
#include "infer/wire.h"
#include "nn/kv_tables.h"
#include "nn/tensor_parallel.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- what a device computes, in seconds */

/* Seconds of an operation with `rows` rows: straight lines over the logarithm of the rows between the sizes of `rates`, of which the last
 * is `most`; beyond them as at the largest; below them as a product takes that waits for its weights. Sizes that are no larger than the
 * one before them (a model of few tokens) are passed over. */
static double profile_rate(const double rates[PROFILE_SIZES], int64_t most, double rows) {
  const double sizes[PROFILE_SIZES] = {PROFILE_SMALL, PROFILE_MIDDLE, (double)most};
  /* A product of few rows takes a time for its weights to come besides one for each row: of an operation r + w / rows, by the two smallest.
   * No product takes longer for having fewer rows, whatever the noise of the measurements. */
  if (rows <= sizes[0]) {
    double weights = (rates[0] - rates[1]) / (1.0 / PROFILE_SMALL - 1.0 / PROFILE_MIDDLE);
    return rates[0] + fmin(fmax(weights, 0), rates[0] * PROFILE_SMALL) * (1 / fmax(rows, 1) - 1.0 / PROFILE_SMALL);
  }
  for (int i = 1; i < PROFILE_SIZES; i++) {
    if (sizes[i] <= sizes[i - 1]) break;
    if (rows <= sizes[i]) return rates[i - 1] + (rates[i] - rates[i - 1]) * log(rows / sizes[i - 1]) / log(sizes[i] / sizes[i - 1]);
  }
  return rates[most > PROFILE_MIDDLE ? PROFILE_SIZES - 1 : 1];
}

/* Seconds of what `cost` counts, but for tables, computed on `rows` rows. */
static double profile_seconds(const DeviceProfile *profile, const DeviceCost *cost, int64_t most, double rows) {
  return cost->linear * profile_rate(profile->linear, most, rows) + cost->attention * profile_rate(profile->attention, most, rows) +
         cost->assign * profile_rate(profile->assign, most, rows) + cost->other_bytes * profile->byte;
}

/* ---- the steps of a device whose tokens are divided (ASTRA, sp), in the order in which nn/block.c takes them */

/* Seconds of a block, all parts together. */
typedef struct BlockCost {
  double before; /* what leaves: the nearest codewords, keys and values where these are sent */
  double own;    /* of own tokens: queries, and keys and values where they are not sent */
  double remote; /* keys and values of the others' tokens */
  double rest;   /* attention, output, MLP */
} BlockCost;

typedef struct ExchangeSchedule {
  int blocks, sites, parts;
  int first, end;          /* the first block of which something is sent, and the first behind it of which nothing is */
  const BlockCost *cost;   /* [blocks] */
  const MessageSize *sent; /* [parts] at each site; packets 0: nothing */
  const uint64_t *senders; /* [parts] devices (bits) whose part is needed */
  uint64_t receivers;
} ExchangeSchedule;

static DeviceShare share_of(const PlanCase *plan, int device, bool last) {
  DeviceShare share = {.device = device, .devices = plan->devices, .own = plan->counts[device], .tokens = plan->tokens, .last = last};
  for (int d = 0; d < device; d++) share.before += plan->counts[d];
  return share;
}

static DeviceCost cost_of(const PlanCase *plan, int device, bool last) {
  const DeviceShare share = share_of(plan, device, last);
  return device_cost(plan->config, plan->strategy, &share, false);
}

/* The most rows of which products were measured. */
static int64_t rows_measured(const PlanCase *plan) { return plan->rows_measured > 0 ? plan->rows_measured : plan->tokens; }

/* Whether the device takes keys and values from tables where it has them: by kv_tables_pay, with its profile in place of a measurement. */
static bool uses_tables(const PlanCase *plan, int device) {
  const ModelConfig *config = plan->config;
  const DeviceProfile *profile = &plan->profiles[device];
  double rows = KV_TABLES_ROWS, width = (double)config->width, kv = (double)config_kv_width(config);
  if (plan->strategy != STRATEGY_ASTRA || config->astra.site != SITE_X || config->astra.prediction || plan->table_blocks < 1) return false;
  double numbers = (double)config->astra.groups * 2 * kv, flops = rows * 4 * width * kv;
  double product = flops * profile_rate(profile->linear, rows_measured(plan), rows) + rows * 2 * width * 4 * profile->byte;
  return kv_tables_pay(&(KvTablesCase){.groups = config->astra.groups,
                                       .bytes = (size_t)(numbers * (double)config->astra.codebook_size) * sizeof(real),
                                       .flops = flops,
                                       .table_time = rows * numbers * sizeof(real) * profile->table,
                                       .product_time = product});
}

static double linear_seconds(const PlanCase *plan, int device, double flops, double rows) {
  return flops * profile_rate(plan->profiles[device].linear, rows_measured(plan), rows);
}

static int first_coded(const PlanCase *plan) { return plan->strategy == STRATEGY_ASTRA ? config_first_coded(plan->config) : 0; }

static int end_coded(const PlanCase *plan) {
  return plan->strategy == STRATEGY_ASTRA ? config_end_coded(plan->config) : (int)plan->config->blocks;
}

static bool is_last(const PlanCase *plan, int block) { return block == (int)plan->config->blocks - 1 && !plan->all_rows; }

/* Whether own keys and values are what is sent, and so are computed first: in the last block also where no row is wanted. */
static bool sends_keys(const PlanCase *plan) {
  if (plan->strategy == STRATEGY_SP) return config_whole_sites(plan->config) == EXCHANGE_SITES;
  return plan->strategy == STRATEGY_ASTRA && plan->config->astra.site == SITE_KV;
}

/* A block of ASTRA is cut into what can be done before the others' codes are there (q, k, v of own tokens), what needs them (keys and
 * values of the others' tokens, part by part) and the rest, part by part: the order of block.c. The rest is computed in as many pieces as
 * there are parts, which decides how fast its products are. Of the last block what is wanted goes on alone, in one piece; a device of which
 * nothing is wanted does what the others' codes need, and no more (block.c). */
static BlockCost cost_of_block(const PlanCase *plan, int device, int block) {
  const DeviceProfile *profile = &plan->profiles[device];
  DeviceShare share = share_of(plan, device, is_last(plan, block));
  share.known = block < first_coded(plan), share.apart = block >= end_coded(plan);
  const bool sends = !share.known && !share.apart;
  bool tables = block < plan->table_blocks && uses_tables(plan, device), keys_leave = sends_keys(plan) && sends;
  const DeviceCost cost = device_cost(plan->config, plan->strategy, &share, tables);
  const double rows = cost.rows, asking = cost.wanted, others = fmax((double)(plan->tokens - plan->counts[device]), 1);
  const double height = fmax(asking / (share.last ? 1 : plan->parts), 1);
  const DeviceCost rest = {.linear = cost.linear - cost.queries - cost.keys - cost.remote - cost.basis,
                           .attention = cost.attention,
                           .other_bytes = cost.other_bytes};
  BlockCost times;
  times.before = linear_seconds(plan, device, cost.basis + (keys_leave ? cost.keys : 0), rows / plan->parts);
  times.own = linear_seconds(plan, device, cost.queries, fmax(asking, 1)) +
              (keys_leave ? 0 : linear_seconds(plan, device, cost.keys, rows)) + profile->fixed;
  times.remote = linear_seconds(plan, device, cost.remote, fmax(others / plan->parts, 1)) + cost.table_bytes * profile->table;
  times.rest = profile_seconds(profile, &rest, rows_measured(plan), height);
  times.before += cost.assign * profile_rate(profile->assign, rows_measured(plan), rows / plan->parts);
  return times;
}

/* ---- timelines: codes, or rows as they are (sp) */

/* Codes of `tokens` tokens in datagrams, interleaved, at least `min` of them; nothing at all without tokens. packets 0: there would be too
 * many. */
static MessageSize size_of_codes(int64_t tokens, double token_bits, size_t max_packet, int min) {
  int packets = max_packet > PACKET_HEADER ? interleave_packets(tokens, token_bits, max_packet - PACKET_HEADER, min) : 0;
  double bytes = (double)packets * PACKET_HEADER;
  for (int f = 0; f < packets; f++) bytes += ceil((double)interleave_count(tokens, packets, f) * token_bits / 8);
  return bytes < UINT32_MAX ? (MessageSize){(uint32_t)packets, (uint32_t)bytes} : (MessageSize){0};
}

static bool exchanges(const ExchangeSchedule *s, int block) { return block >= s->first && block < s->end; }

/* A part's codes leave as soon as they can be computed. */
static Status begin_part(Timeline *timeline, const ExchangeSchedule *s, int block, int part) {
  TRY(schedule_compute(timeline, s->cost[block].before / s->parts));
  for (int site = 0; exchanges(s, block) && s->receivers && s->sent[part].packets && site < s->sites; site++)
    TRY(schedule_send(timeline, block, site, part, s->sent[part], s->receivers));
  return STATUS_OK;
}

static Status exchange_steps(Timeline *timeline, const ExchangeSchedule *s) {
  for (int part = 0; part < s->parts; part++) TRY(begin_part(timeline, s, 0, part));
  for (int block = 0; block < s->blocks; block++) {
    TRY(schedule_compute(timeline, s->cost[block].own));
    for (int part = 0; part < s->parts; part++) {
      for (int site = 0; exchanges(s, block) && s->senders[part] && site < s->sites; site++)
        TRY(schedule_wait(timeline, block, site, part, s->senders[part]));
      TRY(schedule_compute(timeline, s->cost[block].remote / s->parts));
    }
    for (int part = 0; part < s->parts; part++) {
      TRY(schedule_compute(timeline, s->cost[block].rest / s->parts));
      if (block + 1 < s->blocks) TRY(begin_part(timeline, s, block + 1, part));
    }
  }
  return STATUS_OK;
}

static int sites_of(const PlanCase *plan) {
  return plan->strategy == STRATEGY_SP ? config_whole_sites(plan->config) : config_sites(plan->config);
}

static Status exchange_timeline(const PlanCase *plan, Timeline *timeline, int device) {
  bool causal = config_is_decoder(plan->config);
  BlockCost cost[PACKET_BLOCKS];
  MessageSize sent[MAX_PARTS];
  uint64_t senders[MAX_PARTS] = {0};
  if (plan->config->blocks > PACKET_BLOCKS) return status_set(STATUS_UNSUPPORTED, "a plan is for %d blocks at most", PACKET_BLOCKS);
  for (int block = 0; block < (int)plan->config->blocks; block++) cost[block] = cost_of_block(plan, device, block);
  const bool codes = strategy_facts(plan->strategy)->sends_codes;
  const double whole = cost_of(plan, device, false).sent_bits / (double)plan->counts[device] / sites_of(plan); /* of a token */
  const double bits = codes && plan->coded_share > 0 ? plan->coded_share * whole : whole;
  const int min_packets = interleave_min(plan->min_packets, plan->parts);
  for (int part = 0; part < plan->parts; part++) {
    int64_t tokens = share_even_count(plan->counts[device], plan->parts, part);
    sent[part] = (MessageSize){0}; /* of the part, at one site */
    if (tokens > 0 && codes) sent[part] = size_of_codes(tokens, bits, SCHEDULE_PACKET_MAX, min_packets);
    if (tokens > 0 && sent[part].packets == 0) sent[part] = schedule_stream(bits / 8 * (double)tokens); /* too many codes for datagrams */
    for (int d = 0; d < plan->devices; d++)
      if (share_even_count(plan->counts[d], plan->parts, part) > 0) senders[part] |= 1ull << d;
    senders[part] &= schedule_partners(device, plan->devices, causal, false);
  }
  return exchange_steps(timeline, &(ExchangeSchedule){.blocks = (int)plan->config->blocks,
                                                      .first = first_coded(plan),
                                                      .end = end_coded(plan),
                                                      .sites = sites_of(plan),
                                                      .parts = plan->parts,
                                                      .cost = cost,
                                                      .sent = sent,
                                                      .senders = senders,
                                                      .receivers = schedule_partners(device, plan->devices, causal, true)});
}

/* ---- timelines: heads and columns divided (tp, bp-*), and a device alone */

/* All rows of the sequence; a class token is one of them. */
static int64_t all_rows(const PlanCase *plan) { return plan->tokens + !config_is_decoder(plan->config); }

static double seconds_of(const PlanCase *plan, int device, const DeviceCost *cost, double rows) {
  const DeviceProfile *profile = &plan->profiles[device];
  return profile->fixed + profile_seconds(profile, cost, rows_measured(plan), rows);
}

/* Seconds before each of a block's sums or joins, and after the last. */
static void divided_seconds(const PlanCase *plan, int device, int block, int steps, double seconds[TENSOR_PARALLEL_STEPS + 1]) {
  bool last = is_last(plan, block);
  const DeviceShare share = share_of(plan, device, false);
  const DeviceCost cost = steps > 0 ? cost_of(plan, device, last) : device_cost_decoupled(plan->config, &share);
  double whole =
      seconds_of(plan, device, &cost, (double)all_rows(plan) / (plan->strategy == STRATEGY_BP_SP && steps > 0 ? plan->devices : 1));
  /* Up to the first of its two sums a block of tp has its projections; little more is left of the last block. */
  const double projections = 2 * (double)plan->config->width + 2 * (double)config_kv_width(plan->config),
               mlp = (plan->config->activation == ACTIVATION_NONE ? 3 : 2) * (double)plan->config->mlp;
  const double before = plan->strategy != STRATEGY_TP ? 0 : last ? 1 : projections / (projections + mlp);
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
    const DeviceCost cost = cost_of(plan, device, is_last(plan, block));
    seconds += seconds_of(plan, device, &cost, (double)all_rows(plan));
  }
  return schedule_compute(timeline, seconds);
}

/* ---- latency */

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

/* Seconds until a device has its input: what its own link takes, or, if that is longer, what the leader's takes for the input of all, which
 * it sends side by side. That one is as fast as the fastest link measured through it. */
static double input_transfer(const PlanCase *plan, int device) {
  double all = 0, fastest = 0;
  for (int d = 0; d < plan->devices; d++) {
    if (plan->input_rates[d] <= 0) continue;
    all += (double)plan->counts[d];
    fastest = fmax(fastest, plan->input_rates[d]);
  }
  return 8 * plan->input_bytes * fmax((double)plan->counts[device] / plan->input_rates[device], all / fastest);
}

static Status device_timeline(const PlanCase *plan, Timeline *timeline, int device) {
  timeline->tokens = plan->counts[device];
  if (plan->input_bytes > 0 && plan->input_rates[device] > 0) /* a device that waits for its input does nothing else */
    TRY(timeline_add(timeline, &(Event){.kind = EVENT_FIXED, .seconds = input_transfer(plan, device)}));
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

/* Codes in datagrams. What goes over a stream is delayed by loss, which is not modelled. */
static bool models_loss(const PlanCase *plan) {
  return strategy_facts(plan->strategy)->sends_codes && plan->reliability && plan->reliability->mode != RELIABILITY_STREAM;
}

/* Bytes of a request for one of the devices: of images the patches of the tokens that it computes, a byte a number (patches.h), of texts 4
 * for every token. */
static double input_of(const PlanCase *plan, int device) {
  const bool own = strategy_facts(plan->strategy)->divides_tokens, color = plan->config->channels == 3;
  if (config_is_decoder(plan->config)) return WIRE_HEADER + 4.0 * (double)plan->tokens;
  return WIRE_HEADER + (double)patches_bytes(plan->config, 1, own ? plan->counts[device] : plan->tokens, color);
}

/* Seconds until every device has its input, from the leader, which sends each theirs one after the other. The links are as between the
 * devices, those of the leader its machine's; over streams, so that loss is left out. A simulation of nothing else. */
static Status input_seconds(const PlanCase *plan, double *seconds) {
  Timeline timelines[WIRE_NODES] = {0};
  LinkEnd ends[WIRE_NODES] = {{0}};
  SimResult result;
  TRY(check(plan));
  const bool beside = plan->beside && plan->devices < WIRE_NODES;
  const int leader = beside ? plan->devices : plan->leader, nodes = plan->devices + beside;
  Status status = STATUS_OK;
  for (int d = 0; status == STATUS_OK && d < plan->devices; d++) {
    if (plan->ends) ends[d] = plan->ends[d];
    if (d == leader) continue;
    status = schedule_send(&timelines[leader], 0, 0, d, schedule_stream(input_of(plan, d)), 1ull << d);
    if (status == STATUS_OK) status = schedule_wait(&timelines[d], 0, 0, d, 1ull << leader);
  }
  if (beside) ends[leader] = *plan->beside;
  const SimOptions options = {.scale = 1, .ends = plan->ends ? ends : NULL};
  if (status == STATUS_OK) status = simulate_request(timelines, nodes, false, plan->links, &options, &result);
  if (status == STATUS_OK) *seconds = result.latency;
  for (int d = 0; d < WIRE_NODES; d++) timeline_release(&timelines[d]);
  return status;
}

Status planner_latency(const PlanCase *plan, SimResult *result) {
  Timeline timelines[WIRE_NODES] = {0}, worked[WIRE_NODES] = {0};
  double input = 0;
  const bool datagrams = models_loss(plan);
  const SimOptions options = {.reliability = plan->reliability, .ends = plan->ends, .scale = plan->scale};
  if (plan->stop && *plan->stop) return status_set(STATUS_INTERRUPTED, "interrupted");
  Status status = check(plan);
  for (int d = 0; status == STATUS_OK && d < plan->devices; d++) status = device_timeline(plan, &timelines[d], d);
  if (status == STATUS_OK && plan->work) status = packet_work_add(plan->work, timelines, plan->devices, datagrams, worked);
  if (status == STATUS_OK)
    status = simulate_request(plan->work ? worked : timelines, plan->devices, datagrams, plan->links, &options, result);
  if (status == STATUS_OK && plan->with_input) status = input_seconds(plan, &input);
  if (status == STATUS_OK) result->latency += input;
  for (int d = 0; d < WIRE_NODES; d++) timeline_release(&timelines[d]), timeline_release(&worked[d]);
  return status;
}

/* ---- tokens of the devices: the simulation alone knows what is hidden; the bisection only has to begin near by */

static const double worth_cutting = 0.98; /* less than a fiftieth may be the noise of what was measured */

enum { BISECTIONS = 40, FIRST_MOVE = 16 /* of all tokens, the largest move's share */ };

/* Seconds that a device with `tokens` tokens, and `before` in front of them, needs for a block by itself: what it computes, and its codes
 * on one link where they take longer than that. */
static double alone(const PlanCase *plan, int device, int64_t before, int64_t tokens) {
  int64_t counts[WIRE_NODES];
  memset(counts, 0, sizeof counts);
  if (device > 0) counts[0] = before;
  counts[device] = tokens;
  PlanCase one = *plan;
  one.counts = counts;
  const DeviceShare share = {.device = device, .devices = plan->devices, .own = tokens, .before = before, .tokens = plan->tokens};
  one.parts = 1, one.all_rows = true;
  const BlockCost cost = cost_of_block(&one, device, first_coded(plan));
  double computing = (cost.before + cost.own + cost.remote + cost.rest) * (plan->scale > 0 ? plan->scale : 1);
  double rate = link_slower(plan->links->bits_per_second, plan->ends ? plan->ends[device].out : 0); /* of codes that leave; 0: no limit */
  double sending = rate > 0 ? device_cost(plan->config, plan->strategy, &share, false).sent_bits / rate : 0;
  return sending > computing ? sending : computing;
}

/* How many tokens the devices can do in this time, in their order: of a decoder each has to look at those before it. */
static int64_t all_within(const PlanCase *plan, double seconds, int64_t *max) {
  int64_t before = 0;
  for (int d = 0; d < plan->devices; d++) {
    int64_t low = 0, high = plan->tokens;
    while (low < high) {
      int64_t middle = (low + high + 1) / 2;
      if (alone(plan, d, before, middle) <= seconds)
        low = middle;
      else
        high = middle - 1;
    }
    max[d] = low;
    before += low;
  }
  return before;
}

/* Weights in proportion to what each device can do in the least time in which all together can do all tokens. */
static void equal_time(const PlanCase *plan, double *weights) {
  int64_t max[WIRE_NODES];
  double low = 0, high = 0;
  for (int d = 0; d < plan->devices; d++) {
    double all = alone(plan, d, 0, plan->tokens);
    high = all > high ? all : high;
  }
  for (int i = 0; i < BISECTIONS; i++) {
    double middle = (low + high) / 2;
    if (all_within(plan, middle, max) >= plan->tokens)
      high = middle;
    else
      low = middle;
  }
  all_within(plan, high, max);
  for (int d = 0; d < plan->devices; d++) weights[d] = max[d] > 0 ? (double)max[d] : 0.5; /* every device gets one token at least */
}

/* The latency with these counts; calm: on links that lose nothing and do not waver, so that no split is chosen for the luck of a request.
 */
static Status try_counts(const PlanCase *plan, const int64_t *counts, bool calm, SimResult *result) {
  PlanCase tried = *plan;
  LinkOptions links = *plan->links;
  if (calm) links.loss = links.jitter = 0;
  tried.links = &links;
  tried.counts = counts;
  return planner_latency(&tried, result);
}

/* Whether a device is not like others of its speed and link: the one beside the leader needs no transfer of its input, and without a class
 * token of each device the first one computes that of all. */
static bool is_special(const PlanCase *plan, int device) {
  const bool single = plan->strategy != STRATEGY_ASTRA || plan->config->astra.class_token != CLASS_DISTRIBUTED;
  return (plan->with_input && !plan->beside && device == plan->leader) || (single && device == 0);
}

/* An earlier device than this one, and not `besides`, is as good: a move from or to either comes to the same. Not so in a decoder, whose
 * devices have an order. */
static bool tried_before(const PlanCase *plan, const int64_t *counts, int device, int besides) {
  for (int d = 0; d < device && !config_is_decoder(plan->config) && !is_special(plan, device); d++) {
    bool alike = d != besides && counts[d] == counts[device] && !is_special(plan, d) &&
                 (plan->input_bytes <= 0 || plan->input_rates[d] == plan->input_rates[device]) &&
                 (!plan->ends || memcmp(&plan->ends[d], &plan->ends[device], sizeof *plan->ends) == 0) &&
                 memcmp(&plan->profiles[d], &plan->profiles[device], sizeof *plan->profiles) == 0;
    if (alike) return true;
  }
  return false;
}

/* The best move of `tokens` from one device to another; *moved false: none helps. */
static Status best_move(const PlanCase *plan, int64_t tokens, int64_t *counts, SimResult *best, bool *moved) {
  int from_best = 0, to_best = 0;
  *moved = false;
  for (int from = 0; from < plan->devices; from++) {
    if (counts[from] <= tokens || tried_before(plan, counts, from, -1)) continue;
    for (int to = 0; to < plan->devices; to++) {
      SimResult result;
      if (from == to || tried_before(plan, counts, to, from)) continue;
      counts[from] -= tokens, counts[to] += tokens;
      Status status = try_counts(plan, counts, true, &result);
      counts[from] += tokens, counts[to] -= tokens;
      TRY(status);
      if (result.latency >= best->latency * (1 - 1e-9)) continue;
      *best = result;
      *moved = true;
      from_best = from, to_best = to;
    }
  }
  if (*moved) counts[from_best] -= tokens, counts[to_best] += tokens;
  return STATUS_OK;
}

static Status climb(const PlanCase *plan, int64_t *counts, SimResult *best) {
  int64_t max = plan->tokens / FIRST_MOVE, steps = 4 * (int64_t)plan->devices;
  for (int64_t tokens = max > 1 ? max : 1; tokens > 0; tokens /= 2) {
    bool moved = true;
    for (int64_t i = 0; moved && i < steps; i++) TRY(best_move(plan, tokens, counts, best, &moved));
  }
  return STATUS_OK;
}

static Status begin(const PlanCase *plan, int64_t *counts) {
  double weights[WIRE_NODES];
  if (plan->devices < 1 || plan->devices > WIRE_NODES)
    return status_set(STATUS_BAD_VALUE, "%d devices: a plan is for 1 to %d", plan->devices, WIRE_NODES);
  if (plan->tokens < plan->devices)
    return status_set(STATUS_BAD_VALUE, "%lld tokens for %d devices: each needs one", (long long)plan->tokens, plan->devices);
  layout_even_counts(plan->tokens, plan->devices, counts);
  if (!strategy_facts(plan->strategy)->divides_tokens) return STATUS_OK;
  equal_time(plan, weights);
  return layout_weighted_counts(plan->tokens, plan->devices, weights, counts);
}

/* plan->counts is not read. counts [plan->devices] receives how many tokens each of the devices gets, in their order, each 1 at least;
 * *result what is predicted for them. BAD_VALUE: more devices than tokens. */
static Status best_counts(const PlanCase *plan, int64_t *counts, SimResult *result) {
  bool divided = plan->devices > 1 && strategy_facts(plan->strategy)->divides_tokens;
  TRY(begin(plan, counts));
  if (divided) TRY(try_counts(plan, counts, true, result));
  if (divided) TRY(climb(plan, counts, result));
  return try_counts(plan, counts, false, result);
}

/* plan->parts becomes `wanted`, or where that is 0 the best of 1, 2, 4 and 8 for these counts, more only where that is a fiftieth faster;
 * 1 where blocks are not cut. counts NULL: those that a climb begins with. */
static Status choose_parts(PlanCase *plan, int wanted, const int64_t *counts) {
  static const int choices[] = {1, 2, 4, 8};
  bool cut = plan->strategy == STRATEGY_ASTRA && plan->devices > 1 && !config_is_decoder(plan->config);
  int64_t first[WIRE_NODES];
  double best = INFINITY;
  int chosen = cut && wanted > 0 ? wanted : 1;
  for (size_t i = 0; cut && wanted == 0 && i < sizeof choices / sizeof *choices; i++) {
    SimResult result;
    plan->parts = choices[i];
    if (!counts) TRY(begin(plan, first));
    TRY(try_counts(plan, counts ? counts : first, false, &result));
    if (result.latency < worth_cutting * best) best = result.latency, chosen = plan->parts;
  }
  plan->parts = chosen;
  return STATUS_OK;
}

Status planner_parts(PlanCase *plan) { return choose_parts(plan, 0, plan->counts); }

/* ---- devices left out */

static Status split_chosen(const PlanCase *plan, const int *chosen, int used, int64_t *counts, SimResult *result) {
  DeviceProfile profiles[WIRE_NODES];
  double rates[WIRE_NODES];
  LinkEnd ends[WIRE_NODES];
  PlanCase some = *plan;
  for (int i = 0; i < used; i++) {
    profiles[i] = plan->profiles[chosen[i]];
    rates[i] = plan->input_bytes > 0 ? plan->input_rates[chosen[i]] : 0;
    ends[i] = plan->ends ? plan->ends[chosen[i]] : (LinkEnd){0};
  }
  some.ends = plan->ends ? ends : NULL;
  some.input_rates = rates;
  some.devices = used;
  some.profiles = profiles;
  return best_counts(&some, counts, result);
}

static int fewest(const int64_t *counts, int used) {
  int min = 0;
  for (int i = 1; i < used; i++) min = counts[i] < counts[min] ? i : min;
  return min;
}

/* Devices may be left out: those in *serving, as bits, are the best of the sets that remain when the device with the fewest tokens is
 * dropped again and again, beginning with all, counts [plan->devices] and *result. *result becomes theirs. */
static Status leave_out(const PlanCase *plan, const int64_t *counts, uint64_t *serving, SimResult *result) {
  int rest[WIRE_NODES];
  int64_t fewer[WIRE_NODES];
  *serving = 0;
  for (int i = 0; i < plan->devices; i++) *serving |= 1ull << i, rest[i] = i, fewer[i] = counts[i];
  /* Down to one, whatever lies between: where links are slow two devices can be worse than three, and one better than all. */
  for (int left = plan->devices - 1; left > 0; left--) {
    SimResult without;
    for (int i = fewest(fewer, left + 1); i < left; i++) rest[i] = rest[i + 1];
    TRY(split_chosen(plan, rest, left, fewer, &without));
    if (without.latency >= result->latency) continue;
    *serving = 0;
    for (int i = 0; i < left; i++) *serving |= 1ull << rest[i];
    *result = without;
  }
  return STATUS_OK;
}

/* ---- devices that were measured just now */

LinkEnd planner_slowest_link(const LinkEnd *ends, int nodes) {
  LinkEnd slowest = {0};
  for (int d = 0; d < nodes; d++)
    slowest = (LinkEnd){.out = link_slower(slowest.out, ends[d].out),
                        .in = link_slower(slowest.in, ends[d].in),
                        .latency = fmax(slowest.latency, ends[d].latency)};
  return slowest;
}

static LinkEnd measured_end(const DeviceMeasure *measured) {
  if (!measured->here || !measured->linked) return (LinkEnd){0};
  return (LinkEnd){.out = measured->from, .in = measured->to, .latency = measured->round_trip / 2};
}

LinkEnd planner_leader_end(const DeviceMeasure *measured, int nodes) {
  LinkEnd leader = {0};
  for (int d = 0; d < nodes; d++) {
    const LinkEnd end = measured_end(&measured[d]);
    leader = (LinkEnd){.out = fmax(leader.out, end.in), .in = fmax(leader.in, end.out)};
  }
  return leader;
}

void planner_link_ends(const DeviceMeasure *measured, int nodes, LinkEnd *ends) {
  for (int d = 0; d < nodes; d++) ends[d] = measured_end(&measured[d]);
  const LinkEnd leader = planner_leader_end(measured, nodes);
  const LinkEnd slowest = planner_slowest_link(ends, nodes);
  for (int d = 0; d < nodes; d++)
    if (!measured[d].here)
      ends[d] = slowest;
    else if (!measured[d].linked)
      ends[d] = leader;
}

static double speed_of(const DeviceMeasure *measure) { return measure->profile.linear[PROFILE_SIZES - 1]; }

/* A case for these devices, and what it points to. */
typedef struct ClusterCase {
  PlanCase plan;
  DeviceProfile profiles[WIRE_NODES];
  double rates[WIRE_NODES];
  LinkEnd ends[WIRE_NODES]; /* all zero where the links were given */
  LinkOptions links;
} ClusterCase;

/* A device that is not here is taken to be as slow as the slowest that is, and so is its link for the input; one beside the leader has its
 * input at once. */
static void make_measured(const PlanCase *plan, const DeviceMeasure *measured, int nodes, const LinkOptions *given, ClusterCase *c) {
  int slowest = -1;
  double slowest_rate = 0;
  *c = (ClusterCase){.plan = *plan, .links = given ? *given : (LinkOptions){.topology = LINK_SWITCH}};
  for (int d = 0; d < nodes; d++) {
    if (measured[d].here && (slowest < 0 || speed_of(&measured[d]) > speed_of(&measured[slowest]))) slowest = d;
    if (measured[d].here && measured[d].linked) slowest_rate = link_slower(slowest_rate, measured[d].to);
  }
  for (int d = 0; d < nodes; d++) {
    c->profiles[d] = measured[measured[d].here || slowest < 0 ? d : slowest].profile;
    c->rates[d] = !measured[d].here ? slowest_rate : measured[d].linked ? measured[d].to : 0;
  }
  if (!given) planner_link_ends(measured, nodes, c->ends);
  c->plan.devices = nodes;
  c->plan.profiles = c->profiles;
  c->plan.links = &c->links;
  c->plan.ends = given ? NULL : c->ends;
  c->plan.input_rates = c->rates;
}

Status planner_given_split(const PlanCase *plan, const DeviceMeasure *measured, int nodes, const LinkOptions *given, double *seconds) {
  ClusterCase c;
  SimResult result;
  make_measured(plan, measured, nodes, given, &c);
  TRY(planner_latency(&c.plan, &result));
  *seconds = result.latency;
  return STATUS_OK;
}

Status planner_split(const PlanCase *plan, const DeviceMeasure *measured, int nodes, const LinkOptions *given, MeasuredSplit *split) {
  ClusterCase c;
  SimResult result;
  make_measured(plan, measured, nodes, given, &c);
  *split = (MeasuredSplit){.bits_per_second = c.links.bits_per_second, .latency = c.links.latency};
  if (!given) {
    memcpy(split->ends, c.ends, sizeof c.ends);
    const LinkEnd end = planner_slowest_link(split->ends, nodes);
    split->bits_per_second = link_slower(end.out, end.in);
    split->latency = end.latency;
  }
  TRY(choose_parts(&c.plan, plan->parts, NULL));
  split->parts = c.plan.parts;
  TRY(best_counts(&c.plan, split->counts, &result));
  split->predicted = result.latency;
  TRY(leave_out(&c.plan, split->counts, &split->fewer, &result));
  split->without = result.latency;
  return STATUS_OK;
}

/* ---- one row of a plan */

/* Whether codes can be sent at all: over a stream always, in datagrams where a message has few enough of them. */
static bool can_be_sent(const PlanCase *plan) {
  if (!models_loss(plan) || plan->devices < 2) return true;
  for (int d = 0; d < plan->devices; d++) {
    const double bits = cost_of(plan, d, false).sent_bits / (double)plan->counts[d] / sites_of(plan);
    const int64_t tokens = share_even_count(plan->counts[d], plan->parts, 0); /* the first part is the largest */
    const bool silent = config_is_decoder(plan->config) && d == plan->devices - 1;
    if (!silent && size_of_codes(tokens, bits, SCHEDULE_PACKET_MAX, interleave_min(plan->min_packets, plan->parts)).packets == 0)
      return false;
  }
  return true;
}

static void fill_row(PlanRow *row, const PlanCase *plan, const SimResult *result) {
  const SimDevice *last = simulate_last(result, plan->devices);
  const bool divided = strategy_facts(plan->strategy)->divides_tokens;
  const DeviceShare share = {.device = plan->devices - 1, /* which has no class token that others lack */
                             .devices = plan->devices,
                             .own = plan->counts[plan->devices - 1],
                             .tokens = plan->tokens,
                             .last = !plan->all_rows};
  const DeviceCost cost = device_cost_all(plan->config, plan->strategy, &share, plan->retained);
  row->latency = result->latency;
  row->wait = last->wait;
  row->hidden = simulate_hidden(last);
  row->parts = plan->parts;
  row->table_blocks = plan->devices > 1 && uses_tables(plan, 0) ? plan->table_blocks : 0;
  row->bytes_per_token = cost.sent_bits / 8 / (double)(divided ? share.own : plan->tokens);
  row->fpar = divided ? layout_fpar(plan->tokens, plan->devices, plan->counts) : 1;
  row->loss_not_modelled = plan->devices > 1 && plan->links->loss > 0 && !models_loss(plan);
}

static Status add_row(const PlannerSetup *setup, Strategy strategy, int groups, int devices, Plan *plan) {
  PlanRow *row = &plan->rows[plan->count];
  SimResult result;
  int table_blocks = 0;
  const int rates = config_rates(setup->config); /* 0 of a plain model, which is planned as if it had been trained for these groups */
  ModelConfig config = *setup->config;           /* labels are shared, not owned */
  config.astra.groups = groups;
  if (config.astra.codebook_size == 0) config.astra.codebook_size = CONFIG_CODEBOOK_SIZE;
  if (strategy == STRATEGY_ASTRA && config.astra.site == SITE_X && groups > 0)
    table_blocks = (int)kv_tables_room(&config, groups, config.astra.codebook_size, setup->table_bytes / (rates > 1 ? rates : 1));
  *row = (PlanRow){.strategy = strategy, .groups = groups, .devices = devices};
  row->other_groups = strategy == STRATEGY_ASTRA && !setup->untrained;
  for (int rate = 0; rate < config_rates(setup->config); rate++)
    row->other_groups = row->other_groups && groups != config_rate_groups(setup->config, rate);
  const bool beside = setup->leader < 0 || setup->leader >= devices;
  const LinkEnd leader = setup->leader < 0 ? setup->beside : setup->ends ? setup->ends[setup->leader] : (LinkEnd){0};
  PlanCase tried = {.config = &config,
                    .strategy = strategy,
                    .tokens = setup->tokens,
                    .devices = devices,
                    .profiles = setup->profiles,
                    .links = setup->links,
                    .ends = setup->ends,
                    .reliability = setup->reliability,
                    .min_packets = setup->min_packets,
                    .retained = setup->retained,
                    .table_blocks = table_blocks,
                    .rows_measured = setup->rows_measured,
                    .all_rows = setup->all_rows,
                    .with_input = setup->with_input,
                    .leader = beside ? 0 : setup->leader,
                    .beside = beside ? &leader : NULL,
                    .work = setup->work,
                    .scale = setup->scale};
  tried.counts = row->counts;
  layout_even_counts(tried.tokens, devices, row->counts);
  TRY(choose_parts(&tried, setup->parts, setup->even ? row->counts : NULL));
  TRY(setup->even ? planner_latency(&tried, &result) : best_counts(&tried, row->counts, &result));
  if (!can_be_sent(&tried)) return STATUS_OK;
  fill_row(row, &tried, &result);
  TRY(input_seconds(&tried, &row->input));
  plan->count++;
  return STATUS_OK;
}

/* ---- all rows */

static int rows_by_latency(const void *a, const void *b) {
  const PlanRow *x = a, *y = b;
  if (x->latency != y->latency) return x->latency > y->latency ? 1 : -1;
  return (x->devices > y->devices) - (x->devices < y->devices);
}

enum { PART = 64 };

/* "astra with 16 groups on 4 devices" */
static const char *describe(const PlanRow *row, char text[PART]) {
  char groups[24] = "";
  if (row->groups) snprintf(groups, sizeof groups, " with %d group%s", row->groups, text_plural(row->groups));
  snprintf(text, PART, "%s%s on %d device%s", strategy_facts(row->strategy)->name, groups, row->devices, text_plural(row->devices));
  return text;
}

/* Sorts the rows, chooses among them, and says what to do. */
static void finish(Plan *plan) {
  plan->single = plan->rows[0].latency;
  for (int i = 0; i < plan->count; i++) plan->rows[i].speedup = plan->single / plan->rows[i].latency;
  qsort(plan->rows, (size_t)plan->count, sizeof *plan->rows, rows_by_latency);
  for (int i = 0; i < plan->count && !plan->best; i++) {
    const PlanRow *row = &plan->rows[i];
    if (!strategy_facts(row->strategy)->right_answers || row->loss_not_modelled) continue;
    if (!row->other_groups)
      plan->best = row;
    else if (!plan->trained)
      plan->trained = row;
  }
  const PlanRow *best = plan->best, *trained = plan->trained;
  char name[PART], more[PART + 40] = "";
  if (trained) snprintf(more, sizeof more, "; with training, %s: %.1f ms", describe(trained, name), 1e3 * trained->latency);
  if (best->devices == 1)
    snprintf(plan->decision, sizeof plan->decision, "one device is faster%s: %.1f ms%s", trained ? " than what needs no training" : "",
             1e3 * best->latency, more);
  else
    snprintf(plan->decision, sizeof plan->decision, "use %s: %.1f ms, %.2f times as fast as one%s", describe(best, name),
             1e3 * best->latency, best->speedup, more);
}

bool planner_possible(const ModelConfig *config, Strategy strategy, int devices, int64_t tokens, int retained) {
  const TensorParallel how = {.strategy = strategy, .retained = retained};
  const TokenLayout layout = {.rows = 1};
  if (devices == 1) return true;
  if (devices > tokens) return false;
  if (strategy_facts(strategy)->divides_tokens) return true;
  return devices <= config->kv_heads && devices <= COLLECTIVE_NODES &&
         tensor_parallel_steps(config, &how, 1, &layout, MODEL_ROWS_ALL, NULL) <= COLLECTIVE_STEPS;
}

Status planner_check_groups(const PlannerSetup *setup) {
  const int64_t width = config_site_width(setup->config);
  for (int g = 0; g < setup->group_count; g++)
    if (setup->groups[g] < 1 || width % setup->groups[g])
      return status_set(STATUS_BAD_VALUE, "%d groups do not divide a width of %lld", setup->groups[g], (long long)width);
  return STATUS_OK;
}

Status planner_run(const PlannerSetup *setup, Plan *plan) {
  *plan = (Plan){0};
  if (setup->devices < 1 || setup->devices > WIRE_NODES)
    return status_set(STATUS_BAD_VALUE, "%d devices: a plan is for 1 to %d", setup->devices, WIRE_NODES);
  if (setup->tokens < 1) return status_set(STATUS_BAD_VALUE, "%lld tokens: a plan needs one at least", (long long)setup->tokens);
  TRY(planner_check_groups(setup));
  size_t max = 1 + (size_t)setup->devices * (STRATEGY_COUNT + (size_t)setup->group_count);
  plan->rows = calloc(max, sizeof *plan->rows);
  if (!plan->rows) return status_set(STATUS_NO_MEMORY, "no memory for a plan of %zu rows", max);
  Status status = add_row(setup, STRATEGY_SINGLE, 0, 1, plan);
  for (int devices = 2; devices <= setup->devices; devices++) {
    for (int s = 0; status == STATUS_OK && (setup->counts_tried >> (devices - 1) & 1) && s < STRATEGY_COUNT; s++) {
      if (!(setup->strategies >> s & 1) || s == STRATEGY_SINGLE) continue;
      if (!planner_possible(setup->config, (Strategy)s, devices, setup->tokens, setup->retained)) continue;
      if (s != STRATEGY_ASTRA) status = add_row(setup, (Strategy)s, 0, devices, plan);
      for (int g = 0; status == STATUS_OK && s == STRATEGY_ASTRA && g < setup->group_count; g++)
        status = add_row(setup, STRATEGY_ASTRA, setup->groups[g], devices, plan);
    }
  }
  if (status != STATUS_OK) {
    planner_release(plan);
    return status;
  }
  finish(plan);
  return STATUS_OK;
}

void planner_release(Plan *plan) {
  free(plan->rows);
  *plan = (Plan){0};
}
