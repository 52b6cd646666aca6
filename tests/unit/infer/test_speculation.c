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

/* ---- drafts of another device */

static void a_chain_follows_its_text(void **state) {
  const int32_t text[] = {1, 2, 3, 4, 5}, chain[] = {4, 5, 6, 7}, wrong[] = {4, 6, 6, 7};
  (void)state;
  assert_int_equal(speculation_follow(text, 3, 3, chain, 4), 4);
  assert_int_equal(speculation_follow(text, 5, 3, chain, 4), 2);
  assert_int_equal(speculation_follow(text, 5, 3, chain, 2), 0); /* all is confirmed already */
  assert_int_equal(speculation_follow(text, 5, 3, wrong, 4), 0); /* of a text that went on differently */
  assert_int_equal(speculation_follow(text, 4, 3, wrong, 4), 3);
  assert_int_equal(speculation_follow(text, 5, 0, chain, 4), 0); /* stale */
  assert_int_equal(speculation_follow(text, 5, 6, chain, 4), 0); /* ahead of the text */
  assert_int_equal(speculation_follow(text, 5, UINT32_MAX, chain, 4), 0);
  assert_int_equal(speculation_follow(text, 5, 3, chain, 0), 0);
}

/* After many steps in which `asked` were asked for and `right` of them right, for a wait of so many seconds each. */
static SpeculationDrafter drafter_of(int asked, int right, double wait) {
  SpeculationDrafter drafter = {0};
  for (int i = 0; i < 100; i++) speculation_drafted(&drafter, asked, asked, right, asked * wait);
  return drafter;
}

static void as_many_are_asked_for_as_pay(void **state) {
  SpeculationCosts costs = costs_of(0.040, 0.001, 0.5), unknown = {0};
  SpeculationDrafter fresh = {0}, quick = drafter_of(4, 4, 0.0005), slow = drafter_of(4, 4, 0.1), wrong = drafter_of(4, 0, 0.0005),
                     fair = drafter_of(4, 2, 0.002), dear = drafter_of(4, 2, 0.02);
  (void)state;
  const int trial = speculation_ask(&costs, &fresh, 0);
  assert_true(trial > 1 && trial < SPECULATION_MAX);
  assert_int_equal(speculation_ask(&unknown, &quick, 0), trial);
  assert_int_equal(speculation_ask(&costs, &quick, 0), SPECULATION_MAX);
  assert_int_equal(speculation_ask(&costs, &slow, 1), 1); /* always: but as few as can be */
  assert_int_equal(speculation_ask(&costs, &slow, 0), 0); /* each takes longer than to compute it here */
  assert_int_equal(speculation_ask(&costs, &wrong, 0), 0);
  const int some = speculation_ask(&costs, &fair, 0), few = speculation_ask(&costs, &dear, 1);
  assert_true(some > few && some < SPECULATION_MAX && few >= 1);
}

static void the_one_that_is_right_more_often_is_preferred(void **state) {
  SpeculationDrafter good = drafter_of(4, 3, 0.001), bad = drafter_of(4, 0, 0.001), fresh = {0};
  SpeculationRecord right = record_of(4, 4), half = record_of(2, 1);
  (void)state;
  assert_true(speculation_prefers(&good, &half, LONG));
  assert_false(speculation_prefers(&good, &right, LONG)); /* look-up costs no time */
  assert_false(speculation_prefers(&bad, &half, LONG));
  assert_false(speculation_prefers(&fresh, &half, LONG));
  assert_true(speculation_prefers(&good, &right, SHORT)); /* of which nothing is known: as if half were right */
}

/* Steps until a drafter is tried again, and steps of that trial; each of its drafts is right, but waited for. */
static int rest_of(const SpeculationCosts *costs, SpeculationDrafter *drafter, double wait, int *trial) {
  int steps = 0;
  while (speculation_ask(costs, drafter, 0) == 0) assert_true(steps++ < 1000000);
  for (*trial = 0; *trial < 100; ++*trial) {
    speculation_drafted(drafter, 4, 4, 4, 4 * wait);
    if (speculation_ask(costs, drafter, 0) == 0) return steps;
  }
  return steps;
}

static void a_drafter_that_does_not_pay_is_tried_again(void **state) {
  SpeculationCosts costs = costs_of(0.040, 0.001, 0.5);
  SpeculationDrafter drafter = drafter_of(4, 4, 0.1);
  int before = 0, trial;
  (void)state;
  for (int i = 0; i < 4; i++) { /* more and more rarely, and briefly */
    const int steps = rest_of(&costs, &drafter, 0.1, &trial);
    assert_true(steps > 1.9 * before && steps > 100 && trial < 8);
    before = steps;
  }
  rest_of(&costs, &drafter, 0.001, &trial);
  assert_int_equal(trial, 100);
  assert_int_equal(speculation_ask(&costs, &drafter, 0), SPECULATION_MAX);
  for (int i = 0; i < 200; i++) speculation_drafted(&drafter, 4, 4, 4, 0.4); /* it becomes slow */
  assert_int_equal(speculation_ask(&costs, &drafter, 0), 0);
  assert_true(rest_of(&costs, &drafter, 0.1, &trial) < 0.2 * before); /* what was before it paid is forgotten */
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(what_followed_before_is_the_draft),
      cmocka_unit_test(as_many_are_checked_as_pay),
      cmocka_unit_test(what_does_not_pay_is_tried_again),
      cmocka_unit_test(lengths_are_told_apart),
      cmocka_unit_test(one_slow_step_changes_little),
      cmocka_unit_test(a_chain_follows_its_text),
      cmocka_unit_test(as_many_are_asked_for_as_pay),
      cmocka_unit_test(a_drafter_that_does_not_pay_is_tried_again),
      cmocka_unit_test(the_one_that_is_right_more_often_is_preferred),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
