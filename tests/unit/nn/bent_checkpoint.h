/* Checkpoints of a test's own making: a model's parameters as items that it may bend before they are written; and what a refusal says. */
#ifndef TESTS_NN_BENT_CHECKPOINT_H
#define TESTS_NN_BENT_CHECKPOINT_H
#include "nn/model.h"
#include "nn/safetensors.h"
#include "unit/nn/scratch.h"
#include <cmocka.h>

enum { BENT_ITEMS = 64 };

static inline void assert_message(const char *words) {
  if (!strstr(status_message(), words)) fail_msg("'%s' should mention '%s'", status_message(), words);
}

typedef struct Bent {
  SafeItem items[BENT_ITEMS];
  char names[BENT_ITEMS][PARAM_NAME];
  size_t count;
} Bent;

/* Names that begin with the prefix lose it. */
static inline void items_of(Bent *bent, Model *model, const char *prefix_to_drop) {
  ParamSet *set = model_params(model);
  assert_true(set->count <= BENT_ITEMS);
  bent->count = set->count;
  size_t drop = strlen(prefix_to_drop);
  for (size_t i = 0; i < set->count; i++) {
    const Param *param = &set->list[i];
    bool drops = strncmp(param->name, prefix_to_drop, drop) == 0;
    snprintf(bent->names[i], PARAM_NAME, "%s", param->name + (drops ? drop : 0));
    bent->items[i] = (SafeItem){
        .name = bent->names[i], .dtype = SAFE_REAL, .source = SAFE_REAL, .dims = param->tensor.dims, .data = param->tensor.value};
    memcpy(bent->items[i].shape, param->tensor.shape, sizeof param->tensor.shape);
  }
}

static inline const char *save_bent(const Bent *bent, const char *name) {
  const char *path = scratch_path(name);
  assert_int_equal(safetensors_save(path, bent->items, bent->count, NULL), STATUS_OK);
  return path;
}

#endif
