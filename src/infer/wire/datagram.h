/* The bytes of a sealed datagram (docs/FORMATS.md):
 *
 *   0 version << 4 | 1, u8 | 1 sender u8 | 2 sequence u48 | 8 sealed packet | tag 16
 *
 * The first eight are clear and signed. Every pair of devices has a key for each direction. */
#ifndef INFER_DATAGRAM_H
#define INFER_DATAGRAM_H
#include "infer/wire/replay_window.h"
#include "infer/wire/seal.h"

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

/* Who claims to have sent it; -1: it is no datagram of ours. */
int datagram_sender(const uint8_t *datagram, size_t size);

/* The packet, opened in place, or NULL: forged, damaged, or seen before. */
uint8_t *datagram_open(DatagramReceiver *receiver, uint8_t *datagram, size_t size, size_t *bytes);

#endif
