/* The exchange, or the sums and joins, of one device that is measured alone: what a node computes for them is computed, but nobody sends
 * and nobody waits. What would have been sent and waited for is noted in a timeline between the stretches of computation, which are seconds
 * that the calling thread had a processor, so that a busy neighbour is not counted. */
#ifndef INFER_RECORDER_H
#define INFER_RECORDER_H
#include "infer/code_exchange.h"
#include "infer/sim/schedule.h"
#include "infer/wire.h"
#include "nn/reduce.h"

/* ---- codes, or rows: begin quantises and packs (code_exchange_encode_part), finish unpacks and looks up (code_exchange_decode_part). What
 * "came" are codes, or with whole_rows rows, drawn at random: values do not change the time. */

typedef struct RecordedPart {
  TransportPacket *packets; /* [count] */
  int count;
} RecordedPart;

typedef struct ExchangeRecorder {
  Exchange exchange; /* first: give its address to model_encode */
  CodeExchangeSetup setup;
  CodeExchange network;
  Timeline *timeline; /* of the run under way */
  double since;       /* when the present stretch of computation began, on this thread's clock */
  RecordedPart *came; /* [nodes][parts] */
  uint8_t *payloads;  /* of all of them */
  TransportArrival arrivals[WIRE_NODES];
} ExchangeRecorder;

/* One thread: stretches are seconds that the calling thread had a processor, so that a busy neighbour is not counted. */
Status exchange_recorder_init(ExchangeRecorder *exchange, const CodeExchangeSetup *setup); /* transport NULL */
void exchange_recorder_release(ExchangeRecorder *exchange);                                /* accepts a zeroed one */

/* Before model_encode, and after it. timeline is empty. */
Status exchange_recorder_start(ExchangeRecorder *exchange, Timeline *timeline);
Status exchange_recorder_stop(ExchangeRecorder *exchange);

/* ---- sums and joins: it adds and copies as many numbers as a device of a real collective does (strategy/collective.h). What "came" is
 * zeroes. */

typedef struct ReduceRecorder {
  Reduce reduce; /* first: give its address to the blocks */
  Timeline *timeline;
  double since; /* when the present stretch of computation began, on this thread's clock */
  real *came;   /* [rows_max, width] */
  real *own;    /* likewise: what leaves */
} ReduceRecorder;

/* rows_max, width: of the largest tensor. */
Status reduce_recorder_init(ReduceRecorder *reduce, int self, int devices, int64_t rows_max, int64_t width);
void reduce_recorder_release(ReduceRecorder *reduce); /* accepts a zeroed one */

/* Before the forward pass, and after it. timeline is empty. */
void reduce_recorder_start(ReduceRecorder *reduce, Timeline *timeline);
Status reduce_recorder_stop(ReduceRecorder *reduce);

#endif
