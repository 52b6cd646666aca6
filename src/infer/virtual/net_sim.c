/* The simulation: devices go through their timelines, the queue says who is next. */
#include "infer/virtual/net_sim.h"
#include "infer/virtual/sim_judge.h"
#include "infer/virtual/sim_network.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { BLOCKS = 256 /* that an event can name */ };
static const double LOOK = 1e-3 * POLICY_LOOK_MS;

typedef struct Runner {
  int next;                                        /* event of its timeline */
  SimGroup *waiting[WIRE_NODES];                   /* [pending] groups that it waits for */
  int pending;                                     /* 0: it runs */
  double since;                                    /* when it began to wait */
  double look;                                     /* when it looks at them next */
  double block_from, block_time;                   /* end of its last wait (-INFINITY: none), estimate of what lies between two */
  double first_sent[BLOCKS], last_arrived[BLOCKS]; /* INFINITY, -INFINITY: never */
} Runner;

typedef struct Simulation {
  const Timeline *devices;
  int count;
  const SimOptions *options;
  double scale;
  SimQueue queue;
  SimGroups groups;
  SimNetwork network;
  SimJudge judge;
  Runner *runners; /* [count] */
  SimResult *result;
} Simulation;

static Status put(Simulation *sim, double time, SimKind kind, int what) {
  return sim_queue_put(&sim->queue, (SimEvent){.time = time, .kind = kind, .what = what});
}

/* ---- groups that are waited for, as transport_thread_take does it */

static const char *group_name(const SimGroup *group, char text[96]) {
  snprintf(text, 96, "block %d, site %d, part %d of device %d", group->event->block, group->event->site, group->event->part, group->sender);
  return text;
}

/* The receiver goes on without what is missing, if anything is. */
static void decide(Simulation *sim, SimGroup *group, bool late) {
  SimDevice *device = &sim->result->device[group->receiver];
  group->decided = true;
  *(late ? &device->packets_late : &device->packets_lost) += (uint64_t)sim_groups_missing(group);
}

static Status ask(Simulation *sim, SimGroup *group, double now) {
  group->asked = now;
  group->unanswered++;
  return sim_network_tell(&sim->network, &sim->queue, now, &sim->groups, group, SIM_QUESTION, sim_judge_question_bytes(group),
                          &sim->result->device[group->receiver].bytes_sent);
}

/* One group's turn; *again: when the next one is, if it is not decided. */
static Status judge(Simulation *sim, SimGroup *group, double now, double *again) {
  bool asks;
  char name[96];
  Decision verdict = sim_judge_verdict(&sim->judge, group, sim->runners[group->receiver].block_time, now, &asks, again);
  if (verdict == DECISION_WAIT) return asks ? ask(sim, group, now) : STATUS_OK;
  bool whole = verdict == DECISION_COMPLETE || verdict == DECISION_LOST;
  if (!whole && sim->judge.rules.mode == RELIABILITY_RETRANSMIT)
    return status_set(STATUS_TIMEOUT, "device %d still lacks packets of %s after %g s", group->receiver, group_name(group, name),
                      sim->judge.rules.timeout);
  decide(sim, group, !whole);
  return STATUS_OK;
}

/* At all that it waits for. It goes on when nothing is left, or looks again when something may have changed by time alone. */
static Status look(Simulation *sim, int device, double now) {
  Runner *runner = &sim->runners[device];
  int left = 0;
  runner->look = INFINITY;
  for (int i = 0; i < runner->pending; i++) {
    SimGroup *group = runner->waiting[i];
    double again;
    if (!group->decided) TRY(judge(sim, group, now, &again));
    if (group->decided) continue;
    runner->waiting[left++] = group;
    runner->look = fmin(runner->look, again);
  }
  runner->pending = left;
  if (left == 0) {
    sim->result->device[device].wait += now - runner->since;
    runner->block_from = now;
    return put(sim, now, SIM_RUN, device);
  }
  if (sim_judge_asks(&sim->judge)) runner->look = fmin(runner->look, now + LOOK);
  return isfinite(runner->look) ? put(sim, runner->look, SIM_LOOK, device) : STATUS_OK;
}

static Status look_if_waiting(Simulation *sim, int device, double now) {
  return sim->runners[device].pending > 0 ? look(sim, device, now) : STATUS_OK;
}

/* ---- packets that come */

static Status take_packet(Simulation *sim, SimGroup *group, const SimEvent *event) {
  double *last = &sim->runners[group->receiver].last_arrived[group->event->block];
  group->arrived++;
  *last = fmax(*last, event->time);
  sim_judge_packet(&sim->judge, group, event->time);
  if (group->decided || sim_groups_missing(group) > 0) return STATUS_OK; /* who waits is not woken by a part */
  decide(sim, group, false);
  return look_if_waiting(sim, group->receiver, event->time);
}

/* Which of the packets are sent again makes no difference but their last byte. */
static Status send_again(Simulation *sim, SimGroup *group, double now) {
  SimDevice *sender = &sim->result->device[group->sender];
  int missing = sim_groups_missing(group);
  for (int i = 0; i < missing; i++) TRY(sim_network_again(&sim->network, &sim->queue, now, &sim->groups, group, i, &sender->bytes_sent));
  sender->packets_resent += (uint64_t)missing;
  return STATUS_OK;
}

/* What the sender says has left by the time at which its answer leaves, behind all that was given to the link before. */
static Status take_question(Simulation *sim, SimGroup *group, double now) {
  TRY(sim_network_tell(&sim->network, &sim->queue, now, &sim->groups, group, group->sent ? SIM_SENT : SIM_NOT_YET,
                       sim_judge_answer_bytes(group, group->sent), &sim->result->device[group->sender].bytes_sent));
  return !group->decided && sim_judge_sends_again(&sim->judge, group, now) ? send_again(sim, group, now) : STATUS_OK;
}

static Status take_answer(Simulation *sim, SimGroup *group, const SimEvent *event) {
  if (group->decided) return STATUS_OK;
  sim_judge_answer(&sim->judge, group, event->packet == SIM_SENT, event->time);
  return look_if_waiting(sim, group->receiver, event->time);
}

static Status arrived(Simulation *sim, const SimEvent *event) {
  SimGroup *group = &sim->groups.list[event->what];
  group->under_way -= event->packet >= 0;
  if (event->lost) return STATUS_OK;
  if (event->packet == SIM_QUESTION) return take_question(sim, group, event->time);
  return event->packet < 0 ? take_answer(sim, group, event) : take_packet(sim, group, event);
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
  double *first = &sim->runners[device].first_sent[event->block];
  *first = fmin(*first, now);
  for (int i = 0; i < receivers; i++) to[i]->sent = true;
  for (int packet = 0; packet < (int)event->packets; packet++)
    TRY(sim_network_send(&sim->network, &sim->queue, now, &sim->groups, to, receivers, packet, &sim->result->device[device].bytes_sent));
  return STATUS_OK;
}

/* What lies between two waits, as transport.c measures it. */
static void measure_block(Runner *runner, const Event *event, double now) {
  if (event->site == 0 && event->part == 0 && isfinite(runner->block_from))
    runner->block_time = policy_smooth(runner->block_time, now - runner->block_from);
}

static Status wait_for(Simulation *sim, int device, const Event *event, double now) {
  Runner *runner = &sim->runners[device];
  measure_block(runner, event, now);
  runner->since = runner->block_from = now;
  for (int peer = 0; peer < sim->count; peer++) {
    if (!(event->peers >> peer & 1)) continue;
    SimGroup *group = sim_groups_find(&sim->groups, peer, device, event);
    if (!group)
      return status_set(STATUS_BAD_VALUE, "device %d waits for block %d, site %d, part %d of device %d, which never sends it", device,
                        event->block, event->site, event->part, peer);
    if (group->decided) continue;
    group->waiting = now;
    runner->waiting[runner->pending++] = group;
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
    double seconds = event->seconds * (event->kind == EVENT_COMPUTE ? sim->scale : 1);
    switch (event->kind) {
    case EVENT_COMPUTE:
    case EVENT_FIXED:
      sim->result->device[device].compute += seconds;
      return put(sim, now + seconds, SIM_RUN, device);
    case EVENT_SEND:
      TRY(send_group(sim, device, event, now));
      break;
    case EVENT_WAIT:
      TRY(wait_for(sim, device, event, now));
      if (runner->pending > 0) return look(sim, device, now);
      break;
    }
  }
  return STATUS_OK;
}

static Status handle(Simulation *sim, const SimEvent *event) {
  switch (event->kind) {
  case SIM_RUN:
    return run_device(sim, event->what, event->time);
  case SIM_LOOK: /* unless another look has come between */
    return event->time == sim->runners[event->what].look ? look_if_waiting(sim, event->what, event->time) : STATUS_OK;
  case SIM_ENTER:
    return sim_network_enter(&sim->network, &sim->queue, &sim->groups, event);
  case SIM_ARRIVE:
    return arrived(sim, event);
  }
  return STATUS_OK;
}

/* ---- the whole */

static Status check_all_done(const Simulation *sim) {
  for (int d = 0; d < sim->count; d++)
    for (int i = 0; sim->runners[d].pending > 0 && i < sim->groups.count; i++) {
      const SimGroup *group = &sim->groups.list[i];
      char name[96];
      if (group->receiver == d && isfinite(group->waiting) && !group->decided)
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
  if (links->loss > 0 && !links->lose_tokens && (!rules || rules->mode == RELIABILITY_STREAM))
    return status_set(STATUS_BAD_VALUE, "a stream hides the loss of packets: choose deadline or retransmit");
  return STATUS_OK;
}

static Status prepare(Simulation *sim, const LinkOptions *links) {
  const Reliability *rules = sim->options->reliability;
  TRY(sim_groups_init(&sim->groups, sim->devices, sim->count));
  TRY(sim_network_init(&sim->network, links, sim->options->ends, sim->count));
  TRY(sim_judge_init(&sim->judge, rules, &sim->network));
  sim->runners = calloc((size_t)sim->count, sizeof *sim->runners);
  if (!sim->runners) return status_set(STATUS_NO_MEMORY, "no memory to simulate %d devices", sim->count);
  for (int d = 0; d < sim->count; d++) {
    sim->runners[d].block_from = -INFINITY;
    for (int b = 0; b < BLOCKS; b++) sim->runners[d].first_sent[b] = INFINITY, sim->runners[d].last_arrived[b] = -INFINITY;
  }
  return STATUS_OK;
}

double net_sim_hidden(const SimDevice *device) { return device->span > 0 ? fmin(fmax(1 - device->wait / device->span, 0), 1) : 1; }

Status net_sim_run(const Timeline *devices, int count, const LinkOptions *links, const SimOptions *options, SimResult *result) {
  *result = (SimResult){0};
  TRY(check(count, links, options));
  Simulation sim = {
      .devices = devices, .count = count, .options = options, .scale = options->scale > 0 ? options->scale : 1, .result = result};
  Status status = prepare(&sim, links);
  if (status == STATUS_OK) status = run(&sim);
  free(sim.runners);
  sim_judge_release(&sim.judge);
  sim_network_release(&sim.network);
  sim_groups_release(&sim.groups);
  sim_queue_release(&sim.queue);
  return status;
}
