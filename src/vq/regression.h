/* Least squares: what rows tell, linearly, of other rows. */
#ifndef VQ_REGRESSION_H
#define VQ_REGRESSION_H
#include "autograd/real.h"
#include "base/status.h"
#include <stdint.h>

/* The weight B and bias b that minimise sum |y - B x - b|^2 + ridge |B|^2, ridge a ten-thousandth of the mean variance of x's numbers per
 * row; y becomes y - B x - b. x, y [count, W], weight [W, W] (a row for each number of y), bias [W]. NO_MEMORY; NUMERIC where numbers are
 * not finite. */
Status regression_fit(const real *x, real *y, int64_t count, int64_t width, double *weight, double *bias);

#endif
