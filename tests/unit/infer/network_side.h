/* What a test of the exchange has of one node: its network over a courier, whose streams are socket pairs. */
#ifndef TESTS_NETWORK_SIDE_H
#define TESTS_NETWORK_SIDE_H
#include "infer/network.h"
#include <cmocka.h>

typedef struct NetworkSide {
  Courier *courier;
  TokenLayout layout; /* the test's to build, before network_side_open */
  Network network;
  Arena *arena;
  Tape *tape;
} NetworkSide;

/* What set-ups lack is filled in. sockets [nodes]: to each other node; taken over. */
static inline void network_side_open(NetworkSide *side, NetworkSetup *setup, CourierSetup *courier, const int *sockets) {
  Channel *channels[WIRE_NODES] = {0};
  network_courier(setup, courier);
  for (int d = 0; d < setup->nodes; d++) {
    if (d != setup->self) assert_int_equal(channel_plain(&channels[d], sockets[d]), STATUS_OK);
  }
  CarrierPeers peers = {
      .self = setup->self, .nodes = setup->nodes, .channels = channels, .packet_most = PACKET_HEADER + courier->slot_bytes};
  courier->open_context = &peers;
  assert_int_equal(courier_start(&side->courier, courier), STATUS_OK);
  setup->courier = side->courier;
  assert_int_equal(network_init(&side->network, setup), STATUS_OK);
  side->arena = arena_new((size_t)1 << 24);
  side->tape = tape_new(side->arena);
  tape_record(side->tape, false);
}

static inline void network_side_close(NetworkSide *side) {
  courier_stop(side->courier);
  network_release(&side->network);
  layout_release(&side->layout);
  tape_free(side->tape);
  arena_free(side->arena);
}

#endif
