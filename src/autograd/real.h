/* The number that the engine computes with: float, or double when compiled with -DASTRA_DOUBLE (gradient checks, golden files). */
#ifndef AUTOGRAD_REAL_H
#define AUTOGRAD_REAL_H

#ifdef ASTRA_DOUBLE
typedef double real;
#define REAL_IS_DOUBLE 1
#else
typedef float real;
#define REAL_IS_DOUBLE 0
#endif

#endif
