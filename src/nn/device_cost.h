/* What a device computes, keeps and sends for one block: the formulas of docs/MATH.md, of which planner, tests and charts take theirs. */
#ifndef NN_DEVICE_COST_H
#define NN_DEVICE_COST_H
#include "nn/config.h"
#include "nn/strategy.h"

/* Of one block that carries all rows, and one sample; the sums over blocks are L times these, but for a strategy whose blocks differ (bp-*,
 * with one retained block): there it is the mean. */
typedef struct DeviceCost {
  double linear, attention, assign; /* floating-point operations: products with weights, with keys and values, with codewords */
  double table_bytes;               /* read from tables of keys and values (key_tables.h) */
  double other_bytes;               /* read and written by what is bound by memory: norms, activations, residuals, look-ups */
  double sent_bits;                 /* payload to one receiver */
} DeviceCost;

/* own: content tokens of this device, of `tokens` (T) on `devices`; class tokens are counted where the strategy has them: where there is
 * one for all, on this device. Of a decoder: the device that has the last tokens. own counts only where tokens are divided; elsewhere
 * heads, columns or rows are, evenly. tables: remote tokens cost a look-up, not a product. */
DeviceCost device_cost(const ModelConfig *config, Strategy strategy, int64_t own, int64_t tokens, int devices, bool tables);

/* The same for bp-* with so many blocks retained, of L; for others it is device_cost without tables. */
DeviceCost device_cost_retained(const ModelConfig *config, Strategy strategy, int64_t own, int64_t tokens, int devices, int retained);

#endif
