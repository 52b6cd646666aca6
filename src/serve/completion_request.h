/* What a client asks of /v1/completions and /v1/chat/completions, checked: every field that is known has the type and the range that
 * OpenAI's interface gives it, or that of the servers that added it (min_p, top_k, repetition_penalty). null is as if the field were not
 * there; fields that are not known are ignored, but those that would change the answer (tools, suffix...) are refused. The bytes of a
 * request are hostile. Fuzzed. */
#ifndef SERVE_COMPLETION_REQUEST_H
#define SERVE_COMPLETION_REQUEST_H
#include "base/status.h"
#include "infer/sampler.h"
#include <jansson.h>

enum {
  REQUEST_DEPTH = 32,       /* of nested JSON */
  REQUEST_VALUES = 1 << 20, /* of JSON in one request, weighed by their memory: 50 MB at most, besides texts */
  REQUEST_JOBS = 256,       /* prompts times n */
  REQUEST_STOPS = 16,
  REQUEST_STOP_BYTES = 1024,
  REQUEST_TOP = 20,
  REQUEST_PARAM = 64
};

/* JSON of a body: UTF-8, one value, no key twice, neither deep nor many-valued. BAD_VALUE says what and where. */
Status completion_request_json(const char *body, size_t bytes, json_t **root);

/* The field, or NULL where it is missing or null; `param` gets its name, for an error that follows. */
const json_t *completion_request_field(const json_t *root, const char *name, char param[REQUEST_PARAM]);

/* *out stays as it is where the field is missing or null. BAD_VALUE: it is neither true nor false. */
Status completion_request_bool(const json_t *root, const char *name, bool *out, char param[REQUEST_PARAM]);

/* *name: what the body says of "model", within root; NULL: nothing. BAD_VALUE: it is no string. */
Status completion_request_model(const json_t *root, const char **name, char param[REQUEST_PARAM]);

typedef struct CompletionPrompt {
  const char *text; /* [bytes]; NULL: ids */
  size_t bytes;
  int32_t *ids; /* [count], owned; any numbers from 0 on */
  int64_t count;
} CompletionPrompt;

typedef struct CompletionRequest {
  bool chat;
  const char *model;         /* NULL: not said */
  const json_t *messages;    /* of a chat, as chat_template.h takes them */
  CompletionPrompt *prompts; /* [prompt_count] of a completion, owned */
  int prompt_count;
  int n;
  int64_t max_tokens; /* -1: as many as there is room for */
  Sampling sampling;  /* without max, vocabulary and ends */
  bool seeded;        /* the seed was given */
  int top;            /* candidates to report with each token; -1: no log-probabilities */
  bool echo, stream, include_usage;
  bool special;                     /* parse_special: texts of special tokens in a prompt become those tokens */
  const char *stops[REQUEST_STOPS]; /* none empty */
  int stop_count;
} CompletionRequest;

/* Strings point into root, which outlives *request. BAD_VALUE: `param` names the field. Release *request whatever comes back. */
Status completion_request_read(CompletionRequest *request, const json_t *root, bool chat, char param[REQUEST_PARAM]);

/* Frees the prompts and forgets all else that points into root, which may go then; numbers stay. */
void completion_request_forget(CompletionRequest *request);
void completion_request_release(CompletionRequest *request);

#endif
