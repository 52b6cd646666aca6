/* Consecutive fields of a message, little-endian. Each call packs a field or, from a message that is parsed, reads it, and moves on. So one
 * function states a layout for both directions, as XDR's do (RFC 4506). The caller has checked lengths; what was read is hostile until it
 * has been checked as well. */
#ifndef INFER_BYTE_CURSOR_H
#define INFER_BYTE_CURSOR_H
#include "infer/wire.h"
#include <stdbool.h>
#include <string.h>

typedef struct ByteCursor {
  uint8_t *at;
  bool parses; /* reads into the fields; else writes them */
} ByteCursor;

static inline ByteCursor byte_cursor_to(uint8_t *message) { return (ByteCursor){message, false}; }
static inline ByteCursor byte_cursor_from(const uint8_t *message) { return (ByteCursor){(uint8_t *)message, true}; } /* never written to */

static inline void byte_cursor_bytes(ByteCursor *c, void *field, size_t bytes) {
  if (c->parses)
    memcpy(field, c->at, bytes);
  else
    memcpy(c->at, field, bytes);
  c->at += bytes;
}
static inline void byte_cursor_u8(ByteCursor *c, uint8_t *field) { byte_cursor_bytes(c, field, 1); }
static inline void byte_cursor_u16(ByteCursor *c, uint16_t *field) {
  if (c->parses)
    *field = (uint16_t)(c->at[0] | c->at[1] << 8);
  else
    c->at[0] = (uint8_t)*field, c->at[1] = (uint8_t)(*field >> 8);
  c->at += 2;
}
static inline void byte_cursor_u32(ByteCursor *c, uint32_t *field) {
  if (c->parses)
    *field = wire_get_u32(c->at);
  else
    wire_put_u32(c->at, *field);
  c->at += 4;
}
static inline void byte_cursor_u64(ByteCursor *c, uint64_t *field) {
  if (c->parses)
    *field = wire_get_u64(c->at);
  else
    wire_put_u64(c->at, *field);
  c->at += 8;
}
static inline void byte_cursor_double(ByteCursor *c, double *field) {
  double value = c->parses ? 0 : *field;
  uint64_t bits;
  memcpy(&bits, &value, sizeof bits);
  byte_cursor_u64(c, &bits);
  memcpy(field, &bits, sizeof bits);
}
/* As float32. */
static inline void byte_cursor_float(ByteCursor *c, double *field) {
  float value = c->parses ? 0 : (float)*field;
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  byte_cursor_u32(c, &bits);
  memcpy(&value, &bits, sizeof value);
  *field = (double)value;
}

/* A field of any type of integer, as an unsigned one of so many bits. */
#define BYTE_CURSOR_FIELD(cursor, bits, field)                                                                                             \
  do {                                                                                                                                     \
    uint##bits##_t field_ = (cursor)->parses ? 0 : (uint##bits##_t)(field);                                                                \
    byte_cursor_u##bits(cursor, &field_);                                                                                                  \
    (field) = (__typeof__(field))field_;                                                                                                   \
  } while (0)

static inline bool byte_cursor_is_zero(const uint8_t *from, const uint8_t *end) {
  while (from < end && *from == 0) from++;
  return from == end;
}

#endif
