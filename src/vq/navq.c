/* Noise with the moments of the quantisation error. The caller decides when to update; only training adds the noise.
 *
 * The moments of a batch are taken about the batch's own mean (two passes over the residual, no cancellation) and averaged over time. */
#include "vq/navq.h"
#include "autograd/kernels/eigen.h"
#include "autograd/kernels/kernels.h"
#include "autograd/kernels/matmul.h"
#include "autograd/real.h"
#include "base/number.h"
#include "base/status.h"
#include "base/threads.h"
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* ---- Cholesky factors ---- */

/* Right-looking blocked Cholesky factorisation of a row-major matrix.
 *
 *        [ L11          ]   L11 from A11 in double (at most BLOCK wide), its inverse beside it
 *   L =  [ L21   A22'   ]   L21 = A21 L11^-T,  A22' = A22 - L21 L21^T, then the same with A22'
 *
 * A product must not write what it reads, so L21^T is first put into the unused upper triangle (the place of A12). */

enum { BLOCK = 48 };

/* a [n, n] at stride: its lower triangle in place, and the inverse [n, n] of the factor (lower, zero above). */
static bool factor_block(int64_t n, real *a, int64_t stride, real *inverse) {
  double l[BLOCK][BLOCK], v[BLOCK][BLOCK];
  for (int64_t i = 0; i < n; i++)
    for (int64_t j = 0; j <= i; j++) {
      double sum = (double)a[i * stride + j];
      for (int64_t k = 0; k < j; k++) sum -= l[i][k] * l[j][k];
      if (i == j && !(sum > 0 && isfinite(sum))) return false;
      l[i][j] = i == j ? sqrt(sum) : sum / l[j][j];
      a[i * stride + j] = (real)l[i][j];
    }
  memset(inverse, 0, (size_t)(n * n) * sizeof(real));
  for (int64_t j = 0; j < n; j++)
    for (int64_t i = j; i < n; i++) {
      double sum = i == j ? 1 : 0;
      for (int64_t k = j; k < i; k++) sum -= l[i][k] * v[k][j];
      v[i][j] = sum / l[i][i];
      inverse[i * n + j] = (real)v[i][j];
    }
  return true;
}

/* The lower triangle of a [n, n] becomes L with L L^T = a; the numbers above the diagonal become zero. False (and a overwritten) when a is
 * not positive definite. In place, on the calling thread, without allocation. */
static bool cholesky_factor(int64_t n, real *a) {
  real inverse[BLOCK * BLOCK];
  for (int64_t at = 0; at < n; at += BLOCK) {
    int64_t block = n - at < BLOCK ? n - at : BLOCK, rest = n - at - block;
    real *corner = a + at * n + at, *above = corner + block, *below = corner + block * n, *trailing = below + block;
    if (!factor_block(block, corner, n, inverse)) return false;
    if (rest == 0) break;
    matmul_single(false, true, block, rest, block, 1, inverse, block, below, n, 0, above, n);
    matmul_single(true, false, rest, rest, block, -1, above, n, above, n, 1, trailing, n);
    for (int64_t i = 0; i < rest; i++)
      for (int64_t j = 0; j < block; j++) below[i * n + j] = above[j * n + i];
  }
  for (int64_t i = 0; i < n; i++) memset(a + i * n + i + 1, 0, (size_t)(n - i - 1) * sizeof(real));
  return true;
}

/* ---- Noise ---- */

enum {
  COLUMNS = 64, /* a thread's strip of the residual */
  MEAN_ROWS = 32,
  SAMPLE_COLUMNS = 192,
  SHARED_GROUPS = 4, /* from this many groups on, each group's product is computed by one thread; below, by all threads together */
  BLEND_GRAIN = 4096,
};

static int64_t group_width(const Navq *navq) { return navq->width / navq->groups; }
static int64_t spread_size(const Navq *navq) { return noise_spread(navq->groups, navq->width, navq->kind); }

int64_t noise_spread(int64_t groups, int64_t width, NoiseCovariance kind) {
  if (kind == NOISE_DIAGONAL) return width;
  return kind == NOISE_FULL ? width * (width / groups) : width * width;
}

Status navq_init(Navq *navq, int64_t groups, int64_t width, NoiseCovariance kind) {
  memset(navq, 0, sizeof *navq);
  if (groups < 1 || width < 1 || width % groups != 0)
    return status_set(STATUS_BAD_VALUE, "noise: %" PRId64 " groups do not divide the width %" PRId64, groups, width);
  const bool all = kind == NOISE_JOINT || kind == NOISE_RESTORED;
  *navq = (Navq){.groups = all ? 1 : groups, .width = width, .kind = kind, .decay = 0.99, .refresh = 16};
  size_t spread = (size_t)spread_size(navq);
  navq->mean = calloc((size_t)width, sizeof *navq->mean);
  navq->covariance = calloc(spread, sizeof *navq->covariance);
  navq->factor = calloc(spread, sizeof *navq->factor);
  if (!navq->mean || !navq->covariance || !navq->factor) {
    navq_release(navq);
    return status_set(STATUS_NO_MEMORY, "no memory for the noise covariance of width %" PRId64 " in %" PRId64 " groups", width, groups);
  }
  return STATUS_OK;
}

void navq_release(Navq *navq) {
  free(navq->mean);
  free(navq->covariance);
  free(navq->factor);
  memset(navq, 0, sizeof *navq);
}

size_t navq_scratch(const Navq *navq, int64_t rows) {
  return (size_t)(rows * navq->width + (navq->kind != NOISE_DIAGONAL ? spread_size(navq) : 0)) * sizeof(real);
}

/* ---- factor ---- */

static void factor_diagonal(int64_t d, int64_t stride, const real *variance, real *factor, int64_t factor_stride) {
  for (int64_t i = 0; i < d; i++) {
    double value = (double)variance[i * stride];
    factor[i * factor_stride] = value > 0 ? (real)sqrt(value) : 0;
  }
}

/* Sigma [G, W/G, W/G], or what noise can have of it. */
typedef struct FactorJob {
  const Navq *navq;
  const real *covariance;
} FactorJob;

/* L of covariance + ridge I. The ridge starts at 1e-6 of the mean variance and grows until the factorisation succeeds; where no ridge helps
 * (the matrix is not finite, or far from positive) only the deviations are left. */
static void factor_range(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  const FactorJob *job = context;
  const Navq *navq = job->navq;
  int64_t d = group_width(navq);
  for (int64_t g = begin; g < end; g++) {
    const real *covariance = job->covariance + g * d * d;
    real *factor = navq->factor + g * d * d;
    bool done = false;
    double trace = 0;
    for (int64_t i = 0; i < d; i++) trace += (double)covariance[i * d + i];
    for (double part = 1e-6; !done && trace > 0 && part < 1; part *= 10) {
      memcpy(factor, covariance, (size_t)(d * d) * sizeof(real));
      for (int64_t i = 0; i < d; i++) factor[i * d + i] += (real)(part * trace / (double)d);
      done = cholesky_factor(d, factor);
    }
    if (done) continue;
    memset(factor, 0, (size_t)(d * d) * sizeof(real));
    factor_diagonal(d, d + 1, covariance, factor, d + 1);
  }
}

/* to [n, n] = from without its negative eigenvalues. False without memory, or where a number is not finite. */
static bool positive_part(int64_t n, const real *from, real *to) {
  double *part = calloc((size_t)(2 * n * n), sizeof *part), *scratch = part + n * n;
  if (part == NULL) return false;
  for (int64_t i = 0; i < n * n; i++) scratch[i] = (double)from[i];
  const bool found = eigen_add_positive_part(n, scratch, part) == STATUS_OK;
  for (int64_t i = 0; found && i < n * n; i++) to[i] = (real)part[i];
  free(part);
  return found;
}

/* The factor of the current moments. Of Cov X - Cov X^ as it is where its positive part cannot be had. */
static void factorise(Navq *navq) {
  FactorJob job = {navq, navq->covariance};
  real *part = NULL;
  if (navq->kind == NOISE_DIAGONAL) {
    factor_diagonal(navq->width, 1, navq->covariance, navq->factor, 1);
    return;
  }
  if (navq->kind == NOISE_RESTORED) {
    part = malloc((size_t)spread_size(navq) * sizeof *part);
    if (part && positive_part(navq->width, navq->covariance, part)) job.covariance = part;
  }
  threads_for(navq->groups, 1, factor_range, &job);
  free(part);
}

/* ---- moments ---- */

typedef struct MomentJob {
  Navq *navq;
  const real *x, *q; /* [rows, W] */
  int64_t rows;
  double gain;    /* of this batch in the averages */
  real *residual; /* [rows, W], about its mean when done */
  real *batch;    /* [G, W/G, W/G] this batch's covariance */
} MomentJob;

static real blend(real old, double gain, double new_value) { return (real)((1 - gain) * (double)old + gain * new_value); }

/* Columns [from, from + columns): the residual x - q, and its mean. */
static void residual_strip(const MomentJob *job, int64_t from, int64_t columns, double mean[COLUMNS]) {
  int64_t width = job->navq->width;
  memset(mean, 0, COLUMNS * sizeof *mean);
  for (int64_t first = 0; first < job->rows; first += MEAN_ROWS) {
    real sum[COLUMNS] = {0}; /* of few rows: reals are precise enough */
    int64_t last = number_lesser(first + MEAN_ROWS, job->rows);
    for (int64_t r = first; r < last; r++) {
      real *residual = job->residual + r * width + from;
      memcpy(residual, job->x + r * width + from, (size_t)columns * sizeof *residual);
      kernels()->axpy(columns, -1, job->q + r * width + from, residual);
      kernels()->add(columns, residual, sum);
    }
    for (int64_t j = 0; j < columns; j++) mean[j] += (double)sum[j] / (double)job->rows;
  }
}

/* The residual about its mean, and the averages of the mean (and of the diagonal). */
static void centre_strip(const MomentJob *job, int64_t from, int64_t columns) {
  Navq *navq = job->navq;
  double mean[COLUMNS], squares[COLUMNS] = {0};
  real centre[COLUMNS];
  residual_strip(job, from, columns, mean);
  for (int64_t j = 0; j < columns; j++) centre[j] = (real)mean[j];
  for (int64_t r = 0; r < job->rows; r++) {
    real *residual = job->residual + r * navq->width + from;
    kernels()->axpy(columns, -1, centre, residual);
    for (int64_t j = 0; navq->kind == NOISE_DIAGONAL && j < columns; j++) squares[j] += (double)residual[j] * (double)residual[j];
  }
  for (int64_t j = 0; j < columns; j++) {
    navq->mean[from + j] = blend(navq->mean[from + j], job->gain, mean[j]);
    if (navq->kind == NOISE_DIAGONAL)
      navq->covariance[from + j] = blend(navq->covariance[from + j], job->gain, squares[j] / (double)job->rows);
  }
}

static void centre_range(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  const MomentJob *job = context;
  for (int64_t strip = begin; strip < end; strip++)
    centre_strip(job, strip * COLUMNS, number_lesser(COLUMNS, job->navq->width - strip * COLUMNS));
}

typedef void Product(bool transpose_a, bool transpose_b, int64_t m, int64_t n, int64_t k, real alpha, const real *a, int64_t lda,
                     const real *b, int64_t ldb, real beta, real *c, int64_t ldc);

/* batch_g = R_g^T R_g / rows. Restored: Cov X - Cov X^ = (R^T X + X^^T R) / rows, since R is about its mean. */
static void group_covariance(const MomentJob *job, int64_t g, Product *product) {
  int64_t d = group_width(job->navq), width = job->navq->width;
  const bool restored = job->navq->kind == NOISE_RESTORED;
  const real *residual = job->residual + g * d, share = (real)(1.0 / (double)job->rows);
  product(true, false, d, d, job->rows, share, residual, width, restored ? job->x : residual, width, 0, job->batch + g * d * d, d);
  if (restored) product(true, false, d, d, job->rows, share, job->q, width, residual, width, 1, job->batch, d);
}

static void covariance_range(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  for (int64_t g = begin; g < end; g++) group_covariance(context, g, matmul_single);
}

static void blend_range(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  const MomentJob *job = context;
  real *covariance = job->navq->covariance;
  for (int64_t i = begin; i < end; i++) covariance[i] = blend(covariance[i], job->gain, (double)job->batch[i]);
}

void navq_update(Navq *navq, const real *x, const real *q, int64_t rows, void *scratch) {
  if (rows <= 0) return;
  MomentJob job = {.navq = navq, .x = x, .q = q, .rows = rows, .residual = scratch};
  job.batch = job.residual + rows * navq->width;
  job.gain = navq->updates == 0 ? 1 : 1 - navq->decay;
  threads_for((navq->width + COLUMNS - 1) / COLUMNS, 1, centre_range, &job);
  if (navq->kind != NOISE_DIAGONAL) {
    if (navq->groups >= SHARED_GROUPS)
      threads_for(navq->groups, 1, covariance_range, &job);
    else
      for (int64_t g = 0; g < navq->groups; g++) group_covariance(&job, g, matmul);
    threads_for(spread_size(navq), BLEND_GRAIN, blend_range, &job);
  }
  if (navq->refresh < 1 || navq->updates % navq->refresh == 0) factorise(navq);
  navq->updates++;
}

void navq_count_update(const Navq *navq, int64_t rows) {
  int64_t d = group_width(navq);
  for (int64_t g = 0; navq->kind != NOISE_DIAGONAL && g < navq->groups; g++) matmul_count_only(d, d, rows);
  if (navq->kind == NOISE_RESTORED) matmul_count_only(d, d, rows);
}

/* ---- samples ---- */

static uint64_t counters_per_row(const Navq *navq) { return ((uint64_t)navq->width + 3) / 4; }

/* Full factors so small that the calls of a product for each group would cost more than the work. */
static bool is_narrow(const Navq *navq) { return navq->kind != NOISE_DIAGONAL && group_width(navq) <= TRIANGLE_MAX_WIDTH; }

size_t navq_sampler_scratch(const Navq *navq) { return (is_narrow(navq) ? (size_t)spread_size(navq) : 1) * sizeof(real); }

void navq_sampler_init(NavqSampler *sampler, const Navq *navq, double scale, uint64_t seed, int64_t first, void *scratch) {
  *sampler = (NavqSampler){navq, scale, seed, first, scratch};
  real *columns = scratch;
  const int64_t d = group_width(navq);
  for (int64_t i = 0; is_narrow(navq) && i < navq->width; i++)
    for (int64_t j = 0; j < d; j++) columns[(i / d * d + j) * d + i % d] = navq->factor[i * d + j];
}

void navq_sampler_draw(const NavqSampler *sampler, int64_t first, int64_t rows, real *noise, real *normal) {
  const Navq *navq = sampler->navq;
  const int64_t width = navq->width, d = group_width(navq);
  real scale = (real)sampler->scale;
  if (navq->updates == 0) {
    memset(noise, 0, (size_t)(rows * width) * sizeof *noise);
    return;
  }
  for (int64_t r = 0; r < rows; r++) {
    uint64_t counter = (uint64_t)(sampler->first + first + r) * counters_per_row(navq);
    kernels()->normal(width, sampler->seed, counter, normal + r * width);
    if (is_narrow(navq)) {
      kernels()->triangles(navq->groups, d, scale, navq->mean, sampler->columns, normal + r * width, noise + r * width);
      continue;
    }
    for (int64_t j = 0; j < width; j++) noise[r * width + j] = scale * navq->mean[j];
    if (navq->kind != NOISE_DIAGONAL) continue;
    for (int64_t j = 0; j < width; j++) noise[r * width + j] += scale * navq->factor[j] * normal[r * width + j];
  }
  if (navq->kind == NOISE_DIAGONAL || is_narrow(navq)) return;
  for (int64_t g = 0; g < navq->groups; g++) /* noise += scale z L^T; columns in strips, because L is zero right of a strip's end */
    for (int64_t from = 0; from < d; from += SAMPLE_COLUMNS) {
      const int64_t to = number_lesser(d, from + SAMPLE_COLUMNS);
      matmul_single(false, true, rows, to - from, to, scale, normal + g * d, width, navq->factor + (g * d + from) * d, d, 1,
                    noise + g * d + from, width);
    }
}

typedef struct SampleJob {
  NavqSampler sampler;
  int64_t rows;
  real *noise, *normal; /* [rows, W] */
} SampleJob;

static void sample_range(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  const SampleJob *job = context;
  int64_t width = job->sampler.navq->width;
  for (int64_t first = begin * NAVQ_ROWS; first < number_lesser(end * NAVQ_ROWS, job->rows); first += NAVQ_ROWS)
    navq_sampler_draw(&job->sampler, first, number_lesser(NAVQ_ROWS, job->rows - first), job->noise + first * width,
                      job->normal + first * width);
}

void navq_sample(const Navq *navq, double scale, uint64_t seed, int64_t first, int64_t rows, real *noise, void *scratch) {
  SampleJob job = {.rows = rows, .noise = noise, .normal = scratch};
  navq_sampler_init(&job.sampler, navq, scale, seed, first, job.normal + rows * navq->width);
  threads_for((rows + NAVQ_ROWS - 1) / NAVQ_ROWS, 1, sample_range, &job);
}

void navq_count_sample(const Navq *navq, int64_t rows) {
  int64_t d = group_width(navq);
  if (is_narrow(navq)) return;
  for (int64_t g = 0; navq->kind != NOISE_DIAGONAL && g < navq->groups; g++)
    for (int64_t from = 0; from < d; from += SAMPLE_COLUMNS) {
      int64_t to = number_lesser(d, from + SAMPLE_COLUMNS);
      matmul_count_only(rows, to - from, to);
    }
}

/* ---- Sums of several processes ---- */

int64_t residual_sums_count(const Navq *navq) { return navq->width + spread_size(navq) + (navq->kind == NOISE_RESTORED ? navq->width : 0); }

typedef struct TakeJob {
  const Navq *navq;
  const real *x, *q; /* [rows, W] */
  int64_t rows;
  real *residual, *sums; /* [rows, W] about p; S1 [W], S2, S3 [W] */
} TakeJob;

static void take_columns(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  const TakeJob *job = context;
  int64_t width = job->navq->width;
  for (int64_t from = begin; from < end; from += COLUMNS) {
    int64_t columns = end - from < COLUMNS ? end - from : COLUMNS;
    double sum[COLUMNS] = {0}, squares[COLUMNS] = {0}, quantised[COLUMNS] = {0};
    for (int64_t r = 0; r < job->rows; r++)
      for (int64_t j = 0; j < columns; j++) {
        int64_t i = r * width + from + j;
        real value = job->x[i] - job->q[i] - job->navq->mean[from + j];
        job->residual[i] = value;
        sum[j] += (double)value;
        squares[j] += (double)value * (double)value;
        quantised[j] += (double)job->q[i];
      }
    for (int64_t j = 0; j < columns; j++) {
      job->sums[from + j] = (real)sum[j];
      if (job->navq->kind == NOISE_DIAGONAL) job->sums[width + from + j] = (real)squares[j];
      if (job->navq->kind == NOISE_RESTORED) job->sums[width + width * width + from + j] = (real)quantised[j];
    }
  }
}

static void take_products(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  const TakeJob *job = context;
  int64_t d = group_width(job->navq), width = job->navq->width;
  const bool restored = job->navq->kind == NOISE_RESTORED;
  for (int64_t g = begin; g < end; g++) {
    const real *residual = job->residual + g * d;
    real *squares = job->sums + width + g * d * d;
    matmul_single(true, false, d, d, job->rows, 1, residual, width, restored ? job->x : residual, width, 0, squares, d);
    if (restored) matmul_single(true, false, d, d, job->rows, 1, job->q, width, residual, width, 1, squares, d);
  }
}

void residual_sums_take(const Navq *navq, const real *x, const real *q, int64_t rows, real *sums, void *scratch) {
  TakeJob job = {navq, x, q, rows, scratch, sums};
  memset(sums, 0, (size_t)residual_sums_count(navq) * sizeof *sums);
  if (rows <= 0) return;
  threads_for(navq->width, COLUMNS, take_columns, &job);
  if (navq->kind != NOISE_DIAGONAL) threads_for(navq->groups, 1, take_products, &job);
}

typedef struct ApplyJob {
  Navq *navq;
  const real *mean; /* [W] S1 / n */
  const real *squares;
  double rows, gain;
} ApplyJob;

/* What S2 / n has too much since the sums were not about the batch's means. */
static double excess(const ApplyJob *job, int64_t row, int64_t column) {
  const Navq *navq = job->navq;
  const double mean = (double)job->mean[row], other = (double)job->mean[column];
  if (navq->kind != NOISE_RESTORED) return mean * other;
  const real *quantised = job->squares + spread_size(navq);
  return mean * ((double)quantised[column] / job->rows + other + (double)navq->mean[column]) + (double)quantised[row] / job->rows * other;
}

static void apply_range(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  const ApplyJob *job = context;
  Navq *navq = job->navq;
  int64_t d = group_width(navq);
  for (int64_t i = begin; i < end; i++) {
    int64_t row = navq->kind != NOISE_DIAGONAL ? i / d : i, column = navq->kind != NOISE_DIAGONAL ? i / (d * d) * d + i % d : i;
    double spread = (double)job->squares[i] / job->rows - excess(job, row, column);
    navq->covariance[i] = (real)((1 - job->gain) * (double)navq->covariance[i] + job->gain * spread);
  }
}

void residual_sums_apply(Navq *navq, real *sums, int64_t rows) {
  if (rows <= 0) return;
  ApplyJob job = {
      .navq = navq, .mean = sums, .squares = sums + navq->width, .rows = (double)rows, .gain = navq->updates == 0 ? 1 : 1 - navq->decay};
  for (int64_t j = 0; j < navq->width; j++) sums[j] = (real)((double)sums[j] / job.rows);
  threads_for(spread_size(navq), BLEND_GRAIN, apply_range, &job);
  for (int64_t j = 0; j < navq->width; j++) /* blend(mean, p + S1 / n) with p = mean */
    navq->mean[j] = (real)((double)navq->mean[j] + job.gain * (double)sums[j]);
  if (navq->refresh < 1 || navq->updates % navq->refresh == 0) factorise(navq);
  navq->updates++;
}
