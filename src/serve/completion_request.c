/* See completion_request.h. Numbers stand in one table; the rest is read field by field. */
#include "serve/completion_request.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- JSON ---- */

/* What a value takes of REQUEST_VALUES by the byte that it begins with, or that stands before it, in Jansson's memory: 48 bytes are one. */
static size_t weight_of(char byte) {
  switch (byte) {
  case ',':
  case ':':
  case '"':
    return 1;
  case '[':
    return 2;
  case '{':
    return 4;
  default:
    return 0;
  }
}

/* Before anything is allocated for it, by what is outside of strings. */
static Status check_size(const char *body, size_t bytes) {
  int depth = 0;
  size_t values = 1;
  for (size_t i = 0; i < bytes; i++) {
    values += weight_of(body[i]);
    if (body[i] == '"') {
      for (i++; i < bytes && body[i] != '"'; i++) i += body[i] == '\\';
    } else if (body[i] == '[' || body[i] == '{') {
      if (++depth > REQUEST_DEPTH) return status_set(STATUS_BAD_VALUE, "JSON nested more than %d levels deep", REQUEST_DEPTH);
    } else if (body[i] == ']' || body[i] == '}') {
      depth--;
    }
    if (values > REQUEST_VALUES)
      return status_set(STATUS_BAD_VALUE, "JSON of more than %d values (a string counts as 2, a list as 3, an object as 5)",
                        REQUEST_VALUES);
  }
  return STATUS_OK;
}

/* What is JSON and yet refused; NULL: it is no JSON. */
static const char *refused_json(const json_error_t *error) {
  switch (json_error_code(error)) {
  case json_error_null_character:
  case json_error_null_byte_in_key:
    return "a string with a NUL (\\u0000), which no text may hold here";
  case json_error_duplicate_key:
    return "two fields of the same name in one object";
  case json_error_numeric_overflow:
    return "a number that 64 bits do not hold";
  default:
    return NULL;
  }
}

Status completion_request_json(const char *body, size_t bytes, json_t **root) {
  json_error_t error;
  *root = NULL;
  TRY(check_size(body, bytes));
  *root = json_loadb(body, bytes, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &error);
  const char *refused = *root ? NULL : refused_json(&error);
  if (refused) return status_set(STATUS_BAD_VALUE, "the body is not accepted: %s, at byte %d", refused, error.position);
  if (!*root) return status_set(STATUS_BAD_VALUE, "the body is not JSON: %s, at byte %d", error.text, error.position);
  if (json_is_object(*root)) return STATUS_OK;
  json_decref(*root);
  *root = NULL;
  return status_set(STATUS_BAD_VALUE, "the body must be a JSON object");
}

/* ---- fields ---- */

typedef struct Reader {
  const json_t *root;
  char *param; /* [REQUEST_PARAM] */
} Reader;

const json_t *completion_request_field(const json_t *root, const char *name, char param[REQUEST_PARAM]) {
  const json_t *value = json_object_get(root, name);
  snprintf(param, REQUEST_PARAM, "%s", name);
  return json_is_null(value) ? NULL : value;
}

static const json_t *field(const Reader *r, const char *name) { return completion_request_field(r->root, name, r->param); }

static Status wrong_type(const Reader *r, const char *wanted, const json_t *value) {
  static const char *const names[] = {
      [JSON_OBJECT] = "an object", [JSON_ARRAY] = "an array", [JSON_STRING] = "a string", [JSON_INTEGER] = "an integer",
      [JSON_REAL] = "a number",    [JSON_TRUE] = "true",      [JSON_FALSE] = "false",     [JSON_NULL] = "null"};
  return status_set(STATUS_BAD_VALUE, "%s must be %s, not %s", r->param, wanted, names[json_typeof(value)]);
}

static Status read_bool(const Reader *r, const char *name, bool *out) {
  const json_t *value = field(r, name);
  if (!value) return STATUS_OK;
  if (!json_is_boolean(value)) return wrong_type(r, "true or false", value);
  *out = json_is_true(value);
  return STATUS_OK;
}

Status completion_request_bool(const json_t *root, const char *name, bool *out, char param[REQUEST_PARAM]) {
  return read_bool(&(Reader){.root = root, .param = param}, name, out);
}

Status completion_request_model(const json_t *root, const char **name, char param[REQUEST_PARAM]) {
  const Reader r = {.root = root, .param = param};
  const json_t *model = field(&r, "model");
  if (model && !json_is_string(model)) return wrong_type(&r, "a string", model);
  *name = json_string_value(model);
  return STATUS_OK;
}

static Status read_integer(const Reader *r, const char *name, int64_t min, int64_t max, int64_t *out) {
  const json_t *value = field(r, name);
  if (!value) return STATUS_OK;
  bool whole = json_is_integer(value) ||
               (json_is_real(value) && json_real_value(value) == floor(json_real_value(value)) && fabs(json_real_value(value)) < 9e15);
  if (!whole) return wrong_type(r, "an integer", value);
  int64_t number = json_is_integer(value) ? (int64_t)json_integer_value(value) : (int64_t)json_real_value(value);
  if (number < min || number > max)
    return status_set(STATUS_BAD_VALUE, "%s: %lld is not accepted; from %lld to %lld is", name, (long long)number, (long long)min,
                      (long long)max);
  *out = number;
  return STATUS_OK;
}

static Status read_sampling(const Reader *r, CompletionRequest *request) {
  Sampling *s = &request->sampling;
  int64_t seed = 0;
  *s = (Sampling){.temperature = 1, .top_p = 1, .repetition_penalty = 1};
  const struct {
    const char *name;
    double min, max, *out;
  } numbers[] = {{"temperature", 0, SAMPLING_TEMPERATURE_MAX, &s->temperature},
                 {"top_p", 0, 1, &s->top_p},
                 {"min_p", 0, SAMPLING_MIN_P_MAX, &s->min_p},
                 {"repetition_penalty", SAMPLING_REPETITION_MIN, SAMPLING_REPETITION_MAX, &s->repetition_penalty},
                 {"frequency_penalty", -SAMPLING_PENALTY_MAX, SAMPLING_PENALTY_MAX, &s->frequency_penalty},
                 {"presence_penalty", -SAMPLING_PENALTY_MAX, SAMPLING_PENALTY_MAX, &s->presence_penalty}};
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
    const json_t *value = field(r, numbers[i].name);
    if (!value) continue;
    if (!json_is_number(value)) return wrong_type(r, "a number", value);
    double number = json_number_value(value);
    if (!(number >= numbers[i].min && number <= numbers[i].max))
      return status_set(STATUS_BAD_VALUE, "%s: %g is not accepted; from %g to %g is", numbers[i].name, number, numbers[i].min,
                        numbers[i].max);
    *numbers[i].out = number;
  }
  if (s->top_p < SAMPLING_TOP_P_MIN) s->top_p = SAMPLING_TOP_P_MIN; /* 0 means the likeliest token alone */
  int64_t top_k = 0;
  TRY(read_integer(r, "top_k", -1, SAMPLING_TOP_K_MAX, &top_k)); /* -1: all, as vLLM has it */
  s->top_k = top_k < 0 ? 0 : top_k;
  TRY(read_integer(r, "seed", INT64_MIN, INT64_MAX, &seed));
  request->seeded = field(r, "seed") != NULL;
  s->seed = (uint64_t)seed;
  return STATUS_OK;
}

static Status read_biases(const Reader *r, Sampling *s) {
  const json_t *biases = field(r, "logit_bias");
  if (!biases) return STATUS_OK;
  if (!json_is_object(biases)) return wrong_type(r, "an object", biases);
  if (json_object_size(biases) > SAMPLING_BIASES) return status_set(STATUS_BAD_VALUE, "logit_bias: more than %d tokens", SAMPLING_BIASES);
  for (void *at = json_object_iter((json_t *)(uintptr_t)biases); at; at = json_object_iter_next((json_t *)(uintptr_t)biases, at)) {
    const char *key = json_object_iter_key(at);
    const json_t *value = json_object_iter_value(at);
    size_t digits = strspn(key, "0123456789");
    if (digits == 0 || digits > 9 || key[digits]) return status_set(STATUS_BAD_VALUE, "logit_bias: '%.40s' is no token id", key);
    double add = json_is_number(value) ? json_number_value(value) : NAN;
    if (!(fabs(add) <= 100)) return status_set(STATUS_BAD_VALUE, "logit_bias: the bias of token %s must be a number from -100 to 100", key);
    s->bias[s->biases++] = (SamplingBias){.id = (int32_t)strtol(key, NULL, 10), .add = (float)add};
  }
  return STATUS_OK;
}

static Status read_stops(const Reader *r, CompletionRequest *request) {
  const json_t *stops = field(r, "stop");
  bool several = json_is_array(stops);
  size_t count = several ? json_array_size(stops) : stops != NULL;
  for (size_t i = 0; i < count; i++) {
    const json_t *value = several ? json_array_get(stops, i) : stops;
    if (!json_is_string(value)) return wrong_type(r, "a string or a list of strings", value);
    size_t length = json_string_length(value);
    if (length == 0) continue; /* clients that send "" mean none */
    if (length > REQUEST_STOP_BYTES) return status_set(STATUS_BAD_VALUE, "stop: a text of more than %d bytes", REQUEST_STOP_BYTES);
    if (request->stop_count == REQUEST_STOPS) return status_set(STATUS_BAD_VALUE, "stop: more than %d texts", REQUEST_STOPS);
    request->stops[request->stop_count++] = json_string_value(value);
  }
  return STATUS_OK;
}

/* ---- what to go on from ---- */

static Status read_ids(const Reader *r, const json_t *list, CompletionPrompt *prompt) {
  size_t count = json_array_size(list);
  prompt->ids = malloc((count ? count : 1) * sizeof *prompt->ids);
  if (!prompt->ids) return status_no_memory(NULL, "a prompt");
  for (size_t i = 0; i < count; i++) {
    const json_t *id = json_array_get(list, i);
    if (!json_is_integer(id)) return wrong_type(r, "a string, token ids, or a list of these", id);
    if (json_integer_value(id) < 0 || json_integer_value(id) > INT32_MAX)
      return status_set(STATUS_BAD_VALUE, "prompt: %lld is no token id", (long long)json_integer_value(id));
    prompt->ids[prompt->count++] = (int32_t)json_integer_value(id);
  }
  if (count == 0) return status_set(STATUS_BAD_VALUE, "prompt: a list of no token ids; an empty text is \"\"");
  return STATUS_OK;
}

/* "text", [ids], ["text", "text"] or [[ids], [ids]] */
static Status read_prompts(const Reader *r, CompletionRequest *request) {
  const json_t *value = field(r, "prompt");
  if (!value) return status_set(STATUS_BAD_VALUE, "prompt is missing: a string, token ids, or a list of these");
  bool several = json_is_array(value) && !json_is_integer(json_array_get(value, 0));
  size_t count = several ? json_array_size(value) : 1;
  if (count == 0) return status_set(STATUS_BAD_VALUE, "prompt: an empty list");
  if (count > REQUEST_JOBS) return status_set(STATUS_BAD_VALUE, "prompt: more than %d prompts", REQUEST_JOBS);
  request->prompts = calloc(count, sizeof *request->prompts);
  if (!request->prompts) return status_no_memory(NULL, "prompts");
  for (size_t i = 0; i < count; i++) {
    const json_t *one = several ? json_array_get(value, i) : value;
    CompletionPrompt *prompt = &request->prompts[request->prompt_count++];
    if (json_is_array(one)) {
      TRY(read_ids(r, one, prompt));
      continue;
    }
    if (!json_is_string(one)) return wrong_type(r, "a string, token ids, or a list of these", one);
    prompt->text = json_string_value(one);
    prompt->bytes = json_string_length(one);
  }
  return STATUS_OK;
}

/* As chat_template.h takes it: what it would refuse is refused here by the field's name. */
static Status check_content(const Reader *r, const json_t *content) {
  static const char wanted[] = "a string or a list of {\"type\": \"text\", \"text\": ...}";
  if (!content || json_is_null(content) || json_is_string(content)) return STATUS_OK;
  if (!json_is_array(content)) return wrong_type(r, wanted, content);
  for (size_t i = 0; i < json_array_size(content); i++) {
    const json_t *part = json_array_get(content, i), *type = json_object_get(part, "type");
    bool text = json_is_string(type) && strcmp(json_string_value(type), "text") == 0 && json_is_string(json_object_get(part, "text"));
    if (!text) return status_set(STATUS_BAD_VALUE, "%s must be %s: this service takes text alone", r->param, wanted);
  }
  return STATUS_OK;
}

static Status read_messages(const Reader *r, CompletionRequest *request) {
  const json_t *value = field(r, "messages");
  if (!value) return status_set(STATUS_BAD_VALUE, "messages is missing: a list of {\"role\": ..., \"content\": ...}");
  if (!json_is_array(value)) return wrong_type(r, "a list of messages", value);
  if (json_array_size(value) == 0) return status_set(STATUS_BAD_VALUE, "messages is empty: give at least one message");
  for (size_t i = 0; i < json_array_size(value); i++) {
    const json_t *message = json_array_get(value, i), *role = json_object_get(message, "role");
    snprintf(r->param, REQUEST_PARAM, "messages[%zu]", i);
    if (!json_is_object(message)) return wrong_type(r, "an object", message);
    snprintf(r->param, REQUEST_PARAM, "messages[%zu].role", i);
    if (!role) return status_set(STATUS_BAD_VALUE, "%s is missing: system, user or assistant", r->param);
    if (!json_is_string(role)) return wrong_type(r, "a string", role);
    snprintf(r->param, REQUEST_PARAM, "messages[%zu].content", i);
    const json_t *content = json_object_get(message, "content");
    if ((!content || json_is_null(content)) && strcmp(json_string_value(role), "user") == 0)
      return status_set(STATUS_BAD_VALUE, "%s is missing: a string, or a list of {\"type\": \"text\", \"text\": ...}", r->param);
    TRY(check_content(r, content));
  }
  request->messages = value;
  return STATUS_OK;
}

/* ---- the rest ---- */

static Status read_logprobs(const Reader *r, CompletionRequest *request) {
  int64_t top = -1;
  bool wanted = false;
  if (!request->chat) {
    const json_t *value = field(r, "logprobs");
    if (json_is_false(value)) return STATUS_OK;
    TRY(read_integer(r, "logprobs", 0, REQUEST_TOP, &top));
    request->top = (int)top;
    return STATUS_OK;
  }
  TRY(read_bool(r, "logprobs", &wanted));
  TRY(read_integer(r, "top_logprobs", 0, REQUEST_TOP, &top));
  if (top > 0 && !wanted) return status_set(STATUS_BAD_VALUE, "top_logprobs needs \"logprobs\": true");
  request->top = !wanted ? -1 : top < 0 ? 0 : (int)top;
  return STATUS_OK;
}

static Status read_numbers(const Reader *r, CompletionRequest *request) {
  int64_t n = 1, best_of, max = request->chat ? -1 : 16;
  TRY(read_integer(r, "n", 1, REQUEST_JOBS, &n));
  best_of = n;
  TRY(read_integer(r, "best_of", 1, INT32_MAX, &best_of));
  if (best_of != n) return status_set(STATUS_BAD_VALUE, "best_of: only as many as n are computed; leave it out");
  snprintf(r->param, REQUEST_PARAM, "n");
  if (!request->chat && n * request->prompt_count > REQUEST_JOBS)
    return status_set(STATUS_BAD_VALUE, "n: %d prompts times %lld; at most %d texts", request->prompt_count, (long long)n, REQUEST_JOBS);
  request->n = (int)n;
  TRY(read_integer(r, "max_tokens", request->chat ? 1 : 0, INT32_MAX, &max));
  TRY(read_integer(r, "max_completion_tokens", request->chat ? 1 : 0, INT32_MAX, &max));
  request->max_tokens = max;
  return STATUS_OK;
}

static bool is_word(const json_t *value, const char *word) { return json_is_string(value) && strcmp(json_string_value(value), word) == 0; }

/* Where there is no tool, "auto" and "none" ask for the text that comes anyway. */
static Status refuse_tools(const Reader *r) {
  static const char *const lists[] = {"tools", "functions"}, *const choices[] = {"tool_choice", "function_call"};
  const json_t *value;
  for (size_t i = 0; i < 2; i++) {
    value = field(r, lists[i]);
    if (value && !(json_is_array(value) && json_array_size(value) == 0))
      return status_set(STATUS_BAD_VALUE, "%s: this service calls none; leave it out", lists[i]);
    value = field(r, choices[i]);
    if (value && !is_word(value, "auto") && !is_word(value, "none"))
      return status_set(STATUS_BAD_VALUE, "%s: this service calls no tools; leave it out", choices[i]);
  }
  return STATUS_OK;
}

static Status refuse_what_is_missing(const Reader *r) {
  TRY(refuse_tools(r));
  const json_t *value = field(r, "web_search_options");
  if (value) return status_set(STATUS_BAD_VALUE, "web_search_options: this service searches nothing; leave it out");
  value = field(r, "modalities");
  if (value && !(json_array_size(value) == 1 && is_word(json_array_get(value, 0), "text")))
    return status_set(STATUS_BAD_VALUE, "modalities: only [\"text\"] is offered");
  value = field(r, "suffix");
  if (value && !(json_is_string(value) && json_string_length(value) == 0))
    return status_set(STATUS_BAD_VALUE, "suffix: text is only continued, not inserted; leave it out");
  value = field(r, "response_format");
  if (value && !is_word(json_object_get(value, "type"), "text"))
    return status_set(STATUS_BAD_VALUE, "response_format: only {\"type\": \"text\"} is offered");
  return STATUS_OK;
}

static Status read_stream(const Reader *r, CompletionRequest *request) {
  TRY(read_bool(r, "stream", &request->stream));
  const json_t *options = field(r, "stream_options");
  if (!options) return STATUS_OK;
  if (!json_is_object(options)) return wrong_type(r, "an object", options);
  const Reader inside = {.root = options, .param = r->param};
  return read_bool(&inside, "include_usage", &request->include_usage);
}

Status completion_request_read(CompletionRequest *request, const json_t *root, bool chat, char param[REQUEST_PARAM]) {
  const Reader r = {.root = root, .param = param};
  *request = (CompletionRequest){.chat = chat, .n = 1, .top = -1, .max_tokens = -1};
  TRY(completion_request_model(root, &request->model, param));
  TRY(chat ? read_messages(&r, request) : read_prompts(&r, request));
  TRY(read_numbers(&r, request));
  TRY(read_sampling(&r, request));
  TRY(read_biases(&r, &request->sampling));
  TRY(read_stops(&r, request));
  TRY(read_logprobs(&r, request));
  if (!chat) TRY(read_bool(&r, "echo", &request->echo));
  if (!chat) TRY(read_bool(&r, "parse_special", &request->special));
  TRY(read_stream(&r, request));
  TRY(refuse_what_is_missing(&r));
  param[0] = 0;
  return STATUS_OK;
}

void completion_request_forget(CompletionRequest *request) {
  for (int i = 0; i < request->prompt_count; i++) free(request->prompts[i].ids);
  free(request->prompts);
  request->model = NULL;
  request->messages = NULL;
  request->prompts = NULL;
  request->prompt_count = request->stop_count = 0;
}

void completion_request_release(CompletionRequest *request) {
  completion_request_forget(request);
  *request = (CompletionRequest){.n = 0};
}
