/* How fast a device is, measured on the model's own shapes: seconds for each unit of what device_cost counts. */
#ifndef INFER_DEVICE_PROFILE_H
#define INFER_DEVICE_PROFILE_H

enum { PROFILE_SIZES = 3 }; /* speed depends on how many rows a product has: 64, 256, and all tokens */

typedef struct DeviceProfile {
  double linear[PROFILE_SIZES], attention[PROFILE_SIZES], assign[PROFILE_SIZES]; /* seconds for a floating-point operation */
  double byte;  /* seconds for a byte of tables, and of what is bound by memory */
  double fixed; /* seconds of a block whatever its rows */
} DeviceProfile;

#endif
