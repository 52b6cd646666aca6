/* Xor. */
#include "infer/wire/parity.h"

void parity_add(uint8_t *parity, const uint8_t *payload, size_t bytes) {
  parity[0] ^= (uint8_t)bytes;
  parity[1] ^= (uint8_t)(bytes >> 8);
  for (size_t i = 0; i < bytes; i++) parity[PARITY_HEAD + i] ^= payload[i];
}

size_t parity_length(const uint8_t *parity) { return (size_t)(parity[0] | parity[1] << 8); }
