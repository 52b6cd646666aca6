/* Sizes of a tensor, from its shape, and checks of its values. */
#include "autograd/tensor.h"
#include "base/threads.h"
#include <math.h>
#include <stdatomic.h>
#include <string.h>

int64_t tensor_count(const Tensor *tensor) { return tensor_rows(tensor) * tensor_width(tensor); }

int64_t tensor_rows(const Tensor *tensor) {
  int64_t rows = 1;
  for (int d = 0; d + 1 < tensor->dims; d++) rows *= tensor->shape[d];
  return rows;
}

int64_t tensor_width(const Tensor *tensor) { return tensor->dims > 0 ? tensor->shape[tensor->dims - 1] : 1; }

/* No early exit, so that the loop becomes vector instructions. */
bool tensor_all_finite(const real *value, int64_t count) {
  int odd = 0;
  for (int64_t i = 0; i < count; i++) odd |= !isfinite(value[i]);
  return !odd;
}

static bool all_narrow_finite(const uint16_t *value, int64_t count) {
  const uint16_t exponent = 0x7f80;
  int odd = 0;
  for (int64_t i = 0; i < count; i++) odd |= (value[i] & exponent) == exponent;
  return !odd;
}

bool tensor_is_finite(const Tensor *tensor) {
  enum { AT_ONCE = 4096 };
  int64_t count = tensor_count(tensor);
  for (int64_t i = 0; i < count; i += AT_ONCE) {
    const int64_t here = count - i < AT_ONCE ? count - i : AT_ONCE;
    if (!(tensor->value ? tensor_all_finite(tensor->value + i, here) : all_narrow_finite(tensor->narrow + i, here))) return false;
  }
  return true;
}

Numbers tensor_numbers(const Tensor *tensor) {
  return tensor->value ? (Numbers){.wide = tensor->value} : (Numbers){.narrow = tensor->narrow};
}

void tensor_read(const Tensor *tensor, int64_t first, int64_t count, real *to) {
  if (tensor->value)
    memcpy(to, tensor->value + first, (size_t)count * sizeof *to);
  else
    kernels()->widen(tensor->narrow_kind, count, tensor->narrow + first, to); /* a weight that stays in its file may be in fp16 */
}

typedef struct Narrowing {
  NarrowKind kind;
  const real *from;
  uint16_t *to;
  atomic_bool too_large;
} Narrowing;

static void narrow_range(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  Narrowing *job = context;
  if (job->kind == NARROW_BF16)
    kernels()->narrow(end - begin, job->from + begin, job->to + begin);
  else if (!kernels()->narrow_half(end - begin, job->from + begin, job->to + begin))
    job->too_large = true;
}

bool tensor_narrow(NarrowKind kind, int64_t count, const real *from, uint16_t *to) {
  Narrowing job = {.kind = kind, .from = from, .to = to};
  threads_for(count, 4096, narrow_range, &job);
  return !job.too_large;
}
