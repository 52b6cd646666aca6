/* A node process by itself, with this test as its leader: what it answers to the byte, and that a leader who breaks the protocol is left.
 */
#include "lone_node.h"
#include "sample_fixture.h"
#include <signal.h>

enum { PIXELS = 3 * 16 * 16, WIDTH = 32, BATCH = 3 };

typedef struct Fixture {
  SampleFixture base;
  LoneNode node;
  Partition partition;
} Fixture;

static void open_fixture(Fixture *f) {
  ModelConfig config = {0};
  assert_int_equal(sample_config(&config, "tiny", 0, 2, 1, CLASS_DISTRIBUTED), STATUS_OK);
  sample_fixture_open(&f->base, &config);
  assert_int_equal(partition_even(&f->partition, 16, 1), STATUS_OK);
  NodeSetup setup = {.weights = &f->base.weights, .partition = &f->partition, .batch_most = BATCH, .timeout = 5, .threads = 1};
  lone_node_start(&f->node, &setup);
}

static void close_fixture(Fixture *f) {
  lone_node_end(&f->node);
  partition_release(&f->partition);
  sample_fixture_close(&f->base);
}

static void send_request(const Fixture *f, uint32_t number, uint32_t count, uint32_t bytes, uint8_t flags) {
  static uint8_t message[WIRE_HEADER + BATCH * PIXELS * 4 + 64];
  float pixels[BATCH * PIXELS];
  sample_pixels(&f->base.sample.config, number, BATCH, pixels);
  WireHeader header = {.kind = WIRE_REQUEST, .sender = WIRE_LEADER, .flags = flags, .request = number, .count = count, .bytes = bytes};
  wire_pack(&header, message);
  wire_pack_floats(pixels, BATCH * PIXELS, message + WIRE_HEADER);
  size_t size = WIRE_HEADER + (bytes < BATCH * PIXELS * 4 ? bytes : BATCH * PIXELS * 4);
  for (size_t sent = 0; sent < size;) {
    ssize_t n = write(f->node.control, message + sent, size - sent);
    if (n < 0) return; /* it has left: seen by what follows */
    sent += (size_t)n;
  }
}

static void answers_have_the_documented_size(void **state) {
  (void)state;
  Fixture f;
  WireHeader header;
  NodeStatistics statistics;
  uint8_t result[WIRE_HEADER + WIRE_STATISTICS + 2 * WIDTH * 4];
  open_fixture(&f);
  send_request(&f, 1, 2, 2 * PIXELS * 4, 0);
  assert_true(lone_node_read(&f.node, result, sizeof result));
  assert_int_equal(wire_parse(result, sizeof result, &header), STATUS_OK);
  assert_int_equal(header.kind, WIRE_RESULT);
  assert_int_equal(header.request, 1);
  assert_int_equal(header.count, 2);
  assert_int_equal(header.bytes, WIRE_STATISTICS + 2 * WIDTH * 4);
  assert_int_equal(wire_parse_statistics(result + WIRE_HEADER, &statistics), STATUS_OK);
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
  assert_int_equal(write(f.node.control, bye, sizeof bye), sizeof bye);
  assert_int_equal(read(f.node.control, &end, 1), 0);
  close_fixture(&f);
  open_fixture(&f);
  close_fixture(&f); /* closes the control stream only */
}

static void a_leader_that_breaks_the_protocol_is_left(void **state) {
  (void)state;
  const struct {
    uint32_t number, count, bytes;
    uint8_t flags;
  } faults[] = {{2, 1, PIXELS * 4, 0},     {0, 1, PIXELS * 4, 0}, {1, 0, 0, 0},          {1, BATCH + 1, BATCH * PIXELS * 4, 0},
                {1, 1, PIXELS * 4 - 1, 0}, {1, 2, PIXELS * 4, 0}, {1, 1, UINT32_MAX, 0}, {1, 1, PIXELS * 4, WIRE_WANT_CODES}};
  signal(SIGPIPE, SIG_IGN);
  for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
    Fixture f;
    uint8_t end;
    open_fixture(&f);
    send_request(&f, faults[i].number, faults[i].count, faults[i].bytes, faults[i].flags);
    assert_false(lone_node_read(&f.node, &end, 1)); /* closed, and nothing was answered */
    close_fixture(&f);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(answers_have_the_documented_size),
                                     cmocka_unit_test(it_leaves_on_bye_and_with_its_leader),
                                     cmocka_unit_test(a_leader_that_breaks_the_protocol_is_left)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
