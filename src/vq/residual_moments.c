/* Moments of quantised samples and residuals: see residual_moments.h. Sums of products are one matrix product each over centred rows. */
#include "vq/residual_moments.h"
#include "autograd/kernels/eigen.h"
#include "autograd/kernels/matmul.h"
#include "base/status.h"
#include "vq/codebook.h"
#include "vq/matrix.h"
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* ---- Distance of Gaussians ---- */

/* The squared 2-Wasserstein distance of two Gaussians (Dowson and Landau, 1982):
 *   W2^2 = |m1 - m2|^2 + tr(C1 + C2 - 2 (C2^1/2 C1 C2^1/2)^1/2)
 * The last trace is the sum of the square roots of the eigenvalues of L^T C1 L, with C2 = L L^T. All in double. */

/* In place, lower: C = L L^T for a semidefinite C. A pivot that is only rounding leaves its column empty. */
static void factor(int64_t n, double *c) {
  double largest = 0;
  for (int64_t i = 0; i < n; i++) largest = fmax(largest, c[i * n + i]);
  for (int64_t j = 0; j < n; j++) {
    double pivot = c[j * n + j];
    for (int64_t k = 0; k < j; k++) pivot -= c[j * n + k] * c[j * n + k];
    bool whole = pivot > 1e-12 * largest;
    c[j * n + j] = whole ? sqrt(pivot) : 0;
    for (int64_t i = j + 1; i < n; i++) {
      double sum = c[i * n + j];
      for (int64_t k = 0; k < j; k++) sum -= c[i * n + k] * c[j * n + k];
      c[i * n + j] = whole ? sum / c[j * n + j] : 0;
      c[j * n + i] = 0;
    }
  }
}

/* means [n], covariances [n, n], symmetric and positive semidefinite except for rounding; singular ones are fine. Allocates 3 n^2 numbers
 * and frees them; O(n^3), about a second for n = 768. NO_MEMORY; NUMERIC as above. */
static Status gaussian_distance(int64_t n, const double *mean1, const double *covariance1, const double *mean2, const double *covariance2,
                                double *squared) {
  double *l = calloc((size_t)(3 * n * n + n), sizeof *l), trace = 0;
  if (l == NULL) return status_set(STATUS_NO_MEMORY, "no memory for covariances of width %lld", (long long)n);
  double *product = l + n * n, *inner = product + n * n, *values = inner + n * n;
  memcpy(l, covariance2, (size_t)(n * n) * sizeof *l);
  factor(n, l);
  for (int64_t i = 0; i < n; i++) /* C1 L */
    for (int64_t k = 0; k < n; k++)
      for (int64_t j = 0; j <= k; j++) product[i * n + j] += covariance1[i * n + k] * l[k * n + j];
  for (int64_t k = 0; k < n; k++) /* L^T C1 L */
    for (int64_t i = 0; i <= k; i++)
      for (int64_t j = 0; j < n; j++) inner[i * n + j] += l[k * n + i] * product[k * n + j];
  Status status = eigen_symmetric(n, inner, values);
  for (int64_t i = 0; status == STATUS_OK && i < n; i++) trace += sqrt(fmax(values[i], 0));
  free(l);
  TRY(status);
  *squared = -2 * trace;
  for (int64_t i = 0; i < n; i++)
    *squared += (mean1[i] - mean2[i]) * (mean1[i] - mean2[i]) + covariance1[i * n + i] + covariance2[i * n + i];
  *squared = fmax(*squared, 0); /* roots of eigenvalues that are 0 but for rounding */
  return STATUS_OK;
}

/* ---- Moments ---- */

typedef struct Moments {
  int64_t rows, width;
  real *quantised, *residual;        /* [rows, W], centred */
  real *product;                     /* [W, W] */
  double *mean_quantised, *mean_all; /* [W] of X^ and of X */
  double *quantised_covariance;      /* [W, W] of X^ */
  double *residual_covariance;       /* of R */
  double *cross;                     /* of X^ and R */
  double *all;                       /* of X */
} Moments;

static Status reserve(Moments *m) {
  size_t width = (size_t)m->width, numbers = (size_t)m->rows * width, square = width * width;
  m->quantised = malloc(numbers * sizeof(real));
  m->residual = malloc(numbers * sizeof(real));
  m->product = malloc(square * sizeof(real));
  m->mean_quantised = malloc(width * sizeof(double));
  m->mean_all = malloc(width * sizeof(double));
  m->quantised_covariance = malloc(square * sizeof(double));
  m->residual_covariance = malloc(square * sizeof(double));
  m->cross = malloc(square * sizeof(double));
  m->all = calloc(square, sizeof(double)); /* gcc doubts that the loops of measure fill it */
  if (m->quantised && m->residual && m->product && m->mean_quantised && m->mean_all && m->quantised_covariance && m->residual_covariance &&
      m->cross && m->all)
    return STATUS_OK;
  return status_set(STATUS_NO_MEMORY, "no memory for the covariances of %lld samples of width %lld", (long long)m->rows,
                    (long long)m->width);
}

/* to = a^T b / rows */
static void covariance(Moments *m, const real *a, const real *b, double *to) {
  int64_t width = m->width;
  matmul(true, false, width, width, m->rows, (real)(1.0 / (double)m->rows), a, width, b, width, 0, m->product, width);
  for (int64_t i = 0; i < width * width; i++) to[i] = (double)m->product[i];
}

static void measure(Moments *m, const Codebook *book, const real *x, const int32_t *codes) {
  int64_t width = m->width;
  codebook_lookup(book, codes, m->rows, m->quantised);
  for (int64_t i = 0; i < m->rows * width; i++) m->residual[i] = x[i] - m->quantised[i];
  matrix_mean(m->quantised, m->rows, m->width, m->mean_quantised);
  matrix_centre(m->quantised, m->rows, m->width, m->mean_quantised, m->quantised);
  matrix_mean(m->residual, m->rows, m->width, m->mean_all);
  matrix_centre(m->residual, m->rows, m->width, m->mean_all, m->residual);
  for (int64_t j = 0; j < width; j++) m->mean_all[j] += m->mean_quantised[j];
  covariance(m, m->quantised, m->quantised, m->quantised_covariance);
  covariance(m, m->residual, m->residual, m->residual_covariance);
  covariance(m, m->quantised, m->residual, m->cross);
  for (int64_t i = 0; i < width; i++)
    for (int64_t j = 0; j < width; j++)
      m->all[i * width + j] = m->quantised_covariance[i * width + j] + m->residual_covariance[i * width + j] + m->cross[i * width + j] +
                              m->cross[j * width + i];
}

static double norm(int64_t count, const double *x) {
  double sum = 0;
  for (int64_t i = 0; i < count; i++) sum += x[i] * x[i];
  return sqrt(sum);
}

/* to = C_X^ + the positive part of C_X - C_X^. difference [W, W] is scratch. */
static Status restore(const Moments *m, double *difference, double *to) {
  int64_t width = m->width;
  double *values = malloc((size_t)width * sizeof *values);
  if (values == NULL) return status_no_memory(NULL, "eigenvalues");
  for (int64_t i = 0; i < width * width; i++) difference[i] = m->all[i] - m->quantised_covariance[i], to[i] = m->quantised_covariance[i];
  Status status = eigen_symmetric(width, difference, values); /* row k is the vector of value k */
  for (int64_t k = 0; status == STATUS_OK && k < width; k++) {
    const double *vector = difference + k * width;
    for (int64_t i = 0; values[k] > 0 && i < width; i++)
      for (int64_t j = 0; j < width; j++) to[i * width + j] += values[k] * vector[i] * vector[j];
  }
  free(values);
  return status;
}

/* The noise has the mean of R, so that X~ has that of X. */
static Status compare(Moments *m, int64_t groups, ResidualMoments *moments) {
  int64_t width = m->width, d = width / groups, square = width * width;
  double spread = norm(square, m->residual_covariance), *noisy = malloc((size_t)(2 * square) * sizeof *noisy);
  if (noisy == NULL) return status_no_memory(NULL, "covariances");
  moments->dependence = spread > 0 ? norm(square, m->cross) / spread : 0;
  Status status = gaussian_distance(width, m->mean_all, m->all, m->mean_quantised, m->quantised_covariance, &moments->quantised);
  for (int64_t i = 0; i < width; i++) /* noise depends only within a group */
    for (int64_t j = 0; j < width; j++)
      noisy[i * width + j] = m->quantised_covariance[i * width + j] + (i / d == j / d ? m->residual_covariance[i * width + j] : 0);
  if (status == STATUS_OK) status = gaussian_distance(width, m->mean_all, m->all, m->mean_all, noisy, &moments->noisy);
  for (int64_t i = 0; i < square; i++) noisy[i] = m->quantised_covariance[i] + m->residual_covariance[i];
  if (status == STATUS_OK) status = gaussian_distance(width, m->mean_all, m->all, m->mean_all, noisy, &moments->full);
  if (status == STATUS_OK) status = restore(m, noisy + square, noisy);
  if (status == STATUS_OK) status = gaussian_distance(width, m->mean_all, m->all, m->mean_all, noisy, &moments->restored);
  free(noisy);
  return status;
}

Status residual_moments(const Codebook *book, const real *x, const int32_t *codes, int64_t rows, ResidualMoments *moments) {
  Moments m = {.rows = rows, .width = book->width};
  *moments = (ResidualMoments){0};
  Status status = reserve(&m);
  if (status == STATUS_OK) {
    measure(&m, book, x, codes);
    status = compare(&m, book->groups, moments);
  }
  free(m.quantised), free(m.residual), free(m.product), free(m.mean_quantised), free(m.mean_all);
  free(m.quantised_covariance), free(m.residual_covariance), free(m.cross), free(m.all);
  return status;
}
