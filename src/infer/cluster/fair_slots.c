/* See fair_slots.h. */
#include "infer/cluster/fair_slots.h"
#include <openssl/rand.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

Status fair_slots_init(FairSlots *slots, int capacity, int share) {
  *slots = (FairSlots){.capacity = capacity, .share = share, .free = 0, .slots = calloc((size_t)capacity, sizeof *slots->slots)};
  if (!slots->slots) return status_set(STATUS_NO_MEMORY, "no memory for %d connections", capacity);
  for (int i = 0; i < capacity; i++) slots->slots[i] = (FairSlot){.bucket = -1, .newer = i + 1 < capacity ? i + 1 : -1};
  for (int b = 0; b < FAIR_BUCKETS; b++) slots->bucket[b].oldest = slots->bucket[b].newest = -1;
  if (RAND_bytes((unsigned char *)&slots->seed, sizeof slots->seed) == 1) return STATUS_OK;
  return status_set(STATUS_IO, "no random numbers from the system");
}

void fair_slots_release(FairSlots *slots) { free(slots->slots); }

uint64_t fair_slots_address(const FairSlots *slots, const void *bytes, size_t size) {
  uint64_t address = 0;
  memcpy(&address, bytes, size < sizeof address ? size : sizeof address);
  address = (address ^ slots->seed) * 0x9e3779b97f4a7c15U;
  address = (address ^ address >> 32) * 0xd6e8feb86659fd93U;
  return address ^ address >> 32;
}

static int bucket_of(uint64_t address) { return (int)(address % FAIR_BUCKETS); }

int fair_slots_any_victim(const FairSlots *slots) {
  int max = 0, victim = -1;
  for (int b = 0; b < FAIR_BUCKETS; b++) {
    int count = slots->bucket[b].count, oldest = slots->bucket[b].oldest;
    bool more = count > max || (count > 0 && count == max && slots->slots[oldest].order < slots->slots[victim].order);
    if (!more) continue;
    max = count;
    victim = oldest;
  }
  return victim;
}

int fair_slots_victim(const FairSlots *slots, uint64_t address) {
  int own = bucket_of(address);
  if (slots->bucket[own].count >= slots->share) return slots->bucket[own].oldest;
  return slots->free < 0 ? fair_slots_any_victim(slots) : -1;
}

int fair_slots_take(FairSlots *slots, uint64_t address, double now) {
  int b = bucket_of(address), slot = slots->free, newest = slots->bucket[b].newest;
  slots->free = slots->slots[slot].newer;
  slots->slots[slot] = (FairSlot){.bucket = b, .older = newest, .newer = -1, .order = ++slots->order, .since = now};
  if (newest >= 0)
    slots->slots[newest].newer = slot;
  else
    slots->bucket[b].oldest = slot;
  slots->bucket[b].newest = slot;
  slots->bucket[b].count++;
  slots->used++;
  return slot;
}

void fair_slots_give(FairSlots *slots, int slot) {
  FairSlot *leaves = &slots->slots[slot];
  int b = leaves->bucket;
  if (leaves->older >= 0)
    slots->slots[leaves->older].newer = leaves->newer;
  else
    slots->bucket[b].oldest = leaves->newer;
  if (leaves->newer >= 0)
    slots->slots[leaves->newer].older = leaves->older;
  else
    slots->bucket[b].newest = leaves->older;
  slots->bucket[b].count--;
  slots->used--;
  *leaves = (FairSlot){.bucket = -1, .newer = slots->free};
  slots->free = slot;
}
