/* What a leader does about workers that fail, by themselves or in the eyes of others: who is left behind, who is not, who is called again,
 * and what is said of the answers. The workers are played (fake_worker.h): the leader is what is tested. It mostly waits. */
#include "base/clock.h"
#include "fake_worker.h"
#include "infer/cluster/leader_internal.h"

enum { MAX = 4, PIXELS = 3 * 16 * 16 };

typedef struct Fixture {
  SampleFixture base;
  FakeWorker workers[MAX];
  Address peers[MAX];
  ClusterOptions cluster;
  Partition partition;
  Leader *leader;
  float pixels[PIXELS];
  int count;
} Fixture;

static void open_fixture(Fixture *f, int count, const FakeWorker *workers) {
  ModelConfig config = {0};
  *f = (Fixture){.count = count};
  assert_int_equal(sample_config(&config, "tiny", 4, 50, 4, CLASS_DISTRIBUTED), STATUS_OK);
  sample_fixture_open(&f->base, &config);
  sample_pixels(&f->base.sample.config, 5, 1, f->pixels);
  for (int i = 0; i < count; i++) {
    f->workers[i] = workers[i];
    fake_worker_start(&f->workers[i], &f->base, i);
    f->peers[i] = f->workers[i].address;
  }
}

/* A fixture's tokens lie strided. */
static void place(Fixture *f) {
  const TokenMap strided = {TOKEN_MAP_STRIDED, 0};
  assert_int_equal(partition_init(&f->partition, 16, f->count, NULL), STATUS_OK);
  assert_int_equal(partition_place(&f->partition, &strided, 4, 4), STATUS_OK);
}

static Status begin(Fixture *f, OnFailure on_failure, double timeout, double request_timeout) {
  f->cluster = (ClusterOptions){.peers = f->peers, .peer_count = f->count, .on_failure = on_failure, .request_timeout = request_timeout};
  LeaderOptions options = {.batch_max = 1, .timeout = timeout, .threads = 1, .cluster = &f->cluster};
  place(f);
  return leader_start(&f->leader, &f->base.weights, &f->partition, &options);
}

static void close_fixture(Fixture *f) {
  leader_stop(f->leader);
  for (int i = 0; i < f->count; i++) fake_worker_stop(&f->workers[i]);
  partition_release(&f->partition);
  sample_fixture_close(&f->base);
}

static Status ask(Fixture *f, LeaderAnswer *answer) {
  TRY(leader_submit(f->leader, f->pixels, 1));
  return leader_collect(f->leader, answer);
}

static void expect(Fixture *f, LeaderAnswer *answer, int nodes) {
  if (ask(f, answer) != STATUS_OK) fail_msg("%s", status_message());
  assert_int_equal(node_setup_count(leader_setup(f->leader)), nodes);
}

/* Both of two devices are there and have answered, but one has given the other up: the answer is not complete, the next one is. */
static void an_answer_of_devices_that_gave_each_other_up_is_incomplete(void **state) {
  (void)state;
  Fixture f;
  LeaderAnswer answer;
  open_fixture(&f, 2, (const FakeWorker[]){{.gives_up = 2}, {0}});
  assert_int_equal(begin(&f, ON_FAILURE_MASK, 10, 0), STATUS_OK);
  expect(&f, &answer, 2);
  assert_int_equal(answer.missing, 2);
  assert_int_equal(leader_sums(f.leader)->masked, 1);
  expect(&f, &answer, 2);
  assert_int_equal(answer.missing, 0);
  assert_int_equal(leader_sums(f.leader)->masked, 1);
  assert_int_equal(answer.reruns, 0);
  close_fixture(&f);
}

/* Addresses where nobody answers, or where somebody takes the call and then says nothing: they are gone on without, all at once, and a
 * worker that was called before them is there. */
static void workers_that_do_not_answer_cost_the_others_nothing(void **state) {
  (void)state;
  enum { WELL, FULL, OTHER_FULL, MUTE };
  Fixture f;
  LeaderAnswer answer;
  int listener[MAX] = {-1, -1, -1, -1}, calls[2][8];
  open_fixture(&f, 1, (const FakeWorker[]){{0}});
  for (int i = FULL; i <= MUTE; i++) {
    assert_int_equal(address_parse("127.0.0.1:1", &f.peers[i]), STATUS_OK);
    listener[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    assert_int_equal(listen(listener[i], i == MUTE ? 8 : 0), 0);
    f.peers[i].port = address_port(listener[i]);
    for (int c = 0; c < 8 && i != MUTE; c++) assert_int_equal(address_call(&f.peers[i], &calls[i - 1][c]), STATUS_OK);
  }
  double start = clock_now();
  f.count = MAX;
  Status status = begin(&f, ON_FAILURE_RERUN, 2, 0);
  f.count = 1;
  if (status != STATUS_OK) fail_msg("%s", status_message());
  assert_true(clock_now() - start < 9);
  expect(&f, &answer, 1);
  for (int i = FULL; i <= MUTE; i++) close(listener[i]);
  for (int i = 0; i < 2; i++)
    for (int c = 0; c < 8; c++) close(calls[i][c]);
  close_fixture(&f);
}

/* For some seconds, in which a worker that is lost would be called again. */
static void go_on(Fixture *f, int count, double seconds, int nodes) {
  LeaderAnswer answer;
  for (double until = clock_now() + seconds; clock_now() < until;) {
    for (int i = 0; i < count; i++) {
      expect(&f[i], &answer, nodes);
      assert_int_equal(answer.reruns, 0);
    }
    nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
  }
}

/* One that answers this leader and is of no use all the same: it costs two tries, and is not called again soon. */
static void whoever_fails_twice_is_left_behind(void **state) {
  (void)state;
  const FakeWorker useless[][2] = {{{0}, {.refuses = true}}, {{0}, {.fails = true}}, {{.reports = 2}, {0}}};
  Fixture f[3];
  for (int i = 0; i < 3; i++) {
    LeaderAnswer answer;
    open_fixture(&f[i], 2, useless[i]);
    if (begin(&f[i], ON_FAILURE_RERUN, 10, 0) != STATUS_OK) fail_msg("%d: %s", i, status_message());
    expect(&f[i], &answer, 1);
  }
  go_on(f, 3, 2.5, 1);
  for (int i = 0; i < 3; i++) {
    assert_int_equal(*f[i].workers[0].calls, 1);
    assert_int_equal(*f[i].workers[1].calls, 1);
    close_fixture(&f[i]);
  }
}

/* Where codes were asked for, and only one device is left, which exchanges none. */
static void a_single_device_is_asked_for_no_codes(void **state) {
  (void)state;
  Fixture f;
  LeaderAnswer answer;
  open_fixture(&f, 2, (const FakeWorker[]){{0}, {.refuses = true}});
  f.cluster = (ClusterOptions){.peers = f.peers, .peer_count = f.count, .on_failure = ON_FAILURE_RERUN};
  const LeaderOptions options = {.batch_max = 1, .timeout = 10, .threads = 1, .codes = true, .cluster = &f.cluster};
  place(&f);
  assert_int_equal(leader_start(&f.leader, &f.base.weights, &f.partition, &options), STATUS_OK);
  expect(&f, &answer, 1);
  assert_null(answer.codes);
  close_fixture(&f);
}

/* Those that remain share the tokens by the same layout, of which the shared order is sorted by device anew. */
static void the_layout_stays_when_a_worker_is_left_behind(void **state) {
  (void)state;
  Fixture f;
  LeaderAnswer answer;
  open_fixture(&f, 3, (const FakeWorker[]){{0}, {.leaves = 1}, {0}});
  assert_int_equal(begin(&f, ON_FAILURE_RERUN, 20, 0), STATUS_OK);
  for (int i = 0; i < 16; i++)
    assert_int_equal(leader_setup(f.leader)->partition->order[i], i < 6 ? 3 * i : i < 11 ? 3 * (i - 6) + 1 : 3 * (i - 11) + 2);
  expect(&f, &answer, 2);
  for (int i = 0; i < 16; i++) assert_int_equal(leader_setup(f.leader)->partition->order[i], i < 8 ? 2 * i : 2 * (i - 8) + 1);
  close_fixture(&f);
}

/* Links that are simulated are those of the first epoch: their trace goes on. */
static void a_trace_goes_on_in_the_next_epoch(void **state) {
  (void)state;
  Fixture f;
  LeaderAnswer answer;
  ClusterSetup told = {0};
  LinkTracePoint points[] = {{0, 1e9}, {0.2, 3e6}, {1000, 5e6}};
  const ClusterSetup network = {.reliability.mode = RELIABILITY_STREAM, .parts = 1, .shaped = true, .links.trace = {points, 3}};
  open_fixture(&f, 2, (const FakeWorker[]){{0}, {.leaves = 1}});
  f.cluster = (ClusterOptions){.peers = f.peers, .peer_count = f.count, .on_failure = ON_FAILURE_RERUN};
  const LeaderOptions options = {.batch_max = 1, .timeout = 10, .threads = 1, .network = &network, .cluster = &f.cluster};
  place(&f);
  assert_int_equal(leader_start(&f.leader, &f.base.weights, &f.partition, &options), STATUS_OK);
  for (int epoch = 0; epoch < 2; epoch++) {
    const uint8_t *message = f.leader->epoch.setups[0];
    WireHeader header;
    assert_int_equal(wire_parse(message, 1 << 16, &header), STATUS_OK);
    assert_int_equal(setup_message_parse(message + WIRE_HEADER, header.bytes, &f.base.weights, &told), STATUS_OK);
    const LinkTrace *trace = &told.links.trace;
    assert_int_equal(trace->count, epoch ? 2 : 3);
    assert_true(trace->points[0].seconds == 0 && trace->points[0].bits_per_second == (epoch ? 3e6 : 1e9));
    if (epoch) assert_true(trace->points[1].seconds > 900 && trace->points[1].seconds < 999.8);
    setup_message_release(&told);
    nanosleep(&(struct timespec){.tv_nsec = 300000000}, NULL);
    expect(&f, &answer, 1);
  }
  close_fixture(&f);
}

/* It is in the middle of a long block, and hears nothing until then. */
static void whoever_hears_late_is_not_left_behind(void **state) {
  (void)state;
  Fixture f;
  LeaderAnswer answer;
  open_fixture(&f, 2, (const FakeWorker[]){{.deaf = 6}, {.leaves = 1}});
  assert_int_equal(begin(&f, ON_FAILURE_RERUN, 20, 0), STATUS_OK);
  expect(&f, &answer, 1);
  assert_int_equal(answer.reruns, 1);
  assert_int_equal(*f.workers[0].calls, 1);
  close_fixture(&f);
}

/* Others have waited for it already: it was last heard three quarters of --timeout ago when its peer reports it. */
static void whoever_was_silent_is_not_waited_for_again(void **state) {
  (void)state;
  Fixture f;
  LeaderAnswer answer;
  open_fixture(&f, 2, (const FakeWorker[]){{.reports = 2}, {.silent = true}});
  assert_int_equal(begin(&f, ON_FAILURE_RERUN, 20, 0), STATUS_OK);
  f.leader->membership.devices[1].heard -= 15;
  double start = clock_now();
  expect(&f, &answer, 1);
  assert_true(clock_now() - start < 10); /* one second for its CANCEL, not twenty */
  close_fixture(&f);
}

static void the_time_of_a_request_is_kept(void **state) {
  (void)state;
  const FakeWorker slow[][2] = {{{0}, {.silent = true}}, {{.leaves = 1}, {.silent = true}}};
  for (int i = 0; i < 2; i++) {
    Fixture f;
    LeaderAnswer answer;
    open_fixture(&f, 2, slow[i]);
    assert_int_equal(begin(&f, ON_FAILURE_RERUN, 30, 3), STATUS_OK);
    double start = clock_now();
    assert_int_equal(ask(&f, &answer), STATUS_TIMEOUT);
    assert_true(clock_now() - start < 15);
    assert_non_null(strstr(status_message(), "longer than --request-timeout 3; last it waited for node 1 (worker unix:"));
    close_fixture(&f);
  }
}

/* Of two in flight the second waits for the first, which is no time of its own. */
static void a_request_has_its_time_from_its_turn_on(void **state) {
  (void)state;
  Fixture f;
  LeaderAnswer answer;
  open_fixture(&f, 1, (const FakeWorker[]){{.slow = 4}});
  assert_int_equal(begin(&f, ON_FAILURE_RERUN, 30, 6), STATUS_OK);
  assert_int_equal(leader_submit(f.leader, f.pixels, 1), STATUS_OK);
  for (int i = 0; i < 2; i++) {
    assert_int_equal(leader_submit(f.leader, f.pixels, 1), STATUS_OK);
    if (leader_collect(f.leader, &answer) != STATUS_OK) fail_msg("%s", status_message());
  }
  if (leader_collect(f.leader, &answer) != STATUS_OK) fail_msg("%s", status_message());
  close_fixture(&f);
}

/* What is under way is not computed anew for it. */
static void a_worker_that_is_back_waits_for_the_end_of_requests(void **state) {
  (void)state;
  Fixture f;
  LeaderAnswer answer;
  bool rested = false;
  open_fixture(&f, 2, (const FakeWorker[]){{.slow = 1}, {.leaves_done = 1}});
  assert_int_equal(begin(&f, ON_FAILURE_RERUN, 10, 0), STATUS_OK);
  expect(&f, &answer, 2);
  assert_int_equal(answer.reruns, 0); /* it left when its part was there */
  expect(&f, &answer, 1);
  assert_int_equal(waitpid(f.workers[1].pid, NULL, 0), f.workers[1].pid);
  f.workers[1].leaves_done = 0;
  munmap(f.workers[1].calls, 2 * sizeof(int));
  fake_worker_start(&f.workers[1], &f.base, 1);
  double until = clock_now() + 20;
  for (bool both = false; !both && clock_now() < until;) {
    while (leader_takes_more(f.leader)) assert_int_equal(leader_submit(f.leader, f.pixels, 1), STATUS_OK);
    rested |= leader_under_way(f.leader) < LEADER_DEPTH;
    assert_int_equal(leader_collect(f.leader, &answer), STATUS_OK);
    assert_int_equal(answer.reruns, 0);
    both = node_setup_count(leader_setup(f.leader)) == 2;
  }
  assert_true(rested && clock_now() < until);
  assert_int_equal(leader_sums(f.leader)->reruns, 0);
  close_fixture(&f);
}

/* It is called again, and is back, while the other one still computes. */
static void a_worker_that_is_called_again_disturbs_no_request(void **state) {
  (void)state;
  Fixture f;
  LeaderAnswer answer;
  open_fixture(&f, 2, (const FakeWorker[]){{.slow = 3}, {.hangs_up = 1}});
  assert_int_equal(begin(&f, ON_FAILURE_RERUN, 10, 0), STATUS_OK);
  expect(&f, &answer, 2);
  assert_int_equal(answer.reruns, 0);
  assert_int_equal(*f.workers[1].calls, 2);
  expect(&f, &answer, 2);
  close_fixture(&f);
}

/* It comes back with another model, which is mended by the time of the call after the next: not called at once, but called again. */
static void whoever_refuses_is_called_again(void **state) {
  (void)state;
  Fixture f;
  LeaderAnswer answer;
  open_fixture(&f, 2, (const FakeWorker[]){{0}, {.hangs_up = 1, .strange = 2}});
  assert_int_equal(begin(&f, ON_FAILURE_RERUN, 10, 0), STATUS_OK);
  expect(&f, &answer, 2);
  LeaderDevice *device = &f.leader->membership.devices[1];
  for (int calls = 2; calls <= 3; calls++) {
    const double until = clock_now() + 20;
    while (clock_now() < until && !(*f.workers[1].calls == calls && device->state == DEVICE_LOST)) expect(&f, &answer, 1);
    assert_int_equal(*f.workers[1].calls, calls);
    assert_true(device->next - clock_now() > 50);
    assert_non_null(strstr(device->refusal, "another model"));
    device->next = 0;
  }
  for (double until = clock_now() + 20; clock_now() < until && node_setup_count(leader_setup(f.leader)) < 2;) {
    assert_int_equal(ask(&f, &answer), STATUS_OK);
    nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
  }
  expect(&f, &answer, 2);
  assert_int_equal(*f.workers[1].calls, 4);
  assert_string_equal(device->refusal, "");
  close_fixture(&f);
}

/* Two threads write to the same TLS connections, the caller's and the one that sends PINGs while the caller does something else: under the
 * thread sanitizer this is where a write without the lock shows. */
static void workers_hear_of_a_leader_that_is_busy_elsewhere(void **state) {
  (void)state;
  Fixture f;
  LeaderAnswer answer;
  open_fixture(&f, 2, (const FakeWorker[]){{0}, {0}});
  assert_int_equal(begin(&f, ON_FAILURE_RERUN, 10, 0), STATUS_OK);
  expect(&f, &answer, 2);
  int before[2] = {f.workers[0].calls[1], f.workers[1].calls[1]};
  const double until = clock_now() + 4.5; /* two are due by then */
  for (int i = 0; i < 2; i++) {
    while (f.workers[i].calls[1] <= before[i] && clock_now() < until) nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    assert_true(f.workers[i].calls[1] > before[i]);
  }
  go_on(&f, 1, 2.5, 2);
  close_fixture(&f);
}

/* A LeaderDivide that takes long, of a Fixture: until its worker has been sent a sign of life, but for six seconds at most. */
static Status divide_slowly(void *context, const DeviceMeasure *measured, int nodes, const volatile sig_atomic_t *stop, int *groups) {
  const Fixture *f = context;
  const volatile int *pings = &f->workers[0].calls[1];
  const int before = *pings;
  (void)measured, (void)nodes, (void)stop, (void)groups;
  for (double until = clock_now() + 6; *pings == before && clock_now() < until;) nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
  return *pings > before ? STATUS_OK : status_set(STATUS_TIMEOUT, "no sign of life");
}

static void workers_hear_of_a_leader_that_divides(void **state) {
  (void)state;
  Fixture f;
  LeaderAnswer answer;
  open_fixture(&f, 1, (const FakeWorker[]){{0}});
  f.cluster = (ClusterOptions){.peers = f.peers, .peer_count = 1};
  const LeaderOptions options = {
      .batch_max = 1, .timeout = 10, .threads = 1, .cluster = &f.cluster, .divide = divide_slowly, .divide_context = &f};
  place(&f);
  if (leader_start(&f.leader, &f.base.weights, &f.partition, &options) != STATUS_OK) fail_msg("%s", status_message());
  expect(&f, &answer, 1);
  close_fixture(&f);
}

static void nobody_left_to_mask_is_an_error(void **state) {
  (void)state;
  Fixture f;
  LeaderAnswer answer;
  open_fixture(&f, 2, (const FakeWorker[]){{.leaves = 1}, {.leaves = 1}});
  assert_int_equal(begin(&f, ON_FAILURE_MASK, 10, 0), STATUS_OK);
  assert_int_equal(ask(&f, &answer), STATUS_PEER);
  assert_non_null(strstr(status_message(), "no device is left"));
  close_fixture(&f);
}

static void epochs_begin_anew_after_the_last_number(void **state) {
  (void)state;
  Fixture f;
  LeaderAnswer answer;
  open_fixture(&f, 1, (const FakeWorker[]){{0}});
  assert_int_equal(begin(&f, ON_FAILURE_RERUN, 10, 0), STATUS_OK);
  f.leader->epoch.number = UINT16_MAX;
  f.leader->epoch.parted = true; /* a reason for another one */
  expect(&f, &answer, 1);
  assert_int_equal(f.leader->epoch.number, 1);
  close_fixture(&f);
}

/* One that is gone by then hears no goodbye: that is not what has failed. */
static void the_end_hides_no_failure(void **state) {
  (void)state;
  Fixture f;
  open_fixture(&f, 2, (const FakeWorker[]){{0}, {0}});
  assert_int_equal(begin(&f, ON_FAILURE_RERUN, 10, 0), STATUS_OK);
  for (int i = 0; i < 2; i++) fake_worker_stop(&f.workers[i]);
  f.count = 0;
  status_set(STATUS_NUMERIC, "what has failed");
  leader_stop(f.leader);
  f.leader = NULL;
  assert_string_equal(status_message(), "what has failed");
  close_fixture(&f);
}

/* As operators see it: what has come to the door and has no part yet joins. */
static void what_is_under_way_to_a_part_joins(void **state) {
  static const struct {
    DeviceState state;
    int node;
    bool here, joins;
  } cases[] = {{DEVICE_LOST, -1, false, false},   {DEVICE_CALLED, -1, false, false}, {DEVICE_FETCHES, -1, false, true},
               {DEVICE_GREETED, -1, false, true}, {DEVICE_HERE, -1, false, true},    {DEVICE_HERE, 0, false, true},
               {DEVICE_READY, -1, false, true},   {DEVICE_READY, 0, true, false}};
  static LeaderDevice device;
  static Leader leader = {.membership = {.devices = &device}};
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    device.state = cases[i].state;
    device.node = cases[i].node;
    assert_int_equal(leader_is_here(&leader, 0), cases[i].here);
    assert_int_equal(leader_is_joining(&leader, 0), cases[i].joins);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(an_answer_of_devices_that_gave_each_other_up_is_incomplete),
                                     cmocka_unit_test(workers_that_do_not_answer_cost_the_others_nothing),
                                     cmocka_unit_test(whoever_fails_twice_is_left_behind),
                                     cmocka_unit_test(a_single_device_is_asked_for_no_codes),
                                     cmocka_unit_test(the_layout_stays_when_a_worker_is_left_behind),
                                     cmocka_unit_test(a_trace_goes_on_in_the_next_epoch),
                                     cmocka_unit_test(whoever_hears_late_is_not_left_behind),
                                     cmocka_unit_test(whoever_was_silent_is_not_waited_for_again),
                                     cmocka_unit_test(the_time_of_a_request_is_kept),
                                     cmocka_unit_test(a_request_has_its_time_from_its_turn_on),
                                     cmocka_unit_test(a_worker_that_is_back_waits_for_the_end_of_requests),
                                     cmocka_unit_test(a_worker_that_is_called_again_disturbs_no_request),
                                     cmocka_unit_test(whoever_refuses_is_called_again),
                                     cmocka_unit_test(workers_hear_of_a_leader_that_is_busy_elsewhere),
                                     cmocka_unit_test(workers_hear_of_a_leader_that_divides),
                                     cmocka_unit_test(nobody_left_to_mask_is_an_error),
                                     cmocka_unit_test(epochs_begin_anew_after_the_last_number),
                                     cmocka_unit_test(the_end_hides_no_failure),
                                     cmocka_unit_test(what_is_under_way_to_a_part_joins)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
