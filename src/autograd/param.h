/* Parameters: one table drives each one's name, shape, initialisation, weight decay and checkpoint entry. */
#ifndef AUTOGRAD_PARAM_H
#define AUTOGRAD_PARAM_H
#include "autograd/tensor.h"
#include "base/rng.h"
#include "base/status.h"
#include <stddef.h>

typedef enum ParamInit { PARAM_ZEROS, PARAM_ONES, PARAM_NORMAL /* truncated at two deviations, 0.02 */ } ParamInit;

enum { PARAM_NAME = 96 };

typedef struct Param {
  char name[PARAM_NAME]; /* as in a Hugging Face checkpoint */
  Tensor tensor;         /* value and grad persist over steps */
  PackedMatrix packed;   /* what tensor.packed points to; words NULL: nothing */
  ParamInit init;
  bool decay;      /* weight decay applies: matrices, not biases, norms, embeddings */
  bool optional;   /* may be absent from a checkpoint (a classifier head) */
  bool fitted;     /* likewise; its values then come with the codebooks (Model's rotations) */
  bool narrow;     /* the operations that use it take 16-bit numbers (Tensor.narrow) */
  bool looked_up;  /* row by row, and in no product, which alone would want it in bf16: a table of tokens that is not the head */
  bool transposed; /* a matrix stored [in, out] */
  bool hidden;     /* a matrix of a block, from rows to rows, not from tokens or to classes */
  bool frozen;     /* does not learn: no gradient, and no place in the blocks; it has its numbers from param_allocate_frozen or a mapping */
} Param;

/* A growing list with stable addresses is not promised: describe all parameters first, then allocate. */
typedef struct ParamSet {
  Param *list;
  size_t count, capacity;
  real *values;  /* one block for all values that learn, in the list's order, each parameter on its own cache line; NULL when mapped */
  real *grads;   /* laid out like values; NULL for inference */
  int64_t total; /* numbers in a block, padding included */
  real *frozen_values; /* one block for the frozen ones, laid out in the same way; NULL when they are mapped */
  int64_t frozen_total;
  bool reserved;     /* by param_reserve: the blocks are only address space */
  uint16_t *shadows; /* one block for Tensor.shadow; NULL: there are none */
  int64_t shadow_total;
  int64_t packed_bytes; /* of the packed matrices, each in memory of its own */
} ParamSet;

/* Appends a description and returns its index (or -1 when out of memory, or when a dimension, their product or the name is out of range).
 */
int param_add(ParamSet *set, ParamInit init, bool decay, int dims, const int64_t *shape, const char *name_format, ...)
    __attribute__((format(printf, 6, 7)));

Status param_allocate(ParamSet *set, bool with_grads); /* zeroed values (and gradients); sets needs_grad = with_grads */
Status param_allocate_frozen(ParamSet *set);           /* zeroed values of the frozen ones, which param_allocate leaves without */
/* Both of these, but only as address space, of any size: for planning (tape_plan), which reads no number. An access ends the program. */
Status param_reserve(ParamSet *set, bool with_grads);
void param_initialise(ParamSet *set, Rng *rng);    /* as each entry's init says, where there is memory; the same for any thread count */
void param_initialise_one(Param *param, Rng *rng); /* a single entry: a new head */
/* Gives every matrix that operations multiply with (but adapters), and has its numbers in full or in fp16, a shadow (Tensor.shadow), with
 * the set reserved or not; once, after its numbers have memory. */
Status param_make_shadows(ParamSet *set);
/* Recomputes the shadows of the parameters that learn (or, with `frozen`, of all) from the values, over the pool. Does nothing where there
 * are none. */
void param_refresh_shadows(ParamSet *set, bool frozen);
/* Packs a matrix's values, in full or in bf16, for faster products (Tensor.packed), in memory of its own: as much as the values take, or in
 * bf16 half of that. For inference, after the last change of the values; with bf16 before param_make_shadows, which then leaves the matrix
 * out. A matrix in int8 (Tensor.lowbit) is packed as it is, one in fp16 in bf16 alone. A parameter that is no matrix, has none of these, or
 * would not be faster is left as it is. */
Status param_pack(ParamSet *set, size_t index, bool bf16);
void param_zero_grads(ParamSet *set); /* zeroes the block and marks the gradients filled */
/* In place of zeroing, which writes and reads all gradients once more: param_empty_grads marks them empty, so that the first gradient of
 * each overwrites what is there, and param_fill_grads, after backward, zeroes those that got none. */
void param_empty_grads(ParamSet *set);
void param_fill_grads(ParamSet *set);
void param_trim_grads(ParamSet *set);                    /* returns a large block's memory to the system: zeros until they are written */
int64_t param_count_numbers(const ParamSet *set);        /* without padding */
int64_t param_count_trainable(const ParamSet *set);      /* of those that are not frozen */
int64_t param_outputs(const Param *param);               /* of a matrix, stored as it may be: numbers that a row is turned into */
int64_t param_inputs(const Param *param);                /* and those of the row */
int64_t param_padded(const Param *param);                /* numbers that it takes in its block */
int64_t param_offset(const ParamSet *set, size_t index); /* where it starts in its block */
const char *param_not_finite(const ParamSet *set);       /* the first that learns and holds a number that is not finite; NULL: none */
void param_release(ParamSet *set);

#endif
