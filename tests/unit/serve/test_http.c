/* The HTTP side by itself, with routes of its own: heads, methods, bodies within limits, keys and rates, connections that are slow, idle,
 * too many or gone, answers that wait and are woken from other threads, streams, and the end. It mostly waits. */
#include "base/clock.h"
#include "base/files.h"
#include "serve/http_internal.h"
#include "unit/remove_tree.h"
#include "unit/serve/http_client.h"
#include <cmocka.h>
#include <pthread.h>
#include <stdatomic.h>

typedef struct Fixture {
  Http *http;
  HttpAccess *access;
  uint16_t port;
  FILE *log;
  char *log_text;
  size_t log_bytes;
  atomic_int finished, status; /* requests that are over; of the last one */
  atomic_int closed;           /* works that are over */
  atomic_int turns;            /* of the work that goes on by itself */
  pthread_mutex_t lock;
  HttpRequest *waiting; /* under the lock, so that nobody wakes what is over */
  atomic_bool gone, go;
  atomic_bool idle; /* lets `busy` end */
} Fixture;

/* ---- routes */

static void echo(void *context, HttpRequest *request) {
  size_t bytes;
  const char *body = http_body(request, &bytes);
  (void)context;
  http_reply(request, 200, "text/plain", body, bytes, true);
}

static void hello(void *context, HttpRequest *request) {
  (void)context;
  http_note(request, "own", json_integer(5));
  http_reply(request, 200, "text/plain", "hello", 5, false);
}

static void prefix(void *context, HttpRequest *request) {
  (void)context;
  http_reply(request, strstr(http_url(request), "none") ? 404 : 200, "text/plain", http_url(request), strlen(http_url(request)), true);
}

static bool is_ready(void *context, HttpRequest *request) {
  Fixture *f = context;
  pthread_mutex_lock(&f->lock);
  f->waiting = request;
  pthread_mutex_unlock(&f->lock);
  if (http_late(request)) return http_reply_error(request, 503, NULL, NULL, "late"), true;
  if (!atomic_load(&f->go)) return false;
  http_reply(request, 200, "text/plain", "waited", 6, false);
  return true;
}

/* Goes on by itself, up to 100 times, until it is let. */
static bool is_ready_in_turns(void *context, HttpRequest *request) {
  Fixture *f = context;
  client_sleep(0.02);
  if (atomic_load(&f->go) || atomic_fetch_add(&f->turns, 1) == 100) return http_reply(request, 200, "text/plain", "done", 4, false), true;
  http_wake(request);
  return false;
}

static void closed(void *context, HttpRequest *request) {
  Fixture *f = context;
  pthread_mutex_lock(&f->lock);
  f->waiting = NULL;
  pthread_mutex_unlock(&f->lock);
  if (http_gone(request)) atomic_store(&f->gone, true);
  atomic_fetch_add(&f->closed, 1);
}

/* Whether there is one that waits. */
static bool wake(Fixture *f) {
  pthread_mutex_lock(&f->lock);
  bool waiting = f->waiting != NULL;
  if (waiting) http_wake(f->waiting);
  pthread_mutex_unlock(&f->lock);
  return waiting;
}

static void wait_for_it(void *context, HttpRequest *request) {
  http_work(request, &(HttpWork){.ready = is_ready, .close = closed, .context = context});
}

static void take_turns(void *context, HttpRequest *request) {
  http_work(request, &(HttpWork){.ready = is_ready_in_turns, .close = closed, .context = context});
}

/* A stream of numbers, one for each time it is woken, up to 1,000; or without end and pause. */
typedef struct Numbers {
  Fixture *fixture;
  HttpRequest *request;
  pthread_t thread;
  atomic_int made;
  int told;
  bool endless;
} Numbers;

static void *make_numbers(void *argument) {
  Numbers *n = argument;
  for (int i = 0; i < 1000; i++) {
    atomic_fetch_add(&n->made, 1);
    http_wake(n->request);
  }
  return NULL;
}

static bool stream_ready(void *context, HttpRequest *request) {
  Numbers *n = context;
  http_stream(request);
  if (!n->endless) pthread_create(&n->thread, NULL, make_numbers, n);
  return true;
}

static ssize_t read_numbers(void *context, HttpRequest *request, char *buffer, size_t room) {
  Numbers *n = context;
  (void)request;
  if (n->endless) return memset(buffer, 'x', room), (ssize_t)room;
  if (n->told == 1000) return HTTP_END;
  int made = atomic_load(&n->made);
  if (n->told == made) return 0;
  n->told++;
  return snprintf(buffer, room, "%d\n", n->told);
}

static void numbers_closed(void *context, HttpRequest *request) {
  Numbers *n = context;
  (void)request;
  if (!n->endless) pthread_join(n->thread, NULL);
  atomic_fetch_add(&n->fixture->closed, 1);
  free(n);
}

static void numbers(void *context, HttpRequest *request) {
  Numbers *n = calloc(1, sizeof *n);
  n->fixture = context;
  n->request = request;
  n->endless = http_argument(request, "endless") != NULL;
  http_work(request, &(HttpWork){.ready = stream_ready, .read = read_numbers, .close = numbers_closed, .context = n});
}

static void nothing(void *context, HttpRequest *request) { (void)context, (void)request; }

/* Nobody else's request is read until it is let, where there is one thread. */
static void busy(void *context, HttpRequest *request) {
  Fixture *f = context;
  for (int i = 0; i < 1500 && !atomic_load(&f->idle); i++) client_sleep(0.01);
  http_reply(request, 200, "text/plain", "done", 4, false);
}

static const HttpRoute *const routes[] = {&(const HttpRoute){"GET", "/busy", 0, busy},
                                          &(const HttpRoute){"POST", "/echo", HTTP_WORK, echo},
                                          &(const HttpRoute){"POST", "/json", HTTP_WORK | HTTP_JSON_BODY, echo},
                                          &(const HttpRoute){"GET", "/hello", 0, hello},
                                          &(const HttpRoute){"GET", "/open", HTTP_OPEN, hello},
                                          &(const HttpRoute){"POST", "/wait", HTTP_WORK, wait_for_it},
                                          &(const HttpRoute){"POST", "/turns", HTTP_WORK, take_turns},
                                          &(const HttpRoute){"GET", "/numbers", 0, numbers},
                                          &(const HttpRoute){"GET", "/nothing", 0, nothing},
                                          &(const HttpRoute){"GET", "/files/", HTTP_PREFIX, prefix},
                                          NULL};

static void on_finished(void *context, const char *route, int status, double seconds) {
  Fixture *f = context;
  (void)route;
  assert_true(seconds >= 0);
  atomic_store(&f->status, status);
  atomic_fetch_add(&f->finished, 1);
}

static Fixture *start(void (*change)(HttpOptions *options), const char *keys, double rate) {
  Fixture *f = calloc(1, sizeof *f);
  pthread_mutex_init(&f->lock, NULL);
  assert_int_equal(http_access_new(&f->access, keys, rate), STATUS_OK);
  HttpOptions options = client_options(routes, f, f->access);
  options.finished = on_finished;
  options.log = f->log = open_memstream(&f->log_text, &f->log_bytes);
  if (change) change(&options);
  assert_int_equal(client_start(&f->http, &options, &f->port), STATUS_OK);
  return f;
}

static void finish(Fixture *f) {
  http_stop(f->http);
  http_access_free(f->access);
  pthread_mutex_destroy(&f->lock);
  fclose(f->log);
  free(f->log_text);
  free(f);
}

static void wait_until(atomic_int *count, int wanted) {
  for (int i = 0; i < 1500 && atomic_load(count) < wanted; i++) client_sleep(0.01);
  assert_true(atomic_load(count) >= wanted);
}

/* Until so many are under way. */
static void wait_for_requests(Fixture *f, int wanted) {
  for (int i = 0; i < 1500 && http_counts(f->http).requests != wanted; i++) client_sleep(0.01);
  assert_int_equal(http_counts(f->http).requests, wanted);
}

static void check(Answer answer, long status, const char *head, const char *body) {
  if (answer.status != status) fail_msg("status %ld, not %ld: %s%s", answer.status, status, answer.head, answer.body);
  if (head && !strstr(answer.head, head)) fail_msg("no %s in %s", head, answer.head);
  if (body && !strstr(answer.body, body)) fail_msg("no %s in %s", body, answer.body);
  answer_release(&answer);
}

/* ---- heads */

static void finds_routes(void **state) {
  (void)state;
  Fixture *f = start(NULL, NULL, 0);
  const char *id[] = {"X-Request-Id: mine-1", NULL}, *bad[] = {"X-Request-Id: a b", NULL},
             *json[] = {"Content-Type: application/json; charset=utf-8", NULL};
  const char *text[] = {"Content-Type: text/plain", NULL}, *none[] = {"Content-Length:", NULL};
  check(client_get(f->port, "/hello"), 200, "Content-Length: 5", "hello");
  check(client_ask(f->port, "HEAD", "/hello", NULL, NULL, 0), 200, "Content-Length: 5", "");
  check(client_get(f->port, "/files/../x?y"), 200, NULL, "/files/../x");
  check(client_get(f->port, "/files/none"), 404, NULL, NULL);
  check(client_get(f->port, "/hell"), 404, "application/json", "\"error\"");
  check(client_get(f->port, "/"), 404, NULL, NULL);
  check(client_ask(f->port, "PUT", "/hello", NULL, "x", 1), 405, "Allow: GET", "PUT is not accepted");
  check(client_ask(f->port, "PUT", "/files/x", NULL, "x", 1), 405, "Allow: GET", "/files/x: PUT is not accepted");
  check(client_get(f->port, "/echo"), 405, "Allow: POST", NULL);
  check(client_ask(f->port, "OPTIONS", "/echo", NULL, NULL, 0), 405, NULL, NULL); /* no --cors */
  check(client_get(f->port, "/nothing"), 500, NULL, NULL);
  check(client_ask(f->port, NULL, "/hello", id, NULL, 0), 200, "X-Request-Id: mine-1", NULL);
  check(client_ask(f->port, NULL, "/hello", bad, NULL, 0), 200, "-0", NULL);
  check(client_ask(f->port, NULL, "/json", json, "{}", 2), 200, NULL, "{}");
  check(client_ask(f->port, NULL, "/json", text, "{}", 2), 415, NULL, NULL);
  check(client_ask(f->port, "POST", "/echo", none, NULL, 0), 411, NULL, NULL);
  wait_until(&f->finished, 16);
  fflush(f->log);
  /* Those of routes, whatever the method, and no other paths. */
  assert_non_null(strstr(f->log_text, "\"method\":\"PUT\",\"path\":\"/hello\",\"status\":405"));
  assert_non_null(strstr(f->log_text, "\"path\":\"/files/\",\"status\":200"));
  assert_non_null(strstr(f->log_text, "\"path\":\"other\",\"status\":404"));
  assert_null(strstr(f->log_text, "\"path\":\"/files/\",\"status\":404"));
  assert_non_null(strstr(f->log_text, "\"id\":\"mine-1\""));
  assert_non_null(strstr(f->log_text, "\"own\":5"));
  finish(f);
}

/* One thread: of two requests, the one that was begun first has its body first. */
static void limit_bodies(HttpOptions *options) { options->max_body = 1000, options->bodies = 40000, options->threads = 1; }

static void limits_bodies(void **state) {
  (void)state;
  static char text[200000], chunk[2000];
  Fixture *f = start(limit_bodies, NULL, 0);
  memset(text, 'a', sizeof text);
  check(client_ask(f->port, NULL, "/echo", NULL, text, 1000), 200, "Content-Length: 1000", NULL);
  check(client_ask(f->port, NULL, "/echo", NULL, text, 1001), 413, NULL, NULL);
  const char *both[] = {"Transfer-Encoding: chunked", "Content-Length: 3", NULL};
  check(client_ask(f->port, NULL, "/echo", both, "abc", 3), 400, NULL, NULL);
  wait_until(&f->finished, 3); /* the last one to finish, after this, is the one whose status is checked */
  int fd = client_connect(f->port, 0);
  client_send(fd, "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
  snprintf(chunk, sizeof chunk, "320\r\n%.800s\r\n", text);
  for (int i = 0; i < 3; i++) client_send(fd, chunk);
  client_drain(fd, text, sizeof text);
  assert_non_null(strstr(text, "413 "));
  assert_non_null(strstr(text, "\r\nX-Request-Id: "));
  assert_non_null(strstr(text, "\r\nX-Content-Type-Options: nosniff\r\n"));
  close(fd);
  wait_until(&f->finished, 4);
  assert_int_equal(atomic_load(&f->status), 413);
  /* Bodies that are held at a time: three of 16 KB are more than 40,000 bytes. */
  int slow[3];
  for (int i = 0; i < 3; i++) {
    slow[i] = client_connect(f->port, 0);
    client_send(slow[i], "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc");
    if (i < 2) wait_for_requests(f, i + 1);
  }
  client_drain(slow[2], text, sizeof text);
  assert_non_null(strstr(text, "503 "));
  for (int i = 0; i < 3; i++) close(slow[i]);
  wait_until(&f->finished, 7);
  check(client_ask(f->port, NULL, "/echo", NULL, "abc", 3), 200, NULL, "abc");
  finish(f);
}

/* What comes back for `text` until the other side closes, which it is to do at once. */
static void check_exchange(Fixture *f, const char *text, const char *wanted, const char *other) {
  static char answer[20000];
  double start_time = clock_now();
  int fd = client_connect(f->port, 0);
  client_send(fd, text);
  client_drain(fd, answer, sizeof answer);
  close(fd);
  if (!strstr(answer, wanted) || (other && strstr(answer, other))) fail_msg("after %.100s: %s", text, answer);
  assert_true(clock_now() - start_time < 15);
}

/* Three of 16 KB would be more than 40,000 bytes. */
static void holds_bodies_of_posts_alone(void **state) {
  (void)state;
  static char text[2000], answer[20000];
  Fixture *f = start(limit_bodies, NULL, 0);
  int slow[3];
  memset(text, 'a', sizeof text);
  for (int i = 0; i < 3; i++) {
    slow[i] = client_connect(f->port, 0);
    client_send(slow[i], i < 2 ? "GET /open HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc"
                               : "GET /open HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n");
    wait_for_requests(f, i + 1);
  }
  client_sleep(0.1); /* the bodies lie behind their heads */
  check(client_ask(f->port, NULL, "/echo", NULL, text, 1000), 200, "Content-Length: 1000", NULL);
  for (int i = 0; i < 3; i++) {
    client_send(slow[i], i < 2 ? "0123456" : "0\r\n\r\n");
    client_send(slow[i], "GET /files/next HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    client_drain(slow[i], answer, sizeof answer);
    if (!strstr(answer, "hello") || !strstr(answer, "/files/next")) fail_msg("%s", answer);
    close(slow[i]);
  }
  check(client_ask(f->port, "GET", "/open", NULL, text, 1001), 413, NULL, NULL);
  static char chunks[3000];
  snprintf(chunks, sizeof chunks, "GET /open HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1f4\r\n%.500s\r\n1f5\r\n%.501s\r\n",
           text, text);
  check_exchange(f, chunks, "413 ", "200 ");
  finish(f);
}

/* As a proxy has them. */
static void takes_whole_urls(void **state) {
  (void)state;
  Fixture *f = start(NULL, NULL, 0);
  check_exchange(f, "GET http://x/hello?a=b HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", "200 ", NULL);
  check_exchange(f, "GET HTTPS://[::1]:80/files/a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", "\r\n\r\n/files/a", NULL);
  check_exchange(f, "GET http://x HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", "there is no /;", NULL);
  check_exchange(f, "GET ftp://x/hello HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", "404 ", NULL);
  finish(f);
}

/* Whichever length a proxy in front believes, no part of the body becomes a request. */
static void refuses_two_lengths(void **state) {
  (void)state;
  Fixture *f = start(NULL, NULL, 0);
  static const char *const fields[] = {"Content-Length: 2\r\nContent-Length: 30\r\n", "Content-Length: 2\r\nContent-Length: 2\r\n",
                                       "Content-Length: 2\r\ntransfer-encoding: chunked\r\n",
                                       "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n"};
  static const char *const requests[] = {"POST /echo", "GET /hello", "DELETE /hello", "POST /not"};
  for (int i = 0; i < 16; i++) {
    char text[400];
    snprintf(text, sizeof text, "%s HTTP/1.1\r\nHost: x\r\n%s\r\n{}GET /hello HTTP/1.1\r\nHost: x\r\n\r\n", requests[i / 4], fields[i % 4]);
    check_exchange(f, text, "400 ", "200 ");
  }
  finish(f);
}

/* --max-header is of the whole head, and less than what the library takes. */
static void limits_headers(void **state) {
  (void)state;
  Fixture *f = start(NULL, NULL, 0);
  char large[8010], small[1010];
  snprintf(large, sizeof large, "X: %0*d", 8000, 0);
  snprintf(small, sizeof small, "Y: %0*d", 1000, 0);
  const char *one[] = {large, NULL}, *two[] = {large, small, NULL};
  check(client_ask(f->port, NULL, "/hello", one, NULL, 0), 200, NULL, "hello");
  check(client_ask(f->port, NULL, "/hello", two, NULL, 0), 431, "application/json", "--max-header");
  check(client_ask(f->port, NULL, "/not", two, NULL, 0), 431, NULL, "at most 8192 are accepted");
  finish(f);
}

static void hurry(HttpOptions *options) { options->head_seconds = 0.6, options->body_seconds = 0.8; }

/* What comes back on a connection after `text`, and whether it took about as long. */
static void check_slow(Fixture *f, const char *text, const char *wanted, double seconds) {
  char answer[1000];
  double start_time = clock_now();
  int fd = client_connect(f->port, 0);
  client_send(fd, text);
  client_drain(fd, answer, sizeof answer);
  double took = clock_now() - start_time;
  close(fd);
  if (wanted ? !strstr(answer, wanted) : answer[0]) fail_msg("after %s: %s", text, answer);
  assert_true(took > seconds - 0.05 && took < seconds + 5);
}

static void read_long(HttpOptions *options) { options->stall_seconds = 1, options->head_seconds = 2.5, options->body_seconds = 2.8; }

/* --stall-timeout is of answers: who sends, or rests between two requests, has the time of these. */
static void slow_requests_have_their_own_time(void **state) {
  (void)state;
  Fixture *f = start(read_long, NULL, 0);
  check_slow(f, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc", "408", 2.8);
  check_slow(f, "GET /hello HTTP/1.1\r\nHost: x\r\n\r\n", "200 OK", 2.5); /* idle afterwards */
  char text[1000];
  int next = client_connect(f->port, 0); /* half of the next request */
  client_send(next, "GET /hello HTTP/1.1\r\nHost: x\r\n\r\n");
  client_sleep(0.2);
  client_send(next, "GET /hello");
  client_drain(next, text, sizeof text);
  assert_non_null(strstr(text, "408"));
  close(next);
  assert_int_equal(http_counts(f->http).requests, 0);
  finish(f);
}

static void ends_slow_requests(void **state) {
  (void)state;
  Fixture *f = start(hurry, NULL, 0);
  check_slow(f, "", NULL, 0.6);
  check_slow(f, "GET /hello HTTP/1.1\r\nX: ", "408", 0.6);
  check_slow(f, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc", "408", 0.8);
  check_slow(f, "GET /hello HTTP/1.1\r\nHost: x\r\n\r\n", "200 OK", 0.6); /* and idle afterwards */
  /* Bytes that go on coming do not help. */
  int fd = client_connect(f->port, 0);
  client_send(fd, "GET /hello HTTP/1.1\r\nX: ");
  double begun = clock_now();
  while (clock_now() < begun + 3 && send(fd, "x", 1, MSG_NOSIGNAL) == 1) client_sleep(0.05);
  assert_true(clock_now() < begun + 2.9);
  close(fd);
  finish(f);
}

static void one_thread(HttpOptions *options) { options->threads = 1; }

/* The end comes together with the bytes before it, so that there is no other event to notice it by. */
static void notices_requests_that_end_early(void **state) {
  (void)state;
  static const char *const begins[] = {"GET /hello HTTP/1.1\r\nX: ", "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc"};
  Fixture *f = start(one_thread, NULL, 0);
  int occupied = client_connect(f->port, 0);
  client_send(occupied, "GET /busy HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  wait_for_requests(f, 1);
  for (int i = 0; i < 20; i++) {
    int fd = client_connect(f->port, 0);
    client_send(fd, begins[i % 2]);
    close(fd);
  }
  atomic_store(&f->idle, true);
  client_sleep(0.5);
  close(occupied);
  double begun = clock_now();
  while (http_counts(f->http).connections > 0 && clock_now() < begun + 5) client_sleep(0.05);
  assert_int_equal(http_counts(f->http).connections, 0);
  assert_int_equal(http_counts(f->http).requests, 0);
  finish(f);
}

static void stall(HttpOptions *options) { options->stall_seconds = 1; }

static void ends_readers_that_stall(void **state) {
  (void)state;
  Fixture *f = start(stall, NULL, 0);
  int fd = client_connect(f->port, 2048);
  client_send(fd, "GET /numbers?endless=1 HTTP/1.1\r\nHost: x\r\n\r\n");
  wait_until(&f->closed, 1);
  close(fd);
  finish(f);
}

static void stall_late(HttpOptions *options) { options->stall_seconds = 2, options->request_seconds = 0.3; }

/* A little now and then is no stall, but it does not last for ever. */
static void ends_readers_that_dawdle(void **state) {
  (void)state;
  Fixture *f = start(stall_late, NULL, 0);
  int fd = client_connect(f->port, 65536), reads = 0;
  char piece[16384];
  client_send(fd, "GET /numbers?endless=1 HTTP/1.1\r\nHost: x\r\n\r\n");
  while (recv(fd, piece, sizeof piece, 0) > 0 && ++reads < 500 && atomic_load(&f->closed) == 0) client_sleep(0.02);
  assert_in_range(reads, 5, 499);
  wait_until(&f->closed, 1);
  close(fd);
  finish(f);
}

static void limit_connections(HttpOptions *options) { options->per_address = 4, options->threads = 1; }

static void limits_connections(void **state) {
  (void)state;
  Fixture *f = start(limit_connections, NULL, 0);
  int fds[8], open = 0;
  for (int i = 0; i < 8; i++) {
    char text[200];
    fds[i] = client_connect(f->port, 0);
    client_send(fds[i], "GET /hello HTTP/1.1\r\nHost: x\r\n\r\n");
    open += recv(fds[i], text, sizeof text, 0) > 0;
  }
  assert_int_equal(open, 4);
  assert_int_equal(http_counts(f->http).connections, 4);
  for (int i = 0; i < 8; i++) close(fds[i]);
  finish(f);
}

static void few_connections(HttpOptions *options) { options->connections = 8, options->threads = 1; }

/* Whoever opens many and says nothing loses them to those who ask. */
static void closes_idle_connections(void **state) {
  (void)state;
  Fixture *f = start(few_connections, NULL, 0);
  int fds[60], working = client_connect(f->port, 0), closed_ones = 0;
  char text[500];
  client_send_post(working, "/wait", "{}");
  while (!wake(f)) client_sleep(0.01);
  for (int i = 0; i < 60; i++) fds[i] = client_connect(f->port, 0);
  double begun = clock_now();
  check(client_get(f->port, "/hello"), 200, NULL, NULL);
  assert_true(clock_now() < begun + 5);
  for (int i = 0; i < 60; i++) closed_ones += recv(fds[i], text, sizeof text, MSG_DONTWAIT) == 0;
  assert_in_range(closed_ones, 50, 59);
  atomic_store(&f->go, true);
  wake(f);
  assert_true(recv(working, text, sizeof text, 0) > 0);
  close(working);
  for (int i = 0; i < 60; i++) close(fds[i]);
  finish(f);
}

/* Whoever asks again and again on an old connection keeps it. */
static void keeps_connections_in_use(void **state) {
  (void)state;
  Fixture *f = start(few_connections, NULL, 0);
  int steady = client_connect(f->port, 0), fds[24];
  char text[500];
  for (int i = 0; i < 24; i++) {
    if (i % 4 == 0) { /* more come in between than the service keeps */
      client_send(steady, "GET /hello HTTP/1.1\r\nHost: here\r\n\r\n");
      assert_true(recv(steady, text, sizeof text, 0) > 0);
      client_sleep(0.02);
    }
    fds[i] = client_connect(f->port, 0);
    client_sleep(0.01);
  }
  client_send(steady, "GET /hello HTTP/1.1\r\nHost: here\r\n\r\n");
  assert_true(recv(steady, text, sizeof text, 0) > 0);
  close(steady);
  for (int i = 0; i < 24; i++) close(fds[i]);
  finish(f);
}

/* A request that comes as its connection, idle until then, is closed for others: it is read, but nobody waits for its answer. The only
 * thread is busy meanwhile, so that the new connections and the request are there at once. */
static void ends_requests_of_closed_connections(void **state) {
  (void)state;
  Fixture *f = start(few_connections, NULL, 0);
  int idle = client_connect(f->port, 0), occupied = client_connect(f->port, 0), fds[12];
  char text[500];
  client_send(idle, "GET /hello HTTP/1.1\r\nHost: x\r\n\r\n");
  assert_true(recv(idle, text, sizeof text, 0) > 0);
  wait_until(&f->finished, 1);
  client_send(occupied, "GET /busy HTTP/1.1\r\nHost: x\r\n\r\n");
  wait_for_requests(f, 1);
  client_send_post(idle, "/wait", "{}");
  for (int i = 0; i < 12; i++) fds[i] = client_connect(f->port, 0);
  atomic_store(&f->idle, true);
  wait_until(&f->closed, 1);
  assert_true(atomic_load(&f->gone));
  close(idle);
  close(occupied);
  for (int i = 0; i < 12; i++) close(fds[i]);
  finish(f);
}

/* ---- who may */

static void asks_for_keys(void **state) {
  (void)state;
  char folder[TEMPORARY_PATH], path[TEMPORARY_PATH + 8];
  static const char keys[] = "# two keys\r\nalpha-key-1\r\n\n  \nbeta-key-22\n";
  assert_int_equal(make_temporary_folder(folder), 0);
  snprintf(path, sizeof path, "%s/keys", folder);
  assert_int_equal(files_write(path, keys, sizeof keys - 1), STATUS_OK);
  Fixture *f = start(NULL, path, 3);
  const char *first[] = {"Authorization: Bearer alpha-key-1", NULL}, *second[] = {"authorization: bearer beta-key-22", NULL},
             *wrong[] = {"Authorization: Bearer alpha-key-", NULL}, *longer[] = {"Authorization: Bearer alpha-key-11", NULL},
             *comment[] = {"Authorization: Bearer # two keys", NULL}, *basic[] = {"Authorization: Basic alpha-key-1", NULL},
             *empty[] = {"Authorization: Bearer ", NULL};
  check(client_get(f->port, "/hello"), 401, "WWW-Authenticate: Bearer", "authentication_error");
  check(client_ask(f->port, NULL, "/hello", wrong, NULL, 0), 401, NULL, NULL);
  check(client_ask(f->port, NULL, "/hello", longer, NULL, 0), 401, NULL, NULL);
  check(client_ask(f->port, NULL, "/hello", comment, NULL, 0), 401, NULL, NULL);
  check(client_ask(f->port, NULL, "/hello", basic, NULL, 0), 401, NULL, NULL);
  check(client_ask(f->port, NULL, "/hello", empty, NULL, 0), 401, NULL, NULL);
  check(client_ask(f->port, NULL, "/hello", second, NULL, 0), 200, NULL, NULL);
  check(client_get(f->port, "/open"), 200, NULL, NULL);
  /* Who is refused is so before the body is there, and the rest of it is no request. */
  static const char *const half[] = {"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc",
                                     "GET /hello HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc",
                                     "GET /hello HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"};
  for (int i = 0; i < 3; i++) check_exchange(f, half[i], "401 ", NULL);
  for (int i = 0; i < 3; i++) check(client_ask(f->port, NULL, "/echo", first, "a", 1), 200, NULL, NULL);
  Answer refused = client_ask(f->port, NULL, "/echo", first, "a", 1);
  const char *wait = strstr(refused.head, "Retry-After: ");
  assert_non_null(wait);
  assert_in_range(atoi(wait + strlen("Retry-After: ")), 10, 20); /* three a minute: 20 s, less what has passed since the first */
  check(refused, 429, NULL, "rate_limit_error");
  check(client_ask(f->port, NULL, "/echo", second, "a", 1), 200, NULL, NULL);
  check(client_ask(f->port, NULL, "/hello", first, NULL, 0), 200, NULL, NULL); /* no work */
  finish(f);
}

static void check_key_file(const char *text, const char *message) {
  char folder[TEMPORARY_PATH], path[TEMPORARY_PATH + 8];
  HttpAccess *access;
  assert_int_equal(make_temporary_folder(folder), 0);
  snprintf(path, sizeof path, "%s/keys", folder);
  assert_int_equal(files_write(path, text, strlen(text)), STATUS_OK);
  assert_int_equal(http_access_new(&access, path, 0), STATUS_BAD_FILE);
  assert_null(access);
  if (!strstr(status_message(), message)) fail_msg("%s", status_message());
}

static void refuses_key_files(void **state) {
  (void)state;
  check_key_file("", "no key in it");
  check_key_file("# nothing\n", "no key in it");
  check_key_file("long-enough\nshort\n", "line 2: a key of 5 characters");
  check_key_file("two words-in-it\n", "line 1: a key is one word");
}

/* Half a request a second, of which a minute's may come at once and no more, however long nobody asked. */
static void rates_add_up_to_a_minute(void **state) {
  (void)state;
  HttpAccess *access;
  assert_int_equal(http_access_new(&access, NULL, 30), STATUS_OK);
  for (double now = 100; now < 100000; now += 40000) {
    for (int i = 0; i < 30; i++) assert_true(http_access_take(access, "a", now) == 0);
    double wait = http_access_take(access, "a", now);
    assert_true(wait > 1.99 && wait <= 2);
    assert_true(http_access_take(access, "a", now + 1.9) > 0);
    assert_true(http_access_take(access, "a", now + 2.01) == 0);
    assert_true(http_access_take(access, "a", now + 2.01) > 0);
  }
  http_access_free(access);
}

/* Threads take in another order than requests came: nobody gets more by it. */
static void rates_of_requests_out_of_order(void **state) {
  (void)state;
  HttpAccess *access;
  assert_int_equal(http_access_new(&access, NULL, 1), STATUS_OK);
  assert_true(http_access_take(access, "a", 10) == 0);
  assert_true(http_access_take(access, "a", 9.9995) > 0);
  assert_true(http_access_take(access, "a", 10.001) > 0);
  assert_true(http_access_take(access, "a", 69.9) > 0);
  assert_true(http_access_take(access, "a", 70.1) == 0);
  http_access_free(access);
}

static void fills_rates_again(void **state) {
  (void)state;
  HttpAccess *access;
  assert_int_equal(http_access_new(&access, NULL, 60), STATUS_OK);
  for (int i = 0; i < 60; i++) assert_true(http_access_take(access, "a", 100) == 0);
  double wait = http_access_take(access, "a", 100);
  assert_true(wait > 0.99 && wait <= 1);
  assert_true(http_access_take(access, "b", 100) == 0);
  assert_true(http_access_take(access, "a", 101.01) == 0);
  assert_true(http_access_take(access, "a", 101.02) > 0);
  for (int i = 0; i < 100000; i++) { /* clients without number take no more memory */
    char who[32];
    snprintf(who, sizeof who, "%d", i);
    (void)!http_access_take(access, who, 102);
  }
  http_access_free(access);
}

/* One client has all addresses of an IPv6 network, and one IPv4 address, in whatever form. */
static void counts_networks(void **state) {
  (void)state;
  static const struct {
    const char *first, *second;
    bool one;
  } cases[] = {{"2001:db8:0:1::1", "2001:db8:0:1:ffff::2", true},
               {"2001:db8:0:1::1", "2001:db8:0:2::1", false},
               {"::ffff:192.0.2.1", "::ffff:192.0.2.2", false},
               {"::ffff:192.0.2.1", "::ffff:192.0.2.1", true},
               {"192.0.2.1", "192.0.2.2", false},
               {"key 1", "key 2", false}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    HttpAccess *access;
    assert_int_equal(http_access_new(&access, NULL, 1), STATUS_OK);
    assert_true(http_access_take(access, cases[i].first, 100) == 0);
    assert_int_equal(http_access_take(access, cases[i].second, 100) > 0, cases[i].one);
    http_access_free(access);
  }
}

static void allow_origin(HttpOptions *options) { options->cors = "https://example.org"; }

static void answers_other_origins(void **state) {
  (void)state;
  Fixture *f = start(allow_origin, NULL, 0);
  check(client_ask(f->port, "OPTIONS", "/echo", NULL, NULL, 0), 204,
        "Access-Control-Allow-Headers: Authorization, Content-Type, X-Request-Id, *\r\n", NULL);
  check(client_get(f->port, "/hello"), 200, "Access-Control-Allow-Origin: https://example.org", NULL);
  check(client_ask(f->port, "OPTIONS", "/files/x", NULL, NULL, 0), 204, "Access-Control-Allow-Methods: GET", NULL);
  check(client_ask(f->port, "OPTIONS", "/not", NULL, NULL, 0), 404, NULL, NULL);
  finish(f);
}

/* ---- answers that take time */

static void waits_and_wakes(void **state) {
  (void)state;
  Fixture *f = start(NULL, NULL, 0);
  char text[1000];
  int fd = client_connect(f->port, 0);
  client_send_post(fd, "/wait", "{}");
  while (!wake(f)) client_sleep(0.01);
  for (int i = 0; i < 1000; i++) wake(f);
  client_sleep(0.05);
  assert_int_equal(recv(fd, text, sizeof text, MSG_DONTWAIT), -1);
  atomic_store(&f->go, true);
  wake(f);
  assert_true(recv(fd, text, sizeof text - 1, 0) > 0);
  assert_non_null(strstr(text, "200 OK"));
  close(fd);
  wait_until(&f->closed, 1);
  finish(f);
}

/* Others of the same thread are answered between the parts of a work, which sees that its client has left as well. */
static void works_take_turns(void **state) {
  (void)state;
  Fixture *f = start(one_thread, NULL, 0);
  char text[1024];
  for (int leaves = 0; leaves < 2; leaves++) {
    atomic_store(&f->turns, 0);
    atomic_store(&f->go, false);
    int fd = client_connect(f->port, 0);
    client_send_post(fd, "/turns", "{}");
    wait_until(&f->turns, 2);
    check(client_get(f->port, "/hello"), 200, NULL, "hello");
    assert_true(atomic_load(&f->turns) < 50);
    if (!leaves) {
      atomic_store(&f->go, true);
      assert_true(recv(fd, text, sizeof text, 0) > 0);
    }
    close(fd);
    wait_until(&f->closed, leaves + 1);
    assert_true(atomic_load(&f->turns) < 100);
  }
  finish(f);
}

static void notices_clients_that_leave(void **state) {
  (void)state;
  Fixture *f = start(NULL, NULL, 0);
  int fd = client_connect(f->port, 0);
  client_send_post(fd, "/wait", "{}");
  while (!wake(f)) client_sleep(0.01);
  close(fd);
  wait_until(&f->closed, 1);
  assert_true(atomic_load(&f->gone));
  wait_until(&f->finished, 1);
  assert_int_equal(atomic_load(&f->status), 499);
  finish(f);
}

static void limit_time(HttpOptions *options) { options->request_seconds = 0.3; }

static void tells_what_is_late(void **state) {
  (void)state;
  Fixture *f = start(limit_time, NULL, 0);
  check(client_post(f->port, "/wait", "{}"), 503, NULL, "late");
  finish(f);
}

/* Each wake is one number, and none is lost however the thread that makes them and the one that sends them meet. */
static void streams_lose_no_wake(void **state) {
  (void)state;
  Fixture *f = start(NULL, NULL, 0);
  for (int round = 0; round < 5; round++) {
    Answer answer = client_get(f->port, "/numbers");
    assert_int_equal(answer.status, 200);
    int lines = 0;
    for (const char *at = answer.body; *at; at++) lines += *at == '\n';
    assert_int_equal(lines, 1000);
    assert_non_null(strstr(answer.body, "\n1000\n"));
    answer_release(&answer);
  }
  finish(f);
}

/* The library ends the program where a connection is suspended at its end: none is, whatever was under way. */
static void stops_amid_everything(void **state) {
  (void)state;
  for (int round = 0; round < 5; round++) {
    Fixture *f = start(NULL, NULL, 0);
    int fds[24];
    for (int i = 0; i < 24; i++) {
      fds[i] = client_connect(f->port, 0);
      if (i % 4 == 0) client_send_post(fds[i], "/wait", "{}");
      if (i % 4 == 1) client_send(fds[i], "GET /numbers?endless=1 HTTP/1.1\r\nHost: x\r\n\r\n");
      if (i % 4 == 2) client_send(fds[i], "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc");
    }
    client_sleep(0.02 * round);
    finish(f);
    for (int i = 0; i < 24; i++) close(fds[i]);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(finds_routes),
                                     cmocka_unit_test(limits_bodies),
                                     cmocka_unit_test(holds_bodies_of_posts_alone),
                                     cmocka_unit_test(takes_whole_urls),
                                     cmocka_unit_test(refuses_two_lengths),
                                     cmocka_unit_test(limits_headers),
                                     cmocka_unit_test(ends_slow_requests),
                                     cmocka_unit_test(slow_requests_have_their_own_time),
                                     cmocka_unit_test(notices_requests_that_end_early),
                                     cmocka_unit_test(ends_readers_that_stall),
                                     cmocka_unit_test(ends_readers_that_dawdle),
                                     cmocka_unit_test(limits_connections),
                                     cmocka_unit_test(closes_idle_connections),
                                     cmocka_unit_test(keeps_connections_in_use),
                                     cmocka_unit_test(ends_requests_of_closed_connections),
                                     cmocka_unit_test(asks_for_keys),
                                     cmocka_unit_test(refuses_key_files),
                                     cmocka_unit_test(rates_add_up_to_a_minute),
                                     cmocka_unit_test(fills_rates_again),
                                     cmocka_unit_test(rates_of_requests_out_of_order),
                                     cmocka_unit_test(counts_networks),
                                     cmocka_unit_test(answers_other_origins),
                                     cmocka_unit_test(waits_and_wakes),
                                     cmocka_unit_test(works_take_turns),
                                     cmocka_unit_test(notices_clients_that_leave),
                                     cmocka_unit_test(tells_what_is_late),
                                     cmocka_unit_test(streams_lose_no_wake),
                                     cmocka_unit_test(stops_amid_everything)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
