/* Memory of a courier, taken once: how much of it there is follows from the set-up and from what the carrier needs. */
#include "infer/wire/courier_parts.h"
#include <stdlib.h>
#include <unistd.h>

static void *take(Courier *c, size_t count, size_t bytes) {
  void *memory = calloc(count ? count : 1, bytes);
  c->memory += count * bytes;
  return memory;
}

static bool allocate_slot(Courier *c, CourierSlot *slot) {
  size_t words = (size_t)c->words, packets = (size_t)c->setup.packets_most;
  return (slot->bytes = take(c, c->slot_room, 1)) && (slot->there = take(c, words, 8)) && (slot->said = take(c, words, 8)) &&
         (slot->length = take(c, packets, sizeof(uint32_t))) && (slot->flags = take(c, packets, 1));
}

static bool allocate_peer(Courier *c, CourierPeer *peer) {
  size_t lanes = (size_t)c->lanes;
  bool memory = (peer->slots = take(c, (size_t)c->slots, sizeof(CourierSlot))) && (peer->taken = take(c, lanes, sizeof(uint64_t))) &&
                (peer->next = take(c, lanes, sizeof(uint64_t))) && (peer->seen = take(c, lanes, sizeof(int))) &&
                (peer->arrival = take(c, (size_t)c->setup.packets_most, sizeof(CourierPacket))) &&
                (peer->flights = take(c, (size_t)c->flights_most, sizeof(CourierFlight)));
  for (int i = 0; memory && i < c->slots; i++) memory = allocate_slot(c, &peer->slots[i]);
  return memory;
}

static bool allocate_group(Courier *c, CourierGroup *group) {
  size_t nodes = (size_t)c->setup.nodes;
  return (group->left = take(c, nodes, sizeof(uint16_t))) && (group->left_at = take(c, nodes, sizeof(double))) &&
         (group->resend = take(c, nodes * (size_t)c->words, sizeof(uint64_t)));
}

/* Slots also hold packets that come before their request begins, each behind its length. */
static void choose_sizes(Courier *c) {
  const CourierSetup *s = &c->setup;
  bool holds = c->carrier->reliable && c->carrier->ordered;
  size_t payload = c->carrier->packet_most - PACKET_HEADER;
  size_t usual = s->slot_bytes / payload + (size_t)(c->reliability.least_packets > 0 ? c->reliability.least_packets : 1) + 1;
  c->ring = holds || !s->ahead ? 2 : 2 * s->blocks;
  c->lanes = s->sites * s->parts;
  c->slots = c->ring * c->lanes;
  c->words = (s->packets_most + 63) / 64;
  size_t early = (size_t)s->packets_most * (PACKET_HEADER + 4);
  c->slot_room = s->slot_bytes + (holds ? 0 : early);
  if (usual > (size_t)s->packets_most) usual = (size_t)s->packets_most;
  c->buffer_bytes = c->carrier->packet_most;
  size_t flights = 2 * usual * (size_t)c->slots + 64;
  c->flights_most = flights < COURIER_FLIGHTS ? (int)flights : COURIER_FLIGHTS;
  c->queue_most = c->slots + s->nodes * (3 * c->lanes + 2 * COURIER_ASKED);
}

Status courier_memory_allocate(Courier *c) {
  size_t nodes = (size_t)c->setup.nodes;
  choose_sizes(c);
  bool memory = (c->peers = take(c, nodes, sizeof(CourierPeer))) && (c->groups = take(c, (size_t)c->slots, sizeof(CourierGroup))) &&
                (c->queue = take(c, (size_t)c->queue_most, sizeof(CourierEntry))) &&
                (c->landings = take(c, COURIER_FLIGHTS, sizeof(CourierLanding))) && (c->scratch = take(c, c->slot_room, 1)) &&
                (c->buffer = take(c, c->buffer_bytes + PACKET_HEADER + PACKET_STATUS_HEAD + PACKETS_MOST / 8, 1));
  for (size_t d = 0; memory && d < nodes; d++) memory = (int)d == c->setup.self || allocate_peer(c, &c->peers[d]);
  for (int i = 0; memory && i < c->slots; i++) memory = allocate_group(c, &c->groups[i]);
  return memory ? STATUS_OK : status_set(STATUS_NO_MEMORY, "no memory for the packets of %d nodes; use a smaller --batch", c->setup.nodes);
}

static void release_peer(const Courier *c, CourierPeer *peer) {
  for (int i = 0; peer->slots && i < c->slots; i++) {
    CourierSlot *slot = &peer->slots[i];
    free(slot->bytes);
    free(slot->there);
    free(slot->said);
    free(slot->length);
    free(slot->flags);
  }
  free(peer->slots);
  free(peer->taken);
  free(peer->next);
  free(peer->seen);
  free(peer->arrival);
  free(peer->flights);
}

void courier_memory_release(Courier *c) {
  for (int d = 0; c->peers && d < c->setup.nodes; d++) release_peer(c, &c->peers[d]);
  for (int i = 0; c->groups && i < c->slots; i++) {
    free(c->groups[i].left);
    free(c->groups[i].left_at);
    free(c->groups[i].resend);
  }
  free(c->peers);
  free(c->groups);
  free(c->queue);
  free(c->landings);
  free(c->scratch);
  free(c->buffer);
  shaper_release(&c->shaper);
  if (c->wake >= 0) close(c->wake);
  free(c);
}
