/* Builds the rows of a process from a token-to-device map. Leaves out who draws the map and who exchanges the shared rows.
 * Invariant: the shared sequence and device_shared are the same whatever `self` is, so codes can travel without token numbers. */
#include "nn/layout.h"
#include "autograd/ops/attention.h"
#include "base/rng.h"
#include "base/share.h"
#include "base/status.h"
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Order of tokens ---- */

/* Each kind writes the tokens of a device to its part of `order`; those that do not come in reading order are sorted there afterwards. */

enum { STREAM_RANDOM_MAP = 16 };
static const uint64_t MAX_SEED = UINT64_C(9000000000000000); /* as of --seed: exact in any JSON reader */

/* ---- names */

const char *const token_map_names = "raster, strided, checkerboard or random:SEED";

static const char *const kinds[] = {"raster", "strided", "checkerboard"};
static const char random_prefix[] = "random:";

bool token_map_parse(const char *name, TokenMap *map) {
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
    if (strcmp(name, kinds[i]) == 0) return *map = (TokenMap){(TokenMapKind)i, 0}, true;
  const size_t prefix = strlen(random_prefix);
  if (strncmp(name, random_prefix, prefix) != 0 || name[prefix] < '0' || name[prefix] > '9') return false;
  char *end;
  errno = 0;
  unsigned long long seed = strtoull(name + prefix, &end, 10);
  if (errno || *end || seed > MAX_SEED) return false;
  *map = (TokenMap){TOKEN_MAP_RANDOM, seed};
  return true;
}

void token_map_name(const TokenMap *map, char name[TOKEN_MAP_NAME]) {
  if (map->kind == TOKEN_MAP_RANDOM)
    snprintf(name, TOKEN_MAP_NAME, "%s%" PRIu64, random_prefix, map->seed);
  else
    snprintf(name, TOKEN_MAP_NAME, "%s", kinds[map->kind]);
}

/* ---- in reading order within each device */

static void sift_down(int32_t *list, int64_t root, int64_t count) {
  for (int64_t child; (child = 2 * root + 1) < count; root = child) {
    if (child + 1 < count && list[child + 1] > list[child]) child++;
    if (list[root] >= list[child]) return;
    int32_t swap = list[root];
    list[root] = list[child];
    list[child] = swap;
  }
}

/* Heap sort of each device's tokens: in place, as qsort of the C library allocates for lists of this length and this runs once a step. */
static void sort_devices(int devices, const int64_t *counts, int32_t *order) {
  for (int d = 0; d < devices; order += counts[d++]) {
    for (int64_t root = counts[d] / 2; root-- > 0;) sift_down(order, root, counts[d]);
    for (int64_t last = counts[d]; last-- > 1;) {
      int32_t swap = order[0];
      order[0] = order[last];
      order[last] = swap;
      sift_down(order, 0, last);
    }
  }
}

void token_map_draw(Rng *rng, int64_t tokens, int devices, const int64_t *counts, int32_t *order) {
  for (int64_t i = 0; i < tokens; i++) order[i] = (int32_t)i;
  rng_shuffle(rng, order, tokens);
  sort_devices(devices, counts, order);
}

/* ---- kinds */

/* Device d wants its tokens in the middles of equal parts of the sequence, its j-th at (2 j + 1) / (2 counts[d]); the next token goes to
 * the device whose next place comes first, among equals to the lowest. A place is below 1 exactly as long as the device's count is not
 * reached, so every device ends with its count. With even counts this is token mod N. O(T N). */
static void deal(int64_t tokens, int devices, const int64_t *counts, int32_t *order) {
  int64_t begin[TOKEN_MAP_DEVICES], taken[TOKEN_MAP_DEVICES] = {0}, sum = 0;
  for (int d = 0; d < devices; d++) begin[d] = sum, sum += counts[d];
  for (int64_t i = 0; i < tokens; i++) {
    int next = 0;
    for (int d = 1; d < devices; d++)
      if ((2 * taken[d] + 1) * counts[next] < (2 * taken[next] + 1) * counts[d]) next = d;
    order[begin[next] + taken[next]++] = (int32_t)i;
  }
}

/* Rank -> position in Bayer's matrix: bit pairs from the top of the rank are those of the position from the bottom. The upper bit of a pair
 * is x ^ y, which alone makes a checkerboard; the lower one is y. */
static void disperse(int64_t height, int64_t width, int32_t *order) {
  int bits = 0;
  while ((INT64_C(1) << bits) < height || (INT64_C(1) << bits) < width) bits++;
  int64_t place = 0;
  for (uint64_t rank = 0; rank < UINT64_C(1) << 2 * bits; rank++) {
    int64_t x = 0, y = 0;
    for (int b = 0; b < bits; b++) {
      const int64_t pair = (int64_t)(rank >> 2 * (bits - 1 - b)) & 3, low = pair & 1, odd = pair >> 1;
      y |= low << b;
      x |= (odd ^ low) << b;
    }
    if (y < height && x < width) order[place++] = (int32_t)(y * width + x);
  }
}

static Status check(int64_t height, int64_t width, int devices, const int64_t *counts) {
  const int64_t max = INT64_C(1) << 15; /* of a side */
  if (height < 1 || width < 1 || height > max || width > max)
    return status_set(STATUS_BAD_VALUE, "a grid of %lld x %lld tokens: sides of 1 to %lld are accepted", (long long)height,
                      (long long)width, (long long)max);
  if (devices < 1 || devices > TOKEN_MAP_DEVICES)
    return status_set(STATUS_BAD_VALUE, "%d devices: 1 to %d are accepted", devices, TOKEN_MAP_DEVICES);
  int64_t left = height * width;
  for (int d = 0; d < devices; d++) {
    if (counts[d] < 1 || counts[d] > left)
      return status_set(STATUS_BAD_VALUE, "device %d is given %lld tokens, and %lld of %lld are left", d, (long long)counts[d],
                        (long long)left, (long long)(height * width));
    left -= counts[d];
  }
  if (left == 0) return STATUS_OK;
  return status_set(STATUS_BAD_VALUE, "%lld of %lld tokens are on no device", (long long)left, (long long)(height * width));
}

Status token_map_order(const TokenMap *map, int64_t height, int64_t width, int devices, const int64_t *counts, int32_t *order) {
  Rng rng;
  TRY(check(height, width, devices, counts));
  int64_t tokens = height * width;
  switch (map->kind) {
  case TOKEN_MAP_RASTER:
    for (int64_t i = 0; i < tokens; i++) order[i] = (int32_t)i;
    break;
  case TOKEN_MAP_STRIDED:
    deal(tokens, devices, counts, order);
    break;
  case TOKEN_MAP_CHECKERBOARD:
    disperse(height, width, order);
    sort_devices(devices, counts, order);
    break;
  case TOKEN_MAP_RANDOM:
    rng_init(&rng, map->seed, STREAM_RANDOM_MAP);
    token_map_draw(&rng, tokens, devices, counts, order);
    break;
  }
  return STATUS_OK;
}

/* ---- Layouts ---- */

static const int64_t MAX_TOKENS = INT64_C(1) << 30; /* rows, at most two for a token, are counted in 32 bits */

/* All arrays in one block, for as many devices as tokens, so that a new N never allocates:
 *   span [T] | class_of_span [T] | class_tokens [T] | last_of_span [T] | device_shared [T + 1] |
 *   row_token [2 T] | class_row [T] | shared_row [T + 1] | remote_token [T + 1] | seen [T]
 * The widest types come first: that keeps every array aligned. */
static Status reserve(TokenLayout *layout, int64_t tokens) {
  if (tokens <= layout->capacity) return STATUS_OK;
  size_t t = (size_t)tokens, numbers = 2 * t + t + 2 * (t + 1);
  size_t bytes = t * sizeof(AttentionSpan) + (4 * t + 1) * sizeof(int64_t) + numbers * sizeof(int32_t) + t;
  void *memory = malloc(bytes);
  if (!memory) return status_set(STATUS_NO_MEMORY, "out of memory for a layout of %lld tokens", (long long)tokens);
  free(layout->memory);
  layout->memory = memory;
  layout->capacity = tokens;
  layout->span = memory;
  layout->class_of_span = (int64_t *)(layout->span + t);
  layout->class_tokens = layout->class_of_span + t;
  layout->last_of_span = layout->class_tokens + t;
  layout->device_shared = layout->last_of_span + t;
  layout->row_token = (int32_t *)(layout->device_shared + t + 1);
  layout->class_row = layout->row_token + 2 * t;
  layout->shared_row = layout->class_row + t;
  layout->remote_token = layout->shared_row + t + 1;
  return STATUS_OK;
}

static void make_empty(TokenLayout *layout) {
  layout->spans = 0;
  layout->rows = layout->class_rows = layout->shared = layout->shared_rows = layout->remote = layout->last_rows = 0;
}

static Status check_counts(int64_t tokens, int devices, const int64_t *counts, int self) {
  if (tokens < 1 || tokens > MAX_TOKENS)
    return status_set(STATUS_BAD_VALUE, "a layout of %lld tokens: between 1 and %lld are accepted", (long long)tokens,
                      (long long)MAX_TOKENS);
  if (devices < 1 || devices > tokens)
    return status_set(STATUS_BAD_VALUE,
                      "%d devices for %lld tokens: every device needs at least one token, so 1 to %lld devices are accepted", devices,
                      (long long)tokens, (long long)tokens);
  if (self < -1 || self >= devices)
    return status_set(STATUS_BAD_VALUE, "device %d of %d: accepted are 0 to %d, or -1 for all", self, devices, devices - 1);
  int64_t left = tokens;
  for (int d = 0; d < devices; d++) {
    if (counts[d] < 1 || counts[d] > tokens)
      return status_set(STATUS_BAD_VALUE, "device %d is given %lld of %lld tokens: every device needs at least one", d,
                        (long long)counts[d], (long long)tokens);
    left -= counts[d];
  }
  if (left != 0)
    return status_set(STATUS_BAD_VALUE, "the tokens of the %d devices sum to %lld, but there are %lld", devices, (long long)(tokens - left),
                      (long long)tokens);
  return STATUS_OK;
}

static Status check_order(const TokenLayout *layout, int64_t tokens, const int32_t *order) {
  if (!order) return STATUS_OK;
  uint8_t *seen = (uint8_t *)(layout->remote_token + layout->capacity + 1);
  memset(seen, 0, (size_t)tokens);
  for (int64_t i = 0; i < tokens; i++) {
    if (order[i] < 0 || order[i] >= tokens || seen[order[i]])
      return status_set(STATUS_BAD_VALUE, "the order of tokens is no permutation of 0 to %lld: place %lld holds %d", (long long)tokens - 1,
                        (long long)i, order[i]);
    seen[order[i]] = 1;
  }
  return STATUS_OK;
}

/* Appends the span of one device. `first`: the place of its first token in the order. */
static void add_device(TokenLayout *layout, int device, int64_t first, int64_t count, const int32_t *order) {
  int64_t class_rows = layout->class_rows, last_rows = layout->last_rows;
  AttentionSpan *span = &layout->span[layout->spans];
  span->begin = layout->rows;
  const bool single = layout->class_token == CLASS_SINGLE;
  if (layout->class_token == CLASS_DISTRIBUTED || (single && device == 0)) {
    if (single) layout->shared_row[layout->shared_rows++] = (int32_t)layout->rows;
    layout->class_tokens[layout->class_rows] = count;
    layout->class_row[layout->class_rows++] = (int32_t)layout->rows;
    layout->row_token[layout->rows++] = -1;
  }
  for (int64_t i = first; i < first + count; i++) {
    layout->shared_row[layout->shared_rows++] = (int32_t)layout->rows;
    int32_t token = order ? order[i] : (int32_t)i;
    if (token == layout->tokens - 1) {
      layout->last_row[layout->last_rows] = (int32_t)layout->rows;
      layout->last_token[layout->last_rows++] = token;
    }
    layout->row_token[layout->rows++] = token;
  }
  layout->last_of_span[layout->spans] = layout->last_rows - last_rows;
  layout->class_of_span[layout->spans++] = layout->class_rows - class_rows;
  span->count = layout->rows - span->begin;
  span->own = layout->device_shared[device];
  span->own_count = layout->self < 0 ? layout->device_shared[device + 1] - span->own : 0;
}

Status layout_build(TokenLayout *layout, int64_t tokens, int devices, const int64_t *counts, const int32_t *order, ClassToken class_token,
                    int self) {
  make_empty(layout);
  TRY(check_counts(tokens, devices, counts, self));
  TRY(reserve(layout, tokens));
  TRY(check_order(layout, tokens, order));
  layout->devices = devices;
  layout->self = self;
  layout->tokens = tokens;
  layout->class_token = class_token;
  int64_t first = 0, shared = 0;
  for (int d = 0; d < devices; d++) {
    layout->device_shared[d] = shared;
    shared += counts[d] + (d == 0 && class_token == CLASS_SINGLE);
  }
  layout->device_shared[devices] = layout->shared = shared;
  for (int d = 0; d < devices; first += counts[d++]) {
    const bool remote = self < 0 || d < self || (d > self && class_token != CLASS_NONE);
    if (self < 0 || self == d) add_device(layout, d, first, counts[d], order);
    if (remote && d == 0 && class_token == CLASS_SINGLE) layout->remote_token[layout->remote++] = -1;
    for (int64_t i = first; remote && i < first + counts[d]; i++) layout->remote_token[layout->remote++] = order ? order[i] : (int32_t)i;
  }
  return STATUS_OK;
}

Status layout_build_plain(TokenLayout *layout, int64_t tokens, ClassToken class_token) {
  return layout_build(layout, tokens, 1, &tokens, NULL, class_token, 0);
}

Status layout_build_chosen(TokenLayout *layout, int64_t tokens, const int32_t *chosen, int64_t count) {
  make_empty(layout);
  for (int64_t i = 0; i < count; i++)
    if (chosen[i] < 0 || chosen[i] >= tokens)
      return status_set(STATUS_BAD_VALUE, "token %d is outside [0, %lld)", (int)chosen[i], (long long)tokens);
  TRY(layout_build(layout, count, 1, &count, NULL, CLASS_DISTRIBUTED, 0));
  memcpy(layout->row_token + 1, chosen, (size_t)count * sizeof *chosen); /* row 0 is the class token */
  return STATUS_OK;
}

void layout_release(TokenLayout *layout) {
  free(layout->memory);
  memset(layout, 0, sizeof *layout);
}

/* `ahead` rows precede the tokens and belong to part 0. */
static void cut(int64_t ahead, int64_t tokens, int parts, int part, int64_t *first, int64_t *count) {
  *first = part == 0 ? 0 : ahead + share_even_begin(tokens, parts, part);
  *count = ahead + share_even_begin(tokens, parts, part + 1) - *first;
}

void layout_part_shared(const TokenLayout *layout, int device, int parts, int part, int64_t *first, int64_t *count) {
  int64_t shared = device < layout->devices ? layout->device_shared[device + 1] - layout->device_shared[device] : 0;
  int64_t ahead = shared > 0 && device == 0 && layout->class_token == CLASS_SINGLE;
  cut(ahead, shared - ahead, parts, part, first, count);
}

void layout_part(const TokenLayout *layout, int parts, int part, int64_t *first, int64_t *rows, int64_t *first_shared, int64_t *shared) {
  int64_t tokens = layout->rows - layout->class_rows;
  cut(layout->class_rows, tokens, parts, part, first, rows);
  cut(layout->shared_rows - tokens, tokens, parts, part, first_shared, shared);
}

void layout_even_counts(int64_t tokens, int devices, int64_t *counts) {
  for (int d = 0; d < devices; d++) counts[d] = share_even_count(tokens, devices, d);
}

/* sum += sign of the difference, at the device that is furthest from its quota in that direction; the lowest among equals. */
static void move_one(int devices, const double *weights, double unit, int sign, int64_t *counts) {
  int best = -1;
  double furthest = 0;
  for (int d = 0; d < devices; d++) {
    if (sign < 0 && counts[d] <= 1) continue;
    double distance = sign * (weights[d] * unit - (double)counts[d]);
    if (best < 0 || distance > furthest) {
      best = d;
      furthest = distance;
    }
  }
  counts[best] += sign;
}

Status layout_weighted_counts(int64_t tokens, int devices, const double *weights, int64_t *counts) {
  if (devices < 1 || devices > tokens)
    return status_set(STATUS_BAD_VALUE,
                      "%d devices for %lld tokens: every device needs at least one token, so 1 to %lld devices are accepted", devices,
                      (long long)tokens, (long long)tokens);
  double sum = 0;
  for (int d = 0; d < devices; d++) {
    if (!(weights[d] > 0)) return status_set(STATUS_BAD_VALUE, "weight %g of device %d: weights are positive numbers", weights[d], d);
    sum += weights[d];
  }
  double unit = (double)tokens / sum;
  if (!isfinite(sum) || !isfinite(unit))
    return status_set(STATUS_BAD_VALUE, "the weights of the devices sum to %g: too large or too small", sum);
  int64_t placed = 0;
  for (int d = 0; d < devices; d++) {
    counts[d] = (int64_t)floor(weights[d] * unit);
    if (counts[d] < 1) counts[d] = 1;
    placed += counts[d];
  }
  for (; placed < tokens; placed++) move_one(devices, weights, unit, +1, counts);
  for (; placed > tokens; placed--) move_one(devices, weights, unit, -1, counts);
  return STATUS_OK;
}

double layout_fpar(int64_t tokens, int devices, const int64_t *counts) {
  double sum = 0;
  for (int d = 0; d < devices; d++) sum += (double)counts[d] * (double)counts[d];
  return sum / ((double)tokens * (double)tokens);
}
