/* The inside of a courier, private to the files called courier*.c. All of it is under `lock` but for the carrier, which is the thread's.
 *
 *   send     courier_send -> groups (a ring) and queue -> shaper -> flights of each peer, by time of arrival -> carrier
 *   receive  carrier -> courier_receive_take -> slots (a ring for each peer) -> courier_wait
 *
 * Groups of the same site and part are numbered by sequence = (request - 1) blocks + block, and stand at sequence mod ring. A slot takes
 * sequences from `taken` (what courier_done has not passed) on, as many as the ring is long. */
#ifndef INFER_COURIER_PARTS_H
#define INFER_COURIER_PARTS_H
#include "infer/wire.h"
#include "infer/wire/courier.h"
#include "infer/wire/shaper.h"
#include <pthread.h>

enum { COURIER_FLIGHTS = 2048 /* packets to a peer under way, at most */, COURIER_ASKED = 16 /* unanswered QUERYs of a peer */ };
enum { COURIER_FAILURE = 512 };
#define COURIER_LOOK (1e-3 * RELIABILITY_LOOK_MS) /* seconds between two looks at what is waited for */

/* A group from a peer. */
typedef struct CourierSlot {
  bool used, decided;
  uint64_t sequence;
  int count, arrived; /* packets; 0: not known */
  size_t early;       /* bytes of packets that came before their request began: as they came, each behind its length */
  double last;        /* when the last packet came */
  uint8_t *bytes;     /* [slot_bytes and room for early packets' headers] */
  uint64_t *there;    /* [words] bits of packets that are there */
  uint64_t *said;     /* [words] bits of packets that the sender says it has sent */
  uint32_t *length;   /* [packets_most] payload bytes */
  uint8_t *flags;     /* [packets_most] */
  GroupSender sender;
  bool asking;                 /* a QUERY is in the queue or flies */
  int unanswered;              /* QUERYs that have left since the last STATUS */
  double asked, told, doubted; /* last QUERY that has left, last STATUS; since when it seems that nothing more comes */
} CourierSlot;

/* A group to peers. */
typedef struct CourierGroup {
  bool used;
  uint64_t sequence, peers;
  GroupKey key;
  const CourierPacket *packets; /* [count] */
  int count;
  int waiting;      /* entries of the queue and flights that read it */
  uint16_t *left;   /* [nodes] packets that have left, in order */
  double *left_at;  /* [nodes] when the last one did */
  uint64_t *resend; /* [nodes][words] to be sent again */
} CourierGroup;

typedef enum CourierKind { COURIER_GROUP, COURIER_RESEND, COURIER_QUERY, COURIER_STATUS } CourierKind;

typedef struct CourierEntry { /* of the queue */
  CourierKind kind;
  double ready;
  uint64_t peers; /* bits */
  int group, next;
  GroupKey key; /* QUERY, STATUS */
} CourierEntry;

typedef struct CourierFlight {
  CourierKind kind;
  bool lost;
  double at;
  int group, index;
  GroupKey key;
} CourierFlight;

/* A packet that the switch's port has not let in yet. */
typedef struct CourierLanding {
  int peer, slot, index;
  uint64_t sequence;
  double at;
} CourierLanding;

typedef struct CourierPeer {
  CourierSlot *slots;     /* [slots] */
  uint64_t *taken, *next; /* [sites * parts] first sequence that is not done; on ordered carriers the one that comes next */
  int *seen;              /* [sites * parts] packets of that one that have come */
  CourierPacket *arrival; /* [packets_most] */
  CourierFlight *flights; /* ring [flights_most] */
  int first, flying;
  int asked; /* STATUS answers in the queue or under way */
  double heard, round_trip, jitter, gap;
  Status status; /* of the stream, or of the peer's manners; not OK: nothing comes from it any more */
  char why[COURIER_FAILURE];
} CourierPeer;

struct Courier {
  CourierSetup setup;
  Reliability reliability;
  LinkOptions links;
  Shaper shaper;
  Carrier *carrier;
  pthread_t thread;
  bool threaded; /* there is one to join */
  pthread_mutex_t lock;
  pthread_cond_t changed;
  int wake; /* eventfd */
  Status opened;
  bool open, stopping, sleeping;
  bool work; /* something was asked of the thread since it last looked */
  size_t packet_most;
  char failure[COURIER_FAILURE]; /* of opening, or of the carrier as a whole */
  Status failed;
  int accused;
  size_t memory;
  /* shapes */
  int ring, lanes /* sites * parts */, slots /* ring * lanes */, words;
  int flights_most;
  size_t slot_room, buffer_bytes;
  /* the request */
  uint32_t request; /* 0: none yet */
  int64_t batch;
  const PacketRules *rules;
  uint64_t senders, hearers, left /* for good: nobody waits for these, in any request */;
  /* what waits, moves and has come */
  CourierPeer *peers;   /* [nodes] */
  CourierGroup *groups; /* [slots] */
  CourierEntry *queue;  /* ring [queue_most] */
  int queue_most, queue_first, queued;
  CourierLanding *landings; /* ring [COURIER_FLIGHTS] */
  int landing_first, landing;
  bool held;        /* a packet waits in the carrier for room */
  bool watched;     /* somebody waits for `changed` */
  bool look;        /* and wants to know what has come by now */
  double looked;    /* what had come by then has been taken */
  double checked;   /* when who waits was last asked whether to go on */
  uint8_t *buffer;  /* [packet_most] of the packet that is sent */
  uint8_t *scratch; /* [slot_room] */
  /* estimates and counts */
  uint64_t span_sequence;
  double span_from, span_to, block_from, block_time;
  CourierCounts counts;
};

static inline uint64_t courier_sequence(const Courier *c, uint32_t request, int block) {
  return (uint64_t)(request - 1) * (uint64_t)c->setup.blocks + (uint64_t)block;
}
static inline int courier_lane(const Courier *c, int site, int part) { return site * c->setup.parts + part; }
static inline int courier_place(const Courier *c, uint64_t sequence, int lane) {
  return (int)(sequence % (uint64_t)c->ring) * c->lanes + lane;
}
static inline bool courier_has(const uint64_t *bits, int i) { return bits[i / 64] >> i % 64 & 1; }
static inline void courier_set(uint64_t *bits, int i) { bits[i / 64] |= (uint64_t)1 << i % 64; }
static inline bool courier_is_in(uint64_t peers, int peer) { return peers >> peer & 1; }

/* The thread is to look at what there is to do. Under the lock. */
void courier_wake(Courier *c);

/* The peer has broken the rules, or its stream is over: the status's message says how. */
void courier_fail_peer(Courier *c, int peer, Status status, const char *why);

/* Nobody waits for the peer from here on. */
void courier_leave(Courier *c, int peer);

/* Of a peer that takes part in the request, or of all. One that broke the rules first. */
Status courier_check(Courier *c);

/* One slice of a wait, until something changes, or then; lets go of the lock. *shift: by how much this process was late by itself. */
Status courier_wait_slice(Courier *c, double until, CourierCheck *check, void *context, double *shift);

/* Patience with a peer is at its end: a failure, or it is left. */
Status courier_run_out(Courier *c, int peer);

/* ---- courier_memory.c */
Status courier_memory_allocate(Courier *c); /* by the thread, once the carrier is open; NO_MEMORY */
void courier_memory_release(Courier *c);    /* all of it, and the courier itself; the carrier is closed by then */

/* ---- courier_send.c */
bool courier_queue(Courier *c, CourierEntry entry); /* false: full; never of a group whose place is free */
bool courier_launch(Courier *c, double now);        /* queue -> flights, as far as there is room; whether any took off */
double courier_fly(Courier *c, double now);         /* flights -> carrier; when to come again */

/* ---- courier_receive.c */
CourierSlot *courier_receive_find(const Courier *c, int peer, GroupKey key);          /* its slot while it holds this group; NULL: not so */
CarrierTake courier_receive_take;                                                     /* context: the courier */
void courier_receive_early(Courier *c);                                               /* what had come for the request that begins now */
CourierSlot *courier_receive_open(Courier *c, int peer, uint64_t sequence, int lane); /* its slot, emptied if it held another group */
double courier_land(Courier *c, double now);                                          /* what the port lets in; when to come again */
int courier_missing_said(const Courier *c, const CourierSlot *slot); /* packets that are missing though the sender has sent them */
/* The bytes of a packet's bits, as QUERY and STATUS have them. */
void courier_pack_bits(const uint64_t *bits, int count, bool inverted, uint8_t *bytes);

#endif
