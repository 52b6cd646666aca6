/* The wire format between nodes (docs/FORMATS.md): fixed little-endian headers, no pointers, shapes or graphs. Parsing trusts nothing. */
#ifndef INFER_WIRE_H
#define INFER_WIRE_H
#include "base/status.h"
#include <stddef.h>
#include <stdint.h>

enum { WIRE_MAGIC = 0x41525453, WIRE_VERSION = 1, WIRE_HEADER = 24 };

typedef enum WireKind { WIRE_HELLO = 1, WIRE_REQUEST, WIRE_CODES, WIRE_RESULT, WIRE_ERROR, WIRE_BYE } WireKind;

typedef struct WireHeader {
  uint8_t kind;
  uint8_t sender; /* node */
  uint8_t block;  /* WIRE_CODES: block; 0 otherwise */
  uint8_t site;
  uint32_t request; /* number of the request */
  uint32_t count;   /* WIRE_CODES: tokens per sample times samples; other kinds: see docs/FORMATS.md */
  uint32_t bytes;   /* of the payload behind the header */
} WireHeader;

void wire_pack(const WireHeader *header, uint8_t bytes[WIRE_HEADER]);
Status wire_parse(const uint8_t bytes[WIRE_HEADER], size_t most_payload,
                  WireHeader *header); /* BAD_VALUE on magic, version, kind, length */

#endif
