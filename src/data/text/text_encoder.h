/* What a cache of tokens or a set of labelled texts needs of a tokenizer, so that these can be tested without one. */
#ifndef DATA_TEXT_ENCODER_H
#define DATA_TEXT_ENCODER_H
#include "data/tokenizer/tokenizer.h"

typedef struct TextEncoder {
  Status (*encode)(void *context, const char *text, size_t bytes, TokenList *out); /* appends; texts of special tokens stay text */
  void *context;
  int64_t vocabulary;      /* ids are 0 .. vocabulary - 1 */
  int32_t begin;           /* put before each text; -1: none */
  int32_t separator;       /* put between documents; -1: none */
  bool cuttable;           /* cuts as in text_source_start change no token */
  const char *fingerprint; /* SHA-256 in lower-case hexadecimal over what defines it */
} TextEncoder;

/* Over a tokenizer, which must outlive it. The separator is its end of text; its beginning of text is put before each document if that is
 * another token (Llama), not if it is the same (GPT-2). Whether texts may be cut is found out by encoding a sentence whole and in two. */
Status text_encoder_of(TextEncoder *encoder, Tokenizer *tokenizer);

/* Appends the tokens of a text to classify: the beginning of text, where there is one, and the text; of a pair the first text, the
 * separator (a line break where the tokenizer has none) and the second one. More than `context` tokens are cut: the end of a text, of a
 * pair the ends of whichever text is longer. *cut: whether they were. BAD_VALUE: no tokens, or one outside of the vocabulary. */
Status text_encoder_sample(const TextEncoder *encoder, const char *text, const char *pair, int64_t context, TokenList *out, bool *cut);

#endif
