/* What to do about packets that do not come: wait, ask, or go on without them. The receiver decides, from what the sender says (QUERY,
 * STATUS) and never from silence alone, so that a slow device is not taken for a lost packet. Pure decisions over times and counts, without
 * clock or socket: the transport makes them in real time, the simulation in its own. */
#ifndef INFER_POLICY_H
#define INFER_POLICY_H
#include "base/status.h"
#include <stdbool.h>
#include <stdint.h>

typedef enum ReliabilityMode {
  RELIABILITY_STREAM,    /* the backend loses nothing */
  RELIABILITY_DEADLINE,  /* go on without what was lost */
  RELIABILITY_RETRANSMIT /* have it sent again */
} ReliabilityMode;

typedef struct Reliability {
  ReliabilityMode mode;
  double deadline; /* seconds that a block's codes are waited for; 0: as long as the peer lives */
  int min_packets; /* of a block and receiver */
  double timeout;  /* seconds after which a peer that sends nothing is given up, whatever the mode */
} Reliability;

enum { POLICY_LOOK_MS = 10 }; /* whoever waits looks again at the latest then, whatever comes or does not */

typedef enum SenderState { SENDER_SILENT, SENDER_NOT_YET, SENDER_SENT, SENDER_GONE } SenderState;

/* A message that is waited for. Times are clock_now's, or the simulation's; 0: never. */
typedef struct MessageState {
  int packets, arrived;                  /* 0 packets: not known yet */
  int missing_sent;                      /* of those that are missing: how many the sender says it has sent */
  SenderState sender;                    /* what its last STATUS said */
  double waiting;                        /* since then the receiver can do nothing else */
  bool asking;                           /* a QUERY has not left yet */
  double asked, told;                    /* when the last QUERY left, when the last STATUS came */
  int unanswered;                        /* QUERYs that have left since then */
  double heard;                          /* its last packet; not the peer's, who may ask all the time and hold back what it owes */
  double gap;                            /* estimate: seconds between packets of a message */
  double round_trip, jitter, block_time; /* estimates, seconds; 0: none yet */
} MessageState;

typedef enum Decision {
  DECISION_WAIT,
  DECISION_COMPLETE,
  DECISION_LOST, /* what is missing was sent and is not coming */
  DECISION_LATE, /* the time is over, though the peer is alive */
  DECISION_PEER_GONE
} Decision;

/* *ask: send a QUERY now. *again: when to look next, if nothing comes before; set with DECISION_WAIT.
 *
 * Questions take the link from what they ask for: there is never more than one on its way, and an unanswered one is repeated after
 * max(5 ms, 2 round trips) (20 ms where none was measured), each time half as long again, up to half a second. A message that has begun to
 * come is asked for after a grace of max(1 ms, 2 jitter, 3 gaps) without a packet, one that has not after max(5 ms, 2 round trips, the mean
 * block time); again a grace after the answer that all of it was sent, or after 2 round trips or a quarter of a block's time where the peer
 * has nothing yet. What the sender says it has sent, and what is not there a grace after it said so, is lost (never with retransmit). What
 * is not there at the deadline is late (neither with retransmit nor when the deadline is automatic). Silence is no loss: a peer may have no
 * processor for a while. It is gone when nothing of a message has come for `timeout`. */
Decision policy_decide(const Reliability *reliability, const MessageState *message, double now, bool *ask, double *again);

/* Whether a sender, asked for what left at `left`, need not send it again: it was still on its way when the question was asked. */
bool policy_is_in_flight(double round_trip, double left, double now);

/* A round trip or a block as measured, into the running estimates, which rise slowly and fall fast: a device that had no processor for a
 * while says nothing about the link. 0: none yet. */
double policy_smooth(double estimate, double measured);

#endif
