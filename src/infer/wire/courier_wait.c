/* How the thread that computes waits for groups: what to do about packets that do not come is reliability.c's to say. */
#include "base/clock.h"
#include "infer/wire/courier_parts.h"
#include "infer/wire/interleave.h"
#include <math.h>

static const double flood_seconds = 1;

static void ask(Courier *c, int peer, GroupKey key, CourierSlot *slot, double now) {
  CourierEntry entry = {.kind = COURIER_QUERY, .ready = now, .peers = (uint64_t)1 << peer, .key = key};
  slot->asking = courier_queue(c, entry);
  courier_wake(c);
}

static CourierSlot *claim_slot(Courier *c, int peer, GroupKey key) {
  CourierSlot *slot = courier_receive_find(c, peer, key);
  if (slot) return slot;
  uint64_t sequence = courier_sequence(c, key.request, key.block);
  return courier_receive_open(c, peer, sequence, courier_lane(c, key.site, key.part));
}

/* Time has passed, but perhaps for this process alone: what came meanwhile is to be taken before anything is given up. A peer that sends
 * faster than it can be taken puts that off for a second. */
static bool has_looked(Courier *c, CourierSlot *slot, double now) {
  if (slot->doubted <= 0) slot->doubted = now;
  if (c->looked >= slot->doubted || now > slot->doubted + flood_seconds) return true;
  c->look = true;
  courier_wake(c);
  return false;
}

static GroupVerdict judge(Courier *c, int peer, GroupKey key, double since, double *again) {
  CourierPeer *from = &c->peers[peer];
  CourierSlot *slot = claim_slot(c, peer, key);
  GroupState state = {.packets = slot->count,
                      .arrived = slot->arrived,
                      .missing_sent = courier_missing_said(c, slot),
                      .sender = slot->sender,
                      .waiting = since,
                      .asking = slot->asking,
                      .asked = slot->asked,
                      .told = slot->told,
                      .unanswered = slot->unanswered,
                      .heard = slot->last,
                      .gap = from->gap,
                      .round_trip = from->round_trip,
                      .jitter = from->jitter,
                      .block_time = c->block_time};
  double now = clock_now();
  bool asks;
  GroupVerdict verdict = reliability_judge(&c->reliability, &state, now, &asks, again);
  if (courier_is_in(c->left, peer)) return verdict == GROUP_COMPLETE ? GROUP_COMPLETE : GROUP_LATE;
  if (verdict == GROUP_WAIT && asks) ask(c, peer, key, slot, now);
  if (verdict == GROUP_WAIT) slot->doubted = 0;
  if (verdict == GROUP_WAIT || verdict == GROUP_COMPLETE || has_looked(c, slot, now)) return verdict;
  *again = now + COURIER_LOOK;
  return GROUP_WAIT;
}

/* What is lost, or late at the deadline that was asked for, is done without. Patience that is at its end is a failure. */
static bool may_mask(const Courier *c, int peer, GroupVerdict verdict) {
  return courier_is_in(c->left, peer) || verdict == GROUP_LOST || verdict == GROUP_LATE;
}

/* Of packets that are not there. */
static uint64_t missing_tokens(const Courier *c, int peer, GroupKey key, const CourierSlot *slot) {
  int64_t all = packet_rows(c->rules, peer, c->batch, key.block, key.site, key.part), missing = slot->count ? 0 : all;
  for (int i = 0; i < slot->count; i++) missing += courier_has(slot->there, i) ? 0 : interleave_count(all, slot->count, i);
  return (uint64_t)missing;
}

static void count_missing(Courier *c, int peer, GroupKey key, const CourierSlot *slot, GroupVerdict verdict) {
  uint64_t packets = slot->count ? (uint64_t)(slot->count - slot->arrived) : 1, tokens = missing_tokens(c, peer, key, slot);
  if (verdict == GROUP_LOST) {
    c->counts.lost += packets;
    c->counts.lost_tokens += tokens;
  } else if (verdict != GROUP_COMPLETE) {
    c->counts.late += packets;
    c->counts.late_tokens += tokens;
  }
}

static void extend_span(Courier *c, uint64_t sequence, double last) {
  if (sequence != c->span_sequence || c->span_from <= 0 || last <= c->span_to) return;
  c->counts.span += last - c->span_to;
  c->span_to = last;
}

static Status decide(Courier *c, int peer, GroupKey key, GroupVerdict verdict, CourierArrival *arrival) {
  CourierSlot *slot = claim_slot(c, peer, key);
  if (verdict != GROUP_COMPLETE && !may_mask(c, peer, verdict)) TRY(courier_run_out(c, peer));
  count_missing(c, peer, key, slot, verdict);
  slot->decided = true;
  *arrival = (CourierArrival){.packets = c->peers[peer].arrival,
                              .count = slot->count,
                              .missing = slot->count - slot->arrived,
                              .late = verdict == GROUP_LATE || verdict == GROUP_PEER_GONE};
  extend_span(c, slot->sequence, slot->last);
  return STATUS_OK;
}

static void list_packets(const Courier *c, int peer, GroupKey key) {
  const CourierSlot *slot = courier_receive_find(c, peer, key);
  int64_t tokens = packet_rows(c->rules, peer, c->batch, key.block, key.site, key.part);
  for (int i = 0; i < slot->count; i++) {
    bool there = courier_has(slot->there, i);
    c->peers[peer].arrival[i] = (CourierPacket){
        .header = {.request = key.request,
                   .block = key.block,
                   .site = key.site,
                   .part = key.part,
                   .flags = there ? slot->flags[i] : 0,
                   .type = c->rules->raw ? PACKET_RAW : PACKET_CODES,
                   .index = (uint16_t)i,
                   .count = (uint16_t)slot->count},
        .payload = there ? slot->bytes + packet_offset(c->rules, tokens, slot->count, i) : NULL,
        .bytes = there ? slot->length[i] : 0,
    };
  }
}

/* What lies between two waits: how long this device computes a block, and others may. Waiting does not count, or losses would make
 * everybody more and more patient. */
static void measure_block(Courier *c, GroupKey key, double now) {
  if (key.site || key.part || c->block_from <= 0) return;
  c->block_time = reliability_smooth(c->block_time, now - c->block_from);
}

Status courier_wait(Courier *c, GroupKey key, uint64_t peers, CourierArrival *arrivals, CourierCheck *check, void *context) {
  uint64_t undecided = peers;
  Status status = STATUS_OK;
  pthread_mutex_lock(&c->lock);
  double since = clock_now(), shift;
  measure_block(c, key, since);
  while (status == STATUS_OK && undecided) {
    double again = INFINITY, next;
    for (int d = 0; d < c->setup.nodes && status == STATUS_OK; d++) {
      if (!courier_is_in(undecided, d)) continue;
      GroupVerdict verdict = judge(c, d, key, since, &next);
      again = fmin(again, next);
      if (verdict == GROUP_WAIT) continue;
      status = decide(c, d, key, verdict, &arrivals[d]);
      undecided &= ~((uint64_t)1 << d);
    }
    if (status == STATUS_OK && undecided) status = courier_check(c);
    if (status == STATUS_OK && undecided)
      status = courier_wait_slice(c, again, check, context, &shift);
    else
      shift = 0;
    since += shift;
  }
  c->block_from = clock_now();
  for (int d = 0; d < c->setup.nodes && status == STATUS_OK; d++) {
    if (courier_is_in(peers, d)) list_packets(c, d, key);
  }
  pthread_mutex_unlock(&c->lock);
  return status;
}

void courier_done(Courier *c, GroupKey key, uint64_t peers) {
  uint64_t sequence = courier_sequence(c, key.request, key.block);
  int lane = courier_lane(c, key.site, key.part);
  pthread_mutex_lock(&c->lock);
  for (int d = 0; d < c->setup.nodes; d++) {
    if (courier_is_in(peers, d) && c->peers[d].taken[lane] == sequence) c->peers[d].taken[lane] = sequence + 1;
  }
  if (c->held) courier_wake(c);
  pthread_mutex_unlock(&c->lock);
}
