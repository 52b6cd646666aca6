/* Timelines, sizes of messages, and the steps of sums and joins: see schedule.h. */
#include "infer/sim/schedule.h"
#include "base/share.h"
#include "infer/transport/netem.h"
#include "infer/transport/packet.h"
#include <math.h>
#include <stdlib.h>

Status timeline_add(Timeline *timeline, const Event *event) {
  if (timeline->count == timeline->capacity) {
    int capacity = timeline->capacity ? 2 * timeline->capacity : 64;
    Event *list = realloc(timeline->list, (size_t)capacity * sizeof *list);
    if (!list) return status_set(STATUS_NO_MEMORY, "no memory for a timeline of %d events", capacity);
    timeline->list = list;
    timeline->capacity = capacity;
  }
  timeline->list[timeline->count++] = *event;
  return STATUS_OK;
}

double timeline_seconds(const Timeline *timeline) {
  double sum = 0;
  for (int i = 0; i < timeline->count; i++) sum += timeline->list[i].kind == EVENT_COMPUTE ? timeline->list[i].seconds : 0;
  return sum;
}

void timeline_release(Timeline *timeline) {
  free(timeline->list);
  *timeline = (Timeline){0};
}

/* ---- sizes */

MessageSize schedule_stream(double bytes) {
  double segments = fmax(1, ceil((bytes + PACKET_HEADER) / LINK_SEGMENT_MAX)), packets = fmin(segments, SCHEDULE_STREAM_PACKETS);
  bytes += PACKET_HEADER + (segments - packets) * LINK_SEGMENT_OVERHEAD;
  return bytes < UINT32_MAX ? (MessageSize){(uint32_t)packets, (uint32_t)bytes} : (MessageSize){0};
}

/* ---- steps */

uint64_t schedule_partners(int device, int devices, bool causal, bool to) {
  uint64_t others = (devices < 64 ? (1ull << devices) - 1 : ~0ull) & ~(1ull << device), before = (1ull << device) - 1;
  if (!causal) return others;
  return to ? others & ~before : others & before;
}

Status schedule_send(Timeline *timeline, int block, int site, int part, MessageSize size, uint64_t peers) {
  if (size.packets == 0) return status_set(STATUS_BAD_VALUE, "block %d, part %d: no message can hold what is to be sent", block, part);
  return timeline_add(timeline, &(Event){.kind = EVENT_SEND,
                                         .block = (uint8_t)block,
                                         .site = (uint8_t)site,
                                         .part = (uint8_t)part,
                                         .packets = size.packets,
                                         .bytes = size.bytes,
                                         .peers = peers});
}

Status schedule_wait(Timeline *timeline, int block, int site, int part, uint64_t peers) {
  return timeline_add(timeline,
                      &(Event){.kind = EVENT_WAIT, .block = (uint8_t)block, .site = (uint8_t)site, .part = (uint8_t)part, .peers = peers});
}

Status schedule_compute(Timeline *timeline, double seconds) {
  return timeline_add(timeline, &(Event){.kind = EVENT_COMPUTE, .seconds = seconds});
}

/* Bytes of the rows that a device holds, or adds up. */
static MessageSize rows_of(const ReduceStep *step, int device, int devices) {
  int64_t numbers = step->samples * share_even_count(step->rows, devices, device) * step->width;
  return numbers > 0 ? schedule_stream(4.0 * (double)numbers) : (MessageSize){0};
}

Status schedule_reduce(Timeline *timeline, int block, int which, int device, int devices, const ReduceStep *step, double add_seconds) {
  const int scatter = 2 * which, join = 2 * which + 1;
  uint64_t others = schedule_partners(device, devices, false, true);
  MessageSize own = rows_of(step, device, devices);
  if (others == 0) return STATUS_OK;
  for (int i = 1; step->sum && i < devices; i++) {
    int peer = (device + i) % devices;
    MessageSize size = rows_of(step, peer, devices);
    if (size.packets) TRY(schedule_send(timeline, block, scatter, peer, size, 1ull << peer));
  }
  if (step->sum && own.packets) {
    TRY(schedule_wait(timeline, block, scatter, device, others));
    TRY(schedule_compute(timeline, add_seconds));
  }
  if (own.packets) TRY(schedule_send(timeline, block, join, device, own, others));
  for (int d = 0; d < devices; d++)
    if (d != device && rows_of(step, d, devices).packets) TRY(schedule_wait(timeline, block, join, d, 1ull << d));
  return STATUS_OK;
}
