/* Simulated links, as Linux's netem makes them: rate, delay, jitter, loss, and traces of rates. Pure arithmetic over times that the caller
 * gives, seeded and repeatable, so that runs in real and in virtual time see the same network. */
#ifndef INFER_NETEM_H
#define INFER_NETEM_H
#include "base/rng.h"
#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- traces: a rate that changes in steps, read from a file or drawn from a Markov chain */

typedef struct LinkTracePoint {
  double seconds;         /* since the start; the first is 0, they rise */
  double bits_per_second; /* from then on; not negative, the last one above 0 */
} LinkTracePoint;

enum { MAX_TRACE_POINTS = 4096 };
typedef struct LinkTrace {
  LinkTracePoint *points; /* [count] */
  int count;              /* 0: no trace */
} LinkTrace;

/* "markov:20-100mbit[:SECONDS]": steps of a second, 600 of them if not said otherwise, in which the rate moves between states of 10 Mbit/s,
 * to another one with a probability that falls with their distance. Or the name of a file: lines of two numbers, seconds and Mbit/s, as
 * traces of throughput are published; empty lines and those that begin with # are passed over. BAD_FILE names the line: no numbers, times
 * that do not rise from 0, rates below 0, a last rate of 0, more than MAX_TRACE_POINTS. Release *trace. */
Status link_trace_open(LinkTrace *trace, const char *text, uint64_t seed);

double link_trace_rate(const LinkTrace *trace, double at);

/* What is left of a trace after so many seconds (not below 0), its times counted from there: its last rate at least; of none, none.
 * NO_MEMORY. Release *rest. */
Status link_trace_rest(LinkTrace *rest, const LinkTrace *trace, double seconds);

void link_trace_release(LinkTrace *trace);

/* ---- one direction of a link */

typedef enum LinkTopology {
  LINK_MESH,   /* a full-duplex link of the rate between every pair */
  LINK_SWITCH, /* one such link for each device */
  LINK_SHARED  /* one half-duplex medium for all */
} LinkTopology;

typedef enum LossModel {
  LOSS_BERNOULLI,
  LOSS_GILBERT_ELLIOTT /* two states; all packets are lost in the bad one, which lasts `loss_burst` packets on average */
} LossModel;

/* Of a stream, in Ethernet frames of 1,500 bytes. */
enum {
  LINK_SEGMENT_MAX = 1500 - 20 - 32, /* bytes of a TCP segment: less IPv4, and TCP with its time stamps */
  LINK_SEGMENT_OVERHEAD = 20 + 32 + 14
};

#define LINK_LOSS_MAX 0.999999 /* something arrives */

typedef struct LinkOptions {
  double bits_per_second; /* 0: unlimited */
  double latency, jitter; /* seconds; arrival is latency + jitter u after departure, u even in [-1, 1] */
  double loss;            /* fraction of packets, [0, LINK_LOSS_MAX] */
  LossModel loss_model;
  double loss_burst; /* packets, at least 1 and at least loss / (1 - loss), or fewer would be lost */
  LinkTrace trace;   /* count 0: the rate above; borrowed */
  LinkTopology topology;
  uint64_t seed;
  bool lose_tokens; /* `loss` is of single tokens, drawn by the receiver, not of packets */
  size_t overhead;  /* bytes of lower layers added to each packet, or each of its segments */
  size_t segment;   /* bytes of a segment, into which streams cut packets; 0: they are not cut. SETUP does not name it (setup_message.c) */
} LinkOptions;

/* The limits of one device's own link into the network. */
typedef struct LinkEnd {
  double out, in; /* bits a second from the device and to it; 0: no limit of its own */
  double latency; /* seconds one way; of two devices the longer counts */
} LinkEnd;

/* The slower of two rates, where 0 means no limit. */
static inline double link_slower(double rate, double other) { return rate <= 0 || (other > 0 && other < rate) ? other : rate; }

typedef struct LinkModel {
  const LinkOptions *options;
  double rate;    /* bits a second where no trace says otherwise; 0: unlimited */
  double latency; /* seconds */
  double busy;    /* the link is occupied until then */
  double carried; /* seconds in which it was, summed */
  double arrived; /* the last arrival: no packet overtakes another */
  bool bad;       /* state of the loss model */
  Rng fate, jitter;
} LinkModel;

/* options outlive it. Everything random follows from the seed and the pair. */
void link_model_init(LinkModel *link, const LinkOptions *options, int from, int to);

/* BAD_VALUE: a share outside [0, 1), or one that is lost only in longer bursts. */
Status link_loss_check(const LinkOptions *options);

bool link_model_loses(LinkModel *link); /* whether the next packet is lost: call once for each */

/* ---- all links of a device */

typedef struct Netem {
  LinkOptions options;
  bool active;
  double start;       /* where a trace begins; times are the caller's */
  LinkModel *links;   /* [nodes]: to each */
  LinkModel *chances; /* [nodes]: of packets that depend on the moment */
  LinkModel out, in;  /* of a switch: this device's ports */
  LinkModel *medium;  /* of all devices together */
  double *port_rate;  /* [nodes] at which each device's port of a switch sends; 0: unlimited */
} Netem;

/* options NULL: links as they are, every packet arrives when it is ready. The trace stays the caller's. ends [nodes]: what each device's
 * own link allows, of a mesh's pairs the narrower of two, through a switch of its port; a shared medium has one rate for all. NULL: as the
 * options say. medium: of LINK_SHARED, the caller's, one for all devices (link_model_init); NULL otherwise. BAD_VALUE, NO_MEMORY;
 * UNSUPPORTED: a shared medium without one, of which no device can know alone when it is free. */
Status netem_init(Netem *netem, const LinkOptions *options, const LinkEnd *ends, LinkModel *medium, int self, int nodes, double start);
void netem_release(Netem *netem); /* accepts a zeroed one */

/* When a packet that is ready then reaches the peer's port; *left: when its last bit is out of this device's; *lost: it never arrives. In
 * the order of `ready`. planned: the packet follows from what is computed. The others (questions, answers, what is sent again) depend on
 * the moment and have chances of their own, so that the same planned packets are lost in each run. */
double netem_send(Netem *netem, int peer, double ready, size_t bytes, bool planned, double *left, bool *lost);

/* When one from the peer that reaches this device's port then is in: a switch's port takes one after the other. */
double netem_receive(Netem *netem, int peer, double reached, size_t bytes);

/* Seconds that `bytes` take to a peer over an idle link. */
double netem_idle(const Netem *netem, int peer, size_t bytes);

/* Seconds in which the link's direction to the peer carried what this device sent: of a mesh the pair's, of a switch this device's port, of
 * a shared medium what everybody sent. Lower layers count. */
double netem_carried(const Netem *netem, int peer);
double netem_carried_in(const Netem *netem); /* likewise the port of a switch to this device; 0 of others */

#endif
