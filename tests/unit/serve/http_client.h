/* A client for tests: whole requests through libcurl, and bare connections. */
#ifndef UNIT_SERVE_HTTP_CLIENT_H
#define UNIT_SERVE_HTTP_CLIENT_H
#include "infer/cluster/address.h"
#include "serve/http.h"
#include <arpa/inet.h>
#include <curl/curl.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

typedef struct Answer {
  long status;
  char *head, *body; /* NUL-terminated, owned */
  size_t bytes;
} Answer;

typedef struct AnswerPart {
  char *text;
  size_t bytes;
} AnswerPart;

static inline size_t client_take(char *data, size_t size, size_t count, void *context) {
  AnswerPart *part = context;
  part->text = realloc(part->text, part->bytes + size * count + 1);
  memcpy(part->text + part->bytes, data, size * count);
  part->text[part->bytes += size * count] = 0;
  return size * count;
}

/* method NULL: POST where there is a body, else GET; fields: up to a NULL. */
static inline Answer client_ask(uint16_t port, const char *method, const char *path, const char *const *fields, const char *body,
                                size_t bytes) {
  Answer answer = {0};
  AnswerPart head = {.text = calloc(1, 1)}, content = {.text = calloc(1, 1)};
  char url[1024];
  CURL *curl = curl_easy_init();
  struct curl_slist *list = NULL;
  for (; fields && *fields; fields++) list = curl_slist_append(list, *fields);
  snprintf(url, sizeof url, "http://127.0.0.1:%d%s", (int)port, path);
  curl_easy_setopt(curl, CURLOPT_URL, url);
  curl_easy_setopt(curl, CURLOPT_PROXY, "");
  curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(curl, CURLOPT_PATH_AS_IS, 1L);
  curl_easy_setopt(curl, CURLOPT_TIMEOUT, 60L);
  curl_easy_setopt(curl, CURLOPT_HTTPHEADER, list);
  if (body) {
    curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE, (long)bytes);
    curl_easy_setopt(curl, CURLOPT_POSTFIELDS, body);
  }
  if (method && strcmp(method, "HEAD") == 0)
    curl_easy_setopt(curl, CURLOPT_NOBODY, 1L);
  else if (method)
    curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, method);
  curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, client_take);
  curl_easy_setopt(curl, CURLOPT_WRITEDATA, (void *)&content);
  curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, client_take);
  curl_easy_setopt(curl, CURLOPT_HEADERDATA, (void *)&head);
  if (curl_easy_perform(curl) != CURLE_OK) answer.status = -1;
  long status;
  curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
  if (answer.status == 0 || status > 0) answer.status = status;
  answer.head = head.text, answer.body = content.text, answer.bytes = content.bytes;
  curl_slist_free_all(list);
  curl_easy_cleanup(curl);
  return answer;
}

static inline Answer client_post(uint16_t port, const char *path, const char *json) {
  const char *fields[] = {"Content-Type: application/json", NULL};
  return client_ask(port, NULL, path, fields, json, strlen(json));
}

static inline Answer client_get(uint16_t port, const char *path) { return client_ask(port, NULL, path, NULL, NULL, 0); }

static inline void answer_release(Answer *answer) {
  free(answer->head);
  free(answer->body);
  *answer = (Answer){0};
}

/* ---- bare connections */

static inline int client_connect(uint16_t port, int receive_room) {
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  int fd = socket(AF_INET, SOCK_STREAM, 0);
  struct timeval limit = {.tv_sec = 30};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  if (receive_room > 0) setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &receive_room, sizeof receive_room);
  if (connect(fd, (struct sockaddr *)(void *)&address, sizeof address) != 0) return close(fd), -1;
  return fd;
}

static inline void client_send(int fd, const char *text) { (void)!send(fd, text, strlen(text), MSG_NOSIGNAL); }

static inline void client_send_post(int fd, const char *path, const char *json) {
  char text[4096];
  snprintf(text, sizeof text, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s", path,
           strlen(json), json);
  client_send(fd, text);
}

/* All that comes until the other side closes; its length. */
static inline size_t client_drain(int fd, char *text, size_t room) {
  size_t used = 0;
  for (char scrap[4096];;) {
    ssize_t got = recv(fd, scrap, sizeof scrap, 0);
    if (got <= 0) break;
    for (ssize_t i = 0; i < got; i++, used++)
      if (used + 1 < room) text[used] = scrap[i];
  }
  text[used < room ? used : room - 1] = 0;
  return used;
}

static inline void client_sleep(double seconds) {
  nanosleep(&(struct timespec){.tv_sec = (time_t)seconds, .tv_nsec = (long)(1e9 * (seconds - (double)(time_t)seconds))}, NULL);
}

/* ---- a server on a free port of this machine */

static inline Status client_start(Http **http, const HttpOptions *options, uint16_t *port) {
  Address address;
  int sockets[ADDRESS_SOCKETS], count;
  TRY(address_parse("127.0.0.1:0", &address));
  TRY(address_listen(&address, sockets, &count));
  *port = address_port(sockets[0]);
  return http_start(http, options, sockets, count);
}

static inline HttpOptions client_options(const HttpRoute *const *routes, void *context, HttpAccess *access) {
  return (HttpOptions){.routes = routes,
                       .context = context,
                       .access = access,
                       .threads = 2,
                       .max_body = 1 << 16,
                       .max_header = 8 << 10,
                       .bodies = 1 << 20,
                       .connections = 256,
                       .head_seconds = 20,
                       .body_seconds = 20,
                       .stall_seconds = 20};
}

#endif
