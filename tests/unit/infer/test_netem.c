/* The netem against the link model it is made of: a link for each peer, or one port for all; the same losses every time. */
#include "infer/transport/netem.h"
#include <cmocka.h>
#include <math.h>
#include <string.h>

static void near(double a, double b) { assert_true(fabs(a - b) < 1e-9); }

/* In its place: its links point into it. */
static double left;

static void open_netem(Netem *netem, const LinkOptions *options) {
  assert_int_equal(netem_init(netem, options, NULL, NULL, 0, 3, 100), STATUS_OK);
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
  assert_non_null(strstr(status_message(), "--link-model shared-air needs virtual time"));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(without_options_nothing_waits),
                                     cmocka_unit_test(a_mesh_has_a_link_for_each_peer),
                                     cmocka_unit_test(a_switch_has_one_port_each_way),
                                     cmocka_unit_test(a_trace_begins_with_the_links),
                                     cmocka_unit_test(losses_repeat_and_differ_between_links),
                                     cmocka_unit_test(delays_repeat),
                                     cmocka_unit_test(a_medium_of_all_is_refused)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
