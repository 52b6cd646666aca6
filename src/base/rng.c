/* xoshiro256** seeded through splitmix64, and the distributions built on it. Leaves out: secrets (use the system's generator).
 * Invariant: a call uses the state only, never another call's leftovers, so that a stored state resumes the sequence exactly. */
#include "base/rng.h"
#include <math.h>

static uint64_t rotate(uint64_t x, int k) { return (x << k) | (x >> (64 - k)); }

static uint64_t mix(uint64_t z) { /* the finaliser of splitmix64; mix(0) is 0 */
  z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
  return z ^ (z >> 31);
}

/* Stream 0 is the seeding that the authors publish. */
void rng_init(Rng *rng, uint64_t seed, uint64_t stream) {
  uint64_t x = seed ^ mix(stream);
  for (int i = 0; i < 4; i++) rng->state[i] = mix(x += UINT64_C(0x9e3779b97f4a7c15));
}

uint64_t rng_next(Rng *rng) {
  uint64_t *s = rng->state;
  uint64_t result = rotate(s[1] * 5, 7) * 9, t = s[1] << 17;
  s[2] ^= s[0];
  s[3] ^= s[1];
  s[1] ^= s[2];
  s[0] ^= s[3];
  s[2] ^= t;
  s[3] = rotate(s[3], 45);
  return result;
}

double rng_uniform(Rng *rng) { return (double)(rng_next(rng) >> 11) * 0x1p-53; }

/* Draws below 2^64 mod bound are refused, so that every remainder is left equally often. */
uint64_t rng_below(Rng *rng, uint64_t bound) {
  uint64_t refused = (0 - bound) % bound, draw;
  do draw = rng_next(rng);
  while (draw < refused);
  return draw % bound;
}

double rng_normal(Rng *rng) {
  double x, y, square;
  do {
    x = 2 * rng_uniform(rng) - 1;
    y = 2 * rng_uniform(rng) - 1;
    square = x * x + y * y;
  } while (square >= 1 || square == 0);
  return x * sqrt(-2 * log(square) / square);
}

double rng_gamma(Rng *rng, double shape) {
  if (shape < 1) {
    double scale = pow(1 - rng_uniform(rng), 1 / shape);
    return rng_gamma(rng, shape + 1) * scale;
  }
  double d = shape - 1.0 / 3, c = 1 / sqrt(9 * d);
  for (;;) {
    double x = rng_normal(rng), v = 1 + c * x;
    if (v <= 0) continue;
    v = v * v * v;
    if (log(1 - rng_uniform(rng)) < 0.5 * x * x + d - d * v + d * log(v)) return d * v;
  }
}

void rng_shuffle(Rng *rng, int32_t *list, int64_t count) {
  for (int64_t i = count - 1; i > 0; i--) {
    int64_t j = (int64_t)rng_below(rng, (uint64_t)i + 1);
    int32_t kept = list[i];
    list[i] = list[j];
    list[j] = kept;
  }
}
