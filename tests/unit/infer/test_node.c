/* A node process by itself, with this test as its leader: what it answers to the byte, and that a leader who breaks the protocol is left.
 */
#include "infer/patches.h"
#include "infer/request.h"
#include "session_child.h"
#include <cmocka.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

enum { PIXELS = 3 * 16 * 16, WIDTH = 32, BATCH = 3, IMAGE = 4 * PIXELS };

typedef struct Fixture {
  SampleFixture base;
  SessionChild child;
} Fixture;

static void open_fixture(Fixture *f) {
  ModelConfig config = {0};
  assert_int_equal(sample_config(&config, "tiny", 0, 2, 1, CLASS_DISTRIBUTED), STATUS_OK);
  sample_fixture_open(&f->base, &config);
  assert_true(session_child_open(&f->child, &f->base.weights, BATCH, 0));
}

static void close_fixture(Fixture *f) {
  session_child_close(&f->child);
  sample_fixture_close(&f->base);
}

/* Of noise, which no levels give. `bytes` are announced, and as many are sent as there are. */
static void send_request(const Fixture *f, uint32_t number, uint32_t count, uint32_t bytes, uint8_t flags) {
  static uint8_t message[WIRE_HEADER + PATCHES_HEAD + BATCH * IMAGE + 64];
  float pixels[BATCH * PIXELS];
  TokenLayout layout = {0};
  sample_pixels(&f->base.sample.config, number, BATCH, pixels);
  WireHeader header = {.kind = WIRE_CLASSIFY, .sender = WIRE_LEADER, .flags = flags, .request = number, .count = count, .bytes = bytes};
  wire_pack(&header, message);
  assert_int_equal(layout_build_plain(&layout, 16, CLASS_DISTRIBUTED), STATUS_OK);
  patches_pack(&f->base.sample.config, &layout, BATCH, pixels, NULL, message + WIRE_HEADER);
  layout_release(&layout);
  size_t max = PATCHES_HEAD + BATCH * IMAGE, size = WIRE_HEADER + (bytes < max ? bytes : max);
  for (size_t sent = 0; sent < size;) {
    ssize_t n = write(f->child.control, message + sent, size - sent);
    if (n < 0) return; /* it has left: seen by what follows */
    sent += (size_t)n;
  }
}

static void answers_have_the_documented_size(void **state) {
  (void)state;
  Fixture f;
  WireHeader header;
  NodeStatistics statistics;
  uint8_t result[WIRE_STATISTICS + 2 * WIDTH * 4];
  open_fixture(&f);
  send_request(&f, 1, 2, PATCHES_HEAD + 2 * IMAGE, 0);
  assert_true(session_child_answer(f.child.control, &header, result, sizeof result, NULL));
  assert_int_equal(header.kind, WIRE_RESULT);
  assert_int_equal(header.request, 1);
  assert_int_equal(header.count, 2);
  assert_int_equal(header.bytes, WIRE_STATISTICS + 2 * WIDTH * 4);
  assert_int_equal(request_statistics(byte_cursor_from(result), &statistics), STATUS_OK);
  assert_true(statistics.compute > 0);
  assert_int_equal(statistics.bytes_sent + statistics.bytes_received, 0);
  close_fixture(&f);
}

static void it_leaves_on_bye_and_with_its_leader(void **state) {
  (void)state;
  Fixture f;
  uint8_t bye[WIRE_HEADER], end;
  open_fixture(&f);
  wire_pack(&(WireHeader){.kind = WIRE_BYE, .sender = WIRE_LEADER}, bye);
  assert_int_equal(write(f.child.control, bye, sizeof bye), sizeof bye);
  assert_int_equal(read(f.child.control, &end, 1), 0);
  close_fixture(&f);
  open_fixture(&f);
  close_fixture(&f); /* closes the control stream only */
}

static void a_leader_that_breaks_the_protocol_is_left(void **state) {
  (void)state;
  const struct {
    uint32_t number, count, bytes;
    uint8_t flags;
  } faults[] = {{2, 1, PATCHES_HEAD + IMAGE, 0},
                {0, 1, PATCHES_HEAD + IMAGE, 0},
                {1, 0, 0, 0},
                {1, 0, PATCHES_HEAD, 0},
                {1, BATCH + 1, PATCHES_HEAD + BATCH * IMAGE, 0},
                {1, 1, PATCHES_HEAD + IMAGE - 1, 0},
                {1, 1, IMAGE, 0},
                {1, 2, PATCHES_HEAD + IMAGE, 0},
                {1, 1, UINT32_MAX, 0},
                {1, 1, PATCHES_HEAD + IMAGE, WIRE_WANT_CODES}};
  signal(SIGPIPE, SIG_IGN);
  for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
    Fixture f;
    uint8_t end;
    open_fixture(&f);
    send_request(&f, faults[i].number, faults[i].count, faults[i].bytes, faults[i].flags);
    struct pollfd waiting = {.fd = f.child.control, .events = POLLIN};
    assert_int_equal(poll(&waiting, 1, 20000), 1);
    assert_true(read(f.child.control, &end, 1) <= 0); /* closed, and nothing was answered */
    close_fixture(&f);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(answers_have_the_documented_size),
                                     cmocka_unit_test(it_leaves_on_bye_and_with_its_leader),
                                     cmocka_unit_test(a_leader_that_breaks_the_protocol_is_left)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
