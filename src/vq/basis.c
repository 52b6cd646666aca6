/* Linear statistics of samples: see basis.h. Everything is in double but the products of rows; matrices are [n, n], symmetric unless they
 * are said to be otherwise. */
#include "vq/basis.h"
#include "autograd/kernels/eigen.h"
#include "autograd/kernels/matmul.h"
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { PIECE = 256 }; /* rows of a product */

void matrix_multiply(int64_t n, int64_t m, const double *a, const double *b, double *c) {
  memset(c, 0, (size_t)(n * m) * sizeof *c);
  for (int64_t i = 0; i < n; i++)
    for (int64_t k = 0; k < n; k++)
      for (int64_t j = 0; j < m; j++) c[i * m + j] += a[i * n + k] * b[k * m + j];
}

/* rows [count, n] -> mean [n] */
static void mean_of(const real *rows, int64_t count, int64_t n, double *mean) {
  memset(mean, 0, (size_t)n * sizeof *mean);
  for (int64_t row = 0; row < count; row++)
    for (int64_t i = 0; i < n; i++) mean[i] += (double)rows[row * n + i] / (double)count;
}

/* centred = rows - mean; rows and centred [count, n], which may be the same. */
static void centre(const real *rows, int64_t count, int64_t n, const double *mean, real *centred) {
  for (int64_t row = 0; row < count; row++)
    for (int64_t i = 0; i < n; i++) centred[row * n + i] = (real)((double)rows[row * n + i] - mean[i]);
}

/* ---- The basis ---- */

static const double MIN_SHARE = 1e-3; /* of the largest eigenvalue of a metric */

/* Products of a piece of rows in reals, their sums in double. */
static Status sample_covariance(const real *samples, int64_t count, int64_t n, double *mean, double *covariance) {
  real *centred = malloc((size_t)((PIECE + n) * n) * sizeof *centred), *products = centred + PIECE * n;
  if (centred == NULL) return status_no_memory(NULL, "a rotation");
  memset(covariance, 0, (size_t)(n * n) * sizeof *covariance);
  mean_of(samples, count, n, mean);
  for (int64_t at = 0; at < count; at += PIECE) {
    const int64_t piece = count - at < PIECE ? count - at : PIECE;
    centre(samples + at * n, piece, n, mean, centred);
    matmul(true, false, n, n, piece, 1, centred, n, centred, n, 0, products, n);
    for (int64_t i = 0; i < n * n; i++) covariance[i] += (double)products[i] / (double)count;
  }
  free(centred);
  return STATUS_OK;
}

/* Roots of a metric: R and R^-1. metric is overwritten. */
static Status roots(int64_t n, double *metric, double *values, double *root, double *inverse) {
  TRY(eigen_symmetric(n, metric, values));
  const double min_value = fmax(values[n - 1] * MIN_SHARE, 1e-300);
  memset(root, 0, (size_t)(n * n) * sizeof *root);
  memset(inverse, 0, (size_t)(n * n) * sizeof *inverse);
  for (int64_t k = 0; k < n; k++) {
    const double *vector = metric + k * n, side = sqrt(fmax(values[k], min_value));
    for (int64_t i = 0; i < n; i++)
      for (int64_t j = 0; j < n; j++) {
        root[i * n + j] += side * vector[i] * vector[j];
        inverse[i * n + j] += vector[i] * vector[j] / side;
      }
  }
  return STATUS_OK;
}

/* Components in descending order of their variance, each to the group with the smallest product so far that has room: place[n], the
 * component that each number of y is. */
static Status deal_out(int64_t n, int64_t groups, const double *values, int64_t *place) {
  const int64_t size = n / groups;
  double *product = calloc((size_t)groups, sizeof *product); /* logarithms */
  int64_t *filled = calloc((size_t)groups, sizeof *filled);
  const bool memory = product != NULL && filled != NULL;
  const double min_value = fmax(fmax(values[0], values[n - 1] * 1e-6), 1e-300);
  for (int64_t k = n - 1; memory && k >= 0; k--) {
    int64_t best = -1;
    for (int64_t g = 0; g < groups; g++)
      if (filled[g] < size && (best < 0 || product[g] < product[best])) best = g;
    place[best * size + filled[best]++] = k;
    product[best] += log(fmax(values[k], min_value) / min_value); /* never below 0: a place that is taken counts */
  }
  free(product);
  free(filled);
  return memory ? STATUS_OK : status_no_memory(NULL, "a rotation");
}

static double trace(int64_t n, const double *matrix) {
  double sum = 0;
  for (int64_t i = 0; i < n; i++) sum += matrix[i * n + i];
  return sum;
}

/* room: 5 n^2 + n doubles. */
static Status fit_rotation(Rotation *rotation, const real *samples, int64_t count, const double *metric, int64_t groups, double *room,
                           int64_t *place) {
  const int64_t n = rotation->width;
  double *covariance = room, *root = room + n * n, *inverse = root + n * n, *seen = inverse + n * n, *work = seen + n * n,
         *values = work + n * n;
  TRY(sample_covariance(samples, count, n, rotation->mean, covariance));
  memcpy(work, metric, (size_t)(n * n) * sizeof *work);
  TRY(roots(n, work, values, root, inverse));
  matrix_multiply(n, n, root, covariance, work);
  matrix_multiply(n, n, work, root, seen);
  const double variance = trace(n, covariance), measured = trace(n, seen);
  const double scale = variance > 0 && measured > 0 ? sqrt(variance / measured) : 1; /* samples may all be alike */
  TRY(eigen_symmetric(n, seen, values));
  TRY(deal_out(n, groups, values, place));
  for (int64_t k = 0; k < n; k++)
    memcpy(work + k * n, seen + place[k] * n, (size_t)n * sizeof *work); /* rows: components as they are placed */
  matrix_multiply(n, n, work, root, rotation->to);
  matrix_multiply(n, n, work, inverse, seen); /* (R^-1 U)^T, as R^-1 is symmetric */
  for (int64_t i = 0; i < n; i++)
    for (int64_t j = 0; j < n; j++) {
      rotation->to[i * n + j] *= scale;
      rotation->from[j * n + i] = seen[i * n + j] / scale;
    }
  return STATUS_OK;
}

Status rotation_fit(Rotation *rotation, const real *samples, int64_t count, int64_t width, const double *metric, int64_t groups) {
  const size_t square = (size_t)(width * width);
  *rotation = (Rotation){.width = width};
  rotation->to = malloc(square * sizeof(double));
  rotation->from = malloc(square * sizeof(double));
  rotation->mean = malloc((size_t)width * sizeof(double));
  double *room = malloc((5 * square + (size_t)width) * sizeof *room);
  int64_t *place = malloc((size_t)width * sizeof *place);
  const bool memory = rotation->to != NULL && rotation->from != NULL && rotation->mean != NULL && room != NULL && place != NULL;
  Status status = memory ? fit_rotation(rotation, samples, count, metric, groups, room, place) : status_no_memory(NULL, "a rotation");
  free(room);
  free(place);
  return status;
}

void rotation_release(Rotation *rotation) {
  free(rotation->to);
  free(rotation->from);
  free(rotation->mean);
  *rotation = (Rotation){0};
}

Status rotation_apply(const Rotation *rotation, real *rows, int64_t count) {
  const int64_t n = rotation->width;
  real *centred = malloc((size_t)((PIECE + n) * n) * sizeof *centred), *to = centred + PIECE * n;
  if (centred == NULL) return status_no_memory(NULL, "a rotation");
  for (int64_t i = 0; i < n * n; i++) to[i] = (real)rotation->to[i];
  for (int64_t at = 0; at < count; at += PIECE) {
    const int64_t piece = count - at < PIECE ? count - at : PIECE;
    centre(rows + at * n, piece, n, rotation->mean, centred);
    matmul(false, true, piece, n, n, 1, centred, n, to, n, 0, rows + at * n, n);
  }
  free(centred);
  return STATUS_OK;
}

/* ---- Prediction: least squares by the normal equations ---- */

/* C = sum of (x - mean)(x - mean)^T / count, D = sum of (y - mean)(x - mean)^T / count, B = D (C + ridge I)^-1, with the eigenvectors of
 * C. */

static const double RIDGE_SHARE = 1e-4;

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
  mean_of(x, r->count, n, r->x_mean);
  mean_of(y, r->count, m, r->y_mean);
  for (int64_t at = 0; at < r->count; at += PIECE) {
    const int64_t rows = r->count - at < PIECE ? r->count - at : PIECE;
    centre(x + at * n, rows, n, r->x_mean, r->xs);
    centre(y + at * m, rows, m, r->y_mean, r->ys);
    accumulate(r, rows, r->xs, n, r->covariance);
    accumulate(r, rows, r->ys, m, r->cross);
  }
  double ridge = 0;
  for (int64_t i = 0; i < n; i++) ridge += RIDGE_SHARE * r->covariance[i * n + i] / (double)n;
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

/* ---- Moments: the distance of Gaussians ---- */

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

/* ---- Moments of the residual: sums of products are one matrix product each over centred rows ---- */

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
static void cross_covariance(Moments *m, const real *a, const real *b, double *to) {
  int64_t width = m->width;
  matmul(true, false, width, width, m->rows, (real)(1.0 / (double)m->rows), a, width, b, width, 0, m->product, width);
  for (int64_t i = 0; i < width * width; i++) to[i] = (double)m->product[i];
}

static void measure(Moments *m, const Codebook *book, const real *x, const real *known, const int32_t *codes) {
  int64_t width = m->width;
  codebook_lookup(book, codes, m->rows, m->quantised);
  for (int64_t i = 0; i < m->rows * width; i++) m->residual[i] = x[i] - m->quantised[i];
  for (int64_t i = 0; known != NULL && i < m->rows * width; i++) m->quantised[i] += known[i];
  mean_of(m->quantised, m->rows, m->width, m->mean_quantised);
  centre(m->quantised, m->rows, m->width, m->mean_quantised, m->quantised);
  mean_of(m->residual, m->rows, m->width, m->mean_all);
  centre(m->residual, m->rows, m->width, m->mean_all, m->residual);
  for (int64_t j = 0; j < width; j++) m->mean_all[j] += m->mean_quantised[j];
  cross_covariance(m, m->quantised, m->quantised, m->quantised_covariance);
  cross_covariance(m, m->residual, m->residual, m->residual_covariance);
  cross_covariance(m, m->quantised, m->residual, m->cross);
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
  for (int64_t i = 0; i < width * width; i++) difference[i] = m->all[i] - m->quantised_covariance[i], to[i] = m->quantised_covariance[i];
  return eigen_add_positive_part(width, difference, to);
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

Status residual_moments(const Codebook *book, const real *x, const real *known, const int32_t *codes, int64_t rows,
                        ResidualMoments *moments) {
  Moments m = {.rows = rows, .width = book->width};
  *moments = (ResidualMoments){0};
  Status status = reserve(&m);
  if (status == STATUS_OK) {
    measure(&m, book, x, known, codes);
    status = compare(&m, book->groups, moments);
  }
  free(m.quantised), free(m.residual), free(m.product), free(m.mean_quantised), free(m.mean_all);
  free(m.quantised_covariance), free(m.residual_covariance), free(m.cross), free(m.all);
  return status;
}
