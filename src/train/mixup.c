/* Mixup and CutMix: see mixup.h. */
#include "train/mixup.h"
#include "autograd/kernels/kernels.h"
#include <math.h>
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

/* The box [left, right) x [top, bottom) of each channel comes from the other picture. */
typedef struct Paste {
  const real *from;
  real *to;
  int64_t count, channels, height, width;
  int64_t left, right, top, bottom;
} Paste;

static void paste_body(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  const Paste *paste = context;
  int64_t plane = paste->height * paste->width, size = paste->channels * plane;
  size_t bytes = (size_t)(paste->right - paste->left) * sizeof *paste->to;
  for (int64_t i = begin; i < end; i++) {
    real *to = paste->to + i * size;
    const real *other = paste->from + (paste->count - 1 - i) * size;
    memcpy(to, paste->from + i * size, (size_t)size * sizeof *to);
    for (int64_t row = 0; row < paste->channels * paste->height; row++) {
      int64_t at = row * paste->width + paste->left, y = row % paste->height;
      if (y >= paste->top && y < paste->bottom) memcpy(to + at, other + at, bytes);
    }
  }
}

static int64_t within(int64_t value, int64_t most) { return value < 0 ? 0 : value > most ? most : value; }

/* A box of (1 - share) of the picture about a uniform centre, cut off at the borders; returns the share that is left of the own picture. */
static double draw_box(Rng *rng, double share, Paste *paste) {
  double side = sqrt(1 - share);
  int64_t w = (int64_t)(side * (double)paste->width), h = (int64_t)(side * (double)paste->height);
  int64_t x = (int64_t)rng_below(rng, (uint64_t)paste->width) - w / 2, y = (int64_t)rng_below(rng, (uint64_t)paste->height) - h / 2;
  paste->left = within(x, paste->width), paste->right = within(x + w, paste->width);
  paste->top = within(y, paste->height), paste->bottom = within(y + h, paste->height);
  double pasted = (double)((paste->right - paste->left) * (paste->bottom - paste->top));
  return 1 - pasted / (double)(paste->width * paste->height);
}

static double draw_share(Rng *rng, double alpha) {
  double a = rng_gamma(rng, alpha), b = rng_gamma(rng, alpha);
  return a + b > 0 ? a / (a + b) : 0.5;
}

Tensor *mixup_apply(Session *session, Tape *tape, const TaskBatch *batch, const Tensor *pixels, CrossEntropy *target) {
  const TrainOptions *options = &session->options;
  Rng *rng = &session->mixup_rng;
  bool paste = options->cutmix > 0 && (options->mixup == 0 || rng_next(rng) >> 63);
  double share = draw_share(rng, paste ? options->cutmix : options->mixup);
  if (pixels == NULL) return NULL;
  Tensor *mixed = tape_tensor(tape, pixels->dims, pixels->shape);
  int32_t *other = tape_alloc(tape, (size_t)batch->count * sizeof *other);
  real *mix = tape_alloc(tape, (size_t)batch->count * sizeof *mix);
  if (mixed == NULL || other == NULL || mix == NULL) return NULL;
  if (paste) {
    Paste job = {pixels->value, mixed->value, batch->count, pixels->shape[1], pixels->shape[2], pixels->shape[3], 0, 0, 0, 0};
    share = draw_box(rng, share, &job);
    tape_for(tape, batch->count, 1, paste_body, &job);
  } else {
    Blend job = {pixels->value, mixed->value, (real)share, batch->count, tensor_count(pixels) / batch->count};
    tape_for(tape, batch->count, 1, blend_body, &job);
  }
  for (int i = 0; i < batch->count; i++) {
    other[i] = batch->labels[batch->count - 1 - i];
    mix[i] = (real)share;
  }
  target->other = other;
  target->mix = mix;
  return mixed;
}
