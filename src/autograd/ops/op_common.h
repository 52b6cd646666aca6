/* Shared by the operations, private to this folder. */
#ifndef AUTOGRAD_OP_COMMON_H
#define AUTOGRAD_OP_COMMON_H
#include "autograd/kernels/kernels.h"
#include "autograd/kernels/matmul.h"
#include "autograd/kernels/matmul_lowbit.h"
#include "autograd/ops/ops.h"
#include "base/threads.h"
#include <math.h>
#include <string.h>

enum { OP_ROW_GRAIN = 16 };

/* An output whose gradient is wanted when any input's is. */
static inline bool op_wants(const Tensor *tensor) { return tensor != NULL && tensor->needs_grad; }

/* A tensor shaped like x except its last dimension. */
static inline Tensor *op_like(Tape *tape, const Tensor *x, int64_t width) {
  int64_t shape[TENSOR_DIMS];
  memcpy(shape, x->shape, sizeof shape);
  shape[x->dims - 1] = width;
  return tape_tensor(tape, x->dims, shape);
}

/* The same, in bf16 while the tape is narrow. */
static inline Tensor *op_activation_like(Tape *tape, const Tensor *x, int64_t width) {
  int64_t shape[TENSOR_DIMS];
  memcpy(shape, x->shape, sizeof shape);
  shape[x->dims - 1] = width;
  return tape_activation(tape, x->dims, shape);
}

/* Numbers [x_at, x_at + count) of x to y_at of y, which is in full width or as wide as x. */
static inline void op_copy_numbers(Tensor *y, int64_t y_at, const Tensor *x, int64_t x_at, int64_t count) {
  if (y->value)
    tensor_read(x, x_at, count, y->value + y_at);
  else
    memcpy(y->narrow + y_at, x->narrow + x_at, (size_t)count * sizeof *y->narrow);
}

enum { OP_PIECE = 512 }; /* numbers that an operation widens at a time, in the first-level cache */

/* x [rows, width] in bf16: its own numbers if it is, otherwise rounded, over the pool, into scratch from the tape. While planning, only the
 * scratch is allocated. NULL: the tape has failed. */
const uint16_t *op_in_bf16(Tape *tape, Numbers x, int64_t rows, int64_t width);

/* The rectangle [rows, columns] of a weight that begins at its number `start`, in bf16: the weight's own or its shadow's numbers, otherwise
 * rounded into scratch. *stride: numbers from row to row. */
const uint16_t *op_weight_in_bf16(Tape *tape, const Tensor *weight, int64_t start, int64_t rows, int64_t columns, int64_t *stride);

/* A product with this weight runs in bf16. */
bool op_weight_is_bf16(const Tape *tape, const Tensor *weight);

/* act(z), numbers [begin, end) of arrays of either width, which may be the same; not of ACTIVATION_NONE. */
void op_activate_numbers(Activation activation, Numbers z, Numbers y, int64_t begin, int64_t end);

/* dz = dy act'(z), in place in dy. */
void op_activate_backward(Activation activation, Numbers z, Numbers dy, int64_t begin, int64_t end);

/* matmul_bf16; while planning it is only counted. */
void op_matmul_bf16(Tape *tape, bool transpose_a, bool transpose_b, int64_t m, int64_t n, int64_t k, const uint16_t *a, int64_t lda,
                    const uint16_t *b, int64_t ldb, const real *bias, bool add, Numbers c, int64_t ldc);

/* C [m, n] = A [m, k] op(B), added to C or not, where B is the weight from its number `start` on, with the weight's rows as stored, real or
 * 16-bit; one of 8 or 4 bits only as a whole and transposed. While planning it is only counted. Over the pool; takes scratch from the tape
 * when the weight is in 16 bits or fewer. */
void op_matmul_weight(Tape *tape, bool transpose_b, int64_t m, int64_t n, int64_t k, const real *a, int64_t lda, const Tensor *weight,
                      int64_t start, bool add, real *c, int64_t ldc);

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
