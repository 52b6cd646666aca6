/* Headers and arrays of the wire format, byte by byte: the host's byte order and padding never show. */
#include "infer/wire.h"
#include <stdbool.h>
#include <string.h>

void wire_put_u32(uint8_t *bytes, uint32_t value) {
  for (int i = 0; i < 4; i++) bytes[i] = (uint8_t)(value >> (8 * i));
}

uint32_t wire_get_u32(const uint8_t *bytes) {
  return (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24;
}

void wire_put_u64(uint8_t *bytes, uint64_t value) {
  wire_put_u32(bytes, (uint32_t)value);
  wire_put_u32(bytes + 4, (uint32_t)(value >> 32));
}

uint64_t wire_get_u64(const uint8_t *bytes) { return wire_get_u32(bytes) | (uint64_t)wire_get_u32(bytes + 4) << 32; }

void wire_put_double(uint8_t *bytes, double value) {
  uint64_t bits;
  memcpy(&bits, &value, sizeof bits);
  wire_put_u64(bytes, bits);
}

void wire_pack(const WireHeader *header, uint8_t bytes[WIRE_HEADER]) {
  wire_put_u32(bytes, WIRE_MAGIC);
  bytes[4] = WIRE_VERSION;
  bytes[5] = header->kind;
  bytes[6] = header->sender;
  bytes[7] = header->block;
  bytes[8] = 0;
  bytes[9] = header->flags;
  bytes[10] = bytes[11] = 0;
  wire_put_u32(bytes + 12, header->request);
  wire_put_u32(bytes + 16, header->count);
  wire_put_u32(bytes + 20, header->bytes);
}

typedef struct Rule {
  const char *name;
  WireSide from;
  uint32_t min, max;
  uint8_t flags;
} Rule;

static const Rule rules[WIRE_KIND_END] = {
#define WIRE_RULE(name, number, from, min, max, flags) [number] = {#name, WIRE_FROM_##from, min, max, flags},
    WIRE_KINDS(WIRE_RULE)
#undef WIRE_RULE
};

/* Of the kinds whose field `block` says something; of the others it is zero. */
static bool has_block(uint8_t kind) { return kind == WIRE_RESULT || kind == WIRE_PROGRESS || kind == WIRE_SEQUENCE; }

Status wire_parse(const uint8_t bytes[WIRE_HEADER], size_t max_payload, WireHeader *header) {
  if (wire_get_u32(bytes) != WIRE_MAGIC) return status_set(STATUS_BAD_VALUE, "not an ASTRA message (wrong magic number)");
  if (bytes[4] != WIRE_VERSION)
    return status_set(STATUS_BAD_VALUE, "message of protocol version %d, this program speaks version %d", bytes[4], WIRE_VERSION);
  if (bytes[5] == 0 || bytes[5] >= WIRE_KIND_END) return status_set(STATUS_BAD_VALUE, "message of unknown kind %d", bytes[5]);
  const Rule *rule = &rules[bytes[5]];
  if (bytes[9] & ~rule->flags) return status_set(STATUS_BAD_VALUE, "%s message with unknown flags %d", rule->name, bytes[9]);
  if (bytes[8] || bytes[10] || bytes[11] || (bytes[7] && !has_block(bytes[5])))
    return status_set(STATUS_BAD_VALUE, "message with reserved bytes set");
  *header = (WireHeader){.kind = bytes[5],
                         .sender = bytes[6],
                         .block = bytes[7],
                         .flags = bytes[9],
                         .request = wire_get_u32(bytes + 12),
                         .count = wire_get_u32(bytes + 16),
                         .bytes = wire_get_u32(bytes + 20)};
  if (header->bytes > max_payload)
    return status_set(STATUS_BAD_VALUE, "message announces %u bytes, at most %zu are possible here", header->bytes, max_payload);
  if (header->bytes < rule->min || header->bytes > rule->max)
    return status_set(STATUS_BAD_VALUE, "%s message of %u bytes; %u to %u are possible", rule->name, header->bytes, rule->min, rule->max);
  return STATUS_OK;
}

Status wire_check_sender(const WireHeader *header, WireSide from) {
  static const char *const sides[] = {[WIRE_FROM_CALLER] = "a caller",
                                      [WIRE_FROM_LEADER] = "a leader",
                                      [WIRE_FROM_DEVICE] = "a device",
                                      [WIRE_FROM_PEER] = "a device that meets others"};
  const Rule *rule = &rules[header->kind];
  if (rule->from == from) return STATUS_OK;
  return status_set(STATUS_BAD_VALUE, "sent a %s message, which is %s's to send", rule->name, sides[rule->from]);
}

const char *wire_kind_name(uint8_t kind) { return kind < WIRE_KIND_END && rules[kind].name ? rules[kind].name : "unknown"; }

void wire_add_statistics(NodeStatistics *sum, const NodeStatistics *more) {
#define WIRE_ADD(name) sum->name += more->name;
  WIRE_SECONDS(WIRE_ADD)
  WIRE_COUNTS(WIRE_ADD)
#undef WIRE_ADD
}

static void put_float(uint8_t *bytes, float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  wire_put_u32(bytes, bits);
}

void wire_pack_floats(const float *values, size_t count, uint8_t *bytes) {
  for (size_t i = 0; i < count; i++) put_float(bytes + 4 * i, values[i]);
}

void wire_pack_reals(const real *values, size_t count, uint8_t *bytes) {
  for (size_t i = 0; i < count; i++) put_float(bytes + 4 * i, (float)values[i]);
}

void wire_parse_reals(const uint8_t *bytes, size_t count, real *values) {
  for (size_t i = 0; i < count; i++) {
    uint32_t bits = wire_get_u32(bytes + 4 * i);
    float value;
    memcpy(&value, &bits, sizeof value);
    values[i] = (real)value;
  }
}
