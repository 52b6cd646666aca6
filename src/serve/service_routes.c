/* See service_routes.h. */
#include "serve/service_routes.h"
#include "base/clock.h"
#include "serve/choice.h"
#include "serve/completion.h"
#include "serve/image_request.h"
#include "serve/page.h"
#include "serve/service_cluster.h"
#include <stdlib.h>
#include <string.h>

/* ---- models */

static json_t *model_json(const Service *service, const ServiceModel *model) {
  const ModelConfig *config = model->weights->config;
  json_t *value = json_pack("{s:s, s:s, s:I, s:s, s:s}", "id", model->name, "object", "model", "created", (json_int_t)service->started,
                            "owned_by", "astra", "kind", model->vocabulary ? "text" : "images");
  if (value && model->vocabulary) json_object_set_new(value, "max_model_len", json_integer((json_int_t)model->tokens_max));
  if (value && !model->vocabulary) json_object_set_new(value, "classes", json_integer((json_int_t)config->classes));
  return value;
}

static void answer_models(void *context, HttpRequest *request) {
  Service *service = context;
  json_t *list = json_array();
  for (int i = 0; i < service->count; i++) json_array_append_new(list, model_json(service, &service->models[i]));
  http_reply_json(request, 200, json_pack("{s:s, s:o}", "object", "list", "data", list));
}

/* ---- tokens */

/* "prompt" (vLLM), "content" (llama.cpp) or "text", or the "messages" of a chat. */
static Status encode_body(const ServiceModel *model, const json_t *root, TokenList *ids, const char **param) {
  static const char *const names[] = {"prompt", "content", "text"};
  const json_t *messages = json_object_get(root, "messages"), *text = NULL, *begin, *special = json_object_get(root, "parse_special");
  *param = "messages";
  if (messages) return chat_template_encode(model->chat, model->vocabulary, messages, true, ids);
  for (int i = 0; i < 3 && !text; i++) text = json_object_get(root, *param = names[i]);
  if (!json_is_string(text)) return *param = "prompt", status_set(STATUS_BAD_VALUE, "prompt must be a string (or content, text; messages)");
  begin = json_object_get(root, "add_special_tokens");
  if (!begin) begin = json_object_get(root, "add_special");
  bool with_begin = begin ? json_is_true(begin) : strcmp(*param, "content") != 0;
  if (with_begin)
    return vocabulary_prompt(model->vocabulary, json_string_value(text), json_string_length(text), json_is_true(special), ids);
  return tokenizer_encode(model->vocabulary->tokenizer, json_string_value(text), json_string_length(text), json_is_true(special), ids);
}

static void answer_tokenize(void *context, HttpRequest *request) {
  Service *service = context;
  const char *param;
  TokenList ids = {0};
  json_t *root = service_body(request), *tokens = NULL;
  if (!root) return;
  const ServiceModel *model = service_find(service, request, json_string_value(json_object_get(root, "model")), true);
  Status status = model ? encode_body(model, root, &ids, &param) : STATUS_OK;
  if (model && status != STATUS_OK) service_refuse(service, request, model, status, param);
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

static Status read_tokens(const json_t *list, TokenList *ids) {
  if (!json_is_array(list)) return status_set(STATUS_BAD_VALUE, "tokens must be a list of token ids");
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
  size_t bytes = 0;
  json_t *root = service_body(request);
  if (!root) return;
  const ServiceModel *model = service_find(service, request, json_string_value(json_object_get(root, "model")), true);
  if (model) {
    Status status = read_tokens(json_object_get(root, "tokens"), &ids);
    if (status == STATUS_OK) status = tokenizer_decode(model->vocabulary->tokenizer, ids.ids, ids.count, &text, &bytes);
    if (status != STATUS_OK)
      service_refuse(service, request, model, status, "tokens");
    else
      http_reply_json(request, 200,
                      json_pack("{s:o, s:o}", "prompt", choice_text_json(text, bytes), "content", choice_text_json(text, bytes)));
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
  const char *waiting = state ? NULL : "memory";
  for (int i = 0; state && i < service->count; i++) {
    engine_state(service->models[i].engine, state);
    if (!state->ready) waiting = service->models[i].name;
  }
  free(state);
  bool draining = service->http && http_draining(service->http);
  if (!waiting && !draining) {
    http_reply_json(request, 200, json_pack("{s:s}", "status", "ready"));
    return;
  }
  http_retry_after(request, 5);
  http_reply_json(request, 503, json_pack("{s:s, s:s?}", "status", draining ? "draining" : "not ready", "model", waiting));
}

static void answer_metrics(void *context, HttpRequest *request) {
  Service *service = context;
  Engine *engines[SERVICE_MODELS];
  const char *names[SERVICE_MODELS];
  char *text;
  size_t bytes;
  for (int i = 0; i < service->count; i++) engines[i] = service->models[i].engine, names[i] = service->models[i].name;
  const ServiceGauges gauges = {.requests = service->http ? http_requests(service->http) : 0,
                                .connections = service->http ? http_connections(service->http) : 0,
                                .uptime = clock_now() - service->clock,
                                .draining = service->http && http_draining(service->http)};
  Status status = service_metrics_text(&service->metrics, &gauges, engines, names, service->count, &text, &bytes);
  if (status == STATUS_OK)
    http_reply(request, 200, "text/plain; version=0.0.4; charset=utf-8", text, bytes);
  else
    service_refuse(service, request, NULL, status, NULL);
  free(text);
}

/* ---- the page */

static void answer_page(void *context, HttpRequest *request) {
  (void)context;
  const PageFile *file = page_find(http_url(request));
  const char *held = http_field(request, "If-None-Match");
  if (!file) {
    http_reply_error(request, 404, NULL, NULL, "%.200s: there is nothing here", http_url(request));
    return;
  }
  for (int i = 0; page_fields[i]; i += 2) http_add_field(request, page_fields[i], page_fields[i + 1]);
  http_add_field(request, "ETag", file->tag);
  if (held && strcmp(held, file->tag) == 0)
    http_reply_static(request, 304, NULL, "", 0);
  else
    http_reply_static(request, 200, file->type, file->data, file->bytes);
}

const HttpRoute service_routes[] = {{"GET", "/v1/models", 0, answer_models},
                                    {"POST", "/v1/completions", HTTP_WORK | HTTP_JSON_BODY, completion_answer_text},
                                    {"POST", "/v1/chat/completions", HTTP_WORK | HTTP_JSON_BODY, completion_answer_chat},
                                    {"POST", "/v1/images/classify", HTTP_WORK, image_request_answer},
                                    {"POST", "/tokenize", HTTP_WORK | HTTP_JSON_BODY, answer_tokenize},
                                    {"POST", "/detokenize", HTTP_WORK | HTTP_JSON_BODY, answer_detokenize},
                                    {"GET", "/v1/cluster", 0, service_cluster_answer},
                                    {"GET", "/v1/cluster/events", 0, service_cluster_events},
                                    {"GET", "/health", HTTP_OPEN, answer_health},
                                    {"GET", "/ready", HTTP_OPEN, answer_ready},
                                    {"GET", "/metrics", 0, answer_metrics},
                                    {"GET", "/", HTTP_OPEN | HTTP_PREFIX, answer_page},
                                    {0}};
