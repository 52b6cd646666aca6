/* Consecutive fields of a message, little-endian: each call advances the cursor. The reader checks lengths before. */
#ifndef INFER_BYTE_CURSOR_H
#define INFER_BYTE_CURSOR_H
#include "infer/wire.h"
#include <stdbool.h>
#include <string.h>

static inline void byte_cursor_put_u8(uint8_t **at, uint8_t value) { *(*at)++ = value; }
static inline void byte_cursor_put_u16(uint8_t **at, uint16_t value) {
  byte_cursor_put_u8(at, (uint8_t)value);
  byte_cursor_put_u8(at, (uint8_t)(value >> 8));
}
static inline void byte_cursor_put_u32(uint8_t **at, uint32_t value) {
  wire_put_u32(*at, value);
  *at += 4;
}
static inline void byte_cursor_put_u64(uint8_t **at, uint64_t value) {
  wire_put_u64(*at, value);
  *at += 8;
}
static inline void byte_cursor_put_double(uint8_t **at, double value) {
  wire_put_double(*at, value);
  *at += 8;
}
static inline void byte_cursor_put(uint8_t **at, const void *from, size_t bytes) {
  memcpy(*at, from, bytes);
  *at += bytes;
}

static inline uint8_t byte_cursor_get_u8(const uint8_t **at) { return *(*at)++; }
static inline uint16_t byte_cursor_get_u16(const uint8_t **at) {
  *at += 2;
  return (uint16_t)((*at)[-2] | (*at)[-1] << 8);
}
static inline uint32_t byte_cursor_get_u32(const uint8_t **at) {
  *at += 4;
  return wire_get_u32(*at - 4);
}
static inline uint64_t byte_cursor_get_u64(const uint8_t **at) {
  *at += 8;
  return wire_get_u64(*at - 8);
}
static inline double byte_cursor_get_double(const uint8_t **at) {
  *at += 8;
  return wire_get_double(*at - 8);
}
static inline void byte_cursor_get(const uint8_t **at, void *to, size_t bytes) {
  memcpy(to, *at, bytes);
  *at += bytes;
}

static inline bool byte_cursor_is_zero(const uint8_t *from, const uint8_t *end) {
  while (from < end && *from == 0) from++;
  return from == end;
}

#endif
