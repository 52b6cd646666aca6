/* One decoding step of many sequences at once: their new tokens are the rows of one matrix product each, so that the weights are read once
 * for all of them; attention is by sequence, over its pages and codes (kv_pages.h). */
#ifndef NN_DECODE_BATCH_H
#define NN_DECODE_BATCH_H
#include "nn/kv_pages.h"
#include "nn/model.h"

/* The next tokens of a sequence, which follow each other: the token that was picked last; behind it drafts, of which each sees those before
 * it; or what a prompt has behind its shared beginning. */
typedef struct DecodeRows {
  int sequence;
  const int32_t *ids; /* [count], count >= 1; they outlive the step */
  int64_t count;
  int64_t logits; /* rows, the last ones, whose logits are wanted: 0 to count */
} DecodeRows;

/* rows [count], different sequences that hold a token at least or begin with this step -> logits [1, sum of rows.logits, V] in their order;
 * where none are wanted the last rows after the final norm. The keys and values of all rows are stored, not kept: kv_pages_keep says how
 * many of them are right. Row by row the same as model_decode_step but for rounding. A sequence without room, or an id outside of the
 * vocabulary, fails the tape. */
Tensor *decode_batch(Model *model, Tape *tape, KvPages *pages, const DecodeRows *rows, int count);

#endif
