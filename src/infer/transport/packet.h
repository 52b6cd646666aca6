/* The unit of communication between devices while they compute, the same over every backend (docs/FORMATS.md): 12 bytes, little-endian,
 * and a payload whose length follows from them and from what was agreed.
 *
 *   0 request u32 | 4 block u8 | 5 site (low 4 bits), type (high 4) u8 | 6 part u8 | 7 flags u8 | 8 index u16 | 10 count u16
 *
 * A message is all packets of one (request, block, site, part) of one sender; count says how many, index which one. Its tokens are
 * interleaved: packet f of F has tokens f, f + F, f + 2 F..., so that a lost packet leaves scattered gaps. Pure functions. */
#ifndef INFER_PACKET_H
#define INFER_PACKET_H
#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PACKET_HEADER = 12, MAX_PACKETS = 1024 /* of a message */, MAX_PARTS = 16, PACKET_SITES = 16, PACKET_BLOCKS = 255 };

typedef enum PacketType {
  PACKET_CODES,  /* the codes of its tokens: packed, or with PACKET_CODED entropy-coded where that is shorter */
  PACKET_RAW,    /* the rows of its tokens, float32 */
  PACKET_QUERY,  /* bits of the missing packets; count 0, no bits: their number is not known */
  PACKET_STATUS, /* u8 state (0 not yet, 1 sent, 2 gone), 3 zero bytes, bits of the packets that were sent; count 0, no bits: none were */
  PACKET_TYPES
} PacketType;

enum { PACKET_CODED = 1 }; /* the only flag */
enum { PACKET_STATUS_HEAD = 4 };

typedef struct Packet {
  uint32_t request;
  uint8_t block, site, part, flags;
  PacketType type;
  uint16_t index, count;
} Packet;

void packet_pack(const Packet *packet, uint8_t bytes[PACKET_HEADER]);
void packet_read(const uint8_t bytes[PACKET_HEADER], Packet *packet); /* the fields, unchecked */

/* What was agreed on; every length follows from it. */
typedef struct PacketRules PacketRules;
struct PacketRules {
  int blocks, sites, parts;
  int64_t groups, entries, width; /* G, K of codes; numbers of a row */
  const int64_t *part_rows;       /* [nodes][parts] rows that each node sends, of one sample */
  bool raw;                       /* rows travel, no codes */
  bool coded;                     /* codes may be entropy-coded */
  /* Where messages differ from block to block: rows of a message, of all samples together; part_rows is not looked at. NULL: they do not.
   */
  int64_t (*message_rows)(const PacketRules *rules, int sender, int block, int site, int part);
  const void *message_context; /* message_rows' own */
};

/* Rows, or tokens, of a message of a request of `batch` samples. */
static inline int64_t packet_rows(const PacketRules *rules, int sender, int64_t batch, int block, int site, int part) {
  return rules->message_rows ? rules->message_rows(rules, sender, block, site, part)
                             : batch * rules->part_rows[sender * rules->parts + part];
}

/* The header of a packet of `size` bytes from node `sender` in a request of `batch` samples. BAD_VALUE names what does not follow from the
 * rules: block, site, part, type, flags, index, count, length. Whether its request is due is checked by the transport, and codes when they
 * are unpacked. */
Status packet_parse(const uint8_t *bytes, size_t size, int sender, int64_t batch, const PacketRules *rules, Packet *packet);

/* Bytes of the packed codes of `tokens` tokens, none of them entropy-coded, or of their rows. */
size_t packet_payload_bytes(const PacketRules *rules, int64_t tokens);

/* Where the payload of a packet begins if those of its message are stored one after another, none of them entropy-coded. tokens: of the
 * message.
 */
size_t packet_offset(const PacketRules *rules, int64_t tokens, int count, int index);

static inline size_t packet_bits_bytes(int count) { return ((size_t)count + 7) / 8; } /* of a packet for each bit */

/* ---- interleaving */

/* F, so that no packet's tokens take more than `max` bytes, and at least `min` where there are tokens enough. 0: a single token does not
 * fit, or there would be more than MAX_PACKETS. */
int interleave_packets(int64_t tokens, double token_bits, size_t max, int min);

/* The least number of packets of a part, of a block that has at least `min` to a receiver: never a single one where a block would have
 * several, or a lost one would take a whole area. */
static inline int interleave_min(int min, int parts) {
  int each = (min + parts - 1) / parts;
  return each < 2 && min > 1 ? 2 : each;
}

/* Tokens of packet `index`: none has more than packet 0. */
int64_t interleave_count(int64_t tokens, int packets, int index);

/* The i-th token of packet `index`. */
static inline int64_t interleave_token(int packets, int index, int64_t i) { return index + i * packets; }

#endif
