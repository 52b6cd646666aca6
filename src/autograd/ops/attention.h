/* Mixed-precision attention (paper section 3.2): each query sees the tokens of its own device in full precision and those of the
 * other devices quantised. Rows are sorted by device, so the local part is block-diagonal and the cost is that of ordinary attention:
 * tile by tile of queries and keys, a product with the keys, a running softmax, a product with the values. Each thread's scratch is a few
 * such tiles, however many keys there are; tiles that a causal mask hides are not computed. */
#ifndef AUTOGRAD_ATTENTION_H
#define AUTOGRAD_ATTENTION_H
#include "autograd/tape.h"
#include <stdbool.h>
#include <stdint.h>

/* The rows of one device. Its queries see its own rows [begin, begin + count) of k and v, and all rows of remote_k and remote_v except
 * [own, own + own_count), which are quantised copies of its own. */
typedef struct AttentionSpan {
  int64_t begin, count;
  int64_t own, own_count;
} AttentionSpan;

typedef struct AttentionOptions {
  int heads, kv_heads; /* kv_heads divides heads; each serves heads / kv_heads query heads */
  bool causal;         /* query i of a span sees remote rows before `own` and the span's rows up to i */
  int spans;
  const AttentionSpan *span; /* [spans], disjoint, covering all rows of q in order */
  const uint8_t *lost;       /* [B, R], 1: this remote row never arrived and is masked out; NULL: none lost */
  int64_t lost_stride;       /* 0: one mask for all spans; B R: `lost` is [spans, B, R], each device has losses of its own */
  /* [spans] how many queries each span has, when q holds other rows than k and v: q is [B, their sum, ...], sorted by span (a last block,
   * where only class tokens are still wanted; a part of the rows). NULL: q has the rows of k. */
  const int64_t *queries;
  int64_t first_query; /* with `queries` and one span: they are its rows from this one on, which `causal` needs */
  real first_bias;     /* added to the scores of each span's first row with remote keys; 0 where `causal` */
} AttentionOptions;

/* softmax(q [k | remote_k]^T / sqrt(d)) [v | remote_v], with the rows each query may see.
 * q [B, Q, heads d], k, v [B, S, kv_heads d], remote_k, remote_v [B, R, kv_heads d] or NULL (plain attention) -> [B, Q, heads d];
 * a span's first row adds first_bias to its scores with remote keys, after the division. Q = S except with `queries`, which are compatible
 * with `causal` only for a single span. If all are in bf16, so are the output and the gradients; scores, softmax and sums are in full. If
 * only some are, these are widened. Options are copied except the arrays, which outlive the step. */
Tensor *op_attention(Tape *tape, Tensor *q, Tensor *k, Tensor *v, Tensor *remote_k, Tensor *remote_v, const AttentionOptions *options);

#endif
