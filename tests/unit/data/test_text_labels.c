/* Labelled texts: names, columns, classes, parts, rows that are refused by file and line; batches of them. */
#include "data/text/text_labels.c" /* its reader of rows in memory */
#include "data/text/text_loader.h"
#include "text_testing.h"
#include "unit/time_scale.h"
#include <time.h>

static LabelledText *open_set(const char *name, DatasetPart part) {
  LabelledText *set;
  if (text_labels_open(&set, name, NULL, part) != STATUS_OK) fail_msg("%s: %s", name, status_message());
  return set;
}

static void assert_row(const LabelledText *set, int64_t index, const char *text, int32_t label) {
  int32_t found;
  assert_string_equal(text_labels_text(set, index, &found), text);
  assert_int_equal(found, label);
}

static void refused(const char *name, DatasetPart part, Status code, const char *words) {
  LabelledText *set;
  assert_int_equal(text_labels_open(&set, name, NULL, part), code);
  assert_null(set);
  if (!strstr(status_message(), words)) fail_msg("\"%s\" does not say \"%s\"", status_message(), words);
}

static void test_glue(void **state) {
  (void)state;
  text_testing_put("g/CoLA/train.tsv", "gj04\t1\t\tIt \"works.\ngj04\t0\t*\tNot it does.");
  text_testing_pack("g/CoLA/dev.tsv.gz", "x\t0\t*\tBad is.\r\n");
  LabelledText *set = open_set(text_testing_name("cola", "g"), DATASET_TRAIN);
  assert_int_equal(text_labels_count(set), 2);
  assert_row(set, 0, "It \"works.", 1); /* quotes mean nothing in TSV */
  assert_row(set, 1, "Not it does.", 0);
  assert_string_equal(text_labels_names(set)[0], "unacceptable");
  assert_non_null(strstr(text_labels_describe(set), "CoLA train, 2 texts, 2 classes, from "));
  text_labels_close(set);
  set = open_set(text_testing_name("cola", "g/CoLA"), DATASET_TEST);
  assert_int_equal(text_labels_count(set), 1);
  assert_row(set, 0, "Bad is.", 0);
  text_labels_close(set);
  text_testing_put("s/train.tsv", "label\tsentence\n1\tgood \n");
  set = open_set(text_testing_name("sst2", "s"), DATASET_TRAIN); /* columns by name */
  assert_row(set, 0, "good ", 1);
  assert_string_equal(text_labels_names(set)[1], "positive");
  text_labels_close(set);
  refused(text_testing_name("sst2", "s"), DATASET_TEST, STATUS_NOT_FOUND, "dev.tsv");
  setenv("ASTRA_HOME", testing_path("home"), 1);
  refused("cola", DATASET_TEST, STATUS_NOT_FOUND, "astra-data get cola");
}

static void assert_pair(const LabelledText *set, int64_t index, const char *text, const char *pair, int32_t label) {
  assert_row(set, index, text, label);
  assert_string_equal(text_labels_pair(set, index), pair);
}

static void test_pairs(void **state) {
  (void)state;
  text_testing_put("q/QQP/train.tsv", "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n"
                                      "5\t1\t2\tHow \"old\"?\tWhat age?\t1\n"
                                      "6\t3\t4\tcut in\n two\tx\t0\n" /* two rows with too few columns, as GLUE's file has them */
                                      "7\t5\t6\tWhy?\t\t0\n8\t5\t6\t\t\t0\n");
  LabelledText *set = open_set(text_testing_name("qqp", "q"), DATASET_TRAIN);
  assert_int_equal(text_labels_count(set), 2);
  assert_pair(set, 0, "How \"old\"?", "What age?", 1);
  assert_pair(set, 1, "Why?", "", 0); /* one of two texts may be empty */
  assert_string_equal(text_labels_names(set)[1], "duplicate");
  assert_non_null(strstr(text_labels_describe(set), "QQP train, 2 pairs of texts, 2 classes, from "));
  assert_non_null(strstr(text_labels_describe(set), "(3 incomplete rows left out)"));
  text_labels_close(set);
  text_testing_put("m/dev.tsv", "\xef\xbb\xbfQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\n1\t7\t8\tHe ran .\tHe did run .\r\n");
  set = open_set(text_testing_name("mrpc", "m"), DATASET_TEST);
  assert_pair(set, 0, "He ran .", "He did run .", 1);
  text_labels_close(set);
  text_testing_put("pairs.tsv", "a\tb\tlabel\none\ttwo\tyes\nthree\tfour\tno\n");
  char name[700];
  snprintf(name, sizeof name, "%s:text=a:pair=b:test=%s", text_testing_name("tsv", "pairs.tsv"), testing_path("pairs.tsv"));
  set = open_set(name, DATASET_TRAIN);
  assert_pair(set, 1, "three", "four", 0);
  text_labels_close(set);
  snprintf(name, sizeof name, "%s:text=a:pair=c", text_testing_name("tsv", "pairs.tsv"));
  refused(name, DATASET_TRAIN, STATUS_BAD_FILE, "no column \"c\" in the header");
  setenv("ASTRA_HOME", testing_path("home"), 1);
  refused("qqp", DATASET_TEST, STATUS_NOT_FOUND, "as qqp:DIR");
  text_testing_put("s/dev.tsv", "label\tsentence\n1\tgood \n");
  set = open_set(text_testing_name("sst2", "s"), DATASET_TEST);
  assert_null(text_labels_pair(set, 0));
  text_labels_close(set);
}

static void assert_ids(const TextEncoder *encoder, const char *text, const char *pair, int64_t context, const char *expected, bool cuts) {
  TokenList ids = {0};
  bool cut;
  assert_ok(token_list_add(&ids, 1)); /* of another text */
  assert_ok(text_loader_sample(encoder, text, pair, context, &ids, &cut));
  assert_int_equal(cut, cuts);
  if (ids.count - 1 != strlen(expected)) fail_msg("%d tokens, expected %s", (int)ids.count - 1, expected);
  for (size_t i = 0; i < strlen(expected); i++) assert_int_equal(ids.ids[i + 1], expected[i]);
  token_list_release(&ids);
}

/* One token a byte; ^ begins a text, | stands between two. */
static void test_samples(void **state) {
  (void)state;
  int calls;
  TextEncoder encoder = text_testing_encoder(&calls);
  encoder.begin = '^';
  encoder.separator = '|';
  assert_ids(&encoder, "abc", NULL, 4, "^abc", false);
  assert_ids(&encoder, "abcd", NULL, 4, "^abc", true);
  assert_ids(&encoder, "abc", "de", 7, "^abc|de", false);
  assert_ids(&encoder, "abcdef", "gh", 7, "^abc|gh", true); /* the longer one is cut */
  assert_ids(&encoder, "ab", "cdefgh", 7, "^ab|cde", true);
  assert_ids(&encoder, "abcdef", "ghijkl", 7, "^abc|gh", true);
  assert_ids(&encoder, "abcdef", "", 5, "^abc|", true);
  assert_ids(&encoder, "", "abcdef", 5, "^|abc", true);
  assert_ids(&encoder, "abc", "def", 3, "^ab", true);
  encoder.begin = encoder.separator = -1;
  assert_ids(&encoder, "ab", "cd", 9, "ab\ncd", false);
  for (int64_t context = 1; context < 16; context++) { /* never more than there is room for */
    TokenList ids = {0};
    bool cut;
    assert_ok(text_loader_sample(&encoder, "abcdefg", "hijkl", context, &ids, &cut));
    assert_int_equal(ids.count, context < 13 ? context : 13);
    assert_int_equal(cut, context < 13);
    token_list_release(&ids);
  }
}

static void test_agnews(void **state) {
  (void)state;
  text_testing_put("a/test.csv", "\"3\",\"One\",\"says \"\"two\"\", and\nmore\"\n\"1\",\"T\",\"\"\n2,b,c\n2,d,e\n4,f,g\n3,h,i\n");
  LabelledText *set = open_set(text_testing_name("agnews", "a"), DATASET_TRAIN);
  assert_int_equal(text_labels_count(set), 5);
  assert_row(set, 0, "One says \"two\", and\nmore", 2);
  assert_row(set, 1, "T", 0);
  assert_row(set, 4, "h i", 2);
  assert_string_equal(text_labels_names(set)[3], "Sci/Tech");
  assert_non_null(strstr(text_labels_describe(set), "no train.csv: without every fifth row"));
  text_labels_close(set);
  text_testing_put("a/classes.txt", "Welt\r\nSport\nGeld\nTechnik\n");
  set = open_set(text_testing_name("agnews", "a"), DATASET_TEST);
  assert_int_equal(text_labels_count(set), 1);
  assert_row(set, 0, "f g", 3);
  assert_string_equal(text_labels_names(set)[0], "Welt");
  text_labels_close(set);
  text_testing_put("a/train.csv", "1,only,one\n");
  set = open_set(text_testing_name("agnews", "a"), DATASET_TRAIN);
  assert_int_equal(text_labels_count(set), 1);
  text_labels_close(set);
  set = open_set(text_testing_name("agnews", "a"), DATASET_TEST);
  assert_int_equal(text_labels_count(set), 6);
  text_labels_close(set);
  text_testing_put("a/test.csv", "1,a,b\n5,c,d\n");
  refused(text_testing_name("agnews", "a"), DATASET_TEST, STATUS_BAD_FILE, "test.csv, line 2: label \"5\"");
  text_testing_put("a/classes.txt", "Welt\nSport\n");
  refused(text_testing_name("agnews", "a"), DATASET_TEST, STATUS_BAD_FILE, "2 class names; the set has 4");
}

static void test_options(void **state) {
  (void)state;
  char name[700];
  text_testing_put("f:1/rows.tsv", "10\tten\n9\tnine\n9\tagain\n-1\tx\n-1\tlast\n");
  snprintf(name, sizeof name, "%s:text=2:label=1", text_testing_name("tsv", "f:1/rows.tsv"));
  LabelledText *set = open_set(name, DATASET_TRAIN);
  assert_int_equal(text_labels_count(set), 4);
  assert_int_equal(text_labels_classes(set), 3); /* of the whole file, by value: -1, 9, 10 */
  assert_row(set, 0, "ten", 2);
  assert_row(set, 1, "nine", 1);
  text_labels_close(set);
  set = open_set(name, DATASET_TEST);
  assert_row(set, 0, "last", 0);
  text_labels_close(set);
  text_testing_put("r.csv", "id,body,kind\n1,\"a, b\",good\n2,c,bad\n");
  text_testing_put("t.csv", "id,body,kind\n3,d,good\n");
  snprintf(name, sizeof name, "%s:text=body+id:label=kind:test=%s", text_testing_name("csv", "r.csv"), testing_path("t.csv"));
  set = open_set(name, DATASET_TRAIN);
  assert_int_equal(text_labels_count(set), 2);
  assert_row(set, 0, "a, b 1", 1);
  text_labels_close(set);
  set = open_set(name, DATASET_TEST);
  assert_row(set, 0, "d 3", 1);
  assert_int_equal(text_labels_classes(set), 2);
  text_labels_close(set);
  text_testing_put("t.csv", "id,body,kind\n3,d,unknown\n");
  refused(name, DATASET_TEST, STATUS_BAD_FILE, "t.csv, line 2: label \"unknown\"");
  text_testing_put("n.tsv", "9\ta\n10\tb\n-1\tc\n");
  snprintf(name, sizeof name, "%s:text=2:label=1:test=%s", text_testing_name("tsv", "n.tsv"), testing_path("nt.tsv"));
  static const char *const other_labels[] = {"0", "-2", "11", "09", "+9", "9.0", "nine", "10000000000000000000"};
  for (size_t i = 0; i < sizeof other_labels / sizeof *other_labels; i++) { /* also what has the value of a class */
    char row[64];
    snprintf(row, sizeof row, "10\tb\n%s\td\n", other_labels[i]);
    text_testing_put("nt.tsv", row);
    refused(name, DATASET_TEST, STATUS_BAD_FILE, "nt.tsv, line 2: label");
  }
  text_testing_put("h.tsv", "1\t2\nno\tyes\nno\tyes\nno\tno\nno\tyes\nno\tno\n");
  snprintf(name, sizeof name, "%s:text=1:label=2:header=yes", text_testing_name("tsv", "h.tsv"));
  set = open_set(name, DATASET_TRAIN);
  assert_int_equal(text_labels_count(set), 4);
  text_labels_close(set);
}

/* They belong to no label; to a text they do. */
static void test_blanks_around_labels(void **state) {
  (void)state;
  char name[700];
  text_testing_put("blanks.tsv", "ten\t10\nhello\t1 \n again \t 1\r\n");
  text_testing_put("blanks.csv", "ten,10\nhello,\"1 \"\nagain, 1\n");
  for (int quoted = 0; quoted < 2; quoted++) {
    const char *file = quoted ? "blanks.csv" : "blanks.tsv";
    snprintf(name, sizeof name, "%s:text=1:label=2:test=%s", text_testing_name(quoted ? "csv" : "tsv", file), testing_path(file));
    LabelledText *set = open_set(name, DATASET_TRAIN);
    assert_int_equal(text_labels_classes(set), 2); /* by value: 1, 10 */
    assert_row(set, 0, "ten", 1);
    assert_row(set, 1, "hello", 0);
    assert_row(set, 2, quoted ? "again" : " again ", 0);
    text_labels_close(set);
  }
}

/* Every fifth row is for testing: of classes that take turns, all of one. */
static void test_classes_that_take_turns(void **state) {
  (void)state;
  char name[700], rows[256] = "";
  for (int i = 0; i < 20; i++) sprintf(rows + strlen(rows), "%c\ttext\n", "abcde"[i % 5]);
  text_testing_put("turns.tsv", rows);
  snprintf(name, sizeof name, "%s:text=2:label=1", text_testing_name("tsv", "turns.tsv"));
  refused(name, DATASET_TRAIN, STATUS_BAD_FILE, "no text of the class \"e\" is left to learn from");
  assert_non_null(strstr(status_message(), "test=FILE"));
  text_labels_close(open_set(name, DATASET_TEST)); /* may be evaluated all the same */
  snprintf(name, sizeof name, "%s:text=2:label=1:test=%s", text_testing_name("tsv", "turns.tsv"), testing_path("turns.tsv"));
  text_labels_close(open_set(name, DATASET_TRAIN));
}

static void test_many_numeric_classes(void **state) {
  (void)state;
  enum { ROWS = 50000, ROW = 32 };
  char name[700], *rows = malloc(ROWS * ROW);
  size_t used = 0;
  assert_non_null(rows);
  for (int i = 0; i < ROWS; i++) used += (size_t)snprintf(rows + used, ROW, "%d\ttext\n", i);
  text_testing_put("numbers.tsv", rows);
  snprintf(name, sizeof name, "%s:text=2:label=1", text_testing_name("tsv", "numbers.tsv"));
  clock_t from = clock();
  refused(name, DATASET_TRAIN, STATUS_BAD_FILE, "no text of the class \"4\" is left to learn from");
  assert_true((double)(clock() - from) < 2 * time_scale() * CLOCKS_PER_SEC);
  free(rows);
}

static void test_names(void **state) {
  (void)state;
  assert_true(text_labels_knows("cola:x") && text_labels_knows("agnews") && text_labels_knows("tsv:x"));
  assert_true(text_labels_knows("csv:x:text=1"));
  assert_false(text_labels_knows("csv:x")); /* a list of images */
  assert_false(text_labels_knows("colab:x"));
  for (int i = 0; i < SETS; i++) {
    char words[32];
    snprintf(words, sizeof words, "%s:DIR, ", sets[i].name);
    refused("colab:x", DATASET_TRAIN, STATUS_BAD_VALUE, words);
    snprintf(words, sizeof words, " %s, ", sets[i].name);
    assert_int_equal(dataset_check_name("nosuch", NULL), STATUS_BAD_USAGE);
    if (!strstr(status_message(), words)) fail_msg("\"%s\" does not name %s", status_message(), sets[i].name);
  }
  refused("tsv:", DATASET_TRAIN, STATUS_BAD_USAGE, "a file is expected");
  refused("tsv:x:text=", DATASET_TRAIN, STATUS_BAD_USAGE, "text=");
  refused("tsv:x:text=1+2+3+4+5", DATASET_TRAIN, STATUS_BAD_USAGE, "1 to 4 columns");
  refused("tsv:x:header=maybe", DATASET_TRAIN, STATUS_BAD_USAGE, "yes and no");
  refused("tsv:x:heading=no", DATASET_TRAIN, STATUS_BAD_USAGE, "If :heading=no is to be an option: behind a file of texts text=");
  Dataset *images;
  assert_fails(dataset_open(&images, "csv:x:label=2", NULL, DATASET_TRAIN), STATUS_BAD_USAGE, "behind a list of images none");
}

static void test_bad_rows(void **state) {
  (void)state;
  static const struct {
    const char *rows, *options, *says;
  } cases[] = {{"a\t1\nb\n", ":text=1:label=2", "f.tsv, line 2: a row of 1 columns; the label is expected in column 2"},
               {"a\t1\n\nb\t\n", ":text=1:label=2", "f.tsv, line 3: an empty label"},
               {"a\t1\nb\t \n", ":text=1:label=2", "f.tsv, line 2: an empty label"},
               {"\t1\n", ":text=1:label=2", "f.tsv, line 1: an empty text"},
               {"body\tlabel\nx\t1\n", ":text=text", "f.tsv, line 1: no column \"text\" in the header; it has body, label"},
               {"text\tclass\nx\t1\n", "", "no column \"label\" in the header; it has text, class"},
               {"text\tlabel\n", "", "f.tsv: no rows"},
               {"", ":text=1:label=2", "f.tsv: no rows"},
               {"a\t1\n", ":text=0:label=2", "counted from 1"},
               {"a\t1\n", ":text=text:label=2:header=no", "needs a header"},
               {"a\t1\n", ":text=1:label=2", "too few rows for a test part"}};
  char name[700];
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    text_testing_put("f.tsv", cases[i].rows);
    snprintf(name, sizeof name, "%s%s", text_testing_name("tsv", "f.tsv"), cases[i].options);
    LabelledText *set;
    assert_int_not_equal(text_labels_open(&set, name, NULL, DATASET_TEST), STATUS_OK);
    if (!strstr(status_message(), cases[i].says)) fail_msg("\"%s\" does not say \"%s\"", status_message(), cases[i].says);
  }
  testing_write("f.tsv", "a\t1\nb\0\t2\n", 9);
  snprintf(name, sizeof name, "%s:text=1:label=2", text_testing_name("tsv", "f.tsv"));
  refused(name, DATASET_TRAIN, STATUS_BAD_FILE, "f.tsv, line 2: a NUL byte");
  text_testing_put("q.csv", "1,\"fine\"\n2,\"open\n");
  snprintf(name, sizeof name, "%s:text=2:label=1", text_testing_name("csv", "q.csv"));
  refused(name, DATASET_TRAIN, STATUS_BAD_FILE, "q.csv, line 2: malformed CSV (a quote is not closed)");
}

/* ---- Batches ---- */

/* A cell without an end, which took seconds and twice its size: refused as soon as it is longer than any that makes sense. */
static void test_endless_cells(void **state) {
  (void)state;
  enum { BYTES = 100000000 };
  static const char *const heads[] = {"label,text\n1,\"", "label,text\n1,", "label\ttext\n1\t"};
  char *text = malloc(BYTES);
  assert_non_null(text);
  memset(text, 'x', BYTES);
  for (int kind = 0; kind < 3; kind++) {
    TextTable table;
    const TextTableFormat format = {.header = true, .quoted = kind < 2, .texts = {"text"}, .text_count = 1, .label = "label"};
    memcpy(text, heads[kind], strlen(heads[kind]));
    const double seconds = (double)clock() / CLOCKS_PER_SEC, max = time_scale();
    assert_fails(text_table_parse(&table, text, BYTES, &format, "t"), STATUS_BAD_FILE, "line 2: a field of more than 1048576 bytes");
    assert_true((double)clock() / CLOCKS_PER_SEC - seconds < max);
    text_table_release(&table);
    memset(text, 'x', 32);
  }
  free(text);
}

/* Row i has 1 + i % 9 letters; a class has `run` rows, one behind the other, then another one has. */
static void put_rows(const char *relative, int rows, int run) {
  char text[8192] = "";
  for (int i = 0; i < rows; i++) sprintf(text + strlen(text), "%.*s\t%d\n", 1 + i % 9, "abcdefghi", i / run % 3);
  text_testing_put(relative, text);
}

static TextLoader *open_runs(const TextLoaderOptions *options, int rows, int run, int32_t begin) {
  char name[700];
  int calls;
  TextEncoder encoder = text_testing_encoder(&calls);
  TextLoader *batches;
  encoder.begin = begin;
  put_rows("rows.tsv", rows, run);
  snprintf(name, sizeof name, "%s:text=1:label=2:test=x", text_testing_name("tsv", "rows.tsv"));
  LabelledText *set = open_set(name, DATASET_TRAIN);
  assert_ok(text_loader_labelled(&batches, set, &encoder, options));
  text_labels_close(set);
  return batches;
}

static TextLoader *open_batches(const TextLoaderOptions *options, int rows, int32_t begin) { return open_runs(options, rows, 1, begin); }

static void test_batches_are_padded(void **state) {
  (void)state;
  TextLoader *batches = open_batches(&(TextLoaderOptions){.context = 6, .batch = 4}, 10, TEXT_TESTING_BEGIN);
  TextBatch batch;
  assert_int_equal(text_loader_facts(batches)->steps, 3);
  assert_int_equal(text_loader_facts(batches)->width, 6);
  assert_int_equal(text_loader_facts(batches)->cut, 4); /* texts of 6 to 9 letters and a beginning */
  assert_int_equal(text_loader_tokens(batches, 6), 2 + 3 + 4 + 5 + 5 * 6 + 2);
  assert_int_equal(text_loader_tokens(batches, 3), 2 + 8 * 3 + 2);
  for (int step = 0, text = 0; step < 3; step++) {
    text_loader_next(batches, &batch);
    assert_int_equal(batch.count, step == 2 ? 2 : 4);
    assert_int_equal(batch.last, step == 2);
    for (int row = 0; row < batch.count; row++, text++) {
      int letters = 1 + text % 9, length = letters + 1 < 6 ? letters + 1 : 6;
      assert_int_equal(batch.lengths[row], length);
      assert_int_equal(batch.labels[row], text % 3);
      assert_int_equal(batch.ids[row * 6], TEXT_TESTING_BEGIN);
      for (int i = 1; i < 6; i++) assert_int_equal(batch.ids[row * 6 + i], i < length ? 'a' + i - 1 : 0);
    }
  }
  text_loader_free(batches);
  batches = open_batches(&(TextLoaderOptions){.context = 100, .batch = 4, .drop_last = true}, 5, -1);
  assert_int_equal(text_loader_facts(batches)->width, 5);
  assert_int_equal(text_loader_facts(batches)->steps, 1);
  text_loader_free(batches);
}

static uint64_t sum_batch(TextLoader *batches) {
  TextBatch batch;
  text_loader_next(batches, &batch);
  uint64_t sum = (uint64_t)(batch.epoch * 100 + batch.step);
  for (int i = 0; i < batch.count; i++) sum = sum * 31 + (uint64_t)(batch.lengths[i] * 4 + batch.labels[i]);
  return sum;
}

/* 60 rows have 7 of 1 to 6 letters each and 6 of 7 to 9. */
static void test_batches_of_one_length(void **state) {
  (void)state;
  TextLoader *batches = open_batches(&(TextLoaderOptions){.context = 20, .batch = 4, .one_length = true}, 60, -1);
  TextBatch batch;
  assert_int_equal(text_loader_facts(batches)->steps, 18); /* 4 and 3, or 4 and 2, of each */
  for (int epoch = 0; epoch < 2; epoch++)
    for (int length = 1; length <= 9; length++) {
      int row = length - 1;
      for (int left = length <= 6 ? 7 : 6; left > 0; left -= batch.count) {
        text_loader_next(batches, &batch);
        assert_int_equal(batch.count, left < 4 ? left : 4);
        for (int i = 0; i < batch.count; i++, row += 9) {
          assert_int_equal(batch.lengths[i], length);
          assert_int_equal(batch.labels[i], row % 3); /* equal ones stand as in the file */
        }
      }
    }
  text_loader_free(batches);
}

/* A part of a file in the order of its classes has texts of all of them, the same each time. */
static void test_a_part_has_all_classes(void **state) {
  (void)state;
  uint64_t sums[2] = {0};
  int seen[3] = {0};
  for (int again = 0; again < 2; again++) {
    TextLoader *batches =
        open_runs(&(TextLoaderOptions){.context = 20, .batch = 4, .max = 15, .one_length = true, .seed = (uint64_t)again}, 60, 20, -1);
    TextBatch batch = {0};
    assert_int_equal(text_loader_facts(batches)->samples, 15);
    while (!batch.last) {
      text_loader_next(batches, &batch);
      for (int i = 0; i < batch.count; i++) sums[again] = sums[again] * 31 + (uint64_t)(batch.lengths[i] * 4 + batch.labels[i]);
      for (int i = 0; i < batch.count; i++) seen[batch.labels[i]]++;
    }
    text_loader_free(batches);
  }
  assert_true(sums[0] == sums[1]);
  for (int label = 0; label < 3; label++) assert_in_range(seen[label], 2, 24);
  assert_int_equal(seen[0] + seen[1] + seen[2], 30);
}

/* Padding of an epoch; every row comes once. */
static int64_t padded_by(int pool) {
  TextLoaderOptions options = {.context = 20, .batch = 7, .shuffle = true, .pool = pool, .seed = 3};
  TextLoader *batches = open_batches(&options, 60, -1);
  TextBatch batch;
  int64_t padding = 0, longest[9] = {0};
  int counts[10] = {0};
  do {
    text_loader_next(batches, &batch);
    for (int i = 0; i < batch.count; i++) {
      if (batch.lengths[i] > longest[batch.step]) longest[batch.step] = batch.lengths[i];
      counts[batch.lengths[i]]++;
    }
    for (int i = 0; i < batch.count; i++) padding += longest[batch.step] - batch.lengths[i];
    assert_int_equal(batch.count, batch.last ? 4 : 7);
  } while (!batch.last);
  for (int length = 1; length <= 9; length++) assert_int_equal(counts[length], length <= 6 ? 7 : 6);
  if (pool == 8) { /* one pool of all whole batches, which come in any order */
    bool ascending = true;
    for (int step = 1; step < 8; step++) ascending = ascending && longest[step] >= longest[step - 1];
    assert_false(ascending);
  }
  text_loader_free(batches);
  return padding;
}

static void test_pools_are_padded_less(void **state) {
  (void)state;
  assert_true(padded_by(8) < padded_by(3));
  assert_true(padded_by(3) < padded_by(0) * 3 / 4);
}

static void resume_with(int pool) {
  TextLoaderOptions options = {.context = 8, .batch = 7, .shuffle = true, .pool = pool, .seed = 3};
  TextLoader *straight = open_batches(&options, 60, -1);
  int steps = (int)text_loader_facts(straight)->steps;
  for (int epoch = 0; epoch < 2; epoch++) {
    for (int step = 0; step < steps; step++) {
      TextLoader *resumed = open_batches(&options, 60, -1);
      assert_ok(text_loader_seek(resumed, epoch, step));
      assert_true(sum_batch(resumed) == sum_batch(straight));
      text_loader_free(resumed);
    }
  }
  assert_ok(text_loader_seek(straight, 0, steps));
  TextBatch batch;
  text_loader_next(straight, &batch);
  assert_int_equal(batch.epoch, 1);
  assert_int_equal(batch.step, 0);
  assert_fails(text_loader_seek(straight, 0, steps + 1), STATUS_BAD_VALUE, "another set");
  int counts[3] = {0};
  assert_ok(text_loader_seek(straight, 5, 0)); /* each row once, in any order */
  do {
    text_loader_next(straight, &batch);
    for (int i = 0; i < batch.count; i++) counts[batch.labels[i]]++;
  } while (!batch.last);
  for (int i = 0; i < 3; i++) assert_int_equal(counts[i], 20);
  text_loader_free(straight);
}

static void test_batches_resume(void **state) {
  (void)state;
  resume_with(0);
  resume_with(3);
}

static Status encode_nothing(void *context, const char *text, size_t bytes, TokenList *out) {
  (void)context, (void)text, (void)bytes, (void)out;
  return STATUS_OK;
}

static void test_batches_refuse(void **state) {
  (void)state;
  char name[700];
  int calls;
  TextEncoder encoder = text_testing_encoder(&calls);
  TextLoader *batches;
  put_rows("rows.tsv", 5, 1);
  snprintf(name, sizeof name, "%s:text=1:label=2:test=x", text_testing_name("tsv", "rows.tsv"));
  LabelledText *set = open_set(name, DATASET_TRAIN);
  assert_fails(text_loader_labelled(&batches, set, &encoder, &(TextLoaderOptions){.batch = 1}), STATUS_BAD_VALUE, "context of 0");
  assert_fails(text_loader_labelled(&batches, set, &encoder, &(TextLoaderOptions){.context = 4}), STATUS_BAD_VALUE, "batch of 0");
  assert_fails(text_loader_labelled(&batches, set, &encoder, &(TextLoaderOptions){.context = 4, .batch = 6, .drop_last = true}),
               STATUS_BAD_VALUE, "make the batch smaller");
  encoder.vocabulary = 'b';
  assert_fails(text_loader_labelled(&batches, set, &encoder, &(TextLoaderOptions){.context = 4, .batch = 2}), STATUS_BAD_VALUE, "id 98");
  encoder.encode = encode_nothing;
  assert_fails(text_loader_labelled(&batches, set, &encoder, &(TextLoaderOptions){.context = 4, .batch = 2}), STATUS_BAD_VALUE,
               "text 1, \"a\": it has no tokens");
  assert_null(batches);
  text_labels_close(set);
}

static void count_real(const char *prefix, const char *relative, DatasetPart part, int64_t rows, const int64_t *classes) {
  char name[600];
  int64_t counts[4] = {0};
  snprintf(name, sizeof name, "%s:%s", prefix, testing_shared(relative));
  LabelledText *set = open_set(name, part);
  assert_int_equal(text_labels_count(set), rows);
  for (int64_t i = 0; i < rows; i++) {
    int32_t label;
    text_labels_text(set, i, &label);
    counts[label]++;
  }
  for (int64_t i = 0; i < text_labels_classes(set); i++) assert_int_equal(counts[i], classes[i]);
  text_labels_close(set);
}

static void test_real_sets(void **state) {
  (void)state;
  count_real("cola", "data/glue", DATASET_TRAIN, 8551, (int64_t[]){2528, 6023});
  count_real("cola", "data/glue/CoLA", DATASET_TEST, 1043, (int64_t[]){322, 721});
  count_real("sst2", "data/glue", DATASET_TRAIN, 20000, (int64_t[]){8915, 11085});
  count_real("sst2", "data/glue", DATASET_TEST, 872, (int64_t[]){428, 444});
  char name[600];
  LabelledText *set;
  int32_t label;
  snprintf(name, sizeof name, "agnews:%s", testing_shared("data/agnews"));
  set = open_set(name, DATASET_TRAIN);
  assert_int_equal(text_labels_count(set), 6080);
  assert_memory_equal(text_labels_text(set, 0, &label), "Fears for T N pension after talks Unions representing", 53);
  assert_int_equal(label, 2);
  assert_string_equal(text_labels_names(set)[label], "Business");
  text_labels_close(set);
  set = open_set(name, DATASET_TEST);
  assert_int_equal(text_labels_count(set), 1520);
  text_labels_close(set);
}

int main(void) {
#define CASE(name) cmocka_unit_test_setup_teardown(name, testing_make_folder, testing_remove_folder)
  const struct CMUnitTest tests[] = {CASE(test_glue),
                                     CASE(test_pairs),
                                     CASE(test_samples),
                                     CASE(test_agnews),
                                     CASE(test_options),
                                     CASE(test_blanks_around_labels),
                                     CASE(test_names),
                                     CASE(test_bad_rows),
                                     CASE(test_endless_cells),
                                     CASE(test_batches_are_padded),
                                     CASE(test_batches_of_one_length),
                                     CASE(test_a_part_has_all_classes),
                                     CASE(test_classes_that_take_turns),
                                     CASE(test_many_numeric_classes),
                                     CASE(test_pools_are_padded_less),
                                     CASE(test_batches_resume),
                                     CASE(test_batches_refuse),
                                     CASE(test_real_sets)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
