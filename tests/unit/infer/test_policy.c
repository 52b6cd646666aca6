/* What is decided about a message that is waited for, case by case: times in seconds, the wait began at 10. */
#include "base/rng.h"
#include "infer/transport/policy.h"
#include <cmocka.h>
#include <math.h>
#include <string.h>

static const Reliability stream = {.mode = RELIABILITY_STREAM, .timeout = 60};
static const Reliability deadline = {.mode = RELIABILITY_DEADLINE, .timeout = 60};
static const Reliability strict = {.mode = RELIABILITY_DEADLINE, .deadline = 0.03, .timeout = 60};
static const Reliability again_and_again = {.mode = RELIABILITY_RETRANSMIT, .timeout = 60};

static const MessageState some_came = {.packets = 4, .arrived = 2, .waiting = 10, .heard = 10.001, .round_trip = 0.004, .block_time = 0.1};
static const MessageState none_came = {.waiting = 10, .heard = 9, .round_trip = 0.004, .block_time = 0.1};

static Decision decide(const Reliability *reliability, MessageState message, double now, bool *ask, double *again) {
  Decision decision = policy_decide(reliability, &message, now, ask, again);
  if (decision == DECISION_WAIT && !(*again > now)) fail_msg("at %g: to be decided again at %g", now, *again);
  return decision;
}

static Decision decided_at(const Reliability *reliability, MessageState message, double now) {
  bool ask;
  double again;
  return decide(reliability, message, now, &ask, &again);
}

static bool asks_at(const Reliability *reliability, MessageState message, double now) {
  bool ask;
  double again;
  assert_int_equal(decide(reliability, message, now, &ask, &again), DECISION_WAIT);
  return ask;
}

static void what_is_there_is_complete(void **state) {
  (void)state;
  MessageState message = some_came;
  message.arrived = 4;
  assert_int_equal(decided_at(&deadline, message, 10), DECISION_COMPLETE);
  assert_int_equal(decided_at(&stream, message, 1000), DECISION_COMPLETE);
}

static void questions_have_their_time(void **state) {
  (void)state;
  assert_false(asks_at(&stream, some_came, 15));
  assert_false(asks_at(&deadline, some_came, 10.0015)); /* a millisecond behind the last packet */
  assert_true(asks_at(&deadline, some_came, 10.0021));
  MessageState message = some_came;
  message.gap = 0.002;
  assert_false(asks_at(&deadline, message, 10.0065));
  assert_true(asks_at(&deadline, message, 10.0071));
  assert_false(asks_at(&deadline, none_came, 10.09)); /* it computes: a block's time */
  assert_true(asks_at(&deadline, none_came, 10.1));
}

static void there_is_one_question_at_a_time(void **state) {
  (void)state;
  MessageState message = some_came;
  message.asking = true; /* behind other packets of this device */
  assert_false(asks_at(&deadline, message, 60));
  message = some_came;
  message.asked = 10.003;
  message.unanswered = 1;
  assert_false(asks_at(&deadline, message, 10.0105)); /* two round trips */
  assert_true(asks_at(&deadline, message, 10.0111));
  message.unanswered = 3;
  assert_false(asks_at(&deadline, message, 10.0209)); /* half as long again, twice */
  assert_true(asks_at(&deadline, message, 10.0211));
  message.unanswered = 30;
  assert_true(asks_at(&deadline, message, 10.51));
  message.round_trip = 0; /* unknown */
  message.unanswered = 1;
  assert_false(asks_at(&deadline, message, 10.0229));
  assert_true(asks_at(&deadline, message, 10.0231));
}

static void answers_put_off_the_next_question(void **state) {
  (void)state;
  MessageState message = some_came;
  message.asked = 10.003;
  message.told = 10.007;
  message.sender = SENDER_SENT; /* once more, a grace later: it should be there */
  assert_false(asks_at(&again_and_again, message, 10.0079));
  assert_true(asks_at(&again_and_again, message, 10.0081));
  message.sender = SENDER_NOT_YET; /* a quarter of a block's time */
  assert_false(asks_at(&again_and_again, message, 10.0319));
  assert_true(asks_at(&again_and_again, message, 10.0321));
  message.heard = 10.0315; /* now it comes */
  assert_false(asks_at(&again_and_again, message, 10.0321));
}

static void what_left_just_now_is_on_its_way(void **state) {
  (void)state;
  assert_true(policy_is_in_flight(0.1, 10, 10.09));
  assert_false(policy_is_in_flight(0.1, 10, 10.11));
  assert_false(policy_is_in_flight(60, 10, 11)); /* a round trip that cannot be */
  assert_false(policy_is_in_flight(0, 10, 10.001));
}

static void only_what_was_sent_is_lost(void **state) {
  (void)state;
  MessageState message = some_came;
  message.asked = 10.003;
  message.told = message.heard = 10.007;
  message.sender = SENDER_SENT;
  message.missing_sent = 1; /* of two */
  assert_int_equal(decided_at(&deadline, message, 10.05), DECISION_WAIT);
  message.missing_sent = 2;
  assert_int_equal(decided_at(&deadline, message, 10.0075), DECISION_WAIT);
  assert_int_equal(decided_at(&deadline, message, 10.0081), DECISION_LOST);
  message.jitter = 0.01; /* it may only be overtaken */
  assert_int_equal(decided_at(&deadline, message, 10.0081), DECISION_WAIT);
  assert_int_equal(decided_at(&deadline, message, 10.0271), DECISION_LOST);
  assert_int_equal(decided_at(&again_and_again, message, 11), DECISION_WAIT);
  message.told = 9; /* before anybody waited */
  assert_int_equal(decided_at(&deadline, message, 10.0271), DECISION_WAIT);
}

static void a_peer_that_lives_is_waited_for(void **state) {
  (void)state;
  MessageState message = none_came;
  message.sender = SENDER_NOT_YET;
  message.asked = 19.9;
  message.told = 19.95;
  assert_int_equal(decided_at(&deadline, message, 20), DECISION_WAIT);
  assert_int_equal(decided_at(&strict, message, 20), DECISION_LATE);
  assert_int_equal(decided_at(&strict, message, 10.029), DECISION_WAIT);
  assert_int_equal(decided_at(&strict, message, 10.031), DECISION_LATE);
  message.told = 69.99;
  assert_int_equal(decided_at(&deadline, message, 70.01), DECISION_PEER_GONE); /* --timeout */
  message.sender = SENDER_GONE;
  assert_int_equal(decided_at(&deadline, message, 20), DECISION_LOST);
  assert_int_equal(decided_at(&again_and_again, message, 20), DECISION_PEER_GONE);
}

/* Who says nothing may have had no processor: only a deadline that was asked for ends the wait before --timeout does. */
static void silence_is_no_loss(void **state) {
  (void)state;
  const Reliability *patient[] = {&stream, &deadline, &again_and_again};
  for (int i = 0; i < 3; i++) {
    assert_int_equal(decided_at(patient[i], none_came, 69.9), DECISION_WAIT);
    assert_int_equal(decided_at(patient[i], some_came, 69.9), DECISION_WAIT);
    assert_int_equal(decided_at(patient[i], none_came, 70.1), DECISION_PEER_GONE);
  }
  MessageState message = some_came;
  message.heard = 60; /* it is slow, but it comes */
  assert_int_equal(decided_at(&stream, message, 119), DECISION_WAIT);
  assert_int_equal(decided_at(&stream, message, 121), DECISION_PEER_GONE);
  assert_int_equal(decided_at(&strict, none_came, 10.029), DECISION_WAIT);
  assert_int_equal(decided_at(&strict, none_came, 10.031), DECISION_LATE);
}

static double either(Rng *rng, double a, double b) { return rng_below(rng, 2) ? a : b; }

/* Whoever looks when he is told to, and not before, asks and decides as soon as there is something to ask or decide, and comes to an end.
 */
static void looks_in_time_lead_to_an_end(void **state) {
  (void)state;
  enum { MESSAGES = 3000, LOOKS = 2000 };
  Rng rng;
  rng_init(&rng, 4, 0);
  for (int i = 0; i < MESSAGES; i++) {
    const Reliability reliability = {.mode = (ReliabilityMode)rng_below(&rng, 3), .deadline = either(&rng, 0, 0.03), .timeout = 1};
    MessageState message = {.packets = 4, .arrived = (int)rng_below(&rng, 4), .waiting = 10, .heard = 10 * rng_uniform(&rng) + 1};
    message.missing_sent = (int)rng_below(&rng, 5), message.sender = (SenderState)rng_below(&rng, SENDER_GONE);
    message.asking = rng_below(&rng, 4) == 0, message.unanswered = (int)rng_below(&rng, 3);
    message.asked = either(&rng, 0, 10 + 0.1 * rng_uniform(&rng)), message.told = either(&rng, 0, 10 + 0.1 * rng_uniform(&rng));
    message.gap = either(&rng, 0, 0.01), message.jitter = either(&rng, 0, 0.003);
    message.round_trip = either(&rng, 0, 0.02), message.block_time = either(&rng, 0, 0.1);
    const double end = fmax(message.waiting, message.heard) + reliability.timeout;
    double now = 10, again, later;
    bool ask, asks;
    int looks = 0;
    for (; decide(&reliability, message, now, &ask, &again) == DECISION_WAIT; now = again) {
      assert_int_equal(decide(&reliability, message, (now + again) / 2, &asks, &later), DECISION_WAIT);
      assert_int_equal(asks, ask);
      assert_true(again <= end && ++looks < LOOKS);
    }
  }
}

static void estimates_are_smooth(void **state) {
  (void)state;
  assert_true(policy_smooth(0, 3) == 3);
  assert_true(fabs(policy_smooth(8, 16) - 9) < 1e-12);
  assert_true(fabs(policy_smooth(16, 8) - 12) < 1e-12);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(what_is_there_is_complete),        cmocka_unit_test(questions_have_their_time),
      cmocka_unit_test(there_is_one_question_at_a_time),  cmocka_unit_test(answers_put_off_the_next_question),
      cmocka_unit_test(what_left_just_now_is_on_its_way), cmocka_unit_test(only_what_was_sent_is_lost),
      cmocka_unit_test(a_peer_that_lives_is_waited_for),  cmocka_unit_test(silence_is_no_loss),
      cmocka_unit_test(looks_in_time_lead_to_an_end),     cmocka_unit_test(estimates_are_smooth)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
