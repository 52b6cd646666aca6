/* See service_metrics.h. */
#include "serve/service_metrics.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double bounds[SERVICE_BUCKETS] = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300};

void service_metrics_init(ServiceMetrics *m) {
  memset(m, 0, sizeof *m);
  pthread_mutex_init(&m->lock, NULL);
}

void service_metrics_release(ServiceMetrics *m) { pthread_mutex_destroy(&m->lock); }

void service_metrics_time(ServiceMetrics *m, ServiceTime time, double seconds) {
  int bucket = 0;
  while (bucket < SERVICE_BUCKETS && seconds > bounds[bucket]) bucket++;
  pthread_mutex_lock(&m->lock);
  m->times[time].bucket[bucket]++;
  m->times[time].count++;
  m->times[time].sum += seconds;
  pthread_mutex_unlock(&m->lock);
}

void service_metrics_request(ServiceMetrics *m, const char *route, int status) {
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
}

void service_metrics_result(ServiceMetrics *m, const EngineResult *r, bool images) {
  if (r->end == ENGINE_FAILED || r->end == ENGINE_CANCELLED) return;
  service_metrics_time(m, SERVICE_QUEUE, r->queued);
  if (images) {
    service_metrics_time(m, SERVICE_CLASSIFY, r->total);
    return;
  }
  if (r->new_tokens > 0) service_metrics_time(m, SERVICE_FIRST_TOKEN, r->first);
  if (r->new_tokens > 1) service_metrics_time(m, SERVICE_TOKEN, (r->total - r->first) / (double)(r->new_tokens - 1));
  service_metrics_time(m, SERVICE_TOTAL, r->total);
}

/* ---- text */

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

static void write_times(ServiceMetrics *m, FILE *out) {
  static const struct {
    const char *name, *help;
  } texts[] = {
#define SERVICE_TIME_TEXT(name, text, help) {text "_seconds", help},
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

static void write_requests(ServiceMetrics *m, const ServiceGauges *g, FILE *out) {
  head(out, "http_requests_total", "counter", "requests by path and status; 499: the client left before the answer");
  for (int i = 0; i < m->request_count; i++)
    fprintf(out, "astra_http_requests_total{path=\"%s\",status=\"%d\"} %llu\n", m->requests[i].route, m->requests[i].status,
            (unsigned long long)m->requests[i].count);
  head(out, "http_requests_active", "gauge", "requests under way");
  fprintf(out, "astra_http_requests_active %d\n", g->requests);
  head(out, "http_connections", "gauge", "open connections");
  fprintf(out, "astra_http_connections %d\n", g->connections);
  head(out, "uptime_seconds", "gauge", "since the service started");
  fprintf(out, "astra_uptime_seconds %.3f\n", g->uptime);
  head(out, "draining", "gauge", "1: the service is shutting down");
  fprintf(out, "astra_draining %d\n", g->draining);
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
  X("refused_total", "counter", "refused because the queue was full", (double)s->refused)                                                  \
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
  X("device_decode_rate", "gauge", "tokens a second, measured", d->decode_rate)                                                            \
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

static void write_engines(const EngineState *states, const char *const *names, int count, FILE *out) {
#define ENGINE_LINES(metric, type, help, value)                                                                                            \
  head(out, metric, type, help);                                                                                                           \
  for (int i = 0; i < count; i++) {                                                                                                        \
    const EngineState *s = &states[i];                                                                                                     \
    fprintf(out, "astra_%s{model=\"", metric);                                                                                             \
    label(out, names[i]);                                                                                                                  \
    fprintf(out, "\"} %.17g\n", (double)(value));                                                                                          \
  }
  ENGINE_NUMBERS(ENGINE_LINES)
#undef ENGINE_LINES
}

static void write_devices(const EngineState *states, const char *const *names, int count, FILE *out) {
#define DEVICE_LINES(metric, type, help, value)                                                                                            \
  head(out, metric, type, help);                                                                                                           \
  for (int i = 0; i < count; i++) {                                                                                                        \
    for (int n = 0; n < states[i].nodes; n++) {                                                                                            \
      const EngineDevice *d = &states[i].devices[n];                                                                                       \
      fprintf(out, "astra_%s{model=\"", metric);                                                                                           \
      label(out, names[i]);                                                                                                                \
      fprintf(out, "\",device=\"%d\",address=\"", n);                                                                                      \
      label(out, d->name);                                                                                                                 \
      fprintf(out, "\"} %.17g\n", (double)(value));                                                                                        \
    }                                                                                                                                      \
  }
  DEVICE_NUMBERS(DEVICE_LINES)
#undef DEVICE_LINES
}

Status service_metrics_text(ServiceMetrics *m, const ServiceGauges *g, Engine *const *engines, const char *const *names, int count,
                            char **text, size_t *bytes) {
  EngineState *states = calloc((size_t)(count > 0 ? count : 1), sizeof *states);
  FILE *out = states ? open_memstream(text, bytes) : NULL;
  if (!out) {
    free(states);
    *text = NULL;
    return status_no_memory(NULL, "metrics");
  }
  for (int i = 0; i < count; i++) engine_state(engines[i], &states[i]);
  pthread_mutex_lock(&m->lock);
  write_requests(m, g, out);
  write_times(m, out);
  pthread_mutex_unlock(&m->lock);
  write_engines(states, names, count, out);
  write_devices(states, names, count, out);
  free(states);
  return fclose(out) == 0 ? STATUS_OK : status_no_memory(NULL, "metrics");
}
