/* The vector kernels for AVX2, FMA and F16C: the primitives that kernels_vector.h asks for. */
#include "autograd/kernels/kernels_tables.h"
#include <stddef.h>
#include <string.h>

#if !REAL_IS_DOUBLE && defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#include <immintrin.h>

#define VECTOR_NAME  "avx2"
#define VECTOR_WIDTH 8
typedef __m256 Vector;
typedef __m256d Doubles;
typedef uint32_t Words __attribute__((vector_size(32)));
typedef int32_t Integers __attribute__((vector_size(32)));
typedef __m256 Mask; /* all bits of a lane */

static inline __m256i first_lanes(int64_t left) {
  static const int32_t window[2 * VECTOR_WIDTH] = {-1, -1, -1, -1, -1, -1, -1, -1};
  return _mm256_loadu_si256((const __m256i *)(const void *)(window + VECTOR_WIDTH - left));
}
static inline Vector v_load(const float *p, int64_t left) {
  return left == VECTOR_WIDTH ? _mm256_loadu_ps(p) : _mm256_maskload_ps(p, first_lanes(left));
}
static inline void v_store(float *p, Vector v, int64_t left) {
  if (left == VECTOR_WIDTH)
    _mm256_storeu_ps(p, v);
  else
    _mm256_maskstore_ps(p, first_lanes(left), v);
}
/* Without a mask, where stores are short and many: a masked one takes several times as long. left < VECTOR_WIDTH. */
static inline void v_store_short(float *p, Vector v, int64_t left) {
  __m128 half = _mm256_castps256_ps128(v);
  if (left & 4) _mm_storeu_ps(p, half), p += 4, half = _mm256_extractf128_ps(v, 1);
  if (left & 2) _mm_storel_pi((__m64 *)(void *)p, half), p += 2, half = _mm_movehl_ps(half, half);
  if (left & 1) _mm_store_ss(p, half);
}
/* There is no masked load of 16-bit numbers. */
static inline __m128i load_narrow(const uint16_t *p, int64_t left) {
  uint16_t lane[VECTOR_WIDTH] = {0};
  if (left == VECTOR_WIDTH) return _mm_loadu_si128((const __m128i *)(const void *)p);
  memcpy(lane, p, (size_t)left * sizeof *p);
  return _mm_loadu_si128((const __m128i *)(const void *)lane);
}
static inline Vector v_load_half(const uint16_t *p, int64_t left) { return _mm256_cvtph_ps(load_narrow(p, left)); }
static inline Vector v_load_bfloat(const uint16_t *p, int64_t left) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load_narrow(p, left)), 16));
}
static inline void store_narrow(uint16_t *p, __m128i numbers, int64_t left) {
  uint16_t lane[VECTOR_WIDTH];
  if (left == VECTOR_WIDTH) {
    _mm_storeu_si128((__m128i *)(void *)p, numbers);
    return;
  }
  _mm_storeu_si128((__m128i *)(void *)lane, numbers);
  memcpy(p, lane, (size_t)left * sizeof *p);
}
static inline void v_store_half(uint16_t *p, Vector v, int64_t left) {
  store_narrow(p, _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC), left);
}
static inline void v_store_bfloat(uint16_t *p, Vector v, int64_t left) {
  const __m256i bits = _mm256_castps_si256(v), upper = _mm256_srli_epi32(bits, 16);
  const __m256i up = _mm256_add_epi32(_mm256_and_si256(upper, _mm256_set1_epi32(1)), _mm256_set1_epi32(0x7fff));
  const __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(bits, up), 16);
  const __m256i quiet = _mm256_or_si256(upper, _mm256_set1_epi32(0x40));
  const __m256i wide = _mm256_blendv_epi8(rounded, quiet, _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q)));
  store_narrow(p, _mm_packus_epi32(_mm256_castsi256_si128(wide), _mm256_extracti128_si256(wide, 1)), left);
}
static inline Vector v_load_bytes(const uint8_t *p) {
  return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p)));
}
static inline void v_store_bytes(uint8_t *p, Vector v) {
  const __m256i whole = _mm256_cvtps_epi32(v);
  const __m128i words = _mm_packus_epi32(_mm256_castsi256_si128(whole), _mm256_extracti128_si256(whole, 1));
  _mm_storel_epi64((__m128i *)(void *)p, _mm_packus_epi16(words, words));
}
static inline Vector v_set(float number) { return _mm256_set1_ps(number); }
static inline Vector v_select(Mask mask, Vector then, Vector otherwise) { return _mm256_blendv_ps(otherwise, then, mask); }
static inline Vector v_fill(Vector v, int64_t left, float fill) {
  return left == VECTOR_WIDTH ? v : v_select(_mm256_castsi256_ps(first_lanes(left)), v, v_set(fill));
}
static inline Vector v_fma(Vector a, Vector b, Vector c) { return _mm256_fmadd_ps(a, b, c); }
static inline Vector v_max(Vector a, Vector b) { return _mm256_max_ps(a, b); }
static inline Vector v_min(Vector a, Vector b) { return _mm256_min_ps(a, b); }
static inline Vector v_sqrt(Vector v) { return _mm256_sqrt_ps(v); }
static inline Vector v_round(Vector v) { return _mm256_round_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
static inline Mask v_less(Vector a, Vector b) { return _mm256_cmp_ps(a, b, _CMP_LT_OQ); }
static inline Integers v_select_integers(Mask mask, Integers then, Integers otherwise) {
  return (Integers)v_select(mask, (Vector)then, (Vector)otherwise);
}
static inline Vector v_to_float(Integers v) { return _mm256_cvtepi32_ps((__m256i)v); }

/* In two steps, so that each power of two is a normal number while the result may be subnormal or infinite. */
static inline Vector v_scale(Vector a, Vector n) {
  const Integers power = (Integers)_mm256_cvtps_epi32(n), half = power >> 1;
  return a * (Vector)((half + 127) << 23) * (Vector)((power - half + 127) << 23);
}

static inline Doubles v_low(Vector v) { return _mm256_cvtps_pd(_mm256_castps256_ps128(v)); }
static inline Doubles v_high(Vector v) { return _mm256_cvtps_pd(_mm256_extractf128_ps(v, 1)); }
static inline float v_sum(Vector v) {
  __m128 sum = _mm256_castps256_ps128(v) + _mm256_extractf128_ps(v, 1);
  sum += _mm_movehl_ps(sum, sum);
  return sum[0] + sum[1];
}
static inline float v_reduce_max(Vector v) {
  __m128 max = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  max = _mm_max_ps(max, _mm_movehl_ps(max, max));
  return max[0] > max[1] ? max[0] : max[1];
}

/* The multiplier takes even lanes only, so odd ones are brought down and their high halves are in place already. */
static inline void v_multiply_wide(Words words, uint32_t factor, Words *high, Words *low) {
  const __m256i factors = _mm256_set1_epi32((int)factor);
  const __m256i even = _mm256_mul_epu32((__m256i)words, factors), odd = _mm256_mul_epu32(_mm256_srli_epi64((__m256i)words, 32), factors);
  *high = (Words)_mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xAA);
  *low = words * factor;
}

static inline Vector join_pairs(Vector a, Vector b, int upper) {
  const Doubles x = _mm256_castps_pd(a), y = _mm256_castps_pd(b);
  return _mm256_castpd_ps(upper ? _mm256_unpackhi_pd(x, y) : _mm256_unpacklo_pd(x, y));
}
static inline void v_transpose_4x4(Vector v[4]) {
  const Vector low01 = _mm256_unpacklo_ps(v[0], v[1]), low23 = _mm256_unpacklo_ps(v[2], v[3]);
  const Vector high01 = _mm256_unpackhi_ps(v[0], v[1]), high23 = _mm256_unpackhi_ps(v[2], v[3]);
  v[0] = join_pairs(low01, low23, 0);
  v[1] = join_pairs(low01, low23, 1);
  v[2] = join_pairs(high01, high23, 0);
  v[3] = join_pairs(high01, high23, 1);
}

#include "autograd/kernels/kernels_vector.h"

const Kernels *kernels_avx2(void) { return &vector_table; }
#else
const Kernels *kernels_avx2(void) { return NULL; }
#endif
