/* See http.h. The library owns connections and sends bytes; everything that decides about a request is here, in the order in which it
 * happens. */
#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/threads.h"
#include "nn/json_build.h"
#include "serve/http_internal.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/tcp.h>
#include <math.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
  POOL_SPARE = 16 << 10, /* of a connection's memory, for the head of the answer and for chunks */
  BODY_START = 16 << 10,
  LARGE_BODY = 1 << 20,
  CONNECTIONS_SPARE = 32 /* that are being closed to make room */
};

/* ---- what a request is */

/* For the log and for metrics, whose paths must not be as many as clients can think of: what a prefix does not know has none either. */
static const char *route_path(const HttpRequest *r) {
  const bool unknown = !r->path || (r->route && r->route->flags & HTTP_PREFIX && r->replied == 404);
  return unknown ? "other" : r->path;
}

const char *http_url(const HttpRequest *r) { return r->url; }
const char *http_id(const HttpRequest *r) { return r->id; }
bool http_gone(const HttpRequest *r) { return atomic_load(&r->gone); }
bool http_late(const HttpRequest *r) { return atomic_load(&r->late); }

/* While the service drains, requests have their time. */
const char *http_late_reason(const HttpRequest *r) {
  return atomic_load(&r->http->expired) ? "the service is shutting down" : "the answer was not complete within --request-timeout";
}

const char *http_field(const HttpRequest *r, const char *name) { return MHD_lookup_connection_value(r->connection, MHD_HEADER_KIND, name); }

const char *http_argument(const HttpRequest *r, const char *name) {
  return MHD_lookup_connection_value(r->connection, MHD_GET_ARGUMENT_KIND, name);
}

const char *http_body(const HttpRequest *r, size_t *bytes) {
  *bytes = r->body_bytes;
  return r->body ? r->body : "";
}

/* ---- connections
 *
 * What the library does not watch for: heads and bodies that come too slowly though they do come, or end in the middle, clients that are
 * gone while their answer is computed (a suspended connection is not polled), and answers that take too long. One thread looks at all
 * connections four times a second. It touches sockets only between the library's notices that they are open and closed, and ends a
 * connection by shutting its socket down, which the library notices like any other end. */

static const double period = 0.25;

/* Bytes that have come over a connection so far; 0 where the system does not say (a UNIX socket). */
static uint64_t received(int fd) {
  struct tcp_info info;
  socklen_t size = sizeof info;
  memset(&info, 0, sizeof info);
  if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return 0;
  return info.tcpi_bytes_received;
}

/* The connection's next phase; request: whose it is, NULL: nobody's. */
static void enter_phase(Http *http, HttpLink *link, HttpPhase phase, HttpRequest *request) {
  uint64_t seen = phase == HTTP_HEAD ? received(link->fd) : 0;
  pthread_mutex_lock(&http->watch.lock);
  if ((link->request != NULL) != (request != NULL)) http->watch.requests += request ? 1 : -1;
  link->request = request;
  link->since = clock_now();
  link->seen = seen;
  if (link->phase != HTTP_CUT) link->phase = phase;
  pthread_mutex_unlock(&http->watch.lock);
}

/* For how long the library lets a connection rest on which nothing comes or goes, rounded up: a client that takes nothing of its answer has
 * less time than one that is still sending, which is watched here. */
static unsigned rest_seconds(const HttpOptions *o, bool answers) {
  return (unsigned)ceil(answers ? o->stall_seconds : fmax(o->stall_seconds, fmax(o->head_seconds, o->body_seconds)) + 1);
}

static void enter_answer(HttpRequest *r) {
  enter_phase(r->http, r->link, HTTP_ANSWER, r);
  MHD_set_connection_option(r->connection, MHD_CONNECTION_OPTION_TIMEOUT, rest_seconds(&r->http->options, true));
}

/* Sends a refusal past the library, which sends nothing while it reads a request, and shuts the sending side. Not with TLS. The fields are
 * those of every answer (send_response); r: NULL where no head has come, which would have an id. */
static void send_refusal(const Http *http, const HttpRequest *r, int fd, int status) {
  char text[1536], id[HTTP_ID + 32] = "", cors[512] = "", *body = NULL;
  if (http->options.certificate) return;
  json_t *error = http_error_json(status, NULL, NULL,
                                  status == 408   ? "the request did not come in time"
                                  : status == 413 ? "the body is longer than the service accepts"
                                                  : "too many bodies are being sent at the moment: try again later");
  body = error ? json_dumps(error, JSON_COMPACT) : NULL;
  if (r) snprintf(id, sizeof id, "X-Request-Id: %s\r\n", r->id);
  if (http->options.cors)
    snprintf(cors, sizeof cors, "Access-Control-Allow-Origin: %s\r\nAccess-Control-Expose-Headers: X-Request-Id, Retry-After\r\n%s",
             http->options.cors, strcmp(http->options.cors, "*") == 0 ? "" : "Vary: Origin\r\n");
  const char *reason = status == 408 ? "Request Timeout" : status == 413 ? "Content Too Large" : "Service Unavailable";
  int length = snprintf(text, sizeof text,
                        "HTTP/1.1 %d %s\r\nContent-Type: application/json\r\nContent-Length: %zu\r\nConnection: "
                        "close\r\nX-Content-Type-Options: nosniff\r\n%s%s%s\r\n%s",
                        status, reason, body ? strlen(body) : 0, status == 503 ? "Retry-After: 5\r\n" : "", id, cors, body ? body : "");
  json_decref(error);
  free(body);
  if (length > 0 && (size_t)length < sizeof text) (void)!send(fd, text, (size_t)length, MSG_DONTWAIT | MSG_NOSIGNAL);
  shutdown(fd, SHUT_WR);
}

/* An idle connection is closed without a word, one on which half a request has come is told why. */
static void cut(const Http *http, HttpLink *link) {
  if (link->phase == HTTP_BODY || received(link->fd) > link->seen) send_refusal(http, link->request, link->fd, 408);
  shutdown(link->fd, SHUT_RDWR);
  link->phase = HTTP_CUT;
  if (link->request) atomic_store(&link->request->slow, true);
}

static bool client_gone(int fd) {
  struct pollfd entry = {.fd = fd, .events = POLLRDHUP};
  return poll(&entry, 1, 0) == 1 && (entry.revents & (POLLRDHUP | POLLHUP | POLLERR | POLLNVAL));
}

static void look_at(const Http *http, HttpLink *link, double now) {
  const HttpOptions *o = &http->options;
  HttpRequest *request = link->request;
  if (link->phase == HTTP_HEAD && now - link->since > o->head_seconds) cut(http, link);
  if (link->phase == HTTP_BODY && now - link->since > o->body_seconds) cut(http, link);
  /* Where the end comes together with the last bytes, the library, which waits for the next ones, does not notice it. Twice, because what
   * it has just read may have been all. */
  int unread;
  bool over_early = (link->phase == HTTP_HEAD || link->phase == HTTP_BODY) && client_gone(link->fd) &&
                    ioctl(link->fd, FIONREAD, &unread) == 0 && unread == 0;
  if (over_early && link->ended) shutdown(link->fd, SHUT_RDWR);
  link->ended = over_early;
  if (atomic_load(&http->stopping)) shutdown(link->fd, SHUT_RDWR);
  /* A request that was read to its end from a connection that is cut: nobody waits for its answer. */
  const bool cut_off = link->phase == HTTP_CUT;
  if ((link->phase != HTTP_ANSWER && !cut_off) || !request) return;
  bool over = atomic_load(&http->expired) || (o->request_seconds > 0 && now - request->begun > o->request_seconds);
  bool late = over && !atomic_exchange(&request->late, true);
  /* Its handler has had its say; who takes a byte of it now and then would keep it and the connection for ever. */
  const double long_over = o->request_seconds + o->stall_seconds;
  if (o->request_seconds > 0 && link->phase == HTTP_ANSWER && now - request->begun > long_over) shutdown(link->fd, SHUT_RDWR);
  bool gone = (atomic_load(&http->stopping) || cut_off || client_gone(link->fd)) && !atomic_exchange(&request->gone, true);
  if (late || gone) http_wake(request);
}

static void *watch_connections(void *argument) {
  Http *http = argument;
  HttpWatch *w = &http->watch;
  pthread_mutex_lock(&w->lock);
  while (!w->stop) {
    double now = clock_now();
    for (HttpLink *link = w->oldest; link; link = link->newer) look_at(http, link, now);
    threads_wait(&w->changed, &w->lock, clock_now() + (atomic_load(&http->expired) ? 0.02 : period));
  }
  pthread_mutex_unlock(&w->lock);
  return NULL;
}

/* The connection that has been idle for longest is ended for a new one, so that whoever opens connections without end takes none from
 * those who use theirs. */
static void make_room(HttpWatch *w) {
  HttpLink *idle = NULL;
  for (HttpLink *link = w->oldest; link; link = link->newer)
    if (link->phase == HTTP_HEAD && (!idle || link->since < idle->since)) idle = link;
  if (!idle) return;
  shutdown(idle->fd, SHUT_RDWR);
  idle->phase = HTTP_CUT;
}

/* ---- the head of a request */

/* The path of "http://host/path", as clients write it to proxies, and others may to any server. */
static const char *url_path(const char *url) {
  const size_t scheme = strncasecmp(url, "http://", 7) == 0 ? 7 : strncasecmp(url, "https://", 8) == 0 ? 8 : 0;
  if (scheme == 0) return url;
  const char *path = strchr(url + scheme, '/');
  return path ? path : "/";
}

/* *path: of the route, or of one for another method; NULL: nobody knows this path ("/" with all behind it knows none). */
static const HttpRoute *find_route(const HttpOptions *o, const char *method, const char *url, const char **path) {
  const char *wanted = strcmp(method, "HEAD") == 0 ? "GET" : method;
  *path = NULL;
  for (int prefixes = 0; prefixes < 2 && !*path; prefixes++) {
    for (const HttpRoute *const *at = o->routes; *at; at++) {
      const HttpRoute *route = *at;
      bool prefix = route->flags & HTTP_PREFIX, same = strcmp(route->method, wanted) == 0;
      if (prefix != (prefixes != 0)) continue;
      if (prefix ? strncmp(url, route->path, strlen(route->path)) != 0 : strcmp(url, route->path) != 0) continue;
      if (same || strcmp(route->path, "/") != 0) *path = route->path;
      if (same) return route;
    }
  }
  return NULL;
}

static HttpRequest *begin(Http *http, struct MHD_Connection *connection, const char *url, const char *method) {
  HttpRequest *r = calloc(1, sizeof *r);
  if (!r) return NULL;
  const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
  r->http = http;
  r->link = info ? info->socket_context : NULL;
  r->connection = connection;
  r->begun = clock_now();
  r->route = find_route(&http->options, method, url, &r->path);
  if (!r->link) return free(r), NULL;
  pthread_mutex_init(&r->lock, NULL);
  snprintf(r->method, sizeof r->method, "%s", method);
  snprintf(r->url, sizeof r->url, "%s", url);
  const char *id = http_field(r, "X-Request-Id");
  size_t length = id ? strlen(id) : 0;
  bool sane = length > 0 && length < HTTP_ID && strspn(id, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-") == length;
  if (sane)
    snprintf(r->id, sizeof r->id, "%s", id);
  else
    snprintf(r->id, sizeof r->id, "%08x-%08llx", http->instance, (unsigned long long)atomic_fetch_add(&http->number, 1));
  info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
  const struct sockaddr *address = info ? info->client_addr : NULL;
  snprintf(r->client, sizeof r->client, "unix");
  if (address && address->sa_family == AF_INET)
    inet_ntop(AF_INET, &((const struct sockaddr_in *)(const void *)address)->sin_addr, r->client, sizeof r->client);
  if (address && address->sa_family == AF_INET6)
    inet_ntop(AF_INET6, &((const struct sockaddr_in6 *)(const void *)address)->sin6_addr, r->client, sizeof r->client);
  enter_phase(http, r->link, HTTP_BODY, r);
  return r;
}

static void refuse_method(HttpRequest *r, const char *url) {
  char allowed[HTTP_FIELD] = "";
  for (const HttpRoute *const *route = r->http->options.routes; *route; route++) {
    size_t used = strlen(allowed);
    if (strcmp((*route)->path, r->path) == 0) snprintf(allowed + used, sizeof allowed - used, "%s%s", used ? ", " : "", (*route)->method);
  }
  http_add_field(r, "Allow", allowed);
  http_reply_error(r, 405, NULL, NULL, "%.200s: %s is not accepted here; %s is", url, r->method, allowed);
}

/* The library's limit is that of a connection's whole memory (POOL_SPARE). */
static bool check_header_size(HttpRequest *r) {
  const union MHD_ConnectionInfo *info = MHD_get_connection_info(r->connection, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
  const size_t max = r->http->options.max_header;
  if (!info || info->header_size <= max) return true;
  http_reply_error(r, 431, NULL, NULL, "a header of %zu bytes; at most %zu are accepted (--max-header)", info->header_size, max);
  return false;
}

static enum MHD_Result count_framing(void *context, enum MHD_ValueKind kind, const char *name, const char *value) {
  int *count = context;
  (void)kind, (void)value;
  *count += strcasecmp(name, "Content-Length") == 0 || strcasecmp(name, "Transfer-Encoding") == 0;
  return MHD_YES;
}

/* Of two lengths a proxy in front may believe the other, and take the rest of the body for a request of its own. */
static bool check_framing(HttpRequest *r) {
  int count = 0;
  MHD_get_connection_values(r->connection, MHD_HEADER_KIND, count_framing, &count);
  if (count <= 1) return true;
  http_add_field(r, "Connection", "close");
  http_reply_error(r, 400, NULL, NULL, "Content-Length and Transfer-Encoding exclude each other, and each may be there once");
  return false;
}

static void check_body_head(HttpRequest *r) {
  const char *length = http_field(r, "Content-Length"), *coding = http_field(r, "Transfer-Encoding");
  const char *type = http_field(r, "Content-Type");
  size_t max = r->http->options.max_body, type_length = type ? strcspn(type, "; \t") : 0;
  bool post = strcmp(r->method, "POST") == 0;
  bool json = !type || (type_length == 16 && strncasecmp(type, "application/json", 16) == 0) ||
              (type_length > 5 && strncasecmp(type + type_length - 5, "+json", 5) == 0);
  if (post && !length && !coding)
    http_reply_error(r, 411, NULL, NULL, "a body with Content-Length or in chunks is needed");
  else if (coding && strcasecmp(coding, "chunked") != 0)
    http_reply_error(r, 501, NULL, NULL, "Transfer-Encoding: %.40s is not accepted; chunked is", coding);
  else if (length && strtoull(length, NULL, 10) > max)
    http_reply_error(r, 413, NULL, NULL, "a body of %.20s bytes; at most %zu are accepted (--max-body)", length, max);
  else if (post && r->route->flags & HTTP_JSON_BODY && !json)
    http_reply_error(r, 415, NULL, NULL, "Content-Type must be application/json");
}

static bool check_client(HttpRequest *r) {
  Http *http = r->http;
  HttpAccess *access = http->options.access;
  int key = r->route->flags & HTTP_OPEN ? 0 : http_access_find(access, http_field(r, "Authorization"));
  if (key < 0) {
    http_add_field(r, "WWW-Authenticate", "Bearer");
    return http_reply_error(r, 401, NULL, "invalid_api_key", "a valid API key is required: Authorization: Bearer KEY"), false;
  }
  if (key > 0) snprintf(r->client, sizeof r->client, "key %d", key);
  if (!(r->route->flags & HTTP_WORK)) return true;
  if (atomic_load(&http->draining)) {
    http_retry_after(r, 5);
    return http_reply_error(r, 503, NULL, NULL, "the service is shutting down"), false;
  }
  double wait = http_access_take(access, r->client, r->begun);
  if (wait <= 0) return true;
  const int seconds = (int)fmin(wait + 1, INT_MAX); /* of rates near 0, years */
  http_retry_after(r, seconds);
  http_reply_error(r, 429, NULL, "rate_limit_exceeded", "more requests than --rate allows; try again in %d s", seconds);
  return false;
}

static void check_head(HttpRequest *r, const char *url) {
  bool preflight = strcmp(r->method, "OPTIONS") == 0 && r->http->options.cors && r->path;
  if (!check_framing(r) || !check_header_size(r)) return;
  if (preflight) {
    http_add_field(r, "Access-Control-Allow-Methods", "GET, POST, OPTIONS");
    /* Packages add fields of their own (openai: X-Stainless-...), which do nothing here. The wildcard leaves out Authorization. */
    http_add_field(r, "Access-Control-Allow-Headers", "Authorization, Content-Type, X-Request-Id, *");
    http_add_field(r, "Access-Control-Max-Age", "86400");
    http_reply(r, 204, NULL, "", 0, false);
  } else if (!r->route && r->path) {
    refuse_method(r, url);
  } else if (!r->route) {
    http_reply_error(r, 404, NULL, NULL, "there is no %.200s; the API is under /v1, as in /v1/chat/completions", url);
  } else if (check_client(r)) {
    check_body_head(r);
  }
}

/* ---- bodies */

/* Has no place in an answer of the library, which sends none in the middle of a body: written past it, and what still comes is thrown away
 * for a while, because a connection that is closed with unread bytes takes its answer back. */
static bool refuse_body(HttpRequest *r, int status) {
  r->discarding = true;
  r->discarded = 0;
  r->replied = status;
  http_note(r, "error", json_string(status == 413 ? "the body is too long" : "too many bodies"));
  atomic_fetch_sub(&r->http->body_bytes, r->body_room);
  free(r->body);
  r->body = NULL;
  r->body_bytes = r->body_room = 0;
  send_refusal(r->http, r, r->link->fd, status);
  return !r->http->options.certificate;
}

/* Bodies of GET and HEAD mean nothing (RFC 9110, 9.3.1): they are read past, so that whoever may ask without a key holds no memory. */
static bool skip_body(HttpRequest *r, size_t bytes) {
  if (bytes > r->http->options.max_body - r->discarded) return refuse_body(r, 413);
  r->discarded += bytes;
  return true;
}

static bool take_body(HttpRequest *r, const char *data, size_t bytes) {
  const HttpOptions *o = &r->http->options;
  if (r->discarding) return (r->discarded += bytes) < o->max_body;
  if (strcmp(r->method, "POST") != 0) return skip_body(r, bytes);
  if (bytes > o->max_body - r->body_bytes) return refuse_body(r, 413);
  size_t needed = r->body_bytes + bytes + 1;
  if (needed > r->body_room) {
    size_t room = r->body_room ? r->body_room : BODY_START;
    while (room < needed) room *= 2;
    size_t held = atomic_fetch_add(&r->http->body_bytes, room - r->body_room) + room - r->body_room;
    char *grown = held <= o->bodies ? realloc(r->body, room) : NULL;
    if (!grown) {
      atomic_fetch_sub(&r->http->body_bytes, room - r->body_room);
      return refuse_body(r, 503);
    }
    r->body = grown;
    r->body_room = room;
  }
  memcpy(r->body + r->body_bytes, data, bytes);
  r->body_bytes += bytes;
  r->body[r->body_bytes] = 0;
  return true;
}

/* ---- the library's callbacks */

static enum MHD_Result proceed(HttpRequest *r) {
  if (r->replied) return MHD_YES;
  if (http_gone(r)) return MHD_NO;
  if (!r->work.ready) {
    http_reply_error(r, 500, NULL, NULL, "no answer");
    return r->replied ? MHD_YES : MHD_NO;
  }
  bool done = r->work.ready(r->work.context, r);
  if (done) return r->replied ? MHD_YES : MHD_NO;
  http_pause(r);
  return MHD_YES;
}

static enum MHD_Result on_request(void *context, struct MHD_Connection *connection, const char *url, const char *method,
                                  const char *version, const char *data, size_t *bytes, void **own) {
  Http *http = context;
  HttpRequest *r = *own;
  (void)version;
  if (!r) {
    *own = r = begin(http, connection, url_path(url), method);
    if (!r) return MHD_NO;
    check_head(r, url_path(url));
    if (r->replied) enter_answer(r);
    return MHD_YES;
  }
  if (*bytes > 0) {
    bool more = take_body(r, data, *bytes);
    *bytes = 0;
    return more ? MHD_YES : MHD_NO;
  }
  if (r->discarding) return MHD_NO;
  if (!r->answering && !r->replied) {
    r->answering = true;
    enter_answer(r);
    r->route->answer(http->options.context, r);
  }
  return proceed(r);
}

static void write_log(const HttpRequest *r, double seconds, bool whole) {
  char time_text[40];
  struct timespec now;
  struct tm parts;
  clock_gettime(CLOCK_REALTIME, &now);
  gmtime_r(&now.tv_sec, &parts);
  size_t length = strftime(time_text, sizeof time_text, "%Y-%m-%dT%H:%M:%S", &parts);
  snprintf(time_text + length, sizeof time_text - length, ".%03dZ", (int)(now.tv_nsec / 1000000));
  json_t *line =
      json_pack("{s:s, s:s, s:s, s:o, s:s, s:i, s:f, s:I, s:I, s:b}", "time", time_text, "id", r->id, "client", r->client, "method",
                json_build_string(r->method), "path", route_path(r), "status", r->replied, "ms", (double)(int64_t)(1e5 * seconds) / 100,
                "bytes_in", (json_int_t)(r->body_bytes + r->discarded), "bytes_out", (json_int_t)r->sent, "complete", whole);
  if (line && r->notes) json_object_update_missing(line, r->notes);
  char *text = line ? json_dumps(line, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
  if (text) fprintf(r->http->options.log, "%s\n", text);
  json_decref(line);
  free(text);
}

static void on_completed(void *context, struct MHD_Connection *connection, void **own, enum MHD_RequestTerminationCode how) {
  Http *http = context;
  HttpRequest *r = *own;
  if (!r) return;
  *own = NULL;
  MHD_set_connection_option(connection, MHD_CONNECTION_OPTION_TIMEOUT, rest_seconds(&http->options, false));
  enter_phase(http, r->link, HTTP_HEAD, NULL); /* nobody else finds it from here on, but for those who have it to wake */
  if (r->work.close) r->work.close(r->work.context, r);
  double seconds = clock_now() - r->begun;
  bool whole = how == MHD_REQUEST_TERMINATED_COMPLETED_OK;
  int status = r->replied ? r->replied : atomic_load(&r->slow) ? 408 : 499; /* as nginx counts clients that left */
  if (!r->replied) r->replied = status;
  if (http->options.log) write_log(r, seconds, whole);
  if (http->options.finished) http->options.finished(http->options.context, route_path(r), status, seconds);
  atomic_fetch_sub(&http->body_bytes, r->body_room);
  bool large = r->body_room >= LARGE_BODY;
  pthread_mutex_destroy(&r->lock);
  json_decref(r->notes);
  free(r->body);
  free(r);
  if (large) memory_give_back(); /* what was made of it was many times as large, and would stay */
}

static void on_connection(void *context, struct MHD_Connection *connection, void **own, enum MHD_ConnectionNotificationCode what) {
  Http *http = context;
  HttpWatch *w = &http->watch;
  HttpLink *link = *own;
  if (what == MHD_CONNECTION_NOTIFY_STARTED) {
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    *own = link = info ? calloc(1, sizeof *link) : NULL;
    if (!link) return;
    *link = (HttpLink){.fd = info->connect_fd, .phase = HTTP_HEAD, .since = clock_now()};
    pthread_mutex_lock(&w->lock);
    if (++w->count > http->options.connections) make_room(w);
    link->older = w->newest;
    *(w->newest ? &w->newest->newer : &w->oldest) = link;
    w->newest = link;
    pthread_mutex_unlock(&w->lock);
  } else if (link) {
    pthread_mutex_lock(&w->lock);
    *(link->newer ? &link->newer->older : &w->newest) = link->older;
    *(link->older ? &link->older->newer : &w->oldest) = link->newer;
    w->count--;
    pthread_mutex_unlock(&w->lock);
    free(link);
    *own = NULL;
  }
}

static void on_library_log(void *context, const char *format, va_list arguments) __attribute__((format(printf, 2, 0)));
static void on_library_log(void *context, const char *format, va_list arguments) {
  char text[512];
  (void)context;
  vsnprintf(text, sizeof text, format, arguments);
  text[strcspn(text, "\n")] = 0;
  log_detail("http: %s", text);
}

/* A NUL would end a path or an argument early: what has one stays as it came, and names nothing. */
static size_t unescape(void *context, struct MHD_Connection *connection, char *text) {
  (void)context, (void)connection;
  return strstr(text, "%00") ? strlen(text) : MHD_http_unescape(text);
}

/* ---- start and end */

static struct MHD_Daemon *start_daemon(Http *http, int socket) {
  const HttpOptions *o = &http->options;
  union {
    const char *in;
    void *out;
  } certificate = {.in = o->certificate}, secret = {.in = o->secret};
  struct MHD_OptionItem items[16];
  int count = 0;
  items[count++] = (struct MHD_OptionItem){MHD_OPTION_LISTEN_SOCKET, socket, NULL};
  union {
    size_t (*function)(void *context, struct MHD_Connection *connection, char *text);
    intptr_t number;
  } decode = {.function = unescape};
  items[count++] = (struct MHD_OptionItem){MHD_OPTION_UNESCAPE_CALLBACK, decode.number, NULL};
  items[count++] = (struct MHD_OptionItem){MHD_OPTION_STRICT_FOR_CLIENT, 1, NULL}; /* what a proxy in front may read otherwise */
  items[count++] = (struct MHD_OptionItem){MHD_OPTION_CONNECTION_MEMORY_LIMIT, (intptr_t)(o->max_header + POOL_SPARE), NULL};
  items[count++] = (struct MHD_OptionItem){MHD_OPTION_CONNECTION_LIMIT, o->connections + o->connections / 4 + CONNECTIONS_SPARE, NULL};
  if (o->per_address > 0) items[count++] = (struct MHD_OptionItem){MHD_OPTION_PER_IP_CONNECTION_LIMIT, o->per_address, NULL};
  items[count++] = (struct MHD_OptionItem){MHD_OPTION_CONNECTION_TIMEOUT, rest_seconds(o, false), NULL};
  if (o->threads > 1) items[count++] = (struct MHD_OptionItem){MHD_OPTION_THREAD_POOL_SIZE, o->threads, NULL};
  if (o->certificate) {
    items[count++] = (struct MHD_OptionItem){MHD_OPTION_HTTPS_MEM_CERT, 0, certificate.out};
    items[count++] = (struct MHD_OptionItem){MHD_OPTION_HTTPS_MEM_KEY, 0, secret.out};
    static char versions[] = "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2";
    items[count++] = (struct MHD_OptionItem){MHD_OPTION_HTTPS_PRIORITIES, 0, versions};
  }
  items[count] = (struct MHD_OptionItem){MHD_OPTION_END, 0, NULL};
  unsigned flags =
      MHD_USE_AUTO_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ITC | MHD_USE_ERROR_LOG | (o->certificate ? MHD_USE_TLS : 0);
  return MHD_start_daemon(flags, 0, NULL, NULL, on_request, http, MHD_OPTION_EXTERNAL_LOGGER, on_library_log, NULL,
                          MHD_OPTION_NOTIFY_COMPLETED, on_completed, http, MHD_OPTION_NOTIFY_CONNECTION, on_connection, http,
                          MHD_OPTION_ARRAY, items, MHD_OPTION_END);
}

Status http_start(Http **out, const HttpOptions *options, const int *sockets, int count) {
  Http *http = *out = calloc(1, sizeof *http);
  int given = 0;
  Status status = http ? STATUS_OK : status_no_memory(NULL, "the HTTP server");
  if (http) {
    http->options = *options;
    if (getrandom(&http->instance, sizeof http->instance, 0) < 0) http->instance = (uint32_t)getpid();
    pthread_mutex_init(&http->watch.lock, NULL);
    threads_condition_init(&http->watch.changed);
    http->watch.running = threads_spawn(&http->watch.thread, watch_connections, http) == 0;
    if (!http->watch.running) status = status_set(STATUS_NO_MEMORY, "no thread for connections");
  }
  for (; status == STATUS_OK && given < count && given < (int)(sizeof http->daemons / sizeof *http->daemons); given++) {
    http->daemons[given] = start_daemon(http, sockets[given]);
    http->quiet[given] = -1;
    if (http->daemons[given])
      http->daemon_count++;
    else
      status = options->certificate
                   ? status_set(STATUS_BAD_VALUE,
                                "the HTTP server does not start: are --tls-certificate and --tls-key PEM files that belong together?")
                   : status_set(STATUS_IO, "the HTTP server does not start: %s", strerror(errno));
    if (status != STATUS_OK) break;
  }
  for (int i = given; i < count; i++) close(sockets[i]);
  if (status == STATUS_OK) return STATUS_OK;
  http_stop(http);
  *out = NULL;
  return status;
}

/* Who calls is refused at once. MHD_quiesce_daemon is for that, but it and a thread of the daemon may both take the socket out of the set
 * of events, which the library (0.9.75) ends the process for. So the socket's number becomes that of a pipe on which nothing ever comes.
 * Returns its other end, to be closed after the daemon; -1: there is none, and callers are told that the service ends. */
static int stop_listening(struct MHD_Daemon *daemon) {
  const union MHD_DaemonInfo *info = MHD_get_daemon_info(daemon, MHD_DAEMON_INFO_LISTEN_FD);
  int ends[2];
  if (!info || pipe2(ends, O_CLOEXEC) != 0) return -1;
  dup3(ends[0], info->listen_fd, O_CLOEXEC);
  close(ends[0]);
  return ends[1];
}

void http_drain(Http *http) {
  if (atomic_exchange(&http->draining, true)) return;
  for (int i = 0; i < http->daemon_count; i++) http->quiet[i] = stop_listening(http->daemons[i]);
}

void http_expire(Http *http) {
  atomic_store(&http->expired, true);
  pthread_cond_signal(&http->watch.changed);
}

bool http_draining(const Http *http) { return atomic_load(&http->draining); }

HttpCounts http_counts(Http *http) {
  pthread_mutex_lock(&http->watch.lock);
  HttpCounts counts = {http->watch.requests, http->watch.count};
  pthread_mutex_unlock(&http->watch.lock);
  return counts;
}

/* The library ends no daemon with a suspended connection: all are told to go, and have gone when no request is left. */
void http_stop(Http *http) {
  if (!http) return;
  HttpWatch *w = &http->watch;
  if (http->daemon_count > 0) {
    http_drain(http);
    atomic_store(&http->expired, true);
    atomic_store(&http->stopping, true);
    while (http_counts(http).requests > 0) nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
  }
  for (int i = 0; i < http->daemon_count; i++) {
    MHD_stop_daemon(http->daemons[i]);
    if (http->quiet[i] >= 0) close(http->quiet[i]);
  }
  if (w->running) {
    pthread_mutex_lock(&w->lock);
    w->stop = true;
    pthread_cond_signal(&w->changed);
    pthread_mutex_unlock(&w->lock);
    pthread_join(w->thread, NULL);
  }
  pthread_cond_destroy(&w->changed);
  pthread_mutex_destroy(&w->lock);
  free(http);
}
