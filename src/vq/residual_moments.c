/* Moments of quantised samples and residuals: see residual_moments.h. Sums of products are one matrix product each over centred rows. */
#include "vq/residual_moments.h"
#include "autograd/kernels/matmul.h"
#include "vq/gaussian_distance.h"
#include <math.h>
#include <stdlib.h>

typedef struct Moments {
  int64_t rows, width;
  real *quantised, *residual;        /* [rows, W], centred */
  real *product;                     /* [W, W] */
  double *mean_quantised, *mean_all; /* [W] of X^ and of X */
  double *quantised_covariance;      /* [W, W] of X^ */
  double *residual_covariance;       /* of R */
  double *cross;                     /* of X^ and R */
  double *all;                       /* of X, and later of X~ */
} Moments;

static void release(Moments *m) {
  free(m->quantised);
  free(m->residual);
  free(m->product);
  free(m->mean_quantised);
  free(m->mean_all);
  free(m->quantised_covariance);
  free(m->residual_covariance);
  free(m->cross);
  free(m->all);
}

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
  m->all = malloc(square * sizeof(double));
  if (m->quantised && m->residual && m->product && m->mean_quantised && m->mean_all && m->quantised_covariance && m->residual_covariance &&
      m->cross && m->all)
    return STATUS_OK;
  return status_set(STATUS_NO_MEMORY, "no memory for the covariances of %lld samples of width %lld", (long long)m->rows,
                    (long long)m->width);
}

/* Takes the mean off every column and leaves it in mean [W]. */
static void centre(const Moments *m, real *x, double *mean) {
  for (int64_t j = 0; j < m->width; j++) mean[j] = 0;
  for (int64_t r = 0; r < m->rows; r++)
    for (int64_t j = 0; j < m->width; j++) mean[j] += (double)x[r * m->width + j] / (double)m->rows;
  for (int64_t r = 0; r < m->rows; r++)
    for (int64_t j = 0; j < m->width; j++) x[r * m->width + j] = (real)((double)x[r * m->width + j] - mean[j]);
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
  centre(m, m->quantised, m->mean_quantised);
  centre(m, m->residual, m->mean_all);
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

/* Into `quantised_covariance`: that of X^ + xi, whose noise goes together within a group alone. */
static void add_noise(Moments *m, int64_t groups) {
  int64_t width = m->width, d = width / groups;
  for (int64_t i = 0; i < width; i++)
    for (int64_t j = i / d * d; j < (i / d + 1) * d; j++) m->quantised_covariance[i * width + j] += m->residual_covariance[i * width + j];
}

static Status compare(Moments *m, int64_t groups, ResidualMoments *moments) {
  int64_t square = m->width * m->width;
  double spread = norm(square, m->residual_covariance);
  moments->dependence = spread > 0 ? norm(square, m->cross) / spread : 0;
  TRY(gaussian_distance(m->width, m->mean_all, m->all, m->mean_quantised, m->quantised_covariance, &moments->quantised));
  add_noise(m, groups);
  return gaussian_distance(m->width, m->mean_all, m->all, m->mean_all, m->quantised_covariance, &moments->noisy);
}

Status residual_moments(const Codebook *book, const real *x, const int32_t *codes, int64_t rows, ResidualMoments *moments) {
  Moments m = {.rows = rows, .width = book->width};
  *moments = (ResidualMoments){0};
  Status status = reserve(&m);
  if (status == STATUS_OK) {
    measure(&m, book, x, codes);
    status = compare(&m, book->groups, moments);
  }
  release(&m);
  return status;
}
