/* The shaper against the link model it is made of: a link for each peer, or one port for all; the same losses every time. */
#include "infer/wire/shaper.h"
#include <cmocka.h>
#include <math.h>
#include <string.h>

static void near(double a, double b) { assert_true(fabs(a - b) < 1e-9); }

/* In its place: its links point into it. */
static void open_shaper(Shaper *shaper, const LinkOptions *options) {
  assert_int_equal(shaper_init(shaper, options, 0, 3, 100), STATUS_OK);
}

static void without_options_nothing_waits(void **state) {
  (void)state;
  bool lost;
  Shaper shaper;
  open_shaper(&shaper, NULL);
  near(shaper_send(&shaper, 1, 101, 1000, true, &lost), 101);
  assert_false(lost);
  near(shaper_receive(&shaper, 102, 1000), 102);
  shaper_release(&shaper);
}

static void a_mesh_has_a_link_for_each_peer(void **state) {
  (void)state;
  bool lost;
  const LinkOptions options = {.bits_per_second = 8000, .latency = 0.5, .overhead = 10};
  Shaper shaper;
  open_shaper(&shaper, &options);
  near(shaper_send(&shaper, 1, 101, 90, true, &lost), 101.6);
  near(shaper_send(&shaper, 1, 101, 90, true, &lost), 101.7);
  near(shaper_send(&shaper, 2, 101, 90, true, &lost), 101.6);
  near(shaper_receive(&shaper, 102, 90), 102);
  shaper_release(&shaper);
}

static void a_switch_has_one_port_each_way(void **state) {
  (void)state;
  bool lost;
  const LinkOptions options = {.bits_per_second = 8000, .topology = LINK_SWITCH};
  Shaper shaper;
  open_shaper(&shaper, &options);
  near(shaper_send(&shaper, 1, 101, 100, true, &lost), 101.1);
  near(shaper_send(&shaper, 2, 101, 100, true, &lost), 101.2);
  near(shaper_receive(&shaper, 105, 100), 105); /* its first bit came at 104.9 */
  near(shaper_receive(&shaper, 105, 100), 105.1);
  near(shaper_receive(&shaper, 106, 100), 106);
  shaper_release(&shaper);
}

static void a_trace_begins_with_the_shaper(void **state) {
  (void)state;
  bool lost;
  LinkTracePoint points[] = {{0, 8000}, {1, 4000}};
  const LinkOptions options = {.trace = {points, 2}};
  Shaper shaper;
  open_shaper(&shaper, &options);
  near(shaper_send(&shaper, 1, 100, 1000, true, &lost), 101);
  near(shaper_send(&shaper, 1, 102, 500, true, &lost), 103);
  shaper_release(&shaper);
}

static void losses_repeat_and_differ_between_links(void **state) {
  (void)state;
  const LinkOptions options = {.loss = 0.2, .seed = 5};
  Shaper one, two;
  open_shaper(&one, &options);
  open_shaper(&two, &options);
  int count = 0, differ = 0;
  for (int i = 0; i < 5000; i++) {
    bool a, b, other;
    shaper_send(&one, 1, 100, 10, true, &a);
    shaper_send(&two, 1, 100, 10, true, &b);
    shaper_send(&one, 2, 100, 10, true, &other);
    assert_int_equal(a, b);
    if (i % 3 == 0) shaper_send(&two, 1, 100, 10, false, &b); /* a question changes nothing */
    count += a;
    differ += a != other;
  }
  assert_in_range(count, 850, 1150); /* 1000 +- 5 sigma */
  assert_true(differ > 1000);
  shaper_release(&one);
  shaper_release(&two);
}

/* A question takes its place behind what was sent, and changes no other delay. */
static void delays_repeat(void **state) {
  (void)state;
  const LinkOptions options = {.latency = 0.02, .jitter = 0.01, .seed = 5};
  Shaper one, two;
  open_shaper(&one, &options);
  open_shaper(&two, &options);
  for (int i = 0; i < 1000; i++) {
    bool lost;
    double at = shaper_send(&one, 1, 100 + i, 10, true, &lost);
    near(shaper_send(&two, 1, 100 + i, 10, true, &lost), at);
    assert_true(shaper_send(&two, 1, 100 + i, 10, false, &lost) >= at);
  }
  shaper_release(&one);
  shaper_release(&two);
}

static void a_medium_of_all_is_refused(void **state) {
  (void)state;
  Shaper shaper;
  assert_int_equal(shaper_init(&shaper, &(LinkOptions){.topology = LINK_AIR}, 0, 2, 0), STATUS_UNSUPPORTED);
  assert_non_null(strstr(status_message(), "--link-model shared-air needs virtual time"));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(without_options_nothing_waits),
                                     cmocka_unit_test(a_mesh_has_a_link_for_each_peer),
                                     cmocka_unit_test(a_switch_has_one_port_each_way),
                                     cmocka_unit_test(a_trace_begins_with_the_shaper),
                                     cmocka_unit_test(losses_repeat_and_differ_between_links),
                                     cmocka_unit_test(delays_repeat),
                                     cmocka_unit_test(a_medium_of_all_is_refused)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
