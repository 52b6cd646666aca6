/* The table of groups: hashed by who sends what to whom. */
#include "infer/virtual/sim_groups.h"
#include "infer/transport/packet.h"
#include <limits.h>
#include <math.h>
#include <stdlib.h>

static uint64_t key_of(int sender, int receiver, const Event *event) {
  return (uint64_t)(uint32_t)sender << 40 | (uint64_t)(uint32_t)receiver << 32 | (uint64_t)event->block << 16 | (uint64_t)event->site << 8 |
         event->part;
}

/* The slot that holds the group, or the free one where it belongs. Fibonacci hashing, linear probing. */
static int *slot_of(const SimGroups *groups, int sender, int receiver, const Event *event) {
  uint64_t key = key_of(sender, receiver, event);
  uint32_t at = (uint32_t)(key * 0x9e3779b97f4a7c15u >> 32) & (groups->slots_count - 1);
  for (;; at = (at + 1) & (groups->slots_count - 1)) {
    int index = groups->slots[at];
    if (index < 0) return &groups->slots[at];
    const SimGroup *group = &groups->list[index];
    if (key_of(group->sender, group->receiver, group->event) == key) return &groups->slots[at];
  }
}

SimGroup *sim_groups_find(const SimGroups *groups, int sender, int receiver, const Event *event) {
  int index = *slot_of(groups, sender, receiver, event);
  return index < 0 ? NULL : &groups->list[index];
}

/* ---- making */

static Status check_event(const Event *event, int device, int count) {
  uint64_t others = (count < 64 ? (1ull << count) - 1 : ~0ull) & ~(1ull << device);
  if (event->kind == EVENT_COMPUTE || event->kind == EVENT_FIXED) {
    if (isfinite(event->seconds) && event->seconds >= 0) return STATUS_OK;
    return status_set(STATUS_BAD_VALUE, "device %d computes for %g seconds: a timeline needs a finite time from 0 on", device,
                      event->seconds);
  }
  if (event->peers & ~others)
    return status_set(STATUS_BAD_VALUE, "device %d of %d deals with devices 0x%llx, itself or unknown ones among them", device, count,
                      (unsigned long long)event->peers);
  if (event->kind == EVENT_SEND && (event->packets < 1 || event->packets > MAX_PACKETS || event->bytes < event->packets))
    return status_set(STATUS_BAD_VALUE, "device %d sends %u packets of %u bytes; a group has 1 to %d packets", device, event->packets,
                      event->bytes, MAX_PACKETS);
  return STATUS_OK;
}

static Status measure(const Timeline *devices, int count, size_t *groups) {
  for (int d = 0; d < count; d++)
    for (int i = 0; i < devices[d].count; i++) {
      const Event *event = &devices[d].list[i];
      TRY(check_event(event, d, count));
      *groups += event->kind == EVENT_SEND ? (size_t)__builtin_popcountll(event->peers) : 0;
    }
  return *groups <= INT_MAX / 4 ? STATUS_OK : status_set(STATUS_BAD_VALUE, "%zu groups are too many to simulate", *groups);
}

static Status allocate(SimGroups *groups, size_t count) {
  groups->slots_count = 16;
  while (groups->slots_count < 2 * count) groups->slots_count *= 2;
  groups->list = calloc(count + 1, sizeof *groups->list);
  groups->slots = malloc(groups->slots_count * sizeof *groups->slots);
  if (!groups->list || !groups->slots) return status_set(STATUS_NO_MEMORY, "no memory to simulate %zu groups", count);
  for (uint32_t i = 0; i < groups->slots_count; i++) groups->slots[i] = -1;
  return STATUS_OK;
}

static Status add(SimGroups *groups, int sender, int receiver, const Event *event) {
  int *slot = slot_of(groups, sender, receiver, event);
  if (*slot >= 0)
    return status_set(STATUS_BAD_VALUE, "device %d sends block %d, site %d, part %d twice to device %d", sender, event->block, event->site,
                      event->part, receiver);
  *slot = groups->count;
  groups->list[groups->count++] = (SimGroup){.event = event,
                                             .sender = sender,
                                             .receiver = receiver,
                                             .left = -INFINITY,
                                             .last = -INFINITY,
                                             .waiting = -INFINITY,
                                             .asked = -INFINITY,
                                             .told = -INFINITY};
  return STATUS_OK;
}

static Status fill(SimGroups *groups, const Timeline *devices, int count) {
  for (int d = 0; d < count; d++)
    for (int i = 0; i < devices[d].count; i++)
      for (int r = 0; devices[d].list[i].kind == EVENT_SEND && r < count; r++)
        if (devices[d].list[i].peers >> r & 1) TRY(add(groups, d, r, &devices[d].list[i]));
  return STATUS_OK;
}

Status sim_groups_init(SimGroups *groups, const Timeline *devices, int count) {
  size_t number = 0;
  *groups = (SimGroups){0};
  TRY(measure(devices, count, &number));
  Status status = allocate(groups, number);
  if (status == STATUS_OK) status = fill(groups, devices, count);
  if (status != STATUS_OK) sim_groups_release(groups);
  return status;
}

void sim_groups_release(SimGroups *groups) {
  free(groups->list);
  free(groups->slots);
  *groups = (SimGroups){0};
}

/* ---- what has come */

int sim_groups_missing(const SimGroup *group) { return (int)group->event->packets - group->arrived; }
