/* Shared by the operations, private to this folder. */
#ifndef AUTOGRAD_OP_COMMON_H
#define AUTOGRAD_OP_COMMON_H
#include "autograd/kernels/kernels.h"
#include "autograd/kernels/matmul.h"
#include "autograd/ops/ops.h"
#include "base/threads.h"
#include <math.h>
#include <string.h>

enum { OP_ROW_GRAIN = 16 };

/* An output whose gradient is wanted when any input's is. */
static inline bool op_wants(const Tensor *tensor) { return tensor != NULL && tensor->needs_grad; }

/* A tensor shaped like x but for its last dimension. */
static inline Tensor *op_like(Tape *tape, const Tensor *x, int64_t width) {
  int64_t shape[TENSOR_DIMS];
  memcpy(shape, x->shape, sizeof shape);
  shape[x->dims - 1] = width;
  return tape_tensor(tape, x->dims, shape);
}

/* NULL inputs mean that an earlier operation failed. The arguments end with the tape's own status check. */
#define OP_REQUIRE(...)                                                                                                                    \
  do {                                                                                                                                     \
    const void *op_inputs[] = {__VA_ARGS__};                                                                                               \
    for (size_t op_i = 0; op_i < sizeof op_inputs / sizeof *op_inputs; op_i++)                                                             \
      if (op_inputs[op_i] == NULL) {                                                                                                       \
        tape_fail(tape, STATUS_BAD_VALUE, "%s: an input is missing", __func__);                                                            \
        return NULL;                                                                                                                       \
      }                                                                                                                                    \
    if (tape_status(tape) != STATUS_OK) return NULL;                                                                                       \
  } while (0)

#define OP_CHECK(condition, ...)                                                                                                           \
  do {                                                                                                                                     \
    if (!(condition)) {                                                                                                                    \
      tape_fail(tape, STATUS_BAD_VALUE, __VA_ARGS__);                                                                                      \
      return NULL;                                                                                                                         \
    }                                                                                                                                      \
  } while (0)

#endif
