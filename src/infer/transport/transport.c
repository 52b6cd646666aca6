/* The state machine: what leaves, what comes, and how a message is waited for. Hostile bytes: everything is checked against the rules of
 * the request, and a peer that breaks them is not listened to any more. */
#include "infer/transport/transport.h"
#include "infer/wire.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_IN_FLIGHT = 2048 /* packets to a peer */, MAX_ANSWERS = 16 /* unsent STATUSes for a peer */, EARLY_PREFIX = 4, WHY = 512 };
static const double look_seconds = 1e-3 * POLICY_LOOK_MS, flood_seconds = 1;

/* A message from a peer, as far as it has come. */
typedef struct Slot {
  bool used, decided;
  uint64_t sequence;
  int count, arrived; /* packets; count 0: not known */
  size_t early;       /* bytes of packets that came before their request began: as they came, each behind its length */
  double last;        /* when the last packet came */
  uint8_t *bytes;     /* [slot_room] */
  uint64_t *there;    /* [words] bits of packets that are there */
  uint64_t *said;     /* [words] bits of packets that the sender says it has sent */
  uint32_t *length;   /* [max_packets] payload bytes */
  uint8_t *flags;     /* [max_packets] */
  SenderState sender;
  bool asking;                 /* a QUERY is in the queue or in flight */
  int unanswered;              /* QUERYs that have left since the last STATUS */
  double asked, told, doubted; /* last QUERY that has left, last STATUS; since when it seems that nothing more comes */
} Slot;

/* A message to peers. */
typedef struct Message {
  bool used;
  uint64_t sequence, peers;
  MessageKey key;
  const TransportPacket *packets; /* [count] */
  int count;
  int pending;      /* entries of the queue and packets in flight that read it */
  uint16_t *left;   /* [nodes] packets that have left, in order */
  double *left_at;  /* [nodes] when the last one did */
  uint64_t *resend; /* [nodes][words] to be sent again */
} Message;

typedef enum EntryKind { ENTRY_MESSAGE, ENTRY_RESEND, ENTRY_QUERY, ENTRY_STATUS } EntryKind;

typedef struct Entry { /* of the queue */
  EntryKind kind;
  double ready;
  uint64_t peers;
  int message, next;
  MessageKey key; /* QUERY, STATUS */
} Entry;

typedef struct InFlight {
  EntryKind kind;
  bool lost;
  double sent, left, at; /* put in flight; out of this device's link; when it reaches the peer's port */
  int message, index;
  MessageKey key;
} InFlight;

/* A packet that the port of a switch has not let in yet. */
typedef struct Entering {
  int peer, slot, index;
  uint64_t sequence;
  double at;
} Entering;

typedef struct Peer {
  Slot *slots; /* [places] */
  uint8_t *slot_bytes;
  uint64_t *slot_bits;
  uint32_t *slot_lengths;
  uint8_t *slot_flags;
  uint64_t *taken, *next;   /* [lanes] first sequence that is not done; on ordered backends the one that comes next */
  int *seen;                /* [lanes] packets of that one that have come */
  TransportPacket *arrival; /* [max_packets] */
  InFlight *flights;        /* ring [max_in_flight] */
  int first, flying;
  int answers; /* STATUSes in the queue or in flight */
  double heard, round_trip, jitter, gap;
  Status status; /* not OK: nothing comes from it any more */
  char why[WHY];
} Peer;

struct Transport {
  TransportSetup setup;
  Reliability reliability;
  LinkOptions links;
  Netem netem;
  size_t memory;
  /* shapes */
  int ring, lanes /* sites * parts */, places /* ring * lanes */, words, max_in_flight, max_queued;
  size_t slot_room;
  /* the request */
  uint32_t request; /* 0: none yet */
  int64_t batch;
  const PacketRules *rules;
  uint64_t senders, receivers, gone;
  /* what waits, moves and has come */
  Peer *peers;       /* [nodes] */
  Message *messages; /* [places] */
  Entry *queue;      /* ring [max_queued] */
  int queue_first, queued;
  Entering *entering; /* ring [MAX_IN_FLIGHT] */
  int entering_first, entering_count;
  uint8_t *buffer; /* of the packet that is sent */
  size_t buffer_bytes;
  uint8_t *scratch; /* [slot_room] */
  double next_due;  /* nothing in flight is due before; exact when output has found nothing */
  int turn;         /* the peer that output looks at first */
  bool changed, wants_driver, doubts /* a decision waits for transport_caught_up */;
  int fault;
  double caught_up;
  /* estimates and counts */
  uint64_t span_sequence;
  double span_from, span_to, block_from, block_time;
  TransportCounts counts;
};

static uint64_t sequence_of(const Transport *t, uint32_t request, int block) {
  return (uint64_t)(request - 1) * (uint64_t)t->setup.blocks + (uint64_t)block;
}
static int lane_of(const Transport *t, int site, int part) { return site * t->setup.parts + part; }
static int place_of(const Transport *t, uint64_t sequence, int lane) { return (int)(sequence % (uint64_t)t->ring) * t->lanes + lane; }
static bool has(const uint64_t *bits, int i) { return bits[i / 64] >> i % 64 & 1; }
static void set(uint64_t *bits, int i) { bits[i / 64] |= (uint64_t)1 << i % 64; }
static bool is_in(uint64_t peers, int peer) { return peers >> peer & 1; }
static bool byte_bit(const uint8_t *bytes, int i) { return bytes[i / 8] >> i % 8 & 1; }

static Message *message_of(const Transport *t, MessageKey key, uint64_t *sequence) {
  *sequence = sequence_of(t, key.request, key.block);
  return &t->messages[place_of(t, *sequence, lane_of(t, key.site, key.part))];
}

/* ---- memory: how much follows from the set-up and from what the backend needs ---- */

static void *take(Transport *t, size_t count, size_t bytes) {
  t->memory += count * bytes;
  return calloc(count ? count : 1, bytes);
}

/* Slots also hold packets that come before their request begins, each behind its length. */
static void choose_sizes(Transport *t) {
  const TransportSetup *s = &t->setup;
  bool holds = s->reliable && s->ordered;
  size_t least = t->reliability.least_packets > 0 ? (size_t)t->reliability.least_packets : 1;
  size_t usual = s->max_message_bytes / (s->max_packet - PACKET_HEADER) + least + 1;
  if (usual > (size_t)s->max_packets) usual = (size_t)s->max_packets;
  t->ring = holds || !s->ahead ? 2 : 2 * s->blocks;
  t->lanes = s->sites * s->parts;
  t->places = t->ring * t->lanes;
  t->words = (s->max_packets + 63) / 64;
  t->slot_room = s->max_message_bytes + (holds ? 0 : (size_t)s->max_packets * (PACKET_HEADER + EARLY_PREFIX));
  if (s->lengths_only) t->slot_room = 0;
  size_t in_flight = 2 * usual * (size_t)t->places + 64;
  t->max_in_flight = in_flight < MAX_IN_FLIGHT ? (int)in_flight : MAX_IN_FLIGHT;
  t->max_queued = t->places + s->nodes * (3 * t->lanes + 2 * MAX_ANSWERS);
}

static bool allocate_peer(Transport *t, Peer *peer) {
  size_t lanes = (size_t)t->lanes, places = (size_t)t->places, words = (size_t)t->words;
  size_t packets = t->setup.lengths_only ? 0 : (size_t)t->setup.max_packets;
  bool memory = (peer->slots = take(t, places, sizeof(Slot))) && (peer->slot_bytes = take(t, places, t->slot_room + 1)) &&
                (peer->slot_bits = take(t, 2 * places * words, sizeof(uint64_t))) &&
                (peer->slot_lengths = take(t, places * packets, sizeof(uint32_t))) && (peer->slot_flags = take(t, places * packets, 1)) &&
                (peer->taken = take(t, lanes, sizeof(uint64_t))) && (peer->next = take(t, lanes, sizeof(uint64_t))) &&
                (peer->seen = take(t, lanes, sizeof(int))) && (peer->arrival = take(t, packets, sizeof(TransportPacket))) &&
                (peer->flights = take(t, (size_t)t->max_in_flight, sizeof(InFlight)));
  for (size_t i = 0; memory && i < places; i++) {
    Slot *slot = &peer->slots[i];
    slot->bytes = peer->slot_bytes + i * t->slot_room;
    slot->there = peer->slot_bits + 2 * i * words;
    slot->said = slot->there + words;
    slot->length = peer->slot_lengths + i * packets;
    slot->flags = peer->slot_flags + i * packets;
  }
  return memory;
}

static bool allocate(Transport *t) {
  size_t nodes = (size_t)t->setup.nodes, places = (size_t)t->places;
  size_t buffer = t->setup.lengths_only ? 0 : t->setup.max_packet;
  bool memory = (t->peers = take(t, nodes, sizeof(Peer))) && (t->messages = take(t, places, sizeof(Message))) &&
                (t->queue = take(t, (size_t)t->max_queued, sizeof(Entry))) && (t->entering = take(t, MAX_IN_FLIGHT, sizeof(Entering))) &&
                (t->scratch = take(t, t->slot_room, 1)) &&
                (t->buffer = take(t, buffer + PACKET_HEADER + PACKET_STATUS_HEAD + MAX_PACKETS / 8, 1));
  for (size_t d = 0; memory && d < nodes; d++) memory = (int)d == t->setup.self || allocate_peer(t, &t->peers[d]);
  for (size_t i = 0; memory && i < places; i++) {
    Message *m = &t->messages[i];
    memory = (m->left = take(t, nodes, sizeof *m->left)) && (m->left_at = take(t, nodes, sizeof *m->left_at)) &&
             (m->resend = take(t, nodes * (size_t)t->words, sizeof *m->resend));
  }
  return memory;
}

Status transport_new(Transport **transport, const TransportSetup *setup, double now) {
  Transport *t = *transport = calloc(1, sizeof *t);
  if (!t) return status_set(STATUS_NO_MEMORY, "no memory for packets");
  *t = (Transport){.setup = *setup, .reliability = *setup->reliability, .fault = -1, .memory = sizeof *t, .next_due = INFINITY};
  if (setup->links) t->links = *setup->links;
  choose_sizes(t);
  Status status = netem_init(&t->netem, setup->links ? &t->links : NULL, setup->ends, setup->medium, setup->self, setup->nodes, now);
  if (status == STATUS_OK && !allocate(t))
    status = status_set(STATUS_NO_MEMORY, "no memory for the packets of %d nodes; use a smaller --batch", setup->nodes);
  if (status == STATUS_OK) return STATUS_OK;
  transport_free(t);
  *transport = NULL;
  return status;
}

void transport_free(Transport *t) {
  if (!t) return;
  for (int d = 0; t->peers && d < t->setup.nodes; d++) {
    Peer *peer = &t->peers[d];
    void *const owned[] = {peer->slots, peer->slot_bytes, peer->slot_bits, peer->slot_lengths, peer->slot_flags,
                           peer->taken, peer->next,       peer->seen,      peer->arrival,      peer->flights};
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++) free(owned[i]);
  }
  for (int i = 0; t->messages && i < t->places; i++) {
    free(t->messages[i].left);
    free(t->messages[i].left_at);
    free(t->messages[i].resend);
  }
  free(t->peers);
  free(t->messages);
  free(t->queue);
  free(t->entering);
  free(t->scratch);
  free(t->buffer);
  netem_release(&t->netem);
  free(t);
}

size_t transport_bytes(const Transport *t) { return t ? t->memory : 0; }
int transport_ring(const Transport *t) { return t->ring; }
TransportCounts *transport_counts(Transport *t) { return &t->counts; }

bool transport_changed(Transport *t) {
  bool changed = t->changed;
  t->changed = false;
  return changed;
}

bool transport_wants_driver(Transport *t) {
  bool wants = t->wants_driver;
  t->wants_driver = false;
  return wants;
}

/* ---- peers ---- */

void transport_leave(Transport *t, int peer) {
  t->gone |= (uint64_t)1 << peer;
  t->changed = t->wants_driver = true;
}

void transport_fail_peer(Transport *t, int peer, Status status, const char *why) {
  Peer *p = &t->peers[peer];
  if (p->status != STATUS_OK) return;
  p->status = status;
  snprintf(p->why, sizeof p->why, "%s", why);
  if (t->setup.mask) transport_leave(t, peer);
  t->changed = true;
}

Status transport_peer_status(const Transport *t, int peer) { return t->peers[peer].status; }
uint64_t transport_left(const Transport *t) { return t->gone; }
int transport_fault(const Transport *t) { return t->fault; }

Status transport_check(Transport *t) {
  uint64_t partners = (t->senders | t->receivers) & ~t->gone;
  for (int pass = 0; pass < 2; pass++) {
    for (int d = 0; d < t->setup.nodes; d++) {
      Status status = t->peers[d].status;
      if (!is_in(partners, d) || status == STATUS_OK || (!pass && status == STATUS_PEER)) continue;
      t->fault = d;
      return status_set(status, "node %d: %s", d, t->peers[d].why);
    }
  }
  return STATUS_OK;
}

Status transport_give_up(Transport *t, int peer) {
  if (t->setup.mask) {
    transport_leave(t, peer);
    return STATUS_OK;
  }
  t->fault = peer;
  if (!t->setup.reliable && t->peers[peer].heard <= 0)
    return status_set(STATUS_TIMEOUT,
                      "no datagram of node %d has come within %g s: a firewall may let streams alone pass (--transport tcp)", peer,
                      t->setup.timeout);
  return status_set(STATUS_TIMEOUT, "node %d did not answer within %g s; --timeout gives it longer", peer, t->setup.timeout);
}

void transport_assume(Transport *t, int peer, double round_trip, double jitter) {
  t->peers[peer].round_trip = round_trip;
  t->peers[peer].jitter = jitter;
}

double transport_idle_seconds(const Transport *t, int peer, size_t bytes) { return netem_idle(&t->netem, peer, bytes + t->setup.overhead); }

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
static Slot *open_slot(const Transport *t, int peer, uint64_t sequence, int lane) {
  Slot *slot = &t->peers[peer].slots[place_of(t, sequence, lane)];
  if (!slot->used || slot->sequence != sequence) clear_slot(t, slot, sequence);
  return slot;
}

/* The slot while it holds this message; NULL: not so. */
static Slot *find_slot(const Transport *t, int peer, MessageKey key) {
  uint64_t sequence = sequence_of(t, key.request, key.block);
  Slot *slot = &t->peers[peer].slots[place_of(t, sequence, lane_of(t, key.site, key.part))];
  return slot->used && slot->sequence == sequence && !slot->early ? slot : NULL;
}

/* ---- what leaves: from the queue through the simulated links ---- */

/* Messages always find room: an entry for each place is theirs alone. */
static bool enqueue(Transport *t, Entry entry) {
  if (t->queued >= t->max_queued - (entry.kind == ENTRY_MESSAGE ? 0 : t->places)) return false;
  t->queue[(t->queue_first + t->queued++) % t->max_queued] = entry;
  t->wants_driver = true;
  return true;
}

static bool has_room(const Transport *t, uint64_t peers) {
  for (int d = 0; d < t->setup.nodes; d++) {
    if (is_in(peers, d) && t->peers[d].flying == t->max_in_flight) return false;
  }
  return true;
}

/* The first packet that is to be sent again, and is not from here on; -1: there is none. */
static int next_wanted(const Transport *t, uint64_t *wanted) {
  for (int i = 0; i < t->words; i++) {
    if (!wanted[i]) continue;
    int index = 64 * i + __builtin_ctzll(wanted[i]);
    wanted[i] &= wanted[i] - 1;
    return index;
  }
  return -1;
}

/* The next packet of an entry: of a message for all its receivers, or of what is sent to one; false: there is none. A question about what
 * has been decided since is not asked any more. */
static bool next_packet(Transport *t, Entry *e, InFlight *packet) {
  const Message *m = &t->messages[e->message];
  *packet = (InFlight){.kind = e->kind, .message = e->message, .index = e->next, .key = e->key};
  switch (e->kind) {
  case ENTRY_MESSAGE:
    return e->next++ < m->count;
  case ENTRY_RESEND:
    return (packet->index = next_wanted(t, m->resend + __builtin_ctzll(e->peers) * t->words)) >= 0;
  case ENTRY_QUERY: {
    const Slot *slot = find_slot(t, __builtin_ctzll(e->peers), e->key);
    return e->next++ == 0 && slot && !slot->decided;
  }
  default:
    return e->next++ == 0;
  }
}

/* Of questions and answers as long as they are by now. */
static size_t packet_size(const Transport *t, int peer, const InFlight *packet) {
  uint64_t sequence;
  if (packet->kind <= ENTRY_RESEND) return PACKET_HEADER + t->messages[packet->message].packets[packet->index].bytes;
  if (packet->kind == ENTRY_QUERY) {
    const Slot *slot = find_slot(t, peer, packet->key);
    return PACKET_HEADER + packet_bits_bytes(slot ? slot->count : 0);
  }
  const Message *m = message_of(t, packet->key, &sequence);
  return PACKET_HEADER + PACKET_STATUS_HEAD + packet_bits_bytes(m->used && m->sequence == sequence && is_in(m->peers, peer) ? m->count : 0);
}

static void put_in_flight(Transport *t, int to, InFlight packet, double ready, double now) {
  Peer *peer = &t->peers[to];
  size_t bytes = packet_size(t, to, &packet) + t->setup.overhead;
  packet.sent = now;
  packet.at = netem_send(&t->netem, to, ready, bytes, packet.kind == ENTRY_MESSAGE, &packet.left, &packet.lost);
  if (packet.kind <= ENTRY_RESEND) t->messages[packet.message].pending++;
  peer->flights[(peer->first + peer->flying++) % t->max_in_flight] = packet;
  if (packet.at < t->next_due) t->next_due = packet.at;
}

/* Queue -> in flight, as far as there is room. A packet goes to all receivers in turn, to the next node first, so that devices that send at
 * once do not all begin with the same one. */
static void empty_queue(Transport *t, double now) {
  InFlight packet;
  while (t->queued) {
    Entry *e = &t->queue[t->queue_first];
    if (!has_room(t, e->peers)) return;
    if (next_packet(t, e, &packet)) {
      for (int i = 1; i < t->setup.nodes; i++) {
        int peer = (t->setup.self + i) % t->setup.nodes;
        if (is_in(e->peers, peer)) put_in_flight(t, peer, packet, fmin(e->ready, now), now);
      }
      continue;
    }
    if (e->kind <= ENTRY_RESEND) t->messages[e->message].pending--;
    t->queue_first = (t->queue_first + 1) % t->max_queued;
    t->queued--;
    t->changed = true;
  }
}

/* ---- bytes of a packet, made as it leaves, so that a STATUS tells what has left by then ---- */

static void pack_bits(const uint64_t *bits, int count, bool inverted, uint8_t *bytes) {
  memset(bytes, 0, packet_bits_bytes(count));
  for (int i = 0; i < count; i++) {
    if (has(bits, i) != inverted) bytes[i / 8] |= (uint8_t)(1 << i % 8);
  }
}

static Packet control_packet(PacketType type, MessageKey key) {
  return (Packet){.request = key.request, .block = key.block, .site = key.site, .part = key.part, .type = type};
}

static size_t make_query(const Transport *t, int peer, MessageKey key, uint8_t *out) {
  Packet packet = control_packet(PACKET_QUERY, key);
  const Slot *slot = find_slot(t, peer, key);
  if (slot) packet.count = (uint16_t)slot->count;
  packet_pack(&packet, out);
  if (slot) pack_bits(slot->there, packet.count, true, out + PACKET_HEADER);
  return PACKET_HEADER + packet_bits_bytes(packet.count);
}

/* Whoever asks for what it is not sent, or for what has been written over, must not wait. */
static size_t make_status(const Transport *t, int peer, MessageKey key, uint8_t *out) {
  Packet packet = control_packet(PACKET_STATUS, key);
  uint64_t sequence, left[MAX_PACKETS / 64] = {0};
  const Message *m = message_of(t, key, &sequence);
  bool here = m->used && m->sequence == sequence, over = key.request < t->request || m->sequence > sequence;
  uint8_t *head = out + PACKET_HEADER;
  memset(head, 0, PACKET_STATUS_HEAD);
  if (here && is_in(m->peers, peer)) {
    packet.count = (uint16_t)m->count;
    head[0] = m->left[peer] == m->count;
    for (int i = 0; i < m->left[peer]; i++) set(left, i);
  } else if (here || over) {
    head[0] = 2;
  }
  packet_pack(&packet, out);
  pack_bits(left, packet.count, false, head + PACKET_STATUS_HEAD);
  return PACKET_HEADER + PACKET_STATUS_HEAD + packet_bits_bytes(packet.count);
}

static size_t make_packet(const Transport *t, int peer, const InFlight *f, uint8_t *out) {
  if (f->kind == ENTRY_QUERY) return make_query(t, peer, f->key, out);
  if (f->kind == ENTRY_STATUS) return make_status(t, peer, f->key, out);
  const TransportPacket *packet = &t->messages[f->message].packets[f->index];
  packet_pack(&packet->header, out);
  if (!t->setup.lengths_only) memcpy(out + PACKET_HEADER, packet->payload, packet->bytes);
  return PACKET_HEADER + packet->bytes;
}

/* ---- in flight -> output ---- */

static void finish_packet(Transport *t, int to) {
  Peer *peer = &t->peers[to];
  const InFlight f = peer->flights[peer->first];
  peer->first = (peer->first + 1) % t->max_in_flight;
  peer->flying--;
  t->changed = true;
  if (f.kind != ENTRY_MESSAGE) { /* messages counted when they were queued */
    t->counts.packets_sent++;
    t->counts.bytes_sent += t->buffer_bytes + t->setup.overhead;
  }
  if (f.kind == ENTRY_STATUS) peer->answers--;
  if (f.kind == ENTRY_QUERY) {
    Slot *slot = find_slot(t, to, f.key);
    if (!slot) return;
    slot->asking = false;
    slot->asked = f.sent;
    slot->unanswered++;
  }
  if (f.kind > ENTRY_RESEND) return;
  Message *m = &t->messages[f.message];
  if (f.kind == ENTRY_MESSAGE) m->left[to]++;
  if (f.kind == ENTRY_RESEND) t->counts.resent++;
  m->left_at[to] = f.left;
  m->pending--;
}

/* A packet of a slot is there. */
static void arrive(Transport *t, int peer, Slot *slot, int index, double at) {
  Peer *from = &t->peers[peer];
  if (slot->decided || has(slot->there, index)) return;
  set(slot->there, index);
  /* A packet that was asked for says nothing about how they come by themselves. */
  if (slot->arrived > 0 && slot->asked <= 0 && at > slot->last) from->gap = policy_smooth(from->gap, at - slot->last);
  slot->arrived++;
  slot->last = fmax(slot->last, at);
  if (slot->arrived == slot->count) t->changed = true;
}

/* What the port has let in by now. */
static void let_in(Transport *t, double now) {
  while (t->entering_count && t->entering[t->entering_first].at <= now) {
    const Entering *e = &t->entering[t->entering_first];
    Slot *slot = &t->peers[e->peer].slots[e->slot];
    if (slot->used && slot->sequence == e->sequence) arrive(t, e->peer, slot, e->index, e->at);
    t->entering_first = (t->entering_first + 1) % MAX_IN_FLIGHT;
    t->entering_count--;
  }
}

/* The next packet to the peer that is due. What is lost on its link, or for whom nobody waits any more, ends here: *dropped. */
static bool next_to(Transport *t, int to, double now, TransportOutput *output, bool *dropped) {
  Peer *peer = &t->peers[to];
  while (peer->flying && peer->flights[peer->first].at <= now) {
    const InFlight *f = &peer->flights[peer->first];
    t->buffer_bytes = make_packet(t, to, f, t->buffer);
    *output = (TransportOutput){.peer = to, .packet = t->buffer, .bytes = t->buffer_bytes};
    if (!f->lost && !is_in(t->gone, to)) return true;
    finish_packet(t, to);
    *dropped = true;
  }
  return false;
}

bool transport_output(Transport *t, double now, uint64_t blocked, TransportOutput *output) {
  let_in(t, now);
  for (bool dropped = true; dropped;) {
    dropped = false;
    empty_queue(t, now);
    if (t->next_due > now) return false;
    t->next_due = 0; /* until all have been looked at */
    double next = INFINITY;
    for (int i = 0; i < t->setup.nodes; i++) {
      int d = (t->turn + i) % t->setup.nodes;
      const Peer *peer = &t->peers[d];
      if (!is_in(blocked, d) && next_to(t, d, now, output, &dropped)) {
        t->turn = d;
        return true;
      }
      if (peer->flying && peer->flights[peer->first].at < next) next = peer->flights[peer->first].at;
    }
    t->next_due = next;
  }
  return false;
}

void transport_sent(Transport *t, int peer) { finish_packet(t, peer); }

double transport_deadline(const Transport *t, uint64_t blocked) {
  double next = blocked ? INFINITY : t->next_due;
  for (int d = 0; blocked && d < t->setup.nodes; d++) {
    const Peer *peer = &t->peers[d];
    if (peer->flying && !is_in(blocked, d)) next = fmin(next, peer->flights[peer->first].at);
  }
  return t->entering_count ? fmin(next, t->entering[t->entering_first].at) : next;
}

/* One of these peers for whom packets have not left yet; -1: none. */
static int waits_for(const Transport *t, uint64_t peers) {
  for (int d = 0; d < t->setup.nodes; d++) {
    if (is_in(peers, d) && t->peers[d].flying) return d;
  }
  return -1;
}

bool transport_is_idle(const Transport *t) { return t->queued == 0 && waits_for(t, UINT64_MAX) < 0; }

/* ---- the owner's side: requests and messages that are sent ---- */

static bool sends(const Transport *t, int peer, int part) {
  const PacketRules *rules = t->rules;
  if (!is_in(t->senders, peer) || part >= rules->parts) return false;
  return rules->message_rows || packet_rows(rules, peer, t->batch, 0, 0, part) > 0;
}

static void take_early(Transport *t);

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
      uint64_t first = sequence_of(t, request + !sends(t, d, lane % t->setup.parts), 0);
      if (t->peers[d].taken[lane] < first) t->peers[d].taken[lane] = first;
      if (t->peers[d].next[lane] < first) t->peers[d].next[lane] = first;
    }
  }
  take_early(t);
}

int transport_reserve(Transport *t, MessageKey key, int *holds_up) {
  uint64_t sequence;
  Message *m = message_of(t, key, &sequence);
  if (m->pending) {
    int peer = waits_for(t, m->peers); /* a receiver, or who keeps the queue's head from leaving */
    *holds_up = peer >= 0 ? peer : waits_for(t, UINT64_MAX);
    return m->pending;
  }
  m->used = false; /* its memory is the owner's from here on */
  m->sequence = sequence;
  return 0;
}

/* The span of a block: from its first packet sent to its last arrival. */
static void begin_span(Transport *t, uint64_t sequence, double now) {
  if (sequence == t->span_sequence && t->span_from > 0) return;
  t->span_sequence = sequence;
  t->span_from = t->span_to = now;
}

static void extend_span(Transport *t, uint64_t sequence, double last) {
  if (sequence != t->span_sequence || t->span_from <= 0 || last <= t->span_to) return;
  t->counts.span += last - t->span_to;
  t->span_to = last;
}

Status transport_submit(Transport *t, MessageKey key, const TransportPacket *packets, int count, uint64_t peers, double now) {
  uint64_t sequence, receivers = (uint64_t)__builtin_popcountll(peers & ~t->gone), payload = 0;
  Message *m = message_of(t, key, &sequence);
  if (m->pending) return status_set(STATUS_BAD_VALUE, "a message was sent before its memory was free");
  if (count > MAX_PACKETS) return status_set(STATUS_BAD_VALUE, "a message of %d packets", count);
  for (int i = 0; i < count; i++) {
    payload += packets[i].bytes;
    if (packets[i].bytes + PACKET_HEADER > t->setup.max_packet)
      return status_set(STATUS_BAD_VALUE, "a packet of %zu bytes; the backend takes %zu", packets[i].bytes,
                        t->setup.max_packet - PACKET_HEADER);
  }
  if (!peers) return STATUS_OK;
  *m = (Message){.used = true,
                 .sequence = sequence,
                 .peers = peers,
                 .key = key,
                 .packets = packets,
                 .count = count,
                 .pending = 1 /* the queue's */,
                 .left = m->left,
                 .left_at = m->left_at,
                 .resend = m->resend};
  memset(m->left, 0, (size_t)t->setup.nodes * sizeof *m->left);
  memset(m->resend, 0, (size_t)t->setup.nodes * (size_t)t->words * sizeof *m->resend);
  t->counts.payload_sent += receivers * payload;
  t->counts.packets_sent += receivers * (uint64_t)count;
  t->counts.bytes_sent += receivers * (payload + (uint64_t)count * (PACKET_HEADER + t->setup.overhead));
  begin_span(t, sequence, now);
  enqueue(t, (Entry){.kind = ENTRY_MESSAGE, .ready = now, .peers = peers, .message = (int)(m - t->messages)});
  return STATUS_OK;
}

/* ---- what comes: data ---- */

/* Behind what the port of a switch lets in first; where it has no room, it is lost. */
static void enter_port(Transport *t, int peer, Slot *slot, int index, size_t bytes, double now) {
  double at = netem_receive(&t->netem, peer, now, PACKET_HEADER + bytes + t->setup.overhead);
  if (at <= now) {
    arrive(t, peer, slot, index, now);
  } else if (t->entering_count < MAX_IN_FLIGHT) {
    t->entering[(t->entering_first + t->entering_count++) % MAX_IN_FLIGHT] =
        (Entering){.peer = peer, .slot = (int)(slot - t->peers[peer].slots), .index = index, .sequence = slot->sequence, .at = at};
  }
}

/* The length of a message is what its first packet said. */
static Status check_count(const Transport *t, Slot *slot, int count) {
  if (slot->count == 0 && count <= t->setup.max_packets) slot->count = count;
  if (slot->count == count) return STATUS_OK;
  return status_set(STATUS_BAD_VALUE, "sent a packet of %d of a message of %d; %d are possible", count, slot->count, t->setup.max_packets);
}

/* A packet of the request at work, whose place in the sequence is right. */
static Status take_data(Transport *t, int peer, const uint8_t *packet, size_t bytes, double now) {
  Packet p;
  TRY(packet_parse(packet, bytes, peer, t->batch, t->rules, &p));
  Slot *slot = open_slot(t, peer, sequence_of(t, p.request, p.block), lane_of(t, p.site, p.part));
  size_t payload = bytes - PACKET_HEADER;
  size_t offset = packet_offset(t->rules, packet_rows(t->rules, peer, t->batch, p.block, p.site, p.part), p.count, p.index);
  TRY(check_count(t, slot, p.count));
  if (slot->decided) {
    t->counts.dropped++; /* it was counted when it was given up */
    return STATUS_OK;
  }
  if (has(slot->there, p.index)) return STATUS_OK;
  if (offset + payload > t->setup.max_message_bytes) return status_set(STATUS_BAD_VALUE, "sent a message that is too long");
  if (!t->setup.lengths_only) {
    memcpy(slot->bytes + offset, packet + PACKET_HEADER, payload);
    slot->length[p.index] = (uint32_t)payload;
    slot->flags[p.index] = p.flags;
  }
  enter_port(t, peer, slot, p.index, payload, now);
  return STATUS_OK;
}

/* Messages that have no rows in the request at work do not come. */
static void pass_empty(const Transport *t, int peer, const Packet *p, uint64_t sequence, uint64_t *next) {
  uint64_t blocks = (uint64_t)t->setup.blocks, end = (uint64_t)t->request * blocks;
  if (!t->rules || !t->rules->message_rows) return;
  while (*next < sequence && *next < end && packet_rows(t->rules, peer, t->batch, (int)(*next % blocks), p->site, p->part) == 0) ++*next;
}

/* On a stream every packet has its turn. Only a whole request may be passed over, by texts that a device takes no part in. */
static Status take_in_order(Transport *t, int peer, const Packet *p, const uint8_t *packet, size_t bytes, double now, bool *taken) {
  Peer *from = &t->peers[peer];
  int lane = lane_of(t, p->site, p->part);
  unsigned blocks = (unsigned)t->setup.blocks;
  uint64_t sequence = sequence_of(t, p->request, p->block), *next = &from->next[lane];
  if (from->seen[lane] == 0) pass_empty(t, peer, p, sequence, next);
  bool between = t->setup.ahead && p->block == 0 && *next % blocks == 0 && from->seen[lane] == 0;
  if (sequence != *next && !(between && sequence > *next))
    return status_set(STATUS_BAD_VALUE, "sent codes of request %u, block %d where request %u, block %u was expected", p->request, p->block,
                      (unsigned)(*next / blocks) + 1, (unsigned)(*next % blocks));
  *taken = p->request <= t->request && sequence < from->taken[lane] + (uint64_t)t->ring;
  if (!*taken) return STATUS_OK;
  if (p->index != from->seen[lane])
    return status_set(STATUS_BAD_VALUE, "sent packet %d of %d where packet %d was expected", p->index, p->count, from->seen[lane]);
  if (sequence >= from->taken[lane]) {
    TRY(take_data(t, peer, packet, bytes, now));
  } else {
    t->counts.dropped++; /* the deadline was over before it came */
  }
  if (++from->seen[lane] < p->count) return STATUS_OK;
  from->seen[lane] = 0;
  *next = sequence + 1;
  return STATUS_OK;
}

/* Datagrams come when they come: what is behind the time, or too far ahead of it, is left out. */
static Status take_in_any_order(Transport *t, int peer, const Packet *p, const uint8_t *packet, size_t bytes, double now) {
  int lane = lane_of(t, p->site, p->part);
  uint64_t sequence = sequence_of(t, p->request, p->block), first = t->peers[peer].taken[lane];
  if (sequence < first || p->request < t->request || sequence >= first + (uint64_t)t->ring) {
    t->counts.dropped++;
    return STATUS_OK;
  }
  if (p->request == t->request) return take_data(t, peer, packet, bytes, now);
  Slot *slot = open_slot(t, peer, sequence, lane);
  if (slot->early + EARLY_PREFIX + bytes > t->slot_room) return STATUS_OK; /* an honest sender's have room */
  wire_put_u32(slot->bytes + slot->early, (uint32_t)bytes);
  memcpy(slot->bytes + slot->early + EARLY_PREFIX, packet, bytes);
  slot->early += EARLY_PREFIX + bytes;
  return STATUS_OK;
}

/* What had come for the request that begins now. */
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

/* ---- what comes: questions and answers ---- */

static Status check_bits(const Packet *p, size_t bytes, size_t head) {
  if (p->count <= MAX_PACKETS && p->index == 0 && p->flags == 0 && bytes == PACKET_HEADER + head + packet_bits_bytes(p->count))
    return STATUS_OK;
  return status_set(STATUS_BAD_VALUE, "sent a question or an answer of %zu bytes about %d packets", bytes, p->count);
}

/* Whoever does not know how much there is waits for the answer first: what has left may well be on its way, and comes before it. */
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
    memset(wanted, 0, (size_t)t->words * sizeof *wanted); /* it will ask again */
}

static Status take_query(Transport *t, int peer, const Packet *p, const uint8_t *packet, size_t bytes, double now) {
  Peer *from = &t->peers[peer];
  TRY(check_bits(p, bytes, 0));
  netem_receive(&t->netem, peer, now, bytes + t->setup.overhead); /* the port's time; the answer may leave before it is over */
  if (from->answers >= MAX_ANSWERS) return STATUS_OK;             /* it will ask again */
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
  } else if (slot->unanswered > 1) { /* it may answer any of them: the link is at least as slow as since the last one */
    from->round_trip = fmax(from->round_trip, took);
  }
  slot->unanswered = 0;
  if (slot->decided) return STATUS_OK;
  slot->sender = head[0] == 0 ? SENDER_NOT_YET : head[0] == 1 ? SENDER_SENT : SENDER_GONE;
  slot->told = netem_receive(&t->netem, peer, now, bytes + t->setup.overhead); /* behind what came before it */
  if (p->count) TRY(check_count(t, slot, p->count));
  for (int i = 0; i < p->count; i++) {
    if (byte_bit(head + PACKET_STATUS_HEAD, i)) set(slot->said, i);
  }
  t->changed = true;
  return STATUS_OK;
}

static Status take_packet(Transport *t, int peer, const uint8_t *packet, size_t bytes, double now, bool *taken) {
  const TransportSetup *s = &t->setup;
  Packet p;
  if (bytes < PACKET_HEADER) return status_set(STATUS_BAD_VALUE, "sent a packet of %zu bytes", bytes);
  packet_read(packet, &p);
  if (p.request == 0 || p.block >= s->blocks || p.site >= s->sites || p.part >= s->parts)
    return status_set(STATUS_BAD_VALUE, "sent a packet of request %u, block %d, site %d, part %d; the model has %d blocks of %d, %d parts",
                      p.request, p.block, p.site, p.part, s->blocks, s->sites, s->parts);
  bool control = p.type == PACKET_QUERY || p.type == PACKET_STATUS;
  if (control && t->reliability.mode == RELIABILITY_STREAM)
    return status_set(STATUS_BAD_VALUE, "sent a question or an answer where nothing is lost");
  if (p.type == PACKET_QUERY) return take_query(t, peer, &p, packet, bytes, now);
  if (p.type == PACKET_STATUS) return take_status(t, peer, &p, packet, bytes, now);
  if (p.request == t->request && !is_in(t->senders, peer))
    return status_set(STATUS_BAD_VALUE, "sent codes, though this device does not hear it in this request");
  return s->ordered ? take_in_order(t, peer, &p, packet, bytes, now, taken) : take_in_any_order(t, peer, &p, packet, bytes, now);
}

bool transport_input(Transport *t, int peer, const uint8_t *packet, size_t bytes, double now) {
  Peer *from = &t->peers[peer];
  bool taken = true;
  if (from->status != STATUS_OK) return true;
  let_in(t, now);
  Status status = take_packet(t, peer, packet, bytes, now, &taken);
  if (status != STATUS_OK) transport_fail_peer(t, peer, status, status_message());
  if (!taken) return false;
  from->heard = now;
  t->counts.packets_received++;
  t->counts.bytes_received += bytes + t->setup.overhead;
  return true;
}

/* ---- the owner's side: messages that are waited for ---- */

void transport_caught_up(Transport *t, double at) {
  t->caught_up = at;
  t->changed |= t->doubts;
  t->doubts = false;
}

/* What lies between two waits is how long this device computes a block, and others may. Waiting does not count, or losses would make
 * everybody more and more patient. */
Expected transport_expect(Transport *t, MessageKey key, uint64_t peers, double now) {
  if (key.site == 0 && key.part == 0 && t->block_from > 0) t->block_time = policy_smooth(t->block_time, now - t->block_from);
  return (Expected){.key = key, .peers = peers, .undecided = peers, .since = now};
}

/* Time has passed, but perhaps for this process alone: what came meanwhile is to be taken before anything is given up. A peer that sends
 * faster than it can be taken puts that off for a second. */
static bool has_caught_up(Transport *t, Slot *slot, double now) {
  if (slot->doubted <= 0) slot->doubted = now;
  if (t->caught_up >= slot->doubted || now > slot->doubted + flood_seconds) return true;
  t->doubts = t->wants_driver = true;
  return false;
}

static Decision decide(Transport *t, int peer, const Expected *e, Slot *slot, double now, double *again) {
  const Peer *from = &t->peers[peer];
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
  for (int i = 0; i < t->words; i++) state.missing_sent += __builtin_popcountll(slot->said[i] & ~slot->there[i]);
  Decision decision = policy_decide(&t->reliability, &state, now, &asks, again);
  if (is_in(t->gone, peer)) return decision == DECISION_COMPLETE ? DECISION_COMPLETE : DECISION_LATE;
  if (decision == DECISION_WAIT && asks)
    slot->asking = enqueue(t, (Entry){.kind = ENTRY_QUERY, .ready = now, .peers = (uint64_t)1 << peer, .key = e->key});
  if (decision == DECISION_WAIT) slot->doubted = 0;
  if (decision == DECISION_WAIT || decision == DECISION_COMPLETE || has_caught_up(t, slot, now)) return decision;
  *again = now + look_seconds;
  return DECISION_WAIT;
}

static void count_missing(Transport *t, int peer, const Expected *e, const Slot *slot, bool lost) {
  int64_t all = packet_rows(t->rules, peer, t->batch, e->key.block, e->key.site, e->key.part), tokens = slot->count ? 0 : all;
  uint64_t packets = slot->count ? (uint64_t)(slot->count - slot->arrived) : 1;
  for (int i = 0; i < slot->count; i++) tokens += has(slot->there, i) ? 0 : interleave_count(all, slot->count, i);
  *(lost ? &t->counts.lost : &t->counts.late) += packets;
  *(lost ? &t->counts.lost_tokens : &t->counts.late_tokens) += (uint64_t)tokens;
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

/* What is lost, or late at the deadline that was asked for, is done without. Time that is over for a peer is a failure. */
static Status finish_message(Transport *t, int peer, const Expected *e, Slot *slot, Decision decision, TransportArrival *arrival) {
  bool masked = is_in(t->gone, peer) || decision == DECISION_LOST || decision == DECISION_LATE;
  if (decision != DECISION_COMPLETE && !masked) TRY(transport_give_up(t, peer));
  if (decision != DECISION_COMPLETE) count_missing(t, peer, e, slot, decision == DECISION_LOST);
  slot->decided = true;
  *arrival = (TransportArrival){.packets = t->setup.lengths_only ? NULL : t->peers[peer].arrival,
                                .count = slot->count,
                                .missing = slot->count - slot->arrived,
                                .late = decision == DECISION_LATE || decision == DECISION_PEER_GONE};
  extend_span(t, slot->sequence, slot->last);
  if (!t->setup.lengths_only) list_packets(t, peer, e, slot);
  return STATUS_OK;
}

Status transport_take(Transport *t, Expected *e, double now, TransportArrival *arrivals, double *again) {
  *again = INFINITY;
  let_in(t, now);
  for (uint64_t left = e->undecided; left; left &= left - 1) {
    int d = __builtin_ctzll(left);
    double next;
    Slot *slot = find_slot(t, d, e->key);
    if (!slot) slot = open_slot(t, d, sequence_of(t, e->key.request, e->key.block), lane_of(t, e->key.site, e->key.part));
    Decision decision = decide(t, d, e, slot, now, &next);
    if (decision == DECISION_WAIT) {
      *again = fmin(*again, next);
      continue;
    }
    TRY(finish_message(t, d, e, slot, decision, &arrivals[d]));
    e->undecided &= ~((uint64_t)1 << d);
  }
  if (!e->undecided) t->block_from = now;
  return e->undecided ? transport_check(t) : STATUS_OK;
}

void transport_done(Transport *t, MessageKey key, uint64_t peers) {
  uint64_t sequence = sequence_of(t, key.request, key.block);
  int lane = lane_of(t, key.site, key.part);
  for (int d = 0; d < t->setup.nodes; d++) {
    if (is_in(peers, d) && t->peers[d].taken[lane] == sequence) t->peers[d].taken[lane] = sequence + 1;
  }
}
