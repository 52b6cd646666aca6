/* Inside src/nn only: how adapters (model_add_adapters) belong to the weights of a checkpoint. */
#ifndef NN_ADAPTERS_H
#define NN_ADAPTERS_H
#include "nn/block.h"
#include "nn/model.h"

bool adapters_is_one(const Model *model, size_t index); /* parameter `index` is an A or a B */
bool adapters_has(const Model *model, size_t index);    /* parameter `index` is a weight with an adapter beside a part of it */

/* The adapted projections that are parts of weight `index`, one after the other: the first behind `after` (NULL: of all), or NULL. */
const Projection *adapters_next(const Model *model, size_t index, const Projection *after);

/* out [count] += alpha / rank B A at the numbers [first, first + count) of weight `index`, as it is stored. `values`: a block laid out like
 * ParamSet.values with the adapters to take, or NULL: the parameters' own. */
void adapters_fold(Model *model, const real *values, size_t index, int64_t first, int64_t count, real *out);

#endif
