/* Least squares by the normal equations: see regression.h. C = sum of (x - mean)(x - mean)^T / count, D = sum of (y - mean)(x - mean)^T /
 * count, B = D (C + ridge I)^-1, with the eigenvectors of C. */
#include "vq/regression.h"
#include "autograd/kernels/eigen.h"
#include "autograd/kernels/matmul.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PIECE = 256 }; /* rows of a product */
static const double ridge_share = 1e-4;

typedef struct Regression {
  int64_t count, width;
  double *x_mean, *y_mean, *values; /* [W] each */
  double *covariance, *cross;       /* [W, W]: C, D */
  real *pieces;                     /* [2 PIECE, W] */
  real *product;                    /* [W, W] */
} Regression;

static void mean_of(const real *rows, int64_t count, int64_t n, double *mean) {
  memset(mean, 0, (size_t)n * sizeof *mean);
  for (int64_t row = 0; row < count; row++)
    for (int64_t i = 0; i < n; i++) mean[i] += (double)rows[row * n + i] / (double)count;
}

static void centre(const real *rows, int64_t count, int64_t n, const double *mean, real *centred) {
  for (int64_t row = 0; row < count; row++)
    for (int64_t i = 0; i < n; i++) centred[row * n + i] = (real)((double)rows[row * n + i] - mean[i]);
}

/* sum += a^T b / count of a piece's rows. */
static void accumulate(const Regression *r, int64_t rows, const real *a, const real *b, double *sum) {
  const int64_t n = r->width;
  matmul(true, false, n, n, rows, 1, a, n, b, n, 0, r->product, n);
  for (int64_t i = 0; i < n * n; i++) sum[i] += (double)r->product[i] / (double)r->count;
}

static Status solve(const Regression *r, const real *x, real *y, double *weight, double *bias) {
  const int64_t n = r->width;
  real *const xs = r->pieces, *const ys = r->pieces + PIECE * n;
  mean_of(x, r->count, n, r->x_mean);
  mean_of(y, r->count, n, r->y_mean);
  for (int64_t at = 0; at < r->count; at += PIECE) {
    const int64_t rows = r->count - at < PIECE ? r->count - at : PIECE;
    centre(x + at * n, rows, n, r->x_mean, xs);
    centre(y + at * n, rows, n, r->y_mean, ys);
    accumulate(r, rows, xs, xs, r->covariance);
    accumulate(r, rows, ys, xs, r->cross);
  }
  double ridge = 0;
  for (int64_t i = 0; i < n; i++) ridge += ridge_share * r->covariance[i * n + i] / (double)n;
  TRY(eigen_symmetric(n, r->covariance, r->values)); /* rows: eigenvectors */
  memset(weight, 0, (size_t)(n * n) * sizeof *weight);
  for (int64_t i = 0; i < n; i++)
    for (int64_t k = 0; k < n; k++) {
      const double *vector = r->covariance + k * n, *cross = r->cross + i * n;
      double along = 0;
      for (int64_t j = 0; j < n; j++) along += cross[j] * vector[j];
      along /= fmax(r->values[k], 0) + fmax(ridge, 1e-300);
      for (int64_t j = 0; j < n; j++) weight[i * n + j] += along * vector[j];
    }
  for (int64_t i = 0; i < n; i++) {
    bias[i] = r->y_mean[i];
    for (int64_t j = 0; j < n; j++) bias[i] -= weight[i * n + j] * r->x_mean[j];
  }
  for (int64_t i = 0; i < n * n; i++) r->product[i] = (real)weight[i];
  for (int64_t at = 0; at < r->count; at += PIECE) { /* y -= B x + b */
    const int64_t rows = r->count - at < PIECE ? r->count - at : PIECE;
    matmul(false, true, rows, n, n, -1, x + at * n, n, r->product, n, 1, y + at * n, n);
    for (int64_t row = at; row < at + rows; row++)
      for (int64_t i = 0; i < n; i++) y[row * n + i] -= (real)bias[i];
  }
  return STATUS_OK;
}

Status regression_fit(const real *x, real *y, int64_t count, int64_t width, double *weight, double *bias) {
  const size_t n = (size_t)width;
  double *room = calloc(2 * n * n + 3 * n, sizeof *room);
  real *reals = malloc((2 * PIECE * n + n * n) * sizeof *reals);
  Status status = room && reals ? STATUS_OK : status_no_memory(NULL, "a prediction");
  if (status == STATUS_OK) {
    const Regression r = {count,        width, room + 2 * n * n,     room + 2 * n * n + n, room + 2 * n * n + 2 * n, room,
                          room + n * n, reals, reals + 2 * PIECE * n};
    status = solve(&r, x, y, weight, bias);
  }
  free(room);
  free(reals);
  return status;
}
