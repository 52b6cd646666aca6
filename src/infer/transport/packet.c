/* Packing and checking of headers, and the arithmetic of interleaving. Hostile bytes: nothing is believed that does not follow from the
 * rules. */
#include "infer/transport/packet.h"
#include "infer/wire.h"
#include "vq/pack.h"
#include <math.h>

static void put_u16(uint8_t *bytes, uint16_t value) {
  bytes[0] = (uint8_t)value;
  bytes[1] = (uint8_t)(value >> 8);
}
static uint16_t get_u16(const uint8_t *bytes) { return (uint16_t)(bytes[0] | bytes[1] << 8); }

void packet_pack(const Packet *packet, uint8_t bytes[PACKET_HEADER]) {
  wire_put_u32(bytes, packet->request);
  bytes[4] = packet->block;
  bytes[5] = (uint8_t)(packet->site | packet->type << 4);
  bytes[6] = packet->part;
  bytes[7] = packet->flags;
  put_u16(bytes + 8, packet->index);
  put_u16(bytes + 10, packet->count);
}

void packet_read(const uint8_t bytes[PACKET_HEADER], Packet *packet) {
  *packet = (Packet){.request = wire_get_u32(bytes),
                     .block = bytes[4],
                     .site = bytes[5] & 15,
                     .part = bytes[6],
                     .flags = bytes[7],
                     .type = (PacketType)(bytes[5] >> 4),
                     .index = get_u16(bytes + 8),
                     .count = get_u16(bytes + 10)};
}

size_t packet_payload_bytes(const PacketRules *rules, int64_t tokens) {
  if (rules->raw) return (size_t)tokens * (size_t)rules->width * 4;
  return pack_dense_bytes(tokens, rules->groups, rules->entries);
}

/* The first tokens % count packets have a token more than the others. */
size_t packet_offset(const PacketRules *rules, int64_t tokens, int count, int index) {
  int longer = (int)(tokens % count), before = index < longer ? index : longer;
  size_t less = packet_payload_bytes(rules, tokens / count);
  return (size_t)before * packet_payload_bytes(rules, tokens / count + 1) + (size_t)(index - before) * less;
}

Status packet_parse(const uint8_t *bytes, size_t size, int sender, int64_t batch, const PacketRules *rules, Packet *packet) {
  if (size < PACKET_HEADER) return status_set(STATUS_BAD_VALUE, "sent a packet of %zu bytes", size);
  Packet p;
  packet_read(bytes, &p);
  /* Where it belongs, and what it is. */
  if (p.block >= rules->blocks || p.site >= rules->sites || p.part >= rules->parts)
    return status_set(STATUS_BAD_VALUE, "sent a packet of block %d, site %d, part %d; there are %d, %d and %d", p.block, p.site, p.part,
                      rules->blocks, rules->sites, rules->parts);
  if (p.type >= PACKET_TYPES || p.type == (rules->raw ? PACKET_CODES : PACKET_RAW))
    return status_set(STATUS_BAD_VALUE, "sent a packet of type %d, which was not agreed on", p.type);
  if (p.flags & ~(p.type == PACKET_CODES && rules->coded ? PACKET_CODED : 0))
    return status_set(STATUS_BAD_VALUE, "sent a packet with unexpected flags %d", p.flags);
  /* Which of how many: a message has at least as many tokens as packets, and no query is for a single packet. */
  const bool data = p.type == PACKET_CODES || p.type == PACKET_RAW;
  const int64_t tokens = packet_rows(rules, sender, batch, p.block, p.site, p.part);
  if (p.count > MAX_PACKETS || p.count > tokens || (data ? p.index >= p.count : p.index > 0))
    return status_set(STATUS_BAD_VALUE, "sent packet %d of %d, of %lld tokens", p.index, p.count, (long long)tokens);
  /* How long it is. */
  size_t payload = size - PACKET_HEADER, max = packet_bits_bytes(p.count) + (p.type == PACKET_STATUS ? PACKET_STATUS_HEAD : 0), min = max;
  if (data) max = min = packet_payload_bytes(rules, interleave_count(tokens, p.count, p.index));
  if (data && p.flags & PACKET_CODED) min = 4, max--; /* coded only where that is shorter */
  if (payload < min || payload > max)
    return status_set(STATUS_BAD_VALUE, "sent a packet with %zu bytes where %zu to %zu are possible", payload, min, max);
  if (p.type == PACKET_STATUS && (bytes[PACKET_HEADER] > 2 || bytes[PACKET_HEADER + 1] || get_u16(bytes + PACKET_HEADER + 2)))
    return status_set(STATUS_BAD_VALUE, "sent an unknown status %d", bytes[PACKET_HEADER]);
  *packet = p;
  return STATUS_OK;
}

/* ---- interleaving */

int64_t interleave_count(int64_t tokens, int packets, int index) { return index < tokens ? (tokens - index + packets - 1) / packets : 0; }

int interleave_packets(int64_t tokens, double token_bits, size_t max, int min) {
  double fit = floor(8 * (double)max / token_bits); /* tokens of a packet */
  if (fit < 1 || tokens < 1) return 0;
  int64_t packets = fit >= (double)tokens ? 1 : (tokens + (int64_t)fit - 1) / (int64_t)fit;
  if (packets < min) packets = min < tokens ? min : tokens;
  return packets <= MAX_PACKETS ? (int)packets : 0;
}
