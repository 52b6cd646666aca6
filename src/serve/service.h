/* The service over HTTP: its models, their engines, what the answers at its paths (service_routes.h) share, and its numbers for Prometheus:
 * requests by path and status, latencies as histograms, and what the engines say of themselves and their devices. */
#ifndef SERVE_SERVICE_H
#define SERVE_SERVICE_H
#include "infer/vocabulary.h"
#include "infer/weights.h"
#include "serve/chat_template.h"
#include "serve/engine.h"
#include "serve/http.h"
#include <pthread.h>
#include <time.h>

enum { SERVICE_MODELS = 8, SERVICE_NAME = 128 };

#define SERVICE_TIMES(X)                                                                                                                   \
  X(QUEUE, "queue_seconds", "from the arrival of a text or images until a place was free")                                                 \
  X(FIRST_TOKEN, "time_to_first_token_seconds", "from the arrival of a text until its first new token")                                    \
  X(TOKEN, "time_per_output_token_seconds", "between two new tokens of a text, its mean")                                                  \
  X(TOTAL, "generation_seconds", "from the arrival of a text until its end")                                                               \
  X(CLASSIFY, "classification_seconds", "from the arrival of images at the engine until their classes")                                    \
  X(HTTP, "http_request_seconds", "from the head of a request until the end of its answer")

typedef enum ServiceTime {
#define SERVICE_TIME_ENUM(name, text, help) SERVICE_##name,
  SERVICE_TIMES(SERVICE_TIME_ENUM)
#undef SERVICE_TIME_ENUM
      SERVICE_TIME_COUNT
} ServiceTime;

enum { SERVICE_BUCKETS = 16, SERVICE_COUNTERS = 256 };

typedef struct ServiceMetrics {
  pthread_mutex_t lock;
  struct {
    uint64_t bucket[SERVICE_BUCKETS + 1]; /* the last one: longer than all bounds */
    uint64_t count;
    double sum;
  } times[SERVICE_TIME_COUNT];
  struct {
    const char *route; /* not copied */
    int status;
    uint64_t count;
  } requests[SERVICE_COUNTERS];
  int request_count;
} ServiceMetrics;

/* A checkpoint that is served. All pointers are the caller's and outlive the service. */
typedef struct ServiceModel {
  char name[SERVICE_NAME]; /* as clients call it */
  Engine *engine;
  const Weights *weights;
  const Vocabulary *vocabulary; /* of a language model; else NULL */
  const ChatTemplate *chat;     /* likewise */
  int64_t tokens_max;           /* of prompt and answer together */
  int64_t images_max;           /* that engine_classify takes at a time */
} ServiceModel;

typedef struct Service {
  ServiceModel models[SERVICE_MODELS];
  int count;
  time_t started;
  double clock; /* clock_now when it started */
  Http *http;   /* NULL until it is started */
  ServiceMetrics metrics;
} Service;

void service_init(Service *service); /* without models */
void service_release(Service *service);

/* For HttpOptions: counts and times an answer. */
void service_finished(void *service, const char *route, int status, double seconds);

/* The model that a request names; the first of its kind where it names none. NULL: there is none, and 404 or 400 was replied. */
const ServiceModel *service_find(Service *service, HttpRequest *request, const char *name, bool texts);

/* Replies 404: no model is called that. */
void service_refuse_name(HttpRequest *request, const char *name);

/* The body as a JSON object; NULL: it is none, and 400 was replied. */
json_t *service_body(HttpRequest *request);

/* Text [bytes] of a model as a string that clients may send back: what is no UTF-8, and NUL, which no request may hold, becomes U+FFFD.
 * NULL: no memory. */
json_t *service_text(const char *text, size_t bytes);

/* The HTTP status of a failed call: BUSY and NO_MEMORY 503, BAD_VALUE and BAD_USAGE 400, else 500. Before the message of NO_MEMORY it puts
 * what a client can do. */
int service_status_code(Status status);

/* What clients know a call by that failed with BUSY: "queue_full", or "no_device" of a model that has lost all its devices. NULL: any
 * model. */
const char *service_busy_code(const ServiceModel *model);

/* Replies what a failed call came to, as above: 503 with Retry-After where the model is known, 400 with `param` and `code` (NULL:
 * "invalid_value"). */
void service_refuse(HttpRequest *request, const ServiceModel *model, Status status, const char *param, const char *code);

/* Cutting into tokens takes time and memory. BAD_VALUE, with *code for OpenAI's clients, before that: a text of so many bytes is too long
 * for the context whatever its tokens are; or these are more tokens than the context has. Else *code stays as it is. */
Status service_check_text(const ServiceModel *model, size_t bytes, const char **code);
Status service_check_tokens(const ServiceModel *model, size_t count, const char **code);

/* The ids of messages in a body of so many bytes, appended. BAD_VALUE as above: neither are messages rendered that are too long, nor is
 * what the template makes of them cut into tokens where it is; and as of chat_template_render. */
Status service_encode_messages(const ServiceModel *model, const json_t *messages, size_t body_bytes, TokenList *ids, const char **code);

/* Of an engine's answer: all of its times. Any thread may call. */
void service_count_result(Service *service, const EngineResult *result, bool images);

/* All numbers in Prometheus' text exposition format 0.0.4. Its context is the service. */
extern const HttpRoute service_metrics_route;

#endif
