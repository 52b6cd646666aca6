/* See service.h. */
#include "serve/service.h"
#include "base/clock.h"
#include "serve/completion_request.h"
#include <string.h>

void service_init(Service *service) {
  memset(service, 0, sizeof *service);
  service->started = time(NULL);
  service->clock = clock_now();
  service_metrics_init(&service->metrics);
}

void service_release(Service *service) { service_metrics_release(&service->metrics); }

/* ---- what the routes share */

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
    http_reply_error(request, 400, "model", "model_not_found", "%.100s is not %s", name, wanted);
  else
    http_reply_error(request, 404, "model", "model_not_found", "there is no model %.100s here; /v1/models lists those there are", name);
  return NULL;
}

json_t *service_body(HttpRequest *request) {
  size_t bytes;
  json_t *root;
  const char *body = http_body(request, &bytes);
  if (request_json(body, bytes, &root) == STATUS_OK) return root;
  http_reply_error(request, 400, NULL, "invalid_json", "%s", status_message());
  return NULL;
}

void service_refuse(Service *service, HttpRequest *request, const ServiceModel *model, Status status, const char *param) {
  (void)service;
  if (status == STATUS_BUSY && model) http_retry_after(request, engine_retry_seconds(model->engine));
  if (status == STATUS_BUSY)
    http_reply_error(request, 503, NULL, "queue_full", "%s", status_message());
  else if (status == STATUS_BAD_VALUE || status == STATUS_BAD_USAGE)
    http_reply_error(request, 400, param && param[0] ? param : NULL, "invalid_value", "%s", status_message());
  else
    http_reply_error(request, 500, NULL, NULL, "%s", status_message());
}

void service_finished(void *context, const char *route, int status, double seconds) {
  Service *service = context;
  service_metrics_request(&service->metrics, route, status);
  service_metrics_time(&service->metrics, SERVICE_HTTP, seconds);
}
