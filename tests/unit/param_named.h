/* A parameter by its name in a checkpoint. */
#ifndef TEST_PARAM_NAMED_H
#define TEST_PARAM_NAMED_H
#include "autograd/param.h"
#include <string.h>

static inline Param *param_named(const ParamSet *set, const char *name) {
  for (size_t i = 0; i < set->count; i++)
    if (strcmp(set->list[i].name, name) == 0) return &set->list[i];
  return NULL;
}

#endif
