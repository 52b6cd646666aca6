/* Processor time that packets take: sealing and sending, waking up, receiving and opening. A node's transport does that beside the
 * computation, on the same core where a device has but one; timelines of devices measured alone (measure.h) lack it. */
#ifndef INFER_PACKET_WORK_H
#define INFER_PACKET_WORK_H
#include "infer/sim/schedule.h"
#include <stdbool.h>

typedef struct PacketCost {
  double packet, byte; /* seconds */
} PacketCost;

typedef struct PacketWork {
  PacketCost out, in;               /* datagrams */
  PacketCost stream_out, stream_in; /* `packet` is 0 */
} PacketWork;

/* On this machine's loopback, in some hundredths of a second: AES-256-GCM as datagrams and streams have it, a receiver that sleeps until a
 * packet comes. IO: there is no loopback; NO_MEMORY. */
Status packet_work_measure(PacketWork *work);

/* from [count], of all devices -> to [count], zeroed, to be released also after a failure: the same with stretches of EVENT_FIXED before
 * what is sent (all receivers' copies) and behind what was waited for. BAD_VALUE: a message is waited for that no device sends.
 */
Status packet_work_add(const PacketWork *work, const Timeline *from, int count, bool datagrams, Timeline *to);

#endif
