/* Draws how many devices there are, how many tokens each has and which, and has the layout built from that. All draws come from one
 * generator in a fixed order (N, counts, permutation), so a map follows from the generator's state alone. */
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

static void sift_down(int32_t *list, int64_t root, int64_t count) {
  for (int64_t child; (child = 2 * root + 1) < count; root = child) {
    if (child + 1 < count && list[child + 1] > list[child]) child++;
    if (list[root] >= list[child]) return;
    int32_t swap = list[root];
    list[root] = list[child];
    list[child] = swap;
  }
}

/* Heap sort: in place, as qsort of the C library allocates for lists of this length and this runs once a step. */
static void sort_ascending(int32_t *list, int64_t count) {
  for (int64_t root = count / 2; root-- > 0;) sift_down(list, root, count);
  for (int64_t last = count; last-- > 1;) {
    int32_t swap = list[0];
    list[0] = list[last];
    list[last] = swap;
    sift_down(list, 0, last);
  }
}

static void draw_order(int64_t tokens, int devices, const int64_t *counts, Rng *rng, int32_t *order) {
  for (int64_t i = 0; i < tokens; i++) order[i] = (int32_t)i;
  rng_shuffle(rng, order, tokens);
  int64_t begin = 0;
  for (int d = 0; d < devices; begin += counts[d++]) sort_ascending(order + begin, counts[d]);
}

Status device_map_draw(TokenLayout *layout, int64_t tokens, ClassToken class_token, const DeviceMapOptions *options, Rng *rng,
                       int32_t *order_buffer) {
  TRY(check_options(options, tokens));
  int64_t counts[DEVICE_MAP_MOST];
  int devices = options->devices_least + (int)rng_below(rng, (uint64_t)(options->devices_most - options->devices_least) + 1);
  TRY(draw_counts(options, tokens, devices, rng, counts));
  /* Fixed counts come from a user: unchecked they could run the sorting beyond the buffer. */
  TRY(layout_build(layout, tokens, devices, counts, NULL, class_token, -1));
  if (!options->permute || devices == 1) return STATUS_OK;
  draw_order(tokens, devices, counts, rng, order_buffer);
  return layout_build(layout, tokens, devices, counts, order_buffer, class_token, -1);
}
