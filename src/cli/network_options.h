/* The options of a network that is computed, not there (astra-infer plan, astra-bench latency): topology, rate, latency, jitter, loss. */
#ifndef CLI_NETWORK_OPTIONS_H
#define CLI_NETWORK_OPTIONS_H
#include "base/options.h"
#include "infer/wire/link_model.h"
#include "infer/wire/reliability.h"

typedef struct NetworkOptions {
  const char *bandwidth, *latency, *jitter;
  double loss, loss_burst;
  int topology, loss_model, reliability; /* LinkTopology, LossModel; ReliabilityMode - RELIABILITY_DEADLINE */
  int64_t seed, datagrams;
} NetworkOptions;

enum { NETWORK_OPTIONS_COUNT = 13 };

/* Appends the rows, with their defaults, which are set in *options; returns how many. */
int network_options_rows(NetworkOptions *options, Option rows[NETWORK_OPTIONS_COUNT]);

/* BAD_USAGE for malformed values. links->overhead is whose packets they are to say. */
Status network_options_read(const NetworkOptions *options, LinkOptions *links, Reliability *reliability);

const char *network_options_topology(LinkTopology topology); /* "mesh" */

#endif
