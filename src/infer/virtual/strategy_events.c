/* Events of exchanges. */
#include "infer/virtual/strategy_events.h"

uint64_t strategy_events_others(int device, int devices) { return (devices < 64 ? (1ull << devices) - 1 : ~0ull) & ~(1ull << device); }

Status strategy_events_send(Timeline *timeline, int block, int site, int part, GroupSize size, uint64_t peers) {
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

Status strategy_events_wait(Timeline *timeline, int block, int site, int part, uint64_t peers) {
  return timeline_add(timeline,
                      &(Event){.kind = EVENT_WAIT, .block = (uint8_t)block, .site = (uint8_t)site, .part = (uint8_t)part, .peers = peers});
}

Status strategy_events_compute(Timeline *timeline, double seconds) {
  return timeline_add(timeline, &(Event){.kind = EVENT_COMPUTE, .seconds = seconds});
}

Status strategy_events_gather(Timeline *timeline, int block, int which, int device, int devices, double own_bytes) {
  uint64_t others = strategy_events_others(device, devices);
  if (others == 0) return STATUS_OK;
  TRY(strategy_events_send(timeline, block, 2 * which + 1, device, group_size_stream(own_bytes), others));
  for (int d = 0; d < devices; d++)
    if (d != device) TRY(strategy_events_wait(timeline, block, 2 * which + 1, d, 1ull << d));
  return STATUS_OK;
}

Status strategy_events_sum(Timeline *timeline, int block, int which, int device, int devices, const double *row_bytes, double add_seconds) {
  uint64_t others = strategy_events_others(device, devices);
  if (others == 0) return STATUS_OK;
  for (int i = 1; i < devices; i++) {
    int peer = (device + i) % devices;
    TRY(strategy_events_send(timeline, block, 2 * which, peer, group_size_stream(row_bytes[peer]), 1ull << peer));
  }
  TRY(strategy_events_wait(timeline, block, 2 * which, device, others));
  TRY(strategy_events_compute(timeline, add_seconds));
  return strategy_events_gather(timeline, block, which, device, devices, row_bytes[device]);
}
