/* See vocabulary.h. */
#include "infer/vocabulary.h"
#include <stdlib.h>
#include <string.h>

static Status add_end(Vocabulary *v, int64_t id) {
  for (int i = 0; i < v->ends; i++) {
    if (v->end[i] == id) return STATUS_OK;
  }
  if (id < 0 || id >= v->count) return STATUS_OK;
  if (v->ends == CONFIG_ENDS)
    return status_set(STATUS_UNSUPPORTED,
                      "more than %d tokens end a text: those of config.json or generation_config.json, and the tokenizer's", CONFIG_ENDS);
  v->end[v->ends++] = (int32_t)id;
  return STATUS_OK;
}

static Status add_ends(Vocabulary *v, const ModelConfig *config) {
  TRY(add_end(v, tokenizer_end(v->tokenizer)));
  for (int i = 0; i < config->end_ids; i++) TRY(add_end(v, config->end_id[i]));
  return STATUS_OK;
}

Status vocabulary_open(Vocabulary *v, const char *directory, const ModelConfig *config) {
  *v = (Vocabulary){.begin = -1};
  Status status = tokenizer_open(&v->tokenizer, directory);
  if (status == STATUS_NOT_FOUND) status = status_wrap(status, "%s: a language model needs its tokenizer beside it", directory);
  if (status != STATUS_OK) return status;
  v->count = tokenizer_count(v->tokenizer);
  if (!tokenizer_fits(v->tokenizer, config->vocabulary)) {
    status = status_set(STATUS_BAD_VALUE,
                        "%s: the tokenizer has %lld tokens, the model a vocabulary of %lld: they do not belong together; put the model's "
                        "own tokenizer files there",
                        directory, (long long)v->count, (long long)config->vocabulary);
    vocabulary_close(v);
    return status;
  }
  int32_t begin = tokenizer_begin(v->tokenizer), end = tokenizer_end(v->tokenizer);
  v->begin = begin == end ? -1 : begin;
  status = add_ends(v, config);
  if (status != STATUS_OK) vocabulary_close(v);
  return status;
}

void vocabulary_close(Vocabulary *v) {
  tokenizer_close(v->tokenizer);
  *v = (Vocabulary){.begin = -1};
}

Status vocabulary_prompt(const Vocabulary *v, const char *text, size_t bytes, bool special, TokenList *ids) {
  if (v->begin >= 0) TRY(token_list_add(ids, v->begin));
  if (bytes > 0) return tokenizer_encode(v->tokenizer, text, bytes, special, ids);
  if (v->begin >= 0) return STATUS_OK;
  int32_t end = tokenizer_end(v->tokenizer);
  if (end >= 0) return token_list_add(ids, end);
  return status_set(
      STATUS_BAD_VALUE,
      "an empty prompt stands for the token that begins a text, which the tokenizer does not have: give some text to go on from");
}

void vocabulary_sampling(const Vocabulary *v, Sampling *sampling) {
  sampling->vocabulary = v->count;
  sampling->ends = v->ends;
  memcpy(sampling->end, v->end, sizeof sampling->end);
}

Status vocabulary_piece(const Vocabulary *v, int32_t id, bool first, char **owned, const char **text, size_t *bytes) {
  *owned = NULL;
  if (!first) {
    *text = tokenizer_piece(v->tokenizer, id, bytes);
    return *text ? STATUS_OK : status_set(STATUS_BAD_VALUE, "the model made token %d, which the tokenizer does not have", (int)id);
  }
  TRY(tokenizer_decode(v->tokenizer, &id, 1, owned, bytes));
  *text = *owned;
  return STATUS_OK;
}

Status vocabulary_write(const Vocabulary *v, int32_t id, bool first, TextStream *stream) {
  char *owned;
  const char *text;
  size_t bytes;
  TRY(vocabulary_piece(v, id, first, &owned, &text, &bytes));
  const Status status = text_stream_add(stream, text, bytes);
  free(owned);
  return status;
}
