/* The devices of a leader's cluster: processes that it has forked, and workers that it calls. A worker that was lost is called again from
 * time to time, without waiting for it. */
#ifndef INFER_LEADER_MEMBERS_H
#define INFER_LEADER_MEMBERS_H
#include "infer/control/greeting.h"
#include "infer/leader.h"
#include "infer/link.h"

typedef enum MemberState {
  MEMBER_LOST,
  MEMBER_CALLED,  /* a connection is on its way, or its handshake */
  MEMBER_GREETED, /* waits for HELLO */
  MEMBER_HERE,    /* can take part */
  MEMBER_READY    /* takes part in this epoch */
} MemberState;

typedef struct LeaderMember {
  MemberState state;
  bool forked;
  Address address; /* of a worker, as it was given */
  Address reached; /* the number that it was reached at */
  Link link;
  int node; /* of the epoch; -1: takes no part */
  Hello hello;
  bool refused;       /* it has said why not; another call will not help */
  bool cancelled;     /* has answered CANCEL */
  bool failed;        /* has sent an ERROR in this epoch */
  uint32_t place;     /* in the queue of a worker; 0: it serves this leader */
  Channel *channel;   /* MEMBER_CALLED: what becomes the link's */
  int calling;        /* MEMBER_CALLED: a socket before its preamble; -1 */
  double since, next; /* when the state began; when to call again */
  uint8_t greet[WIRE_HEADER + GREETING_BYTES], hello_bytes[HELLO_BYTES];
} LeaderMember;

/* Forks, calls, greets; waits for HELLO of all. Members that do not answer are lost; where options.cluster says that a failure ends it,
 * and where one refuses, that is the failure. Call before any thread is started. */
Status leader_members_open(Leader *leader);
void leader_members_close(Leader *leader); /* BYE to those that are there, and the end of all children */

/* Ends the connection to one, and its process if there is one. */
void leader_members_drop(Leader *leader, int member);

/* Goes on with the calls to lost workers as far as that is possible without waiting. */
void leader_members_poll(Leader *leader);
bool leader_members_calling(const Leader *leader); /* such a call is under way */
int leader_members_waiting(const Leader *leader);  /* how many could take part and do not */

/* A HELLO has come into member->hello_bytes. */
Status leader_members_take_hello(Leader *leader, int member);

#endif
