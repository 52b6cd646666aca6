/* Sealed datagrams: published vectors of AES-256-GCM, the documented bytes, numbers that are seen once, and refusal of everything that its
 * sender has not made. */
#include "infer/transport/packet.h"
#include "infer/transport/seal.h"
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

static void hex(const char *text, uint8_t *bytes) {
  for (size_t i = 0; text[2 * i]; i++) {
    unsigned value;
    assert_int_equal(sscanf(text + 2 * i, "%2x", &value), 1);
    bytes[i] = (uint8_t)value;
  }
}

/* Test cases 13 and 14 of "The Galois/Counter Mode of Operation" (McGrew and Viega): key, iv and text of zeros. */
static void published_vectors(void **state) {
  (void)state;
  const uint8_t key[SEAL_KEY + SEAL_IV] = {0};
  uint8_t text[16] = {0}, tag[SEAL_TAG], expected[16];
  Seal *seal;
  assert_int_equal(seal_new(&seal, key, true), STATUS_OK);
  assert_int_equal(seal_close(seal, 0, NULL, 0, text, 0, tag), STATUS_OK);
  hex("530f8afbc74536b9a963b4f1c4cb738b", expected);
  assert_memory_equal(tag, expected, 16);
  assert_int_equal(seal_close(seal, 0, NULL, 0, text, 16, tag), STATUS_OK);
  hex("cea7403d4d606b6e074ec5d3baf39d18", expected);
  assert_memory_equal(text, expected, 16);
  hex("d0d1c8a799996bf0265b98b5d48ab919", expected);
  assert_memory_equal(tag, expected, 16);
  seal_free(seal);
}

typedef struct Ends {
  DatagramSender sender;
  DatagramReceiver receiver;
  uint8_t packet[40];
} Ends;

static void open_ends(Ends *ends) {
  uint8_t key[SEAL_KEY + SEAL_IV];
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
  assert_memory_equal(datagram, ((const uint8_t[]){0x41, 5, 7, 5, 4, 3, 2, 1}), 8);
  assert_int_equal(datagram_sender(datagram, SIZE), 5);
  assert_int_equal(datagram_sender(datagram, DATAGRAM_AROUND + PACKET_HEADER - 1), -1);
  assert_true(memcmp(datagram + DATAGRAM_HEAD, ends.packet, sizeof ends.packet) != 0);
  assert_true(opens(&ends, datagram, SIZE));
  assert_false(opens(&ends, datagram, SIZE)); /* replayed */
  ends.sender.sequence = ((uint64_t)1 << 48) - 1;
  assert_int_equal(datagram_close(&ends.sender, ends.packet, sizeof ends.packet, datagram), STATUS_UNSUPPORTED);
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
  uint8_t datagram[SIZE], key[SEAL_KEY + SEAL_IV] = {9};
  open_ends(&ends);
  open_ends(&others);
  seal_free(others.receiver.seal);
  assert_int_equal(seal_new(&others.receiver.seal, key, false), STATUS_OK);
  assert_int_equal(datagram_close(&ends.sender, ends.packet, sizeof ends.packet, datagram), STATUS_OK);
  assert_false(opens(&others, datagram, SIZE));
  close_ends(&ends);
  close_ends(&others);
}

/* ---- the window ---- */

static void numbers_are_fresh_once(void **state) {
  (void)state;
  ReplayWindow window = {0};
  assert_false(replay_window_fresh(&window, 0));
  for (uint64_t n = 1; n < 5000; n++) {
    assert_true(replay_window_fresh(&window, n));
    replay_window_note(&window, n);
    assert_false(replay_window_fresh(&window, n));
  }
}

static void edges_of_the_window(void **state) {
  (void)state;
  for (uint64_t top = REPLAY_WINDOW; top < REPLAY_WINDOW + 200; top += 13) {
    ReplayWindow window = {0};
    replay_window_note(&window, top);
    assert_false(replay_window_fresh(&window, top - REPLAY_WINDOW));
    for (uint64_t n = top - REPLAY_WINDOW + 1; n < top; n++) {
      assert_true(replay_window_fresh(&window, n));
      replay_window_note(&window, n);
      assert_false(replay_window_fresh(&window, n));
    }
    assert_true(replay_window_fresh(&window, top + 1));
  }
}

/* Against a plain list, with jumps of every size. */
static void any_order(void **state) {
  (void)state;
  enum { NUMBERS = 40000 };
  static bool seen[NUMBERS];
  ReplayWindow window = {0};
  uint64_t max = 0, random = 7;
  memset(seen, 0, sizeof seen);
  for (int i = 0; i < 30000; i++) {
    random = random * 6364136223846793005u + 1442695040888963407u;
    uint64_t back = (random >> 33) % 3000,
             sequence = max + (random >> 60) * (random >> 60) > back ? max + (random >> 60) * (random >> 60) - back : 1;
    if (sequence == 0 || sequence >= NUMBERS) continue;
    bool expected = !seen[sequence] && sequence + REPLAY_WINDOW > max;
    assert_int_equal(replay_window_fresh(&window, sequence), expected);
    if (!expected) continue;
    replay_window_note(&window, sequence);
    seen[sequence] = true;
    max = sequence > max ? sequence : max;
  }
  assert_true(max > 1000);
  replay_window_note(&window, (uint64_t)1 << 47); /* further than the window is wide */
  assert_true(replay_window_fresh(&window, ((uint64_t)1 << 47) - 1));
  assert_false(replay_window_fresh(&window, max));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(published_vectors),
                                     cmocka_unit_test(the_bytes_are_the_documented_ones),
                                     cmocka_unit_test(every_changed_bit_is_noticed),
                                     cmocka_unit_test(another_key_opens_nothing),
                                     cmocka_unit_test(numbers_are_fresh_once),
                                     cmocka_unit_test(edges_of_the_window),
                                     cmocka_unit_test(any_order)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
