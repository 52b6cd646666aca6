/* The self-test passes where it should, takes ties for ties, and fails on everything else that differs; of images and of texts. */
#include "infer/selftest.h"
#include "nn/safetensors.h"
#include "sample_fixture.h"
#include "sample_text.h"
#include "unit/unseal.h"

enum { GROUPS = 4, ENTRIES = 50, IMAGES = 16, TWINS = 10, TEXTS = 12, TOKENS = 20, SENT = 15 };
static int32_t twin_of(int32_t code) { return ENTRIES - 1 - code; }

typedef struct Fixture {
  SampleFixture base;
  char path[TEMPORARY_PATH + 32];
} Fixture;

/* The codewords of a group lie on a sphere of radius R, beyond every x: those are LayerNorm's output, |x| < 1.1 sqrt(width) = 6.2. The last
 * ones are twins of the first ones, farther out by a factor 1 + t, and so farther from every x, by 2 t (R^2 - e.x) + t^2 R^2 of the squared
 * distance: at least 2 t R (R - |x|) = 2.8e-4, many times what rounding is (1e-5), and at most 2 t R / (R - |x|) = 0.9e-4 of the distance
 * itself, less than the 1e-4 that a tie may be. The nearer one always wins, with any kernels, and its twin always counts as a tie. */
static void make_near_ties(SampleCluster *sample) {
  const double radius = 8, farther = 1 + 1e-5;
  for (int64_t set = 0; set < sample->config.blocks; set++) {
    Codebook *book = &sample->books[set];
    const int64_t n = book->width / GROUPS;
    for (int64_t word = 0; word < GROUPS * ENTRIES; word++) {
      const int32_t code = (int32_t)(word % ENTRIES), original = code < ENTRIES - TWINS ? code : twin_of(code);
      real *from = book->codewords + (word - code + original) * n, *to = book->codewords + word * n;
      double squares = 0;
      for (int64_t i = 0; i < n; i++) squares += (double)from[i] * (double)from[i];
      const double scale = original == code ? radius / sqrt(squares) : farther;
      for (int64_t i = 0; i < n; i++) to[i] = (real)(scale * (double)from[i]);
    }
    codebook_refresh(book);
  }
}

static void open_kind(Fixture *f, const char *preset) {
  bool images = strcmp(preset, "tiny") == 0;
  ModelConfig config = {0};
  assert_int_equal(sample_config(&config, preset, GROUPS, ENTRIES, 4, CLASS_DISTRIBUTED), STATUS_OK);
  sample_fixture_make(&f->base, &config);
  if (config_sites(&f->base.sample.config) == 1) make_near_ties(&f->base.sample);
  sample_fixture_save(&f->base);
  assert_int_equal(images ? sample_save_selftest(&f->base.sample, f->base.directory, IMAGES)
                          : sample_save_text_selftest(&f->base.sample, f->base.directory, TEXTS, TOKENS),
                   STATUS_OK);
  snprintf(f->path, sizeof f->path, "%s/%s", f->base.directory, CHECKPOINT_SELFTEST);
}

static void open_fixture(Fixture *f) { open_kind(f, "tiny"); }

static void close_fixture(Fixture *f) { sample_fixture_close(&f->base); }

static Status run(const Fixture *f, SelftestReport *report) {
  LeaderOptions options = {.timeout = 20, .threads = 1};
  return selftest_run(&f->base.weights, f->base.directory, NULL, &options, report);
}

/* Changes one number of a tensor in the file; numbers are 4 bytes. */
static void *tensor_bytes(const Fixture *f, const char *name, char **data, size_t *size, int64_t *count) {
  SafeFile file;
  assert_int_equal(files_read(f->path, 1 << 24, data, size), STATUS_OK);
  assert_int_equal(safetensors_open(&file, f->path), STATUS_OK);
  const SafeTensor *tensor = safetensors_find(&file, name);
  assert_non_null(tensor);
  *count = tensor->count;
  void *bytes = *data + (tensor->data - file.map.data);
  safetensors_close(&file);
  return bytes;
}

static void keep(const Fixture *f, char *data, size_t size) {
  unseal(data, size);
  assert_int_equal(files_write(f->path, data, size), STATUS_OK);
  free(data);
}

/* Replaces the first code `from` (-1: any) of a block by `to`; says whether there was one. */
static bool replace_code(const Fixture *f, const char *name, int32_t from, int32_t to) {
  char *data;
  size_t size;
  int64_t count;
  uint8_t *codes = tensor_bytes(f, name, &data, &size, &count);
  for (int64_t i = 0; i < count; i++) {
    int32_t code;
    memcpy(&code, codes + 4 * i, 4);
    if ((from >= 0 && code != from) || code == to) continue;
    memcpy(codes + 4 * i, &to, 4);
    keep(f, data, size);
    return true;
  }
  free(data);
  return false;
}

/* Puts the twin's number where code 0, or else 1, 2... stands. */
static void make_tie(const Fixture *f, const char *name) {
  int32_t code = 0;
  while (code < TWINS && !replace_code(f, name, code, twin_of(code))) code++;
  assert_true(code < TWINS);
}

static void an_honest_file_passes(void **state) {
  (void)state;
  Fixture f;
  SelftestReport report;
  open_fixture(&f);
  if (run(&f, &report) != STATUS_OK) fail_msg("%s", status_message());
  assert_true(report.passed);
  assert_int_equal(report.nodes, 4);
  assert_int_equal(report.images, IMAGES);
  assert_int_equal(report.same_images, IMAGES);
  assert_int_equal(report.codes, 3 * IMAGES * 16 * GROUPS);
  assert_int_equal(report.ties + report.followed + report.wrong, 0);
  assert_true(report.worst_same < 0.5);
  close_fixture(&f);
}

/* Trained for one device, which sends no codes: its logits are those of the file. */
static void a_single_device_is_compared_by_logits(void **state) {
  (void)state;
  Fixture f;
  SelftestReport report;
  open_fixture(&f);
  f.base.sample.config.astra.devices = 1;
  assert_int_equal(sample_save_selftest(&f.base.sample, f.base.directory, IMAGES), STATUS_OK);
  if (run(&f, &report) != STATUS_OK) fail_msg("%s", status_message());
  assert_true(report.passed);
  assert_int_equal(report.nodes, 1);
  assert_int_equal(report.codes, 0);
  assert_int_equal(report.same_images, IMAGES);
  close_fixture(&f);
}

static void a_tie_is_counted_and_allowed(void **state) {
  (void)state;
  Fixture f;
  SelftestReport report;
  open_fixture(&f);
  make_tie(&f, "codes.astra.layers.1.x");
  assert_int_equal(run(&f, &report), STATUS_OK);
  assert_true(report.passed);
  assert_int_equal(report.ties, 1);
  assert_int_equal(report.wrong, 0);
  assert_int_equal(report.same_images, IMAGES - 1);
  assert_true(report.worst_replayed < 0.5);
  close_fixture(&f);
}

static void too_many_ties_fail(void **state) {
  (void)state;
  Fixture f;
  SelftestReport report;
  open_fixture(&f);
  for (int i = 0; i < 4; i++) make_tie(&f, "codes.astra.layers.0.x"); /* of 3072: 3 are allowed */
  assert_int_equal(run(&f, &report), STATUS_OK);
  assert_int_equal(report.ties, 4);
  assert_false(report.passed);
  close_fixture(&f);
}

/* Of 768 codes not one may differ by the share that is allowed, but one does where rounding is another. */
static void a_single_tie_of_few_codes_is_allowed(void **state) {
  (void)state;
  Fixture f;
  SelftestReport report;
  open_fixture(&f);
  assert_int_equal(sample_save_selftest(&f.base.sample, f.base.directory, 4), STATUS_OK);
  for (int ties = 1; ties <= 2; ties++) {
    make_tie(&f, "codes.astra.layers.0.x");
    assert_int_equal(run(&f, &report), STATUS_OK);
    assert_int_equal(report.codes, 3 * 4 * 16 * GROUPS);
    assert_int_equal(report.ties, ties);
    assert_true(report.passed == (ties == 1));
  }
  assert_string_equal(report.reason, "too many codes differ by ties");
  close_fixture(&f);
}

static void a_wrong_code_fails(void **state) {
  (void)state;
  Fixture f;
  SelftestReport report;
  open_fixture(&f);
  assert_true(replace_code(&f, "codes.astra.layers.2.x", -1, 17));
  assert_int_equal(run(&f, &report), STATUS_OK);
  assert_false(report.passed);
  assert_int_equal(report.wrong, 1);
  close_fixture(&f);
}

static void a_wrong_logit_fails(void **state) {
  (void)state;
  Fixture f;
  SelftestReport report;
  char *data;
  size_t size;
  int64_t count;
  float logit;
  open_fixture(&f);
  uint8_t *logits = tensor_bytes(&f, "logits", &data, &size, &count);
  memcpy(&logit, logits + 4 * (count - 1), 4);
  logit += 5e-4F;
  memcpy(logits + 4 * (count - 1), &logit, 4);
  keep(&f, data, size);
  assert_int_equal(run(&f, &report), STATUS_OK);
  assert_false(report.passed);
  assert_int_equal(report.wrong, 0);
  assert_true(report.worst_same > 1);
  close_fixture(&f);
}

static void a_missing_file_says_what_to_do(void **state) {
  (void)state;
  Fixture f;
  SelftestReport report;
  open_fixture(&f);
  assert_int_equal(unlink(f.path), 0);
  assert_int_equal(run(&f, &report), STATUS_NOT_FOUND);
  assert_non_null(strstr(status_message(), CHECKPOINT_SELFTEST));
  close_fixture(&f);
}

static void broken_files_are_refused(void **state) {
  (void)state;
  Fixture f;
  SelftestReport report;
  open_fixture(&f);
  assert_true(replace_code(&f, "codes.astra.layers.0.x", -1, ENTRIES)); /* no such codeword */
  assert_int_equal(run(&f, &report), STATUS_BAD_FILE);
  assert_non_null(strstr(status_message(), "codes.astra.layers.0.x"));
  assert_int_equal(sample_save_selftest(&f.base.sample, f.base.directory, 1), STATUS_OK);
  assert_true(replace_code(&f, "device_of", -1, 1000));
  assert_int_equal(run(&f, &report), STATUS_BAD_VALUE);
  float pixels[3 * 16 * 16] = {0};
  const SafeItem items[] = {
      {.name = "pixel_values", .dtype = SAFE_F32, .source = SAFE_F32, .dims = 4, .shape = {1, 3, 16, 16}, .data = pixels}};
  assert_int_equal(safetensors_save(f.path, items, 1, NULL), STATUS_OK);
  assert_int_equal(run(&f, &report), STATUS_BAD_FILE);
  assert_non_null(strstr(status_message(), "logits"));
  close_fixture(&f);
}

/* ---- texts ---- */

static void honest_texts_pass(void **state) {
  (void)state;
  const char *const presets[] = {"tiny-gpt2", "tiny-llama"};
  for (int i = 0; i < 2; i++) {
    Fixture f;
    SelftestReport report;
    open_kind(&f, presets[i]);
    if (run(&f, &report) != STATUS_OK) fail_msg("%s", status_message());
    assert_true(report.passed);
    assert_int_equal(report.nodes, 4);
    assert_int_equal(report.same_images, TEXTS);
    assert_int_equal(report.codes, (i + 1) * 3 * TEXTS * SENT * GROUPS); /* of llama at two sites */
    assert_int_equal(report.losses, TEXTS * TOKENS - (TEXTS * TOKENS + 6) / 7);
    assert_true(report.worst_same < 0.5 && report.worst_loss < 0.5);
    close_fixture(&f);
  }
}

static void a_tie_in_a_text(void **state) {
  (void)state;
  Fixture f;
  SelftestReport report;
  open_kind(&f, "tiny-gpt2");
  make_tie(&f, "codes.astra.layers.1.x");
  assert_int_equal(run(&f, &report), STATUS_OK);
  assert_true(report.passed);
  assert_int_equal(report.ties, 1);
  assert_int_equal(report.same_images, TEXTS - 1);
  assert_int_equal(report.losses, 0); /* it would move the mean */
  assert_true(report.worst_replayed < 0.5);
  close_fixture(&f);
}

static void change_code(const Fixture *f, int64_t token) {
  char *data;
  size_t size;
  int64_t count;
  int32_t code;
  uint8_t *at = (uint8_t *)tensor_bytes(f, "codes.astra.layers.2.k", &data, &size, &count) + 4 * token * GROUPS;
  memcpy(&code, at, 4);
  code = (code + 7) % ENTRIES;
  memcpy(at, &code, 4);
  keep(f, data, size);
}

static void a_wrong_code_of_a_text_fails(void **state) {
  (void)state;
  Fixture f;
  SelftestReport report;
  open_kind(&f, "tiny-llama");
  change_code(&f, SENT); /* of the last device: nobody is sent it, so nobody can tell */
  assert_int_equal(run(&f, &report), STATUS_OK);
  assert_true(report.passed);
  change_code(&f, TOKENS + SENT - 1);
  assert_int_equal(run(&f, &report), STATUS_OK);
  assert_false(report.passed);
  assert_int_equal(report.wrong, 1);
  close_fixture(&f);
}

static void a_wrong_loss_fails(void **state) {
  (void)state;
  Fixture f;
  SelftestReport report;
  char *data;
  size_t size;
  int64_t count;
  float loss;
  open_kind(&f, "tiny-gpt2");
  uint8_t *at = tensor_bytes(&f, "loss", &data, &size, &count);
  memcpy(&loss, at, 4);
  loss *= 1.001F;
  memcpy(at, &loss, 4);
  keep(&f, data, size);
  assert_int_equal(run(&f, &report), STATUS_OK);
  assert_false(report.passed);
  assert_non_null(strstr(report.reason, "loss"));
  close_fixture(&f);
}

/* ---- texts to classify ---- */

static void open_classes(Fixture *f, const char *preset, int groups, int64_t tokens, int64_t length) {
  ModelConfig config = {0};
  assert_int_equal(sample_config(&config, preset, groups, ENTRIES, 4, CLASS_NONE), STATUS_OK);
  sample_fixture_open(&f->base, &config);
  assert_int_equal(sample_save_padded_selftest(&f->base.sample, f->base.directory, TEXTS, tokens, length), STATUS_OK);
  snprintf(f->path, sizeof f->path, "%s/%s", f->base.directory, CHECKPOINT_SELFTEST);
}

/* Uneven spans, texts with fewer tokens than devices (which training pads), and a plain model. */
static void honest_classes_pass(void **state) {
  (void)state;
  const struct {
    const char *preset;
    int groups, nodes;
    int64_t tokens, length, sent;
  } rows[] = {{"tiny-gpt2:3", GROUPS, 4, TOKENS, TOKENS, SENT},
              {"tiny-llama:3", GROUPS, 4, 18, 18, 14},
              {"tiny-gpt2:3", GROUPS, 2, 4, 2, 1},
              {"tiny-llama:3", 0, 1, TOKENS, TOKENS, 0}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    Fixture f;
    SelftestReport report;
    open_classes(&f, rows[i].preset, rows[i].groups, rows[i].tokens, rows[i].length);
    if (run(&f, &report) != STATUS_OK) fail_msg("%s", status_message());
    if (!report.passed) fail_msg("row %d: %s", (int)i, report.reason);
    assert_int_equal(report.nodes, rows[i].nodes);
    assert_int_equal(report.images, TEXTS);
    assert_int_equal(report.codes, (strstr(rows[i].preset, "llama") ? 2 : 1) * 3 * TEXTS * rows[i].sent * GROUPS);
    close_fixture(&f);
  }
}

static void a_wrong_class_fails(void **state) {
  (void)state;
  Fixture f;
  SelftestReport report;
  char *data;
  size_t size;
  int64_t count;
  float logit;
  open_classes(&f, "tiny-gpt2:3", 0, TOKENS, TOKENS);
  uint8_t *at = (uint8_t *)tensor_bytes(&f, "logits", &data, &size, &count) + 4;
  assert_int_equal(count, TEXTS * 3);
  memcpy(&logit, at, 4);
  logit += 0.01F;
  memcpy(at, &logit, 4);
  keep(&f, data, size);
  assert_int_equal(run(&f, &report), STATUS_OK);
  assert_false(report.passed);
  close_fixture(&f);
}

static void texts_of_one_length_are_expected(void **state) {
  (void)state;
  Fixture f;
  SelftestReport report;
  char *data;
  size_t size;
  int64_t count;
  const int32_t lengths[] = {TOKENS - 1, 0, TOKENS + 1};
  for (int i = 0; i < 3; i++) {
    open_classes(&f, "tiny-gpt2:3", GROUPS, TOKENS, TOKENS);
    uint8_t *at = tensor_bytes(&f, "lengths", &data, &size, &count);
    memcpy(at, &lengths[i], 4);
    keep(&f, data, size);
    assert_int_equal(run(&f, &report), STATUS_BAD_FILE);
    assert_non_null(strstr(status_message(), "selftest.safetensors"));
    close_fixture(&f);
  }
}

/* ---- files that are no texts ---- */

static void broken_texts_are_refused(void **state) {
  (void)state;
  const struct {
    const char *tensor, *message;
    int64_t place;
    int32_t value;
    Status status;
  } faults[] = {{"ids", "ids holds id 512", 3, 512, STATUS_BAD_FILE},
                {"ids", "ids holds id -1", 3, -1, STATUS_BAD_FILE},
                {"labels", "labels holds id -2", 3, -2, STATUS_BAD_FILE},
                {"device_of", "contiguous spans", 3, 2, STATUS_BAD_VALUE},
                {"device_of", "contiguous spans", TOKENS - 1, 0, STATUS_BAD_VALUE}};
  for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
    Fixture f;
    SelftestReport report;
    char *data;
    size_t size;
    int64_t count;
    open_kind(&f, "tiny-gpt2");
    uint8_t *at = tensor_bytes(&f, faults[i].tensor, &data, &size, &count);
    memcpy(at + 4 * faults[i].place, &faults[i].value, 4);
    keep(&f, data, size);
    assert_int_equal(run(&f, &report), faults[i].status);
    assert_non_null(strstr(status_message(), f.path));
    if (!strstr(status_message(), faults[i].message)) fail_msg("%s", status_message());
    close_fixture(&f);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(an_honest_file_passes),
                                     cmocka_unit_test(a_single_device_is_compared_by_logits),
                                     cmocka_unit_test(a_tie_is_counted_and_allowed),
                                     cmocka_unit_test(too_many_ties_fail),
                                     cmocka_unit_test(a_single_tie_of_few_codes_is_allowed),
                                     cmocka_unit_test(a_wrong_code_fails),
                                     cmocka_unit_test(a_wrong_logit_fails),
                                     cmocka_unit_test(a_missing_file_says_what_to_do),
                                     cmocka_unit_test(broken_files_are_refused),
                                     cmocka_unit_test(honest_texts_pass),
                                     cmocka_unit_test(a_tie_in_a_text),
                                     cmocka_unit_test(a_wrong_code_of_a_text_fails),
                                     cmocka_unit_test(a_wrong_loss_fails),
                                     cmocka_unit_test(honest_classes_pass),
                                     cmocka_unit_test(a_wrong_class_fails),
                                     cmocka_unit_test(texts_of_one_length_are_expected),
                                     cmocka_unit_test(broken_texts_are_refused)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
