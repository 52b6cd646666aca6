/* A thread that drives a transport (transport.h) with a backend (backend.h) while the other threads compute.
 *
 * The functions below may be called by the thread that computes; nothing else is shared between the two. The thread computes nothing, never
 * looks at weights, and allocates nothing after the start, but for the words of a failure. A failure (a peer that breaks the rules, or is
 * gone without leave) is kept and comes back from the next submit or take, with the peer named. */
#ifndef INFER_TRANSPORT_THREAD_H
#define INFER_TRANSPORT_THREAD_H
#include "infer/transport/backend.h"
#include "infer/transport/transport.h"

typedef struct TransportThread TransportThread;

/* While one waits: called every 20 ms at least, by the thread that waits; a failure ends the waiting. */
typedef Status TransportCheck(void *context);

typedef struct TransportThreadSetup {
  TransportSetup transport;                         /* but for what follows from the backend */
  Status (*open)(void *context, Backend **backend); /* called in the thread, which frees the backend in the end */
  void *open_context;
  TransportCheck *check; /* while it opens; a failure comes back when `open` has ended, which is to be told by the check; may be NULL */
  void *check_context;
} TransportThreadSetup;

/* Starts the thread and waits until it has opened the backend, whose failure comes back. The thread runs where this one may run. */
Status transport_thread_start(TransportThread **transport, const TransportThreadSetup *setup);

/* Sends what is queued for at most a second, ends the thread, frees. Accepts NULL. */
void transport_thread_stop(TransportThread *transport);

size_t transport_thread_max_packet(TransportThread *transport); /* payload of a packet; may fall as routes are learnt */

/* As the transport's; its failure, or a peer's, comes back. */
Status transport_thread_begin_request(TransportThread *transport, uint32_t request, int64_t batch, const PacketRules *rules,
                                      uint64_t senders, uint64_t receivers);
Status transport_thread_submit(TransportThread *transport, MessageKey key, const TransportPacket *packets, int count, uint64_t peers);

/* Waits until the memory of the message that was sent `ring` blocks (TransportState) before this one may be used again. TIMEOUT: a peer
 * does not take it. */
Status transport_thread_reserve(TransportThread *transport, MessageKey key, TransportCheck *check, void *context);

/* Waits until this message is decided for each of the peers (bits): complete, or given up. arrivals [nodes], valid until the next take;
 * their payloads until transport_thread_done. TIMEOUT, PEER: as policy.h says. check may be NULL. */
Status transport_thread_take(TransportThread *transport, MessageKey key, uint64_t peers, TransportArrival *arrivals, TransportCheck *check,
                             void *context);
void transport_thread_done(TransportThread *transport, MessageKey key, uint64_t peers);

void transport_thread_gone(TransportThread *transport, int peer);  /* transport_leave */
TransportState transport_thread_state(TransportThread *transport); /* of NULL zeroes, and no fault */

#endif
