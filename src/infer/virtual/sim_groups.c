/* The table of groups: hashed by who sends what to whom. */
#include "infer/virtual/sim_groups.h"
#include "infer/wire/packet.h"
#include "infer/wire/parity.h"
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

static int covers_of(const Event *event, int parity_of) {
  int parity = parity_packets((int)event->packets, parity_of);
  return parity > 0 ? parity : 1;
}

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
  if (event->kind == EVENT_SEND && (event->packets < 1 || event->packets > PACKETS_MOST || event->bytes < event->packets))
    return status_set(STATUS_BAD_VALUE, "device %d sends %u packets of %u bytes; a group has 1 to %d packets", device, event->packets,
                      event->bytes, PACKETS_MOST);
  return STATUS_OK;
}

static Status measure(const Timeline *devices, int count, int parity_of, size_t *groups, size_t *covers) {
  for (int d = 0; d < count; d++)
    for (int i = 0; i < devices[d].count; i++) {
      const Event *event = &devices[d].list[i];
      TRY(check_event(event, d, count));
      size_t receivers = event->kind == EVENT_SEND ? (size_t)__builtin_popcountll(event->peers) : 0;
      *groups += receivers;
      *covers += receivers ? receivers * (size_t)covers_of(event, parity_of) : 0;
    }
  return *groups <= INT_MAX / 4 ? STATUS_OK : status_set(STATUS_BAD_VALUE, "%zu groups are too many to simulate", *groups);
}

static Status allocate(SimGroups *groups, size_t count, size_t covers) {
  groups->slots_count = 16;
  while (groups->slots_count < 2 * count) groups->slots_count *= 2;
  groups->list = calloc(count + 1, sizeof *groups->list);
  groups->covers = calloc(covers + 1, sizeof *groups->covers);
  groups->slots = malloc(groups->slots_count * sizeof *groups->slots);
  if (!groups->list || !groups->covers || !groups->slots) return status_set(STATUS_NO_MEMORY, "no memory to simulate %zu groups", count);
  for (uint32_t i = 0; i < groups->slots_count; i++) groups->slots[i] = -1;
  return STATUS_OK;
}

static Status add(SimGroups *groups, int sender, int receiver, const Event *event, int parity_of, SimCover **cover) {
  int *slot = slot_of(groups, sender, receiver, event);
  if (*slot >= 0)
    return status_set(STATUS_BAD_VALUE, "device %d sends block %d, site %d, part %d twice to device %d", sender, event->block, event->site,
                      event->part, receiver);
  int parity = parity_packets((int)event->packets, parity_of);
  *slot = groups->count;
  groups->list[groups->count++] = (SimGroup){.event = event,
                                             .sender = sender,
                                             .receiver = receiver,
                                             .covers = covers_of(event, parity_of),
                                             .cover_size = parity > 0 ? parity_of : (int)event->packets,
                                             .cover = *cover,
                                             .parity = parity,
                                             .left = -INFINITY,
                                             .last = -INFINITY,
                                             .waiting = -INFINITY,
                                             .asked = -INFINITY,
                                             .told = -INFINITY};
  *cover += covers_of(event, parity_of);
  return STATUS_OK;
}

static Status fill(SimGroups *groups, const Timeline *devices, int count, int parity_of) {
  SimCover *cover = groups->covers;
  for (int d = 0; d < count; d++)
    for (int i = 0; i < devices[d].count; i++)
      for (int r = 0; devices[d].list[i].kind == EVENT_SEND && r < count; r++)
        if (devices[d].list[i].peers >> r & 1) TRY(add(groups, d, r, &devices[d].list[i], parity_of, &cover));
  return STATUS_OK;
}

Status sim_groups_init(SimGroups *groups, const Timeline *devices, int count, int parity_of) {
  size_t number = 0, covers = 0;
  *groups = (SimGroups){0};
  TRY(measure(devices, count, parity_of, &number, &covers));
  Status status = allocate(groups, number, covers);
  if (status == STATUS_OK) status = fill(groups, devices, count, parity_of);
  if (status != STATUS_OK) sim_groups_release(groups);
  return status;
}

void sim_groups_release(SimGroups *groups) {
  free(groups->list);
  free(groups->covers);
  free(groups->slots);
  *groups = (SimGroups){0};
}

/* ---- what has come */

int sim_groups_cover_packets(const SimGroup *group, int cover) {
  int rest = (int)group->event->packets - cover * group->cover_size;
  return rest < group->cover_size ? rest : group->cover_size;
}

static bool cover_whole(const SimGroup *group, int cover) {
  return group->cover[cover].arrived + group->cover[cover].parity >= sim_groups_cover_packets(group, cover);
}

bool sim_groups_whole(const SimGroup *group) {
  for (int c = 0; c < group->covers; c++)
    if (!cover_whole(group, c)) return false;
  return true;
}

void sim_groups_missing(const SimGroup *group, int *repaired, int *missing) {
  *repaired = *missing = 0;
  for (int c = 0; c < group->covers; c++) {
    int absent = sim_groups_cover_packets(group, c) - group->cover[c].arrived;
    *(cover_whole(group, c) ? repaired : missing) += absent;
  }
}
