/* See service_cluster.h. Streams of events wait in one list of the process, which its main thread walks (service_cluster_tick). */
#include "serve/service_cluster.h"
#include "base/clock.h"
#include <stdlib.h>
#include <string.h>

/* ---- JSON */

static json_t *device_json(const EngineDevice *d, int number) {
  static const char *const states[] = {[ENGINE_DEVICE_HERE] = "here", [ENGINE_DEVICE_GONE] = "gone", [ENGINE_DEVICE_JOINING] = "joining"};
  json_t *value = json_pack("{s:i, s:s, s:s, s:f, s:i, s:f, s:I, s:I}", "device", number, "name", d->name, "state", states[d->state],
                            "share", d->share, "sequences", d->sequences, "decode_rate", d->decode_rate, "tokens_decoded",
                            (json_int_t)d->tokens_decoded, "failures", (json_int_t)d->failures);
  const struct {
    const char *name;
    double seconds;
  } times[] = {
#define DEVICE_SECONDS(name) {#name "_seconds", d->sum.name},
      WIRE_SECONDS(DEVICE_SECONDS)
#undef DEVICE_SECONDS
  };
  const struct {
    const char *name;
    uint64_t count;
  } counts[] = {
#define DEVICE_COUNT(name) {#name, d->sum.name},
      WIRE_COUNTS(DEVICE_COUNT)
#undef DEVICE_COUNT
  };
  for (size_t i = 0; value && i < sizeof times / sizeof *times; i++) json_object_set_new(value, times[i].name, json_real(times[i].seconds));
  for (size_t i = 0; value && i < sizeof counts / sizeof *counts; i++)
    json_object_set_new(value, counts[i].name, json_integer((json_int_t)counts[i].count));
  return value;
}

static json_t *engine_json(const ServiceModel *model, const EngineState *s) {
  json_t *devices = json_array();
  for (int d = 0; d < s->nodes; d++) json_array_append_new(devices, device_json(&s->devices[d], d));
  const AstraConfig *astra = &model->weights->config->astra;
  return json_pack("{s:s, s:s, s:b, s:i, s:i, s:i, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:i, s:o}", "model",
                   model->name, "kind", model->vocabulary ? "text" : "images", "ready", (int)s->ready, "queued", s->queued, "prefilling",
                   s->prefilling, "decoding", s->decoding, "submitted", (json_int_t)s->submitted, "finished", (json_int_t)s->finished,
                   "failed", (json_int_t)s->failed, "cancelled", (json_int_t)s->cancelled, "refused", (json_int_t)s->refused,
                   "prompt_tokens", (json_int_t)s->prompt_tokens, "shared_tokens", (json_int_t)s->shared_tokens, "new_tokens",
                   (json_int_t)s->new_tokens, "drafts", (json_int_t)s->drafts, "drafted", (json_int_t)s->drafted, "images",
                   (json_int_t)s->images, "cache_bytes", (json_int_t)s->cache_bytes, "cache_used", (json_int_t)s->cache_used, "groups",
                   astra->groups, "devices", devices);
}

json_t *service_cluster_json(Service *service) {
  json_t *models = json_array();
  EngineState *state = malloc(sizeof *state);
  for (int i = 0; state && i < service->count; i++) {
    engine_state(service->models[i].engine, state);
    json_array_append_new(models, engine_json(&service->models[i], state));
  }
  free(state);
  return json_pack("{s:o, s:f}", "models", models, "uptime_seconds", clock_now() - service->clock);
}

void service_cluster_answer(void *service, HttpRequest *request) { http_reply_json(request, 200, service_cluster_json(service)); }

/* ---- events */

static const double period = 0.5;

typedef struct Watcher {
  Service *service;
  HttpRequest *request;
  double due; /* clock_now of the next event; under the lock */
  char *text; /* of the event that is being sent */
  size_t at, bytes;
  struct Watcher *next;
} Watcher;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static Watcher *watchers;

void service_cluster_tick(Service *service) {
  double now = clock_now();
  pthread_mutex_lock(&lock);
  for (Watcher *w = watchers; w; w = w->next)
    if (w->service == service && now >= w->due) http_wake(w->request);
  pthread_mutex_unlock(&lock);
}

static bool ready(void *context, HttpRequest *request) {
  (void)context;
  http_stream(request, "text/event-stream");
  return true;
}

static Status write_event(Watcher *w) {
  json_t *value = service_cluster_json(w->service);
  char *text = value ? json_dumps(value, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
  size_t room = text ? strlen(text) + 16 : 0;
  json_decref(value);
  free(w->text);
  w->text = text ? malloc(room) : NULL;
  w->at = 0;
  w->bytes = w->text ? (size_t)snprintf(w->text, room, "data: %s\n\n", text) : 0;
  free(text);
  return w->text ? STATUS_OK : status_no_memory(NULL, "an event");
}

static ssize_t read_events(void *context, HttpRequest *request, char *buffer, size_t room) {
  Watcher *w = context;
  if (w->at == w->bytes) {
    double now = clock_now();
    if (http_draining(w->service->http) || http_late(request)) return HTTP_END;
    pthread_mutex_lock(&lock);
    bool due = now >= w->due;
    if (due) w->due = now + period;
    pthread_mutex_unlock(&lock);
    if (!due) return 0;
    if (write_event(w) != STATUS_OK) return HTTP_BROKEN;
  }
  size_t bytes = w->bytes - w->at < room ? w->bytes - w->at : room;
  memcpy(buffer, w->text + w->at, bytes);
  w->at += bytes;
  return (ssize_t)bytes;
}

static void close_events(void *context, HttpRequest *request) {
  Watcher *w = context, **at = &watchers;
  (void)request;
  pthread_mutex_lock(&lock);
  while (*at && *at != w) at = &(*at)->next;
  if (*at) *at = w->next;
  pthread_mutex_unlock(&lock);
  free(w->text);
  free(w);
}

void service_cluster_events(void *service, HttpRequest *request) {
  Watcher *w = calloc(1, sizeof *w);
  if (!w) {
    http_reply_error(request, 500, NULL, NULL, "out of memory");
    return;
  }
  w->service = service;
  w->request = request;
  pthread_mutex_lock(&lock);
  w->next = watchers;
  watchers = w;
  pthread_mutex_unlock(&lock);
  http_work(request, &(HttpWork){.ready = ready, .read = read_events, .close = close_events, .context = w});
}
