/* The client of a service against answers that a thread gives: good streams, refusals, streams that break off or are no JSON, and a stop in
 * the middle of one. The whole way, against astra-serve: tests/cli/astra-chat.sh. */
#include "base/clock.h"
#include "serve/chat_client.h"
#include <arpa/inet.h>
#include <cmocka.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- a server of prepared answers: the models first, then `answer` for whatever comes */

typedef struct Server {
  int listener, port;
  pthread_t thread;
  const char *models, *answer;
  bool hangs;                   /* keeps the connection open behind the answer, or in place of models that are none */
  volatile sig_atomic_t *stops; /* set as soon as the models are asked for; NULL: nothing */
  char asked[4096];             /* the last request */
} Server;

/* To a client that may have left: what it then misses is its test's to see, not this thread's. */
static void give(int peer, const char *text) { (void)!send(peer, text, strlen(text), MSG_NOSIGNAL); }

static void *serve(void *context) {
  Server *server = context;
  for (int peer; (peer = accept(server->listener, NULL, NULL)) >= 0; close(peer)) {
    char head[4096] = "";
    size_t size = 0, wanted = 0;
    while (size + 1 < sizeof head) {
      ssize_t got = recv(peer, head + size, sizeof head - 1 - size, 0);
      if (got <= 0) break;
      head[size += (size_t)got] = '\0';
      const char *end = strstr(head, "\r\n\r\n"), *length = strcasestr(head, "content-length:");
      if (end && length) wanted = (size_t)(end + 4 - head) + (size_t)atoi(length + 15);
      if (end && size >= wanted) break;
    }
    const bool models = strncmp(head, "GET /v1/models ", 15) == 0;
    char byte;
    if (!models) memcpy(server->asked, head, sizeof head);
    if (server->stops && models) *server->stops = 1;
    give(peer, models ? server->models : server->answer);
    if (server->hangs && !(models && server->models[0])) (void)!recv(peer, &byte, 1, 0); /* until the client leaves */
  }
  return NULL;
}

static const char two_models[] =
    "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"
    "{\"data\": [{\"id\": \"eyes\", \"kind\": \"images\"}, {\"id\": \"one\", \"kind\": \"text\"}, {\"id\": \"two\"}]}";
#define STREAM "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"

static void server_start(Server *server, const char *answer) {
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t size = sizeof address;
  *server = (Server){.listener = socket(AF_INET, SOCK_STREAM, 0), .models = two_models, .answer = answer};
  assert_int_equal(bind(server->listener, (struct sockaddr *)&address, size), 0);
  assert_int_equal(listen(server->listener, 8), 0);
  assert_int_equal(getsockname(server->listener, (struct sockaddr *)&address, &size), 0);
  server->port = ntohs(address.sin_port);
  assert_int_equal(pthread_create(&server->thread, NULL, serve, server), 0);
}

static void server_stop(Server *server) {
  shutdown(server->listener, SHUT_RDWR);
  pthread_join(server->thread, NULL);
  close(server->listener);
}

static Status open_client(const Server *server, const char *model, ChatClient **client) {
  char url[64];
  snprintf(url, sizeof url, "http://127.0.0.1:%d/v1/", server->port);
  return chat_client_open(client,
                          &(ChatClientOptions){.url = url, .model = model, .key = "secret-key", .key_file = "my-keys", .timeout = 20});
}

static char written[256];
static volatile sig_atomic_t stop;

static void keep(void *context, const char *text, size_t bytes) {
  strncat(written, text, bytes);
  if (context) stop = 1;
}

/* Asks a server with this answer. */
static Status ask(Server *server, bool stops, ChatAnswer *answer) {
  ChatClient *client;
  json_t *messages = json_pack("[{s:s, s:s}]", "role", "user", "content", "Hi \"you\"");
  written[0] = '\0';
  stop = 0;
  assert_int_equal(open_client(server, NULL, &client), STATUS_OK);
  const ChatQuestion question = {.messages = messages,
                                 .max_tokens = 9,
                                 .temperature = 0.5,
                                 .top_p = 1,
                                 .top_k = 3,
                                 .seed = 7,
                                 .write = keep,
                                 .context = stops ? written : NULL,
                                 .stop = &stop};
  Status status = chat_client_ask(client, &question, answer);
  chat_client_close(client);
  json_decref(messages);
  return status;
}

static void answers_come_in_pieces(void **state) {
  (void)state;
  Server server;
  ChatAnswer answer;
  server_start(&server, STREAM "data: {\"choices\": [{\"delta\": {\"role\": \"assistant\"}}]}\n\n"
                               "data: {\"choices\": [{\"delta\": {\"content\": \"Good \"}}]}\n\n: alive\n\n"
                               "data: {\"choices\": [{\"delta\": {\"content\": \"d\\u00e4y\"}, \"finish_reason\": null}]}\n\n"
                               "data: {\"choices\": [{\"delta\": {}, \"finish_reason\": \"length\"}]}\n\n"
                               "data: {\"choices\": [], \"usage\": {\"prompt_tokens\": 5, \"completion_tokens\": 2}}\n\ndata: [DONE]\n\n");
  if (ask(&server, false, &answer) != STATUS_OK) fail_msg("%s", status_message());
  server_stop(&server);
  assert_string_equal(written, "Good d\xc3\xa4y");
  assert_int_equal(answer.bytes, strlen(written));
  assert_string_equal(answer.end, "length");
  assert_int_equal(answer.new_tokens, 2);
  assert_int_equal(answer.prompt_tokens, 5);
  assert_non_null(strstr(server.asked, "POST /v1/chat/completions HTTP/1.1\r\n"));
  assert_non_null(strstr(server.asked, "\r\nAuthorization: Bearer secret-key\r\n"));
  assert_non_null(
      strstr(server.asked, "\"model\":\"one\",\"messages\":[{\"role\":\"user\",\"content\":\"Hi \\\"you\\\"\"}],\"stream\":true"));
  assert_non_null(strstr(server.asked, "\"max_tokens\":9,\"temperature\":0.5,\"top_p\":1.0,\"seed\":7,\"top_k\":3"));
}

static void failures_are_told(void **state) {
  (void)state;
  static const struct {
    const char *answer;
    Status status;
    const char *message, *text;
  } cases[] = {
      {"HTTP/1.1 503 Busy\r\nRetry-After: 7\r\nConnection: close\r\n\r\n{\"error\": {\"message\": \"the queue is full\"}}", STATUS_BUSY,
       "answered 503: the queue is full; try again in 7 s", NULL},
      {"HTTP/1.1 503 Busy\r\nRetry-After: 9999999999999\r\nConnection: close\r\n\r\n{\"error\": {\"message\": \"full\"}}", STATUS_BUSY,
       "answered 503: full; try again in 86400 s", NULL},
      {"HTTP/1.1 503 Busy\r\nRetry-After: -99999999999\r\nConnection: close\r\n\r\n{\"error\": {\"message\": \"full\"}}", STATUS_BUSY,
       "answered 503: full", NULL},
      {"HTTP/1.1 400 Bad\r\nConnection: close\r\n\r\n{\"error\": {\"message\": \"Roles must alternate\"}}", STATUS_PEER,
       "answered 400: Roles must alternate", NULL},
      {"HTTP/1.1 401 No\r\nConnection: close\r\n\r\nwhat?", STATUS_PEER, "answered 401: it does not accept the key in my-keys", NULL},
      {"HTTP/1.1 500 Oh\r\nConnection: close\r\n\r\n", STATUS_PEER, "answered 500", NULL},
      {STREAM "data: {\"choices\": [{\"delta\": {\"content\": \"Go\"}}]}\n\n", STATUS_PEER, "the answer broke off", "Go"},
      {STREAM "data: {\"choices\": [{\"delta\": {\"content\": \"Go\"}}]}\n\ndata: {\"error\": {\"message\": \"a device failed\"}}\n\n",
       STATUS_PEER, "a device failed", "Go"},
      {STREAM "data: <html>\n\n", STATUS_PEER, "what came is no JSON", NULL},
      {STREAM "data: [1, 2]\n\ndata: {\"choices\": 5}\n\ndata: {\"choices\": [{\"delta\": {\"content\": 5}}]}\n\n", STATUS_PEER,
       "the answer broke off", NULL},
      {STREAM, STATUS_PEER, "the answer broke off", NULL}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Server server;
    ChatAnswer answer;
    server_start(&server, cases[i].answer);
    assert_int_equal(ask(&server, false, &answer), cases[i].status);
    server_stop(&server);
    if (!strstr(status_message(), cases[i].message)) fail_msg("%s\nis: %s", cases[i].message, status_message());
    if (cases[i].text)
      assert_string_equal(written, cases[i].text);
    else
      assert_int_equal(answer.bytes, 0);
  }
}

static void an_answer_can_be_stopped(void **state) {
  (void)state;
  Server server;
  ChatAnswer answer;
  server_start(&server, STREAM "data: {\"choices\": [{\"delta\": {\"content\": \"Go\"}}]}\n\n");
  server.hangs = true;
  double begun = clock_now();
  assert_int_equal(ask(&server, true, &answer), STATUS_OK);
  assert_true(clock_now() - begun < 15); /* of the 20 s after which the client would give up */
  server_stop(&server);
  assert_string_equal(answer.end, "cancelled");
  assert_string_equal(written, "Go");
}

/* As by Ctrl-C while a service takes the connection and then says nothing. */
static void opening_can_be_stopped(void **state) {
  (void)state;
  Server server;
  ChatClient *client;
  char url[64];
  server_start(&server, "");
  server.models = "";
  server.hangs = true;
  server.stops = &stop;
  stop = 0;
  snprintf(url, sizeof url, "http://127.0.0.1:%d", server.port);
  const double begun = clock_now();
  assert_int_equal(chat_client_open(&client, &(ChatClientOptions){.url = url, .timeout = 20, .stop = &stop}), STATUS_INTERRUPTED);
  assert_true(clock_now() - begun < 15); /* of the 20 s after which the client would give up */
  assert_string_equal(status_message(), "interrupted");
  assert_null(client);
  server_stop(&server);
}

static void models_are_found_by_name(void **state) {
  (void)state;
  Server server;
  ChatClient *client;
  server_start(&server, "");
  assert_int_equal(open_client(&server, NULL, &client), STATUS_OK);
  assert_string_equal(chat_client_model(client), "one"); /* the first one answers no chat */
  chat_client_close(client);
  assert_int_equal(open_client(&server, "two", &client), STATUS_OK);
  assert_string_equal(chat_client_model(client), "two");
  chat_client_close(client);
  assert_int_equal(open_client(&server, "three", &client), STATUS_NOT_FOUND);
  assert_non_null(strstr(status_message(), "no language model three, but one, two"));
  assert_null(client);
  server.models = "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n<html>";
  assert_int_equal(open_client(&server, NULL, &client), STATUS_PEER);
  assert_non_null(strstr(status_message(), "no list of models came"));
  server.models = "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{\"data\": [{\"id\": \"eyes\", \"kind\": \"images\"}]}";
  assert_int_equal(open_client(&server, NULL, &client), STATUS_NOT_FOUND);
  server_stop(&server);
}

static void addresses_are_checked(void **state) {
  (void)state;
  static const char *const bad[] = {"", "127.0.0.1:80", "ftp://x", "file:///etc/passwd", "gopher://x"};
  ChatClient *client;
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    assert_int_equal(chat_client_open(&client, &(ChatClientOptions){.url = bad[i], .timeout = 5}), STATUS_BAD_USAGE);
    assert_null(client);
  }
  assert_int_equal(chat_client_open(&client, &(ChatClientOptions){.url = "http://127.0.0.1:1", .key = "a\nb", .timeout = 5}),
                   STATUS_BAD_VALUE);
  assert_int_equal(chat_client_open(&client, &(ChatClientOptions){.url = "http://127.0.0.1:1", .timeout = 5}), STATUS_PEER);
  assert_non_null(strstr(status_message(), "is astra-serve running there?"));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(answers_come_in_pieces),   cmocka_unit_test(failures_are_told),
                                     cmocka_unit_test(an_answer_can_be_stopped), cmocka_unit_test(opening_can_be_stopped),
                                     cmocka_unit_test(models_are_found_by_name), cmocka_unit_test(addresses_are_checked)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
