/* Shares of a batch's noise moments: see residual_sums.h. */
#include "vq/residual_sums.h"
#include "autograd/kernels/matmul.h"
#include "base/threads.h"
#include <string.h>

enum { COLUMNS = 64, GRAIN = 4096 };

static int64_t group_width(const Navq *navq) { return navq->width / navq->groups; }
static int64_t spread_size(const Navq *navq) { return navq->kind == NOISE_FULL ? navq->width * group_width(navq) : navq->width; }

int64_t residual_sums_count(const Navq *navq) { return navq->width + spread_size(navq); }

typedef struct TakeJob {
  const Navq *navq;
  const real *x, *q; /* [rows, W] */
  int64_t rows;
  real *residual, *sums; /* [rows, W] about p; [W], behind which the squares begin */
} TakeJob;

static void take_columns(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  const TakeJob *job = context;
  int64_t width = job->navq->width;
  for (int64_t from = begin; from < end; from += COLUMNS) {
    int64_t columns = end - from < COLUMNS ? end - from : COLUMNS;
    double sum[COLUMNS] = {0}, squares[COLUMNS] = {0};
    for (int64_t r = 0; r < job->rows; r++)
      for (int64_t j = 0; j < columns; j++) {
        int64_t i = r * width + from + j;
        real value = job->x[i] - job->q[i] - job->navq->mean[from + j];
        job->residual[i] = value;
        sum[j] += (double)value;
        squares[j] += (double)value * (double)value;
      }
    for (int64_t j = 0; j < columns; j++) {
      job->sums[from + j] = (real)sum[j];
      if (job->navq->kind == NOISE_DIAGONAL) job->sums[width + from + j] = (real)squares[j];
    }
  }
}

static void take_products(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  const TakeJob *job = context;
  int64_t d = group_width(job->navq), width = job->navq->width;
  for (int64_t g = begin; g < end; g++) {
    const real *residual = job->residual + g * d;
    matmul_single(true, false, d, d, job->rows, 1, residual, width, residual, width, 0, job->sums + width + g * d * d, d);
  }
}

void residual_sums_take(const Navq *navq, const real *x, const real *q, int64_t rows, real *sums, void *scratch) {
  TakeJob job = {navq, x, q, rows, scratch, sums};
  memset(sums, 0, (size_t)residual_sums_count(navq) * sizeof *sums);
  if (rows <= 0) return;
  threads_for(navq->width, COLUMNS, take_columns, &job);
  if (navq->kind == NOISE_FULL) threads_for(navq->groups, 1, take_products, &job);
}

/* ---- */

typedef struct ApplyJob {
  Navq *navq;
  const real *mean; /* [W] S1 / n */
  const real *squares;
  double rows, gain;
} ApplyJob;

static void apply_range(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  const ApplyJob *job = context;
  Navq *navq = job->navq;
  int64_t d = group_width(navq);
  for (int64_t i = begin; i < end; i++) {
    int64_t row = navq->kind == NOISE_FULL ? i / d : i, column = navq->kind == NOISE_FULL ? i / (d * d) * d + i % d : i;
    double spread = (double)job->squares[i] / job->rows - (double)job->mean[row] * (double)job->mean[column];
    navq->covariance[i] = (real)((1 - job->gain) * (double)navq->covariance[i] + job->gain * spread);
  }
}

void residual_sums_apply(Navq *navq, real *sums, int64_t rows) {
  if (rows <= 0) return;
  ApplyJob job = {
      .navq = navq, .mean = sums, .squares = sums + navq->width, .rows = (double)rows, .gain = navq->updates == 0 ? 1 : 1 - navq->decay};
  for (int64_t j = 0; j < navq->width; j++) sums[j] = (real)((double)sums[j] / job.rows);
  threads_for(spread_size(navq), GRAIN, apply_range, &job);
  for (int64_t j = 0; j < navq->width; j++) /* blend(mean, p + S1 / n) with p = mean */
    navq->mean[j] = (real)((double)navq->mean[j] + job.gain * (double)sums[j]);
  if (navq->refresh < 1 || navq->updates % navq->refresh == 0) navq_factorise(navq);
  navq->updates++;
}
