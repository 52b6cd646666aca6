/* The simulation: devices go through their timelines, the queue says who is next. */
#include "infer/virtual/net_sim.h"
#include "infer/virtual/sim_network.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { BLOCKS = 256 /* that an event can name */ };
static const double GRACE_LEAST = 1e-3, QUERY_LEAST = 2e-3;

typedef struct Runner {
  int next;                                        /* event of its timeline */
  int pending;                                     /* groups that it waits for; 0: it runs */
  double since;                                    /* when it began to wait */
  double first_sent[BLOCKS], last_arrived[BLOCKS]; /* INFINITY, -INFINITY: never */
} Runner;

typedef struct Simulation {
  const Timeline *devices;
  int count;
  const SimOptions *options;
  Reliability rules;
  double scale, round_trip, grace, query_every;
  SimQueue queue;
  SimGroups groups;
  SimNetwork network;
  Runner *runners; /* [count] */
  SimResult *result;
} Simulation;

/* ---- groups that are waited for */

static const char *group_name(const SimGroup *group, char text[96]) {
  snprintf(text, 96, "block %d, site %d, part %d of device %d", group->event->block, group->event->site, group->event->part, group->sender);
  return text;
}

static Status put(Simulation *sim, double time, SimKind kind, int what) {
  return sim_queue_put(&sim->queue, (SimEvent){.time = time, .kind = kind, .what = what});
}

static int index_of(const Simulation *sim, const SimGroup *group) { return (int)(group - sim->groups.list); }

/* The receiver goes on without what is missing, if anything is. */
static Status decide(Simulation *sim, SimGroup *group, double now, bool late) {
  SimDevice *device = &sim->result->device[group->receiver];
  Runner *runner = &sim->runners[group->receiver];
  int repaired, missing;
  sim_groups_missing(group, &repaired, &missing);
  group->decided = true;
  device->packets_recovered += (uint64_t)repaired;
  *(late ? &device->packets_late : &device->packets_lost) += (uint64_t)missing;
  if (!group->waited || --runner->pending > 0) return STATUS_OK;
  device->wait += now - runner->since;
  return put(sim, now, SIM_RUN, group->receiver);
}

/* When the receiver asks next, at `now` or later, so that the question finds the group sent. */
static double asks_at(const Simulation *sim, const SimGroup *group, double now) {
  double first = group->waiting + sim->grace, least = fmax(now, group->left - sim->round_trip / 2);
  return least <= first ? first : first + ceil((least - first) / sim->query_every) * sim->query_every;
}

/* All packets of a group that the receiver waits for have come or are lost: what now? */
static Status consider(Simulation *sim, SimGroup *group, double now) {
  if (group->decided || !group->sent || group->under_way > 0) return STATUS_OK;
  if (sim_groups_whole(group)) return decide(sim, group, now, false);
  if (!group->waited) return STATUS_OK;
  char name[96];
  if (sim->rules.timeout > 0 && now - group->waiting > sim->rules.timeout)
    return status_set(STATUS_TIMEOUT, "device %d still lacks packets of %s after %g s", group->receiver, group_name(group, name),
                      sim->rules.timeout);
  double told = asks_at(sim, group, now) + sim->round_trip;
  if (sim->rules.mode == RELIABILITY_RETRANSMIT) return put(sim, told - sim->round_trip / 2, SIM_ASKED, index_of(sim, group));
  return put(sim, told + sim->grace, SIM_GIVE_UP, index_of(sim, group));
}

/* What parity cannot repair is sent once more; which of the packets these are makes no difference but their last byte. */
static Status resend(Simulation *sim, SimGroup *group, double now) {
  int repaired, missing;
  SimDevice *sender = &sim->result->device[group->sender];
  if (group->decided) return STATUS_OK;
  sim_groups_missing(group, &repaired, &missing);
  for (int i = 0; i < missing; i++)
    TRY(sim_network_send(&sim->network, &sim->queue, now, &sim->groups, (SimGroup *[]){group}, 1, i, &sender->bytes_sent));
  sender->packets_resent += (uint64_t)missing;
  return STATUS_OK;
}

/* An answer to a question, or the deadline of a group some of whose packets may still be on their way. */
static Status give_up(Simulation *sim, SimGroup *group, double now) {
  if (group->decided) return STATUS_OK;
  bool late = sim->rules.deadline > 0 && now >= group->waiting + sim->rules.deadline;
  return late || group->under_way == 0 ? decide(sim, group, now, late) : STATUS_OK;
}

static Status arrived(Simulation *sim, const SimEvent *event) {
  SimGroup *group = &sim->groups.list[event->what];
  double *last = &sim->runners[group->receiver].last_arrived[group->event->block];
  group->under_way--;
  if (!event->lost) {
    int data = (int)group->event->packets;
    SimCover *cover = &group->cover[event->packet < data ? event->packet / group->cover_size : event->packet - data];
    cover->arrived += event->packet < data;
    cover->parity |= event->packet >= data;
    *last = fmax(*last, event->time);
  }
  /* Repaired or whole: parity that is still under way is of no use any more. */
  if (!group->decided && group->sent && sim_groups_whole(group)) return decide(sim, group, event->time, false);
  return consider(sim, group, event->time);
}

/* ---- devices */

static Status send_group(Simulation *sim, int device, const Event *event, double now) {
  SimGroup *to[WIRE_NODES];
  int receivers = 0;
  for (int i = 1; i < sim->count; i++) {
    int peer = (device + i) % sim->count;
    if (event->peers >> peer & 1) to[receivers++] = sim_groups_find(&sim->groups, device, peer, event);
  }
  if (receivers == 0) return STATUS_OK;
  int parity = sim->rules.mode == RELIABILITY_FEC ? to[0]->covers : 0;
  double *first = &sim->runners[device].first_sent[event->block];
  *first = fmin(*first, now);
  for (int i = 0; i < receivers; i++) to[i]->sent = true;
  for (int packet = 0; packet < (int)event->packets + parity; packet++)
    TRY(sim_network_send(&sim->network, &sim->queue, now, &sim->groups, to, receivers, packet, &sim->result->device[device].bytes_sent));
  return STATUS_OK;
}

static Status wait_for(Simulation *sim, int device, const Event *event, double now) {
  Runner *runner = &sim->runners[device];
  runner->since = now;
  for (int peer = 0; peer < sim->count; peer++) {
    if (!(event->peers >> peer & 1)) continue;
    SimGroup *group = sim_groups_find(&sim->groups, peer, device, event);
    if (!group)
      return status_set(STATUS_BAD_VALUE, "device %d waits for block %d, site %d, part %d of device %d, which never sends it", device,
                        event->block, event->site, event->part, peer);
    if (group->decided) continue;
    runner->pending++;
    group->waited = true;
    group->waiting = now;
    if (sim->rules.deadline > 0) TRY(put(sim, now + sim->rules.deadline, SIM_GIVE_UP, index_of(sim, group)));
    TRY(consider(sim, group, now));
  }
  return STATUS_OK;
}

/* Until it computes, waits or is done. */
static Status run_device(Simulation *sim, int device, double now) {
  const Timeline *timeline = &sim->devices[device];
  Runner *runner = &sim->runners[device];
  sim->result->device[device].end = now - sim->options->start;
  while (runner->next < timeline->count) {
    const Event *event = &timeline->list[runner->next++];
    double seconds = event->seconds * sim->scale;
    switch (event->kind) {
    case EVENT_COMPUTE:
      sim->result->device[device].compute += seconds;
      return put(sim, now + seconds, SIM_RUN, device);
    case EVENT_SEND:
      TRY(send_group(sim, device, event, now));
      break;
    case EVENT_WAIT:
      TRY(wait_for(sim, device, event, now));
      if (runner->pending > 0) return STATUS_OK;
      break;
    }
  }
  return STATUS_OK;
}

static Status handle(Simulation *sim, const SimEvent *event) {
  switch (event->kind) {
  case SIM_RUN:
    return run_device(sim, event->what, event->time);
  case SIM_ENTER:
    return sim_network_enter(&sim->network, &sim->queue, &sim->groups, event);
  case SIM_ARRIVE:
    return arrived(sim, event);
  case SIM_ASKED:
    return resend(sim, &sim->groups.list[event->what], event->time);
  case SIM_GIVE_UP:
    return give_up(sim, &sim->groups.list[event->what], event->time);
  }
  return STATUS_OK;
}

/* ---- the whole */

static Status check_all_done(const Simulation *sim) {
  for (int d = 0; d < sim->count; d++)
    for (int i = 0; sim->runners[d].pending > 0 && i < sim->groups.count; i++) {
      const SimGroup *group = &sim->groups.list[i];
      char name[96];
      if (group->receiver == d && group->waited && !group->decided)
        return status_set(STATUS_BAD_VALUE, "device %d waits for ever for %s, which itself waits", d, group_name(group, name));
    }
  return STATUS_OK;
}

static void sum_spans(Simulation *sim) {
  for (int d = 0; d < sim->count; d++)
    for (int b = 0; b < BLOCKS; b++) {
      double span = sim->runners[d].last_arrived[b] - sim->runners[d].first_sent[b];
      if (isfinite(span)) sim->result->device[d].span += fmax(span, 0);
    }
}

static Status run(Simulation *sim) {
  SimEvent event;
  for (int d = 0; d < sim->count; d++) TRY(put(sim, sim->options->start, SIM_RUN, d));
  while (sim_queue_take(&sim->queue, &event)) TRY(handle(sim, &event));
  TRY(check_all_done(sim));
  sum_spans(sim);
  for (int d = 0; d < sim->count; d++) sim->result->latency = fmax(sim->result->latency, sim->result->device[d].end);
  return STATUS_OK;
}

static Status check(int count, const LinkOptions *links, const SimOptions *options) {
  const Reliability *rules = options->reliability;
  if (count < 1 || count > WIRE_NODES) return status_set(STATUS_BAD_VALUE, "%d devices: 1 to %d can be simulated", count, WIRE_NODES);
  if (!isfinite(options->scale) || options->scale < 0 || !isfinite(options->start) || options->start < 0)
    return status_set(STATUS_BAD_VALUE, "a scale of %g from %g s on: both must be finite and not negative", options->scale, options->start);
  if (rules && rules->mode == RELIABILITY_FEC && rules->fec < 1)
    return status_set(STATUS_BAD_VALUE, "parity for every %d packets: it needs 1 at least", rules->fec);
  if (links->loss > 0 && !links->lose_tokens && (!rules || rules->mode == RELIABILITY_STREAM))
    return status_set(STATUS_BAD_VALUE, "a stream hides the loss of packets: choose deadline, retransmit or fec");
  return STATUS_OK;
}

static void set_rules(Simulation *sim, const LinkOptions *links) {
  if (sim->options->reliability) sim->rules = *sim->options->reliability;
  sim->scale = sim->options->scale > 0 ? sim->options->scale : 1;
  sim->round_trip = 2 * links->latency;
  sim->grace = fmax(GRACE_LEAST, 2 * links->jitter);
  sim->query_every = fmax(QUERY_LEAST, 2 * sim->round_trip);
}

static Status prepare(Simulation *sim, const LinkOptions *links) {
  set_rules(sim, links);
  TRY(sim_groups_init(&sim->groups, sim->devices, sim->count, sim->rules.mode == RELIABILITY_FEC ? sim->rules.fec : 0));
  TRY(sim_network_init(&sim->network, links, sim->count, sim->options->multicast));
  sim->runners = calloc((size_t)sim->count, sizeof *sim->runners);
  if (!sim->runners) return status_set(STATUS_NO_MEMORY, "no memory to simulate %d devices", sim->count);
  for (int d = 0; d < sim->count; d++)
    for (int b = 0; b < BLOCKS; b++) sim->runners[d].first_sent[b] = INFINITY, sim->runners[d].last_arrived[b] = -INFINITY;
  return STATUS_OK;
}

double net_sim_hidden(const SimDevice *device) { return device->span > 0 ? fmin(fmax(1 - device->wait / device->span, 0), 1) : 1; }

Status net_sim_run(const Timeline *devices, int count, const LinkOptions *links, const SimOptions *options, SimResult *result) {
  *result = (SimResult){0};
  TRY(check(count, links, options));
  Simulation sim = {.devices = devices, .count = count, .options = options, .result = result};
  Status status = prepare(&sim, links);
  if (status == STATUS_OK) status = run(&sim);
  free(sim.runners);
  sim_network_release(&sim.network);
  sim_groups_release(&sim.groups);
  sim_queue_release(&sim.queue);
  return status;
}
