/* Datagrams that only their receiver can read and only their sender can have created: AES-256-GCM (NIST SP 800-38D) over OpenSSL. Every
 * pair of devices has a key for each direction. The nonce of a datagram is its sequence number, xored into the last eight bytes of an iv
 * that both sides know; a number is never used twice with a key. Its bytes (docs/FORMATS.md):
 *
 *   0 version << 4 | 1, u8 | 1 sender u8 | 2 sequence u48 | 8 sealed packet | tag 16
 *
 * The first eight bytes are in clear and authenticated. One thread. */
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

/* Which sequence numbers of a sender have been seen: the last REPLAY_WINDOW of them, older ones count as seen (RFC 6479's idea: a ring of
 * words of bits, of which whole words are cleared as it moves on). A number is noted only once its datagram has proved genuine. Numbers
 * begin with 1; zeroed: nothing has been seen. */
enum { REPLAY_WINDOW = 2048, REPLAY_WORDS = REPLAY_WINDOW / 64 + 1 };

typedef struct ReplayWindow {
  uint64_t max; /* the largest noted; 0: none */
  uint64_t bits[REPLAY_WORDS];
} ReplayWindow;

enum { DATAGRAM_HEAD = 8, DATAGRAM_AROUND = DATAGRAM_HEAD + SEAL_TAG };

typedef struct DatagramSender {
  Seal *seal;
  uint8_t self;
  uint64_t sequence; /* the last one used */
} DatagramSender;

typedef struct DatagramReceiver {
  Seal *seal;
  ReplayWindow window;
} DatagramReceiver;

/* packet [bytes] -> datagram [DATAGRAM_AROUND + bytes], under the next number. UNSUPPORTED after 2^48 of them. */
Status datagram_close(DatagramSender *sender, const uint8_t *packet, size_t bytes, uint8_t *datagram);

/* The sender that it names; -1: no datagram of this format. */
int datagram_sender(const uint8_t *datagram, size_t size);

/* The packet, opened in place, or NULL: forged, damaged, or seen before. */
uint8_t *datagram_open(DatagramReceiver *receiver, uint8_t *datagram, size_t size, size_t *bytes);

#endif
