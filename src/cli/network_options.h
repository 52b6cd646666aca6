/* Options of a simulated network (astra-infer plan, astra-bench latency), the values of options about links, and links as JSON. */
#ifndef CLI_NETWORK_OPTIONS_H
#define CLI_NETWORK_OPTIONS_H
#include "base/options.h"
#include "base/status.h"
#include "infer/transport/netem.h"
#include "infer/transport/policy.h"
#include <jansson.h>

/* A measured link in JSON output. */

/* {to_bits_per_second, from_bits_per_second, latency_ms}, or null where there is no `end`. Fresh; NULL when out of memory. */
json_t *link_json(const LinkEnd *end);

/* Values of options about links: rates and times with their unit, sizes, and lists. */

/* "20mbit", "1gbit", "500kbit", "9600bit": bits a second. BAD_USAGE names the option and what is accepted. */
Status link_values_rate(const char *option, const char *text, double *bits_per_second);

/* "2ms", "1s", "50us": seconds. */
Status link_values_time(const char *option, const char *text, double *seconds);

/* "512M", "1.5G", "64k" or plain bytes; powers of 1,024. */
Status link_values_size(const char *option, const char *text, double *bytes);

/* "1,16,32": whole numbers in [least, most], at most `room` of them. */
Status link_values_list(const char *option, const char *text, int least, int most, int *list, int room, int *count);

/* "1,1,0.5": positive numbers; likewise. */
Status link_values_numbers(const char *option, const char *text, double *list, int room, int *count);

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
