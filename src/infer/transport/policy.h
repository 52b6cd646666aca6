/* What to do about missing packets: wait, query, or continue without them. The receiver decides, from what the sender says (QUERY, STATUS)
 * and never from silence alone, so that a slow device is not mistaken for a lost packet. Pure functions of times and counts, without clock
 * or socket: the transport evaluates them in real time, the simulation in virtual time. */
#ifndef INFER_POLICY_H
#define INFER_POLICY_H
#include "base/status.h"
#include <stdbool.h>
#include <stdint.h>

typedef enum ReliabilityMode {
  RELIABILITY_STREAM,    /* the backend loses nothing */
  RELIABILITY_DEADLINE,  /* continue without what was lost */
  RELIABILITY_RETRANSMIT /* retransmit it */
} ReliabilityMode;

typedef struct Reliability {
  ReliabilityMode mode;
  double deadline; /* seconds to wait for a block's codes; 0: as long as the peer lives */
  int min_packets; /* of a block and receiver */
  double timeout;  /* seconds of silence after which a peer is given up, in every mode */
} Reliability;

enum { POLICY_LOOK_MS = 10 }; /* the longest time between two looks at a message that is waited for */

typedef enum SenderState { SENDER_SILENT, SENDER_NOT_YET, SENDER_SENT, SENDER_GONE } SenderState;

/* A message that is waited for. Times are of clock_now or virtual; 0: never. */
typedef struct MessageState {
  int packets, arrived;                  /* 0 packets: not known yet */
  int missing_sent;                      /* of those that are missing: how many the sender says it has sent */
  SenderState sender;                    /* what its last STATUS said */
  double waiting;                        /* since then the receiver has been idle */
  bool asking;                           /* a QUERY has not been sent yet */
  double asked, told;                    /* when the last QUERY was sent, when the last STATUS arrived */
  int unanswered;                        /* QUERYs sent since then */
  double heard;                          /* when its last packet arrived; not the peer's last one, which may be a query */
  double gap;                            /* estimate: seconds between packets of a message */
  double round_trip, jitter, block_time; /* estimates, seconds; 0: none yet */
} MessageState;

typedef enum Decision {
  DECISION_WAIT,
  DECISION_COMPLETE,
  DECISION_LOST, /* the missing packets were sent and are lost */
  DECISION_LATE, /* the deadline has passed, though the peer is alive */
  DECISION_PEER_GONE
} Decision;

/* *ask: send a QUERY now. *again: when to look next, if nothing arrives before; set with DECISION_WAIT.
 *
 * Queries use the link that the packets need: there is never more than one in flight, and an unanswered one is repeated after
 * max(5 ms, 2 round trips) (20 ms where none was measured), each time half as long again, up to half a second. A message that has begun to
 * arrive is queried after a grace of max(1 ms, 2 jitter, 3 gaps) without a packet, one that has not after max(5 ms, 2 round trips, the mean
 * block time); again a grace after the answer that all of it was sent, or after 2 round trips or a quarter of a block's time where the peer
 * has sent nothing yet. What the sender says it has sent, and what has not arrived a grace after it said so, is lost (never with
 * retransmit). What has not arrived at the deadline is late (neither with retransmit nor when the deadline is automatic). Silence is no
 * loss: a peer may have no processor for a while. It is gone when nothing of a message has arrived for `timeout`. */
Decision policy_decide(const Reliability *reliability, const MessageState *message, double now, bool *ask, double *again);

/* Whether a sender that is asked for packets that left at `left` need not send them again: they were still in flight when the QUERY was
 * sent. */
bool policy_is_in_flight(double round_trip, double left, double now);

/* Adds a measured round trip or block time to a running estimate, which rises slowly and falls fast: a device that had no processor for a
 * while says nothing about the link. 0: no estimate yet. */
double policy_smooth(double estimate, double measured);

#endif
