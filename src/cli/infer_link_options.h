/* Options of how codes travel between devices: carrier, reliability, and links as they are asked to be. Shared by the commands of
 * astra-infer that start devices. */
#ifndef CLI_INFER_LINK_OPTIONS_H
#define CLI_INFER_LINK_OPTIONS_H
#include "base/options.h"
#include "infer/control/setup_message.h"

typedef struct InferLinkOptions {
  const char *deadline, *bandwidth, *latency, *jitter, *loss, *trace;     /* as they were given; NULL: not */
  const char *table_memory;                                               /* infer_tables.h */
  int transport, reliability, loss_model, loss_unit, link_model, entropy; /* choices; transport and reliability: one more, the default */
  int cache_type;                                                         /* WeightsType */
  int64_t mtu, datagrams, parts, link_seed;
  double loss_burst;
} InferLinkOptions;

enum { INFER_LINK_ROWS = 32 /* at most */ };

/* Rows for a table of options, with a heading, and the defaults in *options; returns how many. */
int infer_link_options_rows(InferLinkOptions *options, Option rows[INFER_LINK_ROWS]);

/* Checks what was given and what goes together (BAD_USAGE names the option), and fills transport, reliability, parts, entropy, MTU, links
 * and shaped of *setup; timeout: that of the cluster. Release links.trace of *setup. usual: the transport where none was given. */
Status infer_link_options_read(const InferLinkOptions *options, Transport usual, double timeout, ClusterSetup *setup);

/* "20mbit", "1.5gbit", "500kbit", "64000bit" -> bits a second; "2ms", "1s", "50us" -> seconds; "5%", "0.05" -> [0, 1). */
Status infer_link_options_rate(const char *text, double *bits_per_second);
Status infer_link_options_time(const char *text, double *seconds);
Status infer_link_options_share(const char *text, double *share);

#endif
