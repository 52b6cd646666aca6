/* CIFAR's binary files through the front of the data sets: every byte of a record, names, and hostile files. */
#include "base/files.h"
#include "data/dataset.h"
#include "data_testing.h"
#include "unit/float_equal.h"

enum { RECORD100 = 3074, RECORD10 = 3073 };

/* Nothing is found by accident: the searched places are in the test's own folder. */
static int set_up(void **state) {
  if (testing_make_folder(state) != 0) return -1;
  setenv("ASTRA_HOME", testing_path("home"), 1);
  setenv("HOME", testing_path("user"), 1);
  return 0;
}

static void fill_record(uint8_t *record, int labels, const uint8_t label[2], int salt) {
  memcpy(record, label, (size_t)labels);
  for (int i = 0; i < 3072; i++) record[labels + i] = (uint8_t)(i * 7 + i / 1024 * 31 + salt);
}

static void assert_record(Dataset *set, int64_t index, const uint8_t *record, int labels) {
  Image image = {0};
  int32_t label;
  assert_ok(dataset_read(set, index, &image, &label));
  assert_int_equal(label, record[labels - 1]);
  assert_int_equal(image.width, 32);
  assert_int_equal(image.height, 32);
  for (int i = 0; i < 3072; i++) assert_int_equal(image.rgb[i], record[labels + i % 3 * 1024 + i / 3]);
  image_release(&image);
}

static void test_cifar100_records(void **state) {
  (void)state;
  uint8_t bytes[3 * RECORD100];
  for (int i = 0; i < 3; i++) fill_record(bytes + i * RECORD100, 2, (uint8_t[]){(uint8_t)(19 - i), (uint8_t)(99 - 40 * i)}, i);
  testing_write("a/cifar100/cifar-100-binary/train.bin", bytes, sizeof bytes);
  Dataset *set;
  assert_ok(dataset_open(&set, "cifar100", testing_path("a"), DATASET_TRAIN));
  assert_int_equal(dataset_count(set), 3);
  assert_int_equal(dataset_classes(set), 100);
  for (int i = 0; i < 3; i++) assert_record(set, i, bytes + i * RECORD100, 2);
  int width, height;
  assert_true(dataset_fixed_size(set, &width, &height) && width == 32 && height == 32);
  double mean[3], deviation[3];
  dataset_mean_std(set, mean, deviation);
  assert_float_equal(mean[0], 0.5071, 1e-9);
  assert_float_equal(deviation[2], 0.2762, 1e-9);
  assert_string_equal(dataset_labels(set)[99], "LABEL_99"); /* no names beside the file */
  assert_non_null(strstr(dataset_describe(set), "CIFAR-100 train, 3 images of 32x32, 100 classes, from "));
  Image image = {0};
  int32_t label;
  assert_fails(dataset_read(set, 3, &image, &label), STATUS_BAD_VALUE, "image 3");
  assert_fails(dataset_read(set, -1, &image, &label), STATUS_BAD_VALUE, "0 to 2");
  dataset_close(set);
}

/* Five files in a row, one label, and the folder given directly. */
static void test_cifar10_records(void **state) {
  (void)state;
  uint8_t bytes[5][2 * RECORD10];
  for (int i = 0; i < 10; i++) fill_record(bytes[i / 2] + i % 2 * RECORD10, 1, (uint8_t[]){(uint8_t)(9 - i), 0}, 3 * i);
  for (int i = 0; i < 5; i++) {
    char name[64];
    snprintf(name, sizeof name, "b/data_batch_%d.bin", i + 1);
    testing_write(name, bytes[i], i == 1 ? RECORD10 : sizeof bytes[i]);
  }
  testing_write("b/batches.meta.txt", "airplane\nautomobile\nbird\ncat\ndeer\ndog\nfrog\nhorse\nship\ntruck\n\n", 62);
  Dataset *set;
  assert_ok(dataset_open(&set, "cifar10", testing_path("b"), DATASET_TRAIN));
  assert_int_equal(dataset_count(set), 9);
  assert_int_equal(dataset_classes(set), 10);
  assert_string_equal(dataset_labels(set)[9], "truck");
  assert_record(set, 1, bytes[0] + RECORD10, 1);
  assert_record(set, 2, bytes[1], 1);
  assert_record(set, 3, bytes[2], 1);
  assert_record(set, 8, bytes[4] + RECORD10, 1);
  dataset_close(set);
  assert_fails(dataset_open(&set, "cifar10", testing_path("b"), DATASET_TEST), STATUS_NOT_FOUND, "test_batch.bin");
}

static void test_hostile_files(void **state) {
  (void)state;
  static uint8_t bytes[2 * RECORD100];
  Dataset *set;
  testing_write("c/test.bin", bytes, 0);
  assert_fails(dataset_open(&set, "cifar100", testing_path("c"), DATASET_TEST), STATUS_BAD_FILE, "test.bin: 0 bytes");
  assert_null(set);
  testing_write("c/test.bin", bytes, sizeof bytes - 1);
  assert_fails(dataset_open(&set, "cifar100", testing_path("c"), DATASET_TEST), STATUS_BAD_FILE, "test.bin: 6147 bytes");
  assert_non_null(strstr(status_message(), "3074"));
  bytes[RECORD100 + 1] = 100;
  testing_write("c/test.bin", bytes, sizeof bytes);
  assert_fails(dataset_open(&set, "cifar100", testing_path("c"), DATASET_TEST), STATUS_BAD_FILE,
               "test.bin: record 1 has the fine label 100");
  assert_non_null(strstr(status_message(), "0 to 99"));
  bytes[RECORD100 + 1] = 99;
  bytes[RECORD100] = 20;
  testing_write("c/test.bin", bytes, sizeof bytes);
  assert_fails(dataset_open(&set, "cifar100", testing_path("c"), DATASET_TEST), STATUS_BAD_FILE, "coarse label 20");
  bytes[RECORD100] = 19;
  testing_write("c/test.bin", bytes, sizeof bytes);
  assert_ok(dataset_open(&set, "cifar100", testing_path("c"), DATASET_TEST));
  dataset_close(set);
  testing_write("c/fine_label_names.txt", "apple\nbear\n", 11);
  assert_fails(dataset_open(&set, "cifar100", testing_path("c"), DATASET_TEST), STATUS_BAD_FILE, "fine_label_names.txt: 2 label names");
}

static void test_not_found(void **state) {
  (void)state;
  Dataset *set;
  assert_fails(dataset_open(&set, "cifar100", testing_path("nowhere"), DATASET_TRAIN), STATUS_BAD_USAGE, "there is no such directory");
  assert_non_null(strstr(status_message(), testing_path("nowhere")));
  assert_ok(files_make_dirs(testing_path("empty")));
  assert_fails(dataset_open(&set, "cifar100", testing_path("empty"), DATASET_TRAIN), STATUS_NOT_FOUND, "astra-data get cifar100");
  assert_non_null(strstr(status_message(), testing_path("empty")));
  assert_non_null(strstr(status_message(), "train.bin"));
  assert_fails(dataset_open(&set, "cifar100", NULL, DATASET_TRAIN), STATUS_NOT_FOUND, "astra-data get cifar100");
  assert_non_null(strstr(status_message(), "--data-dir"));
  assert_fails(dataset_open(&set, "cifar1000", NULL, DATASET_TRAIN), STATUS_BAD_USAGE, "csv:FILE");
  assert_fails(dataset_open(&set, "folder:", NULL, DATASET_TRAIN), STATUS_BAD_USAGE, "folder:");
}

static void assert_balanced(Dataset *set, int each) {
  int counts[100] = {0};
  Image image = {0};
  for (int64_t i = 0; i < dataset_count(set); i++) {
    int32_t label;
    assert_ok(dataset_read(set, i, &image, &label));
    counts[label]++;
  }
  image_release(&image);
  for (int i = 0; i < 100; i++) assert_int_equal(counts[i], each);
}

static void test_bundled_sample(void **state) {
  (void)state;
  Dataset *train, *test;
  assert_ok(dataset_open(&train, "cifar100-sample", NULL, DATASET_TRAIN));
  assert_ok(files_make_dirs(testing_path("none")));
  assert_ok(dataset_open(&test, "cifar100-sample", testing_path("none"), DATASET_TEST));
  assert_int_equal(dataset_count(train), 2000);
  assert_int_equal(dataset_count(test), 500);
  assert_balanced(train, 20);
  assert_balanced(test, 5);
  assert_string_equal(dataset_labels(train)[0], "apple");
  assert_string_equal(dataset_labels(train)[99], "worm");
  dataset_close(train);
  dataset_close(test);
}

/* The eight demo images are the test records that their names say. */
static void test_bundled_images(void **state) {
  (void)state;
  const char *shared = testing_shared("data/cifar100/test.bin");
  char folder[512];
  snprintf(folder, sizeof folder, "%.*s", (int)(strlen(shared) - strlen("/test.bin")), shared);
  Dataset *set;
  assert_ok(dataset_open(&set, "cifar100", folder, DATASET_TEST));
  char **names;
  size_t count;
  assert_ok(files_list("datasets/pictures", &names, &count));
  assert_int_equal(count, 8);
  for (size_t i = 0; i < count; i++) {
    char path[300];
    Image image, record = {0};
    int32_t label;
    snprintf(path, sizeof path, "datasets/pictures/%s", names[i]);
    char *under = strrchr(names[i], '_');
    assert_ok(dataset_read(set, atoi(under + 1), &record, &label));
    *under = 0;
    assert_string_equal(names[i], dataset_labels(set)[label]);
    assert_ok(image_load(&image, path));
    assert_int_equal(image.width, 32);
    assert_memory_equal(image.rgb, record.rgb, 3072);
    image_release(&image);
    image_release(&record);
  }
  files_list_free(names, count);
  dataset_close(set);
}

/* The whole of CIFAR-100: sizes, balance, and the published means and deviations. */
static void test_whole_cifar100(void **state) {
  (void)state;
  const char *file = testing_shared("data/cifar100/train.bin");
  char *bytes, folder[512];
  size_t size;
  snprintf(folder, sizeof folder, "%.*s", (int)(strlen(file) - strlen("/cifar100/train.bin")), file);
  Dataset *set;
  assert_ok(dataset_open(&set, "cifar100", folder, DATASET_TRAIN));
  assert_int_equal(dataset_count(set), 50000);
  assert_ok(files_read(file, (size_t)1 << 28, &bytes, &size));
  for (int64_t i = 0; i < 50000; i += 4999) assert_record(set, i, (const uint8_t *)bytes + i * RECORD100, 2);
  free(bytes);
  double sum[3] = {0}, square[3] = {0}, mean[3], deviation[3];
  Image image = {0};
  int32_t label;
  for (int64_t i = 0; i < 50000; i += 5) {
    assert_ok(dataset_read(set, i, &image, &label));
    for (int k = 0; k < 3072; k++) sum[k % 3] += image.rgb[k] / 255.0, square[k % 3] += image.rgb[k] / 255.0 * image.rgb[k] / 255.0;
  }
  dataset_mean_std(set, mean, deviation);
  for (int c = 0; c < 3; c++) {
    double m = sum[c] / 1024e4, variance = square[c] / 1024e4 - m * m;
    assert_float_equal(m, mean[c], 3e-3);
    assert_float_equal(variance, deviation[c] * deviation[c], 3e-3);
  }
  image_release(&image);
  dataset_close(set);
}

static uint64_t digest_of(const char *name, const char *data_dir, TrainShare share) {
  Dataset *set;
  assert_ok(dataset_open_share(&set, name, data_dir, share));
  const uint64_t digest = dataset_digest(set);
  dataset_close(set);
  return digest;
}

/* Records, their labels and their order count; where the files lie does not. */
static void test_digests(void **state) {
  (void)state;
  const TrainShare all = {0}, held_out = {.of = 1}, learnt = {.without = 1};
  uint8_t bytes[3 * RECORD100];
  for (int i = 0; i < 3; i++) fill_record(bytes + i * RECORD100, 2, (uint8_t[]){1, 7}, i);
  testing_write("d/cifar100/train.bin", bytes, sizeof bytes);
  const uint64_t first = digest_of("cifar100", testing_path("d"), all);
  testing_write("e/train.bin", bytes, sizeof bytes);
  assert_true(digest_of("cifar100", testing_path("e"), all) == first);
  assert_true(digest_of("cifar100", testing_path("e"), held_out) != first);
  assert_true(digest_of("cifar100", testing_path("e"), learnt) != first);
  testing_write("e/train.bin", bytes, 2 * RECORD100);
  assert_true(digest_of("cifar100", testing_path("e"), all) != first);
  const int changed[] = {1, RECORD100 + 1, 2 * RECORD100 + 2, 3 * RECORD100 - 192}; /* labels; a first pixel, one far behind */
  for (int i = 0; i < 4; i++) {
    bytes[changed[i]] ^= 1;
    testing_write("e/train.bin", bytes, sizeof bytes);
    bytes[changed[i]] ^= 1;
    assert_true(digest_of("cifar100", testing_path("e"), all) != first);
  }

  static const char *const lists[] = {"a/1.png,x\nb/2.png,y\n", "c/1.png,x\nb/2.png,y\n", "a/3.png,x\nb/2.png,y\n",
                                      "b/2.png,x\na/1.png,y\n", "a/1.png,x\nb/2.png,y\nb/2.png,y\n"};
  char name[600];
  uint64_t listed = 0;
  for (int i = 0; i < 5; i++) {
    snprintf(name, sizeof name, "csv:%s", testing_write("l/list.csv", lists[i], strlen(lists[i])));
    const uint64_t digest = digest_of(name, NULL, all);
    assert_true(i == 0 || (digest == listed) == (i == 1));
    if (i == 0) listed = digest;
  }
  assert_true(digest_of("synthetic:4x4:2:8", NULL, all) != digest_of("synthetic:4x4:2:9", NULL, all));
  assert_true(digest_of("synthetic:4x4:2:8", NULL, held_out) != digest_of("synthetic:4x4:2:8", NULL, learnt));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_cifar100_records), cmocka_unit_test(test_cifar10_records), cmocka_unit_test(test_hostile_files),
      cmocka_unit_test(test_not_found),        cmocka_unit_test(test_bundled_sample),  cmocka_unit_test(test_bundled_images),
      cmocka_unit_test(test_whole_cifar100),   cmocka_unit_test(test_digests),
  };
  return cmocka_run_group_tests(tests, set_up, testing_remove_folder);
}
