/* Simulated links: departures at their rate or trace, arrivals in order, a link for each peer or one port for all, and losses that are as
 * many and as clustered as was asked for, the same ones every time. */
#include "infer/transport/netem.h"
#include <cmocka.h>
#include <math.h>
#include <string.h>

static void near(double a, double b) { assert_true(fabs(a - b) < 1e-9); }

/* When the last bit of a packet sent last was out of this device's link. */
static double left;

/* In its place: its links point into it. */
static void open_netem(Netem *netem, const LinkOptions *options) {
  assert_int_equal(netem_init(netem, options, NULL, NULL, 0, 3, 100), STATUS_OK);
}

static double arrival(Netem *netem, double ready, size_t bytes) {
  bool lost;
  return netem_send(netem, 1, ready, bytes, true, &left, &lost);
}

static double departure(Netem *netem, double ready, size_t bytes) {
  arrival(netem, ready, bytes);
  return left;
}

static void packets_leave_at_the_rate(void **state) {
  (void)state;
  const LinkOptions options = {.bits_per_second = 1e6, .overhead = 25}, unlimited = {.latency = 0.5};
  Netem netem;
  open_netem(&netem, &options);
  near(departure(&netem, 101, 100), 101.001);
  near(departure(&netem, 101.0002, 100), 101.002); /* behind the first */
  near(departure(&netem, 102, 225), 102.002);      /* after a pause */
  netem_release(&netem);
  open_netem(&netem, &unlimited);
  near(departure(&netem, 103, 1000000), 103);
  near(arrival(&netem, 103, 1000000), 103.5);
  netem_release(&netem);
}

/* Over a stream lower layers take their bytes of each segment: 208 of them, where a last one is short. */
static void segments_have_headers(void **state) {
  (void)state;
  const LinkOptions options = {.bits_per_second = 20e6, .overhead = 54, .segment = 1448};
  Netem netem;
  open_netem(&netem, &options);
  near(departure(&netem, 101, 300000), 101 + 8 * (300000 + 208 * 54) / 20e6);
  near(departure(&netem, 102, 1448), 102 + 8 * (1448 + 54) / 20e6);
  near(departure(&netem, 103, 1), 103 + 8 * 55 / 20e6);
  near(netem_idle(&netem, 1, 1449), 8 * (1449 + 2 * 54) / 20e6);
  netem_release(&netem);
}

/* What a device's own link allows narrows its links to the others, and never widens them. */
static void ends_only_narrow(void **state) {
  (void)state;
  static const struct {
    LinkEnd own, peer;
    double out, in;
  } rows[] = {{{.out = 2e6, .latency = 0.1}, {.in = 3e6}, 101.001, 101.501},
              {{.out = 5e5}, {.latency = 0.7}, 101.002, 101.702},
              {{.latency = 0.7}, {.in = 5e5}, 101.002, 101.702},
              {{.out = 0}, {.out = 5e5}, 101.001, 101.501}};
  const LinkOptions options = {.bits_per_second = 1e6, .latency = 0.5};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    const LinkEnd ends[2] = {rows[i].own, rows[i].peer};
    Netem netem;
    assert_int_equal(netem_init(&netem, &options, ends, NULL, 0, 2, 100), STATUS_OK);
    near(arrival(&netem, 101, 125), rows[i].in);
    near(left, rows[i].out);
    netem_release(&netem);
  }
}

static void a_trace_is_integrated(void **state) {
  (void)state;
  LinkTracePoint points[] = {{0, 1000}, {1, 0}, {2, 4000}, {3, 2000}};
  const LinkOptions options = {.trace = {points, 4}};
  Netem netem;
  open_netem(&netem, &options);
  near(departure(&netem, 100.5, 50), 100.9);
  near(departure(&netem, 100.5, 50), 102.075); /* 100 bits before the gap, 300 behind it */
  near(departure(&netem, 102.5, 500), 104);    /* 2,000 at the third rate, 2,000 at the last */
  near(departure(&netem, 109, 25), 109.1);
  near(link_trace_rate(&options.trace, 1.5), 0);
  near(link_trace_rate(&options.trace, 100), 2000);
  netem_release(&netem);
}

static void nothing_overtakes(void **state) {
  (void)state;
  const LinkOptions options = {.latency = 0.002, .jitter = 0.002, .seed = 3};
  Netem netem;
  double last = 0, min = 1, max = 0;
  open_netem(&netem, &options);
  for (int i = 0; i < 1000; i++) {
    double at = arrival(&netem, 100 + 1e-4 * i, 10);
    assert_true(at >= last && at >= 100 + 1e-4 * i);
    last = at;
  }
  netem_release(&netem);
  open_netem(&netem, &options);
  for (int i = 0; i < 1000; i++) {
    double delay = arrival(&netem, 100 + i, 10) - (100 + i);
    min = fmin(min, delay), max = fmax(max, delay);
  }
  assert_true(min >= -1e-9 && min < 0.0001 && max <= 0.004 + 1e-9 && max > 0.0039);
  netem_release(&netem);
}

static void without_options_nothing_waits(void **state) {
  (void)state;
  bool lost;
  Netem netem;
  open_netem(&netem, NULL);
  near(netem_send(&netem, 1, 101, 1000, true, &left, &lost), 101);
  assert_false(lost);
  near(netem_receive(&netem, 1, 102, 1000), 102);
  netem_release(&netem);
}

static void a_mesh_has_a_link_for_each_peer(void **state) {
  (void)state;
  bool lost;
  const LinkOptions options = {.bits_per_second = 8000, .latency = 0.5, .overhead = 10};
  Netem netem;
  open_netem(&netem, &options);
  near(netem_send(&netem, 1, 101, 90, true, &left, &lost), 101.6);
  near(netem_send(&netem, 1, 101, 90, true, &left, &lost), 101.7);
  near(netem_send(&netem, 2, 101, 90, true, &left, &lost), 101.6);
  near(netem_receive(&netem, 1, 102, 90), 102);
  netem_release(&netem);
}

static void a_switch_has_one_port_each_way(void **state) {
  (void)state;
  bool lost;
  const LinkOptions options = {.bits_per_second = 8000, .topology = LINK_SWITCH};
  Netem netem;
  open_netem(&netem, &options);
  near(netem_send(&netem, 1, 101, 100, true, &left, &lost), 101.1);
  near(netem_send(&netem, 2, 101, 100, true, &left, &lost), 101.2);
  near(netem_receive(&netem, 1, 105, 100), 105); /* its first bit came at 104.9 */
  near(netem_receive(&netem, 1, 105, 100), 105.1);
  near(netem_receive(&netem, 1, 106, 100), 106);
  netem_release(&netem);
}

/* What is queued, and for whom, does not count. */
static void an_idle_link_takes_its_latency_and_the_bits(void **state) {
  (void)state;
  bool lost;
  const LinkOptions options = {.bits_per_second = 8000, .latency = 0.5, .overhead = 10}, unlimited = {.latency = 0.5};
  Netem netem;
  open_netem(&netem, &options);
  for (int i = 0; i < 2; i++) {
    near(netem_idle(&netem, 1, 90), 0.6);
    netem_send(&netem, 1, 101, 90, true, &left, &lost);
  }
  netem_release(&netem);
  open_netem(&netem, &unlimited);
  near(netem_idle(&netem, 2, 90), 0.5);
  netem_release(&netem);
  open_netem(&netem, NULL);
  near(netem_idle(&netem, 1, 90), 0);
  netem_release(&netem);
}

static void a_trace_begins_with_the_links(void **state) {
  (void)state;
  bool lost;
  LinkTracePoint points[] = {{0, 8000}, {1, 4000}};
  const LinkOptions options = {.trace = {points, 2}};
  Netem netem;
  open_netem(&netem, &options);
  near(netem_send(&netem, 1, 100, 1000, true, &left, &lost), 101);
  near(netem_send(&netem, 1, 102, 500, true, &left, &lost), 103);
  netem_release(&netem);
}

static void losses_are_as_many_as_asked_for(void **state) {
  (void)state;
  for (int model = LOSS_BERNOULLI; model <= LOSS_GILBERT_ELLIOTT; model++) {
    const LinkOptions options = {.loss = 0.05, .loss_model = (LossModel)model, .loss_burst = 5, .seed = 11};
    LinkModel link;
    link_model_init(&link, &options, 0, 1);
    int lost = 0, bursts = 0;
    bool before = false;
    for (int i = 0; i < 200000; i++) {
      bool loses = link_model_loses(&link);
      lost += loses;
      bursts += loses && !before;
      before = loses;
    }
    assert_in_range(lost, 9000, 11000);
    double length = (double)lost / bursts;
    if (model == LOSS_BERNOULLI) assert_true(length > 1.02 && length < 1.09);
    if (model == LOSS_GILBERT_ELLIOTT) assert_true(length > 4.6 && length < 5.4);
  }
}

/* Between two bursts one packet arrives at least. */
static void bursts_too_short_for_the_loss_are_refused(void **state) {
  (void)state;
  const LinkOptions most = {.loss = 0.8, .loss_model = LOSS_GILBERT_ELLIOTT, .loss_burst = 4, .seed = 11};
  const LinkOptions more = {.loss = 0.9, .loss_model = LOSS_GILBERT_ELLIOTT, .loss_burst = 4};
  Netem netem;
  int lost = 0;
  assert_int_equal(netem_init(&netem, &most, NULL, NULL, 0, 2, 0), STATUS_OK);
  for (int i = 0; i < 100000; i++) lost += link_model_loses(&netem.links[1]);
  assert_in_range(lost, 79000, 81000);
  netem_release(&netem);
  assert_int_equal(netem_init(&netem, &more, NULL, NULL, 0, 2, 0), STATUS_BAD_VALUE);
  assert_non_null(strstr(status_message(), "in bursts of 9 or more"));
  netem_release(&netem);
  const LinkOptions tokens = {.loss = 0.9, .loss_model = LOSS_GILBERT_ELLIOTT, .loss_burst = 4, .lose_tokens = true};
  assert_int_equal(link_loss_check(&tokens), STATUS_BAD_VALUE);
  assert_non_null(strstr(status_message(), "of 4 tokens"));
}

static void seed_and_pair_decide(void **state) {
  (void)state;
  const LinkOptions options = {.loss = 0.5, .seed = 5}, other = {.loss = 0.5, .seed = 6};
  LinkModel same[2], differ[3];
  for (int i = 0; i < 2; i++) link_model_init(&same[i], &options, 2, 3);
  link_model_init(&differ[0], &options, 3, 2);
  link_model_init(&differ[1], &other, 2, 3);
  link_model_init(&differ[2], &options, 2, 4);
  int differences[3] = {0};
  for (int i = 0; i < 1000; i++) {
    bool fate = link_model_loses(&same[0]);
    assert_int_equal(fate, link_model_loses(&same[1]));
    for (int j = 0; j < 3; j++) differences[j] += fate != link_model_loses(&differ[j]);
  }
  for (int j = 0; j < 3; j++) assert_in_range(differences[j], 400, 600);
}

/* Either can be changed alone. */
static void jitter_draws_nothing_from_the_fates(void **state) {
  (void)state;
  const LinkOptions calm = {.loss = 0.5, .seed = 5}, wavering = {.loss = 0.5, .jitter = 0.01, .seed = 5};
  Netem one, two;
  open_netem(&one, &calm);
  open_netem(&two, &wavering);
  double delays = 0;
  for (int i = 0; i < 1000; i++) {
    bool a, b;
    netem_send(&one, 1, 100 + i, 10, true, &left, &a);
    delays += netem_send(&two, 1, 100 + i, 10, true, &left, &b) - (100 + i);
    assert_int_equal(a, b);
  }
  assert_true(delays > 1); /* it does waver */
  netem_release(&one);
  netem_release(&two);
}

static void single_tokens_are_not_the_links_to_lose(void **state) {
  (void)state;
  const LinkOptions options = {.loss = 0.9, .lose_tokens = true};
  LinkModel link;
  link_model_init(&link, &options, 0, 1);
  for (int i = 0; i < 100; i++) assert_false(link_model_loses(&link));
}

static void losses_repeat_and_differ_between_links(void **state) {
  (void)state;
  const LinkOptions options = {.loss = 0.2, .seed = 5};
  Netem one, two;
  open_netem(&one, &options);
  open_netem(&two, &options);
  int count = 0, differ = 0;
  for (int i = 0; i < 5000; i++) {
    bool a, b, other;
    netem_send(&one, 1, 100, 10, true, &left, &a);
    netem_send(&two, 1, 100, 10, true, &left, &b);
    netem_send(&one, 2, 100, 10, true, &left, &other);
    assert_int_equal(a, b);
    if (i % 3 == 0) netem_send(&two, 1, 100, 10, false, &left, &b); /* a question changes nothing */
    count += a;
    differ += a != other;
  }
  assert_in_range(count, 850, 1150); /* 1000 +- 5 sigma */
  assert_true(differ > 1000);
  netem_release(&one);
  netem_release(&two);
}

/* A question takes its place behind what was sent, and changes no other delay. */
static void delays_repeat(void **state) {
  (void)state;
  const LinkOptions options = {.latency = 0.02, .jitter = 0.01, .seed = 5};
  Netem one, two;
  open_netem(&one, &options);
  open_netem(&two, &options);
  for (int i = 0; i < 1000; i++) {
    bool lost;
    double at = netem_send(&one, 1, 100 + i, 10, true, &left, &lost);
    near(netem_send(&two, 1, 100 + i, 10, true, &left, &lost), at);
    assert_true(netem_send(&two, 1, 100 + i, 10, false, &left, &lost) >= at);
  }
  netem_release(&one);
  netem_release(&two);
}

static void a_medium_of_all_is_refused(void **state) {
  (void)state;
  Netem netem;
  assert_int_equal(netem_init(&netem, &(LinkOptions){.topology = LINK_SHARED}, NULL, NULL, 0, 2, 0), STATUS_UNSUPPORTED);
  assert_non_null(strstr(status_message(), "--link-model shared-medium needs virtual time"));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(packets_leave_at_the_rate),
                                     cmocka_unit_test(segments_have_headers),
                                     cmocka_unit_test(ends_only_narrow),
                                     cmocka_unit_test(a_trace_is_integrated),
                                     cmocka_unit_test(nothing_overtakes),
                                     cmocka_unit_test(without_options_nothing_waits),
                                     cmocka_unit_test(a_mesh_has_a_link_for_each_peer),
                                     cmocka_unit_test(a_switch_has_one_port_each_way),
                                     cmocka_unit_test(an_idle_link_takes_its_latency_and_the_bits),
                                     cmocka_unit_test(a_trace_begins_with_the_links),
                                     cmocka_unit_test(losses_are_as_many_as_asked_for),
                                     cmocka_unit_test(bursts_too_short_for_the_loss_are_refused),
                                     cmocka_unit_test(seed_and_pair_decide),
                                     cmocka_unit_test(jitter_draws_nothing_from_the_fates),
                                     cmocka_unit_test(single_tokens_are_not_the_links_to_lose),
                                     cmocka_unit_test(losses_repeat_and_differ_between_links),
                                     cmocka_unit_test(delays_repeat),
                                     cmocka_unit_test(a_medium_of_all_is_refused)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
