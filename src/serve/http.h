/* HTTP over libmicrohttpd: routes, bodies within limits, keys and rates, answers that come at once, later, or as a stream, and the end of
 * clients that are too slow or gone. What the routes do is others' (service.h). A few threads poll all connections; an answer that has to
 * wait suspends its connection and costs no thread.
 *
 * A request goes through: head read -> refused or body read -> HttpRoute.answer -> http_reply_*, or http_work and later a reply or stream.
 * All of that runs on an HTTP thread, one at a time for a request; only http_wake may be called from any thread. */
#ifndef SERVE_HTTP_H
#define SERVE_HTTP_H
#include "base/status.h"
#include "serve/http_access.h"
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

typedef struct Http Http;
typedef struct HttpRequest HttpRequest;

typedef enum HttpRouteFlag {
  HTTP_OPEN = 1,      /* without a key */
  HTTP_WORK = 2,      /* counts towards the rate, and is refused while the service drains */
  HTTP_JSON_BODY = 4, /* a body of another type than application/json is refused */
  HTTP_PREFIX = 8     /* every path that begins with this one; looked at behind all others */
} HttpRouteFlag;

typedef struct HttpRoute {
  const char *method, *path; /* GET answers HEAD as well */
  int flags;
  void (*answer)(void *context, HttpRequest *request);
} HttpRoute;

typedef struct HttpOptions {
  const HttpRoute *const *routes; /* up to a NULL */
  void *context;                  /* for their functions */
  HttpAccess *access;
  int threads;
  size_t max_body, max_header;      /* bytes of a request */
  size_t bodies;                    /* bytes of all bodies that are held at a time */
  int connections, per_address;     /* at a time: beyond it idle ones are closed; per_address 0: no limit of its own */
  double head_seconds;              /* for the head of a request, and between two requests of a connection */
  double body_seconds;              /* for its body */
  double stall_seconds;             /* in which a client takes nothing of its answer */
  double request_seconds;           /* for an answer, its stream included (http_late); stall_seconds later it is cut off; 0: any */
  const char *certificate, *secret; /* of TLS, as PEM; NULL: without */
  const char *cors;                 /* the origin whose pages may use the service, or "*"; NULL: none */
  FILE *log;                        /* a line of JSON for each request; NULL: none */
  void (*finished)(void *context, const char *route, int status, double seconds); /* for metrics; route: "/v1/models", or "other" */
} HttpOptions;

typedef struct HttpCounts {
  int requests;    /* that are under way */
  int connections; /* that are open */
} HttpCounts;

/* sockets [count] listen already and become this one's; it closes them, also after a failure. Strings of *options are the caller's and
 * stay. BAD_VALUE: certificate and secret are not a pair; IO: the server does not start; NO_MEMORY. */
Status http_start(Http **http, const HttpOptions *options, const int *sockets, int count);
void http_drain(Http *http); /* no new connections; HTTP_WORK is refused from here on */
bool http_draining(const Http *http);
HttpCounts http_counts(Http *http);
void http_expire(Http *http); /* all requests that are under way are http_late from here on */
void http_stop(Http *http);   /* ends what is under way; accepts NULL */

/* ---- what a request is */

const char *http_url(const HttpRequest *request);                        /* its path, percent-decoded; cut where it is long */
const char *http_id(const HttpRequest *request);                         /* X-Request-Id of the client where that is sane, else a new one */
const char *http_field(const HttpRequest *request, const char *name);    /* of the head; NULL: not there */
const char *http_argument(const HttpRequest *request, const char *name); /* behind "?"; NULL: not there */
const char *http_body(const HttpRequest *request, size_t *bytes);        /* with a NUL behind */
bool http_late(const HttpRequest *request);                              /* request_seconds are over, or http_expire */
const char *http_late_reason(const HttpRequest *request);                /* of one that is late, for its client */

/* Adds a member to the log's line; takes value over. */
void http_note(HttpRequest *request, const char *name, json_t *value);

/* ---- answers */

/* For the answer that follows; what is too long is left out. */
void http_add_field(HttpRequest *request, const char *name, const char *value);
void http_retry_after(HttpRequest *request, int seconds);

/* copied: else data stays until the service has ended. */
void http_reply(HttpRequest *request, int status, const char *type, const void *data, size_t bytes, bool copied);
void http_reply_json(HttpRequest *request, int status, json_t *value); /* takes value over; NULL: no memory, 503 with Retry-After */

/* {"error": {"message", "type", "param", "code"}} as OpenAI's clients read it; param and code may be NULL. */
void http_reply_error(HttpRequest *request, int status, const char *param, const char *code, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
json_t *http_error_json(int status, const char *param, const char *code, const char *message); /* fresh */

enum { HTTP_END = -1, HTTP_BROKEN = -2 };

/* An answer that takes time. `ready` is called at once and after each http_wake, until it has replied or streamed: true then, else false.
 * It may call http_wake itself, to go on after other requests of its thread have had their turn: what takes long is done in parts.
 * `read` fills a stream: bytes written, 0 (it is called again after http_wake), HTTP_END, or HTTP_BROKEN to cut the connection. `close` is
 * called once, when the request is over in whatever way. */
typedef struct HttpWork {
  bool (*ready)(void *context, HttpRequest *request);
  ssize_t (*read)(void *context, HttpRequest *request, char *buffer, size_t room);
  void (*close)(void *context, HttpRequest *request);
  void *context;
} HttpWork;

void http_work(HttpRequest *request, const HttpWork *work);
void http_stream(HttpRequest *request); /* of events, status 200 */

/* From any thread, until `close` has returned: whoever wakes and `close` share a lock. */
void http_wake(HttpRequest *request);

#endif
