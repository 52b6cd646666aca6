/* The prompts of a command line as ids: all are read and measured before anything is started, but for standard input, which is read when
 * its turn comes. */
#ifndef CLI_INFER_PROMPTS_H
#define CLI_INFER_PROMPTS_H
#include "cli/infer_settings.h"
#include "infer/vocabulary.h"

typedef struct InferPrompt {
  char name[256]; /* for messages: "the prompt", "prompt 2", a file */
  char *owned;    /* the text of a file */
  const char *text;
  size_t bytes;
  TokenList ids;
  bool late; /* standard input, not read yet */
} InferPrompt;

typedef struct InferPrompts {
  const Vocabulary *vocabulary;
  int64_t most; /* tokens that there is room for */
  bool special; /* texts of special tokens become those */
  InferPrompt list[OPTION_TEXTS_MOST + 1];
  int count;
} InferPrompts;

/* In the order --prompt..., --prompt-file. A prompt of more than `most` tokens is BAD_VALUE, as is one that is no text; both are named. */
Status infer_prompts_open(InferPrompts *prompts, const InferSettings *settings, const Vocabulary *vocabulary, int64_t most);
void infer_prompts_release(InferPrompts *prompts); /* accepts a zeroed one, and what a failed open left */

/* Reads standard input if that is what this one is; INTERRUPTED when a signal comes first. */
Status infer_prompts_complete(const InferPrompts *prompts, InferPrompt *prompt);

/* All of standard input, of at most 64 MB: *text is to be freed, also after a failure. INTERRUPTED as above. */
Status infer_prompts_read_standard_input(char **text, size_t *bytes);

#endif
