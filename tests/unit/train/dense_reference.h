/* One image through the emulated devices in the plainest way: row by row, in double, no tape, no tiles. The oracle of test_emulate.c. */
#ifndef TESTS_DENSE_REFERENCE_H
#define TESTS_DENSE_REFERENCE_H
#include "train/session.h"
#include "unit/param_named.h"
#include "unit/train/tiny_run.h"
#include <math.h>

enum { DENSE_ROWS = 32, DENSE_WIDTH = 192 };

typedef double DenseRow[DENSE_WIDTH];

typedef struct Dense {
  Session *session;
  const TokenLayout *layout;
  int rows, width, heads;
  int device[DENSE_ROWS];  /* of each row */
  bool shared[DENSE_ROWS]; /* what the others see of a row is its codeword; else they do not see it at all */
  DenseRow x[DENSE_ROWS];
} Dense;

/* The parameter NAME.KIND of a block, or of the whole model where block is -1. */
static inline const real *dense_param(const Dense *dense, int block, const char *name, const char *kind) {
  char full[256];
  if (block >= 0)
    snprintf(full, sizeof full, "vit.encoder.layer.%d.%s%s", block, name, kind);
  else
    snprintf(full, sizeof full, "%s%s", name, kind);
  const Param *param = param_named(model_params(dense->session->model), full);
  if (param == NULL) fail_msg("no parameter %s", full);
  return param->tensor.value;
}

/* y = W x + b */
static inline void dense_linear(const Dense *dense, int block, const char *name, int in, int out, const double *x, double *y) {
  const real *w = dense_param(dense, block, name, ".weight"), *b = dense_param(dense, block, name, ".bias");
  for (int o = 0; o < out; o++) {
    y[o] = (double)b[o];
    for (int i = 0; i < in; i++) y[o] += (double)w[o * in + i] * x[i];
  }
}

static inline void dense_norm(const Dense *dense, int block, const char *name, const double *x, double *y) {
  const real *w = dense_param(dense, block, name, ".weight"), *b = dense_param(dense, block, name, ".bias");
  double mean = 0, variance = 0;
  for (int i = 0; i < dense->width; i++) mean += x[i] / dense->width;
  for (int i = 0; i < dense->width; i++) variance += (x[i] - mean) * (x[i] - mean) / dense->width;
  for (int i = 0; i < dense->width; i++)
    y[i] = (x[i] - mean) / sqrt(variance + dense->session->config->norm_eps) * (double)w[i] + (double)b[i];
}

static inline void dense_quantise(const Dense *dense, int block, const double *x, double *q) {
  const Codebook *book = &dense->session->emulation.site[block].book;
  int d = (int)(book->width / book->groups);
  for (int g = 0; g < book->groups; g++) {
    double min = INFINITY;
    for (int k = 0; k < book->entries; k++) {
      const real *codeword = book->codewords + (g * book->entries + k) * d;
      double sum = 0;
      for (int i = 0; i < d; i++) sum += (x[g * d + i] - (double)codeword[i]) * (x[g * d + i] - (double)codeword[i]);
      if (sum >= min) continue;
      min = sum;
      for (int i = 0; i < d; i++) q[g * d + i] = (double)codeword[i];
    }
  }
}

static inline void dense_embed(Dense *dense, const float *pixels /* [3, side, side] */) {
  const ModelConfig *config = dense->session->config;
  int patch = (int)config->patch, side = (int)config->image, across = side / patch;
  const real *w = dense_param(dense, -1, "vit.embeddings.patch_embeddings.projection", ".weight");
  const real *b = dense_param(dense, -1, "vit.embeddings.patch_embeddings.projection", ".bias");
  const real *position = dense_param(dense, -1, "vit.embeddings.position_embeddings", "");
  const real *class_token = dense_param(dense, -1, "vit.embeddings.cls_token", "");
  for (int row = 0; row < dense->rows; row++) {
    int token = dense->layout->row_token[row];
    for (int o = 0; o < dense->width; o++) {
      double sum = (double)position[(token + 1) * dense->width + o] + (double)(token < 0 ? class_token[o] : b[o]);
      for (int at = 0; token >= 0 && at < 3 * patch * patch; at++) {
        int c = at / (patch * patch), y = token / across * patch + at / patch % patch, x = token % across * patch + at % patch;
        sum += (double)w[o * 3 * patch * patch + at] * (double)pixels[(c * side + y) * side + x];
      }
      dense->x[row][o] = sum;
    }
  }
}

/* One query row's head over all it may see: rows of its device in full, shared rows of other devices quantised. */
static inline void dense_attend(const Dense *dense, int row, int head, DenseRow *q, DenseRow *k, DenseRow *v, DenseRow *kq, DenseRow *vq,
                                double *out) {
  int d = dense->width / dense->heads, from = head * d;
  double weight[DENSE_ROWS], sum = 0;
  for (int i = 0; i < d; i++) out[from + i] = 0;
  for (int pass = 0; pass < 2; pass++)
    for (int other = 0; other < dense->rows; other++) {
      bool local = dense->device[other] == dense->device[row];
      if (!local && !dense->shared[other]) continue;
      const double *key = local ? k[other] : kq[other], *value = local ? v[other] : vq[other];
      if (pass == 0) {
        double score = 0;
        for (int i = from; i < from + d; i++) score += q[row][i] * key[i];
        sum += weight[other] = exp(score / sqrt(d));
      } else {
        for (int i = from; i < from + d; i++) out[i] += weight[other] / sum * value[i];
      }
    }
}

static inline void dense_block(Dense *dense, int block) {
  static DenseRow h[DENSE_ROWS], hq[DENSE_ROWS], q[DENSE_ROWS], k[DENSE_ROWS], v[DENSE_ROWS], kq[DENSE_ROWS], vq[DENSE_ROWS];
  int width = dense->width, hidden = (int)dense->session->config->mlp;
  for (int row = 0; row < dense->rows; row++) {
    dense_norm(dense, block, "layernorm_before", dense->x[row], h[row]);
    dense_quantise(dense, block, h[row], hq[row]);
    dense_linear(dense, block, "attention.attention.query", width, width, h[row], q[row]);
    dense_linear(dense, block, "attention.attention.key", width, width, h[row], k[row]);
    dense_linear(dense, block, "attention.attention.value", width, width, h[row], v[row]);
    dense_linear(dense, block, "attention.attention.key", width, width, hq[row], kq[row]);
    dense_linear(dense, block, "attention.attention.value", width, width, hq[row], vq[row]);
  }
  for (int row = 0; row < dense->rows; row++) {
    DenseRow mixed, y, normed, up;
    for (int head = 0; head < dense->heads; head++) dense_attend(dense, row, head, q, k, v, kq, vq, mixed);
    dense_linear(dense, block, "attention.output.dense", width, width, mixed, y);
    for (int i = 0; i < width; i++) dense->x[row][i] += y[i];
    dense_norm(dense, block, "layernorm_after", dense->x[row], normed);
    dense_linear(dense, block, "intermediate.dense", width, hidden, normed, up);
    for (int i = 0; i < hidden; i++) up[i] *= 0.5 * (1 + erf(up[i] / sqrt(2)));
    dense_linear(dense, block, "output.dense", hidden, width, up, y);
    for (int i = 0; i < width; i++) dense->x[row][i] += y[i];
  }
}

static inline void dense_logits(Session *session, const float *pixels, const TokenLayout *layout, double *logits /* [classes] */) {
  static Dense dense;
  dense = (Dense){.session = session,
                  .layout = layout,
                  .rows = (int)layout->rows,
                  .width = (int)session->config->width,
                  .heads = (int)session->config->heads};
  assert_true(dense.rows <= DENSE_ROWS && dense.width <= DENSE_WIDTH && session->config->mlp <= DENSE_WIDTH);
  for (int span = 0; span < layout->spans; span++)
    for (int64_t row = layout->span[span].begin; row < layout->span[span].begin + layout->span[span].count; row++) dense.device[row] = span;
  for (int row = 0; row < dense.rows; row++) dense.shared[row] = layout->row_token[row] >= 0 || layout->class_token == CLASS_SINGLE;
  dense_embed(&dense, pixels);
  for (int block = 0; block < session->config->blocks; block++) dense_block(&dense, block);
  DenseRow mean = {0}, normed;
  int replicas = 0;
  for (int row = 0; row < dense.rows; row++) replicas += layout->row_token[row] < 0;
  for (int row = 0; row < dense.rows; row++) {
    if (layout->row_token[row] >= 0) continue;
    dense_norm(&dense, -1, "vit.layernorm", dense.x[row], normed);
    for (int i = 0; i < dense.width; i++) mean[i] += normed[i] / replicas;
  }
  dense_linear(&dense, -1, "classifier", dense.width, (int)session->config->classes, mean, logits);
}

#endif
