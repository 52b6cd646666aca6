/* Philox4x32-10 (Salmon et al., 2011): a counter and a key give four random words. The constants, and the scalar form. */
#ifndef AUTOGRAD_PHILOX_H
#define AUTOGRAD_PHILOX_H
#include <stdint.h>

#define PHILOX_MULTIPLIER_0 0xD2511F53u
#define PHILOX_MULTIPLIER_2 0xCD9E8D57u
#define PHILOX_KEY_STEP_0   0x9E3779B9u
#define PHILOX_KEY_STEP_1   0xBB67AE85u
enum { PHILOX_ROUNDS = 10, PHILOX_WORDS = 4 };

static inline void philox(uint64_t key, uint64_t counter, uint32_t word[PHILOX_WORDS]) {
  uint32_t key0 = (uint32_t)key, key1 = (uint32_t)(key >> 32);
  uint32_t w0 = (uint32_t)counter, w1 = (uint32_t)(counter >> 32), w2 = 0, w3 = 0;
  for (int round = 0; round < PHILOX_ROUNDS; round++) {
    const uint64_t p0 = (uint64_t)PHILOX_MULTIPLIER_0 * w0, p2 = (uint64_t)PHILOX_MULTIPLIER_2 * w2;
    w0 = (uint32_t)(p2 >> 32) ^ w1 ^ key0;
    w1 = (uint32_t)p2;
    w2 = (uint32_t)(p0 >> 32) ^ w3 ^ key1;
    w3 = (uint32_t)p0;
    key0 += PHILOX_KEY_STEP_0;
    key1 += PHILOX_KEY_STEP_1;
  }
  word[0] = w0, word[1] = w1, word[2] = w2, word[3] = w3;
}

#endif
