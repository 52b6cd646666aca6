/* CSV manifests: quotes, CRLF, byte order mark, headers, splits, classes, and errors that name file and line. */
#include "data/dataset_files.c" /* its reader of manifests in memory */
#include "data_testing.h"
#include "unit/time_scale.h"
#include <time.h>

static Status parse(Manifest *manifest, const char *text) { return parse_manifest(manifest, text, strlen(text), "list.csv"); }

static void assert_bad(const char *text, const char *says) {
  Manifest manifest;
  assert_fails(parse(&manifest, text), STATUS_BAD_FILE, says);
  assert_non_null(strstr(status_message(), "list.csv"));
  release_manifest(&manifest);
}

static void test_quotes_and_line_ends(void **state) {
  (void)state;
  Manifest manifest;
  assert_ok(parse(&manifest, "\xef\xbb\xbf"
                             "\"a, \"\"b\"\".png\", cat \r\n\r\n\"two\nlines.png\",dog\r\nlast.png,\"big cat\""));
  assert_int_equal(manifest.count, 3);
  assert_string_equal(manifest.rows[0].path, "a, \"b\".png");
  assert_string_equal(manifest.rows[0].label, "cat");
  assert_string_equal(manifest.rows[1].path, "two\nlines.png");
  assert_string_equal(manifest.rows[2].label, "big cat");
  assert_int_equal(manifest.class_count, 3);
  assert_string_equal(manifest.classes[0], "big cat");
  assert_int_equal(class_of(&manifest, "dog"), 2);
  assert_int_equal(manifest.rows[0].split, DATASET_SPLIT_NONE);
  release_manifest(&manifest);
}

/* Else "10 " would be a class beside "10", and no class a number. */
static void test_blanks_around_labels(void **state) {
  (void)state;
  Manifest manifest;
  assert_ok(parse(&manifest, "a.png,\"10 \",\" train\"\nb.png,10,test\nc.png,\t9,train\n"));
  assert_int_equal(manifest.class_count, 2);
  assert_string_equal(manifest.classes[0], "9");
  release_manifest(&manifest);
}

static void test_header_and_splits(void **state) {
  (void)state;
  Manifest manifest;
  assert_ok(parse(&manifest, "Path,Label,split,notes\na,x,train,1\nb,x,TEST,2\nc,y,validation,3\n"));
  assert_int_equal(manifest.count, 3);
  assert_int_equal(manifest.rows[0].split, DATASET_SPLIT_TRAIN);
  assert_int_equal(manifest.rows[1].split, DATASET_SPLIT_TEST);
  assert_int_equal(manifest.rows[2].split, DATASET_SPLIT_VALIDATION);
  release_manifest(&manifest);
}

static void test_numbers_sort_by_value(void **state) {
  (void)state;
  Manifest manifest;
  assert_ok(parse(&manifest, "a,10\nb,9\nc,-3\nd,10\ne,100\n"));
  assert_int_equal(manifest.class_count, 4);
  assert_string_equal(manifest.classes[0], "-3");
  assert_string_equal(manifest.classes[1], "9");
  assert_string_equal(manifest.classes[2], "10");
  assert_int_equal(class_of(&manifest, "100"), 3);
  release_manifest(&manifest);
  assert_ok(parse(&manifest, "a,10\nb,9\nc,x\n")); /* not all are numbers: bytewise */
  assert_string_equal(manifest.classes[0], "10");
  assert_string_equal(manifest.classes[1], "9");
  release_manifest(&manifest);
}

static void test_bad_rows(void **state) {
  (void)state;
  assert_bad("", "no rows");
  assert_bad("path,label\n", "no rows");
  assert_bad("a.png,cat\nb.png\n", "line 2: a row is path,label");
  assert_bad("a.png,cat\r\n,cat\r\n", "line 2");
  assert_bad("a.png,cat\nb.png,\n", "line 2");
  assert_bad("a.png,cat\nb.png,dog\nc.png,\"cat\nd.png,dog", "line 4: malformed CSV (a quote is not closed)");
  assert_bad("a.png,cat\nb.p\"ng,dog\n", "line 2: malformed CSV (a quote is in the middle of a field)");
  assert_bad("a.png,cat,train\nb.png,cat,later\n", "line 2: split \"later\"");
  assert_bad("a.png,cat,train\nb.png,cat\n", "line 2: no split");
  assert_bad("a.png,cat\nb.png,cat,test\n", "line 2: a split");
  Manifest manifest;
  assert_fails(parse_manifest(&manifest, "a.png,c\0t\n", 10, "list.csv"), STATUS_BAD_FILE, "line 1: a NUL byte");
  release_manifest(&manifest);
}

/* A cell without an end, which took seconds and twice its size: refused as soon as it is longer than any that makes sense. */
static void test_endless_cells(void **state) {
  (void)state;
  enum { BYTES = 100000000, MAX = 1 << 20 };
  char *text = malloc(BYTES + 1);
  assert_non_null(text);
  memset(text, 'x', BYTES);
  text[BYTES] = 0;
  for (int quoted = 0; quoted < 2; quoted++) {
    Manifest manifest;
    if (quoted) memcpy(text, "a.png,\"", 7);
    const double seconds = (double)clock() / CLOCKS_PER_SEC, max = time_scale();
    assert_fails(parse_manifest(&manifest, text, BYTES, "list.csv"), STATUS_BAD_FILE, "line 1: a field of more than 1048576 bytes");
    assert_true((double)clock() / CLOCKS_PER_SEC - seconds < max);
    release_manifest(&manifest);
    memcpy(text, "a.png,x", 7);
    text[MAX] = '\n';
    assert_ok(parse_manifest(&manifest, text, MAX + 1, "list.csv"));
    assert_int_equal(strlen(manifest.rows[0].label), MAX - 6);
    release_manifest(&manifest);
    text[MAX] = 'x';
  }
  free(text);
}

static void write_text(const char *relative, const char *text) { testing_write(relative, text, strlen(text)); }

static Status open_csv(Dataset **set, const char *relative, DatasetPart part) {
  char name[600];
  snprintf(name, sizeof name, "csv:%s", testing_path(relative));
  return dataset_open(set, name, NULL, part);
}

/* A first row that names no image is a header in whatever words where the second names one; labels stay numbers, in their order. */
static void test_headers_of_other_words(void **state) {
  (void)state;
  static const char *const headers[] = {"image_id,label", "id,label,split", "img,label", "filename,target", "image_path,class_name"};
  Dataset *set;
  testing_image("o/0.png", 2, 2, 0, 0, 0);
  testing_image("o/img/0.png", 2, 2, 0, 0, 0); /* a folder of a header's name is no image */
  testing_image("o/scan", 2, 2, 0, 0, 0);
  for (size_t i = 0; i < sizeof headers / sizeof *headers; i++) {
    char text[512];
    int used = snprintf(text, sizeof text, "%s\n", headers[i]);
    for (int k = 0; k < 12; k++) used += snprintf(text + used, sizeof text - used, "%d.png,%d%s\n", k, k, i == 1 ? ",train" : "");
    write_text("o/list.csv", text);
    assert_ok(open_csv(&set, "o/list.csv", i == 1 ? DATASET_TRAIN : DATASET_TEST));
    assert_int_equal(dataset_count(set), i == 1 ? 12 : 2);
    assert_int_equal(dataset_classes(set), 12);
    assert_string_equal(dataset_labels(set)[2], "2");
    dataset_close(set);
  }
  /* With one word of a header also where the image of the second row is missing. */
  write_text("o/list.csv", "image_path,label\ngone.jpg,cat\n0.png,cat\n0.png,dog\n0.png,dog\n");
  assert_ok(open_csv(&set, "o/list.csv", DATASET_TRAIN));
  assert_int_equal(dataset_count(set), 4);
  assert_int_equal(dataset_classes(set), 2);
  dataset_close(set);
  static const char *const rows[] = {"scan,cat\n0.png,dog\n", "gone.png,cat\n0.png,dog\n", "gone,cat\nlost,dog\n"};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) { /* no headers */
    write_text("o/list.csv", rows[i]);
    assert_ok(open_csv(&set, "o/list.csv", DATASET_TRAIN));
    assert_int_equal(dataset_classes(set), 2);
    dataset_close(set);
  }
  write_text("o/list.csv", "gone,cat,later\n1.png,dog,train\n");
  assert_fails(open_csv(&set, "o/list.csv", DATASET_TRAIN), STATUS_BAD_FILE, "line 1: split \"later\"");
  write_text("o/list.csv", "gone,cat,later\n");
  assert_fails(open_csv(&set, "o/list.csv", DATASET_TRAIN), STATUS_BAD_FILE, "line 1: split \"later\"");
}

static void test_columns_the_other_way_round(void **state) {
  (void)state;
  Dataset *set;
  testing_image("r/0.png", 2, 2, 0, 0, 0);
  testing_image("r/scan", 2, 2, 0, 0, 0);
  static const char *const headers[] = {"label,path\n", "class_name,image_path\n", ""};
  for (size_t i = 0; i < sizeof headers / sizeof *headers; i++) {
    char text[128];
    snprintf(text, sizeof text, "%scat,0.png\ndog,1.png\n", headers[i]);
    write_text("r/list.csv", text);
    assert_fails(open_csv(&set, "r/list.csv", DATASET_TRAIN), STATUS_BAD_FILE, "the columns are the other way round");
    assert_non_null(strstr(status_message(), i < 2 ? "line 2: \"0.png\"" : "line 1: \"0.png\""));
  }
  write_text("r/list.csv", "scan,like 0.png\n"); /* a label all the same: its image is there */
  assert_ok(open_csv(&set, "r/list.csv", DATASET_TRAIN));
  dataset_close(set);
}

/* Paths are relative to the manifest; an absolute one stands for itself. */
static void test_images(void **state) {
  (void)state;
  testing_image("m/sub/a.png", 3, 2, 11, 0, 0);
  testing_image("elsewhere/b.png", 4, 2, 22, 0, 0);
  char text[1024];
  snprintf(text, sizeof text, "path,label\nsub/a.png,cat\n%s,dog\nmissing.png,cat\n../elsewhere/b.png,cat\nsub/a.png,dog\n",
           testing_path("elsewhere/b.png"));
  write_text("m/list.csv", text);
  Dataset *train, *test;
  assert_ok(open_csv(&train, "m/list.csv", DATASET_TRAIN));
  assert_ok(open_csv(&test, "m/list.csv", DATASET_TEST));
  assert_int_equal(dataset_count(train), 4);
  assert_int_equal(dataset_count(test), 1);
  assert_int_equal(dataset_classes(train), 2);
  Image image = {0};
  int32_t label;
  assert_ok(dataset_read(train, 1, &image, &label));
  assert_true(image.rgb[0] == 22 && image.width == 4 && label == 1);
  assert_fails(dataset_read(train, 2, &image, &label), STATUS_NOT_FOUND, "m/missing.png");
  assert_ok(dataset_read(train, 3, &image, &label));
  assert_true(image.rgb[0] == 22 && label == 0);
  assert_ok(dataset_read(test, 0, &image, &label));
  assert_true(image.rgb[0] == 11 && image.width == 3 && label == 1);
  image_release(&image);
  dataset_close(train);
  dataset_close(test);
}

static void test_parts(void **state) {
  (void)state;
  Dataset *set;
  write_text("p.csv", "a.png,x,train\nb.png,y,train\n");
  assert_ok(open_csv(&set, "p.csv", DATASET_TRAIN));
  assert_int_equal(dataset_count(set), 2);
  assert_non_null(strstr(dataset_describe(set), "manifest train, 2 images, 2 classes"));
  dataset_close(set);
  assert_fails(open_csv(&set, "p.csv", DATASET_TEST), STATUS_BAD_FILE, "no rows for the test part");
  assert_fails(open_csv(&set, "none.csv", DATASET_TEST), STATUS_NOT_FOUND, "none.csv");
  assert_null(set);
}

/* Rows for validation are the test part only where no others are, as of folders. */
static void test_validation_rows(void **state) {
  (void)state;
  Dataset *set;
  write_text("v.csv", "a.png,x,train\nb.png,x,Validation\nc.png,x,val\n");
  assert_ok(open_csv(&set, "v.csv", DATASET_TEST));
  assert_int_equal(dataset_count(set), 2);
  dataset_close(set);
  testing_image("c.png", 2, 2, 77, 0, 0);
  write_text("v.csv", "a.png,x,train\nb.png,x,val\nc.png,x,testing\nd.png,x,valid\n");
  assert_ok(open_csv(&set, "v.csv", DATASET_TEST));
  assert_int_equal(dataset_count(set), 1);
  Image image = {0};
  int32_t label;
  assert_ok(dataset_read(set, 0, &image, &label));
  assert_int_equal(image.rgb[0], 77);
  image_release(&image);
  dataset_close(set);
  assert_ok(open_csv(&set, "v.csv", DATASET_TRAIN));
  assert_int_equal(dataset_count(set), 1);
  dataset_close(set);
  write_text("v.csv", "a.png,x,train\nb.png,y,val\nc.png,x,test\n");
  assert_fails(open_csv(&set, "v.csv", DATASET_TRAIN), STATUS_BAD_FILE, "none of its rows is of the training part");
}

/* Every fifth row is for testing: of classes that take turns, all of one. */
static void test_classes_that_take_turns(void **state) {
  (void)state;
  Dataset *set;
  write_text("turns.csv", "1.png,a\n2.png,b\n3.png,c\n4.png,d\n5.png,e\n6.png,a\n7.png,b\n8.png,c\n9.png,d\n10.png,e\n");
  assert_fails(open_csv(&set, "turns.csv", DATASET_TRAIN), STATUS_BAD_FILE, "no image of the class \"e\" is left to learn from");
  assert_non_null(strstr(status_message(), "third column"));
  assert_ok(open_csv(&set, "turns.csv", DATASET_TEST)); /* may be evaluated all the same */
  assert_true(dataset_is_grouped(set));
  dataset_close(set);
  write_text("split.csv", "1.png,a,train\n2.png,b,test\n3.png,a,test\n");
  assert_fails(open_csv(&set, "split.csv", DATASET_TRAIN), STATUS_BAD_FILE, "none of its rows is of the training part");
}

static void test_many_numeric_classes(void **state) {
  (void)state;
  enum { ROWS = 50000, ROW = 32 };
  char *rows = malloc(ROWS * ROW);
  size_t used = 0;
  Dataset *set;
  assert_non_null(rows);
  for (int i = 0; i < ROWS; i++) used += (size_t)snprintf(rows + used, ROW, "%d.png,%d\n", i, i);
  write_text("numbers.csv", rows);
  clock_t from = clock();
  assert_fails(open_csv(&set, "numbers.csv", DATASET_TRAIN), STATUS_BAD_FILE, "no image of the class \"4\" is left to learn from");
  assert_true((double)(clock() - from) < 2 * time_scale() * CLOCKS_PER_SEC);
  free(rows);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_quotes_and_line_ends),
      cmocka_unit_test(test_blanks_around_labels),
      cmocka_unit_test(test_header_and_splits),
      cmocka_unit_test(test_numbers_sort_by_value),
      cmocka_unit_test(test_bad_rows),
      cmocka_unit_test(test_endless_cells),
      cmocka_unit_test(test_headers_of_other_words),
      cmocka_unit_test(test_columns_the_other_way_round),
      cmocka_unit_test(test_images),
      cmocka_unit_test(test_parts),
      cmocka_unit_test(test_validation_rows),
      cmocka_unit_test(test_classes_that_take_turns),
      cmocka_unit_test(test_many_numeric_classes),
  };
  return cmocka_run_group_tests(tests, testing_make_folder, testing_remove_folder);
}
