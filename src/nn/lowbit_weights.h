/* A model's matrices quantised to 8 or 4 bits at load time, for inference: all matrices of the blocks and, of language models, the table of
 * tokens and the head of the vocabulary. Norms, biases, positions, patches, codebooks and heads of classes stay as they are. With 4 bits
 * the token table and the output head, which decide between tokens directly, are kept in blocks of 8 bits. */
#ifndef NN_LOWBIT_WEIGHTS_H
#define NN_LOWBIT_WEIGHTS_H
#include "nn/model.h"

typedef struct LowbitWeights LowbitWeights;

/* kind: LOWBIT_INT8 or LOWBIT_Q4_0. The matrices, finite, in full or in 16 bits, are rounded (lowbit_quantise) into one read-only block,
 * which processes that are forked later share; the model's tensors then point there. Those that have 8 or 4 bits already stay, unless they
 * have more bits than are asked for or fewer: BAD_USAGE (but for the table of tokens and the head, which stay). Keep *made until the model
 * is freed. */
Status lowbit_weights_make(Model *model, LowbitKind kind, LowbitWeights **made);
void lowbit_weights_free(LowbitWeights *weights); /* accepts NULL */

/* Bytes of a tensor's numbers in their current form. */
int64_t lowbit_weights_bytes(const Tensor *tensor);
int64_t lowbit_weights_all_bytes(const Model *model); /* of all its parameters */

/* The kind of the first block matrix with 8 or 4 bits; LOWBIT_NONE: there is none. */
LowbitKind lowbit_weights_of(const Model *model);

#endif
