/* What the library does not watch for: heads and bodies that come too slowly though they do come, or end in the middle, clients that are
 * gone while their answer is computed (a suspended connection is not polled), and answers that take too long. One thread looks at all
 * connections four times a second. It touches sockets only between http_watch_open and http_watch_close, in which they are open, and ends a
 * connection by shutting its socket down, which the library notices like any other end. */
#include "base/clock.h"
#include "serve/http_internal.h"
#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>

static const double period = 0.25;

/* Bytes that have come over a connection so far; 0 where the system does not say (a UNIX socket). */
static uint64_t received(int fd) {
  struct tcp_info info;
  socklen_t size = sizeof info;
  memset(&info, 0, sizeof info);
  if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return 0;
  return info.tcpi_bytes_received;
}

/* So whoever opens connections without end takes none from those who use theirs. */
static void make_room(Http *http) {
  if (http->watch.count <= http->options.connections) return;
  for (HttpLink *link = http->watch.oldest; link; link = link->newer) {
    if (link->phase != HTTP_HEAD) continue;
    shutdown(link->fd, SHUT_RDWR);
    link->phase = HTTP_CUT;
    return;
  }
}

HttpLink *http_watch_open(Http *http, int fd) {
  HttpWatch *w = &http->watch;
  HttpLink *link = calloc(1, sizeof *link);
  if (!link) return NULL;
  pthread_mutex_lock(&w->lock);
  *link = (HttpLink){.fd = fd, .phase = HTTP_HEAD, .since = clock_now(), .older = w->newest};
  w->count++;
  make_room(http);
  *(w->newest ? &w->newest->newer : &w->oldest) = link;
  w->newest = link;
  pthread_mutex_unlock(&w->lock);
  return link;
}

void http_watch_close(Http *http, HttpLink *link) {
  HttpWatch *w = &http->watch;
  if (!link) return;
  pthread_mutex_lock(&w->lock);
  *(link->newer ? &link->newer->older : &w->newest) = link->older;
  *(link->older ? &link->older->newer : &w->oldest) = link->newer;
  w->count--;
  pthread_mutex_unlock(&w->lock);
  free(link);
}

void http_watch_enter(Http *http, HttpLink *link, HttpPhase phase, HttpRequest *request) {
  uint64_t seen = phase == HTTP_HEAD ? received(link->fd) : 0;
  pthread_mutex_lock(&http->watch.lock);
  if ((link->request != NULL) != (request != NULL)) http->watch.requests += request ? 1 : -1;
  link->request = request;
  link->since = clock_now();
  link->seen = seen;
  if (link->phase != HTTP_CUT) link->phase = phase;
  pthread_mutex_unlock(&http->watch.lock);
}

void http_watch_refuse(const Http *http, int fd, int status) {
  char text[512], *body = NULL;
  if (http->options.certificate) return;
  json_t *error = http_error_json(status, NULL, NULL,
                                  status == 408   ? "the request did not come in time"
                                  : status == 413 ? "the body is longer than the service accepts"
                                                  : "too many bodies are being sent at the moment: try again later");
  body = error ? json_dumps(error, JSON_COMPACT) : NULL;
  const char *reason = status == 408 ? "Request Timeout" : status == 413 ? "Content Too Large" : "Service Unavailable";
  int length = snprintf(text, sizeof text,
                        "HTTP/1.1 %d %s\r\nContent-Type: application/json\r\nContent-Length: %zu\r\nConnection: close\r\n%s\r\n%s", status,
                        reason, body ? strlen(body) : 0, status == 503 ? "Retry-After: 5\r\n" : "", body ? body : "");
  json_decref(error);
  free(body);
  if (length > 0 && (size_t)length < sizeof text) (void)!send(fd, text, (size_t)length, MSG_DONTWAIT | MSG_NOSIGNAL);
  shutdown(fd, SHUT_WR);
}

/* An idle connection is closed without a word, one on which half a request has come is told why. */
static void cut(const Http *http, HttpLink *link) {
  if (link->phase == HTTP_BODY || received(link->fd) > link->seen) http_watch_refuse(http, link->fd, 408);
  shutdown(link->fd, SHUT_RDWR);
  link->phase = HTTP_CUT;
  if (link->request) atomic_store(&link->request->slow, true);
}

static bool client_gone(int fd) {
  struct pollfd entry = {.fd = fd, .events = POLLRDHUP};
  return poll(&entry, 1, 0) == 1 && (entry.revents & (POLLRDHUP | POLLHUP | POLLERR | POLLNVAL));
}

/* The client has closed, and all that it sent was read. */
static bool input_over(int fd) {
  int unread;
  return client_gone(fd) && ioctl(fd, FIONREAD, &unread) == 0 && unread == 0;
}

static void look_at(const Http *http, HttpLink *link, double now) {
  const HttpOptions *o = &http->options;
  HttpRequest *request = link->request;
  if (link->phase == HTTP_HEAD && now - link->since > o->head_seconds) cut(http, link);
  if (link->phase == HTTP_BODY && now - link->since > o->body_seconds) cut(http, link);
  /* Where the end comes together with the last bytes, the library, which waits for the next ones, does not notice it. Twice, because what
   * it has just read may have been all. */
  bool over_early = (link->phase == HTTP_HEAD || link->phase == HTTP_BODY) && input_over(link->fd);
  if (over_early && link->ended) shutdown(link->fd, SHUT_RDWR);
  link->ended = over_early;
  if (atomic_load(&http->stopping)) shutdown(link->fd, SHUT_RDWR);
  if (link->phase != HTTP_ANSWER || !request) return;
  bool over = atomic_load(&http->expired) || (o->request_seconds > 0 && now - request->begun > o->request_seconds);
  bool late = over && !atomic_exchange(&request->late, true);
  bool gone = (atomic_load(&http->stopping) || client_gone(link->fd)) && !atomic_exchange(&request->gone, true);
  if (late || gone) http_wake(request);
}

static void *watch(void *argument) {
  Http *http = argument;
  HttpWatch *w = &http->watch;
  pthread_mutex_lock(&w->lock);
  while (!w->stop) {
    struct timespec until;
    double now = clock_now();
    for (HttpLink *link = w->oldest; link; link = link->newer) look_at(http, link, now);
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += (long)(1e9 * (atomic_load(&http->expired) ? 0.02 : period));
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_cond_timedwait(&w->changed, &w->lock, &until);
  }
  pthread_mutex_unlock(&w->lock);
  return NULL;
}

Status http_watch_start(Http *http) {
  pthread_mutex_init(&http->watch.lock, NULL);
  pthread_cond_init(&http->watch.changed, NULL);
  if (pthread_create(&http->watch.thread, NULL, watch, http) != 0) return status_set(STATUS_NO_MEMORY, "no thread for connections");
  http->watch.running = true;
  return STATUS_OK;
}

void http_watch_stop(Http *http) {
  HttpWatch *w = &http->watch;
  if (w->running) {
    pthread_mutex_lock(&w->lock);
    w->stop = true;
    pthread_cond_signal(&w->changed);
    pthread_mutex_unlock(&w->lock);
    pthread_join(w->thread, NULL);
  }
  pthread_cond_destroy(&w->changed);
  pthread_mutex_destroy(&w->lock);
}
