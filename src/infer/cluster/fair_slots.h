/* A table of bounded size, shared fairly between addresses. No address has more than its share, and a new caller takes the slot of the
 * oldest of the address that has most. So a flood from one address takes only its own slots, and one from many addresses leaves no caller
 * with less time than any other. Nothing is allocated after fair_slots_init; all but the search for a slot in a full table takes constant
 * time. The contents of a slot are the owner's. */
#ifndef INFER_FAIR_SLOTS_H
#define INFER_FAIR_SLOTS_H
#include "base/status.h"
#include <stddef.h>
#include <stdint.h>

enum { FAIR_BUCKETS = 1024 /* of addresses, by a keyed hash */ };

typedef struct FairSlot {
  int bucket;       /* -1: free */
  int older, newer; /* of the same address; of a free slot `newer` is the next free one */
  uint64_t order;   /* counts up with each that is taken */
  double since;     /* when it was taken */
} FairSlot;

typedef struct FairSlots {
  int capacity, share; /* share: of one address */
  int used, free;      /* free: the first one, or -1 */
  uint64_t seed, order;
  FairSlot *slots; /* [capacity] */
  struct {
    int oldest, newest, count;
  } bucket[FAIR_BUCKETS];
} FairSlots;

Status fair_slots_init(FairSlots *slots, int capacity, int share);
void fair_slots_release(FairSlots *slots); /* accepts a zeroed one, and one whose init failed */

/* Hash of an address; equal for addresses that share slots. */
uint64_t fair_slots_address(const FairSlots *slots, const void *bytes, size_t size);

/* The slot to free regardless of the address: the oldest connection of the address with the most; -1: all are free. */
int fair_slots_any_victim(const FairSlots *slots);

/* The slot to free for a new connection of this address; -1: there is room. */
int fair_slots_victim(const FairSlots *slots, uint64_t address);

/* There must be room (fair_slots_victim). */
int fair_slots_take(FairSlots *slots, uint64_t address, double now);
void fair_slots_give(FairSlots *slots, int slot);

#endif
