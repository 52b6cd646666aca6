/* astra-infer plan --peers: the devices that there are, measured, in place of one that stands for all. */
#ifndef CLI_PLAN_PEERS_H
#define CLI_PLAN_PEERS_H
#include "infer/leader.h"

typedef struct PlanPeersOptions {
  const char *peers, *key_file; /* as of astra-infer itself */
  bool local;
  double wait, timeout;
  int threads; /* of this device */
} PlanPeersOptions;

typedef struct PlanPeers {
  int count;
  DeviceProfile profiles[WIRE_NODES];   /* [count], the fastest first */
  char names[WIRE_NODES][ADDRESS_TEXT]; /* "this device", or the worker's address */
  LinkEnd ends[WIRE_NODES];             /* [count] the ways of each as they were measured; all zero where `linked` is not */
  bool linked;                          /* one of them is another machine's, or might be */
} PlanPeers;

/* Calls the workers, which must have the model at `checkpoint` (a path, or the name of an installed one), measures all, and lets them go.
 */
Status plan_peers_measure(const PlanPeersOptions *options, const char *checkpoint, PlanPeers *peers);

#endif
