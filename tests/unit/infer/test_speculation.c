/* Prompt look-up finds what followed the text's end before; and how many drafts are checked follows from what rows cost and how many are
 * right. */
#include "infer/speculation.h"
#include <cmocka.h>

enum { SHORT = 3, LONG = 20 }; /* occurrences */

/* -> how long the occurrence was, where there was one. */
static int look_up(const char *text, const char *expected) {
  int32_t ids[256], drafts[SPECULATION_MAX];
  int count = 0, length;
  char found[SPECULATION_MAX + 1] = "";
  while (text[count]) ids[count] = text[count], count++;
  const int drafted = speculation_look_up(ids, count, SPECULATION_MAX, drafts, &length);
  for (int i = 0; i < drafted; i++) found[i] = (char)drafts[i];
  assert_string_equal(found, expected);
  return length;
}

static void what_followed_before_is_the_draft(void **state) {
  (void)state;
  look_up("", "");
  look_up("a", "");
  look_up("ab", "");
  look_up("abcdefgh", "");
  look_up("xa ya za", "");                                        /* one token alone is no occurrence */
  assert_int_equal(look_up("the cat sat. the c", "at sat. "), 5); /* no more than SPECULATION_MAX */
  assert_int_equal(look_up("xyab2xab3 yab", "2xab3 ya"), 3);      /* the longest one */
  look_up("ab12345678ab9876543210ab", "98765432");                /* of those the latest */
  look_up("..abcabc", "abcabcab");                                /* it reaches the end, and goes on as it began */
  look_up("aaa", "aaaaaaaa");
}

static SpeculationCosts costs_of(double step, double row, double tokens_each) {
  SpeculationCosts costs = {0};
  for (int i = 0; i < 400; i++) {
    const int rows = 1 + i % 5;
    speculation_measure(&costs, rows, (int)(tokens_each * rows + 0.5), step + row * rows);
  }
  return costs;
}

static SpeculationRecord record_of(int drafts, int right) {
  SpeculationRecord record = {0};
  for (int i = 0; i < 100; i++) speculation_note(&record, LONG, drafts, right);
  return record;
}

static void as_many_are_checked_as_pay(void **state) {
  SpeculationCosts cheap = costs_of(0.010, 0.0001, 0.5), dear = costs_of(0.0001, 0.010, 0.5), unknown = {0};
  SpeculationRecord fresh = {0}, right = record_of(4, 4), wrong = record_of(4, 0), half = record_of(2, 1);
  (void)state;
  assert_int_equal(speculation_worth(&unknown, &fresh, LONG, 5), 5);
  assert_int_equal(speculation_worth(&unknown, &wrong, LONG, 5), 0);
  assert_int_equal(speculation_worth(&cheap, &fresh, LONG, 5), 5);
  assert_int_equal(speculation_worth(&cheap, &right, LONG, 8), 8);
  assert_int_equal(speculation_worth(&cheap, &right, LONG, 0), 0);
  assert_int_equal(speculation_worth(&cheap, &wrong, LONG, 8), 0);
  const int some = speculation_worth(&cheap, &half, LONG, 8); /* 0.5^i > 0.0001 s * 145 tokens/s */
  assert_true(some >= 4 && some < 8);
  assert_int_equal(speculation_worth(&dear, &half, LONG, 8), 0); /* a row that costs as much as a step */
}

static void what_does_not_pay_is_tried_again(void **state) {
  const SpeculationCosts cheap = costs_of(0.010, 0.0001, 0.5);
  SpeculationRecord record = record_of(4, 0);
  int steps = 0, tried;
  (void)state;
  while ((tried = speculation_worth(&cheap, &record, LONG, 8)) == 0 && steps++ < 1000) speculation_note(&record, LONG, 0, 0);
  assert_true(steps >= 16 && steps <= 64 && tried > 0 && tried < 8);
  speculation_note(&record, LONG, tried, 0);
  assert_int_equal(speculation_worth(&cheap, &record, LONG, 8), 0);
  for (int i = 0; i < 20; i++) speculation_note(&record, LONG, tried, tried);
  assert_int_equal(speculation_worth(&cheap, &record, LONG, 8), 8);
}

/* What repeats a few tokens by chance says nothing of what repeats many. */
static void lengths_are_told_apart(void **state) {
  const SpeculationCosts cheap = costs_of(0.010, 0.0001, 0.5);
  SpeculationRecord record = {0};
  (void)state;
  assert_true(speculation_worth(&cheap, &record, SHORT, 8) < speculation_worth(&cheap, &record, LONG, 8));
  for (int i = 0; i < 50; i++) {
    speculation_note(&record, SHORT, 4, 0);
    speculation_note(&record, LONG, 4, 4);
  }
  assert_int_equal(speculation_worth(&cheap, &record, SHORT, 8), 0);
  assert_int_equal(speculation_worth(&cheap, &record, LONG, 8), 8);
}

/* A step during which the machine did something else does not count as it is. */
static void one_slow_step_changes_little(void **state) {
  SpeculationCosts costs = costs_of(0.010, 0.0001, 0.5);
  SpeculationRecord right = record_of(4, 4);
  (void)state;
  speculation_measure(&costs, 5, 5, 60);
  assert_true(speculation_worth(&costs, &right, LONG, 8) > 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(what_followed_before_is_the_draft), cmocka_unit_test(as_many_are_checked_as_pay),
      cmocka_unit_test(what_does_not_pay_is_tried_again),  cmocka_unit_test(lengths_are_told_apart),
      cmocka_unit_test(one_slow_step_changes_little),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
