/* The inside of a transport, shared by transport.c (memory, peers, sending) and transport_receive.c (receiving, and waiting for messages).
 */
#ifndef INFER_TRANSPORT_INTERNAL_H
#define INFER_TRANSPORT_INTERNAL_H
#include "infer/transport/transport.h"

enum { MAX_IN_FLIGHT = 2048 /* packets to a peer */, MAX_ANSWERS = 16 /* unsent STATUSes for a peer */, EARLY_PREFIX = 4 };

/* A message from a peer, as far as it has arrived. */
typedef struct Slot {
  bool used, decided;
  uint64_t sequence;
  int count, arrived; /* packets; count 0: not known */
  size_t early;       /* bytes of packets that arrived before their request began, each behind its length */
  double last;        /* when the last packet arrived */
  uint8_t *bytes;     /* [slot_room]; NULL where that is 0 */
  uint64_t *there;    /* [words] bits of packets that have arrived */
  uint64_t *said;     /* [words] bits of packets that the sender says it has sent */
  uint32_t *length;   /* [max_packets] payload bytes */
  uint8_t *flags;     /* [max_packets] */
  SenderState sender;
  bool asking;                 /* a QUERY is in the queue or in flight */
  int unanswered;              /* QUERYs sent since the last STATUS */
  double asked, told, doubted; /* last QUERY sent, last STATUS; since when nothing more seems to arrive */
} Slot;

/* A message to peers. */
typedef struct Message {
  bool used;
  uint64_t sequence, peers;
  MessageKey key;
  const TransportPacket *packets; /* [count] */
  int count;
  int pending;      /* entries of the queue and packets in flight that read it */
  uint16_t *left;   /* [nodes] packets sent, in order */
  double *left_at;  /* [nodes] when the last one was sent */
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
  double sent, left, at;    /* put in flight; left this device's link; reaches the peer's port */
  int message, index, next; /* next: the one behind it to the same peer, or in the free list */
  MessageKey key;
} InFlight;

/* A packet that the port of a simulated switch holds back. */
typedef struct Entering {
  int peer, slot, index;
  uint64_t sequence;
  double at;
} Entering;

/* The messages of a site and part, in order. */
typedef struct Lane {
  uint64_t taken; /* first sequence that is not finished */
  uint64_t next;  /* on ordered backends: the next one to arrive */
  int seen;       /* packets of that one that have arrived */
} Lane;

typedef struct Peer {
  Slot *slots;              /* [places] */
  uint8_t *slot_bytes;      /* [places][slot_room] allocated separately, so that a sanitizer detects an overrun */
  Lane *lane;               /* [lanes] */
  TransportPacket *arrival; /* [max_packets] */
  int first, last, flying;  /* of flights */
  int answers;              /* STATUSes in the queue or in flight */
  double heard, round_trip, jitter, gap;
  double again;  /* when transport_take looks at its message again, unless it is fresh */
  Status status; /* not OK: its packets are ignored */
  char *why;     /* owned */
} Peer;

struct Transport {
  TransportSetup setup;
  Reliability reliability;
  LinkOptions links;
  Netem netem;
  uint8_t *block; /* everything with a pointer below that is not allocated separately */
  /* shapes */
  int lanes /* sites * parts */, places /* state.ring * lanes */, words, max_in_flight, max_queued, max_entering;
  size_t slot_room;
  /* the request */
  uint32_t request; /* 0: none yet */
  int64_t batch;
  const PacketRules *rules;
  uint64_t senders, receivers, failed;
  /* queued, in flight, arrived */
  Peer *peers;       /* [nodes] */
  InFlight *flights; /* [nodes max_in_flight] a list for each peer, and the free list */
  int flights_used, free_flight /* -1: none */;
  double *due;       /* [nodes] when the first packet in flight reaches each peer; INFINITY: there is none */
  uint64_t full;     /* peers with as many in flight as possible */
  Message *messages; /* [places] */
  Entry *queue;      /* ring [max_queued] */
  int queue_first, queued;
  Entering *entering; /* ring [max_entering] */
  int entering_first, entering_count;
  uint8_t *buffer; /* of the packet being sent; allocated separately */
  size_t buffer_bytes;
  uint8_t *scratch; /* [slot_room] allocated separately */
  double next_due;  /* the first of `due` */
  int turn;         /* the peer that transport_output starts with */
  bool changed, wants_driver, doubts /* a decision waits for transport_caught_up */;
  double caught_up;
  uint64_t fresh;       /* peers whose message must be looked at: something has changed */
  double waiting_since; /* of the Expected that was last looked at */
  /* estimates and counts */
  uint64_t span_sequence;
  double span_from, span_to, block_from, block_time;
  TransportState state;
};

static inline uint64_t sequence_of(const Transport *t, uint32_t request, int block) {
  return (uint64_t)(request - 1) * (uint64_t)t->setup.blocks + (uint64_t)block;
}
static inline int lane_of(const Transport *t, int site, int part) { return site * t->setup.parts + part; }
static inline int place_of(const Transport *t, uint64_t sequence, int lane) {
  return (int)(sequence % (uint64_t)t->state.ring) * t->lanes + lane;
}
static inline bool has(const uint64_t *bits, int i) { return bits[i / 64] >> i % 64 & 1; }
static inline void set(uint64_t *bits, int i) { bits[i / 64] |= (uint64_t)1 << i % 64; }
static inline bool is_in(uint64_t peers, int peer) { return peers >> peer & 1; }
static inline bool byte_bit(const uint8_t *bytes, int i) { return bytes[i / 8] >> i % 8 & 1; }

static inline Message *message_of(const Transport *t, MessageKey key, uint64_t *sequence) {
  *sequence = sequence_of(t, key.request, key.block);
  return &t->messages[place_of(t, *sequence, lane_of(t, key.site, key.part))];
}

/* The slot, if it holds this message; else NULL. */
static inline Slot *find_slot(const Transport *t, int peer, MessageKey key) {
  uint64_t sequence = sequence_of(t, key.request, key.block);
  Slot *slot = &t->peers[peer].slots[place_of(t, sequence, lane_of(t, key.site, key.part))];
  return slot->used && slot->sequence == sequence && !slot->early ? slot : NULL;
}

static inline Packet control_packet(PacketType type, MessageKey key) {
  return (Packet){.request = key.request, .block = key.block, .site = key.site, .part = key.part, .type = type};
}

/* False: there is no room for it. Messages always find room: an entry for each place is theirs alone. */
static inline bool enqueue(Transport *t, Entry entry) {
  if (t->queued >= t->max_queued - (entry.kind == ENTRY_MESSAGE ? 0 : t->places)) return false;
  t->queue[(t->queue_first + t->queued++) % t->max_queued] = entry;
  t->wants_driver = true;
  return true;
}

#endif
