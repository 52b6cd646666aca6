/* Timelines and the steps of blocks: see schedule.h. */
#include "infer/sim/schedule.h"
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

MessageSize schedule_codes(int64_t tokens, double token_bits, size_t max_packet, int min) {
  int packets = max_packet > PACKET_HEADER ? interleave_packets(tokens, token_bits, max_packet - PACKET_HEADER, min) : 0;
  double bytes = (double)packets * PACKET_HEADER;
  for (int f = 0; f < packets; f++) bytes += ceil((double)interleave_count(tokens, packets, f) * token_bits / 8);
  return bytes < UINT32_MAX ? (MessageSize){(uint32_t)packets, (uint32_t)bytes} : (MessageSize){0};
}

MessageSize schedule_stream(double bytes) {
  double segments = fmax(1, ceil((bytes + PACKET_HEADER) / SCHEDULE_SEGMENT_MAX)), packets = fmin(segments, SCHEDULE_STREAM_PACKETS);
  bytes += PACKET_HEADER + (segments - packets) * SCHEDULE_SEGMENT_OVERHEAD;
  return bytes < UINT32_MAX ? (MessageSize){(uint32_t)packets, (uint32_t)bytes} : (MessageSize){0};
}

/* ---- steps */

static uint64_t others_of(int device, int devices) { return (devices < 64 ? (1ull << devices) - 1 : ~0ull) & ~(1ull << device); }

uint64_t schedule_partners(int device, int devices, bool causal, bool to) {
  uint64_t others = others_of(device, devices), before = (1ull << device) - 1;
  if (!causal) return others;
  return to ? others & ~before : others & before;
}

Status schedule_send(Timeline *timeline, int block, int site, int part, MessageSize size, uint64_t peers) {
  if (size.packets == 0)
    return status_set(STATUS_BAD_VALUE, "block %d, part %d: no group of packets can hold what is to be sent", block, part);
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

Status schedule_gather(Timeline *timeline, int block, int which, int device, int devices, const double *own_bytes) {
  uint64_t others = others_of(device, devices);
  if (others && own_bytes[device] > 0)
    TRY(schedule_send(timeline, block, 2 * which + 1, device, schedule_stream(own_bytes[device]), others));
  for (int d = 0; d < devices; d++)
    if (d != device && own_bytes[d] > 0) TRY(schedule_wait(timeline, block, 2 * which + 1, d, 1ull << d));
  return STATUS_OK;
}

Status schedule_sum(Timeline *timeline, int block, int which, int device, int devices, const double *row_bytes, double add_seconds) {
  uint64_t others = others_of(device, devices);
  if (others == 0) return STATUS_OK;
  for (int i = 1; i < devices; i++) {
    int peer = (device + i) % devices;
    if (row_bytes[peer] > 0) TRY(schedule_send(timeline, block, 2 * which, peer, schedule_stream(row_bytes[peer]), 1ull << peer));
  }
  if (row_bytes[device] > 0) {
    TRY(schedule_wait(timeline, block, 2 * which, device, others));
    TRY(schedule_compute(timeline, add_seconds));
  }
  return schedule_gather(timeline, block, which, device, devices, row_bytes);
}

/* A part's codes leave as soon as they can be computed. */
static Status begin_part(Timeline *timeline, const ExchangeSchedule *s, int block, int part) {
  TRY(schedule_compute(timeline, s->cost[block].before / s->parts));
  for (int site = 0; s->receivers && s->sent[part].packets && site < s->sites; site++)
    TRY(schedule_send(timeline, block, site, part, s->sent[part], s->receivers));
  return STATUS_OK;
}

static Status finish_part(Timeline *timeline, const ExchangeSchedule *s, int block, int part) {
  for (int site = 0; s->senders[part] && site < s->sites; site++) TRY(schedule_wait(timeline, block, site, part, s->senders[part]));
  return schedule_compute(timeline, s->cost[block].remote / s->parts);
}

Status schedule_exchange(Timeline *timeline, const ExchangeSchedule *s) {
  for (int part = 0; part < s->parts; part++) TRY(begin_part(timeline, s, 0, part));
  for (int block = 0; block < s->blocks; block++) {
    TRY(schedule_compute(timeline, s->cost[block].own));
    for (int part = 0; part < s->parts; part++) TRY(finish_part(timeline, s, block, part));
    for (int part = 0; part < s->parts; part++) {
      TRY(schedule_compute(timeline, s->cost[block].rest / s->parts));
      if (block + 1 < s->blocks) TRY(begin_part(timeline, s, block + 1, part));
    }
  }
  return STATUS_OK;
}
