/* See virtual_latency.h. */
#include "infer/virtual/virtual_latency.h"
#include "infer/sim/schedule.h"

static Status simulate(const VirtualCase *wanted, const Timeline *timelines, SimResult *result) {
  LinkOptions links = *wanted->links;
  bool codes = strategy_facts(wanted->device.strategy)->sends_codes;
  links.overhead = codes ? SCHEDULE_DATAGRAM_OVERHEAD : SCHEDULE_SEGMENT_OVERHEAD;
  if (!codes) links.loss = 0; /* a stream hides it */
  const SimOptions options = {.reliability = codes ? wanted->reliability : NULL, .ends = wanted->ends, .scale = wanted->scale};
  return simulate_run(timelines, wanted->device.devices, &links, &options, result);
}

static Status simulate_with_work(const VirtualCase *wanted, const Timeline *timelines, SimResult *result) {
  Timeline worked[WIRE_NODES] = {0};
  bool codes = strategy_facts(wanted->device.strategy)->sends_codes;
  Status status = packet_work_add(wanted->work, timelines, wanted->device.devices, codes, worked);
  if (status == STATUS_OK) status = simulate(wanted, worked, result);
  for (int d = 0; d < WIRE_NODES; d++) timeline_release(&worked[d]);
  return status;
}

Status virtual_latency_measure(const VirtualCase *wanted, SimResult *result) {
  Timeline timelines[WIRE_NODES] = {0};
  Status status = STATUS_OK;
  for (int d = 0; d < wanted->device.devices && status == STATUS_OK; d++) {
    DeviceCase device = wanted->device;
    device.self = d;
    status = timeline_measure(&timelines[d], wanted->weights, &device, wanted->repeats, NULL);
  }
  if (status == STATUS_OK) status = wanted->work ? simulate_with_work(wanted, timelines, result) : simulate(wanted, timelines, result);
  for (int d = 0; d < WIRE_NODES; d++) timeline_release(&timelines[d]);
  return status;
}
