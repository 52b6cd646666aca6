/* The devices that the options name: --nodes or --peers, and what goes with them. */
#ifndef CLI_INFER_CLUSTER_H
#define CLI_INFER_CLUSTER_H
#include "base/status.h"
#include "cli/infer_settings.h"
#include "infer/cluster/leader.h"
#include "infer/wire.h"

typedef struct InferCluster {
  ClusterOptions options; /* points into the rest */
  Address peers[WIRE_NODES];
  KeyFile key;
} InferCluster;

/* BAD_USAGE: an address that is none, or too many; one of another machine without a key, or behind one that only this machine reaches. Else
 * as key_file_read. options.local is 0 or 1 with --peers, else the caller's to set. */
Status infer_cluster_open(InferCluster *cluster, const InferSettings *settings);

#endif
