/* Inside the tokenizer only: the working memory of encoding. A call takes a state of its own and gives it back, so that any number of
 * threads can encode at once and what one call has cached serves the next. */
#ifndef DATA_TOKENIZER_STATES_H
#define DATA_TOKENIZER_STATES_H
#include "data/tokenizer/bpe_cache.h"
#include "data/tokenizer/bpe_merge.h"
#include "data/tokenizer/bpe_split.h"

typedef struct TokenizerState {
  BpeWalk *walk; /* NULL without a split */
  BpeMerge merge;
  BpeCache *cache;
  struct TokenizerState *next; /* of those not in use */
} TokenizerState;

typedef struct TokenizerStates TokenizerStates;

/* split: NULL, or it outlives the states. */
Status tokenizer_states_new(TokenizerStates **states, const BpeSplit *split);
void tokenizer_states_free(TokenizerStates *states); /* accepts NULL; all states have been given back */

Status tokenizer_states_take(TokenizerStates *states, TokenizerState **state);
void tokenizer_states_give(TokenizerStates *states, TokenizerState *state);

#endif
