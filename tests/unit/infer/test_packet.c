/* Packets: header bits, lengths that follow from the rules, and refusal of every one that does not. */
#include "infer/transport/packet.h"
#include <cmocka.h>
#include <string.h>

/* Node 0 sends 5 and 4 rows a part, node 1 7 and 0; 3 groups of 10 bits. */
static const int64_t part_rows[4] = {5, 4, 7, 0};
static const PacketRules codes = {.blocks = 12, .sites = 2, .parts = 2, .groups = 3, .entries = 1000, .width = 6, .part_rows = part_rows};

static PacketRules raw_rules(void) {
  PacketRules rules = codes;
  rules.raw = true;
  return rules;
}

static void header_is_the_documented_one(void **state) {
  (void)state;
  const uint8_t expected[PACKET_HEADER] = {0x04, 0x03, 0x02, 0x01, 11, 0x21, 1, 0, 0x02, 0x01, 0x04, 0x03};
  uint8_t bytes[PACKET_HEADER];
  packet_pack(&(Packet){.request = 0x01020304, .block = 11, .site = 1, .type = PACKET_QUERY, .part = 1, .index = 0x102, .count = 0x304},
              bytes);
  assert_memory_equal(bytes, expected, PACKET_HEADER);
}

/* Bytes of a packet of so many tokens: where the other one of two such packets begins. */
static size_t payload_of(const PacketRules *rules, int64_t tokens) { return packet_offset(rules, 2 * tokens, 2, 1); }

static void payloads_are_dense(void **state) {
  (void)state;
  const PacketRules raw = raw_rules();
  assert_int_equal(payload_of(&codes, 1), 4);  /* 30 bits */
  assert_int_equal(payload_of(&codes, 4), 15); /* 120 bits, no padding between tokens */
  assert_int_equal(payload_of(&codes, 0), 0);
  assert_int_equal(payload_of(&raw, 4), 96);
}

/* The status of a packet with so many payload bytes, all zero but the first. */
static Status parse(const PacketRules *rules, int sender, Packet packet, size_t payload, uint8_t first) {
  uint8_t bytes[PACKET_HEADER + 4096] = {0};
  Packet got = {0};
  packet_pack(&packet, bytes);
  bytes[PACKET_HEADER] = first;
  Status status = packet_parse(bytes, PACKET_HEADER + payload, sender, 2, rules, &got);
  if (status == STATUS_OK) assert_memory_equal(&got, &packet, sizeof got);
  return status;
}

/* 2 samples of 5 rows in 3 packets: 4, 3 and 3 tokens. */
static void lengths_follow_from_the_rules(void **state) {
  (void)state;
  const PacketRules raw = raw_rules();
  static const struct {
    PacketType type;
    int index, count;
    size_t min, max;
    bool of_rows;
  } rows[] = {{PACKET_CODES, 0, 3, 15, 15, false}, {PACKET_CODES, 1, 3, 12, 12, false}, {PACKET_CODES, 2, 3, 12, 12, false},
              {PACKET_RAW, 0, 3, 96, 96, true},    {PACKET_RAW, 2, 3, 72, 72, true},    {PACKET_QUERY, 0, 0, 0, 0, false},
              {PACKET_QUERY, 0, 9, 2, 2, false},   {PACKET_STATUS, 0, 3, 5, 5, false}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    const PacketRules *rules = rows[i].of_rows ? &raw : &codes;
    Packet packet = {
        .request = 7, .block = 11, .site = 1, .type = rows[i].type, .index = (uint16_t)rows[i].index, .count = (uint16_t)rows[i].count};
    assert_int_equal(parse(rules, 0, packet, rows[i].min, 0), STATUS_OK);
    assert_int_equal(parse(rules, 0, packet, rows[i].max, 0), STATUS_OK);
    if (rows[i].min) assert_int_equal(parse(rules, 0, packet, rows[i].min - 1, 0), STATUS_BAD_VALUE);
    assert_int_equal(parse(rules, 0, packet, rows[i].max + 1, 0), STATUS_BAD_VALUE);
  }
}

/* Three rows of node 1 in block 2 at site 1, of all samples together; none elsewhere. */
static int64_t few_rows(const PacketRules *rules, int sender, int block, int site, int part) {
  (void)part;
  return sender == 1 && block == 2 && site == 1 ? *(const int64_t *)rules->message_context : 0;
}

static void rows_may_differ_from_block_to_block(void **state) {
  (void)state;
  const int64_t three = 3;
  PacketRules rules = raw_rules();
  rules.message_rows = few_rows;
  rules.message_context = &three;
  const Packet there = {.block = 2, .site = 1, .type = PACKET_RAW, .count = 1};
  Packet elsewhere = there;
  assert_int_equal(packet_rows(&rules, 1, 2, 2, 1, 0), 3);
  assert_int_equal(packet_rows(&codes, 1, 2, 2, 1, 0), 14);
  assert_int_equal(parse(&rules, 1, there, 72, 0), STATUS_OK);
  assert_int_equal(parse(&rules, 1, there, 48, 0), STATUS_BAD_VALUE);
  assert_int_equal(parse(&rules, 0, there, 72, 0), STATUS_BAD_VALUE);
  elsewhere.block = 1;
  assert_int_equal(parse(&rules, 1, elsewhere, 72, 0), STATUS_BAD_VALUE);
  elsewhere = there, elsewhere.count = 4;
  assert_int_equal(parse(&rules, 1, elsewhere, 24, 0), STATUS_BAD_VALUE);
}

static void coded_packets_are_shorter_than_packed_ones(void **state) {
  (void)state;
  PacketRules rules = codes;
  Packet packet = {.type = PACKET_CODES, .flags = PACKET_CODED, .count = 1}; /* 10 tokens: 38 bytes packed */
  assert_int_equal(parse(&rules, 0, packet, 20, 0), STATUS_BAD_VALUE);       /* it was not agreed on */
  rules.coded = true;
  assert_int_equal(parse(&rules, 0, packet, 3, 0), STATUS_BAD_VALUE);
  assert_int_equal(parse(&rules, 0, packet, 4, 0), STATUS_OK);
  assert_int_equal(parse(&rules, 0, packet, 37, 0), STATUS_OK);
  assert_int_equal(parse(&rules, 0, packet, 38, 0), STATUS_BAD_VALUE);
}

static void what_does_not_follow_is_refused(void **state) {
  (void)state;
  const PacketRules raw = raw_rules();
  const struct {
    Packet packet;
    size_t bytes;
    uint8_t first;
  } faults[] = {{{.block = 12, .type = PACKET_CODES, .count = 1}, 38, 0},
                {{.site = 2, .type = PACKET_CODES, .count = 1}, 38, 0},
                {{.part = 2, .type = PACKET_CODES, .count = 1}, 38, 0},
                {{.type = PACKET_RAW, .count = 1}, 240, 0},
                {{.type = PACKET_TYPES, .count = 1}, 38, 0},
                {{.type = PACKET_CODES, .flags = 2, .count = 1}, 38, 0},
                {{.type = PACKET_QUERY, .flags = 1, .count = 1}, 1, 0},
                {{.type = PACKET_CODES, .count = 0}, 38, 0},
                {{.type = PACKET_CODES, .index = 1, .count = 1}, 38, 0},
                {{.type = PACKET_CODES, .index = 10, .count = 11}, 0, 0},
                {{.type = PACKET_STATUS, .index = 1, .count = 1}, 5, 0},
                {{.type = PACKET_STATUS, .count = 1}, 5, 3},
                {{.type = PACKET_QUERY, .index = 1, .count = 1}, 1, 0}};
  for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
    assert_int_equal(parse(&codes, 0, faults[i].packet, faults[i].bytes, faults[i].first), STATUS_BAD_VALUE);
  assert_int_equal(parse(&raw, 0, (Packet){.type = PACKET_CODES, .count = 1}, 38, 0), STATUS_BAD_VALUE);
  assert_int_equal(parse(&codes, 1, (Packet){.type = PACKET_CODES, .part = 1, .count = 1}, 0, 0), STATUS_BAD_VALUE); /* has no rows there */
  assert_int_equal(parse(&codes, 1, (Packet){.type = PACKET_CODES, .count = 1}, payload_of(&codes, 14), 0), STATUS_OK);
  Packet packet;
  assert_int_equal(packet_parse((const uint8_t[PACKET_HEADER]){0}, PACKET_HEADER - 1, 0, 1, &codes, &packet), STATUS_BAD_VALUE);
}

static void every_token_is_in_one_packet(void **state) {
  (void)state;
  for (int64_t tokens = 1; tokens < 40; tokens++) {
    for (int packets = 1; packets <= tokens; packets++) {
      int seen[40] = {0};
      for (int f = 0; f < packets; f++) {
        assert_true(interleave_count(tokens, packets, f) <= interleave_count(tokens, packets, 0));
        for (int64_t i = 0; i < interleave_count(tokens, packets, f); i++) seen[interleave_token(packets, f, i)]++;
      }
      for (int64_t t = 0; t < tokens; t++) assert_int_equal(seen[t], 1);
    }
  }
  assert_int_equal(interleave_count(2, 5, 3), 0);
}

/* Payloads follow each other without a gap, whatever the packets' lengths. */
static void payloads_follow_each_other(void **state) {
  (void)state;
  const PacketRules raw = raw_rules(), *rules[] = {&codes, &raw};
  for (int i = 0; i < 2; i++)
    for (int64_t tokens = 1; tokens < 40; tokens++)
      for (int packets = 1; packets <= tokens; packets++) {
        size_t at = 0;
        for (int f = 0; f < packets; at += payload_of(rules[i], interleave_count(tokens, packets, f++)))
          assert_int_equal(packet_offset(rules[i], tokens, packets, f), at);
        if (packets == 1 || rules[i] == &raw) assert_int_equal(at, payload_of(rules[i], tokens));
      }
}

static void packets_fit(void **state) {
  (void)state;
  assert_int_equal(interleave_packets(256, 10, 1440, 1), 1); /* 320 bytes */
  assert_int_equal(interleave_packets(256, 10, 1440, 2), 2);
  assert_int_equal(interleave_packets(256, 160, 1440, 2), 4); /* 72 tokens a packet */
  assert_int_equal(interleave_packets(1, 160, 1440, 2), 1);
  assert_int_equal(interleave_packets(4, 8 * 3072, 1440, 1), 0); /* a token does not fit */
  assert_int_equal(interleave_packets(MAX_PACKETS, 8, 1, 1), MAX_PACKETS);
  assert_int_equal(interleave_packets(MAX_PACKETS + 1, 8, 1, 1), 0);
  assert_int_equal(interleave_packets(0, 8, 1, 1), 0);
  for (int64_t tokens = 1; tokens < 300; tokens += 7) {
    int packets = interleave_packets(tokens, 30, 50, 2);
    assert_in_range(payload_of(&codes, interleave_count(tokens, packets, 0)), 1, 50);
  }
}

/* A lost packet must not be a hole, also of a part. */
static void parts_are_in_two_packets_as_well(void **state) {
  (void)state;
  assert_int_equal(interleave_min(2, 1), 2);
  assert_int_equal(interleave_min(2, 3), 2);
  assert_int_equal(interleave_min(12, 3), 4);
  assert_int_equal(interleave_min(1, 3), 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(header_is_the_documented_one),
                                     cmocka_unit_test(payloads_are_dense),
                                     cmocka_unit_test(lengths_follow_from_the_rules),
                                     cmocka_unit_test(rows_may_differ_from_block_to_block),
                                     cmocka_unit_test(coded_packets_are_shorter_than_packed_ones),
                                     cmocka_unit_test(what_does_not_follow_is_refused),
                                     cmocka_unit_test(every_token_is_in_one_packet),
                                     cmocka_unit_test(payloads_follow_each_other),
                                     cmocka_unit_test(packets_fit),
                                     cmocka_unit_test(parts_are_in_two_packets_as_well)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
