/* Requests through libcurl; what comes back are JSON or server-sent events, of which nothing is trusted. */
#include "serve/chat_client.h"
#include "base/array.h"
#include "base/clock.h"
#include "serve/sse.h"
#include <curl/curl.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { BODY_MAX = 1 << 20, URL_MAX = 1024, MODEL_MAX = 256, RETRY_AFTER_MAX = 86400 /* seconds */ };

struct ChatClient {
  CURL *curl;
  struct curl_slist *fields; /* of every request */
  char base[URL_MAX];        /* "http://host:port", without "/v1" and "/" behind */
  char shown[URL_MAX];       /* as it was given, for messages */
  const char *key_file;      /* NULL: no key is sent */
  char model[MODEL_MAX];
  double timeout;
};

/* ---- one request */

typedef struct Exchange {
  ChatClient *client;
  char *body; /* [bytes] of an answer that is no stream: JSON, an error */
  size_t bytes, room;
  int retry_after;                   /* seconds; 0: not said */
  const volatile sig_atomic_t *stop; /* NULL: none */
  const ChatQuestion *question;
  ChatAnswer *answer; /* NULL: no stream */
  Sse sse;
  double begun;
  bool done;     /* [DONE], or a reason to end */
  Status status; /* of a failure inside a callback, whose message is kept: */
  char message[512];
} Exchange;

static size_t on_header(char *line, size_t one, size_t size, void *context) {
  static const char name[] = "Retry-After:";
  Exchange *exchange = context;
  char value[16];
  if (size > sizeof name && size < sizeof name + sizeof value && strncasecmp(line, name, sizeof name - 1) == 0) {
    snprintf(value, sizeof value, "%.*s", (int)(size - sizeof name + 1), line + sizeof name - 1);
    const long seconds = strtol(value, NULL, 10);
    exchange->retry_after = seconds < 0 ? 0 : seconds > RETRY_AFTER_MAX ? RETRY_AFTER_MAX : (int)seconds;
  }
  return one * size;
}

static long code_of(const Exchange *exchange) {
  long code = 0;
  curl_easy_getinfo(exchange->client->curl, CURLINFO_RESPONSE_CODE, &code);
  return code;
}

static size_t on_body(char *bytes, size_t one, size_t size, void *context) {
  Exchange *exchange = context;
  (void)one;
  Status status = STATUS_OK;
  if (exchange->answer && code_of(exchange) == 200) {
    status = sse_add(&exchange->sse, bytes, size);
  } else if (exchange->bytes + size > BODY_MAX) {
    status = status_set(STATUS_PEER, "%s: an answer of more than %d bytes", exchange->client->shown, (int)BODY_MAX);
  } else if ((status = ARRAY_RESERVE(exchange->body, exchange->bytes, size, exchange->room, "an answer")) == STATUS_OK) {
    memcpy(exchange->body + exchange->bytes, bytes, size);
    exchange->bytes += size;
  }
  if (status == STATUS_OK) return size;
  exchange->status = status;
  snprintf(exchange->message, sizeof exchange->message, "%s", status_message());
  return 0; /* curl takes it for an error of writing, and ends */
}

static bool stopped(const Exchange *exchange) { return exchange->stop && *exchange->stop; }

static int on_progress(void *context, curl_off_t total, curl_off_t done, curl_off_t upload_total, curl_off_t uploaded) {
  (void)total, (void)done, (void)upload_total, (void)uploaded;
  return stopped(context);
}

/* Services say how a key is sent over HTTP, which is no help here. */
static Status refuse_key(const ChatClient *client) {
  if (!client->key_file)
    return status_set(STATUS_PEER, "%s answered 401: it requires a valid API key: give --api-key-file FILE", client->shown);
  return status_set(
      STATUS_PEER,
      "%s answered 401: it does not accept the key in %s, the first line that is neither empty nor a comment (#): put a key of "
      "this service there",
      client->shown, client->key_file);
}

/* The message of an error's JSON, or the code alone. */
static Status refusal(const Exchange *exchange) {
  long code = code_of(exchange);
  json_t *root = json_loadb(exchange->body ? exchange->body : "", exchange->bytes, 0, NULL);
  const char *message = json_string_value(json_object_get(json_object_get(root, "error"), "message"));
  char retry[64] = "";
  if (exchange->retry_after > 0) snprintf(retry, sizeof retry, "; try again in %d s", exchange->retry_after);
  Status status = code == 429 || code == 503 ? STATUS_BUSY : STATUS_PEER;
  status_set(status, "%s answered %ld%s%.300s%s", exchange->client->shown, code, message ? ": " : "", message ? message : "", retry);
  json_decref(root);
  return status;
}

/* body: JSON to be posted; NULL: GET. */
static Status perform(Exchange *exchange, const char *path, const char *body) {
  ChatClient *client = exchange->client;
  CURL *curl = client->curl;
  char url[URL_MAX + 64], error[CURL_ERROR_SIZE] = "";
  snprintf(url, sizeof url, "%s%s", client->base, path);
  curl_easy_setopt(curl, CURLOPT_URL, url);
  curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, error);
  curl_easy_setopt(curl, CURLOPT_HEADERDATA, exchange);
  curl_easy_setopt(curl, CURLOPT_WRITEDATA, exchange);
  curl_easy_setopt(curl, CURLOPT_XFERINFODATA, exchange);
  if (body)
    curl_easy_setopt(curl, CURLOPT_POSTFIELDS, body);
  else
    curl_easy_setopt(curl, CURLOPT_HTTPGET, 1L);
  CURLcode code = curl_easy_perform(curl);
  curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, NULL);
  if (stopped(exchange)) return status_set(STATUS_INTERRUPTED, "interrupted");
  if (exchange->status != STATUS_OK) return status_set(exchange->status, "%s", exchange->message);
  if (code == CURLE_COULDNT_CONNECT)
    return status_set(STATUS_PEER, "%s: %s; is astra-serve running there?", client->shown, error[0] ? error : curl_easy_strerror(code));
  if (code == CURLE_SSL_CONNECT_ERROR)
    return status_set(STATUS_PEER, "%s: %s; a service without a certificate has an address with http://", client->shown,
                      error[0] ? error : curl_easy_strerror(code));
  if (code != CURLE_OK && code != CURLE_PARTIAL_FILE && !(code == CURLE_RECV_ERROR && exchange->done))
    return status_set(STATUS_PEER, "%s: %s", client->shown, error[0] ? error : curl_easy_strerror(code));
  if (code_of(exchange) == 401) return refuse_key(client);
  return code_of(exchange) == 200 ? STATUS_OK : refusal(exchange);
}

/* ---- models */

static Status choose_model(ChatClient *client, const json_t *root, const char *wanted) {
  const json_t *list = json_object_get(root, "data"), *row;
  char names[512] = "";
  size_t i;
  if (!json_is_array(list) || json_array_size(list) == 0)
    return status_set(STATUS_PEER, "%s: no list of models came; is this the address of a service with OpenAI's interface?", client->shown);
  json_array_foreach((json_t *)list, i, row) {
    const char *id = json_string_value(json_object_get(row, "id")), *kind = json_string_value(json_object_get(row, "kind"));
    size_t used = strlen(names);
    if (!id || (kind && strcmp(kind, "text") != 0)) continue; /* a model of images answers no chat */
    snprintf(names + used, sizeof names - used, "%s%s", used ? ", " : "", id);
    if (client->model[0] || (wanted && strcmp(wanted, id) != 0)) continue;
    if (strlen(id) >= MODEL_MAX) return status_set(STATUS_PEER, "%s: a model's name of %zu bytes", client->shown, strlen(id));
    memcpy(client->model, id, strlen(id) + 1);
  }
  if (client->model[0]) return STATUS_OK;
  if (!names[0]) return status_set(STATUS_NOT_FOUND, "%s: it has no language model", client->shown);
  return status_set(STATUS_NOT_FOUND, "%s: it has no language model %s, but %s", client->shown, wanted, names);
}

static Status find_model(ChatClient *client, const char *wanted, const volatile sig_atomic_t *stop) {
  Exchange exchange = {.client = client, .stop = stop};
  Status status = perform(&exchange, "/v1/models", NULL);
  json_t *root = NULL;
  if (status == STATUS_OK) {
    root = json_loadb(exchange.body ? exchange.body : "", exchange.bytes, 0, NULL);
    status = choose_model(client, root, wanted);
  }
  json_decref(root);
  free(exchange.body);
  return status;
}

/* "http://host:port/v1/" -> "http://host:port" */
static Status keep_url(ChatClient *client, const char *url) {
  bool local = strncmp(url, "unix:", 5) == 0;
  if (strlen(url) >= URL_MAX) return status_set(STATUS_BAD_USAGE, "--url: an address of %zu bytes", strlen(url));
  if (!local && strncasecmp(url, "http://", 7) != 0 && strncasecmp(url, "https://", 8) != 0)
    return status_set(STATUS_BAD_USAGE,
                      "--url %s: give http://HOST:PORT, https://HOST or unix:PATH, for example --url http://127.0.0.1:8080", url);
  snprintf(client->shown, sizeof client->shown, "%s", url);
  snprintf(client->base, sizeof client->base, "%s", local ? "http://localhost" : url);
  size_t size = strlen(client->base);
  while (size > 0 && client->base[size - 1] == '/') client->base[--size] = '\0';
  if (size > 3 && strcmp(client->base + size - 3, "/v1") == 0) client->base[size - 3] = '\0';
  return local && curl_easy_setopt(client->curl, CURLOPT_UNIX_SOCKET_PATH, url + 5) != CURLE_OK ? status_no_memory(NULL, "an address")
                                                                                                : STATUS_OK;
}

static Status keep_fields(ChatClient *client, const char *key) {
  char field[512];
  client->fields = curl_slist_append(NULL, "Content-Type: application/json");
  if (!client->fields) return status_no_memory(NULL, "a request");
  if (!key) return STATUS_OK;
  if (strlen(key) > 400 || strpbrk(key, "\r\n")) return status_set(STATUS_BAD_VALUE, "the API key has a line end, or more than 400 bytes");
  snprintf(field, sizeof field, "Authorization: Bearer %s", key);
  struct curl_slist *more = curl_slist_append(client->fields, field);
  return more ? STATUS_OK : status_no_memory(NULL, "a request");
}

static void set_options(ChatClient *client) {
  CURL *curl = client->curl;
  curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(curl, CURLOPT_HTTPHEADER, client->fields);
  curl_easy_setopt(curl, CURLOPT_USERAGENT, "astra-chat");
  curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, (long)(1e3 * client->timeout));
  curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
  curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, (long)(client->timeout + 0.999));
  curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, on_header);
  curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_body);
  curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, on_progress);
  curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
  const char *authorities = getenv("SSL_CERT_FILE");
  if (authorities && authorities[0]) curl_easy_setopt(curl, CURLOPT_CAINFO, authorities);
}

Status chat_client_open(ChatClient **client, const ChatClientOptions *options) {
  *client = NULL;
  ChatClient *fresh = calloc(1, sizeof *fresh);
  if (fresh && curl_global_init(CURL_GLOBAL_DEFAULT) == 0) fresh->curl = curl_easy_init();
  if (!fresh || !fresh->curl) return free(fresh), status_no_memory(NULL, "a client");
  fresh->timeout = options->timeout;
  fresh->key_file = options->key_file;
  Status status = keep_url(fresh, options->url);
  if (status == STATUS_OK) status = keep_fields(fresh, options->key);
  if (status == STATUS_OK) {
    set_options(fresh);
    status = find_model(fresh, options->model, options->stop);
  }
  if (status == STATUS_OK)
    *client = fresh;
  else
    chat_client_close(fresh);
  return status;
}

void chat_client_close(ChatClient *client) {
  if (!client) return;
  curl_easy_cleanup(client->curl);
  curl_slist_free_all(client->fields);
  free(client);
}

const char *chat_client_model(const ChatClient *client) { return client->model; }

/* ---- answers */

static Status on_event(void *context, const char *data, size_t bytes) {
  Exchange *exchange = context;
  ChatAnswer *answer = exchange->answer;
  if (strcmp(data, "[DONE]") == 0) return exchange->done = true, STATUS_OK;
  json_error_t error;
  json_t *root = json_loadb(data, bytes, JSON_ALLOW_NUL, &error); /* a byte-level tokenizer has a token of that character */
  if (!root) return status_set(STATUS_PEER, "%s: what came is no JSON: %s", exchange->client->shown, error.text);
  const json_t *choice = json_array_get(json_object_get(root, "choices"), 0), *usage = json_object_get(root, "usage");
  const json_t *text = json_object_get(json_object_get(choice, "delta"), "content");
  const char *reason = json_string_value(json_object_get(choice, "finish_reason"));
  const char *fault = json_string_value(json_object_get(json_object_get(root, "error"), "message"));
  Status status = fault ? status_set(STATUS_PEER, "%s: %.300s", exchange->client->shown, fault) : STATUS_OK;
  if (status == STATUS_OK && json_string_length(text) > 0) {
    if (answer->bytes == 0) answer->first = clock_now() - exchange->begun;
    answer->bytes += json_string_length(text);
    exchange->question->write(exchange->question->context, json_string_value(text), json_string_length(text));
  }
  if (reason) {
    static const char *const known[] = {"stop", "length", "context"};
    answer->end = known[0];
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
      if (strcmp(reason, known[i]) == 0) answer->end = known[i];
    exchange->done = true;
  }
  if (json_is_integer(json_object_get(usage, "completion_tokens"))) {
    answer->new_tokens = json_integer_value(json_object_get(usage, "completion_tokens"));
    answer->prompt_tokens = json_integer_value(json_object_get(usage, "prompt_tokens"));
  }
  json_decref(root);
  return status;
}

Status chat_client_ask(ChatClient *client, const ChatQuestion *question, ChatAnswer *answer) {
  Exchange exchange = {.client = client, .stop = question->stop, .question = question, .answer = answer, .begun = clock_now()};
  *answer = (ChatAnswer){.prompt_tokens = -1, .new_tokens = -1};
  json_t *root = json_pack("{s:s, s:O, s:b, s:{s:b}, s:I, s:f, s:f, s:I}", "model", client->model, "messages", question->messages, "stream",
                           1, "stream_options", "include_usage", 1, "max_tokens", (json_int_t)question->max_tokens, "temperature",
                           question->temperature, "top_p", question->top_p, "seed", (json_int_t)question->seed);
  if (root && question->top_k > 0) /* no member of OpenAI's */
    json_object_set_new(root, "top_k", json_integer((json_int_t)question->top_k));
  char *body = root ? json_dumps(root, JSON_COMPACT) : NULL;
  json_decref(root);
  if (!body) return status_no_memory(NULL, "a request");
  sse_init(&exchange.sse, on_event, &exchange);
  Status status = perform(&exchange, "/v1/chat/completions", body);
  answer->seconds = clock_now() - exchange.begun;
  if (status == STATUS_INTERRUPTED) answer->end = "cancelled", status = STATUS_OK;
  if (status == STATUS_OK && !answer->end && !exchange.done) status = status_set(STATUS_PEER, "%s: the answer broke off", client->shown);
  if (status == STATUS_OK && !answer->end) answer->end = "stop";
  sse_release(&exchange.sse);
  free(exchange.body);
  free(body);
  return status;
}
