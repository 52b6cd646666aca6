/* Hash functions of the tokenizers' tables. Not for secrets. The values depend on the byte order and are never stored. */
#ifndef DATA_BPE_HASH_H
#define DATA_BPE_HASH_H
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Every bit of the number moves every bit of the hash (the finalizer of splitmix64, as in base/rng.c). */
static inline uint64_t bpe_hash_number(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

/* Eight bytes at a time: pieces are short, and a step for each byte would cost more than the look-up. */
static inline uint64_t bpe_hash_bytes(const char *bytes, size_t length) {
  uint64_t hash = length * 0x9e3779b97f4a7c15u, word = 0;
  for (; length >= 8; bytes += 8, length -= 8) {
    memcpy(&word, bytes, 8);
    hash = bpe_hash_number(hash ^ word);
  }
  word = 0;
  memcpy(&word, bytes, length);
  return bpe_hash_number(hash ^ word);
}

/* The smallest power of two that is at least twice `items`: tables stay at most half full. */
static inline size_t bpe_hash_room(size_t items) {
  size_t room = 16;
  while (room < 2 * items) room *= 2;
  return room;
}

#endif
