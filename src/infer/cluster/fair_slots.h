/* A table of bounded size whose places are shared fairly between addresses: no address has more than its share, and who is new takes the
 * place of the oldest of the address that has most. So a flood from one address takes its own places away, and one from many leaves each
 * of them as long as it leaves anybody. Nothing is allocated after fair_slots_init; all but the search for a place in a full table takes
 * constant time. What is in a slot is the owner's. */
#ifndef INFER_FAIR_SLOTS_H
#define INFER_FAIR_SLOTS_H
#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { FAIR_BUCKETS = 1024 /* addresses that are told apart, by a hash that nobody outside can foresee */ };

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
void fair_slots_release(FairSlots *slots); /* accepts a zeroed one */

/* A number for an address; equal for those that share places. bytes: of an IPv4 address, or the first eight of an IPv6 one. */
uint64_t fair_slots_address(const FairSlots *slots, const void *bytes, size_t size);

/* The slot that is to be given up for a newcomer of this address; -1: there is room. */
int fair_slots_victim(const FairSlots *slots, uint64_t address);
int fair_slots_any_victim(const FairSlots *slots); /* the same where anybody is to go; -1: all are free */

int fair_slots_take(FairSlots *slots, uint64_t address, double now); /* there is room (fair_slots_victim) */
void fair_slots_give(FairSlots *slots, int slot);

#endif
