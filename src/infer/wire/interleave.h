/* Which tokens of a group are in which packet: packet f of F has tokens f, f + F, f + 2 F... so that a lost packet leaves gaps, not a hole.
 */
#ifndef INFER_INTERLEAVE_H
#define INFER_INTERLEAVE_H
#include <stddef.h>
#include <stdint.h>

/* F, so that no packet's tokens take more than `most` bytes, at least `least` of them where there are tokens enough. 0: a single token does
 * not fit, or there would be more than PACKETS_MOST. */
int interleave_packets(int64_t tokens, double token_bits, size_t most, int least);

/* The least number of packets of a part, of a block that has at least `least` to a receiver: never one alone where a block's would not be,
 * or a lost one would be a hole. */
static inline int interleave_least(int least, int parts) {
  int each = (least + parts - 1) / parts;
  return each < 2 && least > 1 ? 2 : each;
}

/* Tokens of packet `index`: none has more than packet 0. */
int64_t interleave_count(int64_t tokens, int packets, int index);

/* The i-th token of packet `index`. */
static inline int64_t interleave_token(int packets, int index, int64_t i) { return index + i * packets; }

#endif
