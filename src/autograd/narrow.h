/* The two 16-bit forms in which frozen weights may stay in memory, the second also that of activations. Every such number is a float:
 * widening is exact. */
#ifndef AUTOGRAD_NARROW_H
#define AUTOGRAD_NARROW_H
#include "autograd/real.h"
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef enum NarrowKind {
  NARROW_NONE,
  NARROW_F16, /* IEEE 754 half: 1 sign, 5 exponent, 10 fraction bits */
  NARROW_BF16 /* bfloat16: the upper half of a float */
} NarrowKind;

/* Of a number in this form; NARROW_NONE: of a real. */
static inline size_t narrow_kind_bytes(NarrowKind kind) { return kind == NARROW_NONE ? sizeof(real) : sizeof(uint16_t); }

static inline float narrow_float_of_bits(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

/* The exponent is moved by 112, that of infinities and NaNs twice; a subnormal m 2^-24 is the normal (1 + m 2^-10) 2^-14 less 2^-14. */
static inline float narrow_half_to_float(uint16_t half) {
  const uint32_t sign = (half & 0x8000u) << 16, magnitude = (half & 0x7fffu) << 13, moved = magnitude + (112u << 23);
  const float less = narrow_float_of_bits(moved + (1u << 23)) - narrow_float_of_bits(113u << 23);
  uint32_t subnormal;
  memcpy(&subnormal, &less, sizeof subnormal);
  const uint32_t normal = moved + (magnitude >= 31u << 23 ? 112u << 23 : 0u);
  return narrow_float_of_bits(sign | (magnitude < 1u << 23 ? subnormal : normal)); /* no branch: loops become vectors */
}

static inline float narrow_bfloat_to_float(uint16_t bfloat) { return narrow_float_of_bits((uint32_t)bfloat << 16); }

static inline float narrow_to_float(NarrowKind kind, uint16_t bits) {
  return kind == NARROW_F16 ? narrow_half_to_float(bits) : narrow_bfloat_to_float(bits);
}

static inline uint32_t narrow_bits_of_float(float number) {
  uint32_t bits;
  memcpy(&bits, &number, sizeof bits);
  return bits;
}

/* To nearest, ties to even; beyond 65,520 infinite; a NaN stays one. Below 2^-14 the float adder does the rounding: 0.5 has its last bit
 * where a half's subnormals have theirs. */
static inline uint16_t narrow_half(float number) {
  const uint32_t bits = narrow_bits_of_float(number), sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
  const uint32_t payload = magnitude >> 13 & 0x3ffu;
  const uint32_t nan = 0x7c00u | payload | (payload ? 0u : 0x200u);
  const uint32_t subnormal = narrow_bits_of_float(narrow_float_of_bits(magnitude) + 0.5f) - narrow_bits_of_float(0.5f);
  const uint32_t normal = (magnitude - (112u << 23) + 0xfffu + (magnitude >> 13 & 1u)) >> 13;
  const uint32_t finite = magnitude < (113u << 23) ? subnormal : magnitude >= (143u << 23) ? 0x7c00u : normal;
  return (uint16_t)(sign | (magnitude > 0x7f800000u ? nan : finite));
}

/* To nearest, ties to even; what is no number stays none. */
static inline uint16_t narrow_bfloat(float number) {
  const uint32_t bits = narrow_bits_of_float(number);
  const uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1)) >> 16, quiet = bits >> 16 | 0x40u;
  return (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
}

#endif
