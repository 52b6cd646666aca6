/* Receiving packets, and waiting for messages. Hostile bytes: everything is checked against the rules of the request, and a peer that
 * violates them has failed. */
#include "infer/transport/transport_internal.h"
#include "infer/wire.h"
#include <math.h>
#include <string.h>

static const double look_seconds = 1e-3 * POLICY_LOOK_MS, flood_seconds = 1;

/* ---- slots ---- */

static void clear_slot(const Transport *t, Slot *slot, uint64_t sequence) {
  size_t words = (size_t)t->words;
  *slot = (Slot){.used = true,
                 .sequence = sequence,
                 .bytes = slot->bytes,
                 .there = slot->there,
                 .said = slot->said,
                 .length = slot->length,
                 .flags = slot->flags};
  memset(slot->there, 0, 2 * words * sizeof *slot->there); /* and said behind it */
}

/* The place of a message, emptied if it held another one. */
static Slot *open_slot(const Transport *t, int peer, uint64_t sequence, int place) {
  Slot *slot = &t->peers[peer].slots[place];
  if (!slot->used || slot->sequence != sequence) clear_slot(t, slot, sequence);
  return slot;
}

/* ---- receiving: data ---- */

/* A packet of a slot has arrived. */
static void arrive(Transport *t, int peer, Slot *slot, int index, double at) {
  Peer *from = &t->peers[peer];
  if (slot->decided || has(slot->there, index)) return;
  set(slot->there, index);
  /* A packet that was queried says nothing about the usual gap. */
  if (slot->arrived > 0 && slot->asked <= 0 && at > slot->last) from->gap = policy_smooth(from->gap, at - slot->last);
  slot->arrived++;
  t->fresh |= (uint64_t)1 << peer;
  slot->last = fmax(slot->last, at);
  if (slot->arrived == slot->count) t->changed = true;
}

/* What the simulated port has let in by now. */
static void let_in(Transport *t, double now) {
  while (t->entering_count && t->entering[t->entering_first].at <= now) {
    const Entering *e = &t->entering[t->entering_first];
    Slot *slot = &t->peers[e->peer].slots[e->slot];
    if (slot->used && slot->sequence == e->sequence) arrive(t, e->peer, slot, e->index, e->at);
    t->entering_first = (t->entering_first + 1) % t->max_entering;
    t->entering_count--;
  }
}

/* The length of a message is what its first packet said. */
static Status check_count(const Transport *t, Slot *slot, int count) {
  if (slot->count == 0 && count <= t->setup.max_packets) slot->count = count;
  if (slot->count == count) return STATUS_OK;
  return status_set(STATUS_BAD_VALUE, "sent a packet of %d of a message of %d; %d are possible", count, slot->count, t->setup.max_packets);
}

/* A packet of the current request, whose place in the sequence is right. */
static Status take_data(Transport *t, int peer, const uint8_t *packet, size_t bytes, double now) {
  Packet p;
  TRY(packet_parse(packet, bytes, peer, t->batch, t->rules, &p));
  uint64_t sequence = sequence_of(t, p.request, p.block);
  Slot *slot = open_slot(t, peer, sequence, place_of(t, sequence, lane_of(t, p.site, p.part)));
  size_t payload = bytes - PACKET_HEADER;
  TRY(check_count(t, slot, p.count));
  t->fresh |= (uint64_t)1 << peer;
  if (slot->decided) {
    t->state.dropped++; /* counted when it was given up */
    return STATUS_OK;
  }
  if (has(slot->there, p.index)) return STATUS_OK;
  if (!t->setup.lengths_only) {
    size_t offset = packet_offset(t->rules, packet_rows(t->rules, peer, t->batch, p.block, p.site, p.part), p.count, p.index);
    if (offset + payload > t->setup.max_message_bytes) return status_set(STATUS_BAD_VALUE, "sent a message that is too long");
    memcpy(slot->bytes + offset, packet + PACKET_HEADER, payload);
    slot->length[p.index] = (uint32_t)payload;
    slot->flags[p.index] = p.flags;
  }
  /* Behind what the port of a simulated switch lets in first; without room there it is lost. */
  double at = netem_receive(&t->netem, peer, now, bytes + t->setup.overhead);
  if (at <= now) {
    arrive(t, peer, slot, p.index, now);
  } else if (t->entering_count < t->max_entering) {
    t->entering[(t->entering_first + t->entering_count++) % t->max_entering] =
        (Entering){.peer = peer, .slot = (int)(slot - t->peers[peer].slots), .index = p.index, .sequence = sequence, .at = at};
  }
  return STATUS_OK;
}

/* Whether the peer has messages of this part in the current request. */
static bool sends(const Transport *t, int peer, int part) {
  const PacketRules *rules = t->rules;
  if (!is_in(t->senders, peer) || part >= rules->parts) return false;
  return rules->message_rows || packet_rows(rules, peer, t->batch, 0, 0, part) > 0;
}

/* The first message of this part that may be waited for once the current request has begun. */
static uint64_t first_wanted(const Transport *t, int peer, int part) { return sequence_of(t, t->request + !sends(t, peer, part), 0); }

/* On a stream every packet is expected in turn. Skipped are whole requests (texts that a device takes no part in) and messages of earlier
 * requests: those that missed their deadline arrive all the same and are dropped; a peer that begins the current request has left out the
 * rest. */
static Status take_in_order(Transport *t, int peer, const Packet *p, const uint8_t *packet, size_t bytes, double now, bool *taken) {
  Lane *lane = &t->peers[peer].lane[lane_of(t, p->site, p->part)];
  unsigned blocks = (unsigned)t->setup.blocks;
  uint64_t sequence = sequence_of(t, p->request, p->block), *next = &lane->next;
  uint64_t wanted = first_wanted(t, peer, p->part);
  if (lane->seen == 0 && *next < wanted && sequence > *next) *next = sequence < wanted ? sequence : wanted;
  /* Messages without rows in the current request are not sent. */
  const uint64_t end = (uint64_t)t->request * blocks;
  while (lane->seen == 0 && t->rules && t->rules->message_rows && *next < sequence && *next < end &&
         packet_rows(t->rules, peer, t->batch, (int)(*next % blocks), p->site, p->part) == 0)
    ++*next;
  bool between = t->setup.ahead && p->block == 0 && *next % blocks == 0 && lane->seen == 0;
  if (sequence != *next && !(between && sequence > *next))
    return status_set(STATUS_BAD_VALUE, "sent codes of request %u, block %d where request %u, block %u was expected", p->request, p->block,
                      (unsigned)(*next / blocks) + 1, (unsigned)(*next % blocks));
  *taken = p->request <= t->request && sequence < lane->taken + (uint64_t)t->state.ring;
  if (!*taken) return STATUS_OK;
  if (p->index != lane->seen)
    return status_set(STATUS_BAD_VALUE, "sent packet %d of %d where packet %d was expected", p->index, p->count, lane->seen);
  if (sequence >= lane->taken) {
    TRY(take_data(t, peer, packet, bytes, now));
  } else {
    t->state.dropped++; /* it arrived after its deadline */
  }
  if (++lane->seen < p->count) return STATUS_OK;
  lane->seen = 0;
  *next = sequence + 1;
  return STATUS_OK;
}

/* Datagrams arrive in any order: those that are too late, or too far ahead, are dropped. */
static Status take_in_any_order(Transport *t, int peer, const Packet *p, const uint8_t *packet, size_t bytes, double now) {
  int lane = lane_of(t, p->site, p->part);
  uint64_t sequence = sequence_of(t, p->request, p->block), first = t->peers[peer].lane[lane].taken;
  if (sequence < first || p->request < t->request || sequence >= first + (uint64_t)t->state.ring) {
    t->state.dropped++;
    return STATUS_OK;
  }
  if (p->request == t->request) return take_data(t, peer, packet, bytes, now);
  Slot *slot = open_slot(t, peer, sequence, place_of(t, sequence, lane));
  if (slot->early + EARLY_PREFIX + bytes > t->slot_room) return STATUS_OK; /* packets of an honest sender fit */
  wire_put_u32(slot->bytes + slot->early, (uint32_t)bytes);
  memcpy(slot->bytes + slot->early + EARLY_PREFIX, packet, bytes);
  slot->early += EARLY_PREFIX + bytes;
  return STATUS_OK;
}

/* Packets that had arrived for the request that begins now. */
static void take_early(Transport *t) {
  for (int i = 0; i < t->setup.nodes * t->places; i++) {
    int peer = i / t->places;
    if (peer == t->setup.self) continue;
    Slot *slot = &t->peers[peer].slots[i % t->places];
    size_t early = slot->used ? slot->early : 0;
    if (!early || slot->sequence / (uint64_t)t->setup.blocks + 1 != t->request) continue;
    memcpy(t->scratch, slot->bytes, early);
    clear_slot(t, slot, slot->sequence);
    for (size_t at = 0; at < early && t->peers[peer].status == STATUS_OK;) {
      size_t bytes = wire_get_u32(t->scratch + at);
      Status status = take_data(t, peer, t->scratch + at + EARLY_PREFIX, bytes, t->peers[peer].heard);
      if (status != STATUS_OK) transport_fail_peer(t, peer, status, status_message());
      at += EARLY_PREFIX + bytes;
    }
  }
}

/* ---- receiving: queries and answers ---- */

static Status check_bits(const Packet *p, size_t bytes, size_t head) {
  if (p->count <= MAX_PACKETS && p->index == 0 && p->flags == 0 && bytes == PACKET_HEADER + head + packet_bits_bytes(p->count))
    return STATUS_OK;
  return status_set(STATUS_BAD_VALUE, "sent a question or an answer of %zu bytes about %d packets", bytes, p->count);
}

/* A receiver that does not know the number of packets waits for the answer first: what was sent may be in flight, and arrives before it. */
static void send_again(Transport *t, int peer, const Packet *p, const uint8_t *missing, double now) {
  uint64_t sequence;
  Message *m = message_of(t, (MessageKey){p->request, p->block, p->site, p->part}, &sequence);
  uint64_t *wanted = m->resend + (size_t)peer * (size_t)t->words;
  bool any = false, queued = false;
  if (!m->used || m->sequence != sequence || !is_in(m->peers, peer)) return;
  if (policy_is_in_flight(t->peers[peer].round_trip, m->left_at[peer], now)) return;
  for (int i = 0; i < t->words; i++) queued |= wanted[i] != 0;
  for (int i = 0; i < m->left[peer] && i < p->count; i++) {
    if (!byte_bit(missing, i)) continue;
    set(wanted, i);
    any = true;
  }
  if (queued || !any) return;
  Entry entry = {.kind = ENTRY_RESEND, .ready = now, .peers = (uint64_t)1 << peer, .message = (int)(m - t->messages)};
  if (enqueue(t, entry))
    m->pending++;
  else
    memset(wanted, 0, (size_t)t->words * sizeof *wanted); /* it will query again */
}

static Status take_query(Transport *t, int peer, const Packet *p, const uint8_t *packet, size_t bytes, double now) {
  Peer *from = &t->peers[peer];
  TRY(check_bits(p, bytes, 0));
  netem_receive(&t->netem, peer, now, bytes + t->setup.overhead); /* occupies the port; the answer may leave before that ends */
  if (from->answers >= MAX_ANSWERS) return STATUS_OK;             /* it will query again */
  Entry entry = {.kind = ENTRY_STATUS, .ready = now, .peers = (uint64_t)1 << peer, .key = {p->request, p->block, p->site, p->part}};
  if (!enqueue(t, entry)) return STATUS_OK;
  from->answers++;
  if (t->reliability.mode == RELIABILITY_RETRANSMIT) send_again(t, peer, p, packet + PACKET_HEADER, now);
  return STATUS_OK;
}

static Status take_status(Transport *t, int peer, const Packet *p, const uint8_t *packet, size_t bytes, double now) {
  Peer *from = &t->peers[peer];
  const uint8_t *head = packet + PACKET_HEADER;
  Packet parsed;
  TRY(check_bits(p, bytes, PACKET_STATUS_HEAD));
  if (p->request != t->request) return STATUS_OK;
  TRY(packet_parse(packet, bytes, peer, t->batch, t->rules, &parsed));
  Slot *slot = find_slot(t, peer, (MessageKey){p->request, p->block, p->site, p->part});
  if (!slot) return STATUS_OK;
  double took = now - slot->asked;
  if (slot->unanswered == 1) {
    from->jitter = policy_smooth(from->jitter, from->round_trip > 0 ? fabs(took - from->round_trip) : 0);
    from->round_trip = policy_smooth(from->round_trip, took);
  } else if (slot->unanswered > 1) { /* it may answer any of them: the link is at least as slow as the time since the last one */
    from->round_trip = fmax(from->round_trip, took);
  }
  slot->unanswered = 0;
  t->fresh |= (uint64_t)1 << peer;
  if (slot->decided) return STATUS_OK;
  slot->sender = head[0] == 0 ? SENDER_NOT_YET : head[0] == 1 ? SENDER_SENT : SENDER_GONE;
  slot->told = netem_receive(&t->netem, peer, now, bytes + t->setup.overhead); /* behind what arrived before it */
  if (p->count) TRY(check_count(t, slot, p->count));
  for (int i = 0; i < p->count; i++) {
    if (byte_bit(head + PACKET_STATUS_HEAD, i)) set(slot->said, i);
  }
  t->changed = true;
  return STATUS_OK;
}

/* Whether such a packet is possible at all. */
static Status read_header(const Transport *t, int peer, const uint8_t *packet, size_t bytes, Packet *p) {
  const TransportSetup *s = &t->setup;
  if (bytes < PACKET_HEADER) return status_set(STATUS_BAD_VALUE, "sent a packet of %zu bytes", bytes);
  packet_read(packet, p);
  if (p->request == 0 || p->block >= s->blocks || p->site >= s->sites || p->part >= s->parts)
    return status_set(STATUS_BAD_VALUE, "sent a packet of request %u, block %d, site %d, part %d; the model has %d blocks of %d, %d parts",
                      p->request, p->block, p->site, p->part, s->blocks, s->sites, s->parts);
  bool control = p->type == PACKET_QUERY || p->type == PACKET_STATUS;
  if (control && t->reliability.mode == RELIABILITY_STREAM)
    return status_set(STATUS_BAD_VALUE, "sent a question or an answer where nothing is lost");
  if (!control && p->request == t->request && !sends(t, peer, p->part))
    return status_set(STATUS_BAD_VALUE, "sent codes, though this device does not hear it in this request");
  return STATUS_OK;
}

bool transport_input(Transport *t, int peer, const uint8_t *packet, size_t bytes, double now) {
  Peer *from = &t->peers[peer];
  bool taken = true;
  Packet p;
  if (from->status != STATUS_OK) return true;
  let_in(t, now);
  Status status = read_header(t, peer, packet, bytes, &p);
  if (status == STATUS_OK && p.type == PACKET_QUERY)
    status = take_query(t, peer, &p, packet, bytes, now);
  else if (status == STATUS_OK && p.type == PACKET_STATUS)
    status = take_status(t, peer, &p, packet, bytes, now);
  else if (status == STATUS_OK && t->setup.ordered)
    status = take_in_order(t, peer, &p, packet, bytes, now, &taken);
  else if (status == STATUS_OK)
    status = take_in_any_order(t, peer, &p, packet, bytes, now);
  if (status != STATUS_OK) transport_fail_peer(t, peer, status, status_message());
  if (!taken) return false;
  from->heard = now;
  t->state.packets_received++;
  t->state.bytes_received += bytes + t->setup.overhead;
  return true;
}

/* ---- requests ---- */

void transport_begin_request(Transport *t, uint32_t request, int64_t batch, const PacketRules *rules, uint64_t senders,
                             uint64_t receivers) {
  t->request = request;
  t->batch = batch;
  t->rules = rules;
  t->senders = senders;
  t->receivers = receivers;
  t->block_from = 0;
  for (int d = 0; d < t->setup.nodes; d++) {
    for (int lane = 0; lane < t->lanes && d != t->setup.self; lane++) {
      uint64_t first = first_wanted(t, d, lane % t->setup.parts);
      if (t->peers[d].lane[lane].taken < first) t->peers[d].lane[lane].taken = first;
    }
  }
  take_early(t);
}

/* ---- the owner's side: waiting for messages ---- */

void transport_caught_up(Transport *t, double at) {
  let_in(t, at);
  t->caught_up = at;
  t->changed |= t->doubts;
  t->doubts = false;
}

/* The time between two waits is how long this device computes a block, and how long others may. Waiting does not count, or losses would
 * make all devices wait longer and longer. */
Expected transport_expect(Transport *t, MessageKey key, uint64_t peers, double now) {
  if (key.site == 0 && key.part == 0 && t->block_from > 0) t->block_time = policy_smooth(t->block_time, now - t->block_from);
  t->fresh = UINT64_MAX;
  return (Expected){.key = key, .peers = peers, .undecided = peers, .since = now};
}

/* Time has passed, but perhaps for this process alone: what arrived meanwhile is taken before anything is given up. A peer that sends
 * faster than it can be taken delays that by a second at most. */
static bool has_caught_up(Transport *t, Slot *slot, double now) {
  if (slot->doubted <= 0) slot->doubted = now;
  if (t->caught_up >= slot->doubted || now > slot->doubted + flood_seconds) return true;
  t->doubts = t->wants_driver = true;
  return false;
}

/* The peer stays fresh if the decision changes its state. */
static Decision decide(Transport *t, int peer, const Expected *e, Slot *slot, double now, double *again) {
  const Peer *from = &t->peers[peer];
  t->fresh &= ~((uint64_t)1 << peer);
  MessageState state = {.packets = slot->count,
                        .arrived = slot->arrived,
                        .sender = slot->sender,
                        .waiting = e->since,
                        .asking = slot->asking,
                        .asked = slot->asked,
                        .told = slot->told,
                        .unanswered = slot->unanswered,
                        .heard = slot->last,
                        .gap = from->gap,
                        .round_trip = from->round_trip,
                        .jitter = from->jitter,
                        .block_time = t->block_time};
  bool asks;
  for (int i = 0; slot->sender == SENDER_SENT && i < t->words; i++)
    state.missing_sent += __builtin_popcountll(slot->said[i] & ~slot->there[i]);
  Decision decision = policy_decide(&t->reliability, &state, now, &asks, again);
  if (is_in(t->state.left, peer)) return decision == DECISION_COMPLETE ? DECISION_COMPLETE : DECISION_LATE;
  if (decision == DECISION_WAIT && asks)
    slot->asking = enqueue(t, (Entry){.kind = ENTRY_QUERY, .ready = now, .peers = (uint64_t)1 << peer, .key = e->key});
  if (decision != DECISION_WAIT || asks) t->fresh |= (uint64_t)1 << peer;
  if (decision == DECISION_WAIT) slot->doubted = 0;
  if (decision == DECISION_WAIT || decision == DECISION_COMPLETE || has_caught_up(t, slot, now)) return decision;
  *again = now + look_seconds;
  return DECISION_WAIT;
}

static void list_packets(const Transport *t, int peer, const Expected *e, const Slot *slot) {
  int64_t tokens = packet_rows(t->rules, peer, t->batch, e->key.block, e->key.site, e->key.part);
  for (int i = 0; i < slot->count; i++) {
    bool there = has(slot->there, i);
    TransportPacket *packet = &t->peers[peer].arrival[i];
    *packet = (TransportPacket){.header = control_packet(t->rules->raw ? PACKET_RAW : PACKET_CODES, e->key)};
    packet->header.index = (uint16_t)i;
    packet->header.count = (uint16_t)slot->count;
    if (!there) continue;
    packet->header.flags = slot->flags[i];
    packet->payload = slot->bytes + packet_offset(t->rules, tokens, slot->count, i);
    packet->bytes = slot->length[i];
  }
}

/* What is lost, or late at the given deadline, is masked. A peer whose time is over is a failure. */
static Status finish_message(Transport *t, int peer, const Expected *e, Slot *slot, Decision decision, TransportArrival *arrival) {
  bool masked = is_in(t->state.left, peer) || decision == DECISION_LOST || decision == DECISION_LATE;
  if (decision != DECISION_COMPLETE && !masked) TRY(transport_give_up(t, peer));
  if (decision != DECISION_COMPLETE) {
    bool lost = decision == DECISION_LOST;
    int64_t all = packet_rows(t->rules, peer, t->batch, e->key.block, e->key.site, e->key.part), tokens = slot->count ? 0 : all;
    for (int i = 0; i < slot->count; i++) tokens += has(slot->there, i) ? 0 : interleave_count(all, slot->count, i);
    *(lost ? &t->state.lost : &t->state.late) += slot->count ? (uint64_t)(slot->count - slot->arrived) : 1;
    *(lost ? &t->state.lost_tokens : &t->state.late_tokens) += (uint64_t)tokens;
  }
  slot->decided = true;
  *arrival = (TransportArrival){.packets = t->setup.lengths_only ? NULL : t->peers[peer].arrival,
                                .count = slot->count,
                                .missing = slot->count - slot->arrived,
                                .late = decision == DECISION_LATE || decision == DECISION_PEER_GONE};
  if (slot->sequence == t->span_sequence && t->span_from > 0 && slot->last > t->span_to) {
    t->state.span += slot->last - t->span_to;
    t->span_to = slot->last;
  }
  if (!t->setup.lengths_only) list_packets(t, peer, e, slot);
  return STATUS_OK;
}

Status transport_take(Transport *t, Expected *e, double now, TransportArrival *arrivals, double *again) {
  uint64_t sequence = sequence_of(t, e->key.request, e->key.block);
  int place = place_of(t, sequence, lane_of(t, e->key.site, e->key.part));
  double first = *again = INFINITY;
  let_in(t, now);
  if (e->since != t->waiting_since) t->fresh = UINT64_MAX;
  t->waiting_since = e->since;
  for (uint64_t left = e->undecided; left; left &= left - 1) {
    int d = __builtin_ctzll(left);
    Peer *from = &t->peers[d];
    Decision decision = DECISION_WAIT; /* unchanged for most peers each time that one is complete */
    Slot *slot = NULL;
    if (is_in(t->fresh, d) || now >= from->again) {
      slot = open_slot(t, d, sequence, place);
      decision = decide(t, d, e, slot, now, &from->again);
    }
    if (decision == DECISION_WAIT) {
      first = from->again < first ? from->again : first;
      continue;
    }
    TRY(finish_message(t, d, e, slot, decision, &arrivals[d]));
    e->undecided &= ~((uint64_t)1 << d);
  }
  *again = first;
  if (!e->undecided) t->block_from = now;
  return e->undecided ? transport_check(t) : STATUS_OK;
}

void transport_done(Transport *t, MessageKey key, uint64_t peers) {
  uint64_t sequence = sequence_of(t, key.request, key.block);
  int lane = lane_of(t, key.site, key.part);
  for (uint64_t left = peers; left; left &= left - 1) {
    uint64_t *taken = &t->peers[__builtin_ctzll(left)].lane[lane].taken;
    if (*taken == sequence) *taken = sequence + 1;
  }
}
