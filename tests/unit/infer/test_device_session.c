/* A session by itself, with this test as its leader: it refuses what does not fit with both values named and stays, serves epoch after
 * epoch, gives one up when asked, and leaves a leader that breaks the rules. */
#include "infer/cluster/hello.h"
#include "infer/patches.h"
#include "session_child.h"
#include "unit/float_equal.h"
#include <cmocka.h>
#include <errno.h>
#include <malloc.h>
#include <signal.h>
#include <sys/socket.h>
#include <time.h>

enum { BATCH = 2, PIXELS = 3 * 16 * 16, MAX = 4096 };

typedef struct Fixture {
  SampleFixture base;
  SessionChild child;
  WireHeader header;
  char text[WIRE_TEXT + 1];
} Fixture;

static void open_weights(Fixture *f) {
  ModelConfig config = {0};
  assert_int_equal(sample_config(&config, "tiny", 4, 16, 2, CLASS_DISTRIBUTED), STATUS_OK);
  sample_fixture_open(&f->base, &config);
}

static void close_fixture(Fixture *f) {
  session_child_close(&f->child);
  sample_fixture_close(&f->base);
}

static void ask(Fixture *f, ClusterSetup *setup) { assert_true(session_child_agree(&f->child, setup, &f->header, f->text)); }

static void expect_refusal(Fixture *f, const char *what) {
  assert_int_equal(f->header.kind, WIRE_REFUSE);
  if (!strstr(f->text, what)) fail_msg("'%s' lacks '%s'", f->text, what);
}

/* One image of noise through the plain model; the class-token replica is what comes back. */
static void compute_one(Fixture *f, uint32_t number, float replica[32]) {
  uint8_t payload[PATCHES_HEAD + PIXELS * 4], answer[MAX];
  float pixels[PIXELS];
  TokenLayout layout = {0};
  sample_pixels(&f->base.sample.config, 5, 1, pixels);
  assert_int_equal(layout_build_plain(&layout, 16, CLASS_DISTRIBUTED), STATUS_OK);
  patches_pack(&f->base.sample.config, &layout, 1, pixels, NULL, payload);
  layout_release(&layout);
  WireHeader request = {.kind = WIRE_CLASSIFY, .request = number, .count = 1, .bytes = sizeof payload};
  assert_true(session_child_send(f->child.control, request, payload));
  int signs; /* of life */
  assert_true(session_child_answer(f->child.control, &f->header, answer, sizeof answer, &signs));
  assert_true(signs > 0);
  assert_int_equal(f->header.kind, WIRE_RESULT);
  assert_int_equal(f->header.request, number);
  memcpy(replica, answer + WIRE_STATISTICS, 32 * sizeof(float));
}

static void epochs_follow_each_other(void **state) {
  (void)state;
  Fixture f;
  float first[32], second[32];
  open_weights(&f);
  assert_true(session_child_start(&f.child, &f.base.weights));
  ClusterSetup setup = session_child_setup(&f.base.weights, BATCH, 0);
  ask(&f, &setup);
  assert_int_equal(f.header.kind, WIRE_READY);
  compute_one(&f, 1, first);
  compute_one(&f, 2, second);
  assert_memory_equal(first, second, sizeof first);
  setup.epoch = 2; /* without a word of warning */
  ask(&f, &setup);
  assert_int_equal(f.header.kind, WIRE_READY);
  assert_int_equal(f.header.count, 2);
  compute_one(&f, 1, second); /* numbers begin anew */
  assert_memory_equal(first, second, sizeof first);
  assert_true(session_child_send(f.child.control, (WireHeader){.kind = WIRE_CANCEL}, NULL));
  assert_true(session_child_receive(f.child.control, &f.header, f.text, WIRE_TEXT));
  assert_int_equal(f.header.kind, WIRE_CANCELLED);
  setup.epoch = 3;
  ask(&f, &setup);
  assert_int_equal(f.header.kind, WIRE_READY);
  compute_one(&f, 1, second);
  free(setup.order);
  close_fixture(&f);
}

/* SETUP and the word that takes it back come at once: nothing of that epoch is said. */
static void a_set_up_that_is_taken_back_is_none(void **state) {
  (void)state;
  Fixture f;
  uint8_t bytes[1 << 12];
  open_weights(&f);
  assert_true(session_child_start(&f.child, &f.base.weights));
  ClusterSetup setup = session_child_setup(&f.base.weights, BATCH, 0);
  size_t size = setup_message_bytes(&setup);
  assert_true(size + 2 * WIRE_HEADER < sizeof bytes);
  wire_pack(&(WireHeader){.kind = WIRE_SETUP, .sender = WIRE_LEADER, .count = 1, .bytes = (uint32_t)size}, bytes);
  assert_int_equal(setup_message_pack(&setup, bytes + WIRE_HEADER), STATUS_OK);
  size += WIRE_HEADER;
  wire_pack(&(WireHeader){.kind = WIRE_CANCEL, .sender = WIRE_LEADER}, bytes + size);
  size += WIRE_HEADER;
  assert_int_equal(write(f.child.control, bytes, size), size);
  assert_true(session_child_receive(f.child.control, &f.header, f.text, WIRE_TEXT));
  assert_int_equal(f.header.kind, WIRE_CANCELLED);
  setup.epoch = 2;
  ask(&f, &setup);
  assert_int_equal(f.header.kind, WIRE_READY);
  assert_int_equal(f.header.count, 2);
  free(setup.order);
  close_fixture(&f);
}

/* More of them than a socket holds: the epoch ends once they are all sent, from memory that goes with it. */
static void answers_under_way_outlive_their_epoch(void **state) {
  (void)state;
  enum { MANY = 2500, WIDTH = 32, ANSWER = WIRE_STATISTICS + MANY * WIDTH * 4, REQUEST = PATCHES_HEAD + MANY * PIXELS * 4 };
  Fixture f;
  uint8_t head[WIRE_HEADER];
  TokenLayout layout = {0};
  open_weights(&f);
#ifdef M_PERTURB
  mallopt(M_PERTURB, 85); /* memory that is freed does not keep what was in it */
#endif
  assert_true(session_child_open(&f.child, &f.base.weights, MANY, 0));
  float *pixels = malloc((size_t)MANY * PIXELS * sizeof *pixels);
  uint8_t *payload = malloc(REQUEST), *answer = malloc(ANSWER);
  sample_pixels(&f.base.sample.config, 5, 1, pixels);
  for (int i = 1; i < MANY; i++) memcpy(pixels + (size_t)i * PIXELS, pixels, PIXELS * sizeof *pixels);
  assert_int_equal(layout_build_plain(&layout, 16, CLASS_DISTRIBUTED), STATUS_OK);
  patches_pack(&f.base.sample.config, &layout, MANY, pixels, NULL, payload);
  layout_release(&layout);
  assert_true(
      session_child_send(f.child.control, (WireHeader){.kind = WIRE_CLASSIFY, .request = 1, .count = MANY, .bytes = REQUEST}, payload));
  do {
    assert_true(session_child_read(f.child.control, head, sizeof head));
    assert_int_equal(wire_parse(head, ANSWER, &f.header), STATUS_OK);
  } while (f.header.kind == WIRE_PROGRESS);
  assert_int_equal(f.header.kind, WIRE_RESULT);
  assert_int_equal(f.header.bytes, ANSWER);
  assert_true(session_child_send(f.child.control, (WireHeader){.kind = WIRE_CANCEL}, NULL));
  nanosleep(&(struct timespec){.tv_nsec = 300000000}, NULL); /* it has heard that */
  assert_true(session_child_read(f.child.control, answer, ANSWER));
  float *rows = malloc(ANSWER - WIRE_STATISTICS); /* kernels may round rows differently by their place; memory that was freed is far off */
  memcpy(rows, answer + WIRE_STATISTICS, ANSWER - WIRE_STATISTICS);
  for (int i = WIDTH; i < MANY * WIDTH; i++) assert_float_equal(rows[i], rows[i % WIDTH], 1e-4);
  free(rows);
  assert_true(session_child_receive(f.child.control, &f.header, f.text, WIRE_TEXT));
  assert_int_equal(f.header.kind, WIRE_CANCELLED);
  free(pixels);
  free(payload);
  free(answer);
  close_fixture(&f);
}

/* Before the first epoch, as often as the leader likes; not in the middle of one. */
static void it_is_measured_before_the_first_epoch(void **state) {
  (void)state;
  Fixture f;
  DeviceProfile profile;
  static uint8_t bytes[PROBE_MAX];
  const WireHeader compute = {.kind = WIRE_PROBE, .request = PROBE_COMPUTE, .count = 16};
  open_weights(&f);
  assert_true(session_child_start(&f.child, &f.base.weights));
  assert_true(session_child_send(f.child.control, compute, NULL));
  assert_true(session_child_receive(f.child.control, &f.header, bytes, sizeof bytes));
  assert_int_equal(f.header.kind, WIRE_PROFILE);
  assert_int_equal(f.header.bytes, PROFILE_BYTES);
  assert_int_equal(hello_profile(byte_cursor_from(bytes), &profile), STATUS_OK);
  assert_true(
      session_child_send(f.child.control, (WireHeader){.kind = WIRE_PROBE, .request = PROBE_LINK, .count = 5000, .bytes = 7}, bytes));
  assert_true(session_child_receive(f.child.control, &f.header, bytes, sizeof bytes));
  assert_int_equal(f.header.kind, WIRE_PROFILE);
  assert_int_equal(f.header.request, PROBE_LINK);
  assert_int_equal(f.header.bytes, 5000);
  ClusterSetup setup = session_child_setup(&f.base.weights, BATCH, 0);
  ask(&f, &setup);
  assert_int_equal(f.header.kind, WIRE_READY);
  free(setup.order);
  session_child_send(f.child.control, compute, NULL);
  assert_false(session_child_receive(f.child.control, &f.header, bytes, sizeof bytes)); /* it leaves */
  close_fixture(&f);
}

static void what_does_not_fit_is_refused_and_it_stays(void **state) {
  (void)state;
  Fixture f;
  float replica[32];
  open_weights(&f);
  assert_true(session_child_start(&f.child, &f.base.weights));
  ClusterSetup setup = session_child_setup(&f.base.weights, BATCH, 0), other = setup;
  other.fingerprints.partition ^= 1;
  ask(&f, &other);
  expect_refusal(&f, "the leader: another partition: ");
  other = setup, other.fingerprints.codebook ^= 1;
  ask(&f, &other);
  expect_refusal(&f, "another codebook");
  other = setup, other.transport = TRANSPORT_UDP;
  ask(&f, &other);
  expect_refusal(&f, "does not go with its transport");
  other = setup, other.strategy = STRATEGY_TP, other.parts = 2;
  ask(&f, &other);
  expect_refusal(&f, "strategy tp knows no parts");
  other = setup, other.strategy = STRATEGY_SP, other.mask = true;
  ask(&f, &other);
  expect_refusal(&f, "strategy sp knows no parts of blocks, and needs every message");
  other = setup, other.shaped = true, other.links.topology = LINK_SHARED;
  ask(&f, &other);
  expect_refusal(&f, "virtual time");
  other = setup, other.parts = 0;
  ask(&f, &other);
  expect_refusal(&f, "parts");
  /* What the leader would refuse itself: sizes that follow from it could wrap. */
  other = setup, other.batch_max = INT32_MAX / (4 * PIXELS) + 1;
  ask(&f, &other);
  expect_refusal(&f, "is too large for one request");
  other.batch_max = INT32_MAX;
  ask(&f, &other);
  expect_refusal(&f, "a batch of 2147483647 is too large for one request");
  ask(&f, &setup);
  assert_int_equal(f.header.kind, WIRE_READY);
  compute_one(&f, 1, replica);
  free(setup.order);
  close_fixture(&f);
}

/* Of two devices, this one and another. */
static ClusterSetup setup_of_two(const Fixture *f) {
  ClusterSetup setup = session_child_setup(&f->base.weights, BATCH, 0);
  setup.nodes = 2;
  setup.device[0].tokens = setup.device[1].tokens = 8;
  FingerprintShares shares = {.nodes = 2, .tokens = 16, .counts = (const int64_t[]){8, 8}, .order = setup.order};
  assert_int_equal(fingerprint_shares(&shares, &setup.fingerprints.partition), STATUS_OK);
  return setup;
}

/* A second device that never comes: the refusal names it, soon after the leader has given it up. */
static void a_missing_peer_does_not_hold_it(void **state) {
  (void)state;
  Fixture f;
  open_weights(&f);
  assert_true(session_child_start(&f.child, &f.base.weights));
  ClusterSetup setup = setup_of_two(&f);
  uint8_t *bytes = malloc(setup_message_bytes(&setup));
  assert_int_equal(setup_message_pack(&setup, bytes), STATUS_OK);
  WireHeader header = {.kind = WIRE_SETUP, .count = 2, .bytes = (uint32_t)setup_message_bytes(&setup)};
  assert_true(session_child_send(f.child.control, header, bytes));
  assert_true(session_child_send(f.child.control, (WireHeader){.kind = WIRE_CANCEL}, NULL));
  assert_true(session_child_receive(f.child.control, &f.header, f.text, WIRE_TEXT));
  assert_int_equal(f.header.kind, WIRE_CANCELLED);
  free(bytes);
  free(setup.order);
  close_fixture(&f);
}

/* The other end of the stream to node 1: it says who it is, and leaves before it has said where it takes datagrams. */
static void meet_and_leave(const Fixture *f, uint64_t partition) {
  int pair[2];
  uint8_t meet[WIRE_HEADER + WIRE_MEET_BYTES] = {[WIRE_HEADER] = 1, [WIRE_HEADER + 2] = 1}; /* epoch, node, session, partition */
  wire_pack(&(WireHeader){.kind = WIRE_MEET, .sender = 1, .count = 1, .bytes = WIRE_MEET_BYTES}, meet);
  wire_put_u64(meet + WIRE_HEADER + 20, partition);
  assert_int_equal(connection_pair(pair), STATUS_OK);
  assert_int_equal(write(pair[1], meet, sizeof meet), sizeof meet);
  PassedFd stream = {.kind = FD_STREAM, .epoch = 1, .node = 1, .fd = pair[0]};
  assert_int_equal(fd_passing_send(f->child.passed, &stream), STATUS_OK);
  close(pair[0]);
  shutdown(pair[1], SHUT_WR);
  char theirs[4096];
  ssize_t n;
  while ((n = read(pair[1], theirs, sizeof theirs)) > 0 || (n < 0 && errno == EAGAIN))
    poll(&(struct pollfd){.fd = pair[1], .events = POLLIN}, 1, 1000);
  close(pair[1]);
}

static void a_peer_that_leaves_before_its_datagrams_is_named(void **state) {
  (void)state;
  Fixture f;
  open_weights(&f);
  assert_true(session_child_start(&f.child, &f.base.weights));
  ClusterSetup setup = setup_of_two(&f);
  setup.transport = TRANSPORT_UDP;
  setup.reliability.mode = RELIABILITY_DEADLINE;
  uint8_t *bytes = malloc(setup_message_bytes(&setup));
  assert_int_equal(setup_message_pack(&setup, bytes), STATUS_OK);
  WireHeader header = {.kind = WIRE_SETUP, .count = 2, .bytes = (uint32_t)setup_message_bytes(&setup)};
  assert_true(session_child_send(f.child.control, header, bytes));
  meet_and_leave(&f, setup.fingerprints.partition);
  assert_true(session_child_receive(f.child.control, &f.header, f.text, WIRE_TEXT));
  expect_refusal(&f, "node 1: went away while datagrams were agreed on");
  assert_int_equal(f.header.count, 2); /* one more than the node that it is about */
  free(bytes);
  free(setup.order);
  close_fixture(&f);
}

static void a_leader_that_breaks_the_rules_is_left(void **state) {
  (void)state;
  const WireHeader faults[] = {{.kind = WIRE_CLASSIFY, .request = 1, .count = 1, .bytes = 4},
                               {.kind = WIRE_HELLO},
                               {.kind = WIRE_STOP, .request = 1},
                               {.kind = WIRE_CANCEL, .bytes = 1},
                               {.kind = WIRE_SETUP, .count = 1, .bytes = 1 << 20},
                               {.kind = WIRE_WELCOME, .bytes = WELCOME_BYTES},
                               {.kind = WIRE_PING, .bytes = 1},
                               {.kind = WIRE_GONE, .count = 64},
                               {.kind = WIRE_PROBE, .request = PROBE_COMPUTE, .count = 1 << 20},
                               {.kind = WIRE_PROBE, .request = PROBE_LINK, .count = 1, .bytes = PROBE_MAX + 1},
                               {.kind = WIRE_DRAFT, .request = 1, .count = 1, .bytes = 8},
                               {.kind = WIRE_DRAFTED, .request = 1, .count = 1, .bytes = 8},
                               {.kind = WIRE_DRAFTS, .request = 1, .count = 1, .bytes = 8},
                               {.kind = WIRE_PROFILE}};
  static uint8_t nothing[1 << 20];
  signal(SIGPIPE, SIG_IGN);
  for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
    Fixture f;
    uint8_t end;
    open_weights(&f);
    assert_true(session_child_start(&f.child, &f.base.weights));
    session_child_send(f.child.control, faults[i], nothing);
    struct pollfd waiting = {.fd = f.child.control, .events = POLLIN};
    assert_int_equal(poll(&waiting, 1, 20000), 1);
    if (read(f.child.control, &end, 1) > 0) fail_msg("fault %d was answered", (int)i);
    close_fixture(&f);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(epochs_follow_each_other),
                                     cmocka_unit_test(what_does_not_fit_is_refused_and_it_stays),
                                     cmocka_unit_test(a_set_up_that_is_taken_back_is_none),
                                     cmocka_unit_test(answers_under_way_outlive_their_epoch),
                                     cmocka_unit_test(it_is_measured_before_the_first_epoch),
                                     cmocka_unit_test(a_missing_peer_does_not_hold_it),
                                     cmocka_unit_test(a_peer_that_leaves_before_its_datagrams_is_named),
                                     cmocka_unit_test(a_leader_that_breaks_the_rules_is_left)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
