/* Pseudo-random numbers: xoshiro256** (Blackman and Vigna), seeded through splitmix64.
 * The state is a plain value: copy it to fork a sequence, store it to resume one. Not for secrets. */
#ifndef BASE_RNG_H
#define BASE_RNG_H
#include <stdint.h>

typedef struct Rng {
  uint64_t state[4];
} Rng;

/* Streams of one seed are independent of each other: give each purpose its own number. */
void rng_init(Rng *rng, uint64_t seed, uint64_t stream);
uint64_t rng_next(Rng *rng);
double rng_uniform(Rng *rng);                             /* [0, 1) */
uint64_t rng_below(Rng *rng, uint64_t bound);             /* [0, bound), unbiased; bound > 0 */
double rng_normal(Rng *rng);                              /* mean 0, variance 1 (polar method, no state kept) */
double rng_gamma(Rng *rng, double shape);                 /* Marsaglia and Tsang; shape > 0, scale 1 */
void rng_shuffle(Rng *rng, int32_t *list, int64_t count); /* Fisher-Yates */

#endif
