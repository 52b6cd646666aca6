/* The devices of a leader's cluster: processes that it forks, and workers that it calls. A worker that was lost is called again from time
 * to time, without waiting for it: after a second, and each time that this is in vain after twice as long, up to half a minute. The pauses
 * begin anew when it has taken part in an answer.
 *
 * Leaves out: which of them take part at present, and what is to happen when one fails (leader_epoch.c). No child outlives its parent: it
 * is killed when the parent dies, and it leaves when its connection ends. */
#ifndef INFER_MEMBERSHIP_H
#define INFER_MEMBERSHIP_H
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

/* A device by its place in the cluster, as users number nodes. */
typedef struct LeaderMember {
  MemberState state;
  Connection connection;
  bool forked;
  /* Of a process of this machine: */
  pid_t pid;   /* 0: not started, or ended */
  int passed;  /* the socket through which it is passed descriptors (fd_passing.h); -1: none */
  bool reaped; /* it has ended, */
  int ended;   /* with this wait status */
  /* Of a worker: */
  Address address;                  /* as it was given */
  Address numbers[ADDRESS_SOCKETS]; /* [number_count] that it stands for; called in turn */
  Address reached;                  /* the one that it was reached at */
  int number_count, turn;
  bool yields;        /* was given back while an earlier worker serves somebody else; to be called again */
  bool answered;      /* has taken a call */
  int tries;          /* calls that it has taken and hung up */
  bool refused;       /* it has said why not; another call will not help */
  uint32_t place;     /* in its queue; 0: it serves this leader */
  double next, pause; /* MEMBER_LOST: when to call again; how long that was put off */
  /* Of any: */
  int node;                /* of the epoch; -1: takes no part */
  char name[WELCOME_NAME]; /* that it has given itself */
  bool asked;              /* has CANCEL to answer */
  bool failed;             /* has sent an ERROR in this epoch */
  int faults;              /* failures that were laid on it since it took part in an answer */
  double since;            /* when the state began */
  double heard;            /* when a message of it was taken last */
  uint8_t welcome[WELCOME_BYTES];
} LeaderMember;

typedef struct Membership {
  /* What is asked for, all of it its owner's: */
  int count; /* local + peer_count */
  const ClusterOptions *cluster;
  const Weights *weights;
  const Fingerprints *fingerprints;
  int threads;                       /* of each process of this machine */
  double timeout;                    /* seconds without a sign of life */
  const volatile sig_atomic_t *stop; /* NULL: never */
  ConnectionSink sink;               /* of all connections: a connection's peer is the member's number */
  /* What there is: */
  LeaderMember *members; /* [count] */
  uint8_t session[HELLO_SESSION];
  double began;     /* clock_now: to call its members */
  double next_ping; /* clock_now */
  uint8_t ping[WIRE_HEADER], bye[WIRE_HEADER];
} Membership;

#define MEMBERSHIP_PING_SECONDS 2.0 /* between two signs of life, several of which fit into a session's idle_timeout */

/* Forks and calls, all at once; waits for WELCOME of all. Workers that do not answer are lost; where the options say that a failure ends
 * it, and where one refuses, that is the failure. Call before any thread is started. */
Status membership_open(Membership *membership);

/* The end of all: BYE to those that are there, if they are idle, and time to leave by themselves; frees. Leaves status_message() as it is.
 * Accepts one that was never opened. */
void membership_close(Membership *membership, bool idle);

/* A WELCOME has come into member->welcome. BAD_VALUE: of another model. */
Status membership_take_welcome(Membership *membership, int member);

/* Ends the connection to one, and its process if there is one. One that is of no use though it answers is not called again for a minute,
 * the next time for two... up to an hour. */
void membership_drop(Membership *membership, int member, bool useless);

/* A sign of life to all workers that are there, if it is time for one: whoever waits for anything calls this now and then. */
void membership_ping(Membership *membership);

/* Goes on with the calls to lost workers as far as that is possible without waiting. True: one is under way. */
bool membership_poll(Membership *membership);

/* "node 2 (pid 123)", "node 2 (worker 10.0.0.2:7433)". Returns text. */
enum { MEMBERSHIP_NAME = ADDRESS_TEXT + 40 };
const char *membership_name(const Membership *membership, int member, char text[MEMBERSHIP_NAME]);

/* A process that has ended by itself: its number, and how into text ("died: signal 9 (Killed)"); -1: all run. One killed by a signal is
 * named before one that gave up. */
int membership_find_dead(Membership *membership, char *text, size_t room);

/* What is behind a failure of connections, if that is known: the end of this run (INTERRUPTED) or of a process (PEER), which may show a
 * moment after its sockets have closed: `patient` waits for that. Else the failure with its message. */
Status membership_explain(Membership *membership, Status status, bool patient, bool *known);

#endif
