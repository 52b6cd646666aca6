/* One picture through the emulated devices in the plainest way: row by row, in double, no tape, no tiles. The oracle of test_emulate.c. */
#ifndef TESTS_DENSE_REFERENCE_H
#define TESTS_DENSE_REFERENCE_H
#include "train/session.h"
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

static inline const real *dense_param(const Dense *dense, const char *format, int block) {
  char name[PARAM_NAME];
  snprintf(name, sizeof name, format, block);
  const Param *param = param_find(model_params(dense->session->model), name);
  if (param == NULL) fail_msg("no parameter %s", name);
  return param->tensor.value;
}

/* y = W x + b */
static inline void dense_linear(const Dense *dense, const char *name, int block, int in, int out, const double *x, double *y) {
  char weight[PARAM_NAME], bias[PARAM_NAME];
  snprintf(weight, sizeof weight, "%s.weight", name);
  snprintf(bias, sizeof bias, "%s.bias", name);
  const real *w = dense_param(dense, weight, block), *b = dense_param(dense, bias, block);
  for (int o = 0; o < out; o++) {
    y[o] = (double)b[o];
    for (int i = 0; i < in; i++) y[o] += (double)w[o * in + i] * x[i];
  }
}

static inline void dense_norm(const Dense *dense, const char *name, int block, const double *x, double *y) {
  char weight[PARAM_NAME], bias[PARAM_NAME];
  snprintf(weight, sizeof weight, "%s.weight", name);
  snprintf(bias, sizeof bias, "%s.bias", name);
  const real *w = dense_param(dense, weight, block), *b = dense_param(dense, bias, block);
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
    double least = INFINITY;
    for (int k = 0; k < book->entries; k++) {
      const real *codeword = book->codewords + (g * book->entries + k) * d;
      double sum = 0;
      for (int i = 0; i < d; i++) sum += (x[g * d + i] - (double)codeword[i]) * (x[g * d + i] - (double)codeword[i]);
      if (sum >= least) continue;
      least = sum;
      for (int i = 0; i < d; i++) q[g * d + i] = (double)codeword[i];
    }
  }
}

static inline void dense_embed(Dense *dense, const float *pixels /* [3, side, side] */) {
  const ModelConfig *config = dense->session->config;
  int patch = (int)config->patch, side = (int)config->image, across = side / patch;
  const real *w = dense_param(dense, "vit.embeddings.patch_embeddings.projection.weight", 0);
  const real *b = dense_param(dense, "vit.embeddings.patch_embeddings.projection.bias", 0);
  const real *position = dense_param(dense, "vit.embeddings.position_embeddings", 0);
  const real *class_token = dense_param(dense, "vit.embeddings.cls_token", 0);
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
  const char *prefix = "vit.encoder.layer.%d.";
  int width = dense->width, hidden = (int)dense->session->config->mlp;
  char name[PARAM_NAME];
#define DENSE_NAME(rest) (snprintf(name, sizeof name, "%s%s", prefix, rest), name)
  for (int row = 0; row < dense->rows; row++) {
    dense_norm(dense, DENSE_NAME("layernorm_before"), block, dense->x[row], h[row]);
    dense_quantise(dense, block, h[row], hq[row]);
    dense_linear(dense, DENSE_NAME("attention.attention.query"), block, width, width, h[row], q[row]);
    dense_linear(dense, DENSE_NAME("attention.attention.key"), block, width, width, h[row], k[row]);
    dense_linear(dense, DENSE_NAME("attention.attention.value"), block, width, width, h[row], v[row]);
    dense_linear(dense, DENSE_NAME("attention.attention.key"), block, width, width, hq[row], kq[row]);
    dense_linear(dense, DENSE_NAME("attention.attention.value"), block, width, width, hq[row], vq[row]);
  }
  for (int row = 0; row < dense->rows; row++) {
    DenseRow mixed, y, normed, up;
    for (int head = 0; head < dense->heads; head++) dense_attend(dense, row, head, q, k, v, kq, vq, mixed);
    dense_linear(dense, DENSE_NAME("attention.output.dense"), block, width, width, mixed, y);
    for (int i = 0; i < width; i++) dense->x[row][i] += y[i];
    dense_norm(dense, DENSE_NAME("layernorm_after"), block, dense->x[row], normed);
    dense_linear(dense, DENSE_NAME("intermediate.dense"), block, width, hidden, normed, up);
    for (int i = 0; i < hidden; i++) up[i] *= 0.5 * (1 + erf(up[i] / sqrt(2)));
    dense_linear(dense, DENSE_NAME("output.dense"), block, hidden, width, up, y);
    for (int i = 0; i < width; i++) dense->x[row][i] += y[i];
  }
#undef DENSE_NAME
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
    dense_norm(&dense, "vit.layernorm", 0, dense.x[row], normed);
    for (int i = 0; i < dense.width; i++) mean[i] += normed[i] / replicas;
  }
  dense_linear(&dense, "classifier", 0, dense.width, (int)session->config->classes, mean, logits);
}

#endif
