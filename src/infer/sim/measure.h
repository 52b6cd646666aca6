/* The latency of a request in virtual time: each device's computation measured alone on a core of this machine, one after the other, and
 * the network computed (simulate.h). */
#ifndef INFER_MEASURE_H
#define INFER_MEASURE_H
#include "infer/sim/packet_work.h"
#include "infer/sim/simulate.h"
#include "infer/weights.h"
#include "nn/kv_tables.h"
#include "nn/strategy.h"

/* ---- one device: the model's own forward pass, with the exchanges and sums of recorders */

typedef struct DeviceCase {
  Strategy strategy;
  int devices, self;
  int64_t tokens;
  const int64_t *counts;  /* [devices] content tokens of each */
  const Codebook *books;  /* [blocks * sites]; the weights' own where NULL */
  const KvTables *tables; /* NULL: keys and values of remote tokens are products */
  int parts, min_packets;
  int retained;   /* blocks of bp-* that devices compute together */
  ModelRows rows; /* that go through the last block: all, or those that an answer needs */
  Arena *arena;   /* of a tape, kept by the caller from one measurement to the next; NULL: a new one */
  bool warm;      /* the arena has served a measurement as large: no first run for cold memory */
} DeviceCase;

typedef struct MeasureQuality {
  double min_share; /* of a core that the runs had: below 1 others were on it, and caches were shared with them */
  double spread;    /* of the runs' sums: (most - least) / median */
} MeasureQuality;

/* Rows are drawn at random in place of an embedding, so that any number of tokens can be measured; no head. Single-threaded, in time of the
 * processor. A first run meets cold memory and does not count (unless device->warm); then `repeats` runs, of which each stretch's median is
 * taken, all multiplied so that they sum up to the median of the runs' sums. quality may be NULL. */
Status measure_timeline(Timeline *timeline, const Weights *weights, const DeviceCase *device, int repeats, MeasureQuality *quality);

/* ---- all of them */

typedef struct MeasuredCase {
  const Weights *weights;
  DeviceCase device; /* of all devices; self is not read */
  int repeats;
  const LinkOptions *links;       /* overhead is not read: it follows from what travels */
  const LinkEnd *ends;            /* [devices] where their links differ (netem.h); NULL */
  const Reliability *reliability; /* of codes; NULL: a stream */
  const PacketWork *work;         /* counted as computation; NULL: packets take nothing of the processor */
  double scale;                   /* of computation; 0: 1 */
} MeasuredCase;

/* Measures every device, also those that are alike. With loss or jitter: the median of some requests (simulate_request). */
Status measure_latency(const MeasuredCase *wanted, SimResult *result);

#endif
