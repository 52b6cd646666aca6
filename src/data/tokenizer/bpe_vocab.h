/* The two tables of a byte-pair vocabulary, and the alphabet that its files are written in: the bytes of each id and the id of given bytes
 * (BpePieces); which two neighbours may be merged, how early and into what (BpePairs). */
#ifndef DATA_BPE_VOCAB_H
#define DATA_BPE_VOCAB_H
#include "base/status.h"
#include <stdbool.h>
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

typedef struct BpePieces {
  int32_t count; /* ids are 0 .. count - 1 */
  char *text;    /* bytes of all pieces, a NUL behind each */
  size_t used, room;
  size_t *starts;  /* [count] into text */
  uint32_t *sizes; /* [count] */
  bool *present;   /* [count] */
  int32_t *slots;  /* [mask + 1]: open addressing, linear probing; -1: free */
  size_t mask;
} BpePieces;

/* Room for ids 0 .. count - 1, none of them present. Release with bpe_pieces_release, also after a failure. BAD_FILE: a count that is not
 * in 1 .. 2^24. */
Status bpe_pieces_init(BpePieces *pieces, int64_t count);
void bpe_pieces_release(BpePieces *pieces); /* accepts a zeroed one */

/* The bytes of an id (copied; any bytes, at least one). `findable`: bpe_pieces_find finds it; special tokens are not, so that plain text
 * never becomes one. BAD_FILE: id out of range or given twice, no bytes, or bytes that a findable piece has already. */
Status bpe_pieces_put(BpePieces *pieces, int64_t id, const char *bytes, size_t size, bool findable);

/* BAD_FILE: an id has no piece; the message names the first. */
Status bpe_pieces_check_whole(const BpePieces *pieces);

/* The id of exactly these bytes, or -1. */
int32_t bpe_pieces_find(const BpePieces *pieces, const char *bytes, size_t size);

/* The bytes of an id that is present; a NUL stands behind them. Valid until the next put. */
static inline const char *bpe_pieces_text(const BpePieces *pieces, int32_t id, size_t *size) {
  *size = pieces->sizes[id];
  return pieces->text + pieces->starts[id];
}

/* A piece for messages: quoted, bytes that are not printable ASCII as \xNN, cut after a few dozen characters. */
enum { BPE_PIECES_SHOWN = 96 };
const char *bpe_pieces_show(const char *bytes, size_t size, char shown[BPE_PIECES_SHOWN]);

/* Bytes -> UTF-8 text of the alphabet, NUL-terminated; `text` has room for 2 size + 1. Returns its length. */
size_t bpe_alphabet_write(const char *bytes, size_t size, char *text);

/* Text of the alphabet -> bytes, of which there are at most as many as in the text; in place is allowed. BAD_FILE: a character that is not
 * in the alphabet. */
Status bpe_alphabet_read(const char *text, size_t size, char *bytes, size_t *count);

/* The n-th byte of the alphabet in the order of its characters, which is the order of GPT-2's first 256 ids. */
unsigned char bpe_alphabet_byte(int n);

#define BPE_NO_RANK UINT32_MAX /* the pair cannot be merged */

typedef struct BpePair {
  uint64_t key;  /* left << 32 | right; all ones: free */
  uint32_t rank; /* lower merges earlier; below BPE_NO_RANK */
  int32_t id;    /* what the two become */
} BpePair;

/* Open addressing, linear probing, at most half full. */
typedef struct BpePairs {
  BpePair *slots; /* [mask + 1] */
  size_t mask, count;
} BpePairs;

/* Room for `expected` pairs; it grows. Release with bpe_pairs_release, also after a failure. */
Status bpe_pairs_init(BpePairs *pairs, size_t expected);
void bpe_pairs_release(BpePairs *pairs); /* accepts a zeroed one */

/* Adds a pair; *fresh is false, and nothing changes, when it is there already. */
Status bpe_pairs_add(BpePairs *pairs, int32_t left, int32_t right, uint32_t rank, int32_t id, bool *fresh);

/* The pair, or NULL. Valid until the next add. */
const BpePair *bpe_pairs_find(const BpePairs *pairs, int32_t left, int32_t right);

#endif
