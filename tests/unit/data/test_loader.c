/* Batches: the same whatever the number of workers and after a seek, every record once an epoch, values, broken images, sheets. */
#include "data/augment.h"
#include "data/loader.h"
#include "data_testing.h"
#include "unit/float_equal.h"
#include <math.h>

enum { COUNT = 37, BATCH = 8, STEPS = 5, PIXELS = 3 * 32 * 32 };

/* A CIFAR-100 file of COUNT records; record i has label i and is filled with level 5 * i + 3 but for a gradient in the first row. */
static int set_up(void **state) {
  static uint8_t bytes[COUNT][3074];
  if (testing_make_folder(state) != 0) return -1;
  for (int i = 0; i < COUNT; i++) {
    memset(bytes[i], 5 * i + 3, sizeof bytes[i]);
    bytes[i][0] = 0;
    bytes[i][1] = (uint8_t)i;
    for (int k = 0; k < 32; k++) bytes[i][2 + k] = (uint8_t)(8 * k);
  }
  testing_write("cifar100/train.bin", bytes, sizeof bytes);
  return 0;
}

static Dataset *open_small(void) {
  Dataset *set;
  assert_ok(dataset_open(&set, "cifar100", testing_folder, DATASET_TRAIN));
  return set;
}

static LoaderOptions plain_options(void) {
  return (LoaderOptions){
      .image = 32, .filter = RESIZE_BILINEAR, .mean = {0.5, 0.4, 0.3}, .std = {0.5, 0.25, 0.2}, .batch = BATCH, .workers = 2, .seed = 42};
}

static LoaderOptions training_options(void) {
  LoaderOptions options = plain_options();
  options.augment.kind = AUGMENT_CROP;
  options.shuffle = true;
  return options;
}

/* Steps [0, count) of a run into pixels [count, BATCH, PIXELS] and labels [count, BATCH]; unused places are zero. */
static void record_run(const LoaderOptions *options, int count, float *pixels, int32_t *labels) {
  Dataset *set = open_small();
  Loader *loader;
  assert_ok(loader_new(&loader, set, options));
  memset(pixels, 0, (size_t)count * BATCH * PIXELS * sizeof *pixels);
  memset(labels, 0, (size_t)count * BATCH * sizeof *labels);
  for (int i = 0; i < count; i++) {
    Batch batch;
    assert_ok(loader_next(loader, &batch));
    assert_int_equal(batch.epoch, i / STEPS);
    assert_int_equal(batch.step, i % STEPS);
    assert_int_equal(batch.last, i % STEPS == STEPS - 1);
    assert_int_equal(batch.count, batch.last ? COUNT % BATCH : BATCH);
    memcpy(pixels + (size_t)i * BATCH * PIXELS, batch.pixels, (size_t)batch.count * PIXELS * sizeof *pixels);
    memcpy(labels + (size_t)i * BATCH, batch.labels, (size_t)batch.count * sizeof *labels);
  }
  loader_free(loader);
  dataset_close(set);
}

enum { RUN = 3 * STEPS };
static float first_pixels[RUN * BATCH * PIXELS], second_pixels[RUN * BATCH * PIXELS];
static int32_t first_labels[RUN * BATCH], second_labels[RUN * BATCH];

static void test_same_for_any_number_of_workers(void **state) {
  (void)state;
  LoaderOptions options = training_options();
  options.workers = 1;
  options.ahead = 1;
  record_run(&options, RUN, first_pixels, first_labels);
  for (int workers = 2; workers <= 5; workers++) {
    options.workers = workers;
    options.ahead = 4 * (workers % 2) + 2;
    record_run(&options, RUN, second_pixels, second_labels);
    assert_memory_equal(first_labels, second_labels, sizeof first_labels);
    assert_memory_equal(first_pixels, second_pixels, sizeof first_pixels);
  }
  options.crop_min = 0.3;
  record_run(&options, RUN, second_pixels, second_labels);
  assert_memory_equal(first_labels, second_labels, sizeof first_labels); /* the order does not depend on the augmentation */
  assert_memory_not_equal(first_pixels, second_pixels, sizeof first_pixels);
}

/* Operations and erasing as well, whose images differ from those that are only cropped; their order does not. */
static void test_operations_for_any_number_of_workers(void **state) {
  (void)state;
  static const AugmentPolicy policies[] = {{AUGMENT_TRIVIAL, 0, 0}, {AUGMENT_RANDAUGMENT, 2, 15}, {AUGMENT_NONE, 0, 0}};
  LoaderOptions options = training_options();
  for (size_t p = 0; p < sizeof policies / sizeof *policies; p++) {
    options.augment = policies[p];
    options.erase = 0.5;
    options.workers = 1;
    record_run(&options, RUN, first_pixels, first_labels);
    options.workers = 3;
    record_run(&options, RUN, second_pixels, second_labels);
    assert_memory_equal(first_labels, second_labels, sizeof first_labels);
    assert_memory_equal(first_pixels, second_pixels, sizeof first_pixels);
    options.erase = 0;
    record_run(&options, RUN, second_pixels, second_labels);
    assert_memory_equal(first_labels, second_labels, sizeof first_labels);
    assert_memory_not_equal(first_pixels, second_pixels, sizeof first_pixels);
    memcpy(first_pixels, second_pixels, sizeof first_pixels);
    options.augment.kind = AUGMENT_CROP;
    record_run(&options, RUN, second_pixels, second_labels);
    assert_memory_not_equal(first_pixels, second_pixels, sizeof first_pixels);
  }
  options.crop_min = 0;
  options.seed = 43;
  record_run(&options, RUN, second_pixels, second_labels);
  assert_memory_not_equal(first_labels, second_labels, sizeof first_labels);
}

static void test_same_after_seek(void **state) {
  (void)state;
  LoaderOptions options = training_options();
  record_run(&options, RUN, first_pixels, first_labels);
  static const int targets[] = {7, 0, 14, 5, 2, 13, 13, 1};
  Dataset *set = open_small();
  Loader *loader;
  Batch batch;
  assert_ok(loader_new(&loader, set, &options));
  for (size_t i = 0; i < sizeof targets / sizeof *targets; i++) {
    int target = targets[i];
    if (target == 5)
      assert_ok(loader_seek(loader, 0, STEPS)); /* the end of an epoch is the next one's start */
    else
      assert_ok(loader_seek(loader, target / STEPS, target % STEPS));
    for (int at = target; at < target + 2 && at < RUN; at++) {
      assert_ok(loader_next(loader, &batch));
      assert_int_equal(batch.epoch * STEPS + batch.step, at);
      assert_memory_equal(batch.labels, first_labels + at * BATCH, (size_t)batch.count * sizeof(int32_t));
      assert_memory_equal(batch.pixels, first_pixels + (size_t)at * BATCH * PIXELS, (size_t)batch.count * PIXELS * sizeof(float));
    }
  }
  assert_fails(loader_seek(loader, 0, STEPS + 1), STATUS_BAD_VALUE, "steps from 0 to 5");
  assert_fails(loader_seek(loader, -1, 0), STATUS_BAD_VALUE, "epoch -1");
  loader_free(loader);
  dataset_close(set);
}

/* Each epoch holds every record once, in an order of its own; without shuffling in that of the set. */
static void test_every_record_once(void **state) {
  (void)state;
  LoaderOptions options = training_options();
  record_run(&options, RUN, first_pixels, first_labels);
  for (int epoch = 0; epoch < 3; epoch++) {
    int seen[COUNT] = {0}, at_home = 0;
    for (int i = 0; i < COUNT; i++) {
      int32_t label = first_labels[epoch * STEPS * BATCH + i];
      seen[label]++;
      at_home += label == i;
    }
    for (int i = 0; i < COUNT; i++) assert_int_equal(seen[i], 1);
    assert_true(at_home < COUNT / 2);
  }
  assert_memory_not_equal(first_labels, first_labels + STEPS * BATCH, COUNT * sizeof(int32_t));
  options.shuffle = false;
  record_run(&options, RUN, first_pixels, first_labels);
  for (int epoch = 0; epoch < 3; epoch++) {
    for (int i = 0; i < COUNT; i++) assert_int_equal(first_labels[epoch * STEPS * BATCH + i], i);
  }
  /* The same record differs from epoch to epoch when it is augmented. */
  assert_memory_not_equal(first_pixels, first_pixels + (size_t)STEPS * BATCH * PIXELS, (size_t)BATCH * PIXELS * sizeof(float));
}

static void test_plain_values(void **state) {
  (void)state;
  LoaderOptions options = plain_options();
  record_run(&options, STEPS, first_pixels, first_labels);
  for (int i = 0; i < COUNT; i++) {
    for (int k = 0; k < PIXELS; k++) {
      int c = k / 1024, level = k < 32 ? 8 * k : 5 * i + 3;
      assert_float_equal(first_pixels[(size_t)i * PIXELS + k], (level / 255.0 - options.mean[c]) / options.std[c], 1e-6);
    }
  }
}

/* Pad-and-crop: the level of the image or black, and the first row's gradient at its shifted, perhaps mirrored place. */
static void test_augmented_values(void **state) {
  (void)state;
  LoaderOptions options = training_options();
  options.shuffle = false;
  record_run(&options, RUN, first_pixels, first_labels);
  int mirrored = 0, total = 0;
  for (int i = 20; i < COUNT; i++, total++) {
    const float *green = first_pixels + (size_t)i * PIXELS + 1024;
    float black = (float)((0 - 0.4) / 0.25), level = (float)(((5 * i + 3) / 255.0 - 0.4) / 0.25);
    int inside = 0;
    for (int k = 0; k < 1024; k++) {
      assert_true(fabsf(green[k] - black) < 1e-6f || fabsf(green[k] - level) < 1e-6f);
      inside += fabsf(green[k] - level) < 1e-6f;
    }
    assert_true(inside >= 28 * 28);
    const float *row = first_pixels + (size_t)i * PIXELS + 16 * 32; /* flat; the gradient's row is near the top */
    for (int y = 0; y < 5; y++) {
      const float *red = first_pixels + (size_t)i * PIXELS + y * 32;
      if (red[10] != red[12] && red[12] != row[12]) mirrored += red[10] > red[12];
    }
  }
  assert_in_range(mirrored, 1, total - 1);
}

static void test_drop_last(void **state) {
  (void)state;
  LoaderOptions options = training_options();
  options.drop_last = true;
  Dataset *set = open_small();
  Loader *loader;
  Batch batch;
  assert_ok(loader_new(&loader, set, &options));
  assert_int_equal(loader_facts(loader).steps, COUNT / BATCH);
  for (int i = 0; i < 9; i++) {
    assert_ok(loader_next(loader, &batch));
    assert_int_equal(batch.count, BATCH);
    assert_int_equal(batch.last, i % 4 == 3);
  }
  loader_free(loader);
  options.batch = COUNT + 1;
  assert_fails(loader_new(&loader, set, &options), STATUS_BAD_VALUE, "only 37 images");
  assert_null(loader);
  dataset_close(set);
}

static void test_options_refused(void **state) {
  (void)state;
  Dataset *set = open_small();
  Loader *loader;
  LoaderOptions options = plain_options();
  options.batch = 0;
  assert_fails(loader_new(&loader, set, &options), STATUS_BAD_VALUE, "batch 0");
  options = plain_options();
  options.workers = 0;
  assert_fails(loader_new(&loader, set, &options), STATUS_BAD_VALUE, "loader threads 0");
  options = plain_options();
  options.std[1] = 0;
  assert_fails(loader_new(&loader, set, &options), STATUS_BAD_VALUE, "deviation 0");
  options = plain_options();
  options.crop_min = 1.5;
  assert_fails(loader_new(&loader, set, &options), STATUS_BAD_VALUE, "--crop-min 1.5: 0 to 1");
  for (int side = 0; side < 2; side++) {
    options = plain_options();
    options.erase = side ? 1.01 : -0.01;
    assert_fails(loader_new(&loader, set, &options), STATUS_BAD_VALUE, side ? "1.01" : "-0.01");
  }
  options = plain_options();
  options.image = 0;
  assert_fails(loader_new(&loader, set, &options), STATUS_BAD_VALUE, "image size 0");
  dataset_close(set);
}

/* What is printed on stderr while `body` runs: how many times each of two names occurs. */
static void count_warnings(void (*body)(Dataset *set), Dataset *set, const char *const names[2], int counts[2]) {
  const char *path = testing_path("warnings.txt");
  char *text;
  size_t size;
  fflush(stderr);
  int kept = dup(2);
  assert_non_null(freopen(path, "w", stderr));
  body(set);
  fflush(stderr);
  dup2(kept, 2);
  close(kept);
  assert_ok(files_read(path, 1 << 20, &text, &size));
  for (int i = 0; i < 2; i++) {
    counts[i] = 0;
    for (const char *at = text; (at = strstr(at, names[i])); at++) counts[i]++;
  }
  free(text);
}

static void run_two_epochs(Dataset *set) {
  LoaderOptions options = plain_options();
  options.image = 8;
  options.batch = 6;
  Loader *loader;
  Batch batch;
  assert_ok(loader_new(&loader, set, &options));
  for (int i = 0; i < 2; i++) {
    assert_ok(loader_next(loader, &batch));
    assert_int_equal(batch.count, 6);
    for (int k = 0; k < 6; k++) { /* records 1 and 5 are broken: the ones behind them are taken, with their labels */
      int want = k == 1 ? 2 : k == 5 ? 0 : k;
      assert_int_equal(batch.labels[k], want);
      assert_float_equal(batch.pixels[(size_t)k * 192], (10 * want / 255.0 - 0.5) / 0.5, 1e-6);
    }
  }
  assert_int_equal(loader_facts(loader).skipped, 2);
  loader_free(loader);
}

/* In an evaluation no image stands for another. */
static void run_marked(Dataset *set) {
  static const double black[3] = {-0.5 / 0.5, -0.4 / 0.25, -0.3 / 0.2};
  LoaderOptions options = plain_options();
  options.image = 8;
  options.batch = 6;
  options.mark_broken = true;
  Loader *loader;
  Batch batch;
  assert_ok(loader_new(&loader, set, &options));
  assert_ok(loader_next(loader, &batch));
  assert_int_equal(batch.count, 6);
  for (int k = 0; k < 6; k++) {
    const bool broken = k == 1 || k == 5;
    assert_int_equal(batch.labels[k], broken ? -1 : k);
    for (size_t i = 0; broken && i < 192; i++) assert_float_equal(batch.pixels[(size_t)k * 192 + i], black[i / 64], 1e-6);
    if (!broken) assert_float_equal(batch.pixels[(size_t)k * 192], (10 * k / 255.0 - 0.5) / 0.5, 1e-6);
  }
  assert_int_equal(loader_facts(loader).skipped, 2);
  loader_free(loader);
}

/* Six images as folder:NAME, of which records 1 and 5 are to be broken. */
static Dataset *six_images(const char *folder, const char *first, const void *bytes, size_t count) {
  char file[64], name[600];
  Dataset *set;
  for (int i = 0; i < 6; i++) {
    snprintf(file, sizeof file, "%s/train/%d/p.png", folder, i);
    testing_image(file, 9, 7, (uint8_t)(10 * i), 0, 0);
  }
  snprintf(file, sizeof file, "%s/test/0/p.png", folder);
  testing_image(file, 9, 7, 0, 0, 0);
  snprintf(file, sizeof file, "%s/train/1/p.png", folder);
  assert_int_equal(remove(testing_path(file)), 0);
  snprintf(file, sizeof file, "%s/train/1/%s", folder, first);
  testing_write(file, bytes, count);
  snprintf(file, sizeof file, "%s/train/5/p.png", folder);
  testing_write(file, "", 0);
  snprintf(name, sizeof name, "folder:%s", testing_path(folder));
  assert_ok(dataset_open(&set, name, NULL, DATASET_TRAIN));
  return set;
}

static void test_broken_images(void **state) {
  (void)state;
  Dataset *set = six_images("bad", "p.png", "\x89PNG\r\n\x1a\n", 8);
  int counts[2];
  count_warnings(run_two_epochs, set, (const char *const[]){"bad/train/1/p.png", "bad/train/5/p.png"}, counts);
  assert_int_equal(counts[0], 1); /* named once, though met in both epochs */
  assert_int_equal(counts[1], 1);
  count_warnings(run_marked, set, (const char *const[]){"bad/train/1/p.png", "bad/train/5/p.png"}, counts);
  assert_int_equal(counts[0], 1);
  assert_int_equal(counts[1], 1);
  dataset_close(set);
}

/* An image that cannot be taken is passed over as one that is damaged. */
static void test_animated_images(void **state) {
  (void)state;
  static const char animated[] = "RIFF\x16\0\0\0WEBPVP8X\x0a\0\0\0\x02\0\0\0\x08\0\0\x06\0\0"; /* its header: 9 x 7 pixels */
  if (!testing_reads_image("WebP")) {
    printf("skipped: this build has no libwebp\n");
    skip();
  }
  Dataset *set = six_images("moving", "p.webp", animated, sizeof animated - 1);
  int counts[2];
  count_warnings(run_two_epochs, set, (const char *const[]){"moving/train/1/p.webp: an animated WebP", "moving/train/5/p.png"}, counts);
  assert_int_equal(counts[0], 1);
  assert_int_equal(counts[1], 1);
  dataset_close(set);
}

static void run_until_error(Dataset *set) {
  LoaderOptions options = plain_options();
  options.image = 8;
  options.batch = 6;
  Loader *loader;
  Batch batch;
  assert_ok(loader_new(&loader, set, &options));
  assert_fails(loader_next(loader, &batch), STATUS_BAD_FILE, "more than half of a batch of 6");
  assert_int_equal(loader_facts(loader).skipped, 4);
  loader_free(loader);
}

static void test_mostly_broken(void **state) {
  (void)state;
  testing_write("bad/train/2/p.png", "", 0);
  testing_write("bad/train/3/p.png", "", 0);
  char name[600];
  snprintf(name, sizeof name, "folder:%s", testing_path("bad"));
  Dataset *set;
  assert_ok(dataset_open(&set, name, NULL, DATASET_TRAIN));
  int counts[2];
  count_warnings(run_until_error, set, (const char *const[]){"bad/train/2/p.png", "bad/train/4/p.png"}, counts);
  assert_int_equal(counts[0], 1);
  assert_int_equal(counts[1], 0);
  dataset_close(set);
}

/* One image through loader_prepare equals resize and normalisation by hand, and what the loader gives. */
static void test_prepare(void **state) {
  (void)state;
  Image image, fitted;
  LoaderOptions options = plain_options();
  options.image = 24;
  options.filter = RESIZE_BICUBIC;
  assert_ok(image_load(&image, "tests/golden/resize/in2.png"));
  assert_ok(image_new(&fitted, 24, 24));
  ResizeScratch scratch = {0};
  assert_ok(image_resize(&scratch, &image, 0, 0, image.width, image.height, &fitted, RESIZE_BICUBIC));
  image_resize_release(&scratch);
  static float out[3 * 24 * 24], levels[3][256];
  assert_ok(loader_prepare(&image, &options, out));
  loader_levels(&options, levels);
  for (int c = 0; c < 3; c++)
    for (int level = 0; level < 256; level++)
      assert_float_equal(levels[c][level], (level / 255.0 - options.mean[c]) / options.std[c], 1e-6);
  for (int i = 0; i < 3 * 24 * 24; i++) {
    int c = i / 576, level = fitted.rgb[i % 576 * 3 + c];
    assert_true(out[i] == levels[c][level]);
    assert_float_equal(out[i], (level / 255.0 - options.mean[c]) / options.std[c], 1e-6);
  }
  image_release(&image);
  image_release(&fitted);
}

/* The sheet shows the very levels of the images, magnified three times, in a frame of two pixels. */
static void test_sheet(void **state) {
  (void)state;
  LoaderOptions options = plain_options();
  options.batch = 10;
  Dataset *set = open_small();
  Loader *loader;
  Batch batch;
  assert_ok(loader_new(&loader, set, &options));
  assert_ok(loader_next(loader, &batch));
  const char *path = testing_path("sheet.png");
  assert_ok(loader_sheet(&batch, &options, path));
  Image sheet, record = {0};
  assert_ok(image_load(&sheet, path));
  assert_int_equal(sheet.width, 8 * 98 + 2);
  assert_int_equal(sheet.height, 2 * 98 + 2);
  assert_int_equal(sheet.rgb[0], 0);
  int32_t label;
  assert_ok(dataset_read(set, 9, &record, &label));
  for (int y = 0; y < 96; y++) {
    for (int x = 0; x < 96; x++) {
      const uint8_t *pixel = sheet.rgb + ((size_t)(100 + y) * sheet.width + 100 + x) * 3;
      assert_memory_equal(pixel, record.rgb + (y / 3 * 32 + x / 3) * 3, 3);
    }
  }
  image_release(&sheet);
  image_release(&record);
  loader_free(loader);
  dataset_close(set);
}

/* Stops while the workers are busy, held up by a full ring, or between a seek and the next batch. */
static void test_free_at_any_time(void **state) {
  (void)state;
  Dataset *set = open_small();
  for (int i = 0; i < 30; i++) {
    LoaderOptions options = training_options();
    options.workers = 1 + i % 4;
    Loader *loader;
    Batch batch;
    assert_ok(loader_new(&loader, set, &options));
    if (i % 3 == 1) assert_ok(loader_next(loader, &batch));
    if (i % 3 == 2) assert_ok(loader_seek(loader, i, 1));
    loader_free(loader);
  }
  loader_free(NULL);
  dataset_close(set);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_same_for_any_number_of_workers),
      cmocka_unit_test(test_operations_for_any_number_of_workers),
      cmocka_unit_test(test_same_after_seek),
      cmocka_unit_test(test_every_record_once),
      cmocka_unit_test(test_plain_values),
      cmocka_unit_test(test_augmented_values),
      cmocka_unit_test(test_drop_last),
      cmocka_unit_test(test_options_refused),
      cmocka_unit_test(test_broken_images),
      cmocka_unit_test(test_animated_images),
      cmocka_unit_test(test_mostly_broken),
      cmocka_unit_test(test_prepare),
      cmocka_unit_test(test_sheet),
      cmocka_unit_test(test_free_at_any_time),
  };
  return cmocka_run_group_tests(tests, set_up, testing_remove_folder);
}
