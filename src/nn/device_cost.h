/* What a device computes, keeps and sends for one block: the formulas of docs/MATH.md, of which planner, tests and charts take theirs. */
#ifndef NN_DEVICE_COST_H
#define NN_DEVICE_COST_H
#include "nn/config.h"
#include "nn/strategy.h"

/* Which device, and of which block. */
typedef struct DeviceShare {
  int device, devices;
  int64_t own, before, tokens; /* content tokens: of this device, of those before it, of all (T). own and before count only where tokens are
                                  divided; elsewhere heads, columns or rows are, as evenly as whole ones can be, the first devices taking
                                  the rest */
  bool last;                   /* the last block, of which only the class token's rows, or the last token's, are wanted */
} DeviceShare;

/* Of one block and one sample. */
typedef struct DeviceCost {
  double linear, attention, assign; /* floating-point operations: products with weights, with keys and values, with codewords */
  double remote;                    /* of linear: keys and values of other devices' tokens */
  double table_bytes;               /* read from tables of keys and values (key_tables.h) */
  double other_bytes;               /* read and written by what is bound by memory: norms, activations, residuals, look-ups */
  double sent_bits;                 /* payload to one receiver (tp, bp-*: the mean over receivers) */
} DeviceCost;

/* tables: remote tokens cost a look-up, not a product. Of bp-* it is a block with the strategy's exchange (a retained one) or without. A
 * class token is counted where the strategy has it: one on each device, or where there is one for all, on device 0; sp always has one. */
DeviceCost device_cost(const ModelConfig *config, Strategy strategy, const DeviceShare *share, bool tables);
DeviceCost device_cost_decoupled(const ModelConfig *config, const DeviceShare *share); /* a block of bp-* that is not retained */

/* The sum over all L blocks, of which the last one carries all rows as the others do unless share->last; bp-*: `retained` of them are. */
DeviceCost device_cost_all(const ModelConfig *config, Strategy strategy, const DeviceShare *share, bool tables, int retained);

/* Rows of this device: its tokens, or all of them, and the class token if that is here. */
int64_t device_cost_rows(const ModelConfig *config, Strategy strategy, const DeviceShare *share);

/* Rows whose outcome is wanted of the last block, on this device: 1, or 0 where the row is another's. */
int64_t device_cost_wanted(const ModelConfig *config, Strategy strategy, const DeviceShare *share);

#endif
