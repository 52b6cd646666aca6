/* One text that is being made for a client: tokens come in from the engine, text, log-probabilities and the reason of its end go out in the
 * forms of OpenAI's interface. Text comes in whole characters and ends before a stop string (infer/text_stream.h). One thread at a time. */
#ifndef SERVE_CHOICE_H
#define SERVE_CHOICE_H
#include "infer/text_stream.h"
#include "infer/vocabulary.h"
#include "serve/engine.h"
#include <jansson.h>

typedef struct ChoiceOptions {
  const Vocabulary *vocabulary;
  const char *const *stops; /* [stop_count] */
  int stop_count;
  bool chat;     /* the forms of chats */
  bool logprobs; /* are wanted */
} ChoiceOptions;

typedef struct Choice {
  const ChoiceOptions *options;
  int index;
  bool first;         /* nothing but a begin of text stands before the next token */
  const char *finish; /* "stop", "length"; NULL: it goes on */
  int64_t new_tokens; /* whose text counts */
  TextStream stream;
  char *text; /* [bytes] since it was taken last */
  size_t bytes, room;
  size_t offset;    /* characters of all tokens so far */
  json_t *logprobs; /* since they were taken last; NULL: none */
  bool failed;      /* no memory */
} Choice;

/* first: the prompt holds nothing but a begin of text, or its tokens are reported too. */
void choice_init(Choice *choice, const ChoiceOptions *options, int index, bool first);
void choice_release(Choice *choice);

/* BAD_VALUE: an id that the tokenizer does not have. After a stop string tokens are ignored; finish says so. */
Status choice_add(Choice *choice, const EngineToken *token);

/* The engine has ended it; what was held back comes out. */
void choice_end(Choice *choice, EngineEnd end);

/* Whether there is something that was not taken. */
bool choice_has_news(const Choice *choice);

/* What is new, as a member of "choices": whole, or as a chunk of a stream (delta). opening: the first chunk of a chat, which says the role.
 * finish_reason is in it if `last`. NULL: no memory. */
json_t *choice_take(Choice *choice, bool chunk, bool opening, bool last);

/* Text as JSON, whatever bytes it has: those that are no UTF-8 become U+FFFD. */
json_t *choice_text_json(const char *text, size_t bytes);

#endif
