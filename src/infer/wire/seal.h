/* Datagrams that only their receiver can read and only their sender can have made: AES-256-GCM (NIST SP 800-38D) over OpenSSL. The nonce of
 * a datagram is its sequence number, xored into the last eight bytes of an iv that both sides know; a number is never used twice with a
 * key. One thread. */
#ifndef INFER_SEAL_H
#define INFER_SEAL_H
#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SEAL_KEY = 32, SEAL_IV = 12, SEAL_TAG = 16 };

typedef struct Seal Seal;

/* key [SEAL_KEY | SEAL_IV]. closes: for sending, else for receiving. */
Status seal_new(Seal **seal, const uint8_t key[SEAL_KEY + SEAL_IV], bool closes);
void seal_free(Seal *seal); /* accepts NULL */

/* Seals text [bytes] in place; clear [clear_bytes] is not hidden, but belongs to what is signed. */
Status seal_close(Seal *seal, uint64_t sequence, const uint8_t *clear, size_t clear_bytes, uint8_t *text, size_t bytes,
                  uint8_t tag[SEAL_TAG]);

/* Opens text in place; false: it is not what was sealed under this number, and text is of no use. */
bool seal_open(Seal *seal, uint64_t sequence, const uint8_t *clear, size_t clear_bytes, uint8_t *text, size_t bytes,
               const uint8_t tag[SEAL_TAG]);

#endif
