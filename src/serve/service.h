/* The service over HTTP: its models, their engines, and what the answers at its paths (service_routes.h) share. */
#ifndef SERVE_SERVICE_H
#define SERVE_SERVICE_H
#include "infer/vocabulary.h"
#include "infer/weights.h"
#include "serve/chat_template.h"
#include "serve/engine.h"
#include "serve/http.h"
#include "serve/service_metrics.h"
#include <time.h>

enum { SERVICE_MODELS = 8, SERVICE_NAME = 128 };

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

/* The body as a JSON object; NULL: it is none, and 400 was replied. */
json_t *service_body(HttpRequest *request);

/* Replies what a failed call came to: BUSY 503 with Retry-After, BAD_VALUE 400 with `param`, else 500. */
void service_refuse(Service *service, HttpRequest *request, const ServiceModel *model, Status status, const char *param);

#endif
