/* What is measured of this device makes sense: positive, finite, and no device is as fast or as slow as none can be. */
#include "infer/plan/probe.h"
#include <cmocka.h>
#include <math.h>

static void plausible(double seconds, double min, double max) {
  if (!(seconds >= min && seconds <= max)) fail_msg("%g s is not from %g to %g", seconds, min, max);
}

static void every_speed_is_measured(void **state) {
  (void)state;
  ModelConfig config;
  assert_int_equal(config_preset(&config, "vit-cifar", 10), STATUS_OK);
  for (int groups = 0; groups <= 8; groups += 8) { /* a plain model too */
    DeviceProfile profile = {.byte = 0};
    config.astra.groups = groups;
    config.astra.codebook_size = groups ? 256 : 0;
    assert_int_equal(probe_compute(&config, 64, groups ? PROBE_AS_IT_IS : PROBE_BY_ITSELF, &profile), STATUS_OK);
    for (int i = 0; i < PROFILE_SIZES; i++) {
      plausible(profile.linear[i], 1e-14, 1e-7);
      plausible(profile.attention[i], 1e-14, 1e-7);
      plausible(profile.assign[i], 1e-14, 1e-7);
    }
    plausible(profile.byte, 1e-13, 1e-7);
    plausible(profile.table, 1e-13, 1e-7);
    plausible(profile.fixed, 1e-8, 1e-2);
  }
  config_release(&config);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(every_speed_is_measured)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
