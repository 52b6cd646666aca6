/* The latency of a strategy on given devices: timelines made of what each device computes (strategy.h) at its
 * speed (probe.h), run through the simulated network (simulate.h). */
#ifndef INFER_PREDICT_H
#define INFER_PREDICT_H
#include "infer/plan/probe.h"
#include "infer/sim/packet_work.h"
#include "infer/sim/simulate.h"

typedef struct PlanCase {
  const ModelConfig *config; /* astra.groups and the like are those to plan for */
  Strategy strategy;
  int64_t tokens;
  int devices;                   /* 1 for STRATEGY_SINGLE */
  const int64_t *counts;         /* [devices] content tokens of each; their sum is `tokens` */
  const DeviceProfile *profiles; /* [devices] */
  const LinkOptions *links;
  const LinkEnd *ends;            /* [devices] where their links differ (netem.h); NULL */
  const Reliability *reliability; /* of codes; NULL: a stream */
  int parts;                      /* of a block's codes, 1 at least; 1 where others than codes travel */
  int min_packets;                /* of a block and receiver */
  int retained;                   /* blocks of bp-* that devices compute together */
  int table_blocks;               /* the first so many blocks may look keys and values of other devices' tokens up: predict_uses_tables */
  bool all_rows;                  /* the last block computes all rows, not the wanted ones alone */
  bool with_input;                /* the transfer of the input to the devices over `links` counts in the latency: predict_input */
  double scale;                   /* of computation; 0: 1 */
  double input_bytes;     /* of a token, which a device must have before it begins, where the links there were measured; 0: they have it */
  const PacketWork *work; /* what packets take of a device's processor; NULL: nothing */
  const double *input_rates; /* [devices] bits a second of its transfer; 0: at once. NULL where input_bytes is 0 */
} PlanCase;

/* Loss is left out where predict_models_loss says so. With loss or jitter: the median of some requests. BAD_VALUE: devices, tokens or parts
 * that make no sense. */
Status predict_latency(const PlanCase *plan, SimResult *result);

/* Codes in datagrams. What goes over a stream is delayed by loss, which is not modelled. */
bool predict_models_loss(const PlanCase *plan);

/* Whether the device takes keys and values from tables where it has them: by kv_tables_pay, with its profile in place of a
 * measurement. */
bool predict_uses_tables(const PlanCase *plan, int device);

/* What one device computes for one block, seconds, nothing scaled. */
double predict_block_seconds(const PlanCase *plan, int device);

/* Seconds until every device has its input, from the leader, which sits where device 0 is and sends the others theirs one after the other:
 * of images the patches of the tokens that it computes, a byte a number (patches.h), of texts 4 bytes for every token. The links are as
 * between the devices, those of the leader its own; over streams, so that loss is left out. */
Status predict_input(const PlanCase *plan, double *seconds);

#endif
