/* See probe_message.h. */
#include "infer/cluster/probe_message.h"
#include "infer/plan/probe.h"
#include <math.h>

static const double max_seconds = 1; /* for a floating-point operation, a byte, or what a block costs beside: far slower than any device */

Status probe_message_check(const WireHeader *header, int64_t tokens_max) {
  bool compute = header->request == PROBE_COMPUTE && header->bytes == 0 && header->count >= 1 && header->count <= tokens_max;
  bool link = header->request == PROBE_LINK && header->bytes <= PROBE_MAX && header->count <= PROBE_MAX;
  if (compute || link) return STATUS_OK;
  return status_set(STATUS_BAD_VALUE, "asked for measurement %u of %u with %u bytes, which there is not", header->request, header->count,
                    header->bytes);
}

/* In the order in which they travel. */
static void list_numbers(DeviceProfile *profile, double *numbers[PROFILE_NUMBERS]) {
  for (int i = 0; i < PROFILE_SIZES; i++) {
    numbers[i] = &profile->linear[i];
    numbers[PROFILE_SIZES + i] = &profile->attention[i];
    numbers[2 * PROFILE_SIZES + i] = &profile->assign[i];
  }
  numbers[3 * PROFILE_SIZES] = &profile->table;
  numbers[3 * PROFILE_SIZES + 1] = &profile->byte;
  numbers[3 * PROFILE_SIZES + 2] = &profile->fixed;
}

void probe_message_pack(const DeviceProfile *profile, uint8_t bytes[PROFILE_BYTES]) {
  DeviceProfile copy = *profile;
  double *numbers[PROFILE_NUMBERS];
  list_numbers(&copy, numbers);
  for (int i = 0; i < PROFILE_NUMBERS; i++) wire_put_double(bytes + 8 * i, *numbers[i]);
}

Status probe_message_parse(const uint8_t bytes[PROFILE_BYTES], DeviceProfile *profile) {
  double *numbers[PROFILE_NUMBERS];
  list_numbers(profile, numbers);
  for (int i = 0; i < PROFILE_NUMBERS; i++) {
    *numbers[i] = wire_get_double(bytes + 8 * i);
    if (!(*numbers[i] > 0 && *numbers[i] <= max_seconds))
      return status_set(STATUS_BAD_VALUE, "says that it needs %g s for a unit of work", *numbers[i]);
  }
  return STATUS_OK;
}
