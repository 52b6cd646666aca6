/* make_clients CASES REQUESTS CLIENTS SEED MANNERS [REFUSED]: sends REQUESTS requests to services, CLIENTS at a time, each drawn from the
 * JSON file CASES, and compares every answer with the expected one:
 *
 *   [{"kind": "completion", "url": ..., "body": {...} or "file": PATH, "type": MEDIA TYPE, "status": 200, "answers": [...], "weight": 3}]
 *
 * `answers` are those that are right: lists of texts, of token ids, of labels or a field's name, as answer_of reads them from what came;
 * without it any answer of that status is. MANNERS is "calm", where clients read what they asked for, or "wild", where some leave in the
 * middle of an answer or of their own request, some read slowly and some take a new connection. A client that is refused with 429 or 503
 * waits for REFUSED milliseconds, 100 where it is not given, instead of what Retry-After asks for: such an answer counts as refused, not as
 * wrong.
 *
 * "done N" is printed while it runs, what was wrong on stderr, and at the end a line of JSON. Exit code 1: an answer was wrong, a
 * connection broke or a request did not end within a minute. */
#include "base/clock.h"
#include <curl/curl.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum { CASES_MAX = 256, STUCK_SECONDS = 60, TOLD_MAX = 20 };

typedef struct Case {
  const char *kind, *url, *type;
  char *body;
  size_t bytes;
  long status;
  double weight;
  const json_t *answers; /* NULL: any */
} Case;

typedef enum Manner { READS, LEAVES, SLOW, STOPS_ASKING, MANNER_COUNT } Manner;

typedef struct Client {
  CURL *curl;
  struct curl_slist *head;
  const Case *what;
  Manner manner;
  double begun, first, again, leaves; /* clock_now; 0: not */
  bool paused, retry_after;
  size_t asked, asks; /* bytes of the body that were sent, and at which it stops */
  char *text;
  size_t bytes, room;
} Client;

typedef struct Load {
  CURLM *multi;
  Client *clients;
  int client_count, active, case_count, requests, started, ended;
  bool wild;
  double refused_seconds, weight;
  uint64_t random;
  Case cases[CASES_MAX];
  int right, left, refused, without_retry_after, wrong, stuck, broken, told;
  double *times, *first; /* [requests] of right answers, in milliseconds; first bytes of streams */
  int first_count;
} Load;

static double draw(Load *load) { /* 0 to 1: splitmix64 */
  uint64_t z = load->random += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return (double)((z ^ (z >> 31)) >> 11) / 9007199254740992.0;
}

/* ---- what is right */

/* The texts of a stream's events, one for each choice. NULL: it did not end as a stream does. */
static json_t *texts_of_events(const char *text) {
  json_t *texts = json_array();
  bool done = false;
  for (const char *line = text; line; line = strchr(line, '\n')) {
    line += *line == '\n';
    if (strncmp(line, "data: ", 6) != 0) continue;
    done = strncmp(line + 6, "[DONE]", 6) == 0;
    json_t *event = json_loadb(line + 6, strcspn(line + 6, "\n"), 0, NULL), *choice;
    size_t i;
    if (!event && !done) return json_decref(texts), NULL;
    if (json_object_get(event, "error")) done = false;
    json_array_foreach(json_object_get(event, "choices"), i, choice) {
      const json_t *delta = json_object_get(choice, "delta");
      const char *more = json_string_value(delta ? json_object_get(delta, "content") : json_object_get(choice, "text"));
      size_t index = (size_t)json_integer_value(json_object_get(choice, "index"));
      while (json_array_size(texts) <= index) json_array_append_new(texts, json_string(""));
      json_array_set_new(texts, index, json_sprintf("%s%s", json_string_value(json_array_get(texts, index)), more ? more : ""));
    }
    json_decref(event);
  }
  if (done) return texts;
  json_decref(texts);
  return NULL;
}

/* Of a whole answer: texts, tokens, labels, or which field was wrong. */
static json_t *answer_of(const char *text, size_t bytes) {
  if (bytes > 5 && strncmp(text, "data:", 5) == 0) return texts_of_events(text);
  json_t *root = json_loadb(text, bytes, 0, NULL), *list = json_array(), *one;
  size_t i;
  json_array_foreach(json_object_get(root, "choices"), i, one) {
    json_t *message = json_object_get(one, "message");
    json_array_append(list, message ? json_object_get(message, "content") : json_object_get(one, "text"));
  }
  json_array_foreach(json_object_get(root, "results"), i, one)
      json_array_append(list, json_object_get(json_array_get(json_object_get(one, "classes"), 0), "label"));
  json_array_foreach(json_object_get(root, "tokens"), i, one) json_array_append(list, one);
  if (json_object_get(root, "error")) json_array_append(list, json_object_get(json_object_get(root, "error"), "param"));
  json_decref(root);
  return list;
}

static bool is_right(const Client *client) {
  const json_t *answers = client->what->answers;
  if (!answers) return true;
  json_t *answer = answer_of(client->text, client->bytes);
  bool right = false;
  for (size_t i = 0; answer && i < json_array_size(answers); i++) right |= json_equal(answer, json_array_get(answers, i));
  json_decref(answer);
  return right;
}

/* ---- a request */

static void tell(Load *load, const Client *client, const char *what) {
  if (load->told++ >= TOLD_MAX) return;
  long status = 0;
  curl_easy_getinfo(client->curl, CURLINFO_RESPONSE_CODE, &status);
  fprintf(stderr, "%s: %s %s, status %ld, after %.2f s: %.1000s\n", what, client->what->kind, client->what->url, status,
          clock_now() - client->begun, client->text ? client->text : "");
  fprintf(stderr, "    asked: %.300s\n", client->what->body ? client->what->body : "");
}

static size_t take(char *data, size_t size, size_t count, void *context) {
  Client *client = context;
  size_t bytes = size * count;
  if (client->manner == SLOW && client->again == 0) client->again = clock_now() + 0.02;
  if (client->manner == SLOW && clock_now() < client->again) {
    client->paused = true;
    return CURL_WRITEFUNC_PAUSE;
  }
  client->again = 0;
  if (client->first == 0) client->first = clock_now();
  if (client->bytes + bytes + 1 > client->room) {
    client->room = 2 * (client->bytes + bytes) + 1;
    client->text = realloc(client->text, client->room);
    if (!client->text) abort();
  }
  memcpy(client->text + client->bytes, data, bytes);
  client->bytes += bytes;
  client->text[client->bytes] = 0;
  return bytes;
}

static size_t take_head(char *data, size_t size, size_t count, void *context) {
  Client *client = context;
  client->retry_after |= size * count > 12 && strncasecmp(data, "retry-after:", 12) == 0;
  return size * count;
}

static size_t give(char *to, size_t size, size_t count, void *context) {
  Client *client = context;
  size_t room = size * count, left = client->asks - client->asked, bytes = left < room ? left : room;
  if (bytes == 0 && client->asks < client->what->bytes) return CURL_READFUNC_ABORT;
  memcpy(to, client->what->body + client->asked, bytes);
  client->asked += bytes;
  return bytes;
}

static int narrow(void *context, curl_socket_t fd, curlsocktype purpose) {
  (void)context, (void)purpose;
  setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &(int){2048}, sizeof(int));
  return CURL_SOCKOPT_OK;
}

static void start(Load *load, Client *client) {
  double place = draw(load) * load->weight, kind = draw(load);
  int chosen = 0;
  while (chosen + 1 < load->case_count && place >= load->cases[chosen].weight) place -= load->cases[chosen++].weight;
  const Case *what = client->what = &load->cases[chosen];
  client->manner = !load->wild || kind < 0.7 ? READS : kind < 0.8 ? LEAVES : kind < 0.9 ? SLOW : STOPS_ASKING;
  if (client->manner == STOPS_ASKING && what->bytes < 2) client->manner = LEAVES;
  client->begun = clock_now();
  client->first = client->again = client->leaves = 0;
  client->paused = client->retry_after = false;
  client->bytes = client->asked = 0;
  client->asks = client->manner == STOPS_ASKING ? (size_t)(draw(load) * (double)what->bytes) : what->bytes;
  if (client->manner == LEAVES) client->leaves = client->begun + 0.2 * draw(load) * draw(load);
  if (client->text) client->text[0] = 0;
  CURL *curl = client->curl;
  curl_easy_reset(curl);
  curl_slist_free_all(client->head);
  client->head = curl_slist_append(NULL, "Expect:");
  curl_easy_setopt(curl, CURLOPT_URL, what->url);
  curl_easy_setopt(curl, CURLOPT_PROXY, "");
  curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(curl, CURLOPT_PRIVATE, (void *)client);
  curl_easy_setopt(curl, CURLOPT_TIMEOUT, (long)STUCK_SECONDS);
  curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, take);
  curl_easy_setopt(curl, CURLOPT_WRITEDATA, (void *)client);
  curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, take_head);
  curl_easy_setopt(curl, CURLOPT_HEADERDATA, (void *)client);
  if (what->body) {
    char type[200];
    snprintf(type, sizeof type, "Content-Type: %s", what->type);
    client->head = curl_slist_append(client->head, type);
    curl_easy_setopt(curl, CURLOPT_POST, 1L);
    curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE, (long)what->bytes);
    curl_easy_setopt(curl, CURLOPT_READFUNCTION, give);
    curl_easy_setopt(curl, CURLOPT_READDATA, (void *)client);
  }
  curl_easy_setopt(curl, CURLOPT_HTTPHEADER, client->head);
  if (client->manner == SLOW) {
    curl_easy_setopt(curl, CURLOPT_BUFFERSIZE, 1024L);
    curl_easy_setopt(curl, CURLOPT_SOCKOPTFUNCTION, narrow);
  }
  if (load->wild && draw(load) < 0.3) {
    curl_easy_setopt(curl, CURLOPT_FRESH_CONNECT, 1L);
    curl_easy_setopt(curl, CURLOPT_FORBID_REUSE, 1L);
  }
  curl_multi_add_handle(load->multi, curl);
  load->active++;
  load->started++;
}

static void end(Load *load, Client *client, bool left, CURLcode code) {
  double now = clock_now();
  long status = 0;
  curl_easy_getinfo(client->curl, CURLINFO_RESPONSE_CODE, &status);
  client->again = 0;
  bool refused = code == CURLE_OK && (status == 429 || status == 503) && client->what->status != status;
  if (left || (client->manner == STOPS_ASKING && code == CURLE_ABORTED_BY_CALLBACK)) {
    load->left++;
  } else if (code == CURLE_OPERATION_TIMEDOUT) {
    load->stuck++;
    tell(load, client, "stuck");
  } else if (code != CURLE_OK) {
    load->broken++;
    tell(load, client, curl_easy_strerror(code));
  } else if (refused) {
    load->refused++;
    load->without_retry_after += !client->retry_after;
    client->again = now + load->refused_seconds;
  } else if (status != client->what->status || !is_right(client)) {
    load->wrong++;
    tell(load, client, "wrong");
  } else {
    if (client->bytes > 5 && strncmp(client->text, "data:", 5) == 0)
      load->first[load->first_count++] = 1e3 * (client->first - client->begun);
    load->times[load->right++] = 1e3 * (now - client->begun);
  }
  curl_multi_remove_handle(load->multi, client->curl);
  client->what = NULL;
  load->active--;
  load->ended++;
  if (load->ended % (load->requests / 100 + 1) == 0) printf("done %d\n", load->ended);
}

static void run(Load *load) {
  while (load->ended < load->requests) {
    double now = clock_now();
    int left, running;
    for (int i = 0; i < load->client_count; i++) {
      Client *client = &load->clients[i];
      if (!client->what && load->started < load->requests && now >= client->again) start(load, client);
      if (client->what && client->leaves > 0 && now >= client->leaves) end(load, client, true, CURLE_OK);
      if (client->what && client->paused && now >= client->again) {
        client->paused = false;
        curl_easy_pause(client->curl, CURLPAUSE_CONT);
      }
    }
    curl_multi_perform(load->multi, &running);
    for (CURLMsg *message; (message = curl_multi_info_read(load->multi, &left));) {
      Client *client;
      CURLcode code = message->data.result;
      curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &client);
      end(load, client, false, code);
    }
    curl_multi_poll(load->multi, NULL, 0, load->wild || load->active < load->client_count ? 5 : 50, NULL);
  }
}

/* ---- from start to end */

static char *read_file(const char *path, size_t *bytes) {
  FILE *file = fopen(path, "rb");
  char *text = malloc(1 << 20);
  *bytes = file && text ? fread(text, 1, 1 << 20, file) : 0;
  if (file) fclose(file);
  if (*bytes == 0) fprintf(stderr, "%s: nothing to send\n", path);
  return text;
}

static bool read_cases(Load *load, const json_t *list) {
  const json_t *row;
  size_t i;
  json_array_foreach(list, i, row) {
    if (load->case_count == CASES_MAX) break;
    Case *c = &load->cases[load->case_count++];
    json_t *body = json_object_get(row, "body"), *weight = json_object_get(row, "weight");
    const char *file = json_string_value(json_object_get(row, "file"));
    *c = (Case){.kind = json_string_value(json_object_get(row, "kind")),
                .url = json_string_value(json_object_get(row, "url")),
                .type = json_string_value(json_object_get(row, "type")),
                .status = (long)json_integer_value(json_object_get(row, "status")),
                .weight = weight ? json_number_value(weight) : 1,
                .answers = json_object_get(row, "answers")};
    if (!c->type) c->type = "application/json";
    if (body) c->body = json_is_string(body) ? strdup(json_string_value(body)) : json_dumps(body, JSON_COMPACT);
    if (body) c->bytes = strlen(c->body);
    if (file) c->body = read_file(file, &c->bytes);
    if (!c->url || !c->kind || c->status == 0 || (file && c->bytes == 0)) return false;
    load->weight += c->weight;
  }
  return load->case_count > 0;
}

static int compare(const void *a, const void *b) {
  return (*(const double *)a > *(const double *)b) - (*(const double *)a < *(const double *)b);
}

static double quantile(double *values, int count, double q) {
  qsort(values, (size_t)count, sizeof *values, compare);
  return count > 0 ? values[(int)(q * (count - 1) + 0.5)] : 0;
}

int main(int argc, char **argv) {
  static Load load;
  if (argc < 6) return fprintf(stderr, "usage: make_clients CASES REQUESTS CLIENTS SEED calm|wild [MILLISECONDS]\n"), 2;
  json_error_t error;
  json_t *cases = json_load_file(argv[1], 0, &error);
  if (!cases) return fprintf(stderr, "%s: %s, line %d\n", argv[1], error.text, error.line), 2;
  if (!read_cases(&load, cases)) return fprintf(stderr, "%s: case %d is not complete\n", argv[1], load.case_count), 2;
  load.requests = atoi(argv[2]);
  load.client_count = atoi(argv[3]);
  load.random = strtoull(argv[4], NULL, 10);
  load.wild = strcmp(argv[5], "wild") == 0;
  load.refused_seconds = argc > 6 ? atof(argv[6]) / 1e3 : 0.1;
  load.times = calloc((size_t)load.requests + 1, sizeof *load.times);
  load.first = calloc((size_t)load.requests + 1, sizeof *load.first);
  load.clients = calloc((size_t)load.client_count + 1, sizeof *load.clients);
  if (load.requests < 1 || load.client_count < 1 || !load.times || !load.first || !load.clients) return 2;
  setvbuf(stdout, NULL, _IOLBF, 0);
  curl_global_init(CURL_GLOBAL_DEFAULT);
  load.multi = curl_multi_init();
  for (int i = 0; i < load.client_count; i++) load.clients[i].curl = curl_easy_init();
  double begun = clock_now();
  run(&load);
  printf("{\"requests\":%d,\"seconds\":%.1f,\"right\":%d,\"left\":%d,\"refused\":%d,\"without_retry_after\":%d,\"wrong\":%d,\"stuck\":%d,"
         "\"broken\":%d",
         load.requests, clock_now() - begun, load.right, load.left, load.refused, load.without_retry_after, load.wrong, load.stuck,
         load.broken);
  printf(",\"p50_ms\":%.1f,\"p99_ms\":%.1f,\"first_p50_ms\":%.1f,\"first_p99_ms\":%.1f}\n", quantile(load.times, load.right, 0.5),
         quantile(load.times, load.right, 0.99), quantile(load.first, load.first_count, 0.5), quantile(load.first, load.first_count, 0.99));
  for (int i = 0; i < load.client_count; i++) {
    curl_easy_cleanup(load.clients[i].curl);
    curl_slist_free_all(load.clients[i].head);
    free(load.clients[i].text);
  }
  curl_multi_cleanup(load.multi);
  curl_global_cleanup();
  for (int i = 0; i < load.case_count; i++) free(load.cases[i].body);
  free(load.times), free(load.first), free(load.clients);
  json_decref(cases);
  return load.wrong + load.stuck + load.broken + load.without_retry_after > 0;
}
