/* Measures how fast this device computes what a model needs, on the model's own shapes, in about half a second: DeviceProfile. */
#ifndef INFER_PROBE_H
#define INFER_PROBE_H
#include "infer/plan/device_profile.h"

typedef enum ProbeConditions {
  PROBE_BY_ITSELF, /* the best of some runs, in time of the processor where one thread runs: a busy neighbour is not taken for a slow device
                    */
  PROBE_AS_IT_IS   /* the mean of runs by the clock: what else the device has to do slows it, as it will slow requests */
} ProbeConditions;

/* With numbers drawn at random: values do not change the time. Products of 64, 256 and `tokens` rows, on the threads that run. NO_MEMORY.
 */
Status probe_compute(const ModelConfig *config, int64_t tokens, ProbeConditions conditions, DeviceProfile *profile);

#endif
