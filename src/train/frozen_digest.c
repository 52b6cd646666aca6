/* Sampled FNV-1a (Fowler, Noll and Vo): see frozen_digest.h. */
#include "train/frozen_digest.h"
#include <string.h>

enum { PAGE = 4096, PAGES = 16, WHOLE = PAGE * PAGES };
static const uint64_t OFFSET = 0xcbf29ce484222325u, PRIME = 0x100000001b3u;

static uint64_t add(uint64_t hash, const void *data, size_t bytes) {
  const uint8_t *byte = data;
  for (size_t i = 0; i < bytes; i++) hash = (hash ^ byte[i]) * PRIME;
  return hash;
}

static uint64_t add_sampled(uint64_t hash, const uint8_t *data, size_t bytes) {
  if (bytes <= WHOLE) return add(hash, data, bytes);
  for (size_t page = 0; page < PAGES; page++) hash = add(hash, data + (bytes - PAGE) * page / (PAGES - 1), PAGE);
  return hash;
}

static uint64_t add_param(uint64_t hash, const Param *param) {
  const Tensor *tensor = &param->tensor;
  size_t count = (size_t)tensor_count(tensor);
  int64_t facts[2] = {tensor_count(tensor), (int64_t)tensor->narrow_kind};
  hash = add(add(hash, param->name, strlen(param->name)), facts, sizeof facts);
  if (tensor->narrow != NULL) return add_sampled(hash, (const uint8_t *)tensor->narrow, count * sizeof *tensor->narrow);
  return add_sampled(hash, (const uint8_t *)tensor->value, count * sizeof *tensor->value);
}

int64_t frozen_digest(const ParamSet *params) {
  uint64_t hash = OFFSET;
  bool any = false;
  for (size_t i = 0; i < params->count; i++) {
    if (!params->list[i].frozen) continue;
    hash = add_param(hash, &params->list[i]);
    any = true;
  }
  return any ? (int64_t)(hash >> 1) : 0;
}
