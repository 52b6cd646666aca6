/* Sealing: the key schedule is made once, each datagram only sets the nonce. */
#include "infer/transport/seal.h"
#include "infer/transport/packet.h"
#include "infer/wire.h"
#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>

struct Seal {
  EVP_CIPHER_CTX *context;
  uint8_t iv[SEAL_IV];
};

Status seal_new(Seal **out, const uint8_t key[SEAL_KEY + SEAL_IV], bool closes) {
  Seal *seal = *out = calloc(1, sizeof *seal);
  if (!seal) return status_no_memory(NULL, "a seal");
  memcpy(seal->iv, key + SEAL_KEY, SEAL_IV);
  EVP_CIPHER *cipher = EVP_CIPHER_fetch(NULL, "AES-256-GCM", NULL);
  seal->context = EVP_CIPHER_CTX_new();
  bool ready = cipher && seal->context &&
               (closes ? EVP_EncryptInit_ex2(seal->context, cipher, key, NULL, NULL)
                       : EVP_DecryptInit_ex2(seal->context, cipher, key, NULL, NULL)) == 1;
  EVP_CIPHER_free(cipher);
  if (ready) return STATUS_OK;
  seal_free(seal);
  *out = NULL;
  return status_set(STATUS_UNSUPPORTED, "this OpenSSL cannot do AES-256-GCM");
}

void seal_free(Seal *seal) {
  if (!seal) return;
  EVP_CIPHER_CTX_free(seal->context);
  free(seal);
}

static void make_nonce(const Seal *seal, uint64_t sequence, uint8_t nonce[SEAL_IV]) {
  memcpy(nonce, seal->iv, SEAL_IV);
  for (int i = 0; i < 8; i++) nonce[SEAL_IV - 1 - i] ^= (uint8_t)(sequence >> 8 * i);
}

/* Seals text [bytes] in place; clear [DATAGRAM_HEAD] is authenticated, but not encrypted. */
static Status seal_text(Seal *seal, uint64_t sequence, const uint8_t *clear, uint8_t *text, size_t bytes, uint8_t tag[SEAL_TAG]) {
  uint8_t nonce[SEAL_IV];
  int n;
  make_nonce(seal, sequence, nonce);
  bool closed = EVP_EncryptInit_ex2(seal->context, NULL, NULL, nonce, NULL) == 1 &&
                EVP_EncryptUpdate(seal->context, NULL, &n, clear, DATAGRAM_HEAD) == 1 &&
                EVP_EncryptUpdate(seal->context, text, &n, text, (int)bytes) == 1 &&
                EVP_EncryptFinal_ex(seal->context, text + n, &n) == 1 &&
                EVP_CIPHER_CTX_ctrl(seal->context, EVP_CTRL_AEAD_GET_TAG, SEAL_TAG, tag) == 1;
  return closed ? STATUS_OK : status_set(STATUS_IO, "a datagram cannot be sealed");
}

/* Opens text in place; false: it is not what was sealed under this number, and text is undefined. */
static bool open_text(Seal *seal, uint64_t sequence, const uint8_t *clear, uint8_t *text, size_t bytes, const uint8_t tag[SEAL_TAG]) {
  uint8_t nonce[SEAL_IV], expected[SEAL_TAG];
  int n;
  make_nonce(seal, sequence, nonce);
  memcpy(expected, tag, SEAL_TAG);
  return EVP_DecryptInit_ex2(seal->context, NULL, NULL, nonce, NULL) == 1 &&
         EVP_DecryptUpdate(seal->context, NULL, &n, clear, DATAGRAM_HEAD) == 1 &&
         EVP_DecryptUpdate(seal->context, text, &n, text, (int)bytes) == 1 &&
         EVP_CIPHER_CTX_ctrl(seal->context, EVP_CTRL_AEAD_SET_TAG, SEAL_TAG, expected) == 1 &&
         EVP_DecryptFinal_ex(seal->context, text + n, &n) == 1;
}

/* ---- datagrams */

enum { FIRST = WIRE_VERSION << 4 | 1 };

Status datagram_close(DatagramSender *sender, const uint8_t *packet, size_t bytes, uint8_t *datagram) {
  uint64_t sequence = ++sender->sequence;
  if (sequence >> 48) return status_set(STATUS_UNSUPPORTED, "the numbers of datagrams are used up");
  datagram[0] = FIRST;
  datagram[1] = sender->self;
  for (int i = 0; i < 6; i++) datagram[2 + i] = (uint8_t)(sequence >> 8 * i);
  memcpy(datagram + DATAGRAM_HEAD, packet, bytes);
  return seal_text(sender->seal, sequence, datagram, datagram + DATAGRAM_HEAD, bytes, datagram + DATAGRAM_HEAD + bytes);
}

int datagram_sender(const uint8_t *datagram, size_t size) {
  return size >= DATAGRAM_AROUND + PACKET_HEADER && datagram[0] == FIRST ? datagram[1] : -1;
}

/* The window is a ring of one word more than it is wide, so that the word being filled is never counted. */
uint8_t *datagram_open(DatagramReceiver *receiver, uint8_t *datagram, size_t size, size_t *bytes) {
  ReplayWindow *window = &receiver->window;
  uint64_t sequence = 0;
  for (int i = 0; i < 6; i++) sequence |= (uint64_t)datagram[2 + i] << 8 * i;
  *bytes = size - DATAGRAM_AROUND;
  uint8_t *packet = datagram + DATAGRAM_HEAD;
  if (sequence == 0 || sequence + REPLAY_WINDOW <= window->max) return NULL;
  if (sequence <= window->max && window->bits[sequence / 64 % REPLAY_WORDS] >> sequence % 64 & 1) return NULL; /* seen before */
  if (!open_text(receiver->seal, sequence, datagram, packet, *bytes, packet + *bytes)) return NULL;
  uint64_t from = window->max / 64 + 1, to = sequence / 64;
  if (to >= from + REPLAY_WORDS) from = to - REPLAY_WORDS + 1;
  for (uint64_t word = from; word <= to; word++) window->bits[word % REPLAY_WORDS] = 0;
  window->bits[sequence / 64 % REPLAY_WORDS] |= (uint64_t)1 << sequence % 64;
  if (sequence > window->max) window->max = sequence;
  return packet;
}
