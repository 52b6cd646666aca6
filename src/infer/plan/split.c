/* Bisection on the time that every device may take, then a hill-climb with the simulation. The simulation alone knows what is hidden; the
 * bisection only has to begin near by. */
#include "infer/plan/split.h"
#include <math.h>
#include <string.h>

static const double worth_cutting = 0.98; /* less than a fiftieth may be the noise of what was measured */

enum { BISECTIONS = 40, FIRST_MOVE = 16 /* of all tokens, the largest move's share */ };

/* Seconds that a device with so many tokens, and so many before it, needs for a block by itself: what it computes, and its codes on one
 * link where they take longer than that. */
static double alone(const PlanCase *plan, int device, int64_t before, int64_t tokens) {
  int64_t counts[WIRE_NODES];
  memset(counts, 0, sizeof counts);
  if (device > 0) counts[0] = before;
  counts[device] = tokens;
  PlanCase one = *plan;
  one.counts = counts;
  const DeviceShare share = {.device = device, .devices = plan->devices, .own = tokens, .before = before, .tokens = plan->tokens};
  double computing = predict_block_seconds(&one, device) * (plan->scale > 0 ? plan->scale : 1);
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

/* On links that lose nothing and do not waver, so that no split is chosen for the luck of one request. */
static Status try_counts(const PlanCase *plan, const int64_t *counts, SimResult *result) {
  PlanCase tried = *plan;
  LinkOptions calm = *plan->links;
  calm.loss = calm.jitter = 0;
  tried.links = &calm;
  tried.counts = counts;
  return predict_latency(&tried, result);
}

static Status predict_counts(const PlanCase *plan, const int64_t *counts, SimResult *result) {
  PlanCase chosen = *plan;
  chosen.counts = counts;
  return predict_latency(&chosen, result);
}

/* As good as each other: a move from or to either comes to the same. Not so in a decoder, whose devices have an order. */
static bool alike(const PlanCase *plan, const int64_t *counts, int a, int b) {
  if (config_is_decoder(plan->config)) return false;
  if (plan->input_bytes > 0 && plan->input_rates[a] != plan->input_rates[b]) return false;
  if (plan->ends && memcmp(&plan->ends[a], &plan->ends[b], sizeof *plan->ends) != 0) return false;
  return counts[a] == counts[b] && memcmp(&plan->profiles[a], &plan->profiles[b], sizeof *plan->profiles) == 0;
}

/* An earlier one than `device`, and not `besides`, is like it. */
static bool tried_before(const PlanCase *plan, const int64_t *counts, int device, int besides) {
  for (int d = 0; d < device; d++)
    if (d != besides && alike(plan, counts, d, device)) return true;
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
      Status status = try_counts(plan, counts, &result);
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

Status split_auto_counts(const PlanCase *plan, int64_t *counts, SimResult *result) {
  bool divided = plan->devices > 1 && strategy_facts(plan->strategy)->divides_tokens;
  TRY(begin(plan, counts));
  if (divided) TRY(try_counts(plan, counts, result));
  if (divided) TRY(climb(plan, counts, result));
  return predict_counts(plan, counts, result);
}

Status split_auto_parts(PlanCase *plan, int wanted) {
  static const int choices[] = {1, 2, 4, 8};
  bool cut = plan->strategy == STRATEGY_ASTRA && plan->devices > 1 && !config_is_decoder(plan->config);
  int64_t counts[WIRE_NODES];
  double best = INFINITY;
  int chosen = cut && wanted > 0 ? wanted : 1;
  for (size_t i = 0; cut && wanted == 0 && i < sizeof choices / sizeof *choices; i++) {
    SimResult result;
    plan->parts = choices[i];
    TRY(begin(plan, counts)); /* where the climb would begin */
    TRY(predict_counts(plan, counts, &result));
    if (result.latency < worth_cutting * best) best = result.latency, chosen = plan->parts;
  }
  plan->parts = chosen;
  return STATUS_OK;
}

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
  return split_auto_counts(&some, counts, result);
}

static int fewest(const int64_t *counts, int used) {
  int min = 0;
  for (int i = 1; i < used; i++) min = counts[i] < counts[min] ? i : min;
  return min;
}

/* As split_auto_counts, and devices may be left out: those [0, *used) of chosen [plan->devices] serve, the best of the sets that remain
 * when the device with the fewest tokens is dropped again and again; counts [*used] belongs to them. */
static Status split_devices(const PlanCase *plan, int *chosen, int *used, int64_t *counts, SimResult *result) {
  int rest[WIRE_NODES];
  int64_t fewer[WIRE_NODES];
  *used = plan->devices;
  TRY(split_auto_counts(plan, counts, result));
  for (int i = 0; i < plan->devices; i++) chosen[i] = rest[i] = i, fewer[i] = counts[i];
  /* Down to one, whatever lies between: where links are slow two devices can be worse than three, and one better than all. */
  for (int left = plan->devices - 1; left > 0; left--) {
    SimResult without;
    for (int i = fewest(fewer, left + 1); i < left; i++) rest[i] = rest[i + 1];
    TRY(split_chosen(plan, rest, left, fewer, &without));
    if (without.latency >= result->latency) continue;
    memcpy(chosen, rest, (size_t)left * sizeof *chosen);
    memcpy(counts, fewer, (size_t)left * sizeof *counts);
    *used = left;
    *result = without;
  }
  return STATUS_OK;
}

/* ---- devices that were measured just now */

LinkEnd split_measured_slowest(const LinkEnd *ends, int nodes) {
  LinkEnd slowest = {0};
  for (int d = 0; d < nodes; d++)
    slowest = (LinkEnd){.out = link_slower(slowest.out, ends[d].out),
                        .in = link_slower(slowest.in, ends[d].in),
                        .latency = fmax(slowest.latency, ends[d].latency)};
  return slowest;
}

void split_measured_ends(const LeaderMeasure *measured, int nodes, LinkEnd *ends) {
  LinkEnd leader = {0};
  for (int d = 0; d < nodes; d++) {
    bool known = measured[d].here && measured[d].linked;
    ends[d] = (LinkEnd){0};
    if (known) ends[d] = (LinkEnd){.out = measured[d].from, .in = measured[d].to, .latency = measured[d].round_trip / 2};
    leader = (LinkEnd){.out = fmax(leader.out, ends[d].in), .in = fmax(leader.in, ends[d].out)};
  }
  const LinkEnd slowest = split_measured_slowest(ends, nodes);
  for (int d = 0; d < nodes; d++)
    if (!measured[d].here)
      ends[d] = slowest;
    else if (!measured[d].linked)
      ends[d] = leader;
}

static double speed_of(const LeaderMeasure *measure) { return measure->profile.linear[PROFILE_SIZES - 1]; }

Status split_measured_run(const PlanCase *plan, const LeaderMeasure *measured, int nodes, const LinkOptions *given, MeasuredSplit *split) {
  DeviceProfile profiles[WIRE_NODES];
  double rates[WIRE_NODES];
  const LinkOptions links = given ? *given : (LinkOptions){.topology = LINK_SWITCH};
  PlanCase all = *plan;
  int chosen[WIRE_NODES], used;
  int64_t counts[WIRE_NODES];
  SimResult result;
  *split = (MeasuredSplit){.bits_per_second = links.bits_per_second, .latency = links.latency};
  /* A device that is not here is taken to be as slow as the slowest that is, its input's transfer likewise; one beside the leader has its
   * input at once. */
  int slowest = -1;
  double slowest_rate = 0;
  for (int d = 0; d < nodes; d++) {
    if (measured[d].here && (slowest < 0 || speed_of(&measured[d]) > speed_of(&measured[slowest]))) slowest = d;
    if (measured[d].here && measured[d].linked) slowest_rate = link_slower(slowest_rate, measured[d].to);
  }
  for (int d = 0; d < nodes; d++) {
    profiles[d] = measured[measured[d].here || slowest < 0 ? d : slowest].profile;
    rates[d] = !measured[d].here ? slowest_rate : measured[d].linked ? measured[d].to : 0;
  }
  if (!given) {
    split_measured_ends(measured, nodes, split->ends);
    const LinkEnd end = split_measured_slowest(split->ends, nodes);
    split->bits_per_second = link_slower(end.out, end.in);
    split->latency = end.latency;
  }
  all.devices = nodes;
  all.profiles = profiles;
  all.links = &links;
  all.ends = given ? NULL : split->ends;
  all.input_rates = rates;
  TRY(split_auto_parts(&all, plan->parts));
  split->parts = all.parts;
  TRY(split_auto_counts(&all, split->counts, &result));
  split->predicted = result.latency;
  TRY(split_devices(&all, chosen, &used, counts, &result));
  split->without = result.latency;
  for (int i = 0; i < used; i++) split->fewer |= 1ull << chosen[i];
  return STATUS_OK;
}
