/* Which records of a training part are held out for validation: a rule that knows neither seed nor order, so that every run, and every
 * later evaluation, means the same records by "5,000 held out". Inside of src/data and its tests only.
 *
 * Class c with n_c of n records gives floor(N n_c / n) of them; the rest of N comes from the classes with the largest fractional parts
 * (lower class first), one each. A class keeps at least one. Within a class the records with the smallest hash of their number
 * (splitmix64's finaliser) are taken. */
#ifndef DATA_HELD_OUT_H
#define DATA_HELD_OUT_H
#include "base/status.h"
#include <stdbool.h>
#include <stdint.h>

/* held[i] = 1 for `wanted` of the records, else 0. labels [count] in [0, classes). BAD_VALUE: the classes cannot spare so many. */
Status held_out_choose(const int32_t *labels, int64_t count, int64_t classes, int64_t wanted, uint8_t *held /* [count] */);

#endif
