/* See session_probe.h. */
#include "infer/cluster/session_probe.h"
#include "infer/plan/probe.h"
#include <stdlib.h>

void session_probe_release(SessionProbe *probe) {
  free(probe->bytes);
  *probe = (SessionProbe){.arrived = false};
}

Status session_probe_place(SessionProbe *probe, const ModelConfig *config, const WireHeader *header, uint8_t **payload) {
  TRY(probe_message_check(header, config_tokens(config)));
  if (!probe->bytes) probe->bytes = calloc(1, WIRE_HEADER + PROBE_MOST);
  if (!probe->bytes) return status_set(STATUS_NO_MEMORY, "no memory to be measured");
  *payload = probe->arrived ? NULL : probe->bytes + WIRE_HEADER;
  return STATUS_OK;
}

void session_probe_deliver(SessionProbe *probe, const WireHeader *header) {
  probe->last = *header;
  probe->arrived = true;
}

Status session_probe_answer(SessionProbe *probe, const ModelConfig *config, Connection *control) {
  WireHeader answer = {.kind = WIRE_PROFILE, .request = probe->last.request, .count = probe->last.count, .bytes = probe->last.count};
  DeviceProfile profile;
  if (answer.request == PROBE_COMPUTE) {
    TRY(probe_compute(config, answer.count, PROBE_AS_IT_IS, &profile));
    probe_message_pack(&profile, probe->bytes + WIRE_HEADER);
    answer.bytes = PROFILE_BYTES;
  }
  wire_pack(&answer, probe->bytes);
  return connection_send(control, probe->bytes, WIRE_HEADER + (size_t)answer.bytes);
}
