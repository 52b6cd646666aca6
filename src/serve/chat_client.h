/* The client of a service with OpenAI's interface, astra-serve's or another one: its models, and answers to chats as they come. One thread
 * at a time may use a client. */
#ifndef SERVE_CHAT_CLIENT_H
#define SERVE_CHAT_CLIENT_H
#include "base/status.h"
#include "infer/text_stream.h"
#include <jansson.h>
#include <signal.h>
#include <stdint.h>

/* What a chat is answered with. */
typedef struct ChatQuestion {
  const json_t *messages; /* [{"role", "content"}...] */
  int64_t max_tokens;     /* new ones */
  double temperature, top_p;
  int64_t top_k; /* 0: all */
  uint64_t seed;
  TextStreamWrite *write; /* gets the text as it comes */
  void *context;
  const volatile sig_atomic_t *stop; /* set by a signal: the answer ends there; NULL: none */
} ChatQuestion;

typedef struct ChatAnswer {
  size_t bytes;                      /* of its text, which went to question->write; of a failed answer what had come */
  int64_t prompt_tokens, new_tokens; /* -1: not known */
  double first, seconds;             /* until the first text; in all */
  const char *end;                   /* "stop", "length", "context", "cancelled" (by `stop`) */
} ChatAnswer;

typedef struct ChatClient ChatClient;

typedef struct ChatClientOptions {
  const char *url;                   /* http://HOST:PORT or https://..., also with /v1 behind; unix:PATH */
  const char *model;                 /* NULL: the first that the service has */
  const char *key;                   /* NULL: none */
  const char *key_file;              /* where the key is from, for messages; outlives the client; NULL: none is sent */
  double timeout;                    /* seconds for the connection, and between two pieces of an answer */
  const volatile sig_atomic_t *stop; /* set by a signal: chat_client_open ends there; NULL: none */
} ChatClientOptions;

/* Asks for the models. NOT_FOUND: no such model, with the names of those there are; PEER: nobody answers, or with a failure, whose message
 * is passed on; INTERRUPTED: `stop`. *client is NULL after a failure. */
Status chat_client_open(ChatClient **client, const ChatClientOptions *options);
void chat_client_close(ChatClient *client);              /* accepts NULL */
const char *chat_client_model(const ChatClient *client); /* its name */

/* PEER as above, also for an answer that broke off; BUSY: the service has no room, and says when. */
Status chat_client_ask(ChatClient *client, const ChatQuestion *question, ChatAnswer *answer);

#endif
