/* What happens to a training image: the policies of --augment, by name. */
#ifndef DATA_AUGMENT_H
#define DATA_AUGMENT_H
#include "base/rng.h"
#include "data/image.h"

/* Which random changes a training image gets, by name: none; crop: a random crop and mirroring; trivial: these and one operation of
 * TrivialAugment, wide (Mueller and Hutter, 2021: one of 14, at one of 31 strengths); randaugment:N,M: these and N operations of
 * RandAugment (Cubuk et al., 2020), each of strength M of 30. */

typedef enum AugmentKind { AUGMENT_NONE, AUGMENT_CROP, AUGMENT_TRIVIAL, AUGMENT_RANDAUGMENT } AugmentKind;

typedef struct AugmentPolicy {
  AugmentKind kind;
  int operations, level; /* N and M of RandAugment; 0 of the others */
} AugmentPolicy;

/* "none", "crop", "trivial", "randaugment" (2 operations of strength 9) or "randaugment:N,M". BAD_VALUE names what is accepted. */
Status augment_policy_parse(AugmentPolicy *policy, const char *text);

/* The policy's operations on `image`, as drawn from rng. `spare` (zeroed or used) is scratch memory of the caller's: buffers
 * are exchanged with it. Crops and mirroring are not done here. */
Status augment_policy_apply(const AugmentPolicy *policy, Rng *rng, Image *image, Image *spare);

#endif
