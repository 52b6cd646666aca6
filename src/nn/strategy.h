/* The ways in which devices can divide a model among themselves: ASTRA and what it is compared with. Facts about each; the computation is
 * in block_parts.c and tensor_parallel.c, what travels in src/infer. */
#ifndef NN_STRATEGY_H
#define NN_STRATEGY_H
#include "base/status.h"
#include <stdbool.h>

typedef enum Strategy {
  STRATEGY_ASTRA,  /* tokens divided, codes exchanged before each attention */
  STRATEGY_SINGLE, /* one device computes, the others wait */
  STRATEGY_TP,     /* heads and MLP columns divided, two all-reduces a block (Megatron: Shoeybi et al., 2019) */
  STRATEGY_SP,     /* tokens divided, rows, or keys and values, exchanged in full precision (Voltage: Hu and Li, 2024) */
  STRATEGY_BP_AG,  /* decoupled blocks, the few retained ones joined by all-gathers (DeTransformer: Wei et al., 2024) */
  STRATEGY_BP_SP,  /* the same, the retained blocks divided by tokens */
  STRATEGY_COUNT
} Strategy;

typedef struct StrategyFacts {
  const char *name;     /* of --strategy: "bp-ag" */
  bool needs_codebooks; /* a plain model cannot */
  bool divides_tokens;  /* each device has the rows of its own tokens alone */
  bool sends_codes;     /* else numbers in full, which need a backend that loses nothing */
  bool decodes;         /* can go on from a prompt, token by token */
  bool right_answers;   /* without training of its own; else only its latency means something */
} StrategyFacts;

const StrategyFacts *strategy_facts(Strategy strategy);

/* BAD_VALUE lists the names. */
Status strategy_find(Strategy *strategy, const char *name);

#endif
