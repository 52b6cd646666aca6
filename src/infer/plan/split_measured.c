/* See split_measured.h. */
#include "infer/plan/split_measured.h"
#include <math.h>

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

void split_measured_profiles(const LeaderMeasure *measured, int nodes, DeviceProfile *profiles) {
  int slowest = -1;
  for (int d = 0; d < nodes; d++)
    if (measured[d].here && (slowest < 0 || speed_of(&measured[d]) > speed_of(&measured[slowest]))) slowest = d;
  for (int d = 0; d < nodes; d++) profiles[d] = measured[measured[d].here || slowest < 0 ? d : slowest].profile;
}

static void take_links(const LeaderMeasure *measured, int nodes, MeasuredSplit *split) {
  split_measured_ends(measured, nodes, split->ends);
  const LinkEnd slowest = split_measured_slowest(split->ends, nodes);
  split->bits_per_second = link_slower(slowest.out, slowest.in);
  split->latency = slowest.latency;
}

/* Of a device that is not here as of the slowest; one beside the leader has its input at once. */
static void input_rates(const LeaderMeasure *measured, int nodes, double *rates) {
  double slowest = 0;
  for (int d = 0; d < nodes; d++)
    if (measured[d].here && measured[d].linked) slowest = link_slower(slowest, measured[d].to);
  for (int d = 0; d < nodes; d++) rates[d] = !measured[d].here ? slowest : measured[d].linked ? measured[d].to : 0;
}

Status split_measured_run(const PlanCase *plan, const LeaderMeasure *measured, int nodes, const LinkOptions *given, MeasuredSplit *split) {
  DeviceProfile profiles[WIRE_NODES];
  double rates[WIRE_NODES];
  const LinkOptions links = given ? *given : (LinkOptions){.topology = LINK_SWITCH};
  PlanCase all = *plan;
  int chosen[WIRE_NODES], used;
  int64_t counts[WIRE_NODES];
  SimResult result;
  *split = (MeasuredSplit){.bits_per_second = links.bits_per_second, .latency = links.latency};
  split_measured_profiles(measured, nodes, profiles);
  if (!given) take_links(measured, nodes, split);
  all.devices = nodes;
  all.profiles = profiles;
  all.links = &links;
  all.ends = given ? NULL : split->ends;
  all.input_rates = rates;
  input_rates(measured, nodes, rates);
  TRY(split_auto_parts(&all, plan->parts));
  split->parts = all.parts;
  TRY(split_auto_counts(&all, split->counts, &result));
  split->predicted = result.latency;
  TRY(split_auto_devices(&all, chosen, &used, counts, &result));
  split->without = result.latency;
  for (int i = 0; i < used; i++) split->fewer |= 1ull << chosen[i];
  return STATUS_OK;
}
