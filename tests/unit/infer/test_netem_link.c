/* A link by itself: departures at its rate or trace, arrivals in order, losses that are as many and as clustered as was asked for, and the
 * same ones every time. */
#include "infer/transport/netem.h"
#include <cmocka.h>
#include <math.h>

static void near(double a, double b) { assert_true(fabs(a - b) < 1e-9); }

static LinkModel open_link(const LinkOptions *options) {
  LinkModel link;
  link_model_init(&link, options, 0, 1);
  return link;
}

static void packets_leave_at_the_rate(void **state) {
  (void)state;
  const LinkOptions options = {.bits_per_second = 1e6, .overhead = 25};
  LinkModel link = open_link(&options);
  near(link_model_leave(&link, 1, 100), 1.001);
  near(link_model_leave(&link, 1.0002, 100), 1.002); /* behind the first */
  near(link_model_leave(&link, 2, 225), 2.002);      /* after a pause */
  const LinkOptions unlimited = {.latency = 0.5};
  link = open_link(&unlimited);
  near(link_model_leave(&link, 3, 1000000), 3);
  near(link_model_arrive(&link, 3), 3.5);
}

static void a_limit_only_narrows(void **state) {
  (void)state;
  const LinkOptions options = {.bits_per_second = 1e6, .latency = 0.5};
  LinkModel link = open_link(&options);
  link_model_limit(&link, 2e6, 0.1);
  near(link_model_leave(&link, 1, 125), 1.001);
  near(link_model_arrive(&link, 2), 2.5);
  link_model_limit(&link, 5e5, 0.7);
  link_model_limit(&link, 0, 0);
  near(link_model_leave(&link, 2, 125), 2.002);
  near(link_model_arrive(&link, 2.002), 2.702);
}

static void a_trace_is_integrated(void **state) {
  (void)state;
  LinkTracePoint points[] = {{0, 1000}, {1, 0}, {2, 4000}, {3, 2000}};
  const LinkOptions options = {.trace = {points, 4}};
  LinkModel link = open_link(&options);
  near(link_model_leave(&link, 0.5, 50), 0.9);
  near(link_model_leave(&link, 0.5, 50), 2.075); /* 100 bits before the gap, 300 behind it */
  near(link_model_leave(&link, 2.5, 500), 4);    /* 2,000 at the third rate, 2,000 at the last */
  near(link_model_leave(&link, 9, 25), 9.1);
  near(link_trace_rate(&options.trace, 1.5), 0);
  near(link_trace_rate(&options.trace, 100), 2000);
}

static void nothing_overtakes(void **state) {
  (void)state;
  const LinkOptions options = {.latency = 0.002, .jitter = 0.002, .seed = 3};
  LinkModel link = open_link(&options);
  double last = 0, min = 1, max = 0;
  for (int i = 0; i < 1000; i++) {
    double arrived = link_model_arrive(&link, 1e-4 * i);
    assert_true(arrived >= last && arrived >= 1e-4 * i);
    last = arrived;
  }
  link = open_link(&options);
  for (int i = 0; i < 1000; i++) {
    double delay = link_model_arrive(&link, i) - i;
    min = fmin(min, delay), max = fmax(max, delay);
  }
  assert_true(min >= 0 && min < 0.0001 && max <= 0.004 && max > 0.0039);
}

static void losses_are_as_many_as_asked_for(void **state) {
  (void)state;
  for (int model = LOSS_BERNOULLI; model <= LOSS_GILBERT_ELLIOTT; model++) {
    const LinkOptions options = {.loss = 0.05, .loss_model = (LossModel)model, .loss_burst = 5, .seed = 11};
    LinkModel link = open_link(&options);
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
    if (i % 2) link_model_arrive(&same[1], i); /* jitter draws nothing from the fates */
    for (int j = 0; j < 3; j++) differences[j] += fate != link_model_loses(&differ[j]);
  }
  for (int j = 0; j < 3; j++) assert_in_range(differences[j], 400, 600);
}

static void single_tokens_are_not_the_links_to_lose(void **state) {
  (void)state;
  const LinkOptions options = {.loss = 0.9, .lose_tokens = true};
  LinkModel link = open_link(&options);
  for (int i = 0; i < 100; i++) assert_false(link_model_loses(&link));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(packets_leave_at_the_rate),
                                     cmocka_unit_test(a_limit_only_narrows),
                                     cmocka_unit_test(a_trace_is_integrated),
                                     cmocka_unit_test(nothing_overtakes),
                                     cmocka_unit_test(losses_are_as_many_as_asked_for),
                                     cmocka_unit_test(seed_and_pair_decide),
                                     cmocka_unit_test(single_tokens_are_not_the_links_to_lose)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
