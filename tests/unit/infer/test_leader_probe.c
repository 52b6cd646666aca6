/* What a leader measures of the connections to workers, which a test plays (fake_worker.h): not what happened to the machine meanwhile. */
#include "fake_worker.h"
#include "infer/cluster/leader.h"

enum { WORKERS = 3 };

/* The first message within a stall would be 2 Mbit/s; a time of nothing 1 Tbit/s. */
static void is_of_this_machine(double rate) {
  if (!(rate > 20e6 && rate < 1e12)) fail_msg("%g bit/s", rate);
}

/* The first is undisturbed; the second stalls once in either direction; empty messages to the third are slower than full ones. */
static void one_delay_makes_no_rate(void **state) {
  (void)state;
  FakeWorker workers[WORKERS] = {{0}, {.stalls = true}, {.late_trips = 5}};
  Address peers[WORKERS];
  DeviceMeasure measured[WORKERS] = {0};
  SampleFixture base;
  ModelConfig config = {0};
  Partition partition;
  assert_int_equal(sample_config(&config, "tiny", 4, 50, 4, CLASS_DISTRIBUTED), STATUS_OK);
  sample_fixture_open(&base, &config);
  for (int i = 0; i < WORKERS; i++) {
    fake_worker_start(&workers[i], &base, i);
    peers[i] = workers[i].address;
  }
  const ClusterOptions cluster = {.peers = peers, .peer_count = WORKERS};
  const LeaderOptions options = {.batch_max = 1, .timeout = 20, .threads = 1, .cluster = &cluster};
  assert_int_equal(partition_init(&partition, 16, WORKERS, NULL), STATUS_OK);
  if (leader_measure(&base.weights, &partition, NULL, &options, measured) != STATUS_OK) fail_msg("%s", status_message());
  for (int i = 0; i < WORKERS; i++) {
    assert_true(measured[i].here && measured[i].linked);
    assert_true(measured[i].round_trip > 0 && measured[i].round_trip < 0.03);
    is_of_this_machine(measured[i].to);
    is_of_this_machine(measured[i].from);
    fake_worker_stop(&workers[i]);
  }
  partition_release(&partition);
  sample_fixture_close(&base);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(one_delay_makes_no_rate)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
