/* Eigenvalues of symmetric matrices: see eigen.h. */
#include "autograd/kernels/eigen.h"
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

/* LAPACK's divide and conquer, as Fortran is called: the lengths of the two texts come last. */
void dsyevd_(const char *jobz, const char *uplo, const int *n, double *a, const int *lda, double *w, double *work, const int *lwork,
             int *iwork, const int *liwork, int *info, size_t jobz_length, size_t uplo_length);

Status eigen_symmetric(int64_t count, double *a, double *values) {
  enum { MOST = 32766 }; /* columns: LAPACK's sizes are ints */
  if (count > MOST) return status_set(STATUS_UNSUPPORTED, "eigenvalues of a matrix of %lld columns: at most %d", (long long)count, MOST);
  const int n = (int)count, work_size = 1 + 6 * n + 2 * n * n, int_size = 3 + 5 * n;
  for (int64_t i = 0; i < count * count; i++)
    if (!isfinite(a[i])) return status_set(STATUS_NUMERIC, "eigenvalues of a matrix whose numbers are not finite");
  double *work = malloc((size_t)work_size * sizeof *work);
  int *ints = malloc((size_t)int_size * sizeof *ints), info = -1;
  if (work != NULL && ints != NULL) dsyevd_("V", "L", &n, a, &n, values, work, &work_size, ints, &int_size, &info, 1, 1);
  const bool memory = work != NULL && ints != NULL;
  free(work);
  free(ints);
  if (!memory) return status_no_memory(NULL, "eigenvalues");
  if (info != 0) return status_set(STATUS_NUMERIC, "LAPACK finds no eigenvalues of a matrix of %d columns", n);
  for (int64_t row = 0; row < count; row++) { /* its columns are our rows */
    double *vector = a + row * count;
    int64_t largest = 0;
    for (int64_t i = 1; i < count; i++)
      if (fabs(vector[i]) > fabs(vector[largest]) * (1 + 1e-9)) largest = i;
    const double sign = vector[largest] < 0 ? -1 : 1;
    for (int64_t i = 0; i < count; i++) vector[i] *= sign;
  }
  return STATUS_OK;
}

Status eigen_add_positive_part(int64_t n, double *a, double *to) {
  double *values = malloc((size_t)n * sizeof *values);
  if (values == NULL) return status_no_memory(NULL, "eigenvalues");
  const Status status = eigen_symmetric(n, a, values);
  for (int64_t k = 0; status == STATUS_OK && k < n; k++) { /* row k of a is the vector of value k */
    const double *vector = a + k * n;
    for (int64_t i = 0; values[k] > 0 && i < n; i++)
      for (int64_t j = 0; j < n; j++) to[i * n + j] += values[k] * vector[i] * vector[j];
  }
  free(values);
  return status;
}
