/* The courier. */
#include "infer/wire/courier.h"

Status courier_start(Courier **courier, const CourierSetup *setup) {
  *courier = NULL;
  return status_set(STATUS_UNSUPPORTED, "packets to %d other devices: this version has no courier yet", setup->nodes - 1);
}
