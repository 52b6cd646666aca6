/* Fuzz target: what devices say when they meet. Holds: what is accepted packs to the same bytes, and names a node that a cluster can have.
 */
#include "infer/cluster/peer_handshake.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void need(int holds) {
  if (!holds) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  uint8_t again[PEER_HANDSHAKE_BYTES];
  PeerIdentity words;
  if (size >= PEER_HANDSHAKE_BYTES && peer_handshake_parse(data, &words) == STATUS_OK) {
    peer_handshake_pack(&words, again);
    need(memcmp(again, data, PEER_HANDSHAKE_BYTES) == 0 && words.node < WIRE_NODES);
  }
  return 0;
}
