/* What every test of src/vq includes: cmocka with the headers that it needs first, and comparison of numbers. */
#ifndef TESTS_VQ_CHECK_H
#define TESTS_VQ_CHECK_H
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define CHECK_NEAR(got, wanted, tolerance)                                                                                                 \
  do {                                                                                                                                     \
    double check_got = (double)(got), check_wanted = (double)(wanted), check_tolerance = (double)(tolerance);                              \
    if (!(fabs(check_got - check_wanted) <= check_tolerance))                                                                              \
      fail_msg("%s: got %.12g, wanted %.12g within %g", #got, check_got, check_wanted, check_tolerance);                                   \
  } while (0)

#endif
