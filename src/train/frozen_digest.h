/* Which weights adapters stand beside: a number that a training state keeps, so that a run does not go on beside others. */
#ifndef TRAIN_FROZEN_DIGEST_H
#define TRAIN_FROZEN_DIGEST_H
#include "autograd/param.h"

/* Over names, sizes and numbers of the parameters that do not learn, which have values, as they lie in memory (the same weights in 16 bits
 * give another one). Of a tensor above 64 KiB 16 pages, evenly spread from the first to the last, stand for all of it: of 16 GB some 20 MB
 * are read, and a change that training or merging adapters makes is in every page. No defence against forgery. 0 where everything learns.
 */
int64_t frozen_digest(const ParamSet *params);

#endif
