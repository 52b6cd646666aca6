/* What a run writes: the CSV byte for byte, what resuming keeps, and the event file through an independent reader of its format. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/files.h"
#include "train/metrics.c"
#include "unit/remove_tree.h"
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static const char *const columns[] = {"loss", "accuracy"};
static const double gap = (double)NAN;

typedef struct Place {
  char directory[TEMPORARY_PATH], csv[TEMPORARY_PATH + 16], png[TEMPORARY_PATH + 16];
} Place;

static int enter(void **state) {
  Place *place = calloc(1, sizeof *place);
  *state = place;
  if (!place) return -1;
  if (make_temporary_folder(place->directory) != 0) return -1;
  snprintf(place->csv, sizeof place->csv, "%s/metrics.csv", place->directory);
  snprintf(place->png, sizeof place->png, "%s/curves.png", place->directory);
  return 0;
}

static int leave(void **state) {
  Place *place = *state;
  char **names;
  size_t count;
  if (files_list(place->directory, &names, &count) != STATUS_OK) return -1;
  for (size_t i = 0; i < count; i++) {
    char *path = files_join(place->directory, names[i]);
    remove(path);
    free(path);
  }
  files_list_free(names, count);
  const int result = rmdir(place->directory);
  free(place);
  return result;
}

static void assert_file(const char *path, const char *expected) {
  char *text;
  size_t size;
  assert_int_equal(files_read(path, 1 << 20, &text, &size), STATUS_OK);
  assert_string_equal(text, expected);
  free(text);
}

static void write_three_rows(const Place *place) {
  Metrics *metrics;
  assert_int_equal(metrics_open(&metrics, place->directory, columns, 2, -1, false), STATUS_OK);
  assert_int_equal(metrics_row(metrics, 10, 1.5, (double[]){4.60517019, gap}), STATUS_OK);
  assert_int_equal(metrics_row(metrics, 20, 3, (double[]){gap, 0.25}), STATUS_OK);
  assert_int_equal(metrics_row(metrics, 30, 4.25, (double[]){1.0 / 3, 1e-12}), STATUS_OK);
  metrics_close(metrics);
}

static void csv_is_exact(void **state) {
  const Place *place = *state;
  write_three_rows(place);
  assert_file(place->csv, "step,seconds,loss,accuracy\n10,1.5,4.60517019,\n20,3,,0.25\n30,4.25,0.333333333,1e-12\n");
  write_three_rows(place); /* a new run starts over */
  assert_file(place->csv, "step,seconds,loss,accuracy\n10,1.5,4.60517019,\n20,3,,0.25\n30,4.25,0.333333333,1e-12\n");
}

static void rows_are_on_disk_at_once(void **state) {
  const Place *place = *state;
  Metrics *metrics;
  assert_int_equal(metrics_open(&metrics, place->directory, columns, 2, -1, false), STATUS_OK);
  assert_file(place->csv, "step,seconds,loss,accuracy\n");
  assert_int_equal(metrics_row(metrics, 1, 1, (double[]){2, 3}), STATUS_OK);
  assert_file(place->csv, "step,seconds,loss,accuracy\n1,1,2,3\n");
  metrics_close(metrics);
}

static void resume_keeps_what_was_before(void **state) {
  const Place *place = *state;
  Metrics *metrics;
  write_three_rows(place);
  FILE *stream = fopen(place->csv, "ab");
  assert_non_null(stream);
  fputs("40,9,0.1", stream); /* torn by a kill */
  fclose(stream);
  assert_int_equal(metrics_open(&metrics, place->directory, columns, 2, 20, false), STATUS_OK);
  assert_file(place->csv, "step,seconds,loss,accuracy\n10,1.5,4.60517019,\n20,3,,0.25\n");
  assert_int_equal(metrics_row(metrics, 25, 5, (double[]){2, gap}), STATUS_OK);
  assert_file(place->csv, "step,seconds,loss,accuracy\n10,1.5,4.60517019,\n20,3,,0.25\n25,5,2,\n");
  metrics_close(metrics);
  assert_int_equal(metrics_open(&metrics, place->directory, columns, 2, 1000, false), STATUS_OK);
  metrics_close(metrics);
  assert_file(place->csv, "step,seconds,loss,accuracy\n10,1.5,4.60517019,\n20,3,,0.25\n25,5,2,\n");
  assert_int_equal(metrics_open(&metrics, place->directory, columns, 2, 20, true), STATUS_OK); /* an evaluation that is made again */
  metrics_close(metrics);
  assert_file(place->csv, "step,seconds,loss,accuracy\n10,1.5,4.60517019,\n");
  assert_int_equal(metrics_open(&metrics, place->directory, columns, 2, 10, true), STATUS_OK);
  metrics_close(metrics);
  assert_file(place->csv, "step,seconds,loss,accuracy\n10,1.5,4.60517019,\n");
}

static void resume_without_a_file_starts_one(void **state) {
  const Place *place = *state;
  Metrics *metrics;
  assert_int_equal(metrics_open(&metrics, place->directory, columns, 2, 7, false), STATUS_OK);
  metrics_close(metrics);
  assert_file(place->csv, "step,seconds,loss,accuracy\n");
}

static void bad_files_are_named_and_kept(void **state) {
  const Place *place = *state;
  static const char *const bad[] = {
      "",
      "step,seconds,loss\n1,1,2\n",
      "step,seconds,loss,accuracy,more\n",
      "step,seconds,loss,accuracy\n1,1,2\n",
      "step,seconds,loss,accuracy\n1,1,2,3,4\n",
      "step,seconds,loss,accuracy\n1,1,two,3\n",
      "step,seconds,loss,accuracy\n,1,2,3\n",
      "step,seconds,loss,accuracy\n1,1,2,3\n\n",
  };
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    Metrics *metrics;
    assert_int_equal(files_write(place->csv, bad[i], strlen(bad[i])), STATUS_OK);
    assert_int_equal(metrics_open(&metrics, place->directory, columns, 2, 100, false), STATUS_BAD_FILE);
    assert_null(metrics);
    assert_non_null(strstr(status_message(), "metrics.csv"));
    assert_file(place->csv, bad[i]);
  }
}

static void bad_places_and_names_are_refused(void **state) {
  const Place *place = *state;
  Metrics *metrics;
  const char *const comma[] = {"a,b"};
  assert_int_equal(metrics_open(&metrics, place->directory, comma, 1, -1, false), STATUS_BAD_VALUE);
  assert_int_equal(files_write(place->csv, "x", 1), STATUS_OK);
  assert_int_equal(metrics_open(&metrics, place->csv, columns, 2, -1, false), STATUS_IO);
  assert_null(metrics);
}

static void crc_matches_known_vectors(void **state) {
  (void)state;
  uint8_t bytes[32] = {0};
  assert_int_equal(event_file_crc("123456789", 9), 0xE3069283);
  assert_int_equal(event_file_crc("", 0), 0);
  assert_int_equal(event_file_crc(bytes, 32), 0x8A9136AA); /* RFC 3720, B.4 */
  memset(bytes, 0xff, sizeof bytes);
  assert_int_equal(event_file_crc(bytes, 32), 0x62A8AB43);
  for (int i = 0; i < 32; i++) bytes[i] = (uint8_t)i;
  assert_int_equal(event_file_crc(bytes, 32), 0x46DD794E);
}

/* A reader of the format that shares nothing with the writer: a table-driven CRC and a generic walk over protobuf fields. */
typedef struct Reader {
  const uint8_t *at, *end;
} Reader;

typedef struct Field {
  unsigned number, wire;
  uint64_t value; /* wire 0, 1, 5 */
  Reader inside;  /* wire 2 */
} Field;

static uint32_t reader_crc(const uint8_t *data, size_t size) {
  uint32_t table[256], crc = 0xffffffff;
  for (uint32_t i = 0; i < 256; i++) {
    table[i] = i;
    for (int bit = 0; bit < 8; bit++) table[i] = table[i] & 1 ? table[i] >> 1 ^ 0x82F63B78 : table[i] >> 1;
  }
  for (size_t i = 0; i < size; i++) crc = table[(crc ^ data[i]) & 255] ^ crc >> 8;
  crc = ~crc;
  return (crc >> 15 | crc << 17) + 0xa282ead8;
}

static uint64_t read_fixed(Reader *reader, size_t size) {
  uint64_t number = 0;
  assert_true((size_t)(reader->end - reader->at) >= size);
  for (size_t i = 0; i < size; i++) number |= (uint64_t)*reader->at++ << 8 * i;
  return number;
}

static uint64_t read_varint(Reader *reader) {
  uint64_t number = 0;
  for (unsigned shift = 0; shift < 64; shift += 7) {
    const uint64_t byte = read_fixed(reader, 1);
    number |= (byte & 127) << shift;
    if (byte < 128) return number;
  }
  fail_msg("a varint of more than ten bytes");
  return 0;
}

static Reader read_part(Reader *reader, uint64_t size) {
  assert_true((uint64_t)(reader->end - reader->at) >= size);
  const Reader part = {reader->at, reader->at + size};
  reader->at += size;
  return part;
}

static Field read_field(Reader *reader) {
  const uint64_t key = read_varint(reader);
  Field field = {.number = (unsigned)(key >> 3), .wire = (unsigned)(key & 7)};
  if (field.wire == 0)
    field.value = read_varint(reader);
  else if (field.wire == 1)
    field.value = read_fixed(reader, 8);
  else if (field.wire == 5)
    field.value = read_fixed(reader, 4);
  else if (field.wire == 2)
    field.inside = read_part(reader, read_varint(reader));
  else
    fail_msg("wire type %u", field.wire);
  return field;
}

/* An event as text: "step 10 | loss=4.5 | ..." */
static void print_value(Reader value, char *text) {
  char tag[32] = "?";
  float number = 0;
  while (value.at < value.end) {
    const Field field = read_field(&value);
    if (field.number == 1) snprintf(tag, sizeof tag, "%.*s", (int)(field.inside.end - field.inside.at), (const char *)field.inside.at);
    const uint32_t bits = (uint32_t)field.value;
    if (field.number == 2) memcpy(&number, &bits, sizeof number);
    assert_int_equal(field.wire, field.number == 1 ? 2 : 5);
  }
  sprintf(text + strlen(text), " %s=%g", tag, (double)number);
}

static void print_event(Reader event, char *text) {
  while (event.at < event.end) {
    Field field = read_field(&event);
    if (field.number == 1) {
      double seconds;
      memcpy(&seconds, &field.value, sizeof seconds);
      assert_int_equal(field.wire, 1);
      assert_true(seconds > 1.7e9 && seconds < 1e10);
    } else if (field.number == 2)
      sprintf(text + strlen(text), "%lld", (long long)field.value);
    else if (field.number == 3)
      sprintf(text + strlen(text), " %.*s", (int)(field.inside.end - field.inside.at), (const char *)field.inside.at);
    else if (field.number == 7)
      sprintf(text + strlen(text), " session %d", (int)read_field(&field.inside).value);
    else if (field.number == 5)
      while (field.inside.at < field.inside.end) {
        const Field value = read_field(&field.inside);
        assert_int_equal(value.number, 1);
        print_value(value.inside, text);
      }
    else
      fail_msg("field %u of an event", field.number);
  }
  strcat(text, "; ");
}

static void read_events(const char *path, char *text) {
  char *data;
  size_t size;
  assert_int_equal(files_read(path, 1 << 20, &data, &size), STATUS_OK);
  Reader file = {(const uint8_t *)data, (const uint8_t *)data + size};
  while (file.at < file.end) {
    const uint8_t *start = file.at;
    const uint64_t length = read_fixed(&file, 8);
    assert_int_equal(read_fixed(&file, 4), reader_crc(start, 8));
    const Reader event = read_part(&file, length);
    assert_int_equal(read_fixed(&file, 4), reader_crc(event.at, length));
    print_event(event, text);
  }
  free(data);
}

/* All event files of the directory in the order of their names, as TensorBoard reads them. */
static void read_directory(const char *directory, char *text, int files) {
  char **names;
  size_t count;
  assert_int_equal(files_list(directory, &names, &count), STATUS_OK);
  text[0] = 0;
  for (size_t i = 0; i < count; i++) {
    if (strncmp(names[i], "events.out.tfevents.", 20) != 0) continue;
    assert_non_null(strstr(names[i], ".astra"));
    char *path = files_join(directory, names[i]);
    read_events(path, text);
    free(path);
    files--;
  }
  assert_int_equal(files, 0);
  files_list_free(names, count);
}

static void events_decode(void **state) {
  const Place *place = *state;
  char text[1024];
  Metrics *metrics;
  write_three_rows(place);
  read_directory(place->directory, text, 1);
  assert_string_equal(text, "0 brain.Event:2; 10 loss=4.60517; 20 accuracy=0.25; 30 loss=0.333333 accuracy=1e-12; ");
  assert_int_equal(metrics_open(&metrics, place->directory, columns, 2, 20, false), STATUS_OK);
  assert_int_equal(metrics_row(metrics, 5000000000, 5, (double[]){2, 1}), STATUS_OK);
  assert_int_equal(metrics_row(metrics, 5000000001, 5, (double[]){gap, gap}), STATUS_OK);
  metrics_close(metrics);
  read_directory(place->directory, text, 2);
  assert_non_null(strstr(text, "accuracy=1e-12; 0 brain.Event:2; 21 session 1; 5000000000 loss=2 accuracy=1; "));
}

/* A file size limit stands in for the full disk: a row that has no room is kept until there is some, and so is the plot. */
static void full_disk_is_waited_out(void **state) {
  const Place *place = *state;
  Metrics *metrics;
  char text[2000];
  struct rlimit limit, tight = {.rlim_cur = 40};
  assert_int_equal(metrics_open(&metrics, place->directory, columns, 2, -1, false), STATUS_OK);
  assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
  tight.rlim_max = limit.rlim_max;
  signal(SIGXFSZ, SIG_IGN);
  setrlimit(RLIMIT_FSIZE, &tight);
  Status row = metrics_row(metrics, 1, 0.5, (double[]){gap, gap}); /* which fits */
  for (int i = 2; i < 5; i++) row |= metrics_row(metrics, i, 1.0 / 3, (double[]){1.0 / i, 2.0 / i});
  const Status plot = metrics_draw(metrics, "");
  assert_file(place->csv, "step,seconds,loss,accuracy\n1,0.5,,\n"); /* no half line */
  setrlimit(RLIMIT_FSIZE, &limit);
  assert_int_equal(row, STATUS_OK);
  assert_int_equal(plot, STATUS_OK);
  assert_false(files_exists(place->png));
  assert_int_equal(metrics_row(metrics, 5, 1, (double[]){1, gap}), STATUS_OK);
  assert_int_equal(metrics_draw(metrics, ""), STATUS_OK);
  assert_true(files_exists(place->png));
  const char *all = "step,seconds,loss,accuracy\n1,0.5,,\n2,0.333333333,0.5,1\n3,0.333333333,0.333333333,0.666666667\n"
                    "4,0.333333333,0.25,0.5\n5,1,1,\n";
  assert_file(place->csv, all);
  read_directory(place->directory, text, 1);
  assert_string_equal(text,
                      "0 brain.Event:2; 2 loss=0.5 accuracy=1; 3 loss=0.333333 accuracy=0.666667; 4 loss=0.25 accuracy=0.5; 5 loss=1; ");
  setrlimit(RLIMIT_FSIZE, &tight);
  assert_int_equal(metrics_row(metrics, 6, 1, (double[]){1, gap}), STATUS_OK); /* and is still so at the end: that is said */
  metrics_close(metrics);
  setrlimit(RLIMIT_FSIZE, &limit);
  assert_file(place->csv, all);
}

static void curves_are_drawn(void **state) {
  const Place *place = *state;
  Metrics *metrics;
  assert_int_equal(metrics_open(&metrics, place->directory, columns, 2, -1, false), STATUS_OK);
  assert_int_equal(metrics_draw(metrics, "empty"), STATUS_OK);
  assert_true(files_exists(place->png));
  assert_int_equal(metrics_row(metrics, 1, 1, (double[]){2, gap}), STATUS_OK);
  assert_int_equal(metrics_draw(metrics, "one point"), STATUS_OK);
  for (int i = 2; i < 700; i++) assert_int_equal(metrics_row(metrics, i, i, (double[]){1.0 / i, i % 50 ? gap : 0.1}), STATUS_OK);
  assert_int_equal(metrics_draw(metrics, "many"), STATUS_OK);
  char *text;
  size_t size;
  assert_int_equal(files_read(place->png, 1 << 24, &text, &size), STATUS_OK);
  assert_memory_equal(text, "\x89PNG\r\n\x1a\n", 8);
  free(text);
  metrics_close(metrics);
}

#define IN_DIRECTORY(test) cmocka_unit_test_setup_teardown(test, enter, leave)

int main(void) {
  const struct CMUnitTest tests[] = {
      IN_DIRECTORY(csv_is_exact),
      IN_DIRECTORY(rows_are_on_disk_at_once),
      IN_DIRECTORY(resume_keeps_what_was_before),
      IN_DIRECTORY(resume_without_a_file_starts_one),
      IN_DIRECTORY(bad_files_are_named_and_kept),
      IN_DIRECTORY(bad_places_and_names_are_refused),
      cmocka_unit_test(crc_matches_known_vectors),
      IN_DIRECTORY(events_decode),
      IN_DIRECTORY(full_disk_is_waited_out),
      IN_DIRECTORY(curves_are_drawn),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
