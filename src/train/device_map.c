/* How many devices there are, how many tokens each has and which; the layout is built from that. All draws come from one generator in a
 * fixed order (N, counts, permutation), so a map follows from the generator's state alone. */
#include "train/device_map.h"
#include <math.h>

static Status check_options(const DeviceMapOptions *options, int64_t tokens) {
  if (options->devices_least < 1 || options->devices_least > options->devices_most)
    return status_set(STATUS_BAD_VALUE, "devices %d-%d: a range from at least 1 upwards is accepted", options->devices_least,
                      options->devices_most);
  if (options->devices_most > DEVICE_MAP_MOST || options->devices_most > tokens)
    return status_set(STATUS_BAD_VALUE, "%d devices: at most %lld are accepted here, as every device needs one of the %lld tokens",
                      options->devices_most, (long long)(tokens < DEVICE_MAP_MOST ? tokens : DEVICE_MAP_MOST), (long long)tokens);
  if (options->counts == COUNTS_FIXED && (options->devices_least != options->devices_most || !options->fixed))
    return status_set(STATUS_BAD_VALUE, "fixed token counts need one number of devices, not %d-%d", options->devices_least,
                      options->devices_most);
  if (options->counts == COUNTS_DIRICHLET && !(options->concentration > 0 && isfinite(options->concentration)))
    return status_set(STATUS_BAD_VALUE, "concentration %g of the random token counts: a positive number is accepted",
                      options->concentration);
  return STATUS_OK;
}

/* Proportions from a Dirichlet distribution: gamma variates of which only the ratios count. */
static Status dirichlet_counts(int64_t tokens, int devices, double concentration, Rng *rng, int64_t *counts) {
  double weights[DEVICE_MAP_MOST];
  const double least = 1e-290; /* a small concentration underflows to 0; large enough that T / least is finite */
  for (int d = 0; d < devices; d++) weights[d] = fmax(rng_gamma(rng, concentration), least);
  return layout_weighted_counts(tokens, devices, weights, counts);
}

static Status draw_counts(const DeviceMapOptions *options, int64_t tokens, int devices, Rng *rng, int64_t *counts) {
  if (options->counts == COUNTS_DIRICHLET) return dirichlet_counts(tokens, devices, options->concentration, rng, counts);
  if (options->counts == COUNTS_EVEN) layout_even_counts(tokens, devices, counts);
  for (int d = 0; options->counts == COUNTS_FIXED && d < devices; d++) counts[d] = options->fixed[d];
  return STATUS_OK;
}

Status device_map_draw(TokenLayout *layout, int64_t tokens, ClassToken class_token, const DeviceMapOptions *options, Rng *rng,
                       int32_t *order_buffer) {
  TRY(check_options(options, tokens));
  int64_t counts[DEVICE_MAP_MOST];
  int devices = options->devices_least + (int)rng_below(rng, (uint64_t)(options->devices_most - options->devices_least) + 1);
  TRY(draw_counts(options, tokens, devices, rng, counts));
  /* Fixed counts come from a user: unchecked they could run the sorting beyond the buffer. */
  TRY(layout_build(layout, tokens, devices, counts, NULL, class_token, -1));
  if ((!options->permute && options->side == 0) || devices == 1) return STATUS_OK;
  if (options->permute)
    token_map_draw(rng, tokens, devices, counts, order_buffer);
  else
    TRY(token_map_order(&options->map, options->side, options->side, devices, counts, order_buffer));
  return layout_build(layout, tokens, devices, counts, order_buffer, class_token, -1);
}

Status device_map_place(TokenLayout *layout, const ModelConfig *config, int64_t tokens, int devices, int32_t *order_buffer) {
  int64_t counts[DEVICE_MAP_MOST], side = config_is_decoder(config) ? 0 : config->image / config->patch;
  if (devices < 1 || devices > DEVICE_MAP_MOST || devices > tokens)
    return status_set(STATUS_BAD_VALUE, "%d devices for %lld tokens: every device needs one, and at most %d are accepted", devices,
                      (long long)tokens, DEVICE_MAP_MOST);
  layout_even_counts(tokens, devices, counts);
  if (side > 0) TRY(token_map_order(&config->astra.layout, side, side, devices, counts, order_buffer));
  return layout_build(layout, tokens, devices, counts, side > 0 ? order_buffer : NULL, config->astra.class_token, -1);
}
