/* The vector kernels for AVX-512 (F, BW, DQ, VL): the primitives that kernels_vector.h asks for. */
#include "autograd/kernels/kernels_tables.h"
#include <stddef.h>

#if !REAL_IS_DOUBLE && defined(__AVX512F__) && defined(__AVX512DQ__) && defined(__AVX512BW__) && defined(__AVX512VL__)
#include <immintrin.h>

#define VECTOR_NAME  "avx512"
#define VECTOR_WIDTH 16
typedef __m512 Vector;
typedef __m512d Doubles;
typedef uint32_t Words __attribute__((vector_size(64)));
typedef int32_t Integers __attribute__((vector_size(64)));
typedef __mmask16 Mask;

static inline Mask first_lanes(int64_t left) { return (Mask)((1u << left) - 1); }
static inline Vector v_load(const float *p, int64_t left) {
  return left == VECTOR_WIDTH ? _mm512_loadu_ps(p) : _mm512_maskz_loadu_ps(first_lanes(left), p);
}
static inline void v_store(float *p, Vector v, int64_t left) {
  if (left == VECTOR_WIDTH)
    _mm512_storeu_ps(p, v);
  else
    _mm512_mask_storeu_ps(p, first_lanes(left), v);
}
/* Without a mask, where stores are short and many: a masked one takes several times as long. left < VECTOR_WIDTH. */
static inline void v_store_short(float *p, Vector v, int64_t left) {
  __m256 half = _mm512_castps512_ps256(v);
  if (left & 8) _mm256_storeu_ps(p, half), p += 8, half = _mm512_extractf32x8_ps(v, 1);
  __m128 quarter = _mm256_castps256_ps128(half);
  if (left & 4) _mm_storeu_ps(p, quarter), p += 4, quarter = _mm256_extractf128_ps(half, 1);
  if (left & 2) _mm_storel_pi((__m64 *)(void *)p, quarter), p += 2, quarter = _mm_movehl_ps(quarter, quarter);
  if (left & 1) _mm_store_ss(p, quarter);
}
static inline __m256i load_narrow(const uint16_t *p, int64_t left) {
  return left == VECTOR_WIDTH ? _mm256_loadu_si256((const __m256i *)(const void *)p) : _mm256_maskz_loadu_epi16(first_lanes(left), p);
}
static inline Vector v_load_half(const uint16_t *p, int64_t left) { return _mm512_cvtph_ps(load_narrow(p, left)); }
static inline Vector v_load_bfloat(const uint16_t *p, int64_t left) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(load_narrow(p, left)), 16));
}
static inline void v_store_bfloat(uint16_t *p, Vector v, int64_t left) {
  const __m512i bits = _mm512_castps_si512(v), upper = _mm512_srli_epi32(bits, 16);
  const __m512i up = _mm512_add_epi32(_mm512_and_si512(upper, _mm512_set1_epi32(1)), _mm512_set1_epi32(0x7fff));
  const __m512i rounded = _mm512_srli_epi32(_mm512_add_epi32(bits, up), 16);
  const __m512i quiet = _mm512_or_si512(upper, _mm512_set1_epi32(0x40));
  const __m256i narrow = _mm512_cvtepi32_epi16(_mm512_mask_blend_epi32(_mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q), rounded, quiet));
  if (left == VECTOR_WIDTH)
    _mm256_storeu_si256((__m256i *)(void *)p, narrow);
  else
    _mm256_mask_storeu_epi16(p, first_lanes(left), narrow);
}
static inline void v_store_half(uint16_t *p, Vector v, int64_t left) {
  const __m256i half = _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  if (left == VECTOR_WIDTH)
    _mm256_storeu_si256((__m256i *)(void *)p, half);
  else
    _mm256_mask_storeu_epi16(p, first_lanes(left), half);
}
static inline Vector v_load_bytes(const uint8_t *p) {
  return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p)));
}
static inline void v_store_bytes(uint8_t *p, Vector v) {
  _mm_storeu_si128((__m128i *)(void *)p, _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(v)));
}
static inline Vector v_set(float number) { return _mm512_set1_ps(number); }
static inline Vector v_fill(Vector v, int64_t left, float fill) {
  return left == VECTOR_WIDTH ? v : _mm512_mask_mov_ps(v_set(fill), first_lanes(left), v);
}
static inline Vector v_fma(Vector a, Vector b, Vector c) { return _mm512_fmadd_ps(a, b, c); }
static inline Vector v_max(Vector a, Vector b) { return _mm512_max_ps(a, b); }
static inline Vector v_min(Vector a, Vector b) { return _mm512_min_ps(a, b); }
static inline Vector v_sqrt(Vector v) { return _mm512_sqrt_ps(v); }
static inline Vector v_round(Vector v) { return _mm512_roundscale_ps(v, _MM_FROUND_TO_NEAREST_INT); }
static inline Vector v_scale(Vector a, Vector n) { return _mm512_scalef_ps(a, n); }
static inline Mask v_less(Vector a, Vector b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
static inline Vector v_select(Mask mask, Vector then, Vector otherwise) { return _mm512_mask_blend_ps(mask, otherwise, then); }
static inline Integers v_select_integers(Mask mask, Integers then, Integers otherwise) {
  return (Integers)_mm512_mask_blend_epi32(mask, (__m512i)otherwise, (__m512i)then);
}
static inline Vector v_to_float(Integers v) { return _mm512_cvtepi32_ps((__m512i)v); }
static inline Doubles v_low(Vector v) { return _mm512_cvtps_pd(_mm512_castps512_ps256(v)); }
static inline Doubles v_high(Vector v) { return _mm512_cvtps_pd(_mm512_extractf32x8_ps(v, 1)); }
static inline float v_sum(Vector v) { return _mm512_reduce_add_ps(v); }
static inline float v_reduce_max(Vector v) { return _mm512_reduce_max_ps(v); }

/* The multiplier takes even lanes only, so odd ones are brought down and their high halves are in place already. */
static inline void v_multiply_wide(Words words, uint32_t factor, Words *high, Words *low) {
  const __m512i factors = _mm512_set1_epi32((int)factor);
  const __m512i even = _mm512_mul_epu32((__m512i)words, factors), odd = _mm512_mul_epu32(_mm512_srli_epi64((__m512i)words, 32), factors);
  *high = (Words)_mm512_mask_blend_epi32(0xAAAA, _mm512_srli_epi64(even, 32), odd);
  *low = words * factor;
}

static inline Vector join_pairs(Vector a, Vector b, int upper) {
  const Doubles x = _mm512_castps_pd(a), y = _mm512_castps_pd(b);
  return _mm512_castpd_ps(upper ? _mm512_unpackhi_pd(x, y) : _mm512_unpacklo_pd(x, y));
}
static inline void v_transpose_4x4(Vector v[4]) {
  const Vector low01 = _mm512_unpacklo_ps(v[0], v[1]), low23 = _mm512_unpacklo_ps(v[2], v[3]);
  const Vector high01 = _mm512_unpackhi_ps(v[0], v[1]), high23 = _mm512_unpackhi_ps(v[2], v[3]);
  v[0] = join_pairs(low01, low23, 0);
  v[1] = join_pairs(low01, low23, 1);
  v[2] = join_pairs(high01, high23, 0);
  v[3] = join_pairs(high01, high23, 1);
}

#include "autograd/kernels/kernels_vector.h"

const Kernels *kernels_avx512(void) { return &vector_table; }
#else
const Kernels *kernels_avx512(void) { return NULL; }
#endif
