/* One direction of a link: when a packet has left, when it arrives, whether it is lost. Pure arithmetic without a clock, seeded and
 * repeatable: the shaper (shaper.h) calls it in real time and the simulation (net_sim.h) in its own, so that both mean the same network. */
#ifndef INFER_LINK_MODEL_H
#define INFER_LINK_MODEL_H
#include "base/rng.h"
#include "infer/wire/link_trace.h"
#include <stdbool.h>
#include <stddef.h>

typedef enum LinkTopology {
  LINK_MESH,   /* a full-duplex link of the rate between every pair */
  LINK_SWITCH, /* one such link for each device */
  LINK_AIR     /* one half-duplex medium for all */
} LinkTopology;

typedef enum LossModel {
  LOSS_BERNOULLI,
  LOSS_GILBERT_ELLIOTT /* two states, all is lost in the bad one, which lasts `loss_burst` packets on average */
} LossModel;

typedef struct LinkOptions {
  double bits_per_second; /* 0: unlimited */
  double burst_bytes;     /* that leave at once after a pause (a token bucket's size); 0: none */
  double latency, jitter; /* seconds; arrival is latency + jitter u after departure, u even in [-1, 1] */
  double loss;            /* share of packets, [0, 1) */
  LossModel loss_model;
  double loss_burst; /* packets, at least 1 */
  LinkTrace trace;   /* count 0: the rate above; borrowed */
  LinkTopology topology;
  uint64_t seed;
  bool lose_tokens; /* `loss` is of single tokens, drawn by the receiver, not of packets */
  size_t overhead;  /* bytes of lower layers that count with each packet */
} LinkOptions;

/* What one device's own way into the network allows. */
typedef struct LinkEnd {
  double out, in; /* bits a second that leave the device, and that reach it; 0: as many as the link carries */
  double latency; /* seconds one way; of two devices the longer counts */
} LinkEnd;

/* The slower of two rates, of which 0 is none. */
static inline double link_slower(double rate, double other) { return rate <= 0 || (other > 0 && other < rate) ? other : rate; }

typedef struct LinkModel {
  const LinkOptions *options;
  double rate;    /* bits a second where no trace says otherwise; 0: unlimited */
  double latency; /* seconds */
  double busy;    /* until when what was given to it takes the link */
  double arrived; /* the last arrival: nothing overtakes */
  bool bad;       /* state of the loss model */
  Rng fate, jitter;
} LinkModel;

/* options outlive it. The seed and the pair decide all that is random. */
void link_model_init(LinkModel *link, const LinkOptions *options, int from, int to);

/* This link is slower (rate, bits a second; 0: not) or longer than the options say, never the other way round. */
void link_model_limit(LinkModel *link, double rate, double latency);

/* When the last bit of a packet of so many bytes (overhead comes on top) is out, that was ready then. Calls in the order of `ready`. */
double link_model_leave(LinkModel *link, double ready, size_t bytes);
double link_model_arrive(LinkModel *link, double left);
bool link_model_loses(LinkModel *link); /* the fate of the next packet: to be asked once for each */

#endif
