/* The operations. Each takes tensors on (or constants for) one tape and returns its output, or NULL with the tape failed.
 * Leading dimensions are rows: a [B, T, D] input is B*T rows of D numbers, and the output keeps the leading dimensions. */
#ifndef AUTOGRAD_OPS_H
#define AUTOGRAD_OPS_H
#include "autograd/ops/attention.h"
#include "autograd/tape.h"
#include <stdint.h>

typedef enum Activation { ACTIVATION_NONE, ACTIVATION_GELU, ACTIVATION_GELU_TANH } Activation;

/* Which outputs of a weight matrix: [first, first + count) of them. The weight is [O, I], or transposed: [I, O] (GPT-2's Conv1D). */
typedef struct LinearPart {
  int64_t first, count;
  bool transposed;
} LinearPart;

/* act(x W^T + b) + residual with only the part's outputs of W and b: x [..., I], weight [O, I] or transposed [I, O], real or 16-bit,
 * bias [O] or NULL, residual [..., count] or NULL -> [..., count]. A residual goes with ACTIVATION_NONE only. */
Tensor *op_linear_part(Tape *tape, Tensor *x, Tensor *weight, Tensor *bias, const LinearPart *part, Activation activation,
                       Tensor *residual);

/* W x + b of a part of a weight's outputs, as an operation's argument. */
typedef struct LinearMap {
  Tensor *weight, *bias; /* as above; the bias may be NULL */
  const LinearPart *part;
} LinearMap;

/* down(act(up(x))) + residual, as two op_linear_part: the same bits. The output of the activation is not kept for backward but computed
 * again from its input. */
Tensor *op_mlp(Tape *tape, Tensor *x, const LinearMap *up, Activation activation, const LinearMap *down, Tensor *residual);

/* x W^T + b + residual with only the inputs [first_in, first_in + n) of W, n the width of x: one device's share of a sum over devices, of
 * which one has the bias and the residual. x [..., n], the others as above -> [..., count]. */
Tensor *op_linear_columns(Tape *tape, Tensor *x, Tensor *weight, Tensor *bias, const LinearPart *part, int64_t first_in, Tensor *residual);

/* The whole matrix: x [..., I], weight [O, I], bias [O] or NULL, residual [..., O] or NULL -> [..., O]. */
Tensor *op_linear(Tape *tape, Tensor *x, Tensor *weight, Tensor *bias, Activation activation, Tensor *residual);

/* (x - mean) / sqrt(var + eps) weight + bias over the last dimension; weight, bias [D]. */
Tensor *op_layer_norm(Tape *tape, Tensor *x, Tensor *weight, Tensor *bias, double eps);

/* x / sqrt(mean(x^2) + eps) weight over the last dimension. */
Tensor *op_rms_norm(Tape *tape, Tensor *x, Tensor *weight, double eps);

/* The input of a decoder: row s of sample b is table[ids[b S + s]] + position[positions[s]]. table [V, D], real or 16-bit; ids [B S];
 * position [P, D] with positions [S], or both NULL -> [B, S, D]. ids and positions outlive the step; one outside of its table fails the
 * tape. Gradients of rows that are named several times are added in the order of the rows. */
Tensor *op_token_embed(Tape *tape, Tensor *table, Tensor *position, const int32_t *ids, const int32_t *positions, int64_t batch,
                       int64_t rows);

/* The input of a vision transformer: pixels [B, C, H, W] (constant), weight [D, C, P, P], bias [D], position [1, 1 + n, D], class_token
 * [1, 1, D] -> [B, S, D]. Row r of each sample is patch row_token[r] (raster order), projected, + bias + position[1 + patch], or for -1 a
 * replica of the class token + position[0]. row_token outlives the step. */
Tensor *op_patch_embed(Tape *tape, Tensor *pixels, Tensor *weight, Tensor *bias, Tensor *position, Tensor *class_token, int64_t patch,
                       const int32_t *row_token, int64_t rows);

/* x in full width: x itself if it is. */
Tensor *op_widen(Tape *tape, Tensor *x);

/* a + b, same shape. */
Tensor *op_add(Tape *tape, Tensor *a, Tensor *b);

/* factor x. */
Tensor *op_scale(Tape *tape, Tensor *x, double factor);

/* silu(gate) up, silu(z) = z / (1 + exp(-z)), same shape (SwiGLU; Shazeer, 2020). */
Tensor *op_swiglu(Tape *tape, Tensor *gate, Tensor *up);

/* Rotary position embedding (Su et al., 2021) with Hugging Face's half rotation: in each head of row s of x [B, S, heads d] the pair
 * (i, i + d/2) is rotated by the angle whose cosine and sine are at [positions[s], i]. The tables are [count, d/2]; they and positions [S]
 * outlive the step; a position outside [0, count) fails the tape. */
typedef struct Rope {
  const real *cosine, *sine; /* [count, d/2] */
  int64_t count;
  int heads; /* of x */
} Rope;
Tensor *op_rope(Tape *tape, Tensor *x, const Rope *rope, const int32_t *positions);

/* Stochastic depth (Huang et al., 2016) after a residual sum: residual + scale[b] (sum - residual) for each sample b, so that the branch
 * counts scale[b] times: 0 leaves it out. residual, sum [B, ...], scale [B], which outlives the step -> [B, ...]. */
Tensor *op_drop_path(Tape *tape, Tensor *residual, Tensor *sum, const real *scale);

/* Rows of each sample: x [B, S, D], rows [count] -> [B, count, D]. A row may be named only once. rows outlive the step. */
Tensor *op_gather_rows(Tape *tape, Tensor *x, const int32_t *rows, int64_t count);
Tensor *op_gather_rows_wide(Tape *tape, Tensor *x, const int32_t *rows, int64_t count); /* in full width, whatever x is in */

/* Two tensors side by side, in full width: a [..., A], b [..., B] with the same leading dimensions -> [..., A + B]. */
Tensor *op_join(Tape *tape, Tensor *a, Tensor *b);

/* One row of each sample: x [B, S, D], rows [B], each in [0, S) -> [B, 1, D]. rows outlive the step. */
Tensor *op_select_rows(Tape *tape, Tensor *x, const int32_t *rows);

/* act(x) by itself; x itself for ACTIVATION_NONE. Directly after a linear map, op_linear applies it at less cost. */
Tensor *op_activate(Tape *tape, Tensor *x, Activation activation);

/* Mean over replicas: x [B, N, D] -> [B, D]. weights [N], which sum to 1 and outlive the step; NULL: all alike. */
Tensor *op_mean_replicas(Tape *tape, Tensor *x, const real *weights);

/* Mean over rows of -sum_v q_v log softmax(logits)_v: logits [M, V], labels [M] -> [1].
 * q = (1 - smoothing) onehot(label) + smoothing / V; with `other` and `mix` (mixup), onehot is mix[m] onehot(label) +
 * (1 - mix[m]) onehot(other); both may be NULL. With a teacher (distillation; Hinton et al., 2015, at temperature 1) q becomes
 * (1 - teaching) q + teaching teacher[m]. A label of -1 leaves its row out of the mean. *correct (may be NULL) counts rows whose
 * largest logit is `label`. Labels outside [-1, V) fail the tape. */
typedef struct CrossEntropy {
  const int32_t *labels, *other; /* [M] */
  const real *mix;               /* [M] */
  double smoothing;
  const real *teacher; /* [M, V] probabilities, which outlive the step; NULL: none */
  double teaching;     /* in [0, 1] */
  int64_t *correct;
} CrossEntropy;
Tensor *op_cross_entropy(Tape *tape, Tensor *logits, const CrossEntropy *options);

/* sum (x - t)^2 / power over all numbers: x [B, S, D] against constants, row s of sample b against row rows[s] of target [B, T, D] -> [1].
 * power: NULL for sum t^2, or another number, as of a share of a batch that is measured by the whole one. 0 where that is 0. target,
 * rows [S] and power outlive the step; a row outside [0, T) fails the tape. */
Tensor *op_row_error(Tape *tape, Tensor *x, const real *target, int64_t target_rows, const int32_t *rows, const double *power);

/* Next-token loss: the mean over counted rows of -sum_v q_v log softmax(x W^T)_v, x [..., D], table W [V, D] (the tied embedding or the
 * head), real or 16-bit -> [1]. q and labels as in op_cross_entropy, without mixup; labels [rows] outlive the step. The vocabulary product
 * runs in slices of rows: the [rows, V] logits are never all in memory, and rows that do not count cost nothing. *correct (may be NULL)
 * counts the counted rows whose largest logit is the label's, the lowest index among equals. row_loss [rows] (may be NULL) receives each
 * row's -log softmax(x W^T)_label in nats, without smoothing, 0 where it does not count: for perplexity. A teacher's rows and
 * table give its probabilities softmax(teacher table^T), slice by slice, which are mixed into q as in op_cross_entropy; no gradient
 * reaches it. */
typedef struct VocabLoss {
  const int32_t *labels; /* [rows], -1: does not count */
  double smoothing;
  int64_t *correct;
  real *row_loss;                  /* [rows] */
  Tensor *teacher, *teacher_table; /* [rows, D'], [V, D']; NULL: none */
  double teaching;
} VocabLoss;
Tensor *op_vocab_loss(Tape *tape, Tensor *x, Tensor *table, const VocabLoss *options);

/* a + factor b, same shape. */
Tensor *op_add_scaled(Tape *tape, Tensor *a, Tensor *b, double factor);

/* Vector quantisation with assignments already made (nearest codewords are found in src/vq):
 *   forward:  out = q + noise, q = rows of the codebook named by codes; commitment += mean over rows of |x - q|^2 (without the noise)
 *             (*distance, where it is not NULL, = their sum over rows, in double)
 *   backward: QUANTISE_STRAIGHT d x += d out; QUANTISE_ROTATION d x += |q|/|x| R^T d out per group, where R rotates x/|x| to q/|q|
 *             (Fifty et al., 2024); QUANTISE_NONE nothing. Commitment: d x += d commitment 2 (x - q) / rows. Never to the codebook or
 * noise. x [..., D], codebook [G, K, D/G] as plain numbers, codes [rows, G], which outlive the step. The tokens are an activation, except
 * for QUANTISE_ROTATION. *commitment receives a tensor of one number. A code outside [0, K) fails the tape. */
typedef enum QuantiseGradient { QUANTISE_STRAIGHT, QUANTISE_ROTATION, QUANTISE_NONE } QuantiseGradient;

/* The noise is drawn a few rows at a time, so that it is never in memory as a whole: rows [first, first + rows), already scaled, to `noise`
 * [rows, D]; `scratch` is as large. first is a multiple of QUANTISE_ROWS, rows at most that. Called from any thread, only during
 * op_quantise. Embed it in the struct that it draws from. */
enum { QUANTISE_ROWS = 64 };
typedef struct QuantiseNoise QuantiseNoise;
struct QuantiseNoise {
  void (*draw)(const QuantiseNoise *self, int64_t first, int64_t rows, real *noise, real *scratch);
};

typedef struct Quantise {
  const real *codebook;
  int64_t groups, entries;
  const int32_t *codes;
  const QuantiseNoise *noise; /* NULL: none */
  double *distance;
  QuantiseGradient gradient;
  const real *frozen_x; /* tests only, [rows, D]: out = surrogate(x) whose true derivative is the one above, with the stopped
                         * gradients' constants taken at frozen_x; NULL otherwise */
} Quantise;
Tensor *op_quantise(Tape *tape, Tensor *x, const Quantise *options, Tensor **commitment);

#endif
