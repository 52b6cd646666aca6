/* The devices of a leader's cluster: processes that it forks, and workers that it connects to. A lost worker is called again from time to
 * time, without waiting for it: after a second, then after twice as long each time, up to half a minute. The pauses start over when it has
 * taken part in an answer. A worker without a checkpoint is sent this leader's, and called again when it has loaded it.
 *
 * Leaves out: which devices currently take part, and what happens when one fails (leader_epoch.c). No child outlives its parent: it is
 * killed when the parent dies, and exits when its connection ends. */
#ifndef INFER_MEMBERSHIP_H
#define INFER_MEMBERSHIP_H
#include "infer/cluster/checkpoint_offer.h"
#include "infer/cluster/connection.h"
#include "infer/cluster/hello.h"
#include "infer/cluster/leader.h"

typedef enum DeviceState {
  DEVICE_LOST,
  DEVICE_FETCHES, /* a thread sends it the checkpoint (checkpoint_offer.h) */
  DEVICE_CALLED,  /* its connection or TLS handshake is in progress */
  DEVICE_GREETED, /* waits for WELCOME */
  DEVICE_HERE,    /* can take part */
  DEVICE_READY    /* takes part in this epoch */
} DeviceState;

/* A device; its index is the number that users see. */
typedef struct LeaderDevice {
  DeviceState state;
  Connection connection;
  bool forked;
  /* Of a process of this machine: */
  pid_t pid;   /* 0: not started */
  bool gone;   /* it was dropped, and has ended; messages still name its pid */
  int passed;  /* socket for passing it descriptors (fd_passing.h); -1: none */
  bool reaped; /* it has ended */
  int ended;   /* its wait status */
  /* Of a worker: */
  Address address;                  /* as given by the user, or as found */
  bool added;                       /* it was found after the start */
  Address numbers[ADDRESS_SOCKETS]; /* [number_count] that it resolves to, tried in turn */
  Address reached;                  /* the address that answered */
  int number_count, turn;
  AddressSearch *search; /* DEVICE_LOST: for its numbers; NULL: none */
  bool yields;           /* released while an earlier worker is busy; to be called again */
  bool answered;         /* it has accepted a connection */
  int tries;             /* connections that it accepted and closed */
  bool refused;          /* it gave a reason; calling again soon will not help */
  char refusal[1024];    /* the reason that was logged last since it was welcome */
  bool fetches;          /* it wants the checkpoint */
  Offer *offer;          /* DEVICE_FETCHES */
  double patient;        /* until then it may be out of reach: it loads what it has fetched, or starts again */
  uint32_t place;        /* position in its queue; 0: it serves this leader */
  double next, pause;    /* DEVICE_LOST: when to call again; the pause before that */
  /* Of any: */
  int node;                /* of the epoch; -1: takes no part */
  char name[WELCOME_NAME]; /* from its WELCOME; "" of one that was given none */
  bool drafts;             /* it can draft for others (READY) */
  bool asked;              /* CANCEL was sent and not yet answered */
  int faults;              /* failures attributed to it since it last took part in an answer */
  double since;            /* when the state began */
  double heard;            /* when its last message arrived */
  uint8_t welcome[WELCOME_BYTES];
} LeaderDevice;

typedef struct Membership {
  /* Set by the owner before membership_open: */
  int count; /* local + peer_count, and those that were added since */
  int room;  /* most that there may be */
  const ClusterOptions *cluster;
  const Weights *weights;
  const Fingerprints *fingerprints;
  int threads;                       /* of each process of this machine */
  double timeout;                    /* seconds without a sign of life */
  const volatile sig_atomic_t *stop; /* NULL: never */
  ConnectionSink sink;               /* of all connections; a connection's peer is the device's index */
  /* State: */
  LeaderDevice *devices; /* [room] */
  uint8_t session[HELLO_SESSION];
  double began;              /* clock_now, when membership_open started */
  double next_ping;          /* clock_now */
  OfferCatalogue *catalogue; /* NULL: there is no checkpoint to offer, or no worker to want it */
  uint8_t ping[WIRE_HEADER], bye[WIRE_HEADER];
} Membership;

#define MEMBERSHIP_PING_SECONDS 2.0 /* between two PINGs; several fit into a session's idle_timeout */

/* Forks and connects to all devices in parallel and waits until each has sent WELCOME. Workers that do not answer are lost, unless the
 * options say that a failure ends the cluster; a worker that refuses is an error. Call before any thread is started. */
Status membership_open(Membership *membership);

/* Ends all connections and processes and frees. Idle devices get BYE and time to exit by themselves. Keeps status_message(). Accepts a
 * membership that was never opened. */
void membership_close(Membership *membership, bool idle);

/* Ends the connection to a device, and its process if it has one. A `useless` device, which answers but fails every time, and one that has
 * refused are not called again for a minute, the next time for two... up to an hour: whoever looks after it may mend that. */
void membership_drop(Membership *membership, int device, bool useless);

/* A worker that was found after the start, as a lost device, which is called at the next membership_poll. It takes the place of a lost one
 * that was added, too, and is not among found [count]. *place: the device that it is; -1: it is known already and passed over. False: there
 * is no room. */
bool membership_add(Membership *membership, const Address *address, const Address *found, int count, int *place);

/* Sends PING to all connected workers if one is due. To be called regularly while waiting. */
void membership_ping(Membership *membership);

/* Continues reconnecting to lost workers, without waiting. True: an attempt is in progress. */
bool membership_poll(Membership *membership);

/* "10.0.0.2:7433", or "board at 10.0.0.2:7433" of one that has told its --name. Returns text. */
enum { MEMBERSHIP_WORKER = LEADER_WORKER };
const char *membership_worker(const LeaderDevice *device, char text[MEMBERSHIP_WORKER]);

/* "node 2 (pid 123)", "node 2 (worker 10.0.0.2:7433)". Returns text. */
enum { MEMBERSHIP_NAME = MEMBERSHIP_WORKER + 40 };
const char *membership_name(const Membership *membership, int device, char text[MEMBERSHIP_NAME]);

/* A child that has ended by itself: its number, and how in text ("died: signal 9 (Killed)"); -1: all are running. One killed by a signal
 * comes before one that exited. */
int membership_find_dead(Membership *membership, char *text, size_t room);

/* Whether device m is a process of this machine that has ended and has not been dropped. */
bool membership_has_ended(Membership *membership, int m);

/* The cause of a connection failure, if known: this run was interrupted (INTERRUPTED), or a child has died (PEER). A child's death may show
 * shortly after its sockets have closed: `patient` waits for that. Otherwise the failure itself, with its message. */
Status membership_explain(Membership *membership, Status status, bool patient, bool *known);

#endif
