/* safetensors: every dtype there and back, half and bfloat to the bit, and files that lie. */
#include "autograd/narrow.h"
#include "nn/safetensors.c" /* memory is parsed where no file is */
#include "unit/nn/scratch.h"
#include <cmocka.h>
#include <math.h>
#include <signal.h>
#include <sys/resource.h>

/* ---- numbers of 16 bits */

static void test_half_round_trip(void **state) {
  (void)state;
  for (uint32_t i = 0; i < 65536; i++) assert_int_equal(narrow_half(narrow_half_to_float((uint16_t)i)), i);
}

static void test_half_values(void **state) {
  (void)state;
  assert_true(narrow_half_to_float(0x3c00) == 1.0f);
  assert_true(narrow_half_to_float(0xc000) == -2.0f);
  assert_true(narrow_half_to_float(0x7bff) == 65504.0f);
  assert_true(narrow_half_to_float(0x0001) == 0x1p-24f);
  assert_true(narrow_half_to_float(0x83ff) == -0x1.ff8p-15f);
  assert_true(isinf(narrow_half_to_float(0x7c00)) && isnan(narrow_half_to_float(0x7e00)));
  assert_true(signbit(narrow_half_to_float(0x8000)));
}

/* Against the definition: the nearest of the two neighbours, the even one on a tie. */
static void test_half_rounding(void **state) {
  (void)state;
  for (uint16_t i = 0; i < 0x7bff; i++) {
    float low = narrow_half_to_float(i), high = narrow_half_to_float((uint16_t)(i + 1)), middle = (low + high) / 2;
    assert_int_equal(narrow_half(middle), i % 2 ? i + 1 : i);
    assert_int_equal(narrow_half(nextafterf(middle, 0)), i);
    assert_int_equal(narrow_half(nextafterf(middle, high)), i + 1);
    assert_int_equal(narrow_half(-nextafterf(middle, high)), (i + 1) | 0x8000);
  }
  assert_int_equal(narrow_half(65519.996f), 0x7bff);
  assert_int_equal(narrow_half(65520.0f), 0x7c00);
  assert_int_equal(narrow_half(1e30f), 0x7c00);
  assert_int_equal(narrow_half(-INFINITY), 0xfc00);
  assert_int_equal(narrow_half(1e-30f), 0);
  assert_true((narrow_half(NAN) & 0x7c00) == 0x7c00 && narrow_half(NAN) & 0x3ff);
}

static float bfloat_value(uint16_t bits) {
  uint32_t wide = (uint32_t)bits << 16;
  float value;
  memcpy(&value, &wide, sizeof value);
  return value;
}

static void test_bfloat(void **state) {
  (void)state;
  for (uint32_t i = 0; i < 65536; i++) assert_int_equal(safetensors_float_to_bfloat(bfloat_value((uint16_t)i)), i);
  for (uint16_t i = 0; i < 0x7f7f; i += 3) {
    float low = bfloat_value(i), high = bfloat_value((uint16_t)(i + 1)), middle = (float)(((double)low + (double)high) / 2);
    assert_int_equal(safetensors_float_to_bfloat(middle), i % 2 ? i + 1 : i);
    assert_int_equal(safetensors_float_to_bfloat(nextafterf(middle, 0)), i);
    assert_int_equal(safetensors_float_to_bfloat(nextafterf(middle, high)), i + 1);
  }
}

/* ---- files */

enum { N = 700 }; /* more than a chunk of the converter */

static void save_one(const char *path, SafeDtype dtype, SafeDtype source, int64_t count, const void *data) {
  SafeItem item = {.name = "t", .dtype = dtype, .source = source, .dims = 2, .shape = {count / 2, 2}, .data = data};
  assert_int_equal(safetensors_save(path, &item, 1, NULL), STATUS_OK);
}

/* Multiples of 1/8 below 16 fit into every float type. */
static void test_float_dtypes(void **state) {
  (void)state;
  static const SafeDtype all[] = {SAFE_F32, SAFE_F16, SAFE_BF16, SAFE_F64}, sources[] = {SAFE_F32, SAFE_F64};
  float single[N];
  double twice[N];
  real back[N];
  for (int i = 0; i < N; i++) twice[i] = single[i] = (float)(i % 251 - 125) / 8;
  for (size_t s = 0; s < 2; s++)
    for (size_t d = 0; d < 4; d++) {
      const char *path = scratch_path("float.safetensors");
      save_one(path, all[d], sources[s], N, s ? (void *)twice : (void *)single);
      SafeFile file;
      assert_int_equal(safetensors_open(&file, path), STATUS_OK);
      const SafeTensor *tensor = safetensors_find(&file, "t");
      assert_non_null(tensor);
      assert_int_equal(tensor->dtype, all[d]);
      assert_int_equal(tensor->count, N);
      assert_true(tensor->dims == 2 && tensor->shape[0] == N / 2 && tensor->shape[1] == 2);
      assert_int_equal((uintptr_t)tensor->data % 64, 0);
      assert_null(safetensors_find(&file, "s"));
      assert_int_equal(safetensors_to_real(tensor, back), STATUS_OK);
      for (int i = 0; i < N; i++) assert_true((double)back[i] == twice[i]);
      int32_t whole[N];
      assert_int_equal(safetensors_to_int32(tensor, whole), STATUS_BAD_FILE);
      safetensors_close(&file);
    }
}

static void test_whole_dtypes(void **state) {
  (void)state;
  static const SafeDtype all[] = {SAFE_I32, SAFE_I64, SAFE_U8, SAFE_U16};
  int32_t narrow[N], back[N];
  int64_t wide[N];
  uint8_t byte[N];
  uint16_t half[N];
  const void *data[] = {narrow, wide, byte, half};
  for (int i = 0; i < N; i++) wide[i] = narrow[i] = half[i] = byte[i] = (uint8_t)(i * 7);
  for (size_t s = 0; s < 4; s++)
    for (size_t d = 0; d < 4; d++) {
      const char *path = scratch_path("whole.safetensors");
      save_one(path, all[d], all[s], N, data[s]);
      SafeFile file;
      assert_int_equal(safetensors_open(&file, path), STATUS_OK);
      assert_int_equal(safetensors_to_int32(&file.list[0], back), STATUS_OK);
      assert_memory_equal(back, narrow, sizeof back);
      real numbers[N];
      assert_int_equal(safetensors_to_real(&file.list[0], numbers), STATUS_BAD_FILE);
      safetensors_close(&file);
    }
}

/* A double just above a tie of two halves: rounding by way of float would fall onto the tie and then to even. */
static void test_rounded_once(void **state) {
  (void)state;
  double data[4] = {1 + 0x1p-11 + 0x1p-40, 1 + 0x1p-11, 1 + 3 * 0x1p-11 - 0x1p-40, -(1 + 0x1p-11 + 0x1p-40)};
  const real want[4] = {(real)(1 + 0x1p-10), 1, (real)(1 + 0x1p-10), (real) - (1 + 0x1p-10)};
  const char *path = scratch_path("once.safetensors");
  save_one(path, SAFE_F16, SAFE_F64, 4, data);
  SafeFile file;
  real back[4];
  assert_int_equal(safetensors_open(&file, path), STATUS_OK);
  assert_int_equal(safetensors_to_real(&file.list[0], back), STATUS_OK);
  for (int i = 0; i < 4; i++) assert_true(back[i] == want[i]);
  safetensors_close(&file);
}

static void test_does_not_fit(void **state) {
  (void)state;
  float large[2] = {1, 70000}, infinite[2] = {INFINITY, -INFINITY};
  int64_t wide[2] = {0, (int64_t)1 << 31};
  const char *path = scratch_path("fit.safetensors");
  SafeItem item = {.name = "weights", .dtype = SAFE_F16, .source = SAFE_F32, .dims = 1, .shape = {2}, .data = large};
  assert_int_equal(safetensors_save(path, &item, 1, NULL), STATUS_BAD_VALUE);
  assert_non_null(strstr(status_message(), "weights"));
  assert_false(files_exists(path));
  item.data = infinite;
  assert_int_equal(safetensors_save(path, &item, 1, NULL), STATUS_OK);
  item = (SafeItem){.name = "ids", .dtype = SAFE_I32, .source = SAFE_I64, .dims = 1, .shape = {2}, .data = wide};
  assert_int_equal(safetensors_save(path, &item, 1, NULL), STATUS_BAD_VALUE);
  item.dtype = SAFE_I64;
  assert_int_equal(safetensors_save(path, &item, 1, NULL), STATUS_OK);
  SafeFile file;
  int32_t back[2];
  assert_int_equal(safetensors_open(&file, path), STATUS_OK);
  assert_int_equal(safetensors_to_int32(&file.list[0], back), STATUS_BAD_FILE);
  safetensors_close(&file);
  item.dtype = SAFE_F32;
  assert_int_equal(safetensors_save(path, &item, 1, NULL), STATUS_BAD_VALUE);
}

static void test_many_tensors(void **state) {
  (void)state;
  static const float numbers[64] = {1, 2, 3};
  static const int64_t whole[3] = {-1, 0, 5};
  static const uint8_t bytes[5] = {1, 2, 3, 4, 5};
  SafeItem items[] = {
      {.name = "odd", .dtype = SAFE_U8, .source = SAFE_U8, .dims = 1, .shape = {5}, .data = bytes},
      {.name = "three", .dtype = SAFE_F32, .source = SAFE_F32, .dims = 1, .shape = {3}, .data = numbers},
      {.name = "scalar", .dtype = SAFE_F32, .source = SAFE_F32, .dims = 0, .data = numbers},
      {.name = "empty", .dtype = SAFE_F32, .source = SAFE_F32, .dims = 2, .shape = {0, 7}, .data = NULL},
      {.name = "round \"name\"", .dtype = SAFE_F32, .source = SAFE_F32, .dims = 2, .shape = {4, 16}, .data = numbers},
      {.name = "long", .dtype = SAFE_I64, .source = SAFE_I64, .dims = 1, .shape = {3}, .data = whole},
  };
  const char *const metadata[] = {"format", "pt", "step", "12", NULL};
  const char *path = scratch_path("many.safetensors");
  assert_int_equal(safetensors_save(path, items, 6, metadata), STATUS_OK);
  SafeFile file;
  assert_int_equal(safetensors_open(&file, path), STATUS_OK);
  assert_int_equal(file.count, 6);
  for (size_t i = 0; i < 6; i++) {
    const SafeTensor *tensor = safetensors_find(&file, items[i].name);
    assert_non_null(tensor);
    assert_int_equal(tensor->dims, items[i].dims);
    assert_int_equal((uintptr_t)tensor->data % (tensor->dtype == SAFE_I64 ? 8 : tensor->dtype == SAFE_F32 ? 4 : 1), 0);
    if (tensor->bytes) assert_memory_equal(tensor->data, items[i].data, tensor->bytes);
  }
  assert_int_equal((uintptr_t)safetensors_find(&file, "round \"name\"")->data % 64, 0);
  safetensors_close(&file);
  items[1].name = "odd";
  assert_int_equal(safetensors_save(path, items, 6, metadata), STATUS_BAD_VALUE);
  items[1].name = "\xff\xfe";
  assert_int_equal(safetensors_save(path, items, 6, metadata), STATUS_BAD_VALUE);
  assert_int_equal(safetensors_open(&file, path), STATUS_OK); /* the failed saves have left the file alone */
  safetensors_close(&file);
}

/* ---- files that lie */

static size_t craft(uint8_t *out, const char *header, size_t data_bytes) {
  uint64_t length = strlen(header);
  memcpy(out, &length, 8);
  memcpy(out + 8, header, length);
  for (size_t i = 0; i < data_bytes; i++) out[8 + length + i] = (uint8_t)i;
  return 8 + length + data_bytes;
}

static Status parse_crafted(const char *header, size_t data_bytes) {
  uint8_t *image = malloc(8 + strlen(header) + data_bytes); /* exact, so that the sanitizer sees a byte too far */
  assert_non_null(image);
  size_t size = craft(image, header, data_bytes);
  SafeFile file;
  Status status = parse_memory(&file, image, size, "crafted");
  if (status == STATUS_OK)
    safetensors_close(&file);
  else {
    assert_int_equal(status, STATUS_BAD_FILE);
    assert_non_null(strstr(status_message(), "crafted"));
    assert_int_equal(file.count, 0);
  }
  free(image);
  return status;
}

static void assert_refused(const char *header, size_t data_bytes, const char *words) {
  assert_int_equal(parse_crafted(header, data_bytes), STATUS_BAD_FILE);
  if (!strstr(status_message(), words)) fail_msg("'%s' should mention '%s'", status_message(), words);
}

#define F32_AT(name, shape, begin, end) "\"" name "\":{\"dtype\":\"F32\",\"shape\":[" shape "],\"data_offsets\":[" begin "," end "]}"

static void test_accepted(void **state) {
  (void)state;
  assert_int_equal(parse_crafted("{}", 0), STATUS_OK);
  assert_int_equal(parse_crafted("{" F32_AT("a", "2", "0", "8") "}   ", 8), STATUS_OK);
  assert_int_equal(parse_crafted("{\"__metadata__\":{\"format\":\"pt\"}," F32_AT("a", "", "0", "4") "}", 4), STATUS_OK);
  assert_int_equal(parse_crafted("{" F32_AT("b", "1", "4", "8") "," F32_AT("a", "1", "0", "4") "," F32_AT("c", "0", "4", "4") "}", 8),
                   STATUS_OK);
  assert_int_equal(parse_crafted("{" F32_AT("a", "1,1,1,1,1,1,1,1", "0", "4") "}", 4), STATUS_OK);
}

static void test_refused(void **state) {
  (void)state;
  assert_refused("[]", 0, "header");
  assert_refused("{x", 0, "JSON");
  assert_refused("{} x", 0, "JSON");
  assert_refused("{\"a\":3}", 0, "dtype");
  assert_refused("{\"__metadata__\":{\"a\":1}}", 0, "string");
  assert_refused("{\"__metadata__\":\"a\"}", 0, "__metadata__");
  assert_refused("{\"a\":{\"dtype\":\"F9\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "F9 of tensor a is not known");
  assert_refused("{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4, "shape");
  assert_refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, "data_offsets");
  assert_refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]}}", 4, "data_offsets");
  assert_refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4.0]}}", 4, "data_offsets");
  assert_refused("{" F32_AT("a", "-1", "0", "4") "}", 4, "out of range");
  assert_refused("{" F32_AT("a", "1.0", "0", "4") "}", 4, "out of range");
  assert_refused("{" F32_AT("a", "4294967296,4294967296", "0", "4") "}", 4, "out of range");
  assert_refused("{" F32_AT("a", "4611686018427387904", "0", "0") "}", 0, "but its shape and dtype need more than 9223372036854775807");
  assert_refused("{" F32_AT("a", "9223372036854775808", "0", "4") "}", 4, "out of range");
  assert_refused("{" F32_AT("a", "1,1,1,1,1,1,1,1,1", "0", "4") "}", 4, "at most 8");
  assert_refused("{" F32_AT("a", "2", "0", "4") "}", 4, "has 4 bytes, but its shape and dtype need 8");
  assert_refused("{" F32_AT("a", "1", "4", "0") "}", 4, "claims bytes");
  assert_refused("{" F32_AT("a", "1", "-4", "0") "}", 4, "claims bytes");
  assert_refused("{" F32_AT("a", "2", "0", "8") "}", 7, "truncated");
  assert_refused("{" F32_AT("a", "2", "0", "8") "}", 9, "no tensor");
  assert_refused("{" F32_AT("a", "1", "0", "4") "," F32_AT("b", "1", "8", "12") "}", 12, "hole");
  assert_refused("{" F32_AT("a", "1", "4", "8") "}", 8, "hole");
  assert_refused("{" F32_AT("a", "2", "0", "8") "," F32_AT("b", "1", "4", "8") "}", 8, "overlaps");
  assert_refused("{" F32_AT("a", "1", "0", "4") "," F32_AT("b", "1", "0", "4") "}", 4, "overlaps");
  assert_refused("{" F32_AT("a", "1", "0", "4") "," F32_AT("a", "1", "4", "8") "}", 8, "duplicate");
}

/* What nobody computes with does not keep the rest of a file from being read. */
static void test_dtypes_that_are_not_converted(void **state) {
  (void)state;
  static const struct {
    const char *name;
    size_t bytes;
  } kinds[] = {{"BOOL", 1}, {"I8", 1}, {"I16", 2}, {"U32", 4}, {"U64", 8}, {"C64", 8}, {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"F8_E8M0", 1}};
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
    char header[200];
    uint8_t image[400];
    SafeFile file;
    real number;
    int32_t whole[3];
    size_t bytes = 3 * kinds[i].bytes;
    snprintf(header, sizeof header,
             "{\"m.attn.bias\":{\"dtype\":\"%s\",\"shape\":[3],\"data_offsets\":[0,%zu]}," F32_AT("w", "1", "%zu", "%zu") "}",
             kinds[i].name, bytes, bytes, bytes + 4);
    assert_int_equal(parse_memory(&file, image, craft(image, header, bytes + 4), "kinds"), STATUS_OK);
    assert_int_equal(safetensors_to_real(safetensors_find(&file, "w"), &number), STATUS_OK);
    const SafeTensor *mask = safetensors_find(&file, "m.attn.bias");
    assert_int_equal(mask->bytes, bytes);
    assert_int_equal(safetensors_to_real(mask, &number), STATUS_BAD_FILE);
    assert_non_null(strstr(status_message(), "m.attn.bias"));
    assert_non_null(strstr(status_message(), kinds[i].name));
    assert_int_equal(safetensors_to_int32(mask, whole), STATUS_BAD_FILE);
    assert_non_null(strstr(status_message(), kinds[i].name));
    SafeItem item = {.name = "t", .dtype = mask->dtype, .source = mask->dtype, .dims = 1, .shape = {3}, .data = mask->data};
    assert_int_equal(safetensors_save(scratch_path("kinds"), &item, 1, NULL), STATUS_OK); /* as it is */
    item.source = SAFE_F32;
    assert_int_equal(safetensors_save(scratch_path("kinds"), &item, 1, NULL), STATUS_BAD_VALUE);
    safetensors_close(&file);
    snprintf(header, sizeof header, "{\"a\":{\"dtype\":\"%s\",\"shape\":[3],\"data_offsets\":[0,%zu]}}", kinds[i].name, bytes - 1);
    assert_refused(header, bytes - 1, "shape and dtype");
  }
}

static void test_lying_lengths(void **state) {
  (void)state;
  static const uint64_t lengths[] = {0, 1, 1000, 100000001, (uint64_t)1 << 63, UINT64_MAX, UINT64_MAX - 7};
  uint8_t image[64];
  size_t size = craft(image, "{" F32_AT("a", "0", "0", "0") "}", 0);
  SafeFile file;
  for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
    memcpy(image, &lengths[i], 8);
    assert_int_equal(parse_memory(&file, image, size, "lying"), STATUS_BAD_FILE);
  }
}

/* Cut anywhere, or with any one byte changed: a clean answer, and never a tensor outside the file. */
static void test_truncated_and_bent(void **state) {
  (void)state;
  const char *header = "{\"__metadata__\":{\"format\":\"pt\"}," F32_AT("a", "2", "0", "8") "," F32_AT("b", "1,3", "8", "20") "}";
  uint8_t whole[256];
  size_t size = craft(whole, header, 20);
  for (size_t cut = 0; cut < size; cut++) {
    uint8_t *image = malloc(cut + 1);
    memcpy(image, whole, cut);
    SafeFile file;
    image = realloc(image, cut ? cut : 1);
    assert_int_equal(parse_memory(&file, image, cut, "cut"), STATUS_BAD_FILE);
    free(image);
  }
  for (size_t i = 0; i < size; i++)
    for (int byte = 0; byte < 256; byte += 3) {
      uint8_t saved = whole[i];
      whole[i] = (uint8_t)byte;
      SafeFile file;
      Status status = parse_memory(&file, whole, size, "bent");
      assert_true(status == STATUS_OK || status == STATUS_BAD_FILE);
      for (size_t t = 0; status == STATUS_OK && t < file.count; t++)
        assert_true(file.list[t].data >= whole && file.list[t].data + file.list[t].bytes <= whole + size);
      if (status == STATUS_OK) safetensors_close(&file);
      whole[i] = saved;
    }
}

static void test_no_file(void **state) {
  (void)state;
  SafeFile file;
  assert_int_equal(safetensors_open(&file, scratch_path("absent")), STATUS_NOT_FOUND);
  assert_non_null(strstr(status_message(), "absent"));
  assert_int_not_equal(safetensors_open(&file, scratch), STATUS_OK);
  assert_int_equal(files_write(scratch_path("empty"), "", 0), STATUS_OK);
  assert_int_equal(safetensors_open(&file, scratch_path("empty")), STATUS_BAD_FILE);
}

/* ---- a disk that is full: the limit on a file's size stands for it */

static void test_disk_full(void **state) {
  (void)state;
  static float numbers[20000];
  const char *path = scratch_path("full.safetensors");
  SafeItem item = {.name = "t", .dtype = SAFE_F32, .source = SAFE_F32, .dims = 1, .shape = {20000}, .data = numbers};
  SafeItem small = item;
  small.shape[0] = 3;
  assert_int_equal(safetensors_save(path, &small, 1, NULL), STATUS_OK);
  struct rlimit old, low = {8192, 8192};
  assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
  low.rlim_max = old.rlim_max;
  signal(SIGXFSZ, SIG_IGN);
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &low), 0);
  Status status = safetensors_save(path, &item, 1, NULL);
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
  assert_int_equal(status, STATUS_IO);
  assert_non_null(strstr(status_message(), "full.safetensors"));
  SafeFile file;
  assert_int_equal(safetensors_open(&file, path), STATUS_OK); /* the old one */
  assert_int_equal(file.list[0].count, 3);
  safetensors_close(&file);
  assert_int_not_equal(safetensors_save("/proc/nowhere/t.safetensors", &small, 1, NULL), STATUS_OK);
}

static void test_golden(void **state) {
  (void)state;
  const char *directory = golden_path("vit-g8-n3-uneven");
  static const char *const names[] = {"model.safetensors", "codebooks.safetensors", "expected.safetensors"};
  for (size_t i = 0; i < 3; i++) {
    char path[600];
    snprintf(path, sizeof path, "%s/%s", directory, names[i]);
    SafeFile file;
    assert_int_equal(safetensors_open(&file, path), STATUS_OK);
    assert_true(file.count >= 3);
    safetensors_close(&file);
  }
}

/* Numbers that are made while they are written, a chunk at a time, in order. */
static void made_number(void *context, int64_t first, int64_t count, void *out) {
  int64_t *next = context;
  assert_int_equal(first, *next);
  for (int64_t i = 0; i < count; i++) ((real *)out)[i] = (real)((first + i) % 1000) / 4;
  *next = first + count;
}

static void test_made_numbers(void **state) {
  (void)state;
  enum { NUMBERS = 100003 };
  static const SafeDtype dtypes[] = {SAFE_F32, SAFE_F16, SAFE_REAL};
  real *back = malloc(NUMBERS * sizeof *back);
  for (int d = 0; d < 3; d++) {
    int64_t next = 0;
    SafeItem item = {.name = "made", .dtype = dtypes[d], .source = SAFE_REAL, .dims = 1, .shape = {NUMBERS}};
    item.fill = made_number;
    item.context = &next;
    assert_int_equal(safetensors_save(scratch_path("made.safetensors"), &item, 1, NULL), STATUS_OK);
    assert_int_equal(next, NUMBERS);
    SafeFile file;
    assert_int_equal(safetensors_open(&file, scratch_path("made.safetensors")), STATUS_OK);
    assert_int_equal(safetensors_to_real(safetensors_find(&file, "made"), back), STATUS_OK);
    for (int64_t i = 0; i < NUMBERS; i++) assert_true(back[i] == (real)(i % 1000) / 4);
    safetensors_close(&file);
  }
  free(back);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_half_round_trip), cmocka_unit_test(test_half_values),
      cmocka_unit_test(test_half_rounding),   cmocka_unit_test(test_bfloat),
      cmocka_unit_test(test_float_dtypes),    cmocka_unit_test(test_whole_dtypes),
      cmocka_unit_test(test_rounded_once),    cmocka_unit_test(test_does_not_fit),
      cmocka_unit_test(test_many_tensors),    cmocka_unit_test(test_accepted),
      cmocka_unit_test(test_refused),         cmocka_unit_test(test_dtypes_that_are_not_converted),
      cmocka_unit_test(test_lying_lengths),   cmocka_unit_test(test_truncated_and_bent),
      cmocka_unit_test(test_no_file),         cmocka_unit_test(test_disk_full),
      cmocka_unit_test(test_golden),          cmocka_unit_test(test_made_numbers),
  };
  return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
