/* The devices of a leader's cluster: processes that it has forked, and workers that it calls. A worker that was lost is called again from
 * time to time, without waiting for it: after a second, and each time that this is in vain after twice as long, up to half a minute. The
 * pauses begin anew when it has taken part in an answer. */
#ifndef INFER_LEADER_MEMBERS_H
#define INFER_LEADER_MEMBERS_H
#include "infer/cluster/connection.h"
#include "infer/cluster/hello.h"
#include "infer/cluster/leader.h"

typedef enum MemberState {
  MEMBER_LOST,
  MEMBER_CALLED,  /* a connection is on its way, or its handshake */
  MEMBER_GREETED, /* waits for WELCOME */
  MEMBER_HERE,    /* can take part */
  MEMBER_READY    /* takes part in this epoch */
} MemberState;

typedef struct LeaderMember {
  MemberState state;
  bool forked;
  Address address;                  /* of a worker, as it was given */
  Address numbers[ADDRESS_SOCKETS]; /* [number_count] that it stands for; called in turn */
  Address reached;                  /* the one that it was reached at */
  int number_count, turn;
  Connection connection;
  int node;                /* of the epoch; -1: takes no part */
  char name[WELCOME_NAME]; /* that it has given itself */
  bool yields;             /* was given back while an earlier worker serves somebody else; to be called again */
  bool answered;           /* has taken a call */
  int tries;               /* calls that it has taken and hung up */
  bool refused;            /* it has said why not; another call will not help */
  bool asked;              /* has CANCEL to answer */
  bool failed;             /* has sent an ERROR in this epoch */
  uint32_t place;          /* in the queue of a worker; 0: it serves this leader */
  int faults;              /* failures that were laid on it since it took part in an answer */
  double since;            /* when the state began */
  double heard;            /* when a message of it was taken last */
  double next, pause;      /* MEMBER_LOST: when to call again; how long that was put off */
  uint8_t welcome[WELCOME_BYTES];
} LeaderMember;

/* Forks and calls, all at once; waits for WELCOME of all. Workers that do not answer are lost; where options.cluster says that a failure
 * ends it, and where one refuses, that is the failure. Call before any thread is started. */
Status leader_members_open(Leader *leader);
void leader_members_close(Leader *leader); /* BYE to those that are there, and the end of all children */

/* Ends the connection to one, and its process if there is one. */
void leader_members_drop(Leader *leader, int member);

/* One that was dropped though it answers is not called again for a minute, the next time for two... up to an hour. */
void leader_members_put_off(Leader *leader, int member);

/* A sign of life to all workers that are there, if it is time for one: whoever waits for anything calls this now and then. */
void leader_members_ping(Leader *leader);

/* Goes on with the calls to lost workers as far as that is possible without waiting. */
void leader_members_poll(Leader *leader);
bool leader_members_calling(const Leader *leader); /* such a call is under way */
int leader_members_waiting(const Leader *leader);  /* how many could take part and do not */

/* A WELCOME has come into member->welcome. */
Status leader_members_take_welcome(Leader *leader, int member);

#endif
