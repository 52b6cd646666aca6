/* Fuzz target: what a device says of its speed. Holds: what is accepted is positive and finite, and packs to the same bytes. */
#include "fuzz/fuzz.h"
#include "infer/cluster/hello.h"
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  DeviceProfile profile;
  uint8_t again[PROFILE_BYTES];
  if (size < PROFILE_BYTES || hello_profile(byte_cursor_from(data), &profile) != STATUS_OK) return 0;
  for (int i = 0; i < PROFILE_SIZES; i++) need(profile.linear[i] > 0 && profile.attention[i] > 0 && profile.assign[i] > 0);
  need(profile.byte > 0 && profile.byte <= 1 && profile.fixed > 0 && profile.fixed <= 1);
  hello_profile(byte_cursor_to(again), &profile);
  need(memcmp(again, data, PROFILE_BYTES) == 0);
  return 0;
}
