/* The protocol by which devices exchange what they compute, as a state machine without socket, thread or clock: bytes in, bytes out, and
 * the time as an argument (seconds, of any origin). The content of a message is opaque to it.
 *
 *   submit -> queue -> netem -> packets in flight to each peer, by time -> output
 *   input  -> slots of each peer -> take
 *
 * A thread drives one over sockets (transport_thread.h); the simulation drives one for each device in virtual time (sim/simulate.h).
 * Missing packets are queried, sent again or given up as policy.h decides. Nothing is allocated after transport_new, but for
 * the words of a peer's failure.
 *
 * Messages of the same site and part are numbered by sequence = (request - 1) blocks + block, and are stored at sequence mod ring. The
 * place of an outgoing message is reused once all of it has been sent, that of an incoming one once its owner has called transport_done. */
#ifndef INFER_TRANSPORT_H
#define INFER_TRANSPORT_H
#include "infer/transport/netem.h"
#include "infer/transport/packet.h"
#include "infer/transport/policy.h"

typedef struct Transport Transport;

typedef struct TransportSetup {
  int self, nodes;
  int blocks, sites, parts;
  size_t max_message_bytes; /* payloads of the largest message, in any number of packets */
  int max_packets;          /* of a message: MAX_PACKETS, or the tokens of the largest one */
  bool ahead;               /* senders do not wait for others (decoders): places for two requests where the backend cannot hold them back */
  const Reliability *reliability; /* copied */
  const LinkOptions *links;       /* simulated links, copied but for the trace; NULL: none */
  double timeout;
  bool mask; /* a peer that fails or is silent is left out from then on; otherwise that is a failure */
  /* Of the backend: */
  size_t max_packet; /* header and payload */
  size_t overhead;   /* bytes that it adds to each packet */
  bool reliable, ordered;
  /* Of a simulation: */
  bool lengths_only;   /* payloads have a length, but no content */
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
  const uint8_t *payload; /* NULL: missing, or lengths_only */
  size_t bytes;
} TransportPacket;

/* The packets of a message that have arrived from one peer. */
typedef struct TransportArrival {
  const TransportPacket *packets; /* [count] in order of index */
  int count;                      /* 0: nothing arrived, and the number is not known */
  int missing;
  bool late; /* the rest was masked because the deadline passed, not because it was lost */
} TransportArrival;

/* now: the time at which the traces of links begin. NO_MEMORY; UNSUPPORTED: a shared medium without one to share. */
Status transport_new(Transport **transport, const TransportSetup *setup, double now);
void transport_free(Transport *transport); /* accepts NULL */

/* ---- the owner's side */

/* Before the first message of a request: its number of samples, the rules for lengths, and which nodes (bits) send to this device and
 * receive from it. rules and its arrays must not change until the next one. Packets of the next request may arrive before it begins: their
 * lengths are checked then. */
void transport_begin_request(Transport *transport, uint32_t request, int64_t batch, const PacketRules *rules, uint64_t senders,
                             uint64_t receivers);

/* How much is still to leave of the message that was submitted `ring` blocks (TransportState) before this one; 0: its memory is the owner's
 * again. *holds_up: a peer that it waits for; -1: none. */
int transport_reserve(Transport *transport, MessageKey key, int *holds_up);

/* Queues a message for these peers (bits). Nothing is copied: packets [count] and payloads stay as they are until transport_reserve gives
 * them back. BAD_VALUE. */
Status transport_submit(Transport *transport, MessageKey key, const TransportPacket *packets, int count, uint64_t peers, double now);

/* A message expected from several peers: created by transport_expect, continued by transport_take until `undecided` is 0. One at a time. */
typedef struct Expected {
  MessageKey key;
  uint64_t peers, undecided;
  double since; /* the owner has been idle since then; to be advanced by time in which this process did not run */
} Expected;
Expected transport_expect(Transport *transport, MessageKey key, uint64_t peers, double now);

/* Decides on each peer's message: complete, or given up. arrivals [nodes]: of the last call, valid until the next transport_expect,
 * their payloads until transport_done. *again: when to call again if nothing changes before. TIMEOUT, PEER, BAD_VALUE: TransportState.fault
 * says whose. */
Status transport_take(Transport *transport, Expected *expected, double now, TransportArrival *arrivals, double *again);

/* The message has been read: its places may be reused. */
void transport_done(Transport *transport, MessageKey key, uint64_t peers);

/* ---- the network's side */

/* A packet from a peer. False: there is no room for it yet; an ordered backend keeps it and tries again, another one drops it. A peer that
 * violates the protocol has failed; its packets are ignored from then on. */
bool transport_input(Transport *transport, int peer, const uint8_t *packet, size_t bytes, double now);

/* All packets that had arrived by `at` have been passed in: nothing is given up as missing before that. Also releases what the port of a
 * simulated switch has held back until then. */
void transport_caught_up(Transport *transport, double at);

typedef struct TransportOutput {
  int peer;
  const uint8_t *packet; /* valid until the next call; with lengths_only the header alone */
  size_t bytes;
} TransportOutput;

/* The next packet that is due, if there is one. It is returned again until transport_sent confirms it. blocked: peers (bits) that are
 * skipped because their link is full; their packets are returned by the first call without them. */
bool transport_output(Transport *transport, double now, uint64_t blocked, TransportOutput *output);
void transport_sent(Transport *transport, int peer);

/* When to call output or caught_up again; INFINITY: nothing is in flight. */
double transport_deadline(const Transport *transport, uint64_t blocked);
bool transport_is_idle(const Transport *transport); /* nothing is left to be sent */

/* ---- peers */

/* The peer's connection has ended, or it violated the protocol; why says how. */
void transport_fail_peer(Transport *transport, int peer, Status status, const char *why);
void transport_leave(Transport *transport, int peer);     /* for good: it is not waited for, and what is queued for it is dropped */
Status transport_give_up(Transport *transport, int peer); /* its time is over: TIMEOUT, or it is left out */
Status transport_check(Transport *transport);             /* the failure of a peer of this request, protocol violations first */

/* Both since the last call: whether anything has changed that the owner may wait for, and whether the owner's calls have left work for the
 * driver of the network's side (input, caught_up, output). */
bool transport_changed(Transport *transport);
bool transport_wants_driver(Transport *transport);

/* State and counts. Counts are since the start: messages count when they are queued, once for each receiver; the rest as it leaves.
 */
typedef struct TransportState {
  uint64_t bytes_sent, bytes_received;     /* with all headers that this program writes */
  uint64_t payload_sent;                   /* of CODES and RAW */
  uint64_t packets_sent, packets_received; /* of any type */
  uint64_t lost, late;                     /* packets: never arrived; were given up at the deadline, and may have arrived afterwards */
  uint64_t lost_tokens, late_tokens;       /* that they held */
  uint64_t resent;                         /* sent again */
  uint64_t dropped;                        /* arrived but unusable: of an unknown sender, or without room for them */
  uint64_t left;                           /* peers, as bits, that are not waited for any more */
  int fault;                               /* whom a failure is about; -1: no peer */
  int ring;                                /* messages of a site and part that are kept, in both directions: the owners' memory too */
  size_t memory;                           /* bytes */
  double span;                             /* seconds from a block's first packet sent to its last arrival, summed over blocks */
} TransportState;
TransportState *transport_state(Transport *transport); /* a driver adds to `dropped` what its backend drops */

/* Seconds in which the simulated link to the peer, and a switch's port to this device, carried packets (netem.h). */
double transport_carried(const Transport *transport, int peer);
double transport_carried_in(const Transport *transport);

#endif
