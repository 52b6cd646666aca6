/* Nearest codeword by a search in 8 bits and an exact check: the codes are those of a search in float, at up to four times its rate.
 *
 * Codewords e and rows x are taken about the mean m of the codewords and rounded to multiples of a step: e - m = s E + r with E in
 * [-127, 127], likewise x - m = t X + u. Then x.e - |e|^2 / 2 = s t X.E + c_e + (x - m).r + u.(s E) + a number that is the same for all
 * codewords, and by Cauchy-Schwarz the rest is at most |x - m| max|r| + |u| max|s E|. Dot products of bytes give s t X.E + c_e for all
 * codewords; those within twice that bound of the best (a few) are compared in float, with the roundings of the search in float bounded
 * too. Who is nearest therefore never depends on the 8 bits. */
#ifndef AUTOGRAD_NEAREST_PACKED_H
#define AUTOGRAD_NEAREST_PACKED_H
#include "autograd/real.h"
#include <stddef.h>
#include <stdint.h>

/* A group's codewords as the search wants them, in memory of the caller aligned to 64 bytes. */
typedef struct NearestPack NearestPack;

/* kernels_native()->nearest_packed: NULL where the processor lacks the instructions (AVX-512 VNNI) or another table of kernels was chosen;
 * and in double builds. */
typedef struct NearestPacked {
  /* Bytes of the pack of k words of width d, and of the working memory of a search (each thread its own); multiples of 64. 0 where k and d
   * are outside of what is served. */
  size_t (*pack_bytes)(int64_t k, int64_t d);
  size_t (*search_bytes)(int64_t k, int64_t d);
  /* words [k, d] with half_norm [k] = |e|^2 / 2; both are read again by search. */
  void (*pack)(int64_t k, int64_t d, const real *words, const real *half_norm, NearestPack *pack);
  /* codes[r stride] = index of the word nearest to row r of x [rows, d], rows `ldx` apart: the lowest index among equals. Up to
   * NEAREST_MAX_WIDTH the same codes as nearest_words of the same table, bit for bit; in wider groups those of sums in float whose order
   * depends only on d. Any numbers are accepted; rows that are not finite, or far larger than the codewords, are slow. */
  void (*search)(const NearestPack *pack, int64_t rows, const real *x, int64_t ldx, int32_t *codes, int64_t stride, void *memory);
} NearestPacked;

#endif
