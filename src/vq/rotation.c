/* The basis of quantisation: see rotation.h. Everything is in double; matrices are [n, n], symmetric unless they are said to be otherwise.
 */
#include "vq/rotation.h"
#include "autograd/kernels/eigen.h"
#include "autograd/kernels/matmul.h"
#include "vq/matrix.h"
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { PIECE = 256 };                   /* rows of a product */
static const double least_share = 1e-3; /* of the largest eigenvalue of a metric */

/* Products of a piece of rows in reals, their sums in double. */
static Status moments(const real *samples, int64_t count, int64_t n, double *mean, double *covariance) {
  real *centred = malloc((size_t)((PIECE + n) * n) * sizeof *centred), *products = centred + PIECE * n;
  if (centred == NULL) return status_no_memory(NULL, "a rotation");
  memset(covariance, 0, (size_t)(n * n) * sizeof *covariance);
  matrix_mean(samples, count, n, mean);
  for (int64_t at = 0; at < count; at += PIECE) {
    const int64_t piece = count - at < PIECE ? count - at : PIECE;
    matrix_centre(samples + at * n, piece, n, mean, centred);
    matmul(true, false, n, n, piece, 1, centred, n, centred, n, 0, products, n);
    for (int64_t i = 0; i < n * n; i++) covariance[i] += (double)products[i] / (double)count;
  }
  free(centred);
  return STATUS_OK;
}

/* Roots of a metric: R and R^-1. metric is overwritten. */
static Status roots(int64_t n, double *metric, double *values, double *root, double *inverse) {
  TRY(eigen_symmetric(n, metric, values));
  const double least = fmax(values[n - 1] * least_share, 1e-300);
  memset(root, 0, (size_t)(n * n) * sizeof *root);
  memset(inverse, 0, (size_t)(n * n) * sizeof *inverse);
  for (int64_t k = 0; k < n; k++) {
    const double *vector = metric + k * n, side = sqrt(fmax(values[k], least));
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
  const double least = fmax(fmax(values[0], values[n - 1] * 1e-6), 1e-300);
  for (int64_t k = n - 1; memory && k >= 0; k--) {
    int64_t best = -1;
    for (int64_t g = 0; g < groups; g++)
      if (filled[g] < size && (best < 0 || product[g] < product[best])) best = g;
    place[best * size + filled[best]++] = k;
    product[best] += log(fmax(values[k], least) / least); /* never below 0: a place that is taken counts */
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
static Status fit(Rotation *rotation, const real *samples, int64_t count, const double *metric, int64_t groups, double *room,
                  int64_t *place) {
  const int64_t n = rotation->width;
  double *covariance = room, *root = room + n * n, *inverse = root + n * n, *seen = inverse + n * n, *work = seen + n * n,
         *values = work + n * n;
  TRY(moments(samples, count, n, rotation->mean, covariance));
  memcpy(work, metric, (size_t)(n * n) * sizeof *work);
  TRY(roots(n, work, values, root, inverse));
  matrix_multiply(n, n, root, covariance, work);
  matrix_multiply(n, n, work, root, seen);
  const double scale = sqrt(trace(n, covariance) / fmax(trace(n, seen), 1e-300));
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
  Status status = memory ? fit(rotation, samples, count, metric, groups, room, place) : status_no_memory(NULL, "a rotation");
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
    matrix_centre(rows + at * n, piece, n, rotation->mean, centred);
    matmul(false, true, piece, n, n, 1, centred, n, to, n, 0, rows + at * n, n);
  }
  free(centred);
  return STATUS_OK;
}
