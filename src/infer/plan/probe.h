/* Measures how fast this device computes what a model needs, on the model's own shapes, in about half a second: DeviceProfile. */
#ifndef INFER_PROBE_H
#define INFER_PROBE_H
#include "infer/plan/device_profile.h"

/* With numbers drawn at random: values do not change the time. Products of 64, 256 and `tokens` rows, on the threads that run (time of the
 * processor where one does, so that a busy neighbour is not taken for a slow device). The best of some runs each. NO_MEMORY. */
Status probe_compute(const ModelConfig *config, int64_t tokens, DeviceProfile *profile);

#endif
