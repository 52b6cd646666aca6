/* /v1/completions and /v1/chat/completions: a request becomes one job of the engine for each prompt and each of its n texts, and their
 * tokens become the answer, whole or as server-sent events.
 *
 * The engine's callbacks only keep tokens and wake the connection: text, stop strings and JSON are the HTTP threads' work. A client that
 * reads slowly finds what came meanwhile in one event; tokens that wait for it are limited (COMPLETION_WAITING), and a client that is gone
 * cancels its jobs. */
#ifndef SERVE_COMPLETION_H
#define SERVE_COMPLETION_H
#include "serve/service.h"

enum {
  COMPLETION_JOBS = 16,          /* of one request that are with the engine at a time */
  COMPLETION_WAITING = 16 << 20, /* bytes of tokens of one text that wait for their client */
  COMPLETION_ENTRIES = 1 << 17   /* log-probabilities that one answer holds at a time: JSON of about 100 MB */
};

extern const HttpRoute completion_text_route, completion_chat_route; /* their context is the service */

#endif
