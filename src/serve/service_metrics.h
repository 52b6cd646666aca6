/* Numbers of the service for Prometheus (text exposition format 0.0.4): requests by path and status, latencies as histograms, and what the
 * engines say of themselves and their devices. Any thread may call. */
#ifndef SERVE_SERVICE_METRICS_H
#define SERVE_SERVICE_METRICS_H
#include "base/status.h"
#include "serve/engine.h"
#include <pthread.h>
#include <stdint.h>

#define SERVICE_TIMES(X)                                                                                                                   \
  X(QUEUE, "queue", "from the arrival of a text or images until a place was free")                                                         \
  X(FIRST_TOKEN, "time_to_first_token", "from the arrival of a text until its first new token")                                            \
  X(TOKEN, "time_per_output_token", "between two new tokens of a text, its mean")                                                          \
  X(TOTAL, "generation", "from the arrival of a text until its end")                                                                       \
  X(CLASSIFY, "classification", "from the arrival of images at the engine until their classes")                                            \
  X(HTTP, "http_request", "from the head of a request until the end of its answer")

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

void service_metrics_init(ServiceMetrics *metrics);
void service_metrics_release(ServiceMetrics *metrics);

void service_metrics_time(ServiceMetrics *metrics, ServiceTime time, double seconds);
void service_metrics_request(ServiceMetrics *metrics, const char *route, int status);

/* Of an engine's answer: all of its times. */
void service_metrics_result(ServiceMetrics *metrics, const EngineResult *result, bool images);

typedef struct ServiceGauges {
  int requests, connections; /* of HTTP, at present */
  double uptime;             /* seconds */
  bool draining;
} ServiceGauges;

/* engines [count] and their names -> *text [*bytes], to be freed. */
Status service_metrics_text(ServiceMetrics *metrics, const ServiceGauges *gauges, Engine *const *engines, const char *const *names,
                            int count, char **text, size_t *bytes);

#endif
