/* The latency of a request over a network that is only computed: the product's own transport (transport.h), one for each device, driven in
 * virtual time through the devices' timelines (schedule.h). What is queued, throttled, lost, asked for, sent again and given up is
 * therefore what happens on sockets. A sender answers at once, whatever it computes. Deterministic. */
#ifndef INFER_SIMULATE_H
#define INFER_SIMULATE_H
#include "infer/sim/schedule.h"
#include "infer/transport/netem.h"
#include "infer/transport/policy.h"
#include "infer/wire.h"

typedef struct SimOptions {
  const Reliability *reliability; /* NULL: a stream */
  double scale;                   /* of every EVENT_COMPUTE; 0: 1 */
  double start;                   /* when the request begins, in the trace's time */
  const LinkEnd *ends;            /* [count] where devices' links differ (netem.h); NULL */
} SimOptions;

typedef struct SimDevice {
  double end;           /* when its last event is over; times are since the start */
  double compute, wait; /* seconds of EVENT_COMPUTE, scaled, and EVENT_FIXED; waiting that they did not hide */
  double span;          /* from each block's first send to its last arrival, summed */
  double carried;       /* seconds in which the busiest direction of its links carried packets, lower layers and all */
  uint64_t bytes_sent;  /* of packets with their headers, lower layers left out */
} SimDevice;

typedef struct SimResult {
  double latency; /* the latest end */
  SimDevice device[WIRE_NODES];
} SimResult;

/* The device, of the first `devices`, that ends last: whose time the latency is. */
const SimDevice *simulate_last(const SimResult *result, int devices);

/* The share of the time in which packets were under way that the device spent computing: 1 - wait / span. NAN of a device that sends
 * nothing, as the last one of a text: when what it waits for was sent, it does not know, here as in a cluster. */
double simulate_hidden(const SimDevice *device);

/* devices [count]. BAD_VALUE: an event waits for a message that no device sends, or the devices wait for each other for ever (names both);
 * a timeline or link that makes no sense; loss under a stream, which hides it. TIMEOUT: reliability's (0: a minute) is over and nothing may
 * be left out. */
Status simulate_run(const Timeline *devices, int count, const LinkOptions *links, const SimOptions *options, SimResult *result);

/* Runs of which a request's latency is the median where links lose packets or waver. */
enum { SIMULATE_DRAWS = 7 };

/* A request whose messages go in datagrams, or over streams: these hide loss, which is left out, and options->reliability is not read.
 * links->overhead is not read: it follows from what travels. With loss or jitter: the median of SIMULATE_DRAWS runs, of seeds from
 * links->seed on. Errors as simulate_run. */
Status simulate_request(const Timeline *devices, int count, bool datagrams, const LinkOptions *links, const SimOptions *options,
                        SimResult *result);

#endif
