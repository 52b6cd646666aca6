/* How fast a device is, measured on the model's own shapes, in about half a second where these are small: seconds for each unit of what
 * device_cost counts. */
#ifndef INFER_PROBE_H
#define INFER_PROBE_H
#include "nn/strategy.h"

enum {
  PROFILE_SIZES = 3,
  PROFILE_SMALL = 64,
  PROFILE_MIDDLE = 256
}; /* speed depends on how many rows a product has: 64, 256, and all tokens */

typedef struct DeviceProfile {
  double linear[PROFILE_SIZES], attention[PROFILE_SIZES], assign[PROFILE_SIZES]; /* seconds for a floating-point operation */
  double table; /* seconds for a byte of tables, whose rows are read here and there */
  double byte;  /* seconds for a byte of what else is bound by memory */
  double fixed; /* seconds of a block whatever its rows */
} DeviceProfile;

/* The same device `speed` times as fast. */
DeviceProfile device_profile_scaled(const DeviceProfile *profile, double speed);

/* Measurements of a device and the connection to it, before the first epoch. */
typedef struct DeviceMeasure {
  bool here; /* false: it was not measured */
  DeviceProfile profile;
  bool linked;       /* it is on another machine, and the following was measured */
  double round_trip; /* seconds */
  double to, from;   /* bits per second, frame headers included */
} DeviceMeasure;

/* ---- measuring */

typedef enum ProbeConditions {
  PROBE_BY_ITSELF, /* the best of some runs, in time of the processor where one thread runs: a busy neighbour is not taken for a slow device
                    */
  PROBE_AS_IT_IS   /* the mean of runs by the clock: what else the device has to do slows it, as it will slow requests */
} ProbeConditions;

/* With numbers drawn at random: values do not change the time. Products of 64, 256 and `tokens` rows, on the threads that run. NO_MEMORY.
 */
Status probe_compute(const ModelConfig *config, int64_t tokens, ProbeConditions conditions, DeviceProfile *profile);
double probe_operations(const ModelConfig *config, int64_t tokens); /* floating-point operations that it takes at least */

#endif
