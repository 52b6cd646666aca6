/* Token-to-device maps: in training drawn anew for each batch (paper section 4.1: "randomised token-to-device mapping"), in evaluation as
 * the runner places tokens. */
#ifndef TRAIN_DEVICE_MAP_H
#define TRAIN_DEVICE_MAP_H
#include "base/rng.h"
#include "nn/config.h"

enum { DEVICE_MAP_MOST = 1024 }; /* devices of a map */

typedef enum MapCounts { COUNTS_EVEN, COUNTS_FIXED, COUNTS_DIRICHLET } MapCounts;
typedef struct DeviceMapOptions {
  int devices_least, devices_most; /* N is drawn uniformly from the range */
  MapCounts counts;
  const int64_t *fixed; /* [devices_most], COUNTS_FIXED, which needs devices_least = devices_most */
  double concentration; /* of the Dirichlet, all parameters equal */
  bool permute;         /* any token anywhere; else which tokens a device has follows from their numbers alone: */
  TokenMap map;         /* on a grid of */
  int64_t side;         /* tokens in width and height; 0: contiguous spans (decoders) */
} DeviceMapOptions;

/* Draws one map and builds the layout (all devices in this process). order_buffer holds `tokens` numbers. The tokens of a device keep
 * their raster order among each other. Allocates nothing once the layout has seen as many tokens. A range beyond T, fixed counts
 * that do not sum to T or a concentration that is not positive is STATUS_BAD_VALUE. */
Status device_map_draw(TokenLayout *layout, int64_t tokens, ClassToken class_token, const DeviceMapOptions *options, Rng *rng,
                       int32_t *order_buffer);

/* Even shares over `devices`, placed as config's astra.layout says (of a decoder contiguous spans): as `astra-infer` without --split and
 * --layout. order_buffer and memory as above. */
Status device_map_place(TokenLayout *layout, const ModelConfig *config, int64_t tokens, int devices, int32_t *order_buffer);

#endif
