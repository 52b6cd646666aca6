/* Mixup: see mixup.h. */
#include "train/mixup.h"
#include "autograd/kernels/kernels.h"
#include <string.h>

typedef struct Blend {
  const real *from;
  real *to, share;
  int64_t count, size; /* pictures, numbers in one */
} Blend;

static void blend_body(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  const Blend *blend = context;
  for (int64_t i = begin; i < end; i++) {
    real *to = blend->to + i * blend->size;
    memset(to, 0, (size_t)blend->size * sizeof *to);
    kernels()->axpy(blend->size, blend->share, blend->from + i * blend->size, to);
    kernels()->axpy(blend->size, 1 - blend->share, blend->from + (blend->count - 1 - i) * blend->size, to);
  }
}

Tensor *mixup_apply(Session *session, Tape *tape, const TaskBatch *batch, const Tensor *pixels, CrossEntropy *target) {
  double a = rng_gamma(&session->mixup_rng, session->options.mixup), b = rng_gamma(&session->mixup_rng, session->options.mixup);
  double share = a + b > 0 ? a / (a + b) : 0.5;
  if (pixels == NULL) return NULL;
  Tensor *mixed = tape_tensor(tape, pixels->dims, pixels->shape);
  int32_t *other = tape_alloc(tape, (size_t)batch->count * sizeof *other);
  real *mix = tape_alloc(tape, (size_t)batch->count * sizeof *mix);
  if (mixed == NULL || other == NULL || mix == NULL) return NULL;
  for (int i = 0; i < batch->count; i++) {
    other[i] = batch->labels[batch->count - 1 - i];
    mix[i] = (real)share;
  }
  Blend blend = {pixels->value, mixed->value, (real)share, batch->count, tensor_count(pixels) / batch->count};
  tape_for(tape, batch->count, 1, blend_body, &blend);
  target->other = other;
  target->mix = mix;
  return mixed;
}
