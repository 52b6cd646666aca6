/* Maps of tokens to devices: see token_map.h. Each kind writes the tokens of a device to its part of `order`; those that do not come in
 * reading order are sorted there afterwards. */
#include "nn/token_map.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STREAM_RANDOM_MAP = 16 };
static const uint64_t MAX_SEED = UINT64_C(9000000000000000); /* as of --seed: exact in any JSON reader */

/* ---- names */

const char *const token_map_names = "raster, strided, checkerboard or random:SEED";

static const char *const kinds[] = {"raster", "strided", "checkerboard"};
static const char random_prefix[] = "random:";

static bool parse_random(const char *name, TokenMap *map) {
  const char *digits = name + strlen(random_prefix);
  if (strncmp(name, random_prefix, strlen(random_prefix)) != 0 || *digits < '0' || *digits > '9') return false;
  char *end;
  errno = 0;
  unsigned long long seed = strtoull(digits, &end, 10);
  if (errno || *end || seed > MAX_SEED) return false;
  *map = (TokenMap){TOKEN_MAP_RANDOM, seed};
  return true;
}

bool token_map_parse(const char *name, TokenMap *map) {
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
    if (strcmp(name, kinds[i]) == 0) return *map = (TokenMap){(TokenMapKind)i, 0}, true;
  return parse_random(name, map);
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

static void sort_devices(int devices, const int64_t *counts, int32_t *order) {
  for (int d = 0; d < devices; order += counts[d++]) sort_ascending(order, counts[d]);
}

void token_map_draw(Rng *rng, int64_t tokens, int devices, const int64_t *counts, int32_t *order) {
  for (int64_t i = 0; i < tokens; i++) order[i] = (int32_t)i;
  rng_shuffle(rng, order, tokens);
  sort_devices(devices, counts, order);
}

/* ---- kinds */

/* Device d wants its tokens in the middles of equal parts of the sequence, its j-th at (2 j + 1) / (2 counts[d]); the next token goes to
 * the device whose next place comes first, among equals to the lowest. All places are below 1 as long as a device's count is not reached,
 * and not below it then: everybody ends with its count. With even counts this is token mod N. O(T N). */
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

/* Rank -> position in Bayer's matrix: bit pairs from the top of the rank are those of the position from the bottom. Of a pair the upper bit
 * is x ^ y, which alone makes a checkerboard, the lower one y. */
static void dither_position(uint64_t rank, int bits, int64_t *x, int64_t *y) {
  *x = *y = 0;
  for (int b = 0; b < bits; b++) {
    int64_t pair = (int64_t)(rank >> 2 * (bits - 1 - b)) & 3, low = pair & 1, odd = pair >> 1;
    *y |= low << b;
    *x |= (odd ^ low) << b;
  }
}

static void disperse(int64_t height, int64_t width, int32_t *order) {
  int bits = 0;
  while ((INT64_C(1) << bits) < height || (INT64_C(1) << bits) < width) bits++;
  int64_t place = 0, x, y;
  for (uint64_t rank = 0; rank < UINT64_C(1) << 2 * bits; rank++) {
    dither_position(rank, bits, &x, &y);
    if (y < height && x < width) order[place++] = (int32_t)(y * width + x);
  }
}

static Status check(int64_t height, int64_t width, int devices, const int64_t *counts) {
  const int64_t most = INT64_C(1) << 15; /* of a side */
  if (height < 1 || width < 1 || height > most || width > most)
    return status_set(STATUS_BAD_VALUE, "a grid of %lld x %lld tokens: sides of 1 to %lld are accepted", (long long)height,
                      (long long)width, (long long)most);
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
