/* Least squares by the normal equations: see regression.h. C = sum of (x - mean)(x - mean)^T / count, D = sum of (y - mean)(x - mean)^T /
 * count, B = D (C + ridge I)^-1, with the eigenvectors of C. */
#include "vq/regression.h"
#include "autograd/kernels/eigen.h"
#include "autograd/kernels/matmul.h"
#include "vq/matrix.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PIECE = 256 }; /* rows of a product */
static const double ridge_share = 1e-4;

typedef struct Regression {
  int64_t count, inputs, outputs;   /* P, W */
  double *x_mean, *y_mean, *values; /* [P], [W], [P] */
  double *covariance, *cross;       /* [P, P], [W, P]: C, D */
  real *xs, *ys;                    /* pieces [PIECE, P], [PIECE, W] */
  real *product;                    /* [max(P, W), P] */
} Regression;

/* sum [n, P] += a^T x / count of a piece's rows, a [rows, n]. */
static void accumulate(const Regression *r, int64_t rows, const real *a, int64_t n, double *sum) {
  matmul(true, false, n, r->inputs, rows, 1, a, n, r->xs, r->inputs, 0, r->product, r->inputs);
  for (int64_t i = 0; i < n * r->inputs; i++) sum[i] += (double)r->product[i] / (double)r->count;
}

static Status solve(const Regression *r, const real *x, real *y, double *weight, double *bias) {
  const int64_t n = r->inputs, m = r->outputs;
  matrix_mean(x, r->count, n, r->x_mean);
  matrix_mean(y, r->count, m, r->y_mean);
  for (int64_t at = 0; at < r->count; at += PIECE) {
    const int64_t rows = r->count - at < PIECE ? r->count - at : PIECE;
    matrix_centre(x + at * n, rows, n, r->x_mean, r->xs);
    matrix_centre(y + at * m, rows, m, r->y_mean, r->ys);
    accumulate(r, rows, r->xs, n, r->covariance);
    accumulate(r, rows, r->ys, m, r->cross);
  }
  double ridge = 0;
  for (int64_t i = 0; i < n; i++) ridge += ridge_share * r->covariance[i * n + i] / (double)n;
  TRY(eigen_symmetric(n, r->covariance, r->values)); /* rows: eigenvectors */
  memset(weight, 0, (size_t)(m * n) * sizeof *weight);
  for (int64_t i = 0; i < m; i++)
    for (int64_t k = 0; k < n; k++) {
      const double *vector = r->covariance + k * n, *cross = r->cross + i * n;
      double along = 0;
      for (int64_t j = 0; j < n; j++) along += cross[j] * vector[j];
      along /= fmax(r->values[k], 0) + fmax(ridge, 1e-300);
      for (int64_t j = 0; j < n; j++) weight[i * n + j] += along * vector[j];
    }
  for (int64_t i = 0; i < m; i++) {
    bias[i] = r->y_mean[i];
    for (int64_t j = 0; j < n; j++) bias[i] -= weight[i * n + j] * r->x_mean[j];
  }
  for (int64_t i = 0; i < m * n; i++) r->product[i] = (real)weight[i];
  for (int64_t at = 0; at < r->count; at += PIECE) { /* y -= B x + b */
    const int64_t rows = r->count - at < PIECE ? r->count - at : PIECE;
    matmul(false, true, rows, m, n, -1, x + at * n, n, r->product, n, 1, y + at * m, m);
    for (int64_t row = at; row < at + rows; row++)
      for (int64_t i = 0; i < m; i++) y[row * m + i] -= (real)bias[i];
  }
  return STATUS_OK;
}

Status regression_fit(const real *x, real *y, int64_t count, int64_t inputs, int64_t outputs, double *weight, double *bias) {
  const size_t n = (size_t)inputs, m = (size_t)outputs;
  double *room = calloc(n * n + m * n + 2 * n + m, sizeof *room);
  real *reals = malloc((PIECE * (n + m) + (n > m ? n : m) * n) * sizeof *reals);
  Status status = room && reals ? STATUS_OK : status_no_memory(NULL, "a prediction");
  if (status == STATUS_OK) {
    Regression r = {.count = count, .inputs = inputs, .outputs = outputs, .covariance = room, .xs = reals};
    r.cross = r.covariance + n * n, r.x_mean = r.cross + m * n, r.values = r.x_mean + n, r.y_mean = r.values + n;
    r.ys = r.xs + PIECE * n, r.product = r.ys + PIECE * m;
    status = solve(&r, x, y, weight, bias);
  }
  free(room);
  free(reals);
  return status;
}
