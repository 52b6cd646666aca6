/* What comes: payloads into the slot of their group, questions into answers. Hostile bytes: everything is checked against the rules of the
 * request, and a peer that breaks them is not listened to any more. */
#include "infer/wire/courier_parts.h"
#include "infer/wire/interleave.h"
#include <math.h>
#include <string.h>

enum { EARLY_PREFIX = 4 };

/* ---- bits ---- */

void courier_pack_bits(const uint64_t *bits, int count, bool inverted, uint8_t *bytes) {
  memset(bytes, 0, packet_bits_bytes(count));
  for (int i = 0; i < count; i++) {
    if (courier_has(bits, i) != inverted) bytes[i / 8] |= (uint8_t)(1 << i % 8);
  }
}

static bool byte_bit(const uint8_t *bytes, int i) { return bytes[i / 8] >> i % 8 & 1; }

int courier_missing_said(const Courier *c, const CourierSlot *slot) {
  int missing = 0;
  for (int i = 0; i < c->words; i++) missing += __builtin_popcountll(slot->said[i] & ~slot->there[i]);
  return missing;
}

/* ---- slots ---- */

static void open_slot(const Courier *c, CourierSlot *slot, uint64_t sequence) {
  size_t bits = (size_t)c->words * sizeof(uint64_t);
  slot->used = true;
  slot->decided = false;
  slot->sequence = sequence;
  slot->count = slot->arrived = 0;
  slot->early = 0;
  slot->asking = false;
  slot->unanswered = 0;
  slot->asked = slot->told = slot->doubted = slot->last = 0;
  slot->sender = GROUP_SENDER_SILENT;
  memset(slot->there, 0, bits);
  memset(slot->said, 0, bits);
}

CourierSlot *courier_receive_open(Courier *c, int peer, uint64_t sequence, int lane) {
  CourierSlot *slot = &c->peers[peer].slots[courier_place(c, sequence, lane)];
  if (!slot->used || slot->sequence != sequence) open_slot(c, slot, sequence);
  return slot;
}

CourierSlot *courier_receive_find(const Courier *c, int peer, GroupKey key) {
  uint64_t sequence = courier_sequence(c, key.request, key.block);
  CourierSlot *slot = &c->peers[peer].slots[courier_place(c, sequence, courier_lane(c, key.site, key.part))];
  return slot->used && slot->sequence == sequence && !slot->early ? slot : NULL;
}

/* The length of the group is what its first packet said. */
static Status check_count(const Courier *c, CourierSlot *slot, int count) {
  if (slot->count == 0 && count <= c->setup.packets_most) slot->count = count;
  if (slot->count == count) return STATUS_OK;
  return status_set(STATUS_BAD_VALUE, "sent a packet of %d of a group of %d; %d are possible", count, slot->count, c->setup.packets_most);
}

static void arrive(Courier *c, int peer, CourierSlot *slot, int index, double at) {
  CourierPeer *from = &c->peers[peer];
  if (slot->decided || courier_has(slot->there, index)) return;
  courier_set(slot->there, index);
  /* A packet that was asked for says nothing about how they come by themselves. */
  if (slot->arrived > 0 && slot->asked <= 0 && at > slot->last) from->gap = reliability_smooth(from->gap, at - slot->last);
  slot->arrived++;
  slot->last = fmax(slot->last, at);
  if (slot->arrived == slot->count && c->watched) pthread_cond_broadcast(&c->changed);
}

/* ---- the port */

/* Behind what the port of a switch lets in first; where it has no room, it is lost. */
static void pass_port(Courier *c, int peer, CourierSlot *slot, int index, size_t bytes, double now) {
  double at = shaper_receive(&c->shaper, now, PACKET_HEADER + bytes + c->carrier->overhead);
  if (at <= now) arrive(c, peer, slot, index, now);
  if (at <= now || c->landing == COURIER_FLIGHTS) return;
  c->landings[(c->landing_first + c->landing++) % COURIER_FLIGHTS] =
      (CourierLanding){.peer = peer, .slot = (int)(slot - c->peers[peer].slots), .index = index, .sequence = slot->sequence, .at = at};
}

double courier_land(Courier *c, double now) {
  while (c->landing && c->landings[c->landing_first].at <= now) {
    const CourierLanding *l = &c->landings[c->landing_first];
    CourierSlot *slot = &c->peers[l->peer].slots[l->slot];
    if (slot->used && slot->sequence == l->sequence) arrive(c, l->peer, slot, l->index, l->at);
    c->landing_first = (c->landing_first + 1) % COURIER_FLIGHTS;
    c->landing--;
  }
  return c->landing ? c->landings[c->landing_first].at : INFINITY;
}

/* ---- payloads */

static Status take_data(Courier *c, int peer, CourierSlot *slot, const Packet *p, const uint8_t *payload, size_t bytes, double now) {
  TRY(check_count(c, slot, p->count));
  size_t offset = packet_offset(c->rules, packet_rows(c->rules, peer, c->batch, p->block, p->site, p->part), p->count, p->index);
  if (slot->decided) {
    c->counts.dropped++; /* it was counted when it was given up */
    return STATUS_OK;
  }
  if (courier_has(slot->there, p->index)) return STATUS_OK;
  if (offset + bytes > c->setup.slot_bytes) return status_set(STATUS_BAD_VALUE, "sent a group that is too long");
  memcpy(slot->bytes + offset, payload, bytes);
  slot->length[p->index] = (uint32_t)bytes;
  slot->flags[p->index] = p->flags;
  pass_port(c, peer, slot, p->index, bytes, now);
  return STATUS_OK;
}

/* A packet of the request at work, whose place in the sequence is right. */
static Status take_now(Courier *c, int peer, const uint8_t *packet, size_t bytes, double now) {
  Packet p;
  TRY(packet_parse(packet, bytes, peer, c->batch, c->rules, &p));
  CourierSlot *slot = courier_receive_open(c, peer, courier_sequence(c, p.request, p.block), courier_lane(c, p.site, p.part));
  return take_data(c, peer, slot, &p, packet + PACKET_HEADER, bytes - PACKET_HEADER, now);
}

/* ---- turns ---- */

static Status refuse_turn(const Courier *c, const Packet *p, uint64_t expected) {
  unsigned blocks = (unsigned)c->setup.blocks;
  return status_set(STATUS_BAD_VALUE, "sent codes of request %u, block %d where request %u, block %u was expected", p->request, p->block,
                    (unsigned)(expected / blocks) + 1, (unsigned)(expected % blocks));
}

/* Groups that have no rows in the request at work do not come. */
static void pass_empty(const Courier *c, int peer, const Packet *p, uint64_t sequence, uint64_t *next) {
  uint64_t blocks = (uint64_t)c->setup.blocks, end = (uint64_t)c->request * blocks;
  if (!c->rules || !c->rules->group_rows) return;
  while (*next < sequence && *next < end && packet_rows(c->rules, peer, c->batch, (int)(*next % blocks), p->site, p->part) == 0) ++*next;
}

/* On a stream every packet has its turn. Only a whole request may be passed over, by texts that a device takes no part in. */
static Status take_in_order(Courier *c, int peer, const Packet *p, const uint8_t *packet, size_t bytes, double now, bool *taken) {
  CourierPeer *from = &c->peers[peer];
  int lane = courier_lane(c, p->site, p->part);
  uint64_t sequence = courier_sequence(c, p->request, p->block), *next = &from->next[lane];
  if (from->seen[lane] == 0) pass_empty(c, peer, p, sequence, next);
  bool between = c->setup.ahead && p->block == 0 && *next % (uint64_t)c->setup.blocks == 0 && from->seen[lane] == 0;
  if (sequence != *next && !(between && sequence > *next)) return refuse_turn(c, p, *next);
  *taken = p->request <= c->request && sequence < from->taken[lane] + (uint64_t)c->ring;
  c->held |= !*taken;
  if (!*taken) return STATUS_OK;
  if (p->index != from->seen[lane])
    return status_set(STATUS_BAD_VALUE, "sent packet %d of %d where packet %d was expected", p->index, p->count, from->seen[lane]);
  if (sequence >= from->taken[lane]) {
    TRY(take_now(c, peer, packet, bytes, now));
  } else {
    c->counts.dropped++; /* the deadline was over before it came */
  }
  if (++from->seen[lane] < p->count) return STATUS_OK;
  from->seen[lane] = 0;
  *next = sequence + 1;
  return STATUS_OK;
}

static void keep_early(Courier *c, CourierSlot *slot, const uint8_t *packet, size_t bytes) {
  if (slot->early + EARLY_PREFIX + bytes > c->slot_room) return; /* an honest sender's have room */
  wire_put_u32(slot->bytes + slot->early, (uint32_t)bytes);
  memcpy(slot->bytes + slot->early + EARLY_PREFIX, packet, bytes);
  slot->early += EARLY_PREFIX + bytes;
}

/* Datagrams come when they come: what is behind the time, or too far ahead of it, is left out. */
static Status take_in_any_order(Courier *c, int peer, const Packet *p, const uint8_t *packet, size_t bytes, double now) {
  int lane = courier_lane(c, p->site, p->part);
  uint64_t sequence = courier_sequence(c, p->request, p->block), first = c->peers[peer].taken[lane];
  if (sequence < first || p->request < c->request || sequence >= first + (uint64_t)c->ring) {
    c->counts.dropped++;
    return STATUS_OK;
  }
  if (p->request == c->request) return take_now(c, peer, packet, bytes, now);
  keep_early(c, courier_receive_open(c, peer, sequence, lane), packet, bytes);
  return STATUS_OK;
}

void courier_receive_early(Courier *c) {
  for (int i = 0; i < c->setup.nodes * c->slots; i++) {
    int peer = i / c->slots;
    if (peer == c->setup.self) continue;
    CourierSlot *slot = &c->peers[peer].slots[i % c->slots];
    size_t early = slot->used ? slot->early : 0;
    if (!early || slot->sequence / (uint64_t)c->setup.blocks + 1 != c->request) continue;
    memcpy(c->scratch, slot->bytes, early);
    open_slot(c, slot, slot->sequence);
    for (size_t at = 0; at < early && c->peers[peer].status == STATUS_OK;) {
      size_t bytes = wire_get_u32(c->scratch + at);
      Status status = take_now(c, peer, c->scratch + at + EARLY_PREFIX, bytes, c->peers[peer].heard);
      if (status != STATUS_OK) courier_fail_peer(c, peer, status, status_message());
      at += EARLY_PREFIX + bytes;
    }
  }
}

/* ---- questions and answers ---- */

static Status check_bits(const Packet *p, size_t bytes, size_t head) {
  if (p->count <= PACKETS_MOST && p->index == 0 && p->flags == 0 && bytes == PACKET_HEADER + head + packet_bits_bytes(p->count))
    return STATUS_OK;
  return status_set(STATUS_BAD_VALUE, "sent a question or an answer of %zu bytes about %d packets", bytes, p->count);
}

/* Whoever does not know how much there is waits for the answer first: what has left may well be on its way, and comes before it. */
static void send_again(Courier *c, int peer, const Packet *p, const uint8_t *missing, double now) {
  uint64_t sequence = courier_sequence(c, p->request, p->block);
  int place = courier_place(c, sequence, courier_lane(c, p->site, p->part));
  CourierGroup *g = &c->groups[place];
  uint64_t *wanted = g->resend + (size_t)peer * (size_t)c->words;
  bool any = false, queued = false;
  if (!g->used || g->sequence != sequence || !courier_is_in(g->peers, peer)) return;
  if (reliability_is_under_way(c->peers[peer].round_trip, g->left_at[peer], now)) return;
  for (int i = 0; i < c->words; i++) queued |= wanted[i] != 0;
  for (int i = 0; i < g->left[peer] && i < p->count; i++) {
    if (!byte_bit(missing, i)) continue;
    courier_set(wanted, i);
    any = true;
  }
  if (queued || !any) return;
  CourierEntry entry = {.kind = COURIER_RESEND, .ready = now, .peers = (uint64_t)1 << peer, .group = place};
  if (courier_queue(c, entry))
    g->waiting++;
  else
    memset(wanted, 0, (size_t)c->words * sizeof *wanted); /* it will ask again */
}

static Status take_query(Courier *c, int peer, const Packet *p, const uint8_t *packet, size_t bytes, double now) {
  CourierPeer *from = &c->peers[peer];
  TRY(check_bits(p, bytes, 0));
  shaper_receive(&c->shaper, now, bytes + c->carrier->overhead); /* the port's time; the answer may leave before it is over */
  if (from->asked >= COURIER_ASKED) return STATUS_OK;            /* it will ask again */
  CourierEntry entry = {.kind = COURIER_STATUS,
                        .ready = now,
                        .peers = (uint64_t)1 << peer,
                        .key = {.request = p->request, .block = p->block, .site = p->site, .part = p->part}};
  if (!courier_queue(c, entry)) return STATUS_OK;
  from->asked++;
  if (c->reliability.mode == RELIABILITY_RETRANSMIT) send_again(c, peer, p, packet + PACKET_HEADER, now);
  return STATUS_OK;
}

/* Of several questions it may answer any, and says only that the link is at least as slow as since the last one. */
static void measure_answer(CourierPeer *from, CourierSlot *slot, double now) {
  double took = now - slot->asked;
  if (slot->unanswered == 1) {
    from->jitter = reliability_smooth(from->jitter, from->round_trip > 0 ? fabs(took - from->round_trip) : 0);
    from->round_trip = reliability_smooth(from->round_trip, took);
  } else if (slot->unanswered > 1) {
    from->round_trip = fmax(from->round_trip, took);
  }
  slot->unanswered = 0;
}

static Status take_status(Courier *c, int peer, const Packet *p, const uint8_t *packet, size_t bytes, double now) {
  CourierPeer *from = &c->peers[peer];
  const uint8_t *head = packet + PACKET_HEADER;
  TRY(check_bits(p, bytes, PACKET_STATUS_HEAD));
  if (p->request != c->request) return STATUS_OK;
  Packet parsed;
  TRY(packet_parse(packet, bytes, peer, c->batch, c->rules, &parsed));
  CourierSlot *slot = courier_receive_find(c, peer, (GroupKey){p->request, p->block, p->site, p->part});
  if (!slot) return STATUS_OK;
  measure_answer(from, slot, now);
  if (slot->decided) return STATUS_OK;
  slot->sender = head[0] == 0 ? GROUP_SENDER_NOT_YET : head[0] == 1 ? GROUP_SENDER_SENT : GROUP_SENDER_GONE;
  slot->told = shaper_receive(&c->shaper, now, bytes + c->carrier->overhead); /* behind what came before it */
  if (p->count) TRY(check_count(c, slot, p->count));
  for (int i = 0; i < p->count; i++) {
    if (byte_bit(head + PACKET_STATUS_HEAD, i)) courier_set(slot->said, i);
  }
  if (c->watched) pthread_cond_broadcast(&c->changed);
  return STATUS_OK;
}

/* ---- every packet ---- */

static Status check_place(const Courier *c, const Packet *p) {
  if (p->request > 0 && p->block < c->setup.blocks && p->site < c->setup.sites && p->part < c->setup.parts) return STATUS_OK;
  return status_set(STATUS_BAD_VALUE, "sent a packet of request %u, block %d, site %d, part %d; the model has %d blocks of %d, %d parts",
                    p->request, p->block, p->site, p->part, c->setup.blocks, c->setup.sites, c->setup.parts);
}

static Status take_packet(Courier *c, int peer, const uint8_t *packet, size_t bytes, double now, bool *taken) {
  Packet p;
  if (bytes < PACKET_HEADER) return status_set(STATUS_BAD_VALUE, "sent a packet of %zu bytes", bytes);
  packet_read(packet, &p);
  TRY(check_place(c, &p));
  bool control = p.type == PACKET_QUERY || p.type == PACKET_STATUS;
  if (control && c->reliability.mode == RELIABILITY_STREAM)
    return status_set(STATUS_BAD_VALUE, "sent a question or an answer where nothing is lost");
  if (p.type == PACKET_QUERY) return take_query(c, peer, &p, packet, bytes, now);
  if (p.type == PACKET_STATUS) return take_status(c, peer, &p, packet, bytes, now);
  if (p.request == c->request && !courier_is_in(c->senders, peer))
    return status_set(STATUS_BAD_VALUE, "sent codes, though this device does not hear it in this request");
  if (c->carrier->ordered) return take_in_order(c, peer, &p, packet, bytes, now, taken);
  return take_in_any_order(c, peer, &p, packet, bytes, now);
}

Status courier_receive_take(void *context, int peer, const uint8_t *packet, size_t bytes, double now, bool *taken) {
  Courier *c = context;
  CourierPeer *from = &c->peers[peer];
  *taken = true;
  pthread_mutex_lock(&c->lock);
  if (from->status == STATUS_OK) {
    Status status = take_packet(c, peer, packet, bytes, now, taken);
    if (status != STATUS_OK) courier_fail_peer(c, peer, status, status_message());
    if (*taken) from->heard = now;
    c->counts.packets_received += *taken;
    c->counts.bytes_received += *taken ? bytes + c->carrier->overhead : 0;
  }
  pthread_mutex_unlock(&c->lock);
  return STATUS_OK;
}
