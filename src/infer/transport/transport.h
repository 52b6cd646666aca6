/* The protocol by which devices exchange what they compute, as a state machine without socket, thread or clock: bytes in, bytes out, and
 * the time as an argument (seconds, of any origin). What a message holds is its owner's.
 *
 *   submit -> queue -> netem -> packets in flight to each peer, by time -> output
 *   input  -> slots of each peer -> take
 *
 * A thread drives one over sockets (transport_thread.h); the simulation drives one for each device in virtual time (sim/simulate.h). What
 * is missing is asked for, sent again or done without as policy.h decides. Nothing is allocated after transport_new.
 *
 * Messages of the same site and part are numbered by sequence = (request - 1) blocks + block, and stand at sequence mod ring: a place of a
 * message that is sent is used again when all of it has left, one of a message that comes when its owner is done with it. */
#ifndef INFER_TRANSPORT_H
#define INFER_TRANSPORT_H
#include "infer/transport/netem.h"
#include "infer/transport/packet.h"
#include "infer/transport/policy.h"

typedef struct Transport Transport;

typedef struct TransportSetup {
  int self, nodes;
  int blocks, sites, parts;
  size_t max_message_bytes;       /* payloads of the largest message, in any number of packets */
  int max_packets;                /* of a message: MAX_PACKETS, or the tokens of the largest one */
  bool ahead;                     /* senders wait for nobody (decoders): places for two requests where the backend cannot hold them back */
  const Reliability *reliability; /* copied */
  const LinkOptions *links;       /* simulated links, copied but for the trace; NULL: none */
  double timeout;
  bool mask; /* a peer that fails or falls silent is gone: nobody waits for it any more; else that is a failure */
  /* What carries the packets: */
  size_t max_packet; /* header and payload */
  size_t overhead;   /* bytes that it puts around each packet */
  bool reliable, ordered;
  /* Of a simulation: */
  bool lengths_only;   /* payloads have a length, but no bytes */
  bool settled;        /* estimates begin as those of a session that was at work on idle links: the round trip of the smallest question and
                          answer, and the jitter; else they are measured first */
  const LinkEnd *ends; /* [nodes] where devices' links differ; NULL */
  LinkModel *medium;   /* of LINK_SHARED: the one of all devices; NULL */
} TransportSetup;

typedef struct MessageKey {
  uint32_t request;
  uint8_t block, site, part;
} MessageKey;

typedef struct TransportPacket {
  Packet header;
  const uint8_t *payload; /* NULL: it did not come, or lengths_only */
  size_t bytes;
} TransportPacket;

/* What has come of a message from one peer. */
typedef struct TransportArrival {
  const TransportPacket *packets; /* [count] in order of index */
  int count;                      /* 0: nothing came, and it is not known how much there was */
  int missing;
  bool late; /* the rest was masked since the time was over, not because it was lost */
} TransportArrival;

/* now: from where links' traces count. NO_MEMORY; UNSUPPORTED: a shared medium without one to share. */
Status transport_new(Transport **transport, const TransportSetup *setup, double now);
void transport_free(Transport *transport); /* accepts NULL */

/* ---- the owner's side */

/* Before the first message of a request: its samples, what follows for lengths, and who sends to this device and receives from it (bits of
 * nodes). rules and its arrays stay as they are until the next one. Packets of the next request may come before it begins: their lengths
 * are checked then. */
void transport_begin_request(Transport *transport, uint32_t request, int64_t batch, const PacketRules *rules, uint64_t senders,
                             uint64_t receivers);

/* How much is still to leave of the message that was submitted `ring` blocks (TransportState) before this one; 0: its memory is the owner's
 * again. *holds_up: a peer that it waits for; -1: none. */
int transport_reserve(Transport *transport, MessageKey key, int *holds_up);

/* Queues a message for these peers (bits). Nothing is copied: packets [count] and payloads stay as they are until transport_reserve gives
 * them back. BAD_VALUE. */
Status transport_submit(Transport *transport, MessageKey key, const TransportPacket *packets, int count, uint64_t peers, double now);

/* A message that is waited for, from several peers: made by transport_expect, gone on with by transport_take until `undecided` is 0; one at
 * a time. */
typedef struct Expected {
  MessageKey key;
  uint64_t peers, undecided;
  double since; /* the owner can do nothing else since then; to be moved on by time in which nobody ran */
} Expected;
Expected transport_expect(Transport *transport, MessageKey key, uint64_t peers, double now);

/* Decides about each peer's message: complete, or given up. arrivals [nodes]: of the last call, valid until the next transport_expect,
 * their payloads until transport_done. *again: when to come again if nothing changes before. TIMEOUT, PEER, BAD_VALUE: transport_fault says
 * whose. */
Status transport_take(Transport *transport, Expected *expected, double now, TransportArrival *arrivals, double *again);

/* The message has been read: its places are free for another one. */
void transport_done(Transport *transport, MessageKey key, uint64_t peers);

/* ---- the network's side */

/* A packet of a peer. False: there is no room for it yet; an ordered backend keeps it and comes again, another one drops it. A peer that
 * breaks the rules has failed, and is not listened to any more. */
bool transport_input(Transport *transport, int peer, const uint8_t *packet, size_t bytes, double now);

/* All that had come by `at` has been put in: until then nothing is given up for not being there. Also lets in what the port of a simulated
 * switch has held back until then. */
void transport_caught_up(Transport *transport, double at);

typedef struct TransportOutput {
  int peer;
  const uint8_t *packet; /* valid until the next call; with lengths_only the header alone */
  size_t bytes;
} TransportOutput;

/* The next packet that is due, if there is one. It comes again until transport_sent confirms it. blocked: peers (bits) that are passed over
 * because their link has no room; what is for them comes in the first call that leaves them out, once the link takes bytes again. */
bool transport_output(Transport *transport, double now, uint64_t blocked, TransportOutput *output);
void transport_sent(Transport *transport, int peer);

/* When to come again with output or caught_up; INFINITY: nothing is in flight. */
double transport_deadline(const Transport *transport, uint64_t blocked);
bool transport_is_idle(const Transport *transport); /* nothing is left to be sent */

/* ---- peers */

/* The peer's connection is over, or it broke the rules; why says how. */
void transport_fail_peer(Transport *transport, int peer, Status status, const char *why);
void transport_leave(Transport *transport, int peer);     /* gone for good: nobody waits for it, what was for it is dropped */
Status transport_give_up(Transport *transport, int peer); /* time is over for it: TIMEOUT, or it is left */
Status transport_check(Transport *transport); /* the failure of a peer that takes part in the request: first of one that broke the rules */

/* Both since they were last asked: whether anything has changed that the owner may wait for, and whether the owner's calls have left
 * something to do for who drives the network's side (input, caught_up, output). */
bool transport_changed(Transport *transport);
bool transport_wants_driver(Transport *transport);

/* What an owner may know. Counts are since the start: messages count when they are queued, once for each receiver; the rest as it leaves.
 */
typedef struct TransportState {
  uint64_t bytes_sent, bytes_received;     /* with all headers that this program writes */
  uint64_t payload_sent;                   /* of CODES and RAW */
  uint64_t packets_sent, packets_received; /* of any type */
  uint64_t lost, late;                     /* packets: never came; were given up as the time was over, and may have come afterwards */
  uint64_t lost_tokens, late_tokens;       /* that they held */
  uint64_t resent;                         /* sent again */
  uint64_t dropped;                        /* came and were of no use: nobody knows from whom, or there was no place for them */
  uint64_t left;                           /* peers, as bits, that are not waited for any more */
  int fault;                               /* whom a failure is about; -1: no peer */
  int ring;                                /* messages of a site and part that are kept, in both directions: the owners' memory too */
  size_t memory;                           /* bytes */
  double span;                             /* seconds from a block's first packet sent to its last arrival, summed over blocks */
} TransportState;
TransportState *transport_state(Transport *transport); /* a driver adds to `dropped` what its backend drops */

#endif
