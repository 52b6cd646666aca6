/* SETUP: what is sent arrives, for images and texts; every field out of range, every list that does not fit and every length is refused.
 */
#include "infer/cluster/setup_message.h"
#include "sample_cluster.h"
#include <cmocka.h>
#include <math.h>

enum { MAX = 4096 };

typedef struct Fixture {
  SampleCluster cluster;
  Weights weights;
  ClusterSetup setup;
  LinkTracePoint points[2];
  int32_t order[16];
  uint8_t bytes[MAX];
  size_t size;
} Fixture;

static void set_up(Fixture *f, bool text) {
  ModelConfig config;
  assert_int_equal(sample_config(&config, text ? "tiny-gpt2" : "tiny", 4, 50, 3, CLASS_DISTRIBUTED), STATUS_OK);
  assert_int_equal(sample_open(&f->cluster, &config, 1), STATUS_OK);
  config_release(&config);
  f->weights = (Weights){.model = f->cluster.model, .config = model_config(f->cluster.model), .books = f->cluster.books};
  f->points[0] = (LinkTracePoint){0, 1e6};
  f->points[1] = (LinkTracePoint){2.5, 2e7};
  for (int i = 0; i < 16; i++) f->order[i] = (i * 5) % 16;
  f->setup = (ClusterSetup){.epoch = 7,
                            .nodes = 3,
                            .self = 1,
                            .strategy = STRATEGY_ASTRA,
                            .transport = TRANSPORT_UDP,
                            .reliability = {RELIABILITY_DEADLINE, .deadline = 0.03, .min_packets = 2, .timeout = 30},
                            .parts = 4,
                            .retained = 1,
                            .class_token = text ? CLASS_NONE : CLASS_DISTRIBUTED,
                            .entropy = ENTROPY_AUTO,
                            .mask = true,
                            .keep_codes = true,
                            .batch_max = 8,
                            .tokens_max = text ? 48 : 0,
                            .mtu = 1500,
                            .links = {.bits_per_second = 2e7,
                                      .latency = 0.002,
                                      .jitter = 0.001,
                                      .loss = 0.05,
                                      .loss_model = LOSS_GILBERT_ELLIOTT,
                                      .loss_burst = 5,
                                      .trace = {f->points, 2},
                                      .topology = LINK_SWITCH,
                                      .seed = 99,
                                      .lose_tokens = true,
                                      .overhead = 42},
                            .shaped = true,
                            .fingerprints = {1, 2, UINT64_MAX},
                            .tokens = text ? 0 : 16,
                            .order = text ? NULL : f->order};
  static const char *const addresses[3] = {NULL, "[fe80::1]:7433", "unix:/tmp/socket"};
  for (int d = 0; d < 3; d++) {
    SetupDevice *device = &f->setup.device[d];
    *device = (SetupDevice){
        .reachable = addresses[d] != NULL, .tokens = text ? 0 : 4 + 2 * (d == 1) + 2 * (d == 2), .weight = text ? d + 0.5 : 0};
    if (addresses[d]) assert_int_equal(address_parse(addresses[d], &device->address), STATUS_OK);
  }
  f->size = setup_message_bytes(&f->setup);
  assert_in_range(f->size, 1, MAX);
  assert_true(f->size <= setup_message_max(f->weights.config));
  assert_int_equal(setup_message_pack(&f->setup, f->bytes), STATUS_OK);
}

static void tear_down(Fixture *f) { sample_close(&f->cluster); }

static Status parse(const Fixture *f, const uint8_t *bytes, size_t size) {
  ClusterSetup got;
  Status status = setup_message_parse(bytes, size, &f->weights, &got);
  setup_message_release(&got);
  return status;
}

static void what_is_sent_arrives(void **state) {
  (void)state;
  for (int text = 0; text < 2; text++) {
    static Fixture f;
    ClusterSetup got;
    uint8_t again[MAX];
    set_up(&f, text);
    assert_int_equal(f.size, 144 + 2 * 16 + 3 * 128 + (text ? 0 : 16 * 4));
    assert_int_equal(setup_message_parse(f.bytes, f.size, &f.weights, &got), STATUS_OK);
    assert_int_equal(setup_message_bytes(&got), f.size);
    assert_int_equal(setup_message_pack(&got, again), STATUS_OK);
    assert_memory_equal(again, f.bytes, f.size);
    assert_true(got.epoch == 7 && got.nodes == 3 && got.self == 1 && got.parts == 4 && got.mtu == 1500 && got.mask && got.shaped &&
                got.links.lose_tokens);
    assert_true(got.reliability.mode == RELIABILITY_DEADLINE && got.reliability.timeout == 30);
    assert_true(got.links.loss == 0.05 && got.links.trace.points[1].bits_per_second == 2e7 && got.fingerprints.partition == UINT64_MAX);
    assert_true(!got.device[0].reachable && got.device[2].address.on_disk && got.device[1].address.port == 7433);
    assert_string_equal(got.device[1].address.name, "fe80::1");
    assert_string_equal(got.device[2].address.name, "/tmp/socket");
    if (text)
      assert_true(got.order == NULL && got.device[2].weight == 2.5);
    else
      assert_memory_equal(got.order, f.order, sizeof f.order);
    setup_message_release(&got);
    tear_down(&f);
  }
}

/* As --loss accepts it, in bursts of the least length that it can have. */
static void the_largest_loss_arrives(void **state) {
  static Fixture f;
  (void)state;
  set_up(&f, false);
  f.setup.links.loss = LINK_LOSS_MAX;
  f.setup.links.loss_burst = LINK_LOSS_MAX / (1 - LINK_LOSS_MAX);
  assert_int_equal(setup_message_pack(&f.setup, f.bytes), STATUS_OK);
  assert_int_equal(parse(&f, f.bytes, f.size), STATUS_OK);
  f.setup.links.loss = nextafter(LINK_LOSS_MAX, 1);
  assert_int_equal(setup_message_pack(&f.setup, f.bytes), STATUS_OK);
  assert_int_equal(parse(&f, f.bytes, f.size), STATUS_BAD_VALUE);
  tear_down(&f);
}

static void streams_are_cut_into_segments(void **state) {
  (void)state;
  static Fixture f;
  ClusterSetup got;
  set_up(&f, false);
  assert_int_equal(setup_message_parse(f.bytes, f.size, &f.weights, &got), STATUS_OK);
  assert_int_equal(got.links.segment, 0);
  setup_message_release(&got);
  f.setup.transport = TRANSPORT_TCP;
  f.setup.reliability.mode = RELIABILITY_STREAM;
  assert_int_equal(setup_message_pack(&f.setup, f.bytes), STATUS_OK);
  assert_int_equal(setup_message_parse(f.bytes, f.size, &f.weights, &got), STATUS_OK);
  assert_int_equal(got.links.segment, LINK_SEGMENT_MAX);
  setup_message_release(&got);
  tear_down(&f);
}

static void other_lengths_are_refused(void **state) {
  (void)state;
  static Fixture f;
  set_up(&f, false);
  for (size_t size = 0; size < f.size; size++) assert_int_equal(parse(&f, f.bytes, size), STATUS_BAD_VALUE);
  assert_int_equal(parse(&f, f.bytes, f.size + 1), STATUS_BAD_VALUE);
  tear_down(&f);
}

/* offset, value, what the message names. DEVICES: where they begin. */
enum { DEVICES = 144 + 32, ORDER = DEVICES + 3 * 128 };
static void every_field_is_checked(void **state) {
  (void)state;
  static Fixture f;
  static const struct {
    int offset, value;
    const char *what;
  } faults[] = {{0, 0, "epoch"},
                {2, 0, "devices"},
                {2, 65, "devices"},
                {4, 3, "device number"},
                {6, STRATEGY_COUNT, "strategy"},
                {6, STRATEGY_SP, "strategy sp over datagrams"},
                {7, 2, "transport"},
                {7, TRANSPORT_TCP, "reliability does not go"},
                {8, 3, "reliability"},
                {8, RELIABILITY_STREAM, "reliability does not go"},
                {9, 0, "parts"},
                {9, 17, "parts"},
                {10, CLASS_NONE, "class token"},
                {11, ENTROPY_COUNT, "entropy"},
                {11, ENTROPY_ON, "no frequencies"},
                {12, 1, "sequences"},
                {13, 255, "sequences"},
                {14, 4, "retained blocks"},
                {16, 0, "batch"},
                {19, 255, "batch"},
                {20, 1, "tokens of a text"},
                {31, 0xff, "time-out"},
                {39, 0xbf, "deadline"},
                {41, 1, "MTU"},
                {44, 32, "flags"},
                {72, 3, "link model"},
                {73, 2, "loss model"},
                {75, 1, "bit rate"},
                {78, 1, "overhead"},
                {87, 0xc1, "bandwidth"},
                {119, 0x40, "loss"},
                {136, 3, "follow from it"},
                {138, 1, "points of a trace"},
                {140, 15, "tokens of an image"},
                {144 + 7, 0x40, "a time of the trace"},
                {144 + 16 + 7, 0xc0, "a time of the trace"},
                {144 + 31, 0xc1, "a rate of the trace"},
                {DEVICES, 7, "an invalid address"},
                {DEVICES, 4, "an invalid address"},
                {DEVICES + 1, 1, "an invalid address"},
                {DEVICES + 2, 1, "an invalid address"},
                {DEVICES + 16, 1, "an invalid address"},
                {DEVICES + 127, 1, "an invalid address"},
                {DEVICES + 4, 0, "tokens of a device"},
                {DEVICES + 4, 5, "do not sum"},
                {DEVICES + 15, 0x40, "weight"},
                {ORDER, 5, "permutation"},
                {ORDER, 16, "permutation"},
                {ORDER + 3, 255, "permutation"}};
  set_up(&f, false);
  for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
    uint8_t bytes[MAX];
    memcpy(bytes, f.bytes, f.size);
    assert_int_not_equal(bytes[faults[i].offset], faults[i].value);
    bytes[faults[i].offset] = (uint8_t)faults[i].value;
    assert_int_equal(parse(&f, bytes, f.size), STATUS_BAD_VALUE);
    if (!strstr(status_message(), faults[i].what)) fail_msg("%s: %s", faults[i].what, status_message());
  }
  tear_down(&f);
}

static void the_model_decides_too(void **state) {
  (void)state;
  static Fixture f;
  set_up(&f, false);
  f.weights.books = NULL;
  assert_int_equal(parse(&f, f.bytes, f.size), STATUS_BAD_VALUE);
  assert_non_null(strstr(status_message(), "a model without codebooks"));
  tear_down(&f);
  set_up(&f, true); /* a text's set-up, 49 tokens where the model takes 48 */
  f.bytes[20] = 49;
  assert_int_equal(parse(&f, f.bytes, f.size), STATUS_BAD_VALUE);
  f.bytes[20] = 48;
  assert_int_equal(parse(&f, f.bytes, f.size), STATUS_OK);
  memset(f.bytes + DEVICES + 8, 0, 8); /* no weight */
  assert_int_equal(parse(&f, f.bytes, f.size), STATUS_BAD_VALUE);
  tear_down(&f);
}

static void names_and_long_paths_are_not_sent(void **state) {
  (void)state;
  static Fixture f;
  char path[160];
  set_up(&f, false);
  assert_int_equal(address_parse("localhost:80", &f.setup.device[1].address), STATUS_OK);
  assert_int_equal(setup_message_pack(&f.setup, f.bytes), STATUS_BAD_VALUE);
  snprintf(path, sizeof path, "unix:/%095d", 0);
  assert_int_equal(address_parse(path, &f.setup.device[1].address), STATUS_OK);
  assert_int_equal(setup_message_pack(&f.setup, f.bytes), STATUS_BAD_VALUE);
  snprintf(path, sizeof path, "unix:/%094d", 0);
  assert_int_equal(address_parse(path, &f.setup.device[1].address), STATUS_OK);
  assert_int_equal(setup_message_pack(&f.setup, f.bytes), STATUS_OK);
  assert_int_equal(parse(&f, f.bytes, f.size), STATUS_OK);
  tear_down(&f);
}

/* The leader's name of a link is for processes of its machine. */
static void links_go_with_link_local_numbers(void **state) {
  (void)state;
  static Fixture f;
  set_up(&f, false);
  assert_int_equal(address_parse("[fe80::1%wlan0]:80", &f.setup.device[1].address), STATUS_OK);
  assert_int_equal(setup_message_pack(&f.setup, f.bytes), STATUS_OK);
  uint8_t *device = f.bytes + DEVICES + SETUP_DEVICE, *path = device + 32;
  assert_memory_equal(path, "wlan0\0", 7);
  ClusterSetup got;
  assert_int_equal(setup_message_parse(f.bytes, f.size, &f.weights, &got), STATUS_OK);
  assert_string_equal(got.device[1].address.name, "fe80::1%wlan0");
  setup_message_release(&got);
  memcpy(path, "a%b", 4);
  assert_int_equal(parse(&f, f.bytes, f.size), STATUS_BAD_VALUE);
  memset(path, 'a', SETUP_LINK);
  assert_int_equal(parse(&f, f.bytes, f.size), STATUS_BAD_VALUE);
  memset(path, 'a', SETUP_PATH);
  assert_int_equal(parse(&f, f.bytes, f.size), STATUS_BAD_VALUE);
  memset(path, 0, SETUP_PATH);
  path[0] = 'a';
  assert_int_equal(parse(&f, f.bytes, f.size), STATUS_OK);
  device[16] = 0x20; /* no link-local number any more */
  assert_int_equal(parse(&f, f.bytes, f.size), STATUS_BAD_VALUE);
  assert_int_equal(address_parse("[fe80::1%abcdefghijklmnop]:80", &f.setup.device[1].address), STATUS_OK);
  assert_int_equal(setup_message_pack(&f.setup, f.bytes), STATUS_BAD_VALUE);
  tear_down(&f);
}

static void keys_depend_on_all_that_was_agreed(void **state) {
  (void)state;
  ClusterSetup setup = {.epoch = 0x0102, .fingerprints = {.model = 3, .codebook = 4, .partition = 5}};
  const uint8_t session[SETUP_SESSION] = "fifteen letters";
  uint8_t agreed[SETUP_AGREED], expected[SETUP_AGREED] = {[16] = 2, [17] = 1, [18] = WIRE_VERSION, [20] = 3, [28] = 4, [36] = 5};
  memcpy(expected, session, sizeof session);
  setup_message_agreed(&setup, session, agreed);
  assert_memory_equal(agreed, expected, sizeof agreed);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(what_is_sent_arrives),
                                     cmocka_unit_test(the_largest_loss_arrives),
                                     cmocka_unit_test(streams_are_cut_into_segments),
                                     cmocka_unit_test(other_lengths_are_refused),
                                     cmocka_unit_test(every_field_is_checked),
                                     cmocka_unit_test(the_model_decides_too),
                                     cmocka_unit_test(names_and_long_paths_are_not_sent),
                                     cmocka_unit_test(links_go_with_link_local_numbers),
                                     cmocka_unit_test(keys_depend_on_all_that_was_agreed)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
