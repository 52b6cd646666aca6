/* Inside http*.c only: connections and requests, which http.c leads from their head to their end and http_reply.c answers. */
#ifndef SERVE_HTTP_INTERNAL_H
#define SERVE_HTTP_INTERNAL_H
#include "serve/http.h"
#include <microhttpd.h>
#include <pthread.h>
#include <stdatomic.h>

typedef enum HttpPhase {
  HTTP_HEAD,   /* of the first request, or of the next one */
  HTTP_BODY,   /* is coming */
  HTTP_ANSWER, /* waits for the service, or is being sent */
  HTTP_CUT     /* the socket was shut down */
} HttpPhase;

/* An open connection, in the list of its Http. `watch.lock` guards all but `fd`. */
typedef struct HttpLink {
  int fd;
  HttpPhase phase;
  double since;         /* clock_now when the phase began */
  uint64_t seen;        /* bytes that had come when it began */
  bool ended;           /* the watch saw that nothing more comes, though something is missing */
  HttpRequest *request; /* under way; NULL: none */
  struct HttpLink *newer, *older;
} HttpLink;

typedef struct HttpWatch {
  pthread_mutex_t lock;
  pthread_cond_t changed;
  pthread_t thread;
  bool running, stop;
  HttpLink *newest, *oldest;
  int count, requests;
} HttpWatch;

struct Http {
  HttpOptions options;
  struct MHD_Daemon *daemons[8];
  int quiet[8]; /* [daemon_count] the other ends of what daemons have in place of a listening socket since http_drain; -1: nothing */
  int daemon_count;
  HttpWatch watch;
  _Atomic(size_t) body_bytes; /* of all requests */
  atomic_bool draining, expired, stopping;
  atomic_uint_fast64_t number; /* of requests */
  uint32_t instance;           /* random: with the number it names a request */
};

enum { HTTP_ID = 65, HTTP_CLIENT = 64, HTTP_FIELDS = 10, HTTP_FIELD = 256 };

struct HttpRequest {
  Http *http;
  HttpLink *link;
  struct MHD_Connection *connection;
  const HttpRoute *route; /* NULL: none for this path and method */
  const char *path;       /* of the routes for it; NULL: there are none */
  char id[HTTP_ID], client[HTTP_CLIENT], method[16], url[HTTP_FIELD];
  double begun;
  char *body;
  size_t body_bytes, body_room;
  uint64_t sent;
  uint64_t discarded; /* of a body that was refused, or that means nothing */
  bool answering;     /* the body is there */
  bool discarding;    /* it was refused: an answer has gone out by hand */
  int replied;        /* status; 0: not yet */
  char names[HTTP_FIELDS][32], values[HTTP_FIELDS][HTTP_FIELD];
  int fields;
  HttpWork work;
  json_t *notes;
  atomic_bool gone, late, slow;
  pthread_mutex_t lock; /* of these two */
  bool suspended, woken;
};

bool http_gone(const HttpRequest *request); /* nobody waits for the answer */

/* Suspends the connection until http_wake; after news only for as long as other connections of this thread have their turn. */
void http_pause(HttpRequest *request);

#endif
