/* See service_routes.h. */
#include "serve/service_routes.h"
#include "base/clock.h"
#include "serve/completion.h"
#include "serve/completion_request.h"
#include "serve/image_request.h"
#include "serve/page.h"
#include <stdlib.h>
#include <string.h>

/* ---- models */

static json_t *model_json(const Service *service, const ServiceModel *model) {
  json_t *value = json_pack("{s:s, s:s, s:I, s:s, s:s}", "id", model->name, "object", "model", "created", (json_int_t)service->started,
                            "owned_by", "astra", "kind", model->vocabulary ? "text" : "images");
  if (value && model->vocabulary) json_object_set_new(value, "max_model_len", json_integer((json_int_t)model->tokens_max));
  if (value && !model->vocabulary) json_object_set_new(value, "classes", json_integer((json_int_t)model->weights->config->classes));
  return value;
}

static void answer_models(void *context, HttpRequest *request) {
  const Service *service = context;
  json_t *list = json_array();
  for (int i = 0; i < service->count; i++) json_array_append_new(list, model_json(service, &service->models[i]));
  http_reply_json(request, 200, json_pack("{s:s, s:o}", "object", "list", "data", list));
}

/* The model of that name, whatever its kind; the first one where name is NULL. NULL: there is none, and 404 was replied. */
static const ServiceModel *find_named(const Service *service, HttpRequest *request, const char *name) {
  for (int i = 0; i < service->count; i++)
    if (!name || strcmp(name, service->models[i].name) == 0) return &service->models[i];
  service_refuse_name(request, name);
  return NULL;
}

static const char one_model[] = "/v1/models/"; /* NAME */

static void answer_model(void *context, HttpRequest *request) {
  const Service *service = context;
  const ServiceModel *model = find_named(service, request, http_url(request) + sizeof one_model - 1);
  if (model) http_reply_json(request, 200, model_json(service, model));
}

/* ---- tokens */

/* "prompt" (vLLM), "content" (llama.cpp) or "text", or the "messages" of a chat, in a body of so many bytes. Of an error the field, and
 * where OpenAI's clients know it by a code, that. */
static Status encode_body(const ServiceModel *model, const json_t *root, size_t body_bytes, TokenList *ids, char param[REQUEST_PARAM],
                          const char **code) {
  static const char *const names[] = {"prompt", "content", "text"};
  const json_t *messages = completion_request_field(root, "messages", param), *text = NULL;
  const char *name = names[0];
  if (messages) return service_encode_messages(model, messages, body_bytes, ids, code);
  for (int i = 0; i < 3 && !text; i++) text = completion_request_field(root, name = names[i], param);
  bool with_begin = strcmp(name, "content") != 0, special = false;
  TRY(completion_request_bool(root, "add_special", &with_begin, param));
  TRY(completion_request_bool(root, "add_special_tokens", &with_begin, param)); /* of both, this one counts */
  TRY(completion_request_bool(root, "parse_special", &special, param));
  snprintf(param, REQUEST_PARAM, "%s", json_is_string(text) ? name : names[0]);
  if (!json_is_string(text)) return status_set(STATUS_BAD_VALUE, "prompt must be a string (or content, text; messages)");
  TRY(service_check_text(model, json_string_length(text), code));
  if (with_begin) return vocabulary_prompt(model->vocabulary, json_string_value(text), json_string_length(text), special, ids);
  return tokenizer_encode(model->vocabulary->tokenizer, json_string_value(text), json_string_length(text), special, ids);
}

/* False where what a body says of "model" is no name, which is answered; *name NULL: it says nothing, and the first one is meant. */
static bool asked_model(HttpRequest *request, const json_t *root, const char **name) {
  char param[REQUEST_PARAM] = "";
  const Status status = completion_request_model(root, name, param);
  if (status != STATUS_OK) service_refuse(request, NULL, status, param, NULL);
  return status == STATUS_OK;
}

static void answer_tokenize(void *context, HttpRequest *request) {
  Service *service = context;
  char param[REQUEST_PARAM] = "";
  const char *code = NULL;
  TokenList ids = {0};
  size_t body_bytes;
  json_t *root = service_body(request), *tokens = NULL;
  if (!root) return;
  http_body(request, &body_bytes);
  const char *name;
  const ServiceModel *model = asked_model(request, root, &name) ? service_find(service, request, name, true) : NULL;
  Status status = model ? encode_body(model, root, body_bytes, &ids, param, &code) : STATUS_OK;
  if (status != STATUS_OK) service_refuse(request, model, status, param, code);
  if (model && status == STATUS_OK) {
    tokens = json_array();
    for (size_t i = 0; i < ids.count; i++) json_array_append_new(tokens, json_integer(ids.ids[i]));
    http_reply_json(
        request, 200,
        json_pack("{s:I, s:I, s:o}", "count", (json_int_t)ids.count, "max_model_len", (json_int_t)model->tokens_max, "tokens", tokens));
  }
  token_list_release(&ids);
  json_decref(root);
}

static Status read_tokens(const ServiceModel *model, const json_t *list, TokenList *ids, const char **code) {
  if (!json_is_array(list)) return status_set(STATUS_BAD_VALUE, "tokens must be a list of token ids");
  TRY(service_check_tokens(model, json_array_size(list), code));
  for (size_t i = 0; i < json_array_size(list); i++) {
    const json_t *id = json_array_get(list, i);
    if (!json_is_integer(id) || json_integer_value(id) < 0 || json_integer_value(id) > INT32_MAX)
      return status_set(STATUS_BAD_VALUE, "tokens[%zu] is no token id", i);
    TRY(token_list_add(ids, (int32_t)json_integer_value(id)));
  }
  return STATUS_OK;
}

static void answer_detokenize(void *context, HttpRequest *request) {
  Service *service = context;
  TokenList ids = {0};
  char *text = NULL;
  const char *code = NULL;
  size_t bytes = 0;
  json_t *root = service_body(request);
  if (!root) return;
  const char *name;
  const ServiceModel *model = asked_model(request, root, &name) ? service_find(service, request, name, true) : NULL;
  if (model) {
    Status status = read_tokens(model, json_object_get(root, "tokens"), &ids, &code);
    if (status == STATUS_OK) status = tokenizer_decode(model->vocabulary->tokenizer, ids.ids, ids.count, &text, &bytes);
    if (status == STATUS_OK) {
      json_t *value = service_text(text, bytes);
      http_reply_json(request, 200, json_pack("{s:O, s:o}", "prompt", value, "content", value));
    } else {
      service_refuse(request, model, status, "tokens", code);
    }
  }
  free(text);
  token_list_release(&ids);
  json_decref(root);
}

/* ---- for those who operate it */

static void answer_health(void *context, HttpRequest *request) {
  (void)context;
  http_reply_json(request, 200, json_pack("{s:s}", "status", "ok"));
}

static void answer_ready(void *context, HttpRequest *request) {
  Service *service = context;
  EngineState *state = malloc(sizeof *state);
  const char *waiting = state ? NULL : "memory", *reason = NULL;
  for (int i = 0; state && i < service->count; i++) {
    engine_state(service->models[i].engine, state);
    if (state->ready) continue;
    waiting = service->models[i].name;
    reason = state->deserted ? "no device is left; its workers are called again" : "its cluster has failed";
  }
  free(state);
  bool draining = service->http && http_draining(service->http);
  if (!waiting && !draining) {
    http_reply_json(request, 200, json_pack("{s:s}", "status", "ready"));
    return;
  }
  http_retry_after(request, 5);
  http_reply_json(request, 503,
                  json_pack("{s:s, s:s?, s:s?}", "status", draining ? "draining" : "not ready", "model", waiting, "reason", reason));
}

/* ---- the state of each model's cluster */

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
  json_t *rates = json_array();
  for (int r = 0; r < config_rates(model->weights->config); r++)
    json_array_append_new(rates, json_integer(config_rate_groups(model->weights->config, r)));
  return json_pack(
      "{s:s, s:s, s:b, s:b, s:i, s:i, s:i, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:i, s:i, s:o, s:b, s:o}",
      "model", model->name, "kind", model->vocabulary ? "text" : "images", "ready", (int)s->ready, "deserted", (int)s->deserted, "queued",
      s->queued, "prefilling", s->prefilling, "decoding", s->decoding, "submitted", (json_int_t)s->submitted, "finished",
      (json_int_t)s->finished, "failed", (json_int_t)s->failed, "cancelled", (json_int_t)s->cancelled, "refused", (json_int_t)s->refused,
      "prompt_tokens", (json_int_t)s->prompt_tokens, "shared_tokens", (json_int_t)s->shared_tokens, "new_tokens", (json_int_t)s->new_tokens,
      "drafts", (json_int_t)s->drafts, "drafted", (json_int_t)s->drafted, "images", (json_int_t)s->images, "cache_bytes",
      (json_int_t)s->cache_bytes, "cache_used", (json_int_t)s->cache_used, "groups", s->groups, "groups_wanted", s->groups_wanted, "rates",
      rates, "follows_links", (int)s->follows, "devices", devices);
}

static json_t *cluster_json(Service *service) {
  json_t *models = json_array();
  EngineState *state = malloc(sizeof *state);
  for (int i = 0; state && i < service->count; i++) {
    engine_state(service->models[i].engine, state);
    json_array_append_new(models, engine_json(&service->models[i], state));
  }
  free(state);
  return json_pack("{s:o, s:f}", "models", models, "uptime_seconds", clock_now() - service->clock);
}

static void answer_cluster(void *service, HttpRequest *request) { http_reply_json(request, 200, cluster_json(service)); }

/* {"groups": N or "auto"}, of the first model unless "model" names another. */
static void answer_groups(void *context, HttpRequest *request) {
  Service *service = context;
  json_t *root = service_body(request);
  if (!root) return;
  const char *name;
  const ServiceModel *model = asked_model(request, root, &name) ? find_named(service, request, name) : NULL;
  const json_t *wanted = json_object_get(root, "groups");
  const bool links = json_is_string(wanted) && strcmp(json_string_value(wanted), "auto") == 0;
  const json_int_t groups = links ? 0 : json_integer_value(wanted);
  if (!model) {
    json_decref(root);
    return;
  }
  if (!links && (groups < 1 || groups > INT32_MAX)) {
    http_reply_error(request, 400, "groups", "invalid_value", "groups must be a number of groups or \"auto\"");
  } else if (engine_use_groups(model->engine, (int)groups) != STATUS_OK) {
    service_refuse(request, model, STATUS_BAD_VALUE, "groups", NULL);
  } else {
    http_reply_json(request, 200,
                    links ? json_pack("{s:s, s:s}", "model", model->name, "groups", "auto")
                          : json_pack("{s:s, s:I}", "model", model->name, "groups", groups));
  }
  json_decref(root);
}

/* ---- its events: they wait in one list of the process, which the main thread walks (service_routes_tick) */

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

void service_routes_tick(Service *service) {
  double now = clock_now();
  pthread_mutex_lock(&lock);
  for (Watcher *w = watchers; w; w = w->next)
    if (w->service == service && now >= w->due) http_wake(w->request);
  pthread_mutex_unlock(&lock);
}

static bool start_events(void *context, HttpRequest *request) {
  (void)context;
  http_stream(request);
  return true;
}

static Status write_event(Watcher *w) {
  json_t *value = cluster_json(w->service);
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

static void answer_events(void *service, HttpRequest *request) {
  Watcher *w = calloc(1, sizeof *w);
  if (!w) {
    service_refuse(request, NULL, status_no_memory(NULL, "a request"), NULL, NULL);
    return;
  }
  w->service = service;
  w->request = request;
  pthread_mutex_lock(&lock);
  w->next = watchers;
  watchers = w;
  pthread_mutex_unlock(&lock);
  http_work(request, &(HttpWork){.ready = start_events, .read = read_events, .close = close_events, .context = w});
}

/* ---- the page */

static void answer_page(void *context, HttpRequest *request) {
  (void)context;
  const PageFile *file = page_find(http_url(request));
  const char *held = http_field(request, "If-None-Match");
  if (!file) {
    http_reply_error(request, 404, NULL, NULL, "there is no %.200s; the API is under /v1, as in /v1/chat/completions", http_url(request));
    return;
  }
  for (int i = 0; page_fields[i]; i += 2) http_add_field(request, page_fields[i], page_fields[i + 1]);
  http_add_field(request, "ETag", file->tag);
  if (held && strcmp(held, file->tag) == 0)
    http_reply(request, 304, NULL, "", 0, false);
  else
    http_reply(request, 200, file->type, file->data, file->bytes, false);
}

const HttpRoute *const service_routes[] = {&(const HttpRoute){"GET", "/v1/models", 0, answer_models},
                                           &(const HttpRoute){"GET", one_model, HTTP_PREFIX, answer_model},
                                           &completion_text_route,
                                           &completion_chat_route,
                                           &image_request_route,
                                           &(const HttpRoute){"POST", "/tokenize", HTTP_WORK | HTTP_JSON_BODY, answer_tokenize},
                                           &(const HttpRoute){"POST", "/detokenize", HTTP_WORK | HTTP_JSON_BODY, answer_detokenize},
                                           &(const HttpRoute){"GET", "/v1/cluster", 0, answer_cluster},
                                           &(const HttpRoute){"POST", "/v1/cluster/groups", HTTP_WORK | HTTP_JSON_BODY, answer_groups},
                                           &(const HttpRoute){"GET", "/v1/cluster/events", 0, answer_events},
                                           &(const HttpRoute){"GET", "/health", HTTP_OPEN, answer_health},
                                           &(const HttpRoute){"GET", "/ready", HTTP_OPEN, answer_ready},
                                           &service_metrics_route,
                                           &(const HttpRoute){"GET", "/", HTTP_OPEN | HTTP_PREFIX, answer_page},
                                           NULL};
