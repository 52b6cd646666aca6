/* See split_measured.h. */
#include "infer/plan/split_measured.h"
#include <math.h>

LinkOptions split_measured_links(const LeaderMeasure *measured, int nodes, const LinkOptions *given) {
  LinkOptions links = {0};
  if (given) return *given;
  for (int d = 0; d < nodes; d++) {
    double rate = fmin(measured[d].to, measured[d].from);
    if (!measured[d].here || !measured[d].linked) continue;
    if (links.bits_per_second <= 0 || rate < links.bits_per_second) links.bits_per_second = rate;
    links.latency = fmax(links.latency, measured[d].round_trip / 2);
  }
  return links;
}

static double speed_of(const LeaderMeasure *measure) { return measure->profile.linear[PROFILE_SIZES - 1]; }

void split_measured_profiles(const LeaderMeasure *measured, int nodes, DeviceProfile *profiles) {
  int slowest = -1;
  for (int d = 0; d < nodes; d++)
    if (measured[d].here && (slowest < 0 || speed_of(&measured[d]) > speed_of(&measured[slowest]))) slowest = d;
  for (int d = 0; d < nodes; d++) profiles[d] = measured[measured[d].here || slowest < 0 ? d : slowest].profile;
}

Status split_measured_run(const PlanCase *plan, const LeaderMeasure *measured, int nodes, const LinkOptions *given, MeasuredSplit *split) {
  DeviceProfile profiles[WIRE_NODES];
  double rates[WIRE_NODES];
  const LinkOptions links = split_measured_links(measured, nodes, given);
  PlanCase all = *plan;
  int chosen[WIRE_NODES], used;
  int64_t counts[WIRE_NODES];
  SimResult result;
  *split = (MeasuredSplit){.bits_per_second = links.bits_per_second, .latency = links.latency};
  split_measured_profiles(measured, nodes, profiles);
  all.devices = nodes;
  all.profiles = profiles;
  all.links = &links;
  all.input_rates = rates;
  for (int d = 0; d < nodes; d++) rates[d] = measured[d].linked ? measured[d].to : 0;
  TRY(split_auto_counts(&all, split->counts, &result));
  split->predicted = result.latency;
  TRY(split_auto_devices(&all, chosen, &used, counts, &result));
  split->without = result.latency;
  for (int i = 0; i < used; i++) split->fewer |= 1ull << chosen[i];
  return STATUS_OK;
}
