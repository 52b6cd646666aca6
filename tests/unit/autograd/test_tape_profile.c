/* Profiling: every operation is told of once in each phase, by name, with a time; nothing is told of without a profiler. */
#include "unit/autograd/tape_fixture.h"

enum { NOTES = 16 };

typedef struct Notes {
  int count;
  const char *name[NOTES];
  TapePhase phase[NOTES];
  double seconds;
} Notes;

static void take_note(void *context, const char *name, TapePhase phase, double seconds) {
  Notes *notes = context;
  assert_true(notes->count < NOTES && seconds >= 0);
  notes->name[notes->count] = name;
  notes->phase[notes->count++] = phase;
  notes->seconds += seconds;
}

static void run(Fixture *fixture) {
  Tensor *x = &fixture->leaf[0], *weight = &fixture->leaf[1];
  Tensor *loss = weigh(fixture->tape, op_linear(fixture->tape, x, weight, NULL, ACTIVATION_NONE, NULL));
  assert_int_equal(tape_backward(fixture->tape, loss), STATUS_OK);
  fixture_clear(fixture);
}

static void assert_note(const Notes *notes, int at, const char *name, TapePhase phase) {
  assert_true(at < notes->count);
  assert_string_equal(notes->name[at], name);
  assert_int_equal(notes->phase[at], phase);
}

static void every_operation_is_noted(void **state) {
  (void)state;
  Fixture fixture;
  Notes notes = {0};
  fixture_open(&fixture, 3);
  fixture_leaf(&fixture, true, 8, 4, 0, 0);
  fixture_leaf(&fixture, true, 5, 4, 0, 0);
  assert_true(tape_clock(fixture.tape) == 0);
  tape_profile(fixture.tape, take_note, &notes);
  assert_true(tape_clock(fixture.tape) > 0);
  run(&fixture);
  assert_int_equal(notes.count, 4);
  assert_note(&notes, 0, "linear", TAPE_FORWARD);
  assert_note(&notes, 1, "weigh", TAPE_FORWARD);
  assert_note(&notes, 2, "weigh", TAPE_BACKWARD);
  assert_note(&notes, 3, "linear", TAPE_BACKWARD);
  tape_note(fixture.tape, "by hand", TAPE_AROUND, tape_clock(fixture.tape));
  assert_note(&notes, 4, "by hand", TAPE_AROUND);
  assert_true(notes.seconds < 10);
  tape_profile(fixture.tape, NULL, NULL);
  run(&fixture);
  tape_note(fixture.tape, "by hand", TAPE_AROUND, 0);
  assert_int_equal(notes.count, 5);
  fixture_close(&fixture);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(every_operation_is_noted)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
