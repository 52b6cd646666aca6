/* Fuzz target: what devices say of themselves when they connect (MEET). Holds: what is accepted packs to the same bytes, and names a node
 * that a cluster can have. */
#include "fuzz/fuzz.h"
#include "infer/cluster/peer_handshake.c"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  uint8_t message[MESSAGE], again[MESSAGE];
  PeerIdentity identity;
  if (size < MEET_BYTES) return 0;
  wire_pack(&(WireHeader){.kind = WIRE_MEET, .bytes = MEET_BYTES}, message);
  memcpy(message + WIRE_HEADER, data, MEET_BYTES);
  if (parse_meet(message, &identity) == STATUS_OK) {
    pack_meet(&identity, again);
    need(memcmp(again + WIRE_HEADER, data, MEET_BYTES) == 0 && identity.node < WIRE_NODES);
  }
  return 0;
}
