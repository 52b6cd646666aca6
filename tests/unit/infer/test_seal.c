/* Sealed datagrams: the documented bytes, which AES-256-GCM by itself opens, numbers that are seen once, and refusal of everything that
 * its sender has not made. */
#include "infer/transport/packet.h"
#include "infer/transport/seal.h"
#include "infer/wire.h"
#include <cmocka.h>
#include <openssl/evp.h>
#include <string.h>

typedef struct Ends {
  DatagramSender sender;
  DatagramReceiver receiver;
  uint8_t packet[40];
} Ends;

static uint8_t key[SEAL_KEY + SEAL_IV];

static void open_ends(Ends *ends) {
  for (int i = 0; i < (int)sizeof key; i++) key[i] = (uint8_t)(3 * i + 1);
  *ends = (Ends){.sender = {.self = 5}};
  assert_int_equal(seal_new(&ends->sender.seal, key, true), STATUS_OK);
  assert_int_equal(seal_new(&ends->receiver.seal, key, false), STATUS_OK);
  for (int i = 0; i < (int)sizeof ends->packet; i++) ends->packet[i] = (uint8_t)(i * i);
}

static void close_ends(Ends *ends) {
  seal_free(ends->sender.seal);
  seal_free(ends->receiver.seal);
}

enum { SIZE = DATAGRAM_AROUND + 40 };

static bool opens(Ends *ends, const uint8_t datagram[SIZE], size_t size) {
  uint8_t copy[SIZE];
  size_t bytes;
  memcpy(copy, datagram, size);
  const uint8_t *packet = datagram_open(&ends->receiver, copy, size, &bytes);
  if (packet) assert_true(bytes == sizeof ends->packet && memcmp(packet, ends->packet, bytes) == 0);
  return packet != NULL;
}

static void the_bytes_are_the_documented_ones(void **state) {
  (void)state;
  Ends ends;
  uint8_t datagram[SIZE];
  open_ends(&ends);
  ends.sender.sequence = 0x010203040506;
  assert_int_equal(datagram_close(&ends.sender, ends.packet, sizeof ends.packet, datagram), STATUS_OK);
  assert_memory_equal(datagram, ((const uint8_t[]){WIRE_VERSION << 4 | 1, 5, 7, 5, 4, 3, 2, 1}), 8);
  assert_int_equal(datagram_sender(datagram, SIZE), 5);
  assert_int_equal(datagram_sender(datagram, DATAGRAM_AROUND + PACKET_HEADER - 1), -1);
  assert_true(memcmp(datagram + DATAGRAM_HEAD, ends.packet, sizeof ends.packet) != 0);
  assert_true(opens(&ends, datagram, SIZE));
  assert_false(opens(&ends, datagram, SIZE)); /* replayed */
  ends.sender.sequence = ((uint64_t)1 << 48) - 1;
  assert_int_equal(datagram_close(&ends.sender, ends.packet, sizeof ends.packet, datagram), STATUS_UNSUPPORTED);
  close_ends(&ends);
}

/* The nonce is the iv, whose last eight bytes are xored with the number, the first byte of which is the highest; the eight bytes in front
 * are signed. */
static void aes_gcm_opens_it(void **state) {
  (void)state;
  Ends ends;
  uint8_t datagram[SIZE], nonce[SEAL_IV], text[40];
  int n;
  open_ends(&ends);
  ends.sender.sequence = 0x010203040506;
  assert_int_equal(datagram_close(&ends.sender, ends.packet, sizeof ends.packet, datagram), STATUS_OK);
  memcpy(nonce, key + SEAL_KEY, SEAL_IV);
  for (int i = 0; i < 6; i++) nonce[6 + i] ^= (uint8_t[]){1, 2, 3, 4, 5, 7}[i];
  EVP_CIPHER_CTX *aes = EVP_CIPHER_CTX_new();
  assert_int_equal(EVP_DecryptInit_ex(aes, EVP_aes_256_gcm(), NULL, key, nonce), 1);
  assert_int_equal(EVP_DecryptUpdate(aes, NULL, &n, datagram, DATAGRAM_HEAD), 1);
  assert_int_equal(EVP_DecryptUpdate(aes, text, &n, datagram + DATAGRAM_HEAD, sizeof text), 1);
  assert_int_equal(EVP_CIPHER_CTX_ctrl(aes, EVP_CTRL_AEAD_SET_TAG, SEAL_TAG, datagram + DATAGRAM_HEAD + sizeof text), 1);
  assert_int_equal(EVP_DecryptFinal_ex(aes, text + n, &n), 1);
  assert_memory_equal(text, ends.packet, sizeof text);
  EVP_CIPHER_CTX_free(aes);
  close_ends(&ends);
}

static void every_changed_bit_is_noticed(void **state) {
  (void)state;
  Ends ends;
  uint8_t datagram[SIZE];
  open_ends(&ends);
  assert_int_equal(datagram_close(&ends.sender, ends.packet, sizeof ends.packet, datagram), STATUS_OK);
  for (int bit = 0; bit < 8 * SIZE; bit++) {
    datagram[bit / 8] ^= (uint8_t)(1 << bit % 8);
    assert_false(opens(&ends, datagram, SIZE));
    datagram[bit / 8] ^= (uint8_t)(1 << bit % 8);
  }
  for (size_t size = DATAGRAM_AROUND + PACKET_HEADER; size < SIZE; size++) assert_false(opens(&ends, datagram, size));
  assert_true(opens(&ends, datagram, SIZE)); /* forgeries have not used its number up */
  close_ends(&ends);
}

static void another_key_opens_nothing(void **state) {
  (void)state;
  Ends ends, others;
  uint8_t datagram[SIZE];
  const uint8_t another[SEAL_KEY + SEAL_IV] = {9};
  open_ends(&ends);
  open_ends(&others);
  seal_free(others.receiver.seal);
  assert_int_equal(seal_new(&others.receiver.seal, another, false), STATUS_OK);
  assert_int_equal(datagram_close(&ends.sender, ends.packet, sizeof ends.packet, datagram), STATUS_OK);
  assert_false(opens(&others, datagram, SIZE));
  close_ends(&ends);
  close_ends(&others);
}

/* ---- the window ---- */

/* Whether the datagram of this number comes through. */
static bool comes_through(Ends *ends, uint64_t number) {
  uint8_t datagram[SIZE];
  ends->sender.sequence = number - 1;
  assert_int_equal(datagram_close(&ends->sender, ends->packet, sizeof ends->packet, datagram), STATUS_OK);
  return opens(ends, datagram, SIZE);
}

static void numbers_are_fresh_once(void **state) {
  (void)state;
  Ends ends;
  open_ends(&ends);
  assert_false(comes_through(&ends, 0));
  for (uint64_t n = 1; n < 5000; n++) {
    assert_true(comes_through(&ends, n));
    assert_false(comes_through(&ends, n));
  }
  close_ends(&ends);
}

static void edges_of_the_window(void **state) {
  (void)state;
  Ends ends;
  open_ends(&ends);
  for (uint64_t top = REPLAY_WINDOW; top < REPLAY_WINDOW + 200; top += 13) {
    ends.receiver.window = (ReplayWindow){0};
    assert_true(comes_through(&ends, top));
    assert_false(comes_through(&ends, top - REPLAY_WINDOW));
    for (uint64_t n = top - REPLAY_WINDOW + 1; n < top; n++) {
      assert_true(comes_through(&ends, n));
      assert_false(comes_through(&ends, n));
    }
    assert_true(comes_through(&ends, top + 1));
  }
  close_ends(&ends);
}

/* Against a plain list, with jumps of every size. */
static void any_order(void **state) {
  (void)state;
  enum { NUMBERS = 40000 };
  static bool seen[NUMBERS];
  Ends ends;
  uint64_t max = 0, random = 7;
  memset(seen, 0, sizeof seen);
  open_ends(&ends);
  for (int i = 0; i < 30000; i++) {
    random = random * 6364136223846793005u + 1442695040888963407u;
    uint64_t back = (random >> 33) % 3000,
             sequence = max + (random >> 60) * (random >> 60) > back ? max + (random >> 60) * (random >> 60) - back : 1;
    if (sequence == 0 || sequence >= NUMBERS) continue;
    bool expected = !seen[sequence] && sequence + REPLAY_WINDOW > max;
    assert_int_equal(comes_through(&ends, sequence), expected);
    seen[sequence] |= expected;
    max = sequence > max ? sequence : max;
  }
  assert_true(max > 1000);
  assert_true(comes_through(&ends, (uint64_t)1 << 47)); /* further than the window is wide */
  assert_true(comes_through(&ends, ((uint64_t)1 << 47) - 1));
  assert_false(comes_through(&ends, max));
  close_ends(&ends);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(the_bytes_are_the_documented_ones),
                                     cmocka_unit_test(aes_gcm_opens_it),
                                     cmocka_unit_test(every_changed_bit_is_noticed),
                                     cmocka_unit_test(another_key_opens_nothing),
                                     cmocka_unit_test(numbers_are_fresh_once),
                                     cmocka_unit_test(edges_of_the_window),
                                     cmocka_unit_test(any_order)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
