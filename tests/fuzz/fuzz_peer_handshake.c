/* Fuzz target: what devices say of themselves when they connect (MEET). Holds: what is accepted packs to the same bytes, and names a node
 * that a cluster can have. */
#include "infer/cluster/peer_handshake.c"
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void need(int holds) {
  if (!holds) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  uint8_t again[MEET_BYTES];
  PeerIdentity identity;
  if (size >= MEET_BYTES && parse_identity(data, &identity) == STATUS_OK) {
    pack_identity(&identity, again);
    need(memcmp(again, data, MEET_BYTES) == 0 && identity.node < WIRE_NODES);
  }
  return 0;
}
