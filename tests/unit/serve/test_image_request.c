/* /v1/images/classify over real connections, with a scripted engine (fake_engine.h) behind it: answers in batches, images that cannot be
 * read or are too large, and those that take too long. */
#include "base/clock.h"
#include "data/image.h"
#include "serve/image_request.h"
#include "unit/serve/service_fixture.h"

static Answer send_form(Fixture *f, const char *path, const uint8_t *levels, int count) {
  static char body[8192];
  size_t used = 0;
  for (int i = 0; i < count; i++) {
    used += (size_t)sprintf(body + used, "--BB\r\nContent-Disposition: form-data; name=\"image\"; filename=\"%d.ppm\"\r\n\r\n", i);
    if (levels[i])
      used += make_image(levels[i], body + used, sizeof body - used);
    else
      used += (size_t)sprintf(body + used, "none");
    used += (size_t)sprintf(body + used, "\r\n");
  }
  used += (size_t)sprintf(body + used, "--BB\r\nContent-Disposition: form-data; name=\"top\"\r\n\r\n2\r\n--BB--\r\n");
  const char *fields[] = {"Content-Type: multipart/form-data; boundary=BB", NULL};
  return client_ask(f->port, NULL, path, fields, body, used);
}

static void classifies_images(void **state) {
  (void)state;
  Fixture *f = start(letters, 4);
  char bytes[128];
  const char *fields[] = {"Content-Type: image/x-portable-pixmap", NULL};
  size_t size = make_image(10, bytes, sizeof bytes);
  Answer answer = client_ask(f->port, NULL, "/v1/images/classify?top=1&model=pictures", fields, bytes, size);
  json_t *v = parse(&answer, 200);
  check_part(v, "results.0.classes", "[{\"index\":1,\"label\":\"dark\",\"probability\":0.6652}]");
  json_decref(v);
  /* A batch of 250 alone, which ends at one that is none, then 10 and 10. */
  const uint8_t levels[] = {250, 0, 10, 10};
  answer = send_form(f, "/v1/images/classify", levels, 4);
  v = parse(&answer, 200);
  check_part(v, "results.0.classes.0.label", "\"bright\"");
  check_part(v, "results.2.classes.0.label", "\"dark\"");
  check_part(v, "results.3.classes.0.label", "\"dark\"");
  check_part(v, "results.3.name", "\"3.ppm\"");
  assert_int_equal(json_array_size(json_object_get(json_array_get(json_object_get(v, "results"), 3), "classes")), 2);
  assert_true(json_is_string(json_object_get(json_array_get(json_object_get(v, "results"), 1), "error")));
  check_part(v, "usage.images", "3");
  json_decref(v);
  const uint8_t none[] = {0, 0};
  answer = send_form(f, "/v1/images/classify", none, 2);
  json_decref(parse(&answer, 422));
  f->images.failure = "gone";
  answer = client_ask(f->port, NULL, "/v1/images/classify", fields, bytes, size);
  json_decref(parse(&answer, 500));
  answer = client_ask(f->port, NULL, "/v1/images/classify?top=0", fields, bytes, size);
  json_decref(parse(&answer, 400));
  answer = client_ask(f->port, NULL, "/v1/images/classify?model=m", fields, bytes, size);
  json_decref(parse(&answer, 400));
  finish(f);
}

static void *ask_for_images(void *context) {
  Fixture *f = context;
  const uint8_t levels[] = {250, 250, 10, 10, 250};
  Answer *answer = malloc(sizeof *answer);
  *answer = send_form(f, "/v1/images/classify", levels, 5);
  return answer;
}

/* As what_was_let_in_goes_on: the batches behind the first. */
static void all_batches_are_let_in(void **state) {
  (void)state;
  Fixture *f = start(letters, 4);
  pthread_t thread;
  void *answer;
  f->images.queue_max = 1;
  f->images.hold = true;
  pthread_create(&thread, NULL, ask_for_images, f);
  wait_until(&f->images.count, 1);
  f->images.queue_max = 0;
  fake_engine_set(&f->images, false);
  pthread_join(thread, &answer);
  json_t *v = parse(answer, 200);
  check_part(v, "usage.images", "5");
  json_decref(v);
  free(answer);
  finish(f);
}

static void one_thread(HttpOptions *options) {
  options->threads = 1;
  options->max_body = 16 << 20;
  options->bodies = 64 << 20;
}

/* What one image takes of an HTTP thread and of memory is limited, also of a file that is long enough for its pixels. */
static void images_have_a_limit_of_pixels(void **state) {
  (void)state;
  enum { SIDE = 8192, MORE = IMAGE_REQUEST_PIXELS / SIDE + 1, ROOM = 2 << 20 };
  char folder[TEMPORARY_PATH], path[TEMPORARY_PATH + 16];
  const char *fields[] = {"Content-Type: image/png", NULL};
  Fixture *f = start_with(letters, 4, one_thread);
  assert_int_equal(make_temporary_folder(folder), 0);
  snprintf(path, sizeof path, "%s/large.png", folder);
  for (int more = 0; more < 2; more++) {
    Image image = {0};
    char *bytes;
    size_t size;
    assert_int_equal(image_new(&image, SIDE, more ? MORE : MORE - 1), STATUS_OK);
    assert_int_equal(image_save_png(&image, path), STATUS_OK);
    image_release(&image);
    assert_int_equal(files_read(path, ROOM, &bytes, &size), STATUS_OK);
    bytes = realloc(bytes, ROOM);
    memset(bytes + size, 0, ROOM - size); /* behind the end of the PNG */
    Answer answer = client_ask(f->port, NULL, "/v1/images/classify", fields, bytes, ROOM);
    json_t *v = parse(&answer, more ? 422 : 200);
    if (more)
      check_part(v, "error.message",
                 "\"the image: 8192 x 8193 pixels; 1 to 65535 per side and up to 67108864 in all are accepted; make the image smaller\"");
    json_decref(v);
    free(bytes);
  }
  finish(f);
}

/* A large image, or one whose last checksum is wrong, so that it is decoded to its end for nothing; the caller frees it. */
static char *make_large(bool broken, size_t *size) {
  char folder[TEMPORARY_PATH], path[TEMPORARY_PATH + 16];
  Image image = {0};
  char *bytes;
  assert_int_equal(make_temporary_folder(folder), 0);
  snprintf(path, sizeof path, "%s/large.png", folder);
  assert_int_equal(image_new(&image, 4096, 4096), STATUS_OK);
  assert_int_equal(image_save_png(&image, path), STATUS_OK);
  image_release(&image);
  assert_int_equal(files_read(path, 16 << 20, &bytes, size), STATUS_OK);
  if (broken) bytes[*size - 13] ^= 1; /* 12 bytes of IEND behind it */
  return bytes;
}

/* The route of the first request that one HTTP thread is done with. */
static const char *first_done;

static void note_first(void *service, const char *route, int status, double seconds) {
  if (!first_done) first_done = route;
  service_finished(service, route, status, seconds);
}

static void one_thread_in_order(HttpOptions *options) {
  one_thread(options);
  options->finished = note_first;
}

/* Whether a request that comes while a form of large images is worked on is answered before it. */
static bool is_answered_before(bool broken) {
  enum { COUNT = 6 };
  static const char part[] = "--BB\r\nContent-Disposition: form-data; name=\"image\"; filename=\"a.png\"\r\n\r\n", end[] = "--BB--\r\n";
  first_done = NULL;
  Fixture *f = start_with(letters, 4, one_thread_in_order);
  f->service.models[1].images_max = COUNT;
  size_t size, used;
  char *image = make_large(broken, &size), *text = malloc(COUNT * (size + sizeof part + 2) + 512);
  used = (size_t)sprintf(text,
                         "POST /v1/images/classify HTTP/1.1\r\nHost: x\r\nContent-Type: multipart/form-data; boundary=BB\r\n"
                         "Content-Length: %zu\r\n\r\n",
                         COUNT * (sizeof part - 1 + size + 2) + sizeof end - 1);
  for (int i = 0; i < COUNT; i++) {
    used += (size_t)sprintf(text + used, "%s", part);
    memcpy(text + used, image, size);
    used += size;
    used += (size_t)sprintf(text + used, "\r\n");
  }
  used += (size_t)sprintf(text + used, "%s", end);
  int fd = client_connect(f->port, 0);
  for (size_t sent = 0; sent < used;) {
    ssize_t bytes = send(fd, text + sent, used - sent, MSG_NOSIGNAL);
    assert_true(bytes > 0);
    sent += (size_t)bytes;
  }
  client_sleep(0.05);
  Answer answer = client_get(f->port, "/health");
  assert_int_equal(answer.status, 200);
  answer_release(&answer);
  assert_int_equal(recv(fd, text, 12, 0), 12);
  assert_memory_equal(text, broken ? "HTTP/1.1 422" : "HTTP/1.1 200", 12);
  if (!broken) assert_true(f->images.jobs[0].images.count < COUNT); /* all in one batch would be decoded at once */
  close(fd);
  free(image);
  free(text);
  finish(f); /* the thread is over */
  return strcmp(first_done, "/health") == 0;
}

/* Before a batch is full, and where images that cannot be read fill none, the thread has time for other requests. A client that is held up
 * may ask only when the images are done, and does so again. */
static void large_images_leave_time(void **state) {
  (void)state;
  enum { ATTEMPTS = 5 };
  for (int broken = 0; broken < 2; broken++) {
    int attempts = 0;
    while (attempts < ATTEMPTS && !is_answered_before(broken)) attempts++;
    assert_true(attempts < ATTEMPTS);
  }
}

/* An image whose classes do not come, sent before the service drains; what its client reads. */
static void drain_with_an_image(Fixture *f, bool expires, char *text, size_t room) {
  char bytes[128], head[256];
  const size_t size = make_image(10, bytes, sizeof bytes);
  f->images.hold = true;
  int fd = client_connect(f->port, 0);
  snprintf(head, sizeof head,
           "POST /v1/images/classify HTTP/1.1\r\nHost: x\r\nContent-Type: image/x-portable-pixmap\r\nContent-Length: %zu\r\n\r\n", size);
  client_send(fd, head);
  assert_int_equal(send(fd, bytes, size, MSG_NOSIGNAL), (ssize_t)size);
  wait_until(&f->images.count, 1);
  http_drain(f->service.http);
  if (expires) http_expire(f->service.http);
  client_drain(fd, text, room);
  assert_non_null(strstr(text, "503"));
  assert_null(strstr(text, "queue_full"));
  close(fd);
  finish(f);
}

/* Neither a late answer nor the end of the service is a full queue. */
static void late_images_end(void **state) {
  (void)state;
  static char text[1 << 16];
  char bytes[128];
  const char *fields[] = {"Content-Type: image/x-portable-pixmap", NULL};
  size_t size = make_image(10, bytes, sizeof bytes);
  Fixture *f = start_with(letters, 4, limit_time);
  f->images.hold = true;
  Answer answer = client_ask(f->port, NULL, "/v1/images/classify", fields, bytes, size);
  assert_non_null(strstr(answer.head, "Retry-After: 7"));
  json_t *v = parse(&answer, 503);
  check_part(v, "error.code", "null");
  check_part(v, "error.message", "\"the answer was not complete within --request-timeout\"");
  json_decref(v);
  wait_until(&f->images.cancelled, 1);
  finish(f);

  drain_with_an_image(start(letters, 4), true, text, sizeof text);
  assert_non_null(strstr(text, "shutting down"));
  drain_with_an_image(start_with(letters, 4, limit_time), false, text, sizeof text); /* a service that drains gives requests their time */
  assert_non_null(strstr(text, "the answer was not complete within --request-timeout"));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(classifies_images), cmocka_unit_test(all_batches_are_let_in),
                                     cmocka_unit_test(images_have_a_limit_of_pixels), cmocka_unit_test(large_images_leave_time),
                                     cmocka_unit_test(late_images_end)};
  return cmocka_run_group_tests(tests, open_vocabulary, close_vocabulary);
}
