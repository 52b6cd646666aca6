/* Digests of safetensors files: every flipped bit and every end that is missing is noticed, a file without digests is read as it is; and
 * what a header made to be expensive costs in memory and time. */
#include "nn/safetensors.c" /* memory is parsed where no file is */
#include "unit/nn/scratch.h"
#include "unit/time_scale.h"
#include "unit/unseal.h"
#include <cmocka.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <xxhash.h>

static const char *const metadata[] = {"step", "12", "format", "pt", NULL};

static size_t save_sample(const char *path, char **image) {
  float wide[70];
  uint16_t narrow[9];
  size_t size;
  for (int i = 0; i < 70; i++) wide[i] = (float)i / 8;
  for (int i = 0; i < 9; i++) narrow[i] = (uint16_t)(0x3c00 + i);
  const SafeItem items[] = {
      {.name = "wide", .dtype = SAFE_F32, .source = SAFE_F32, .dims = 2, .shape = {7, 10}, .data = wide},
      {.name = "narrow", .dtype = SAFE_F16, .source = SAFE_F16, .dims = 1, .shape = {9}, .data = narrow},
      {.name = "empty", .dtype = SAFE_F32, .source = SAFE_F32, .dims = 1, .shape = {0}},
  };
  assert_int_equal(safetensors_save(path, items, 3, metadata), STATUS_OK);
  assert_int_equal(files_read(path, 1 << 20, image, &size), STATUS_OK);
  return size;
}

/* The first failure of opening and verifying; *place: behind the header. */
static Status verify(const char *image, size_t size, size_t *place) {
  SafeFile file;
  TRY(parse_memory(&file, (const uint8_t *)image, size, "sample"));
  Status status = STATUS_OK;
  if (place) *place = (size_t)(safetensors_find(&file, "wide")->data - (const uint8_t *)image);
  for (size_t i = 0; i < file.count && status == STATUS_OK; i++) status = safetensors_verify(&file.list[i]);
  safetensors_close(&file);
  return status;
}

static void test_every_bit_counts(void **state) {
  (void)state;
  char *image;
  size_t size = save_sample(scratch_path("sample.safetensors"), &image), data = 0;
  assert_int_equal(verify(image, size, &data), STATUS_OK);
  for (size_t bit = 0; bit < 8 * size; bit++) {
    image[bit / 8] ^= (char)(1 << bit % 8);
    if (verify(image, size, NULL) != STATUS_BAD_FILE) fail_msg("bit %zu of byte %zu", bit % 8, bit / 8);
    const char *name = bit / 8 < data + 280 ? "wide" : "narrow";
    if (bit / 8 >= data && !strstr(status_message(), name)) fail_msg("'%s' does not name tensor %s", status_message(), name);
    image[bit / 8] ^= (char)(1 << bit % 8);
  }
  for (size_t cut = 0; cut < size; cut++) assert_int_equal(verify(image, cut, NULL), STATUS_BAD_FILE);
  free(image);
}

static const char *value_of(const SafeFile *file, const char *key) {
  for (size_t i = 0; i < file->metadata_count; i++) {
    const char *value;
    if (strcmp(safe_metadata(file, i, &value), key) == 0) return value;
  }
  return "none";
}

/* As docs/FORMATS.md says, computed here byte by byte. */
static void test_the_documented_digests(void **state) {
  (void)state;
  char *image, text[17];
  save_sample(scratch_path("sample.safetensors"), &image);
  SafeFile file;
  assert_int_equal(safetensors_open(&file, scratch_path("sample.safetensors")), STATUS_OK);
  assert_true(file.sealed);
  assert_int_equal(file.metadata_count, 6);
  assert_string_equal(value_of(&file, "step"), "12");
  assert_string_equal(value_of(&file, "astra.xxh3.empty"), "2d06800538d394c2"); /* XXH3-64 of nothing */
  uint64_t digests[3];
  static const char *const names[] = {"empty", "narrow", "wide"}, *const dtypes[] = {"F32", "F16", "F32"};
  static const uint64_t shapes[3][3] = {{1, 0}, {1, 9}, {2, 7, 10}};
  char *listed;
  size_t bytes;
  FILE *stream = open_memstream(&listed, &bytes);
  for (int i = 0; i < 3; i++) {
    const SafeTensor *tensor = safetensors_find(&file, names[i]);
    char key[64];
    digests[i] = XXH3_64bits(tensor->data, tensor->bytes);
    snprintf(key, sizeof key, "astra.xxh3.%s", names[i]);
    snprintf(text, sizeof text, "%016llx", (unsigned long long)digests[i]);
    assert_string_equal(value_of(&file, key), text);
    fwrite(names[i], 1, strlen(names[i]) + 1, stream);
    fwrite(dtypes[i], 1, 4, stream);
    fwrite(shapes[i], 8, 1 + (size_t)shapes[i][0], stream);
    fwrite(&digests[i], 8, 1, stream);
  }
  fwrite("format\0pt\0step\0"
         "12",
         1, 18, stream);
  fclose(stream);
  snprintf(text, sizeof text, "%016llx", (unsigned long long)XXH3_64bits(listed, bytes));
  assert_string_equal(value_of(&file, "astra.xxh3"), text);
  safetensors_close(&file);
  free(listed);
  free(image);
}

static void test_without_digests(void **state) {
  (void)state;
  char *image;
  size_t size = save_sample(scratch_path("sample.safetensors"), &image), data = 0;
  unseal(image, size);
  assert_int_equal(verify(image, size, &data), STATUS_OK);
  image[data] ^= 1;
  assert_int_equal(verify(image, size, NULL), STATUS_OK);
  free(image);
}

/* Numbers that are converted in many pieces. */
static void test_large_tensors(void **state) {
  (void)state;
  enum { N = 300001 };
  float *numbers = malloc(N * sizeof *numbers);
  real *back = malloc(N * sizeof *back);
  for (int i = 0; i < N; i++) numbers[i] = (float)(i % 2048);
  static const SafeDtype dtypes[] = {SAFE_F32, SAFE_F16, SAFE_BF16, SAFE_F64};
  for (int d = 0; d < 4; d++) {
    const char *path = scratch_path("large.safetensors");
    SafeItem item = {.name = "t", .dtype = dtypes[d], .source = SAFE_F32, .dims = 1, .shape = {N}, .data = numbers};
    assert_int_equal(safetensors_save(path, &item, 1, NULL), STATUS_OK);
    char *image;
    size_t size;
    assert_int_equal(files_read(path, 1 << 24, &image, &size), STATUS_OK);
    for (int flip = 0; flip < 20; flip++) {
      SafeFile file;
      size_t at = size - 1 - (size_t)flip * 30011;
      image[at] ^= (char)(1 << flip % 8);
      assert_int_equal(parse_memory(&file, (const uint8_t *)image, size, "large"), STATUS_OK);
      assert_int_equal(safetensors_to_real(&file.list[0], back), STATUS_BAD_FILE);
      assert_non_null(strstr(status_message(), "tensor t is damaged"));
      image[at] ^= (char)(1 << flip % 8);
      assert_int_equal(safetensors_to_real(&file.list[0], back), STATUS_OK);
      for (int i = 0; i < N; i += 997) assert_true(dtypes[d] == SAFE_BF16 || back[i] == (real)numbers[i]);
      safetensors_close(&file);
    }
    free(image);
  }
  free(numbers);
  free(back);
}

/* ---- headers made to be expensive */

#if defined(__SANITIZE_ADDRESS__)
enum { SANITIZED = 1 };
#else
enum { SANITIZED = 0 };
#endif

typedef struct Cost {
  double seconds;
  long bytes; /* of memory at the peak, the file's own pages among them */
  Status status;
  char words[200];
} Cost;

static double processor_seconds(const struct rusage *used) {
  return (double)(used->ru_utime.tv_sec + used->ru_stime.tv_sec) + 1e-6 * (double)(used->ru_utime.tv_usec + used->ru_stime.tv_usec);
}

/* In a process of its own, which has touched little before. */
static Cost cost_of_opening(const char *path) {
  Cost cost = {0};
  int ends[2];
  assert_int_equal(pipe(ends), 0);
  pid_t child = fork();
  if (child == 0) {
    struct rusage before, after;
    SafeFile file;
    getrusage(RUSAGE_SELF, &before);
    cost.status = safetensors_open(&file, path);
    getrusage(RUSAGE_SELF, &after);
    if (cost.status != STATUS_OK) snprintf(cost.words, sizeof cost.words, "%s", status_message());
    cost.seconds = processor_seconds(&after) - processor_seconds(&before);
    cost.bytes = (after.ru_maxrss - before.ru_maxrss) * 1024;
    _exit(write(ends[1], &cost, sizeof cost) == sizeof cost ? 0 : 1);
  }
  int ended;
  assert_int_equal(read(ends[0], &cost, sizeof cost), sizeof cost);
  assert_int_equal(waitpid(child, &ended, 0), child);
  close(ends[0]);
  close(ends[1]);
  return cost;
}

typedef struct Hostile {
  const char *open, *before, *after, *close; /* of the header; of each member, with its number between them */
  bool numbered;
  const char *words; /* of the refusal; NULL: it is accepted */
} Hostile;

static const char *write_header(const Hostile *kind, size_t bytes) {
  const char *path = scratch_path("hostile.safetensors");
  FILE *stream = fopen(path, "wb");
  uint64_t length = 0;
  assert_non_null(stream);
  fwrite(&length, 8, 1, stream);
  length = (uint64_t)fprintf(stream, "%s", kind->open);
  for (unsigned i = 0; length < bytes; i++) {
    length += (uint64_t)fprintf(stream, "%s%s", i ? "," : "", kind->before);
    if (kind->numbered) length += (uint64_t)fprintf(stream, "%u", i);
    length += (uint64_t)fprintf(stream, "%s", kind->after);
  }
  length += (uint64_t)fprintf(stream, "%s", kind->close);
  rewind(stream);
  fwrite(&length, 8, 1, stream);
  fclose(stream);
  return path;
}

static void test_hostile_headers(void **state) {
  (void)state;
  enum { BYTES = 10000000 };
#define EMPTY "\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}"
  static const Hostile kinds[] = {
      {"{", "\"", EMPTY, "}", true, NULL},
      {"{\"__metadata__\":{", "\"", "\":\"\"", "}}", true, NULL},
      {"{\"a\":[", "[", "]", "]}", true, "no dtype"},
      {"{\"a\":{\"dtype\":\"U8\",\"shape\":[", "", "", "],\"data_offsets\":[0,0]}}", true, "at most 8 numbers"},
      {"{", "\"", "\":{}", "}", true, "no dtype"},
      {"{", "\"a", EMPTY, "}", false, "duplicate"},
      {"{\"a\":[", "[", "", "", true, "no JSON"},
  };
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
    Cost cost = cost_of_opening(write_header(&kinds[i], BYTES));
    print_message("  %s%s1%s: %.2f s, %.1f times the file\n", kinds[i].open, kinds[i].before, kinds[i].after, cost.seconds,
                  (double)cost.bytes / BYTES);
    assert_int_equal(cost.status, kinds[i].words ? STATUS_BAD_FILE : STATUS_OK);
    if (kinds[i].words && !strstr(cost.words, kinds[i].words)) fail_msg("'%s' should mention '%s'", cost.words, kinds[i].words);
    if (SANITIZED) continue;
    assert_true(cost.bytes < 4L * BYTES);
    assert_true(cost.seconds < 3); /* of the processor; 1 s is the aim */
  }
  Cost cost = cost_of_opening(write_header(&kinds[0], (32 << 20) + 1));
  assert_int_equal(cost.status, STATUS_BAD_FILE);
  if (!SANITIZED) assert_true(cost.bytes < 4 << 20 && cost.seconds < 0.5); /* at once */
}

/* Metadata of others is kept, however much there is: here about 100,000 pairs. */
static void test_many_pairs_are_sealed(void **state) {
  (void)state;
  const char *path = write_header(&(Hostile){"{\"__metadata__\":{", "\"", "\":\"\"", "}}", true, NULL}, 1000000);
  SafeFile file;
  assert_int_equal(safetensors_open(&file, path), STATUS_OK);
  size_t pairs = file.metadata_count;
  assert_true(pairs > 90000 && !file.sealed);
  clock_t from = clock();
  assert_int_equal(safetensors_seal(&file), STATUS_OK);
  assert_true((double)(clock() - from) < 2 * time_scale() * CLOCKS_PER_SEC);
  safetensors_close(&file);
  assert_int_equal(safetensors_open(&file, path), STATUS_OK); /* which compares the digest of the header */
  assert_true(file.sealed && file.metadata_count == pairs + 1);
  safetensors_close(&file);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_every_bit_counts), cmocka_unit_test(test_the_documented_digests), cmocka_unit_test(test_without_digests),
      cmocka_unit_test(test_large_tensors),    cmocka_unit_test(test_hostile_headers),        cmocka_unit_test(test_many_pairs_are_sealed),
  };
  return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
