/* What is drawn: see augment_policy.h. Leaves out: the operations themselves (image_operations.c), crops and mirroring (augment.c). */
#include "data/augment_policy.h"
#include "data/image_operations.h"
#include <stdio.h>
#include <string.h>

enum { USUAL_OPERATIONS = 2, USUAL_LEVEL = 9 };

/* Strength of level l: low + (high - low) l / 30, its sign drawn where `sign` says so, added to `about`. Of translations RandAugment's is a
 * part of the picture's side, TrivialAugment's a number of pixels whatever the picture's size. */
typedef struct Range {
  double low, high;
} Range;

typedef struct OperationRanges {
  Range trivial, rand;
  bool sign;
  double about;
} OperationRanges;

static const OperationRanges ranges[OPERATIONS] = {
    [OPERATION_SHEAR_X] = {{0, 0.99}, {0, 0.3}, true, 0},
    [OPERATION_SHEAR_Y] = {{0, 0.99}, {0, 0.3}, true, 0},
    [OPERATION_TRANSLATE_X] = {{0, 32}, {0, 150.0 / 331}, true, 0},
    [OPERATION_TRANSLATE_Y] = {{0, 32}, {0, 150.0 / 331}, true, 0},
    [OPERATION_ROTATE] = {{0, 135}, {0, 30}, true, 0},
    [OPERATION_BRIGHTNESS] = {{0, 0.99}, {0, 0.9}, true, 1},
    [OPERATION_COLOUR] = {{0, 0.99}, {0, 0.9}, true, 1},
    [OPERATION_CONTRAST] = {{0, 0.99}, {0, 0.9}, true, 1},
    [OPERATION_SHARPNESS] = {{0, 0.99}, {0, 0.9}, true, 1},
    [OPERATION_POSTERIZE] = {{8, 2}, {8, 4}, false, 0},
    [OPERATION_SOLARIZE] = {{255, 0}, {255, 0}, false, 0},
};

static Status refuse(const char *text) {
  return status_set(STATUS_BAD_VALUE,
                    "\"%s\": none, crop, trivial, randaugment or randaugment:N,M is accepted, with N from 1 to %d operations of strength M "
                    "from 0 to %d",
                    text, AUGMENT_OPERATIONS_MOST, AUGMENT_LEVELS);
}

Status augment_policy_parse(AugmentPolicy *policy, const char *text) {
  static const char *const names[] = {"none", "crop", "trivial", "randaugment"};
  size_t length = strcspn(text, ":");
  *policy = (AugmentPolicy){AUGMENT_NONE, 0, 0};
  int kind = 0, used = 0;
  while (kind < 4 && (strlen(names[kind]) != length || memcmp(names[kind], text, length) != 0)) kind++;
  if (kind == 4 || (text[length] == ':' && kind != AUGMENT_RANDAUGMENT)) return refuse(text);
  policy->kind = (AugmentKind)kind;
  if (kind != AUGMENT_RANDAUGMENT) return STATUS_OK;
  policy->operations = USUAL_OPERATIONS;
  policy->level = USUAL_LEVEL;
  if (text[length] == '\0') return STATUS_OK;
  bool digits = text[length + 1] >= '0' && text[length + 1] <= '9';
  if (!digits || sscanf(text + length, ":%4d,%4d%n", &policy->operations, &policy->level, &used) != 2 ||
      text[length + (size_t)used] != '\0' || policy->operations < 1 || policy->operations > AUGMENT_OPERATIONS_MOST || policy->level < 0 ||
      policy->level > AUGMENT_LEVELS)
    return refuse(text);
  return STATUS_OK;
}

static double strength_of(const AugmentPolicy *policy, Rng *rng, ImageOperation operation, const Image *image) {
  const OperationRanges *row = &ranges[operation];
  bool trivial = policy->kind == AUGMENT_TRIVIAL;
  int level = trivial ? (int)rng_below(rng, AUGMENT_LEVELS + 1) : policy->level;
  Range range = trivial ? row->trivial : row->rand;
  double strength = range.low + (range.high - range.low) * level / AUGMENT_LEVELS;
  if (!trivial && operation == OPERATION_TRANSLATE_X) strength *= image->width;
  if (!trivial && operation == OPERATION_TRANSLATE_Y) strength *= image->height;
  if (row->sign && rng_next(rng) >> 63) strength = -strength;
  return row->about + strength;
}

Status augment_policy_apply(const AugmentPolicy *policy, Rng *rng, Image *image, Image *spare) {
  int count = policy->kind == AUGMENT_TRIVIAL ? 1 : policy->kind == AUGMENT_RANDAUGMENT ? policy->operations : 0;
  for (int i = 0; i < count; i++) {
    ImageOperation operation = (ImageOperation)rng_below(rng, OPERATIONS);
    double strength = strength_of(policy, rng, operation, image);
    TRY(image_operation_apply(operation, strength, image, spare));
  }
  return STATUS_OK;
}
