/* A thread that carries packets between this device and its peers while the other threads compute: queues, reliability, shaping and
 * counting, once for all carriers (carrier.h).
 *
 * The functions below may be called by the thread that computes; nothing else is shared between the two. The courier computes nothing,
 * never looks at weights, and allocates nothing after courier_start. A failure (a peer that breaks the rules, or is gone without leave) is
 * kept and comes back from the next courier_send or courier_wait, with the peer named. */
#ifndef INFER_COURIER_H
#define INFER_COURIER_H
#include "infer/wire/carrier.h"
#include "infer/wire/link_model.h"
#include "infer/wire/packet.h"
#include "infer/wire/reliability.h"

typedef struct Courier Courier;

/* While one waits: called every 20 ms at least, by the thread that waits; a failure ends the waiting. */
typedef Status CourierCheck(void *context);

typedef struct CourierSetup {
  int self, nodes;
  Status (*open)(void *context, Carrier **carrier); /* called in the courier's thread, which frees the carrier in the end */
  void *open_context;
  CourierCheck *check; /* while it opens; a failure comes back when `open` has ended, which is to be told by the check; may be NULL */
  void *check_context;
  int blocks, sites, parts;
  size_t slot_bytes; /* payloads of the largest group, in any number of packets */
  int packets_most;  /* of a group: PACKETS_MOST, or the tokens of the largest one */
  bool ahead;        /* senders wait for nobody (decoders): slots for two whole requests where the carrier cannot hold them back */
  const Reliability *reliability; /* copied */
  const LinkOptions *links;       /* copied but for the trace; NULL: as they are */
  double timeout;
  bool mask; /* a peer that fails or falls silent is gone: nobody waits for it any more; else that is a failure */
} CourierSetup;

/* Starts the thread and waits until it has opened the carrier, whose failure comes back. The thread runs where this one may run. */
Status courier_start(Courier **courier, const CourierSetup *setup);

/* Sends what is queued for at most a second, ends the thread, frees. Accepts NULL. */
void courier_stop(Courier *courier);
size_t courier_bytes(const Courier *courier); /* of memory; 0 of NULL */

size_t courier_packet_most(Courier *courier); /* payload of a packet; may fall as routes are learnt */
int courier_ring(const Courier *courier);     /* groups of the same site and part that are kept, both ways: the others' memory too */

typedef struct GroupKey {
  uint32_t request;
  uint8_t block, site, part;
} GroupKey;

typedef struct CourierPacket {
  Packet header;
  const uint8_t *payload; /* NULL: it did not come */
  size_t bytes;
} CourierPacket;

/* What has come of a group from one peer. */
typedef struct CourierArrival {
  const CourierPacket *packets; /* [count] in order of index */
  int count;                    /* 0: nothing came, and it is not known how much there was */
  int missing;
  bool late; /* the rest was masked since the time was over, not because it was lost */
} CourierArrival;

/* Before the first group of a request: its samples, what follows for lengths, and who sends to this device and hears it (bits of nodes).
 * rules and its arrays stay as they are until the next one. Packets of the next request may come before it begins: their lengths are
 * checked then. */
Status courier_begin_request(Courier *courier, uint32_t request, int64_t batch, const PacketRules *rules, uint64_t senders,
                             uint64_t hearers);

/* Waits until the memory of the group that was sent courier_ring blocks before this one may be used again. TIMEOUT: a peer does not take
 * it.
 */
Status courier_reserve(Courier *courier, GroupKey key, CourierCheck *check, void *context);

/* Queues a group for these peers (bits). Nothing is copied: packets [count] and payloads stay as they are until courier_reserve gives their
 * memory back. */
Status courier_send(Courier *courier, GroupKey key, const CourierPacket *packets, int count, uint64_t peers);

/* Waits until this group is decided for each of the peers (bits): complete, or given up. arrivals [nodes], valid until the next wait; their
 * payloads until courier_done. TIMEOUT, PEER: as reliability says. check may be NULL. */
Status courier_wait(Courier *courier, GroupKey key, uint64_t peers, CourierArrival *arrivals, CourierCheck *check, void *context);

/* The group has been read: its slots are free for another one. */
void courier_done(Courier *courier, GroupKey key, uint64_t peers);

/* Until nothing is queued any more. */
Status courier_flush(Courier *courier);

/* The peer is gone for good: nobody waits for it, in this request and all others, and what was for it is dropped. */
void courier_gone(Courier *courier, int peer);
int courier_accused(const Courier *courier); /* whom a failure is about; -1: nobody */
int courier_given_up(Courier *courier);      /* the first peer that nobody waits for any more; -1: none */

/* Since the start. Groups count when they are queued, once for each receiver; the rest as it leaves. */
typedef struct CourierCounts {
  uint64_t bytes_sent, bytes_received;     /* with all headers that this program writes */
  uint64_t payload_sent;                   /* of CODES and RAW */
  uint64_t packets_sent, packets_received; /* of any type */
  uint64_t lost, late;                     /* packets: never came; were given up as the time was over, and may have come afterwards */
  uint64_t lost_tokens, late_tokens;       /* that they held */
  uint64_t resent;                         /* sent again */
  uint64_t dropped;                        /* came and were of no use: nobody knows from whom, or there was no place for them */
  double span;                             /* seconds from a block's first send to its last arrival, summed over blocks */
} CourierCounts;
CourierCounts courier_counts(Courier *courier);

#endif
