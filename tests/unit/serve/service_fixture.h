/* A service over real connections with scripted engines (fake_engine.h) for one model of texts and one of images. The tokenizer is that of
 * tests/golden/stories260K: ids 3 to 258 are the bytes. */
#ifndef UNIT_SERVE_SERVICE_FIXTURE_H
#define UNIT_SERVE_SERVICE_FIXTURE_H
#include "base/files.h"
#include "serve/completion.h"
#include "serve/service_routes.h"
#include "unit/remove_tree.h"
#include "unit/serve/fake_engine.h"
#include "unit/serve/http_client.h"
#include <cmocka.h>

enum { BYTE = 3, VOCABULARY_SIZE = 512, CONTEXT = 64 };

static Vocabulary vocabulary;
static ChatTemplate *chat;
static ModelConfig config = {.kind = MODEL_LLAMA, .vocabulary = VOCABULARY_SIZE, .context = CONTEXT};
static ModelConfig image_config = {.kind = MODEL_VIT,
                                   .image = 4,
                                   .patch = 2,
                                   .channels = 3,
                                   .classes = FAKE_CLASSES,
                                   .image_mean = {0.5, 0.5, 0.5},
                                   .image_std = {1, 1, 1},
                                   .resample = 2};
static char *labels[FAKE_CLASSES] = {"none", "dark", "bright"};
static Weights weights = {.config = &config}, image_weights = {.config = &image_config};

typedef struct Fixture {
  Service service;
  Engine engine, images;
  HttpAccess *access;
  uint16_t port;
} Fixture;

static inline int open_vocabulary(void **state) {
  (void)state;
  char folder[TEMPORARY_PATH];
  image_config.labels = labels;
  if (vocabulary_open(&vocabulary, "tests/golden/stories260K", &config) != STATUS_OK) return -1;
  if (make_temporary_folder(folder) != 0) return -1; /* no template there: ChatML */
  return chat_template_open(&chat, folder, NULL) == STATUS_OK ? 0 : -1;
}

static inline int close_vocabulary(void **state) {
  (void)state;
  chat_template_free(chat);
  vocabulary_close(&vocabulary);
  return 0;
}

static inline Fixture *start_with(const int32_t *script, int count, void (*change)(HttpOptions *options)) {
  Fixture *f = calloc(1, sizeof *f);
  service_init(&f->service);
  fake_engine_init(&f->engine, script, count);
  fake_engine_init(&f->images, script, count);
  f->service.models[0] = (ServiceModel){
      .name = "m", .engine = &f->engine, .weights = &weights, .vocabulary = &vocabulary, .chat = chat, .tokens_max = CONTEXT};
  f->service.models[1] = (ServiceModel){.name = "pictures", .engine = &f->images, .weights = &image_weights, .images_max = 2};
  f->service.count = 2;
  assert_int_equal(http_access_new(&f->access, NULL, 0), STATUS_OK);
  HttpOptions options = client_options(service_routes, &f->service, f->access);
  options.finished = service_finished;
  if (change) change(&options);
  assert_int_equal(client_start(&f->service.http, &options, &f->port), STATUS_OK);
  return f;
}

static inline Fixture *start(const int32_t *script, int count) { return start_with(script, count, NULL); }

static inline void finish(Fixture *f) {
  http_stop(f->service.http);
  fake_engine_release(&f->engine);
  fake_engine_release(&f->images);
  http_access_free(f->access);
  service_release(&f->service);
  free(f);
}

/* Its JSON, which the caller releases; releases the answer. */
static inline json_t *parse(Answer *answer, long status) {
  if (answer->status != status) fail_msg("status %ld, not %ld: %s", answer->status, status, answer->body);
  json_t *value = json_loads(answer->body, 0, NULL);
  if (!value) fail_msg("no JSON: %s", answer->body);
  answer_release(answer);
  return value;
}

static inline json_t *post(Fixture *f, const char *path, const char *json, long status) {
  Answer answer = client_post(f->port, path, json);
  return parse(&answer, status);
}

/* Compares a part of JSON, as a path of names and numbers, with JSON text. */
static inline void check_part(const json_t *value, const char *path, const char *wanted) {
  char name[64];
  const json_t *at = value;
  for (const char *rest = path; *rest;) {
    size_t length = strcspn(rest, ".");
    snprintf(name, sizeof name, "%.*s", (int)length, rest);
    at = json_is_array(at) ? json_array_get(at, (size_t)atoi(name)) : json_object_get(at, name);
    rest += length + (rest[length] == '.');
  }
  char *text = at ? json_dumps(at, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(4)) : strdup("(nothing)");
  if (strcmp(text, wanted) != 0) fail_msg("%s is %s, not %s", path, text, wanted);
  free(text);
}

/* The events of a stream that are JSON, as an array. */
static inline json_t *events_of(const char *body) {
  json_t *list = json_array();
  for (const char *at = strstr(body, "data: "); at; at = strstr(at + 1, "data: "))
    if (at[6] == '{') json_array_append_new(list, json_loads(at + 6, JSON_DISABLE_EOF_CHECK, NULL));
  return list;
}

static inline void wait_until(atomic_int *count, int wanted) {
  for (int i = 0; i < 1000 && *count < wanted; i++) client_sleep(0.01);
  assert_true(*count >= wanted);
}

static const int32_t letters[] = {BYTE + 'a', BYTE + 'b', BYTE + 'c', BYTE + 'd'};

static inline size_t make_image(uint8_t level, char *bytes, size_t room) {
  int used = snprintf(bytes, room, "P6 4 4 255\n");
  memset(bytes + used, level, 48);
  return (size_t)used + 48;
}

/* Long enough for a request to come to the engine on a busy machine, too. */
static inline void limit_time(HttpOptions *options) { options->request_seconds = 3; }

#endif
