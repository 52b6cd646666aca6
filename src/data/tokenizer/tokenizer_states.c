/* A list of states that are not in use, behind a lock that is held for a moment only. There are never more states than calls at once. */
#include "data/tokenizer/tokenizer_states.h"
#include <pthread.h>
#include <stdlib.h>

struct TokenizerStates {
  pthread_mutex_t lock;
  TokenizerState *idle;
  const BpeSplit *split;
};

Status tokenizer_states_new(TokenizerStates **states, const BpeSplit *split) {
  *states = calloc(1, sizeof **states);
  if (!*states) return status_set(STATUS_NO_MEMORY, "no memory for a tokenizer");
  pthread_mutex_init(&(*states)->lock, NULL);
  (*states)->split = split;
  return STATUS_OK;
}

static void state_free(TokenizerState *state) {
  bpe_split_walk_free(state->walk);
  bpe_merge_release(&state->merge);
  bpe_cache_free(state->cache);
  free(state);
}

void tokenizer_states_free(TokenizerStates *states) {
  if (!states) return;
  while (states->idle) {
    TokenizerState *state = states->idle;
    states->idle = state->next;
    state_free(state);
  }
  pthread_mutex_destroy(&states->lock);
  free(states);
}

static Status state_new(TokenizerState **state, const BpeSplit *split) {
  TokenizerState *fresh = calloc(1, sizeof *fresh);
  if (fresh) fresh->cache = bpe_cache_new();
  if (!fresh || !fresh->cache) {
    free(fresh);
    return status_set(STATUS_NO_MEMORY, "no memory to encode text");
  }
  Status status = split ? bpe_split_walk(&fresh->walk, split) : STATUS_OK;
  if (status == STATUS_OK)
    *state = fresh;
  else
    state_free(fresh);
  return status;
}

Status tokenizer_states_take(TokenizerStates *states, TokenizerState **state) {
  pthread_mutex_lock(&states->lock);
  *state = states->idle;
  if (*state) states->idle = (*state)->next;
  pthread_mutex_unlock(&states->lock);
  return *state ? STATUS_OK : state_new(state, states->split);
}

void tokenizer_states_give(TokenizerStates *states, TokenizerState *state) {
  pthread_mutex_lock(&states->lock);
  state->next = states->idle;
  states->idle = state;
  pthread_mutex_unlock(&states->lock);
}
