/* The container of GGUF files: metadata of every type and tensors are read as they were written, in both versions; every claim of a file is
 * checked: no prefix of a good file is accepted, and each kind of damage is named. */
#include "base/gguf.h"
#include "unit/gguf_writer.h"
#include "unit/remove_tree.h"
#include <cmocka.h>

/* One value of each type, an array of numbers, of strings, of arrays; two tensors. */
static void write_sample(GgufWriter *writer) {
  static const float norm[4] = {1, 2, 3, 4};
  uint8_t blocks[2 * 34];
  gguf_writer_init(writer);
  gguf_add_text(writer, "general.architecture", "llama");
  gguf_put_value(writer, "u8", 0, &(uint8_t){200}, 1);
  gguf_put_value(writer, "i8", 1, &(int8_t){-100}, 1);
  gguf_put_value(writer, "u16", 2, &(uint16_t){60000}, 2);
  gguf_put_value(writer, "i16", 3, &(int16_t){-30000}, 2);
  gguf_add_u32(writer, "u32", 4000000000u);
  gguf_put_value(writer, "i32", 5, &(int32_t){-2000000000}, 4);
  gguf_add_f32(writer, "f32", 0.5f);
  gguf_add_flag(writer, "flag", true);
  gguf_put_value(writer, "u64", 10, &(uint64_t){1ull << 62}, 8);
  gguf_put_value(writer, "i64", 11, &(int64_t){-(1ll << 62)}, 8);
  gguf_put_value(writer, "f64", 12, &(double){0.1}, 8);
  gguf_add_array(writer, "numbers", 5, 3);
  gguf_put(&writer->entries, (int32_t[]){7, -8, 9}, 12);
  gguf_add_array(writer, "words", 8, 3);
  gguf_put_text(&writer->entries, "one", 3);
  gguf_put_text(&writer->entries, "", 0);
  gguf_put_text(&writer->entries, "t\0o", 3);
  gguf_add_array(writer, "nested", 9, 1);
  gguf_put_u32(&writer->entries, 0);
  gguf_put_u64(&writer->entries, 2);
  gguf_put(&writer->entries, "ab", 2);
  gguf_add_array(writer, "floats", 6, 2);
  gguf_put(&writer->entries, (float[]){1.5f, -2.5f}, 8);
  memset(blocks, 3, sizeof blocks);
  gguf_add_tensor(writer, "norm", 0, 1, (int64_t[]){4}, norm, sizeof norm);
  gguf_add_tensor(writer, "matrix", 8, 2, (int64_t[]){32, 2}, blocks, sizeof blocks);
}

static void check_sample(const GgufFile *file) {
  int64_t whole = 0;
  double number = 0;
  bool flag = false;
  GgufText text = {0};
  const GgufEntry *array = NULL;
  const struct {
    const char *key;
    int64_t value;
  } integers[] = {{"u8", 200},         {"i8", -100},         {"u16", 60000},     {"i16", -30000},
                  {"u32", 4000000000}, {"i32", -2000000000}, {"u64", 1ll << 62}, {"i64", -(1ll << 62)}};
  for (size_t i = 0; i < sizeof integers / sizeof *integers; i++) {
    assert_int_equal(gguf_whole(file, integers[i].key, &whole), STATUS_OK);
    assert_true(whole == integers[i].value);
  }
  assert_int_equal(gguf_number(file, "f32", &number), STATUS_OK);
  assert_true(number == 0.5);
  assert_int_equal(gguf_number(file, "f64", &number), STATUS_OK);
  assert_true(number == 0.1);
  assert_int_equal(gguf_number(file, "i8", &number), STATUS_OK);
  assert_true(number == -100);
  assert_int_equal(gguf_flag(file, "flag", &flag), STATUS_OK);
  assert_true(flag);
  assert_int_equal(gguf_text(file, "general.architecture", &text), STATUS_OK);
  assert_true(gguf_text_is(text, "llama") && !gguf_text_is(text, "llam") && !gguf_text_is(text, "llama2"));
  assert_int_equal(gguf_array(file, "numbers", GGUF_I32, &array), STATUS_OK);
  assert_true(array->count == 3 && gguf_integer_at(array, 1) == -8);
  assert_int_equal(gguf_array(file, "floats", GGUF_F32, &array), STATUS_OK);
  assert_true(array->count == 2 && gguf_float_at(array, 1) == -2.5f);
  assert_int_equal(gguf_array(file, "words", GGUF_STRING, &array), STATUS_OK);
  assert_int_equal(array->count, 3);
  const uint8_t *at = array->data;
  assert_true(gguf_text_is(gguf_next_text(&at), "one"));
  assert_int_equal(gguf_next_text(&at).size, 0);
  text = gguf_next_text(&at);
  assert_true(text.size == 3 && memcmp(text.bytes, "t\0o", 3) == 0);
  assert_null(gguf_tensor(file, "nor"));
  assert_null(gguf_entry(file, "nothing"));
  const GgufTensor *norm = gguf_tensor(file, "norm"), *matrix = gguf_tensor(file, "matrix");
  assert_non_null(norm);
  assert_non_null(matrix);
  assert_true(norm->dims == 1 && norm->count == 4 && norm->bytes == 16 && ((const float *)(const void *)norm->data)[3] == 4);
  assert_true(matrix->dims == 2 && matrix->shape[0] == 32 && matrix->shape[1] == 2 && matrix->bytes == 68 && matrix->data[67] == 3);
}

static void everything_is_read(void **state) {
  (void)state;
  for (uint32_t version = 2; version <= 3; version++) {
    GgufWriter writer;
    GgufFile file;
    uint8_t *data;
    size_t size;
    write_sample(&writer);
    writer.version = version;
    gguf_writer_file(&writer, &data, &size);
    assert_int_equal(gguf_parse(&file, data, size, "sample"), STATUS_OK);
    check_sample(&file);
    gguf_close(&file);
    free(data);
    gguf_writer_release(&writer);
  }
}

static void wrong_types_are_named(void **state) {
  (void)state;
  GgufWriter writer;
  GgufFile file;
  uint8_t *data;
  size_t size;
  int64_t whole = 5;
  bool flag = true;
  GgufText text = {"x", 1};
  const GgufEntry *array = NULL;
  write_sample(&writer);
  gguf_put_value(&writer, "huge", 10, &(uint64_t){1ull << 63}, 8);
  gguf_put_value(&writer, "maybe", 7, &(uint8_t){2}, 1);
  gguf_writer_file(&writer, &data, &size);
  assert_int_equal(gguf_parse(&file, data, size, "sample"), STATUS_OK);
  assert_int_equal(gguf_whole(&file, "absent", &whole), STATUS_OK);
  assert_int_equal(whole, 5);
  assert_int_equal(gguf_whole(&file, "f32", &whole), STATUS_BAD_FILE);
  assert_string_equal(status_message(), "sample: the metadata key f32 must hold a whole number");
  assert_int_equal(gguf_whole(&file, "huge", &whole), STATUS_BAD_FILE);
  assert_int_equal(gguf_flag(&file, "maybe", &flag), STATUS_BAD_FILE);
  assert_int_equal(gguf_flag(&file, "u8", &flag), STATUS_BAD_FILE);
  assert_int_equal(gguf_text(&file, "u8", &text), STATUS_BAD_FILE);
  assert_int_equal(gguf_array(&file, "numbers", GGUF_STRING, &array), STATUS_BAD_FILE);
  assert_non_null(strstr(status_message(), "numbers must hold an array of type string"));
  gguf_close(&file);
  free(data);
  gguf_writer_release(&writer);
}

/* In memory of exactly that size, so that a sanitizer sees one byte too many. */
static Status parse_copy(const uint8_t *data, size_t size) {
  uint8_t *copy = malloc(size + !size);
  assert_non_null(copy);
  memcpy(copy, data, size);
  GgufFile file;
  Status status = gguf_parse(&file, copy, size, "sample");
  if (status == STATUS_OK) gguf_close(&file);
  free(copy);
  return status;
}

/* The data of the last tensor end the file, but for padding. */
static void no_prefix_is_accepted(void **state) {
  (void)state;
  GgufWriter writer;
  uint8_t *data;
  size_t size;
  write_sample(&writer);
  gguf_writer_file(&writer, &data, &size);
  for (size_t cut = 0; cut + 28 < size; cut++) {
    assert_int_not_equal(parse_copy(data, cut), STATUS_OK);
    assert_string_not_equal(status_message(), "");
  }
  assert_int_equal(parse_copy(data, size - 28), STATUS_OK);
  free(data);
  gguf_writer_release(&writer);
}

typedef struct Damage {
  const char *after; /* the bytes behind this text are replaced */
  const char *bytes;
  size_t size;
  Status status;
  const char *message;
} Damage;

static void damage_is_named(void **state) {
  (void)state;
  static const Damage list[] = {
      {"", "GGML", 4, STATUS_BAD_FILE, "not a GGUF file"},
      {"GGUF", "\1\0\0\0", 4, STATUS_UNSUPPORTED, "GGUF version 1; versions 2 and 3"},
      {"GGUF", "\0\0\0\3", 4, STATUS_UNSUPPORTED, "big-endian"},
      {"GGUF\3\0\0\0", "\xff\xff\xff\xff\xff\xff\xff\x7f", 8, STATUS_BAD_FILE, "claims 9223372036854775807 tensors"},
      {"GGUF\3\0\0\0\2\0\0\0\0\0\0\0", "\xff\xff\xff\xff\xff\xff\xff\xff", 8, STATUS_BAD_FILE, "metadata entries in a file of"},
      {"general.architecture", "\x0d\0\0\0", 4, STATUS_BAD_FILE, "value of type 13"},
      {"general.architecture\10\0\0\0", "\xff\xff\xff\xff\xff\xff\xff\xff", 8, STATUS_BAD_FILE, "ends within its metadata"},
      {"numbers\11\0\0\0\5\0\0\0", "\0\0\0\0\0\0\0\x40", 8, STATUS_BAD_FILE, "ends within an array"},
      {"words\11\0\0\0\10\0\0\0", "\xff\xff\xff\xff\xff\xff\xff\xff", 8, STATUS_BAD_FILE, "ends within its metadata"},
      {"flag\7\0\0\0\1\3\0\0\0\0\0\0\0", "i64", 3, STATUS_BAD_FILE, "key i64 is given twice"},
      {"norm", "\0\0\0\0", 4, STATUS_BAD_FILE, "tensor norm has 0 dimensions"},
      {"norm", "\5\0\0\0", 4, STATUS_BAD_FILE, "tensor norm has 5 dimensions"},
      {"norm\1\0\0\0", "\0\0\0\0\0\0\0\0", 8, STATUS_BAD_FILE, "tensor norm has a dimension of 0"},
      {"norm\1\0\0\0", "\0\0\0\0\0\0\0\x40", 8, STATUS_BAD_FILE, "tensor norm has a dimension of"},
      {"norm\1\0\0\0", "\0\0\0\0\0\1\0\0", 8, STATUS_BAD_FILE, "tensor matrix begin at 32, expected"},
      {"norm\1\0\0\0\4\0\0\0\0\0\0\0", "\4\0\0\0", 4, STATUS_UNSUPPORTED, "tensor norm is stored as type 4"},
      {"matrix\2\0\0\0", "\x21\0\0\0\0\0\0\0", 8, STATUS_BAD_FILE, "rows of 33 numbers, no multiple of a Q8_0 block's 32"},
      {"matrix\2\0\0\0\x20\0\0\0\0\0\0\0", "\3\0\0\0\0\0\0\0", 8, STATUS_BAD_FILE,
       "data of tensor matrix extends past the end of the file"},
      {"matrix\2\0\0\0\x20\0\0\0\0\0\0\0", "\0\0\0\0\0\0\0\1", 8, STATUS_BAD_FILE, "tensor matrix"},
  };
  /* No text of C has a 0 within: these are the lengths of `after`. */
  static const size_t lengths[] = {0, 4, 4, 8, 16, 20, 24, 15, 13, 17, 4, 4, 8, 8, 8, 16, 10, 18, 18};
  GgufWriter writer;
  uint8_t *data;
  size_t size;
  write_sample(&writer);
  gguf_writer_file(&writer, &data, &size);
  for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
    uint8_t *copy = malloc(size);
    assert_non_null(copy);
    memcpy(copy, data, size);
    size_t at = 0;
    while (at + lengths[i] < size && memcmp(copy + at, list[i].after, lengths[i]) != 0) at++;
    assert_true(at + lengths[i] + list[i].size < size);
    memcpy(copy + at + lengths[i], list[i].bytes, list[i].size);
    assert_int_equal(parse_copy(copy, size), list[i].status);
    if (!strstr(status_message(), list[i].message)) fail_msg("damage %zu: %s", i, status_message());
    free(copy);
  }
  free(data);
  gguf_writer_release(&writer);
}

static void refused(GgufWriter *writer, Status status, const char *message) {
  uint8_t *data;
  size_t size;
  gguf_writer_file(writer, &data, &size);
  assert_int_equal(parse_copy(data, size), status);
  if (!strstr(status_message(), message)) fail_msg("%s", status_message());
  free(data);
  gguf_writer_release(writer);
}

static void more_damage(void **state) {
  (void)state;
  static const char deep[] = "\11\0\0\0\1\0\0\0\0\0\0"; /* one array in an array */
  char name[70] = "";
  GgufWriter writer;
  write_sample(&writer);
  gguf_add_array(&writer, "deep", 9, 1);
  for (int i = 0; i < 6; i++) gguf_put(&writer.entries, deep, 12);
  gguf_put(&writer.entries, "\0\0\0\0\0\0\0\0\0\0\0", 12);
  refused(&writer, STATUS_BAD_FILE, "nested more than 4 deep");
  write_sample(&writer);
  gguf_add_u32(&writer, "general.alignment", 24);
  refused(&writer, STATUS_BAD_FILE, "general.alignment is 24");
  write_sample(&writer);
  gguf_add_tensor(&writer, "norm", 0, 1, (int64_t[]){1}, (float[]){1}, 4);
  refused(&writer, STATUS_BAD_FILE, "tensor norm is described twice");
  write_sample(&writer);
  memset(name, 'a', 65);
  gguf_add_tensor(&writer, name, 0, 1, (int64_t[]){1}, (float[]){1}, 4);
  refused(&writer, STATUS_BAD_FILE, "name has 65 bytes");
}

static void the_alignment_of_the_file_holds(void **state) {
  (void)state;
  GgufWriter writer;
  GgufFile file;
  uint8_t *data;
  size_t size;
  gguf_writer_init(&writer);
  writer.alignment = 256;
  gguf_add_u32(&writer, "general.alignment", 256);
  gguf_add_tensor(&writer, "a", 0, 1, (int64_t[]){1}, (float[]){1}, 4);
  gguf_add_tensor(&writer, "b", 0, 1, (int64_t[]){1}, (float[]){2}, 4);
  gguf_writer_file(&writer, &data, &size);
  assert_int_equal(gguf_parse(&file, data, size, "sample"), STATUS_OK);
  const GgufTensor *a = gguf_tensor(&file, "a"), *b = gguf_tensor(&file, "b");
  assert_true(a && b && b->data - a->data == 256 && (a->data - data) % 256 == 0 && memcmp(b->data, &(float){2}, 4) == 0);
  gguf_close(&file);
  free(data);
  gguf_writer_release(&writer);
}

static void files_are_told_by_name_or_beginning(void **state) {
  (void)state;
  char folder[TEMPORARY_PATH], path[TEMPORARY_PATH + 16];
  GgufWriter writer;
  GgufFile file;
  assert_int_equal(make_temporary_folder(folder), 0);
  write_sample(&writer);
  snprintf(path, sizeof path, "%s/blob", folder);
  assert_true(gguf_writer_save(&writer, path));
  assert_true(gguf_is_file(path));
  assert_int_equal(gguf_open(&file, path), STATUS_OK);
  check_sample(&file);
  assert_int_equal(gguf_tensor(&file, "norm")->data - file.map.data, gguf_tensor(&file, "matrix")->data - file.map.data - 32);
  gguf_close(&file);
  snprintf(path, sizeof path, "%s/empty.gguf", folder);
  fclose(fopen(path, "wb"));
  assert_true(gguf_is_file(path));
  assert_int_equal(gguf_open(&file, path), STATUS_BAD_FILE);
  assert_non_null(strstr(status_message(), "empty.gguf: not a GGUF file"));
  assert_false(gguf_is_file(folder));
  assert_false(gguf_is_file("/nonexistent.gguf"));
  gguf_writer_release(&writer);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(everything_is_read),
                                     cmocka_unit_test(wrong_types_are_named),
                                     cmocka_unit_test(no_prefix_is_accepted),
                                     cmocka_unit_test(damage_is_named),
                                     cmocka_unit_test(more_damage),
                                     cmocka_unit_test(the_alignment_of_the_file_holds),
                                     cmocka_unit_test(files_are_told_by_name_or_beginning)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
