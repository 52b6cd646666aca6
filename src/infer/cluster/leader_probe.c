/* Measuring, before the first epoch: all devices compute at the same time, as they will; then the ways to workers, one after the other. */
#include "base/clock.h"
#include "base/log.h"
#include "infer/cluster/leader_internal.h"
#include "infer/cluster/probe_message.h"
#include <math.h>
#include <stdlib.h>

enum { ROUND_TRIPS = 5, SHORT_BURST = 1 << 14 };
static const double long_enough = 0.02; /* seconds of a burst that tell a rate; a shorter one is followed by one of PROBE_MAX */
static const double slice_seconds = 0.01;
static const double frame = 1514.0 / 1448; /* bytes on a wire to those of a stream */
static const double max_rate = 1e12;

typedef struct LeaderProbe {
  uint8_t *message;                                          /* [WIRE_HEADER + PROBE_MAX] to a worker */
  uint8_t *payload;                                          /* [PROBE_MAX] from it */
  uint8_t (*asked)[WIRE_HEADER], (*profiles)[PROFILE_BYTES]; /* [member_count] */
  WireHeader *due;                                           /* [member_count] the PROBE under way; kind 0: none */
} LeaderProbe;

/* ---- what devices say */

Status leader_probe_place(Leader *leader, int m, const WireHeader *header, uint8_t **payload) {
  const WireHeader *due = &leader->probe->due[m];
  uint32_t bytes = due->request == PROBE_COMPUTE ? PROFILE_BYTES : due->count;
  if (due->kind != WIRE_PROBE || header->request != due->request || header->count != due->count || header->bytes != bytes)
    return status_set(STATUS_BAD_VALUE, "sent a measurement of %u bytes that nobody asked for", header->bytes);
  *payload = due->request == PROBE_COMPUTE ? leader->probe->profiles[m] : leader->probe->payload;
  return STATUS_OK;
}

void leader_probe_deliver(Leader *leader, int m) { leader->probe->due[m].kind = 0; }

/* ---- asking, and waiting */

static bool is_here(const Leader *leader, int m) { return leader->membership.members[m].state == MEMBER_HERE; }

/* One that fails is left behind where that is allowed. */
static Status lose(Leader *leader, int m, Status status) {
  char name[LEADER_NAME];
  leader->probe->due[m].kind = 0;
  if (leader->membership.members[m].forked)
    status = leader_wait_explain(leader, status);
  else
    status = status_wrap(status, "%s", leader_name(leader, m, name));
  if (leader->cluster.on_failure == ON_FAILURE_ABORT || status == STATUS_INTERRUPTED) return status;
  log_warning("%s; going on without it", status_message());
  leader_members_drop(leader, m);
  return STATUS_OK;
}

static Status step(Leader *leader, int m, double until) {
  if (leader->options.stop && *leader->options.stop) return status_set(STATUS_INTERRUPTED, "interrupted");
  leader_members_ping(leader);
  Status status = connections_step(&(Connection *){&leader->membership.members[m].connection}, 1, slice_seconds);
  if (status != STATUS_OK || clock_now() < until) return status;
  return status_set(STATUS_TIMEOUT, "could not be measured within %g s; --timeout gives it longer", leader->options.timeout);
}

static Status wait_for(Leader *leader, int m, double until) {
  while (is_here(leader, m) && leader->probe->due[m].kind) {
    Status status = step(leader, m, until);
    if (status != STATUS_OK) TRY(lose(leader, m, status));
  }
  return STATUS_OK;
}

static Status ask(Leader *leader, int m, WireHeader probe, uint8_t *message) {
  probe.kind = WIRE_PROBE;
  probe.sender = WIRE_LEADER;
  leader->probe->due[m] = probe;
  wire_pack(&probe, message);
  Status status = connection_send(&leader->membership.members[m].connection, message, WIRE_HEADER + (size_t)probe.bytes);
  if (status == STATUS_OK) status = connections_step(&(Connection *){&leader->membership.members[m].connection}, 1, 0);
  return status == STATUS_OK ? STATUS_OK : lose(leader, m, status);
}

/* ---- computing */

static Status measure_computing(Leader *leader, LeaderMeasure *measured) {
  LeaderProbe *probe = leader->probe;
  double until = clock_now() + leader->options.timeout;
  const WireHeader wanted = {.request = PROBE_COMPUTE, .count = (uint32_t)config_tokens(leader->setup.weights->config)};
  for (int m = 0; m < leader->membership.count; m++)
    if (is_here(leader, m)) TRY(ask(leader, m, wanted, probe->asked[m]));
  for (int m = 0; m < leader->membership.count; m++) {
    TRY(wait_for(leader, m, until));
    Status status = is_here(leader, m) ? probe_message_parse(probe->profiles[m], &measured[m].profile) : STATUS_OK;
    if (status != STATUS_OK) TRY(lose(leader, m, status));
  }
  return STATUS_OK;
}

/* ---- links */

/* Seconds until `back` bytes have come for `there` bytes. */
static Status trip(Leader *leader, int m, uint32_t there, uint32_t back, double *seconds) {
  double begun = clock_now();
  *seconds = INFINITY;
  if (!is_here(leader, m)) return STATUS_OK;
  TRY(ask(leader, m, (WireHeader){.request = PROBE_LINK, .count = back, .bytes = there}, leader->probe->message));
  TRY(wait_for(leader, m, begun + leader->options.timeout));
  *seconds = clock_now() - begun;
  return STATUS_OK;
}

static Status measure_rate(Leader *leader, int m, bool back, double round_trip, double *rate) {
  uint32_t bytes = SHORT_BURST;
  double seconds;
  TRY(trip(leader, m, back ? 0 : bytes, back ? bytes : 0, &seconds));
  if (seconds - round_trip < long_enough) {
    bytes = PROBE_MAX;
    TRY(trip(leader, m, back ? 0 : bytes, back ? bytes : 0, &seconds));
  }
  *rate = fmin(max_rate, 8 * frame * bytes / fmax(seconds - round_trip, 1e-9));
  return STATUS_OK;
}

static Status measure_link(Leader *leader, int m, LeaderMeasure *measure) {
  measure->round_trip = INFINITY;
  for (int i = 0; i < ROUND_TRIPS; i++) {
    double seconds;
    TRY(trip(leader, m, 0, 0, &seconds));
    measure->round_trip = fmin(measure->round_trip, seconds);
  }
  TRY(measure_rate(leader, m, false, measure->round_trip, &measure->to));
  TRY(measure_rate(leader, m, true, measure->round_trip, &measure->from));
  measure->linked = is_here(leader, m);
  return STATUS_OK;
}

/* ---- all */

static Status measure_all(Leader *leader, LeaderMeasure *measured) {
  int here = 0;
  TRY(measure_computing(leader, measured));
  for (int m = 0; m < leader->membership.count; m++)
    if (!leader->membership.members[m].forked && is_here(leader, m)) TRY(measure_link(leader, m, &measured[m]));
  for (int m = 0; m < leader->membership.count; m++) here += measured[m].here = is_here(leader, m);
  return here > 0 ? STATUS_OK : status_set(STATUS_PEER, "no device is left to measure");
}

Status leader_probe_run(Leader *leader, LeaderMeasure *measured) {
  size_t members = (size_t)leader->membership.count;
  LeaderProbe probe = {.message = calloc(1, WIRE_HEADER + PROBE_MAX),
                       .payload = malloc(PROBE_MAX),
                       .asked = calloc(members, sizeof *probe.asked),
                       .profiles = calloc(members, sizeof *probe.profiles),
                       .due = calloc(members, sizeof *probe.due)};
  bool memory = probe.message && probe.payload && probe.asked && probe.profiles && probe.due;
  leader->probe = &probe;
  Status status = memory ? measure_all(leader, measured) : status_set(STATUS_NO_MEMORY, "no memory to measure devices");
  leader->probe = NULL;
  /* What is under way reads and writes memory that goes now. */
  for (int m = 0; status != STATUS_OK && m < leader->membership.count; m++) connection_close(&leader->membership.members[m].connection);
  free(probe.message);
  free(probe.payload);
  free(probe.asked);
  free(probe.profiles);
  free(probe.due);
  return status;
}
