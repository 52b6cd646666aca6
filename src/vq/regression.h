/* Least squares: what rows tell, linearly, of other rows. */
#ifndef VQ_REGRESSION_H
#define VQ_REGRESSION_H
#include "autograd/real.h"
#include "base/status.h"
#include <stdint.h>

/* The weight B and bias b that minimise sum |y - B x - b|^2 + ridge |B|^2, ridge a ten-thousandth of the mean variance of x's numbers per
 * row; y becomes y - B x - b. x [count, inputs], y [count, outputs], weight [outputs, inputs] (a row for each number of y), bias [outputs].
 * NO_MEMORY; NUMERIC where numbers are not finite. */
Status regression_fit(const real *x, real *y, int64_t count, int64_t inputs, int64_t outputs, double *weight, double *bias);

#endif
