/* Arithmetic of interleaving. */
#include "infer/wire/interleave.h"
#include "infer/wire/packet.h"
#include <math.h>

int64_t interleave_count(int64_t tokens, int packets, int index) { return index < tokens ? (tokens - index + packets - 1) / packets : 0; }

int interleave_packets(int64_t tokens, double token_bits, size_t most, int least) {
  double fit = floor(8 * (double)most / token_bits); /* tokens of a packet */
  if (fit < 1 || tokens < 1) return 0;
  int64_t packets = fit >= (double)tokens ? 1 : (tokens + (int64_t)fit - 1) / (int64_t)fit;
  if (packets < least) packets = least < tokens ? least : tokens;
  return packets <= PACKETS_MOST ? (int)packets : 0;
}
