/* Answers: whole ones, errors, and those that take time, whose connection rests until there is news. See http.h. */
#include "nn/json_build.h"
#include "serve/http_internal.h"
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* ---- replies */

void http_note(HttpRequest *r, const char *name, json_t *value) {
  if (!r->notes) r->notes = json_object();
  if (!r->notes || json_object_set_new(r->notes, name, value) != 0) return;
}

void http_add_field(HttpRequest *r, const char *name, const char *value) {
  if (r->fields == HTTP_FIELDS || strlen(name) >= sizeof r->names[0] || strlen(value) >= HTTP_FIELD) return;
  snprintf(r->names[r->fields], sizeof r->names[0], "%s", name);
  snprintf(r->values[r->fields++], HTTP_FIELD, "%s", value);
}

void http_retry_after(HttpRequest *r, int seconds) {
  char text[16];
  snprintf(text, sizeof text, "%d", seconds < 1 ? 1 : seconds);
  http_add_field(r, "Retry-After", text);
}

static void send_response(HttpRequest *r, int status, const char *type, struct MHD_Response *response) {
  if (!response || r->replied) {
    if (response) MHD_destroy_response(response);
    return;
  }
  const char *cors = r->http->options.cors;
  MHD_add_response_header(response, "X-Request-Id", r->id);
  if (type) MHD_add_response_header(response, "Content-Type", type);
  if (cors) {
    MHD_add_response_header(response, "Access-Control-Allow-Origin", cors);
    MHD_add_response_header(response, "Access-Control-Expose-Headers", "X-Request-Id, Retry-After");
    if (strcmp(cors, "*") != 0) MHD_add_response_header(response, "Vary", "Origin");
  }
  for (int i = 0; i < r->fields; i++) MHD_add_response_header(response, r->names[i], r->values[i]);
  if (!MHD_get_response_header(response, "X-Content-Type-Options")) MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
  if (atomic_load(&r->http->draining)) MHD_add_response_header(response, "Connection", "close");
  if (MHD_queue_response(r->connection, (unsigned)status, response) == MHD_YES) r->replied = status;
  MHD_destroy_response(response);
}

void http_reply(HttpRequest *r, int status, const char *type, const void *data, size_t bytes, bool copied) {
  union {
    const void *in;
    void *out;
  } cast = {.in = data}; /* the library does not write to it */
  r->sent = strcmp(r->method, "HEAD") == 0 ? 0 : bytes;
  send_response(r, status, type, MHD_create_response_from_buffer(bytes, cast.out, copied ? MHD_RESPMEM_MUST_COPY : MHD_RESPMEM_PERSISTENT));
}

void http_reply_json(HttpRequest *r, int status, json_t *value) {
  enum { RETRY_SECONDS = 5 };
  static const char lost[] = "{\"error\":{\"message\":\"the service is short of memory: try again later, or ask for less at once\","
                             "\"type\":\"server_error\",\"param\":null,\"code\":null}}";
  char *text = value ? json_dumps(value, JSON_COMPACT) : NULL;
  json_decref(value);
  if (!text) {
    http_retry_after(r, RETRY_SECONDS);
    http_reply(r, 503, "application/json", lost, sizeof lost - 1, false);
    return;
  }
  size_t bytes = strlen(text);
  r->sent = strcmp(r->method, "HEAD") == 0 ? 0 : bytes;
  struct MHD_Response *response = MHD_create_response_from_buffer(bytes, text, MHD_RESPMEM_MUST_FREE);
  if (!response) free(text);
  send_response(r, status, "application/json", response);
}

json_t *http_error_json(int status, const char *param, const char *code, const char *message) {
  const char *type = status == 401   ? "authentication_error"
                     : status == 429 ? "rate_limit_error"
                     : status >= 500 ? "server_error"
                                     : "invalid_request_error";
  return json_pack("{s:{s:o, s:s, s:s?, s:s?}}", "error", "message", json_build_string(message), "type", type, "param", param, "code",
                   code);
}

void http_reply_error(HttpRequest *r, int status, const char *param, const char *code, const char *format, ...) {
  char message[1024];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(message, sizeof message, format, arguments);
  va_end(arguments);
  http_note(r, "error", json_build_string(message)); /* it may quote a part of a character */
  http_reply_json(r, status, http_error_json(status, param, code, message));
}

/* ---- answers that take time */

/* Suspends the connection until http_wake, unless there was news meanwhile: false then. */
static bool suspend(HttpRequest *r) {
  pthread_mutex_lock(&r->lock);
  bool news = r->woken;
  r->woken = false;
  if (!news) {
    r->suspended = true;
    MHD_suspend_connection(r->connection);
  }
  pthread_mutex_unlock(&r->lock);
  return !news;
}

/* r->suspended stays false meanwhile, so that nobody else resumes the connection. */
void http_pause(HttpRequest *r) {
  if (suspend(r)) return;
  MHD_suspend_connection(r->connection);
  MHD_resume_connection(r->connection);
}

void http_wake(HttpRequest *r) {
  pthread_mutex_lock(&r->lock);
  if (r->suspended)
    MHD_resume_connection(r->connection);
  else
    r->woken = true;
  r->suspended = false;
  pthread_mutex_unlock(&r->lock);
}

void http_work(HttpRequest *r, const HttpWork *work) { r->work = *work; }

static ssize_t read_stream(void *context, uint64_t position, char *buffer, size_t room) {
  HttpRequest *r = context;
  (void)position;
  for (;;) {
    if (atomic_load(&r->gone)) return MHD_CONTENT_READER_END_WITH_ERROR;
    ssize_t bytes = r->work.read(r->work.context, r, buffer, room);
    if (bytes > 0) r->sent += (uint64_t)bytes;
    if (bytes > 0) return bytes;
    if (bytes == HTTP_END) return MHD_CONTENT_READER_END_OF_STREAM;
    if (bytes < 0) return MHD_CONTENT_READER_END_WITH_ERROR;
    if (suspend(r)) return 0;
  }
}

void http_stream(HttpRequest *r) {
  http_add_field(r, "Cache-Control", "no-cache");
  http_add_field(r, "X-Accel-Buffering", "no");
  send_response(r, 200, "text/event-stream", MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, 4096, read_stream, r, NULL));
}
