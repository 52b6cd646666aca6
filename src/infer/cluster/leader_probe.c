/* Measurements before the first epoch: all devices compute at the same time, as they will later; then the connections to workers, one by
 * one. */
#include "base/clock.h"
#include "base/log.h"
#include "infer/cluster/hello.h"
#include "infer/cluster/leader_internal.h"
#include <math.h>
#include <stdlib.h>

enum { ROUND_TRIPS = 5, FIRST_BURST = 1 << 13 /* bytes: fits the window that a TCP connection begins with */, LAST_BURSTS = 3 };
static const double long_enough = 0.02; /* seconds that a burst must last to measure a rate; otherwise one twice as long follows */
static const double round_trips = 2;    /* ... and that many round trips: one that waits for its window to open lasts one more */
static const double slice_seconds = 0.01;
static const double frame = 1514.0 / 1448; /* bytes on the wire per byte of a stream */
static const double max_rate = 1e12;

typedef struct Probe {
  Membership *membership;
  uint8_t *message;                                          /* [WIRE_HEADER + PROBE_MAX] to a worker */
  uint8_t *payload;                                          /* [PROBE_MAX] from it */
  uint8_t (*asked)[WIRE_HEADER], (*profiles)[PROFILE_BYTES]; /* [count] */
  WireHeader *due;                                           /* [count] the PROBE that is not answered yet; kind 0: none */
} Probe;

/* ---- messages of devices: measurements are taken here, all others are passed on */

static Status place_message(void *context, Connection *from, const WireHeader *header, uint8_t **payload) {
  Probe *p = context;
  const ConnectionSink *others = &p->membership->sink;
  const WireHeader *due = &p->due[from->peer];
  if (header->kind != WIRE_PROFILE) return others->place(others->context, from, header, payload);
  uint32_t bytes = due->request == PROBE_COMPUTE ? PROFILE_BYTES : due->count;
  if (due->kind != WIRE_PROBE || header->request != due->request || header->count != due->count || header->bytes != bytes)
    return status_set(STATUS_BAD_VALUE, "sent a measurement of %u bytes that was not requested", header->bytes);
  *payload = due->request == PROBE_COMPUTE ? p->profiles[from->peer] : p->payload;
  return STATUS_OK;
}

static Status deliver_message(void *context, Connection *from, const WireHeader *header, uint8_t *payload) {
  Probe *p = context;
  const ConnectionSink *others = &p->membership->sink;
  if (header->kind != WIRE_PROFILE) return others->deliver(others->context, from, header, payload);
  p->membership->devices[from->peer].heard = clock_now();
  p->due[from->peer].kind = 0;
  return STATUS_OK;
}

static void receive(Probe *p, bool measurements) {
  for (int m = 0; m < p->membership->count; m++) {
    ConnectionSink *sink = &p->membership->devices[m].connection.sink;
    *sink = p->membership->sink;
    if (measurements) sink->context = p, sink->place = place_message, sink->deliver = deliver_message;
  }
}

/* ---- asking, and waiting */

static bool is_here(const Probe *p, int m) { return p->membership->devices[m].state == DEVICE_HERE; }

/* Drops a failed device, if the options allow it. */
static Status lose(Probe *p, int m, Status status) {
  char name[MEMBERSHIP_NAME];
  bool known = false;
  p->due[m].kind = 0;
  if (p->membership->devices[m].forked) status = membership_explain(p->membership, status, status == STATUS_PEER, &known);
  if (!known && status != STATUS_INTERRUPTED) status = status_wrap(status, "%s", membership_name(p->membership, m, name));
  if (p->membership->cluster->on_failure == ON_FAILURE_ABORT || status == STATUS_INTERRUPTED) return status;
  log_warning("%s; going on without it", status_message());
  membership_drop(p->membership, m, false);
  return STATUS_OK;
}

static Status wait_for(Probe *p, int m, double until) {
  while (is_here(p, m) && p->due[m].kind) {
    Status status = STATUS_OK;
    if (p->membership->stop && *p->membership->stop) status = status_set(STATUS_INTERRUPTED, "interrupted");
    if (status == STATUS_OK) {
      membership_ping(p->membership);
      status = connections_step(&(Connection *){&p->membership->devices[m].connection}, 1, slice_seconds);
    }
    if (status == STATUS_OK && clock_now() >= until)
      status = status_set(STATUS_TIMEOUT, "could not be measured within %g s; --timeout gives it longer", p->membership->timeout);
    if (status != STATUS_OK) TRY(lose(p, m, status));
  }
  return STATUS_OK;
}

static Status ask(Probe *p, int m, WireHeader probe, uint8_t *message) {
  probe.kind = WIRE_PROBE;
  probe.sender = WIRE_LEADER;
  p->due[m] = probe;
  wire_pack(&probe, message);
  Status status = connection_send(&p->membership->devices[m].connection, message, WIRE_HEADER + (size_t)probe.bytes);
  if (status == STATUS_OK) status = connections_step(&(Connection *){&p->membership->devices[m].connection}, 1, 0);
  return status == STATUS_OK ? STATUS_OK : lose(p, m, status);
}

/* ---- links */

/* Seconds until `back` bytes have come for `there` bytes. */
static Status trip(Probe *p, int m, uint32_t there, uint32_t back, double *seconds) {
  double begun = clock_now();
  *seconds = INFINITY;
  if (!is_here(p, m)) return STATUS_OK;
  TRY(ask(p, m, (WireHeader){.request = PROBE_LINK, .count = back, .bytes = there}, p->message));
  TRY(wait_for(p, m, begun + p->membership->timeout));
  *seconds = clock_now() - begun;
  return STATUS_OK;
}

/* Each burst opens the connection's window for the next one, of twice its bytes, until one lasts long enough, or is the largest. Of
 * LAST_BURSTS of that size the fastest counts: where a stall made one long, the next of its size is not, and larger ones follow.
 * *round_trip is lowered by what comes back sooner. */
static Status measure_rate(Probe *p, int m, bool back, double *round_trip, double *rate) {
  double best = INFINITY;
  uint32_t bytes = FIRST_BURST;
  for (int alike = 0; alike < LAST_BURSTS; alike++) {
    double seconds;
    TRY(trip(p, m, back ? 0 : bytes, back ? bytes : 0, &seconds));
    if (!is_here(p, m)) return STATUS_OK;
    *round_trip = fmin(*round_trip, seconds);
    best = fmin(best, seconds);
    if (bytes == PROBE_MAX || best - *round_trip >= fmax(long_enough, round_trips * *round_trip)) continue;
    bytes *= 2;
    best = INFINITY;
    alike = -1;
  }
  *rate = fmin(max_rate, 8 * frame * bytes / (best - fmin(*round_trip, best / 2)));
  return STATUS_OK;
}

static Status measure_link(Probe *p, int m, DeviceMeasure *measure) {
  measure->round_trip = INFINITY;
  for (int i = 0; i < ROUND_TRIPS; i++) {
    double seconds;
    TRY(trip(p, m, 0, 0, &seconds));
    measure->round_trip = fmin(measure->round_trip, seconds);
  }
  TRY(measure_rate(p, m, false, &measure->round_trip, &measure->to));
  TRY(measure_rate(p, m, true, &measure->round_trip, &measure->from));
  measure->linked = is_here(p, m);
  return STATUS_OK;
}

/* ---- all */

static Status measure_all(Probe *p, int64_t tokens, DeviceMeasure *measured) {
  int here = 0;
  double until = clock_now() + p->membership->timeout;
  const WireHeader wanted = {.request = PROBE_COMPUTE, .count = (uint32_t)tokens};
  for (int m = 0; m < p->membership->count; m++)
    if (is_here(p, m)) TRY(ask(p, m, wanted, p->asked[m]));
  for (int m = 0; m < p->membership->count; m++) {
    TRY(wait_for(p, m, until));
    Status status = is_here(p, m) ? hello_profile(byte_cursor_from(p->profiles[m]), &measured[m].profile) : STATUS_OK;
    if (status != STATUS_OK) TRY(lose(p, m, status));
  }
  for (int m = 0; m < p->membership->count; m++)
    if (!p->membership->devices[m].forked && is_here(p, m)) TRY(measure_link(p, m, &measured[m]));
  for (int m = 0; m < p->membership->count; m++) here += measured[m].here = is_here(p, m);
  return here > 0 ? STATUS_OK : status_set(STATUS_PEER, "no device is left to measure");
}

Status leader_probe_run(Membership *membership, int64_t tokens, DeviceMeasure *measured) {
  size_t devices = (size_t)membership->count;
  Probe p = {.membership = membership,
             .message = calloc(1, WIRE_HEADER + PROBE_MAX),
             .payload = malloc(PROBE_MAX),
             .asked = calloc(devices, sizeof *p.asked),
             .profiles = calloc(devices, sizeof *p.profiles),
             .due = calloc(devices, sizeof *p.due)};
  bool memory = p.message && p.payload && p.asked && p.profiles && p.due;
  receive(&p, true);
  Status status = memory ? measure_all(&p, tokens, measured) : status_no_memory(NULL, "measuring devices");
  receive(&p, false);
  /* Unfinished messages use memory that is freed now. */
  for (int m = 0; status != STATUS_OK && m < membership->count; m++) connection_close(&membership->devices[m].connection);
  free(p.message);
  free(p.payload);
  free(p.asked);
  free(p.profiles);
  free(p.due);
  return status;
}
