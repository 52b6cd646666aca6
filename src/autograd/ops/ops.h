/* The operations. Each takes tensors on (or constants for) one tape and returns its output, or NULL with the tape failed.
 * Leading dimensions are rows: a [B, T, D] input is B*T rows of D numbers, and the output keeps the leading dimensions. */
#ifndef AUTOGRAD_OPS_H
#define AUTOGRAD_OPS_H
#include "autograd/ops/attention.h"
#include "autograd/tape.h"
#include <stdint.h>

typedef enum Activation { ACTIVATION_NONE, ACTIVATION_GELU, ACTIVATION_GELU_TANH } Activation;

/* act(x W^T + b) + residual: x [..., I], weight [O, I], bias [O] or NULL, residual [..., O] or NULL -> [..., O]. */
Tensor *op_linear(Tape *tape, Tensor *x, Tensor *weight, Tensor *bias, Activation activation, Tensor *residual);

/* (x - mean) / sqrt(var + eps) weight + bias over the last dimension; weight, bias [D]. */
Tensor *op_layer_norm(Tape *tape, Tensor *x, Tensor *weight, Tensor *bias, double eps);

/* x / sqrt(mean(x^2) + eps) weight over the last dimension. */
Tensor *op_rms_norm(Tape *tape, Tensor *x, Tensor *weight, double eps);

/* Rows of a table: table [V, D], ids [count] -> [count, D]. ids outlive the step; an id outside [0, V) fails the tape. */
Tensor *op_embedding(Tape *tape, Tensor *table, const int32_t *ids, int64_t count);

/* The input of a vision transformer: pixels [B, C, H, W] (constant), weight [D, C, P, P], bias [D], position [1, 1 + n, D], class_token
 * [1, 1, D] -> [B, S, D]. Row r of each sample is patch row_token[r] (raster order), projected, + bias + position[1 + patch], or for -1 a
 * replica of the class token + position[0]. row_token outlives the step. */
Tensor *op_patch_embed(Tape *tape, Tensor *pixels, Tensor *weight, Tensor *bias, Tensor *position, Tensor *class_token, int64_t patch,
                       const int32_t *row_token, int64_t rows);

/* a + b, same shape. */
Tensor *op_add(Tape *tape, Tensor *a, Tensor *b);

/* Zeroes each number with probability p and scales the rest by 1 / (1 - p); the mask is a function of (seed, place) alone.
 * p == 0, or a tape that does not record: x itself. */
Tensor *op_dropout(Tape *tape, Tensor *x, double p, uint64_t seed);

/* Rows of each sample: x [B, S, D], rows [count] -> [B, count, D]. A row may be named once only. rows outlive the step. */
Tensor *op_gather_rows(Tape *tape, Tensor *x, const int32_t *rows, int64_t count);

/* Mean over replicas: x [B, N, D] -> [B, D]. */
Tensor *op_mean_replicas(Tape *tape, Tensor *x);

/* Mean over rows of -sum_v q_v log softmax(logits)_v: logits [M, V], labels [M] -> [1].
 * q = (1 - smoothing) onehot(label) + smoothing / V; with `other` and `mix` (mixup), onehot is mix[m] onehot(label) +
 * (1 - mix[m]) onehot(other); both may be NULL. A label of -1 leaves its row out of the mean. *correct (may be NULL) counts rows whose
 * largest logit is `label`. Labels outside [-1, V) fail the tape. */
typedef struct CrossEntropy {
  const int32_t *labels, *other; /* [M] */
  const real *mix;               /* [M] */
  double smoothing;
  int64_t *correct;
} CrossEntropy;
Tensor *op_cross_entropy(Tape *tape, Tensor *logits, const CrossEntropy *options);

/* a + factor b for tensors of one number. */
Tensor *op_add_scaled(Tape *tape, Tensor *a, Tensor *b, double factor);

/* Vector quantisation with assignments already made (nearest codewords are found in src/vq):
 *   forward:  out = q + noise, q = rows of the codebook named by codes; commitment += mean over rows of |x - q|^2 (without the noise)
 *   backward: QUANTISE_STRAIGHT d x += d out; QUANTISE_ROTATION d x += |q|/|x| R^T d out per group, where R rotates x/|x| to q/|q|
 *             (Fifty et al., 2024); QUANTISE_NONE nothing. Commitment: d x += d commitment 2 (x - q) / rows. Never to the codebook or
 * noise. x [..., D], codebook [G, K, D/G] as plain numbers, codes [rows, G], noise [rows, D] or NULL (already scaled); all outlive the
 * step. *commitment receives a tensor of one number. A code outside [0, K) fails the tape. */
typedef enum QuantiseGradient { QUANTISE_STRAIGHT, QUANTISE_ROTATION, QUANTISE_NONE } QuantiseGradient;
typedef struct Quantise {
  const real *codebook;
  int64_t groups, entries;
  const int32_t *codes;
  const real *noise;
  QuantiseGradient gradient;
  const real *frozen_x; /* tests only, [rows, D]: out = surrogate(x) whose true derivative is the one above, with the stopped
                         * gradients' constants taken at frozen_x; NULL otherwise */
} Quantise;
Tensor *op_quantise(Tape *tape, Tensor *x, const Quantise *options, Tensor **commitment);

#endif
