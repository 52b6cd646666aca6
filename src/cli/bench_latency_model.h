/* The encoder that latency figures are about (12 blocks, width 768 as in the paper), with weights and codewords drawn at random: values do
 * not change the time. */
#ifndef CLI_BENCH_LATENCY_MODEL_H
#define CLI_BENCH_LATENCY_MODEL_H
#include "infer/weights.h"
#include "nn/key_tables.h"

typedef struct LatencyModel {
  ModelConfig config;
  Weights weights; /* without codebooks */
  Codebook *books; /* [blocks] of the groups asked for last */
  int groups, entries;
  KeyTables *tables; /* of those, where they fit; NULL */
} LatencyModel;

typedef struct LatencySize {
  int64_t width, blocks, heads, entries; /* MLP 4 times as wide; K */
} LatencySize;

Status bench_latency_model_open(LatencyModel *model, const LatencySize *size);
void bench_latency_model_close(LatencyModel *model); /* accepts a zeroed one */

/* Codebooks of so many groups and codewords, in place of those before; tables of keys and values for them where `table_bytes` of memory are
 * enough, and they are faster than products. */
Status bench_latency_model_codes(LatencyModel *model, int groups, int entries, double table_bytes);

#endif
