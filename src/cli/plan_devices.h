/* Devices and links as the options of astra-infer plan name them: how many, how fast, each behind which link. */
#ifndef CLI_PLAN_DEVICES_H
#define CLI_PLAN_DEVICES_H
#include "infer/plan/device_profile.h"
#include "infer/wire.h"
#include "infer/wire/link_model.h"

typedef struct PlanDevices {
  int count;
  uint64_t counts_tried;              /* of devices, as PlannerSetup has them */
  double speeds[WIRE_NODES];          /* [count], the fastest first; that of this device is 1 */
  DeviceProfile profiles[WIRE_NODES]; /* [count]: the caller fills them in, once this device is measured */
  LinkEnd ends[WIRE_NODES];           /* [count], in the same order */
  bool linked;                        /* `ends` were given */
} PlanDevices;

/* nodes "2,4", speeds "1,1,0.5", links "50mbit,50mbit,5mbit": NULL where an option was not given. Without speeds and links there are as
 * many devices as the largest of nodes (2, 4 and 8), all like this one. BAD_USAGE names the option. */
Status plan_devices_read(const char *nodes, const char *speeds, const char *links, PlanDevices *devices);

/* Which numbers of devices to try where there are `count`, said to be "of --peers" or the like: all, or those of nodes. BAD_USAGE. */
Status plan_devices_counts(const char *nodes, int count, const char *whose, uint64_t *tried);

#endif
