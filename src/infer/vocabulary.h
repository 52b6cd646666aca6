/* The tokenizer of a language model, checked against it, and what begins and ends a text of it. */
#ifndef INFER_VOCABULARY_H
#define INFER_VOCABULARY_H
#include "data/tokenizer/tokenizer.h"
#include "infer/sampler.h"
#include "infer/text_stream.h"
#include "nn/config.h"

typedef struct Vocabulary {
  Tokenizer *tokenizer;
  int64_t count;            /* ids that it has; a model's table may have a few more, which are never drawn */
  int32_t begin;            /* put before each text; -1: none */
  int32_t end[CONFIG_ENDS]; /* tokens that end a text: the tokenizer's and the configuration's */
  int ends;
} Vocabulary;

/* The tokenizer beside a checkpoint. NOT_FOUND says where it was looked for and what to do; BAD_VALUE: it does not fit the
 * model (tokenizer_fits). *vocabulary is empty after a failure, as after vocabulary_close. */
Status vocabulary_open(Vocabulary *vocabulary, const char *directory, const ModelConfig *config);
void vocabulary_close(Vocabulary *vocabulary); /* accepts a zeroed one */

/* Appends the ids of a prompt: begin of text, where there is one, then the text. special: texts of special tokens in it become
 * those tokens, else they are plain text. An empty prompt is the begin of text alone or, with GPT-2, whose texts follow each other behind
 * it, the end of text; BAD_VALUE where there is neither. */
Status vocabulary_prompt(const Vocabulary *vocabulary, const char *text, size_t bytes, bool special, TokenList *ids);

/* Only its ids are drawn, and its ends end a text; the rest of *sampling stays. */
void vocabulary_sampling(const Vocabulary *vocabulary, Sampling *sampling);

/* The text of a new token. first: nothing but a begin of text stands before it. *owned is to be freed; *text is that or the tokenizer's.
 * BAD_VALUE for an id that the tokenizer does not have. */
Status vocabulary_piece(const Vocabulary *vocabulary, int32_t id, bool first, char **owned, const char **text, size_t *bytes);

/* Adds that text to the stream. */
Status vocabulary_write(const Vocabulary *vocabulary, int32_t id, bool first, TextStream *stream);

#endif
