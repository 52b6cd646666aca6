/* What reader and writer both do with the bytes of tensors: hash them (libxxhash's XXH3), and convert arrays of one dtype to another:
 * floats through double, integers through int64, a chunk that stays in the cache at a time. Every narrowing is one rounding to nearest
 * even: a double that becomes 16 bits is first rounded to odd, which keeps the ties apart. Invariant: no arithmetic on subnormal floats (a
 * thread may flush them to zero), no NaN loses its being one. */
#include "autograd/narrow.h"
#include "nn/safetensors_internal.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "safetensors files are little-endian and so must this machine be"
#endif

enum { CHUNK = 512 };

/* ---- Conversion ---- */

uint16_t safetensors_float_to_bfloat(float value) {
  uint32_t bits = narrow_bits_of_float(value);
  bool nan = (bits & 0x7fffffffu) > 0x7f800000u;
  uint32_t payload = bits >> 16;
  if (nan) return (uint16_t)(payload & 0x7fu ? payload : payload | 0x40u);
  return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

/* The float next to `value` whose last bit is odd, unless value is a float: rounding this on is rounding `value` once. */
static inline float round_to_odd(double value) {
  float nearest = (float)value;
  double back = (double)nearest;
  if (back == value || isnan(value)) return nearest;
  uint32_t bits = narrow_bits_of_float(nearest);
  if (fabs(back) > fabs(value)) bits--; /* towards zero */
  return narrow_float_of_bits(bits | 1u);
}

/* ---- arrays of one dtype. `load` widens, `store` narrows and returns the index of the first number that does not fit, or -1. */

typedef void LoadFloat(double *wide, const uint8_t *in, int64_t count);
typedef int64_t StoreFloat(uint8_t *out, const double *wide, int64_t count);
typedef void LoadWhole(int64_t *wide, const uint8_t *in, int64_t count);
typedef int64_t StoreWhole(uint8_t *out, const int64_t *wide, int64_t count);

static inline uint16_t load_16(const uint8_t *in, int64_t i) {
  uint16_t bits;
  memcpy(&bits, in + 2 * i, sizeof bits);
  return bits;
}

static void load_f16(double *wide, const uint8_t *in, int64_t count) {
  for (int64_t i = 0; i < count; i++) wide[i] = (double)narrow_half_to_float(load_16(in, i));
}

static void load_bf16(double *wide, const uint8_t *in, int64_t count) {
  for (int64_t i = 0; i < count; i++) wide[i] = (double)narrow_bfloat_to_float(load_16(in, i));
}

static void load_f32(double *wide, const uint8_t *in, int64_t count) {
  for (int64_t i = 0; i < count; i++) {
    float value;
    memcpy(&value, in + 4 * i, sizeof value);
    wide[i] = (double)value;
  }
}

static void load_f64(double *wide, const uint8_t *in, int64_t count) { memcpy(wide, in, (size_t)count * sizeof *wide); }

/* A number that was finite and whose 16-bit (or float) image has all exponent bits set. */
static int64_t first_overflow(const double *wide, int64_t count, double limit) {
  for (int64_t i = 0; i < count; i++)
    if (fabs(wide[i]) >= limit && !isinf(wide[i])) return i;
  return -1;
}

static int64_t store_f16(uint8_t *out, const double *wide, int64_t count) {
  for (int64_t i = 0; i < count; i++) {
    uint16_t bits = narrow_half(round_to_odd(wide[i]));
    memcpy(out + 2 * i, &bits, sizeof bits);
  }
  return first_overflow(wide, count, 65520.0);
}

static int64_t store_bf16(uint8_t *out, const double *wide, int64_t count) {
  for (int64_t i = 0; i < count; i++) {
    uint16_t bits = safetensors_float_to_bfloat(round_to_odd(wide[i]));
    memcpy(out + 2 * i, &bits, sizeof bits);
  }
  return first_overflow(wide, count, 0x1.ffp127);
}

static int64_t store_f32(uint8_t *out, const double *wide, int64_t count) {
  for (int64_t i = 0; i < count; i++) {
    float value = (float)wide[i];
    memcpy(out + 4 * i, &value, sizeof value);
  }
  return first_overflow(wide, count, 0x1.ffffffp127);
}

static int64_t store_f64(uint8_t *out, const double *wide, int64_t count) {
  memcpy(out, wide, (size_t)count * sizeof *wide);
  return -1;
}

static void load_i32(int64_t *wide, const uint8_t *in, int64_t count) {
  for (int64_t i = 0; i < count; i++) {
    int32_t value;
    memcpy(&value, in + 4 * i, sizeof value);
    wide[i] = value;
  }
}

static void load_i64(int64_t *wide, const uint8_t *in, int64_t count) { memcpy(wide, in, (size_t)count * sizeof *wide); }

static void load_u8(int64_t *wide, const uint8_t *in, int64_t count) {
  for (int64_t i = 0; i < count; i++) wide[i] = in[i];
}

static void load_u16(int64_t *wide, const uint8_t *in, int64_t count) {
  for (int64_t i = 0; i < count; i++) wide[i] = load_16(in, i);
}

static int64_t first_outside(const int64_t *wide, int64_t count, int64_t min, int64_t max) {
  for (int64_t i = 0; i < count; i++)
    if (wide[i] < min || wide[i] > max) return i;
  return -1;
}

static int64_t store_i32(uint8_t *out, const int64_t *wide, int64_t count) {
  for (int64_t i = 0; i < count; i++) {
    int32_t value = (int32_t)(uint32_t)(uint64_t)wide[i];
    memcpy(out + 4 * i, &value, sizeof value);
  }
  return first_outside(wide, count, INT32_MIN, INT32_MAX);
}

static int64_t store_i64(uint8_t *out, const int64_t *wide, int64_t count) {
  memcpy(out, wide, (size_t)count * sizeof *wide);
  return -1;
}

static int64_t store_u8(uint8_t *out, const int64_t *wide, int64_t count) {
  for (int64_t i = 0; i < count; i++) out[i] = (uint8_t)wide[i];
  return first_outside(wide, count, 0, UINT8_MAX);
}

static int64_t store_u16(uint8_t *out, const int64_t *wide, int64_t count) {
  for (int64_t i = 0; i < count; i++) {
    uint16_t value = (uint16_t)wide[i];
    memcpy(out + 2 * i, &value, sizeof value);
  }
  return first_outside(wide, count, 0, UINT16_MAX);
}

/* ---- the table */

typedef struct Dtype {
  const char *name;
  size_t bytes;
  LoadFloat *load_float; /* NULL for integers, and for what is not converted */
  StoreFloat *store_float;
  LoadWhole *load_whole; /* NULL for floats, and for what is not converted */
  StoreWhole *store_whole;
} Dtype;

static const Dtype dtypes[SAFE_DTYPES] = {
    [SAFE_F32] = {"F32", 4, load_f32, store_f32, NULL, NULL},
    [SAFE_F16] = {"F16", 2, load_f16, store_f16, NULL, NULL},
    [SAFE_BF16] = {"BF16", 2, load_bf16, store_bf16, NULL, NULL},
    [SAFE_F64] = {"F64", 8, load_f64, store_f64, NULL, NULL},
    [SAFE_I32] = {"I32", 4, NULL, NULL, load_i32, store_i32},
    [SAFE_I64] = {"I64", 8, NULL, NULL, load_i64, store_i64},
    [SAFE_U8] = {"U8", 1, NULL, NULL, load_u8, store_u8},
    [SAFE_BOOL] = {.name = "BOOL", .bytes = 1},
    [SAFE_I8] = {.name = "I8", .bytes = 1},
    [SAFE_I16] = {.name = "I16", .bytes = 2},
    [SAFE_U16] = {"U16", 2, NULL, NULL, load_u16, store_u16},
    [SAFE_U32] = {.name = "U32", .bytes = 4},
    [SAFE_U64] = {.name = "U64", .bytes = 8},
    [SAFE_C64] = {.name = "C64", .bytes = 8},
    [SAFE_F8_E4M3] = {.name = "F8_E4M3", .bytes = 1},
    [SAFE_F8_E5M2] = {.name = "F8_E5M2", .bytes = 1},
    [SAFE_F8_E8M0] = {.name = "F8_E8M0", .bytes = 1},
};

const char *safe_dtype_name(SafeDtype dtype) { return dtypes[dtype].name; }
size_t safe_dtype_bytes(SafeDtype dtype) { return dtypes[dtype].bytes; }
bool safe_dtype_is_float(SafeDtype dtype) { return dtypes[dtype].load_float != NULL; }

bool safe_dtype_agree(SafeDtype a, SafeDtype b) {
  return (dtypes[a].load_float && dtypes[b].load_float) || (dtypes[a].load_whole && dtypes[b].load_whole);
}

void safe_convert(SafeDtype to, void *out, SafeDtype from, const void *in, int64_t count, int64_t *at) {
  const Dtype *target = &dtypes[to], *source = &dtypes[from];
  const uint8_t *read = in;
  uint8_t *write = out;
  *at = -1;
  if (to == from) {
    if (count > 0) memcpy(out, in, (size_t)count * target->bytes);
    return;
  }
  for (int64_t done = 0; done < count && *at < 0; done += CHUNK) {
    int64_t n = count - done < CHUNK ? count - done : CHUNK, bad;
    const uint8_t *chunk = read + (size_t)done * source->bytes;
    uint8_t *place = write + (size_t)done * target->bytes;
    if (source->load_float) {
      double wide[CHUNK];
      source->load_float(wide, chunk, n);
      bad = target->store_float(place, wide, n);
    } else {
      int64_t wide[CHUNK];
      source->load_whole(wide, chunk, n);
      bad = target->store_whole(place, wide, n);
    }
    if (bad >= 0) *at = done + bad;
  }
}

/* ---- Digests ---- */

struct SafeDigest {
  XXH3_state_t *state;
};

SafeDigest *safe_digest_new(void) {
  SafeDigest *digest = malloc(sizeof *digest);
  if (digest) digest->state = XXH3_createState();
  if (digest && digest->state) return digest;
  free(digest);
  return NULL;
}

void safe_digest_free(SafeDigest *digest) {
  if (!digest) return;
  XXH3_freeState(digest->state);
  free(digest);
}

void safe_digest_begin(SafeDigest *digest) { XXH3_64bits_reset(digest->state); }

void safe_digest_add(SafeDigest *digest, const void *data, size_t bytes) {
  if (bytes > 0) XXH3_64bits_update(digest->state, data, bytes);
}

uint64_t safe_digest_end(SafeDigest *digest) { return XXH3_64bits_digest(digest->state); }

uint64_t safe_digest_of(const void *data, size_t bytes) { return XXH3_64bits(data, bytes); }

void safe_digest_text(uint64_t number, char text[SAFE_DIGEST_TEXT]) { snprintf(text, SAFE_DIGEST_TEXT, "%016" PRIx64, number); }

bool safe_digest_is_key(const char *key) {
  size_t length = strlen(SAFE_DIGEST_KEY);
  return strncmp(key, SAFE_DIGEST_KEY, length) == 0 && (key[length] == 0 || key[length] == '.');
}

static void add_text(SafeDigest *digest, const char *text) { safe_digest_add(digest, text, strlen(text) + 1); }

void safe_digest_add_tensor(SafeDigest *digest, const char *name, SafeDtype dtype, int dims, const int64_t *shape, uint64_t own) {
  uint64_t numbers[SAFE_DIMS + 2] = {(uint64_t)dims};
  for (int i = 0; i < dims; i++) numbers[1 + i] = (uint64_t)shape[i];
  numbers[1 + dims] = own;
  add_text(digest, name);
  add_text(digest, safe_dtype_name(dtype));
  safe_digest_add(digest, numbers, ((size_t)dims + 2) * sizeof *numbers);
}

void safe_digest_add_pair(SafeDigest *digest, const char *key, const char *value) {
  if (safe_digest_is_key(key)) return;
  add_text(digest, key);
  add_text(digest, value);
}
