/* Records held out for validation: how many of each class, that the rule stays what it is, and that the parts of a data set are what it
 * says. */
#include "base/rng.h"
#include "data/dataset.h"
#include "data/text/text_labels.h"
#include "data_testing.h"

enum { COUNT = 1000, CLASSES = 7 };

static int64_t choose(const int32_t *labels, int64_t wanted, uint8_t held[COUNT], int64_t of_class[CLASSES]) {
  int64_t sum = 0;
  memset(of_class, 0, CLASSES * sizeof *of_class);
  assert_ok(held_out_choose(labels, COUNT, CLASSES, wanted, held));
  for (int i = 0; i < COUNT; i++) {
    assert_true(held[i] <= 1);
    sum += held[i];
    of_class[labels[i]] += held[i];
  }
  return sum;
}

static void classes_give_in_proportion(void **state) {
  (void)state;
  int32_t labels[COUNT];
  uint8_t held[COUNT];
  int64_t of_class[CLASSES], records[CLASSES] = {0};
  for (int i = 0; i < COUNT; i++) records[labels[i] = i % 10 < 4 ? 0 : i % CLASSES]++;
  for (int64_t wanted = 0; wanted <= 900; wanted += 50) {
    assert_int_equal(choose(labels, wanted, held, of_class), wanted);
    for (int c = 0; c < CLASSES; c++) {
      double exact = (double)wanted * (double)records[c] / COUNT;
      assert_true((double)of_class[c] > exact - 1 && (double)of_class[c] < exact + 1);
    }
  }
  assert_int_equal(choose(labels, COUNT - CLASSES, held, of_class), COUNT - CLASSES); /* one of each class is left */
  for (int c = 0; c < CLASSES; c++) assert_int_equal(of_class[c], records[c] - 1);
  assert_fails(held_out_choose(labels, COUNT, CLASSES, COUNT - CLASSES + 1, held), STATUS_BAD_VALUE, "994 of 1000 records cannot");
  assert_fails(held_out_choose(labels, COUNT, CLASSES, COUNT, held), STATUS_BAD_VALUE, "every class keeps one");
}

/* A larger part has the smaller one in it, and neither lies anywhere in particular. */
static void the_choice_is_spread(void **state) {
  (void)state;
  int32_t labels[COUNT];
  uint8_t small[COUNT], large[COUNT];
  int64_t of_class[CLASSES];
  int halves[2] = {0};
  for (int i = 0; i < COUNT; i++) labels[i] = i / 500; /* sorted by class, as folders are */
  choose(labels, 100, small, of_class);
  choose(labels, 300, large, of_class);
  for (int i = 0; i < COUNT; i++) {
    assert_true(large[i] >= small[i]);
    halves[i % 500 / 250] += large[i];
  }
  assert_in_range(halves[0], 120, 180);
}

/* The rule is a promise: figures of different versions must mean the same records. Values by an independent computation of the hash. */
static void the_rule_stays(void **state) {
  (void)state;
  static const int expected[] = {2, 32, 33, 42, 43, 53, 94, 95};
  int32_t labels[100] = {0};
  uint8_t held[100];
  assert_ok(held_out_choose(labels, 100, 1, 8, held));
  for (int i = 0, k = 0; i < 100; i++) {
    bool is_expected = k < 8 && expected[k] == i;
    assert_int_equal(held[i], is_expected);
    k += is_expected;
  }
}

/* Reads all labels of a set, and a sum of each image by which it is known again. */
static int64_t read_all(Dataset *set, uint64_t sums[], int32_t labels[]) {
  Image image = {0};
  for (int64_t i = 0; i < dataset_count(set); i++) {
    assert_ok(dataset_read(set, i, &image, &labels[i]));
    sums[i] = 0;
    for (int k = 0; k < 3 * image.width * image.height; k++) sums[i] = sums[i] * 31 + image.rgb[k];
  }
  image_release(&image);
  return dataset_count(set);
}

static void parts_of_images_add_up(void **state) {
  (void)state;
  static const char name[] = "synthetic:8x8:4:60";
  static uint64_t whole_sums[60], sums[2][60];
  static int32_t whole_labels[60], labels[2][60];
  Dataset *whole, *side[2];
  assert_ok(dataset_open(&whole, name, NULL, DATASET_TRAIN));
  read_all(whole, whole_sums, whole_labels);
  for (int held = 0; held < 2; held++) {
    assert_ok(dataset_open_share(&side[held], name, NULL, held ? (TrainShare){.of = 12} : (TrainShare){.without = 12}));
    assert_int_equal(read_all(side[held], sums[held], labels[held]), held ? 12 : 48);
    assert_int_equal(dataset_classes(side[held]), 4);
    assert_string_equal(dataset_labels(side[held])[3], "stripes_3");
    assert_non_null(strstr(dataset_describe(side[held]), held ? "12 images held out from synthetic train" : "48 images, without"));
  }
  int64_t at[2] = {0};
  int of_class[4] = {0};
  for (int i = 0; i < 60; i++) { /* in their order, each in one of both */
    int from = at[1] < 12 && sums[1][at[1]] == whole_sums[i];
    assert_true(sums[from][at[from]] == whole_sums[i]);
    assert_int_equal(labels[from][at[from]], whole_labels[i]);
    of_class[whole_labels[i]] += from;
    at[from]++;
  }
  for (int c = 0; c < 4; c++) assert_int_equal(of_class[c], 3);
  Dataset *none;
  assert_fails(dataset_open_share(&none, name, NULL, (TrainShare){.of = 57}), STATUS_BAD_VALUE, "synthetic train");
  assert_null(none);
  assert_ok(dataset_open_share(&none, name, NULL, (TrainShare){0}));
  assert_int_equal(dataset_count(none), 60);
  dataset_close(none);
  dataset_close(whole);
  dataset_close(side[0]);
  dataset_close(side[1]);
}

/* Sources that keep their labels apart from the images agree with what reading says. */
static void labels_of_cifar_are_those_of_its_records(void **state) {
  (void)state;
  Dataset *side[2], *whole;
  uint64_t sums[2000];
  int64_t whole_count;
  int32_t labels[2000];
  assert_ok(dataset_open(&whole, "cifar100-sample", NULL, DATASET_TRAIN));
  whole_count = dataset_count(whole);
  int64_t each = whole_count / dataset_classes(whole), wanted = whole_count / 10;
  int of_class[100] = {0};
  for (int held = 0; held < 2; held++)
    assert_ok(
        dataset_open_share(&side[held], "cifar100-sample", NULL, held ? (TrainShare){.of = wanted} : (TrainShare){.without = wanted}));
  assert_in_range(whole_count, 1, 2000);
  assert_int_equal(read_all(side[1], sums, labels), wanted);
  for (int64_t i = 0; i < wanted; i++) of_class[labels[i]]++;
  for (int c = 0; c < 100; c++) assert_in_range(of_class[c], each / 10, each / 10 + 1);
  assert_int_equal(dataset_count(side[0]), whole_count - wanted);
  dataset_close(whole);
  dataset_close(side[0]);
  dataset_close(side[1]);
}

/* Those of a small number held out are among those of a large one: what is learnt from and what is evaluated share nothing, and add up. */
static void a_share_of_those_held_out(void **state) {
  (void)state;
  static const char name[] = "synthetic:8x8:4:60";
  static uint64_t sums[3][60];
  static int32_t labels[60];
  static const TrainShare share[] = {{.of = 20}, {.of = 20, .without = 8}, {.of = 8}};
  int64_t count[3], at = 0, below = 0;
  for (int i = 0; i < 3; i++) {
    Dataset *set;
    assert_ok(dataset_open_share(&set, name, NULL, share[i]));
    count[i] = read_all(set, sums[i], labels);
    if (i == 1) assert_non_null(strstr(dataset_describe(set), "12 images, part of those held out, from synthetic train"));
    dataset_close(set);
  }
  assert_true(count[0] == 20 && count[1] == 12 && count[2] == 8);
  for (int64_t i = 0; i < 20; i++) { /* in their order, each in one of both */
    const bool one = below < 8 && sums[2][below] == sums[0][i];
    assert_true(one || (at < 12 && sums[1][at] == sums[0][i]));
    below += one, at += !one;
  }
  Dataset *none;
  assert_fails(dataset_open_share(&none, name, NULL, (TrainShare){.of = 8, .without = 8}), STATUS_BAD_VALUE, "more than 8 are accepted");
  assert_null(none);
}

static void parts_of_texts_add_up(void **state) {
  (void)state;
  char rows[2000] = "text\tlabel\n", name[TEMPORARY_PATH + 32];
  for (int i = 0; i < 40; i++) sprintf(rows + strlen(rows), "t%d\t%s\n", i, i % 4 ? "yes" : "no");
  testing_write("texts.tsv", rows, strlen(rows));
  testing_write("other.tsv", rows, strlen(rows));
  snprintf(name, sizeof name, "tsv:%s:test=%s/other.tsv", testing_path("texts.tsv"), testing_folder);
  LabelledText *side[2], *none;
  int seen[40] = {0}, of_class[2] = {0};
  for (int held = 0; held < 2; held++) {
    assert_ok(text_labels_open_share(&side[held], name, NULL, held ? (TrainShare){.of = 8} : (TrainShare){.without = 8}));
    assert_int_equal(text_labels_count(side[held]), held ? 8 : 32);
    assert_non_null(strstr(text_labels_describe(side[held]), held ? "8 texts held out from TSV train" : "32 texts, without"));
    for (int64_t i = 0; i < text_labels_count(side[held]); i++) {
      int32_t label;
      int number = atoi(text_labels_text(side[held], i, &label) + 1);
      assert_int_equal(label, number % 4 != 0);
      seen[number]++;
      of_class[label] += held;
    }
    text_labels_close(side[held]);
  }
  for (int i = 0; i < 40; i++) assert_int_equal(seen[i], 1);
  assert_true(of_class[0] == 2 && of_class[1] == 6);
  assert_fails(text_labels_open_share(&none, name, NULL, (TrainShare){.of = 39}), STATUS_BAD_VALUE, "39 of 40 records");
  assert_null(none);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(classes_give_in_proportion),
                                     cmocka_unit_test(the_choice_is_spread),
                                     cmocka_unit_test(the_rule_stays),
                                     cmocka_unit_test(parts_of_images_add_up),
                                     cmocka_unit_test(labels_of_cifar_are_those_of_its_records),
                                     cmocka_unit_test(a_share_of_those_held_out),
                                     cmocka_unit_test(parts_of_texts_add_up)};
  return cmocka_run_group_tests(tests, testing_make_folder, testing_remove_folder);
}
