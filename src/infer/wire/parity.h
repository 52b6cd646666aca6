/* Forward error correction of a group: packets [p K, (p + 1) K) have a parity packet, whose payload is u16 the xor of their payloads'
 * lengths, then the xor of the payloads, each padded with zeros to the longest. With it one of them that is lost can be made again. Pure
 * functions. */
#ifndef INFER_PARITY_H
#define INFER_PARITY_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PARITY_HEAD = 2 };

/* None of a single packet, which it would only double. covers 0: none at all. */
static inline int parity_packets(int packets, int covers) { return covers > 0 && packets > 1 ? (packets + covers - 1) / covers : 0; }

/* Adds (or takes away, which is the same) a payload; parity [PARITY_HEAD + room], bytes <= room. */
void parity_add(uint8_t *parity, const uint8_t *payload, size_t bytes);

/* The length that is left over when all but one have been taken away. */
size_t parity_length(const uint8_t *parity);

#endif
