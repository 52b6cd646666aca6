/* cmocka's assert_float_equal compares floats, takes what lies within a float's precision of each other for equal whatever the tolerance,
 * and a number that is none for equal to everything. This one compares doubles with the tolerance that is given; every test that
 * has an assert_float_equal includes it. */
#ifndef UNIT_FLOAT_EQUAL_H
#define UNIT_FLOAT_EQUAL_H
#include <cmocka.h>
#include <math.h>

static inline void float_equal(double a, double b, double tolerance, const char *file, int line) {
  if (fabs(a - b) <= tolerance || (isinf(a) && a == b)) return;
  print_error("%.17g and %.17g differ by %g, and %g is accepted\n", a, b, fabs(a - b), tolerance);
  _fail(file, line);
}

#undef assert_float_equal
#define assert_float_equal(a, b, tolerance) float_equal((double)(a), (double)(b), (double)(tolerance), __FILE__, __LINE__)

#endif
