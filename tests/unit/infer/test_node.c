/* A node process by itself, with this test as its leader: what it answers to the byte, and that a leader who breaks the protocol is left.
 */
#include "infer/link.h"
#include "infer/node.h"
#include "sample_cluster.h"
#include <cmocka.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PIXELS = 3 * 16 * 16, WIDTH = 32, BATCH = 3 };

typedef struct Fixture {
  char directory[64];
  SampleCluster sample;
  Weights weights;
  Partition partition;
  pid_t pid;
  int control;
} Fixture;

static void read_all(int fd, void *to, size_t size) {
  for (size_t got = 0; got < size;) {
    struct pollfd waiting = {.fd = fd, .events = POLLIN};
    assert_int_equal(poll(&waiting, 1, 20000), 1);
    ssize_t n = read(fd, (char *)to + got, size - got);
    assert_true(n > 0);
    got += (size_t)n;
  }
}

static void open_fixture(Fixture *f) {
  ModelConfig config = {0};
  int pair[2];
  uint8_t hello[WIRE_HEADER];
  WireHeader header;
  strcpy(f->directory, "/tmp/astra-node-XXXXXX");
  assert_non_null(mkdtemp(f->directory));
  assert_int_equal(sample_config(&config, "tiny", 0, 2, 1, CLASS_DISTRIBUTED), STATUS_OK);
  assert_int_equal(sample_open(&f->sample, &config, 3), STATUS_OK);
  assert_int_equal(sample_save(&f->sample, f->directory), STATUS_OK);
  assert_int_equal(weights_load(&f->weights, f->directory), STATUS_OK);
  assert_int_equal(partition_even(&f->partition, 16, 1), STATUS_OK);
  config_release(&config);
  assert_int_equal(link_pair(pair), STATUS_OK);
  NodeSetup setup = {.weights = &f->weights, .partition = &f->partition, .batch_most = BATCH, .timeout = 5, .threads = 1};
  f->pid = fork();
  if (f->pid == 0) {
    close(pair[0]);
    _exit(node_run(&setup, 0, pair[1], (int[]){-1}));
  }
  close(pair[1]);
  f->control = pair[0];
  read_all(f->control, hello, sizeof hello);
  assert_int_equal(wire_parse(hello, 0, &header), STATUS_OK);
  assert_int_equal(header.kind, WIRE_HELLO);
}

/* The process must end by itself within the time limit of the test. */
static void close_fixture(Fixture *f) {
  char command[128];
  int ended;
  close(f->control);
  assert_int_equal(waitpid(f->pid, &ended, 0), f->pid);
  assert_true(WIFEXITED(ended));
  partition_release(&f->partition);
  weights_release(&f->weights);
  sample_close(&f->sample);
  snprintf(command, sizeof command, "rm -rf %s", f->directory);
  assert_int_equal(system(command), 0);
}

static void send_request(const Fixture *f, uint32_t number, uint32_t count, uint32_t bytes, uint8_t flags) {
  static uint8_t message[WIRE_HEADER + BATCH * PIXELS * 4 + 64];
  float pixels[BATCH * PIXELS];
  sample_pixels(&f->sample.config, number, BATCH, pixels);
  WireHeader header = {.kind = WIRE_REQUEST, .sender = WIRE_LEADER, .flags = flags, .request = number, .count = count, .bytes = bytes};
  wire_pack(&header, message);
  wire_pack_floats(pixels, BATCH * PIXELS, message + WIRE_HEADER);
  size_t size = WIRE_HEADER + (bytes < BATCH * PIXELS * 4 ? bytes : BATCH * PIXELS * 4);
  for (size_t sent = 0; sent < size;) {
    ssize_t n = write(f->control, message + sent, size - sent);
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
  read_all(f.control, result, sizeof result);
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
  assert_int_equal(write(f.control, bye, sizeof bye), sizeof bye);
  assert_int_equal(read(f.control, &end, 1), 0);
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
    struct pollfd waiting = {.fd = f.control, .events = POLLIN};
    assert_int_equal(poll(&waiting, 1, 20000), 1);
    assert_true(read(f.control, &end, 1) <= 0); /* closed, and nothing was answered */
    close_fixture(&f);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(answers_have_the_documented_size),
                                     cmocka_unit_test(it_leaves_on_bye_and_with_its_leader),
                                     cmocka_unit_test(a_leader_that_breaks_the_protocol_is_left)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
