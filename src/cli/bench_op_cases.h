/* The operations that astra-bench op times, one by one: what each is given, and what it has to compute and move at least. */
#ifndef CLI_BENCH_OP_CASES_H
#define CLI_BENCH_OP_CASES_H
#include "autograd/ops/ops.h"
#include "vq/codebook.h"
#include "vq/navq.h"

typedef struct OpSizes {
  int64_t rows, width; /* of the input */
  int64_t outputs;     /* of a matrix */
  int64_t tokens;      /* of a sample: rows / tokens samples attend to themselves */
  int64_t heads;
  int64_t entries, groups; /* of a codebook */
  int64_t vocabulary;
  bool causal;
} OpSizes;

enum { OP_INPUTS = 3, OP_WEIGHTS = 2 };

/* Everything that the operations take, made once. */
typedef struct OpBench {
  OpSizes sizes;
  Tensor input[OP_INPUTS];     /* [samples, tokens, width], with gradients */
  real *values[OP_INPUTS];     /* theirs */
  uint16_t *narrow[OP_INPUTS]; /* the same in bf16; NULL: everything is computed in float */
  Tensor weight[OP_WEIGHTS];   /* of the operation under way: matrix and bias, or scale and shift; with gradients */
  real *pool;                  /* of their values and gradients; [pool_numbers] */
  int64_t pool_numbers;
  int32_t *ids, *codes, *zeros; /* [rows] tokens and their labels; [rows, groups]; [rows] labels of the loss behind an operation */
  real *cosine, *sine, *output, *moments; /* [tokens, d/2]; [rows, width]; [2 rows, width] */
  Codebook book;
  Navq navq;
  void *scratch;
  Tape *tape;
} OpBench;

/* The least that one call computes and moves, each array once: floating-point operations of its products, bytes of memory. */
typedef struct OpWork {
  double flops, bytes;
} OpWork;

typedef struct OpCase {
  const char *name;
  Tensor *(*apply)(OpBench *bench); /* on the tape; NULL for what is none of its operations: */
  void (*run)(OpBench *bench);
  bool is_loss; /* apply gives the loss itself */
  bool narrow;  /* in a model that computes in bf16 its inputs are in bf16, and what it gives */
  void (*work)(const OpSizes *sizes, OpWork *forward, OpWork *backward);
} OpCase;

extern const OpCase OP_CASES[]; /* ends with a NULL name */

/* Random inputs for all cases. BAD_USAGE where sizes do not go together. bench_op_close accepts what a failure leaves. */
Status bench_op_open(OpBench *bench, const OpSizes *sizes, uint64_t seed, Tape *tape, bool bf16);
void bench_op_close(OpBench *bench);

/* Inputs of `which` as they are in a model of this precision, without gradients. */
void bench_op_prepare(OpBench *bench, const OpCase *which);

/* One loss number behind `output`, so that a gradient flows into it. */
Tensor *bench_op_loss(OpBench *bench, Tensor *output);

#endif
