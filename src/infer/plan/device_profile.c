/* Arithmetic of profiles. */
#include "infer/plan/device_profile.h"
#include <math.h>

/* A product of few rows takes a time for its weights to come besides one for each row: of an operation r + w / rows, by the two smallest.
 * No product takes longer for having fewer rows, whatever the noise of the measurements. */
static double below(const double rates[PROFILE_SIZES], double rows) {
  double weights = (rates[0] - rates[1]) / (1.0 / PROFILE_SMALL - 1.0 / PROFILE_MIDDLE);
  return rates[0] + fmin(fmax(weights, 0), rates[0] * PROFILE_SMALL) * (1 / fmax(rows, 1) - 1.0 / PROFILE_SMALL);
}

/* Sizes that are no larger than the one before them (a model of few tokens) are passed over. */
double device_profile_rate(const double rates[PROFILE_SIZES], int64_t tokens, double rows) {
  const double sizes[PROFILE_SIZES] = {PROFILE_SMALL, PROFILE_MIDDLE, (double)tokens};
  if (rows <= sizes[0]) return below(rates, rows);
  for (int i = 1; i < PROFILE_SIZES; i++) {
    if (sizes[i] <= sizes[i - 1]) break;
    if (rows <= sizes[i]) return rates[i - 1] + (rates[i] - rates[i - 1]) * log(rows / sizes[i - 1]) / log(sizes[i] / sizes[i - 1]);
  }
  return rates[tokens > PROFILE_MIDDLE ? PROFILE_SIZES - 1 : 1];
}

double device_profile_seconds(const DeviceProfile *profile, const DeviceCost *cost, int64_t tokens, double rows) {
  return cost->linear * device_profile_rate(profile->linear, tokens, rows) +
         cost->attention * device_profile_rate(profile->attention, tokens, rows) +
         cost->assign * device_profile_rate(profile->assign, tokens, rows) + cost->table_bytes * profile->table +
         cost->other_bytes * profile->byte;
}

DeviceProfile device_profile_scaled(const DeviceProfile *profile, double speed) {
  DeviceProfile scaled = *profile;
  for (int i = 0; i < PROFILE_SIZES; i++) scaled.linear[i] /= speed, scaled.attention[i] /= speed, scaled.assign[i] /= speed;
  scaled.table /= speed;
  scaled.byte /= speed;
  scaled.fixed /= speed;
  return scaled;
}
