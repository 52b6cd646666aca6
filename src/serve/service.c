/* See service.h. */
#include "serve/service.h"
#include "base/clock.h"
#include "base/printable.h"
#include "nn/json_build.h"
#include "serve/completion_request.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void service_init(Service *service) {
  memset(service, 0, sizeof *service);
  service->started = time(NULL);
  service->clock = clock_now();
  pthread_mutex_init(&service->metrics.lock, NULL);
}

void service_release(Service *service) { pthread_mutex_destroy(&service->metrics.lock); }

/* ---- what the routes share */

void service_refuse_name(HttpRequest *request, const char *name) {
  char *shown = printable_excerpt(name, strlen(name), 100); /* a part of a character would spoil the answer */
  http_reply_error(request, 404, "model", "model_not_found", "there is no model %s here; /v1/models lists those there are",
                   shown && shown[0] ? shown : "of that name");
  free(shown);
}

const ServiceModel *service_find(Service *service, HttpRequest *request, const char *name, bool texts) {
  const char *wanted = texts ? "a language model" : "a model of images";
  const ServiceModel *other = NULL;
  for (int i = 0; i < service->count; i++) {
    const ServiceModel *model = &service->models[i];
    if (name && strcmp(name, model->name) != 0) continue;
    if ((model->vocabulary != NULL) == texts) return model;
    other = model;
  }
  if (!name)
    http_reply_error(request, 404, "model", "model_not_found", "%s is served by no checkpoint here", wanted);
  else if (other)
    http_reply_error(request, 400, "model", "model_not_found", "%s is not %s", other->name, wanted);
  else
    service_refuse_name(request, name);
  return NULL;
}

json_t *service_body(HttpRequest *request) {
  size_t bytes;
  json_t *root;
  const char *body = http_body(request, &bytes);
  if (completion_request_json(body, bytes, &root) == STATUS_OK) return root;
  http_reply_error(request, 400, NULL, "invalid_json", "%s", status_message());
  return NULL;
}

json_t *service_text(const char *text, size_t bytes) {
  if (bytes == 0 || !memchr(text, '\0', bytes)) return json_build_text(text, bytes);
  char *copy = malloc(bytes);
  if (!copy) return NULL;
  for (size_t i = 0; i < bytes; i++) copy[i] = text[i] ? text[i] : '\xff'; /* which is no UTF-8 either */
  json_t *value = json_build_text(copy, bytes);
  free(copy);
  return value;
}

int service_status_code(Status status) {
  if (status == STATUS_NO_MEMORY) status_wrap(status, "the service is short of memory: try again later, or ask for less at once");
  if (status == STATUS_BUSY || status == STATUS_NO_MEMORY) return 503;
  return status == STATUS_BAD_VALUE || status == STATUS_BAD_USAGE ? 400 : 500;
}

const char *service_busy_code(const ServiceModel *model) { return model && engine_is_deserted(model->engine) ? "no_device" : "queue_full"; }

void service_refuse(HttpRequest *request, const ServiceModel *model, Status status, const char *param, const char *code) {
  const int status_code = service_status_code(status);
  if (status_code == 503 && model) http_retry_after(request, engine_retry_seconds(model->engine));
  if (status == STATUS_BUSY)
    http_reply_error(request, 503, NULL, service_busy_code(model), "%s", status_message());
  else if (status_code == 400)
    http_reply_error(request, 400, param && param[0] ? param : NULL, code ? code : "invalid_value", "%s", status_message());
  else
    http_reply_error(request, status_code, NULL, NULL, "%s", status_message());
}

/* More than a token of any vocabulary stands for, and than JSON makes of a byte. */
enum { TOKEN_BYTES = 512, JSON_ESCAPE = 6 };

Status service_check_text(const ServiceModel *model, size_t bytes, const char **code) {
  if (bytes / TOKEN_BYTES <= (size_t)model->tokens_max) return STATUS_OK;
  *code = "context_length_exceeded";
  return status_set(STATUS_BAD_VALUE, "a text of %zu bytes; the context has room for %lld tokens", bytes, (long long)model->tokens_max);
}

static Status check_messages(const ServiceModel *model, size_t body_bytes, const char **code) {
  if (body_bytes / (JSON_ESCAPE * TOKEN_BYTES) <= (size_t)model->tokens_max) return STATUS_OK;
  *code = "context_length_exceeded";
  return status_set(STATUS_BAD_VALUE, "messages that fill a request of %zu bytes; the context has room for %lld tokens", body_bytes,
                    (long long)model->tokens_max);
}

Status service_encode_messages(const ServiceModel *model, const json_t *messages, size_t body_bytes, TokenList *ids, const char **code) {
  char *text;
  size_t size;
  TRY(check_messages(model, body_bytes, code));
  TRY(chat_template_render(model->chat, messages, true, &text, &size));
  Status status = service_check_text(model, size, code);
  if (status != STATUS_OK)
    status_wrap(status, "messages, as the chat template writes them");
  else
    status = chat_template_encode_text(model->chat, model->vocabulary, text, size, ids);
  free(text);
  return status;
}

Status service_check_tokens(const ServiceModel *model, size_t count, const char **code) {
  if (count <= (size_t)model->tokens_max) return STATUS_OK;
  *code = "context_length_exceeded";
  return status_set(STATUS_BAD_VALUE, "%zu tokens; the context has room for %lld", count, (long long)model->tokens_max);
}

/* ---- numbers */

static const double bounds[SERVICE_BUCKETS] = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300};

static void add_time(ServiceMetrics *m, ServiceTime time, double seconds) {
  int bucket = 0;
  while (bucket < SERVICE_BUCKETS && seconds > bounds[bucket]) bucket++;
  pthread_mutex_lock(&m->lock);
  m->times[time].bucket[bucket]++;
  m->times[time].count++;
  m->times[time].sum += seconds;
  pthread_mutex_unlock(&m->lock);
}

void service_finished(void *context, const char *route, int status, double seconds) {
  ServiceMetrics *m = &((Service *)context)->metrics;
  pthread_mutex_lock(&m->lock);
  int i = 0;
  while (i < m->request_count && (m->requests[i].status != status || strcmp(m->requests[i].route, route) != 0)) i++;
  if (i == m->request_count && i < SERVICE_COUNTERS) {
    m->requests[i].route = route;
    m->requests[i].status = status;
    m->request_count++;
  }
  if (i < m->request_count) m->requests[i].count++;
  pthread_mutex_unlock(&m->lock);
  add_time(m, SERVICE_HTTP, seconds);
}

void service_count_result(Service *service, const EngineResult *r, bool images) {
  ServiceMetrics *m = &service->metrics;
  if (r->end == ENGINE_FAILED || r->end == ENGINE_DESERTED || r->end == ENGINE_CANCELLED) return;
  add_time(m, SERVICE_QUEUE, r->queued);
  if (images) {
    add_time(m, SERVICE_CLASSIFY, r->total);
    return;
  }
  if (r->new_tokens > 0) add_time(m, SERVICE_FIRST_TOKEN, r->first);
  if (r->new_tokens > 1) add_time(m, SERVICE_TOKEN, (r->total - r->first) / (double)(r->new_tokens - 1));
  add_time(m, SERVICE_TOTAL, r->total);
}

static void head(FILE *out, const char *name, const char *type, const char *help) {
  fprintf(out, "# HELP astra_%s %s\n# TYPE astra_%s %s\n", name, help, name, type);
}

/* A label's value: names of models and devices come from command lines. */
static void label(FILE *out, const char *text) {
  for (; *text; text++) {
    if (*text == '"' || *text == '\\') fputc('\\', out);
    if (*text == '\n')
      fputs("\\n", out);
    else
      fputc(*text, out);
  }
}

static void write_times(const ServiceMetrics *m, FILE *out) {
  static const struct {
    const char *name, *help;
  } texts[] = {
#define SERVICE_TIME_TEXT(name, text, help) {text, help},
      SERVICE_TIMES(SERVICE_TIME_TEXT)
#undef SERVICE_TIME_TEXT
  };
  for (int t = 0; t < SERVICE_TIME_COUNT; t++) {
    uint64_t sum = 0;
    head(out, texts[t].name, "histogram", texts[t].help);
    for (int b = 0; b < SERVICE_BUCKETS; b++) {
      sum += m->times[t].bucket[b];
      fprintf(out, "astra_%s_bucket{le=\"%g\"} %llu\n", texts[t].name, bounds[b], (unsigned long long)sum);
    }
    fprintf(out, "astra_%s_bucket{le=\"+Inf\"} %llu\nastra_%s_sum %.9g\nastra_%s_count %llu\n", texts[t].name,
            (unsigned long long)m->times[t].count, texts[t].name, m->times[t].sum, texts[t].name, (unsigned long long)m->times[t].count);
  }
}

static void write_requests(const Service *service, FILE *out) {
  const ServiceMetrics *m = &service->metrics;
  head(out, "http_requests_total", "counter", "requests by path and status; 499: the client left before the answer");
  for (int i = 0; i < m->request_count; i++)
    fprintf(out, "astra_http_requests_total{path=\"%s\",status=\"%d\"} %llu\n", m->requests[i].route, m->requests[i].status,
            (unsigned long long)m->requests[i].count);
  head(out, "http_requests_active", "gauge", "requests under way");
  fprintf(out, "astra_http_requests_active %d\n", service->http ? http_counts(service->http).requests : 0);
  head(out, "http_connections", "gauge", "open connections");
  fprintf(out, "astra_http_connections %d\n", service->http ? http_counts(service->http).connections : 0);
  head(out, "uptime_seconds", "gauge", "since the service started");
  fprintf(out, "astra_uptime_seconds %.3f\n", clock_now() - service->clock);
  head(out, "draining", "gauge", "1: the service is shutting down");
  fprintf(out, "astra_draining %d\n", service->http && http_draining(service->http));
}

/* A number of each engine. */
#define ENGINE_NUMBERS(X)                                                                                                                  \
  X("ready", "gauge", "1: the cluster answers", (double)s->ready)                                                                          \
  X("queue_length", "gauge", "requests that wait for a place", s->queued)                                                                  \
  X("prefilling", "gauge", "prompts that are being computed", s->prefilling)                                                               \
  X("decoding", "gauge", "texts that are being decoded", s->decoding)                                                                      \
  X("submitted_total", "counter", "texts and image batches that were accepted", (double)s->submitted)                                      \
  X("finished_total", "counter", "of these, finished", (double)s->finished)                                                                \
  X("failed_total", "counter", "of these, failed", (double)s->failed)                                                                      \
  X("cancelled_total", "counter", "of these, cancelled", (double)s->cancelled)                                                             \
  X("refused_total", "counter", "refused: the queue was full, or the cluster was gone", (double)s->refused)                                \
  X("prompt_tokens_total", "counter", "tokens of prompts", (double)s->prompt_tokens)                                                       \
  X("shared_tokens_total", "counter", "of these, whose keys and values were there already", (double)s->shared_tokens)                      \
  X("new_tokens_total", "counter", "new tokens", (double)s->new_tokens)                                                                    \
  X("drafts_total", "counter", "guesses of the next tokens that were checked", (double)s->drafts)                                          \
  X("drafted_tokens_total", "counter", "of these, right: new tokens", (double)s->drafted)                                                  \
  X("images_total", "counter", "images classified", (double)s->images)                                                                     \
  X("cache_bytes", "gauge", "of keys and values on each device", (double)s->cache_bytes)                                                   \
  X("cache_used_bytes", "gauge", "of these, in use on the device with most", (double)s->cache_used)

/* A number of each device. */
#define DEVICE_NUMBERS(X)                                                                                                                  \
  X("device_up", "gauge", "1: takes part, 0: gone, 0.5: joining",                                                                          \
    d->state == ENGINE_DEVICE_HERE      ? 1                                                                                                \
    : d->state == ENGINE_DEVICE_JOINING ? 0.5                                                                                              \
                                        : 0)                                                                                               \
  X("device_share", "gauge", "share of a request's tokens", d->share)                                                                      \
  X("device_sequences", "gauge", "texts that decode on it", d->sequences)                                                                  \
  X("device_decode_rate", "gauge", "tokens per second, measured", d->decode_rate)                                                          \
  X("device_tokens_decoded_total", "counter", "tokens that it decoded", (double)d->tokens_decoded)                                         \
  X("device_failures_total", "counter", "how often it was lost", (double)d->failures)                                                      \
  X("device_compute_seconds_total", "counter", "computing", d->sum.compute)                                                                \
  X("device_wait_seconds_total", "counter", "waiting for other devices", d->sum.wait)                                                      \
  X("device_send_seconds_total", "counter", "sending", d->sum.send)                                                                        \
  X("device_quantise_seconds_total", "counter", "finding codes, packing and unpacking them", d->sum.quantise)                              \
  X("device_bytes_sent_total", "counter", "over its links to other devices", (double)d->sum.bytes_sent)                                    \
  X("device_bytes_received_total", "counter", "over its links from other devices", (double)d->sum.bytes_received)                          \
  X("device_messages_sent_total", "counter", "messages or packets", (double)d->sum.messages_sent)                                          \
  X("device_messages_received_total", "counter", "messages or packets", (double)d->sum.messages_received)                                  \
  X("device_packets_lost_total", "counter", "packets that never came", (double)d->sum.lost)                                                \
  X("device_packets_late_total", "counter", "packets that were given up", (double)d->sum.late)                                             \
  X("device_packets_resent_total", "counter", "packets sent again", (double)d->sum.resent)                                                 \
  X("device_tokens_masked_total", "counter", "tokens of others that were not there", (double)d->sum.masked)

static void write_engines(const Service *service, const EngineState *states, FILE *out) {
#define ENGINE_LINES(metric, type, help, value)                                                                                            \
  head(out, metric, type, help);                                                                                                           \
  for (int i = 0; i < service->count; i++) {                                                                                               \
    const EngineState *s = &states[i];                                                                                                     \
    fprintf(out, "astra_%s{model=\"", metric);                                                                                             \
    label(out, service->models[i].name);                                                                                                   \
    fprintf(out, "\"} %.17g\n", (double)(value));                                                                                          \
  }
  ENGINE_NUMBERS(ENGINE_LINES)
#undef ENGINE_LINES
}

static void write_devices(const Service *service, const EngineState *states, FILE *out) {
#define DEVICE_LINES(metric, type, help, value)                                                                                            \
  head(out, metric, type, help);                                                                                                           \
  for (int i = 0; i < service->count; i++) {                                                                                               \
    for (int n = 0; n < states[i].nodes; n++) {                                                                                            \
      const EngineDevice *d = &states[i].devices[n];                                                                                       \
      fprintf(out, "astra_%s{model=\"", metric);                                                                                           \
      label(out, service->models[i].name);                                                                                                 \
      fprintf(out, "\",device=\"%d\",address=\"", n);                                                                                      \
      label(out, d->name);                                                                                                                 \
      fprintf(out, "\"} %.17g\n", (double)(value));                                                                                        \
    }                                                                                                                                      \
  }
  DEVICE_NUMBERS(DEVICE_LINES)
#undef DEVICE_LINES
}

static Status write_metrics(Service *service, char **text, size_t *bytes) {
  EngineState *states = calloc((size_t)service->count + 1, sizeof *states);
  FILE *out = states ? open_memstream(text, bytes) : NULL;
  if (!out) {
    free(states);
    *text = NULL;
    return status_no_memory(NULL, "metrics");
  }
  for (int i = 0; i < service->count; i++) engine_state(service->models[i].engine, &states[i]);
  pthread_mutex_lock(&service->metrics.lock);
  write_requests(service, out);
  write_times(&service->metrics, out);
  pthread_mutex_unlock(&service->metrics.lock);
  write_engines(service, states, out);
  write_devices(service, states, out);
  free(states);
  return fclose(out) == 0 ? STATUS_OK : status_no_memory(NULL, "metrics");
}

static void answer_metrics(void *context, HttpRequest *request) {
  char *text;
  size_t bytes;
  Status status = write_metrics(context, &text, &bytes);
  if (status == STATUS_OK)
    http_reply(request, 200, "text/plain; version=0.0.4; charset=utf-8", text, bytes, true);
  else
    service_refuse(request, NULL, status, NULL, NULL);
  free(text);
}

const HttpRoute service_metrics_route = {"GET", "/metrics", 0, answer_metrics};
