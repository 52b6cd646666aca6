/* PROBE and PROFILE: how a leader learns what its devices and the way to them can do, before the first epoch (docs/FORMATS.md). The
 * header's `request` says what is wanted:
 *   PROBE_COMPUTE: `count` is the tokens of an input; the device measures itself (plan/probe.h) and answers with its profile.
 *   PROBE_LINK: the payload is of no meaning, and neither is that of the answer, which has `count` bytes: the leader times both ways. */
#ifndef INFER_PROBE_MESSAGE_H
#define INFER_PROBE_MESSAGE_H
#include "infer/plan/probe.h"
#include "infer/wire.h"

enum { PROBE_COMPUTE = 1, PROBE_LINK = 2 };
enum { PROBE_MAX = WIRE_PROBE_BYTES /* either way */, PROFILE_NUMBERS = 3 * PROFILE_SIZES + 3, PROFILE_BYTES = 8 * PROFILE_NUMBERS };

/* BAD_VALUE: a PROBE that asks for what there is not, or for more than `tokens_max` tokens or PROBE_MAX bytes. */
Status probe_message_check(const WireHeader *header, int64_t tokens_max);

void probe_message_pack(const DeviceProfile *profile, uint8_t bytes[PROFILE_BYTES]);
Status probe_message_parse(const uint8_t bytes[PROFILE_BYTES], DeviceProfile *profile); /* BAD_VALUE: a speed that none can have */

#endif
