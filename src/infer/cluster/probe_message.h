/* PROBE and PROFILE: how a leader learns what its devices and the way to them can do, before the first epoch (docs/FORMATS.md). The
 * header's `request` says what is wanted:
 *   PROBE_COMPUTE: `count` is the tokens of an input; the device measures itself (plan/probe.h) and answers with its profile.
 *   PROBE_LINK: the payload is of no meaning, and neither is that of the answer, which has `count` bytes: the leader times both ways. */
#ifndef INFER_PROBE_MESSAGE_H
#define INFER_PROBE_MESSAGE_H
#include "infer/cluster/connection.h"
#include "infer/plan/probe.h"
#include "infer/wire.h"
#include <stdbool.h>

enum { PROBE_COMPUTE = 1, PROBE_LINK = 2 };
enum { PROBE_MAX = WIRE_PROBE_BYTES /* either way */, PROFILE_NUMBERS = 3 * PROFILE_SIZES + 3, PROFILE_BYTES = 8 * PROFILE_NUMBERS };

/* BAD_VALUE: a PROBE that asks for what there is not, or for more than `tokens_max` tokens or PROBE_MAX bytes. */
Status probe_message_check(const WireHeader *header, int64_t tokens_max);

void probe_message_pack(const DeviceProfile *profile, uint8_t bytes[PROFILE_BYTES]);
Status probe_message_parse(const uint8_t bytes[PROFILE_BYTES], DeviceProfile *profile); /* BAD_VALUE: a speed that none can have */

/* ---- a device's side: takes a PROBE in, and answers it */

typedef struct ProbeAnswer {
  bool arrived;    /* one waits for its answer */
  WireHeader last; /* it */
  uint8_t *bytes;  /* [WIRE_HEADER + PROBE_MAX] from the first one on: its payload, then the answer */
} ProbeAnswer;

void probe_message_release(ProbeAnswer *probe); /* accepts a zeroed one */

/* Of a connection's sink. One at a time: the next is held back until this one is answered. */
Status probe_message_place(ProbeAnswer *probe, const ModelConfig *config, const WireHeader *header, uint8_t **payload);
void probe_message_deliver(ProbeAnswer *probe, const WireHeader *header);

/* Measures, on the threads that run, and sends the answer, which is in *probe until it has left. */
Status probe_message_answer(ProbeAnswer *probe, const ModelConfig *config, Connection *control);

#endif
