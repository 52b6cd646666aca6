/* A small web server on 127.0.0.1 for the download tests, in a child process that ends with its parent and after a minute at the latest.
 * What it does wrong is chosen by the path: see http_routes. One connection at a time, one answer each. */
#ifndef HTTP_SERVER_H
#define HTTP_SERVER_H
#include <arpa/inet.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { HTTP_BODY = 300000 };

typedef struct HttpShared { /* seen by both processes */
  int requests;             /* since the last http_reset */
  int ranged;               /* of these, with a Range header */
  char range[64], if_range[128];
  char tag[128];    /* the ETag sent, with quotes; "": none */
  char linked[128]; /* the X-Linked-ETag of /linked */
  unsigned char body[HTTP_BODY];
} HttpShared;

typedef struct HttpServer {
  pid_t pid;
  int port;
  HttpShared *shared;
} HttpServer;

typedef struct HttpRequest {
  char path[128], range[64], if_range[128];
  int hit; /* how many requests since the reset, this one included */
} HttpRequest;

static void http_send(int fd, const void *data, size_t size) {
  for (const char *at = data; size > 0;) {
    ssize_t sent = send(fd, at, size, MSG_NOSIGNAL);
    if (sent <= 0) return;
    at += sent, size -= (size_t)sent;
  }
}

static void http_text(int fd, const char *text) { http_send(fd, text, strlen(text)); }

/* Headers of a good answer with bytes [first, HTTP_BODY); `sent` of them follow. */
static void http_part(int fd, const HttpShared *shared, size_t first, bool rest, size_t claimed_first, size_t sent) {
  char text[512];
  int used = snprintf(text, sizeof text, "HTTP/1.1 %s\r\nConnection: close\r\nContent-Length: %zu\r\n",
                      rest ? "206 Partial Content" : "200 OK", (size_t)HTTP_BODY - first);
  if (rest)
    used +=
        snprintf(text + used, sizeof text - (size_t)used, "Content-Range: bytes %zu-%d/%d\r\n", claimed_first, HTTP_BODY - 1, HTTP_BODY);
  if (shared->tag[0]) used += snprintf(text + used, sizeof text - (size_t)used, "ETag: %s\r\n", shared->tag);
  used += snprintf(text + used, sizeof text - (size_t)used, "Content-Disposition: attachment; filename=\"../../evil\"\r\n\r\n");
  http_send(fd, text, (size_t)used);
  http_send(fd, shared->body + first, sent);
}

static void http_whole(int fd, const HttpShared *shared) { http_part(fd, shared, 0, false, 0, HTTP_BODY); }

/* Range and If-Range as the standard has them. */
static void http_normal(int fd, HttpShared *shared, const HttpRequest *request) {
  size_t first = 0;
  bool fits = !request->if_range[0] || strcmp(request->if_range, shared->tag) == 0;
  if (!fits || sscanf(request->range, "bytes=%zu-", &first) != 1) {
    http_whole(fd, shared);
  } else if (first >= HTTP_BODY) {
    char text[128];
    snprintf(text, sizeof text, "HTTP/1.1 416 Range Not Satisfiable\r\nContent-Range: bytes */%d\r\nContent-Length: 0\r\n\r\n", HTTP_BODY);
    http_text(fd, text);
  } else {
    http_part(fd, shared, first, true, first, HTTP_BODY - first);
  }
}

static void http_norange(int fd, HttpShared *shared, const HttpRequest *request) {
  (void)request;
  http_whole(fd, shared);
}

/* The first answer stops in the middle. */
static void http_cut(int fd, HttpShared *shared, const HttpRequest *request) {
  if (request->hit == 1)
    http_part(fd, shared, 0, false, 0, HTTP_BODY / 2);
  else
    http_normal(fd, shared, request);
}

static void http_cut_norange(int fd, HttpShared *shared, const HttpRequest *request) {
  if (request->hit == 1)
    http_part(fd, shared, 0, false, 0, HTTP_BODY / 2);
  else
    http_whole(fd, shared);
}

/* Cut, and another file when one comes back for the rest. */
static void http_cut_changed(int fd, HttpShared *shared, const HttpRequest *request) {
  http_cut(fd, shared, request);
  if (request->hit == 1) {
    strcpy(shared->tag, "\"second\"");
    memset(shared->body, 'x', 1000);
  }
}

/* Cut, then a rest that begins elsewhere than was asked. */
static void http_liar(int fd, HttpShared *shared, const HttpRequest *request) {
  size_t first = 0;
  if (request->hit == 1)
    http_part(fd, shared, 0, false, 0, HTTP_BODY / 2);
  else if (sscanf(request->range, "bytes=%zu-", &first) == 1)
    http_part(fd, shared, first, true, first + 7, HTTP_BODY - first);
  else
    http_whole(fd, shared);
}

static void http_always_cut(int fd, HttpShared *shared, const HttpRequest *request) {
  (void)request;
  http_part(fd, shared, 0, false, 0, 1000);
}

static void http_missing(int fd, HttpShared *shared, const HttpRequest *request) {
  (void)shared, (void)request;
  http_text(fd, "HTTP/1.1 404 Not Found\r\nConnection: close\r\nContent-Length: 6\r\n\r\nsorry\n");
}

static void http_busy(int fd, HttpShared *shared, const HttpRequest *request) {
  if (request->hit > 2)
    http_whole(fd, shared);
  else
    http_text(fd, "HTTP/1.1 503 Busy\r\nConnection: close\r\nContent-Length: 5\r\n\r\nbusy\n");
}

static void http_redirect(int fd, HttpShared *shared, const HttpRequest *request) {
  (void)shared, (void)request;
  http_text(fd, "HTTP/1.1 302 Found\r\nConnection: close\r\nETag: \"hop\"\r\nLocation: /normal\r\nContent-Length: 5\r\n\r\nmoved");
}

static void http_linked(int fd, HttpShared *shared, const HttpRequest *request) {
  char text[512];
  (void)request;
  snprintf(text, sizeof text,
           "HTTP/1.1 302 Found\r\nConnection: close\r\nX-Linked-ETag: %s\r\nLocation: /normal\r\nContent-Length: 0\r\n\r\n",
           shared->linked);
  http_text(fd, text);
}

static void http_to_file(int fd, HttpShared *shared, const HttpRequest *request) {
  (void)shared, (void)request;
  http_text(fd, "HTTP/1.1 302 Found\r\nConnection: close\r\nLocation: file:///etc/hostname\r\nContent-Length: 0\r\n\r\n");
}

static void http_circle(int fd, HttpShared *shared, const HttpRequest *request) {
  (void)shared, (void)request;
  http_text(fd, "HTTP/1.1 302 Found\r\nConnection: close\r\nLocation: /circle\r\nContent-Length: 0\r\n\r\n");
}

/* A byte now and then, until the caller goes away. */
static void http_slow(int fd, HttpShared *shared, const HttpRequest *request) {
  (void)request;
  http_part(fd, shared, 0, false, 0, 10);
  for (int i = 0; i < 50 && send(fd, "x", 1, MSG_NOSIGNAL) == 1; i++) nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
}

/* No length given, and no end. */
static void http_endless(int fd, HttpShared *shared, const HttpRequest *request) {
  (void)request;
  http_text(fd, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n");
  for (int i = 0; i < 100; i++) http_send(fd, shared->body, HTTP_BODY);
}

static void http_empty(int fd, HttpShared *shared, const HttpRequest *request) {
  (void)shared, (void)request;
  http_text(fd, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
}

typedef void HttpHandler(int fd, HttpShared *shared, const HttpRequest *request);
static const struct {
  const char *path;
  HttpHandler *handler;
} http_routes[] = {{"/normal", http_normal},
                   {"/norange", http_norange},
                   {"/cut", http_cut},
                   {"/cut-norange", http_cut_norange},
                   {"/cut-changed", http_cut_changed},
                   {"/liar", http_liar},
                   {"/always-cut", http_always_cut},
                   {"/missing", http_missing},
                   {"/busy", http_busy},
                   {"/redirect", http_redirect},
                   {"/linked", http_linked},
                   {"/to-file", http_to_file},
                   {"/circle", http_circle},
                   {"/slow", http_slow},
                   {"/endless", http_endless},
                   {"/empty", http_empty}};

static void http_header(const char *text, const char *name, char *value, size_t room) {
  const char *at = strcasestr(text, name);
  value[0] = '\0';
  if (at) snprintf(value, room, "%.*s", (int)strcspn(at + strlen(name), "\r\n"), at + strlen(name));
}

static void http_serve(int fd, HttpShared *shared) {
  char text[4096];
  size_t used = 0;
  while (used < sizeof text - 1) {
    ssize_t got = recv(fd, text + used, sizeof text - 1 - used, 0);
    if (got <= 0) return;
    used += (size_t)got;
    text[used] = '\0';
    if (strstr(text, "\r\n\r\n")) break;
  }
  HttpRequest request = {0};
  if (sscanf(text, "GET %127s", request.path) != 1) return;
  http_header(text, "\r\nRange: ", request.range, sizeof request.range);
  http_header(text, "\r\nIf-Range: ", request.if_range, sizeof request.if_range);
  request.hit = ++shared->requests;
  shared->ranged += request.range[0] != '\0';
  memcpy(shared->range, request.range, sizeof shared->range);
  memcpy(shared->if_range, request.if_range, sizeof shared->if_range);
  for (size_t i = 0; i < sizeof http_routes / sizeof http_routes[0]; i++) {
    if (strcmp(http_routes[i].path, request.path) == 0) http_routes[i].handler(fd, shared, &request);
  }
}

static void http_loop(int listener, HttpShared *shared) {
  for (;;) {
    int fd = accept(listener, NULL, NULL);
    if (fd < 0) _exit(0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &(struct timeval){.tv_sec = 5}, sizeof(struct timeval));
    http_serve(fd, shared);
    shutdown(fd, SHUT_WR);
    char rest[256];
    while (recv(fd, rest, sizeof rest, 0) > 0) continue; /* so that the close does not cut off what is still under way */
    close(fd);
  }
}

static bool http_start(HttpServer *server) {
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t length = sizeof address;
  int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  server->shared = mmap(NULL, sizeof *server->shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (listener < 0 || server->shared == MAP_FAILED || bind(listener, (struct sockaddr *)&address, sizeof address) != 0 ||
      listen(listener, 8) != 0 || getsockname(listener, (struct sockaddr *)&address, &length) != 0)
    return false;
  server->port = ntohs(address.sin_port);
  server->pid = fork();
  if (server->pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    alarm(60);
    http_loop(listener, server->shared);
  }
  close(listener);
  return server->pid > 0;
}

static void http_stop(HttpServer *server) {
  kill(server->pid, SIGKILL);
  waitpid(server->pid, NULL, 0);
  munmap(server->shared, sizeof *server->shared);
}

/* A fresh state: the same body, one ETag, no requests yet. */
static void http_reset(HttpServer *server) {
  HttpShared *shared = server->shared;
  shared->requests = shared->ranged = 0;
  shared->range[0] = shared->if_range[0] = shared->linked[0] = '\0';
  strcpy(shared->tag, "\"first\"");
  unsigned state = 12345;
  for (size_t i = 0; i < HTTP_BODY; i++) {
    state = state * 1664525u + 1013904223u;
    shared->body[i] = (unsigned char)(state >> 24);
  }
}

#endif
