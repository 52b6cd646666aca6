/* A tensor: a shape and two arrays, value and gradient. A plain open struct. Row-major, contiguous. */
#ifndef AUTOGRAD_TENSOR_H
#define AUTOGRAD_TENSOR_H
#include "autograd/kernels/matmul.h"
#include "autograd/kernels/numbers.h"
#include "autograd/lowbit.h"
#include "autograd/narrow.h"
#include "autograd/real.h"
#include <stdbool.h>
#include <stdint.h>

enum { TENSOR_DIMS = 4 };

typedef struct Tensor {
  real *value;
  real *grad; /* NULL until a gradient arrives; allocated by tape_grad */
  int dims;
  int64_t shape[TENSOR_DIMS];
  bool needs_grad;  /* a gradient must flow into it */
  bool grad_filled; /* grad holds a sum already: add to it; otherwise overwrite */
  /* A frozen parameter may be kept in 16 bits: value is NULL then, and no gradient flows into it (but one flows through it). Only
   * products with weights (op_linear and its kin, op_mlp, DecodeProjection) and the tables of op_token_embed and op_vocab_loss accept such
   * a tensor, and one in 8 or 4 bits. */
  uint16_t *narrow;
  NarrowKind narrow_kind;
  /* Or in 8 or 4 bits, for inference: value and narrow are NULL then, and the shape stays that of the float weight ([in, out] where that is
   * transposed) while the numbers are [out, in]. Borrowed. The same operations accept it, but no gradient flows through it. */
  const LowbitMatrix *lowbit;
  /* An activation may be kept in bf16 (tape_narrow): value is NULL, narrow holds it, and its gradient is in bf16, too. */
  uint16_t *narrow_grad;
  /* A copy of a parameter's values, in full or in fp16, in bf16, for products in bf16; NULL: those round the values each time. Code that
   * changes the values updates it (param_refresh_shadows). */
  uint16_t *shadow;
  /* A copy of a parameter's values packed for products, while they do not change (param_pack). Borrowed; NULL: not packed. */
  const PackedMatrix *packed;
} Tensor;

int64_t tensor_count(const Tensor *tensor); /* numbers in all */
int64_t tensor_rows(const Tensor *tensor);  /* product of all dimensions except the last */
int64_t tensor_width(const Tensor *tensor); /* the last dimension */

Numbers tensor_numbers(const Tensor *tensor);                                   /* its values, of an activation */
void tensor_read(const Tensor *tensor, int64_t first, int64_t count, real *to); /* values [first, first + count) of one, in full */

/* `count` numbers into 16 bits of a kind, on all threads. False: one is too large for NARROW_F16. */
bool tensor_narrow(NarrowKind kind, int64_t count, const real *from, uint16_t *to);

/* No value is an infinity or a NaN. Reads each once: cheap beside a product of the same rows. */
bool tensor_is_finite(const Tensor *tensor);
bool tensor_all_finite(const real *value, int64_t count); /* likewise, of value [count] that are no tensor */

#endif
