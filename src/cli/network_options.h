/* Options of a simulated network (astra-infer plan, astra-bench latency), and links as JSON. */
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

/* What a run accepts of a simulated network, a plan and a figure accept as well. */
#define LINK_MODELS         "mesh|switch|shared-medium"
#define OLD_LINK_MODELS     "||shared-air"
#define LOSS_MODELS         "bernoulli|gilbert-elliott"
#define LOSS_BURST_DEFAULT  4.0 /* packets or tokens */
#define LOSS_BURST_MAX      1000.0
#define MIN_PACKETS_DEFAULT 2
#define MIN_PACKETS_MAX     255
#define LINK_SEED_MAX       9e15

/* --retained: BAD_USAGE where the model has fewer blocks. 0, where an option takes it, is no number of them. */
Status retained_check(int64_t retained, int64_t blocks);

/* The links of a simulated network, as options say. */
typedef struct NetworkLinks {
  double bandwidth, latency, jitter; /* bits per second, seconds; negative: not given */
  double loss, loss_burst;           /* a burst of 0: auto */
  int topology, loss_model;          /* LinkTopology, LossModel */
  int64_t seed;
} NetworkLinks;

enum { NETWORK_LINKS_COUNT = 10 };

/* Appends the rows; the defaults are what *links has. Returns how many. */
int network_links_rows(NetworkLinks *links, Option rows[NETWORK_LINKS_COUNT]);

/* links->overhead is whose packets they are to say, and links->trace. BAD_USAGE: a loss that such bursts cannot have, or bursts of another
 * model of losses. */
Status network_links_read(const NetworkLinks *options, bool lose_tokens, LinkOptions *links);

/* --datagrams, and its default in *datagrams. */
Option network_options_datagrams(int64_t *datagrams);

/* The same with how what is lost is handled, for what computes in virtual time. */
typedef struct NetworkOptions {
  NetworkLinks links;
  int reliability; /* ReliabilityMode - RELIABILITY_DEADLINE */
  int64_t datagrams;
} NetworkOptions;

enum { NETWORK_OPTIONS_COUNT = NETWORK_LINKS_COUNT + 3 };

/* Appends the rows, with their defaults, which are set in *options; returns how many. */
int network_options_rows(NetworkOptions *options, Option rows[NETWORK_OPTIONS_COUNT]);

Status network_options_read(const NetworkOptions *options, LinkOptions *links, Reliability *reliability); /* as network_links_read */

const char *network_options_topology(LinkTopology topology); /* "mesh" */

#endif
