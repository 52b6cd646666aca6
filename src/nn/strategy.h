/* Strategies for dividing a model among devices: ASTRA and the baselines it is compared with. Facts about each; the computation is in
 * block.c and tensor_parallel.c, communication in src/infer. */
#ifndef NN_STRATEGY_H
#define NN_STRATEGY_H
#include "base/status.h"
#include "nn/config.h"
#include <stdbool.h>

typedef enum Strategy {
  /* SETUP has the numbers (setup_message.h): a new one comes last. */
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
  bool needs_codebooks; /* a plain model cannot use it */
  bool divides_tokens;  /* each device has only the rows of its own tokens */
  bool sends_codes;     /* else numbers in full precision, which need a lossless backend */
  bool decodes;         /* can generate text from a prompt */
  bool right_answers;   /* without training for it; else only its latency is meaningful */
} StrategyFacts;

const StrategyFacts *strategy_facts(Strategy strategy);

/* The names in the order of the enum, with the separator between them; plain: of those that need no codebooks. Returns list. */
enum { STRATEGY_LIST = 128 };
const char *strategy_list(const char *separator, bool plain, char list[STRATEGY_LIST]);

/* BAD_VALUE lists the names. */
Status strategy_find(Strategy *strategy, const char *name);

/* BAD_VALUE: a number of blocks that bp-ag and bp-sp cannot retain of a model with so many. */
Status strategy_check_retained(int64_t retained, int64_t blocks);

/* What a device computes, keeps and sends for one block: the formulas of docs/MATH.md, which planner, tests and charts use. */

/* Which device, and of which block. */
typedef struct DeviceShare {
  int device, devices;
  int64_t own, before, tokens; /* content tokens: of this device, of those before it, of all (T). own and before count only where tokens are
                                  divided; elsewhere heads, columns or rows are, as evenly as possible, the first devices taking the
                                  rest */
  bool known;                  /* a block before config_first_coded: ASTRA sends nothing */
  bool apart;                  /* one from config_end_coded on: ASTRA sends nothing, and devices do not see each other's tokens */
  bool last;                   /* the last block, of which only the class token's rows, or the last token's, are wanted */
} DeviceShare;

/* Of one block and one sample. */
typedef struct DeviceCost {
  /* Rows of this device: its tokens, or all of them, and the class token if that is here; those whose result the block has to give: all, or
   * of the last block (share->last) 1, or 0 where another device has that row. Not summed over blocks. */
  double rows, wanted;
  double linear, attention, assign; /* floating-point operations: products with weights, with keys and values, with codewords */
  /* Parts of linear: queries; keys and values of own tokens and of other devices'; changes of basis and predictions of own tokens, before
   * codes leave. The rest are output projection and MLP. */
  double queries, keys, remote, basis;
  double table_bytes; /* read from tables of keys and values (kv_tables.h) */
  double other_bytes; /* read and written by what is bound by memory: norms, activations, residuals, look-ups */
  double sent_bits;   /* payload to one receiver (tp, bp-*: the mean over receivers) */
} DeviceCost;

/* tables: remote tokens cost a look-up, not a product. Of bp-* it is a block with the strategy's exchange (a retained one) or without. A
 * class token is counted where the strategy has it: one on each device, or where there is one for all, on device 0; sp always has one. */
DeviceCost device_cost(const ModelConfig *config, Strategy strategy, const DeviceShare *share, bool tables);
DeviceCost device_cost_decoupled(const ModelConfig *config, const DeviceShare *share); /* a block of bp-* that is not retained */

/* The sum over all L blocks, without tables, the last of which carries all rows like the others unless share->last; bp-*: `retained` of
 * them are retained.
 */
DeviceCost device_cost_all(const ModelConfig *config, Strategy strategy, const DeviceShare *share, int retained);

#endif
