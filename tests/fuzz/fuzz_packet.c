/* Fuzz target: packets of a peer, after they were opened. The first byte chooses the rules, the second the sender. Holds: what is accepted
 * packs to the same header, is in range, and has as many bytes as its tokens take. */
#include "infer/transport/packet.h"
#include <stdlib.h>
#include <string.h>

/* As sums over all devices have them: other rows in each block, and none in some. */
static int64_t rows_of_block(const PacketRules *rules, int sender, int block, int site, int part) {
  (void)rules;
  return sender == part ? 0 : 2 * block + 3 * site;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { NODES = 3, PARTS = 2, BATCH = 2 };

static void need(bool holds) {
  if (!holds) abort();
}

static void check_payload(const Packet *p, const PacketRules *rules, int64_t tokens, size_t bytes) {
  if (p->type != PACKET_CODES && p->type != PACKET_RAW) return;
  int64_t own = interleave_count(tokens, p->count, p->index);
  size_t whole = packet_payload(rules, own, p->type == PACKET_RAW);
  need(own >= 1 && (p->flags & PACKET_CODED ? bytes < whole : bytes == whole));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const int64_t part_rows[NODES * PARTS] = {5, 4, 7, 0, 1, 1};
  uint8_t again[PACKET_HEADER];
  Packet packet;
  if (size < 2) return 0;
  const PacketRules rules = {.nodes = NODES,
                             .blocks = 3,
                             .sites = 1 + (data[0] >> 2 & 1),
                             .parts = PARTS,
                             .groups = 3,
                             .entries = 1000,
                             .width = 4,
                             .part_rows = part_rows,
                             .raw = data[0] & 1,
                             .coded = data[0] & 2,
                             .message_rows = data[0] & 8 ? rows_of_block : NULL};
  int sender = data[1] % NODES;
  data += 2, size -= 2;
  if (packet_parse(data, size, sender, BATCH, &rules, &packet) != STATUS_OK) return 0;
  packet_pack(&packet, again);
  need(memcmp(again, data, PACKET_HEADER) == 0);
  need(packet.block < rules.blocks && packet.site < rules.sites && packet.part < PARTS && packet.count <= MAX_PACKETS);
  check_payload(&packet, &rules, packet_rows(&rules, sender, BATCH, packet.block, packet.site, packet.part), size - PACKET_HEADER);
  return 0;
}
