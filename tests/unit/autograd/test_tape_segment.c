/* Segments of a tape: the same values and gradients as without, less memory, and failures wherever memory ends. */
#include "autograd/tape.h"
#include "unit/autograd/tape_fixture.h"

enum { ROWS = 12, WIDTH = 16, DEPTH = 6, SEED = 5 };

typedef struct Layer {
  Tensor *weight, *bias;
  int runs;
  bool *again; /* of the last run */
} Layer;

/* Two ends: rows, and a number that is led through and added to. */
static void run_layer(Tape *tape, void *context, Tensor *const *input, Tensor **output) {
  Layer *layer = context;
  layer->runs++;
  *layer->again = tape_segment_again(tape);
  Tensor *hidden = op_linear(tape, input[0], layer->weight, layer->bias, ACTIVATION_GELU, NULL);
  output[0] = op_add(tape, op_layer_norm(tape, hidden, layer->bias, layer->bias, 1e-5), input[0]);
  Tensor *number = weigh(tape, hidden);
  output[1] = input[1] ? op_add(tape, input[1], number) : number;
}

typedef struct Deep {
  Fixture fixture;
  Arena *inner;
  Tensor *x;
  real grads[WIDTH * WIDTH + WIDTH]; /* of weight and bias: outside of the tape, as parameters have them */
  Layer layer[DEPTH];
  bool again;
} Deep;

/* Zeroed gradients for the next step. */
static void begin_step(Deep *deep) {
  Layer *layer = &deep->layer[0];
  memset(deep->grads, 0, sizeof deep->grads);
  layer->weight->grad = deep->grads;
  layer->bias->grad = deep->grads + WIDTH * WIDTH;
  layer->weight->grad_filled = layer->bias->grad_filled = true;
}

static void open_deep(Deep *deep, bool segments) {
  *deep = (Deep){.again = false};
  fixture_open(&deep->fixture, SEED);
  deep->x = fixture_leaf(&deep->fixture, true, ROWS, WIDTH, 0, 0);
  Tensor *weight = fixture_leaf(&deep->fixture, true, WIDTH, WIDTH, 0, 0);
  Tensor *bias = fixture_leaf(&deep->fixture, true, WIDTH, 0, 0, 0);
  for (int i = 0; i < DEPTH; i++) deep->layer[i] = (Layer){weight, bias, 0, &deep->again};
  begin_step(deep);
  if (!segments) return;
  deep->inner = arena_new((size_t)1 << 24);
  assert_non_null(deep->inner);
  tape_segment_use(deep->fixture.tape, deep->inner);
}

static void close_deep(Deep *deep) {
  fixture_close(&deep->fixture);
  arena_free(deep->inner);
}

static Tensor *forward(Deep *deep) {
  Tape *tape = deep->fixture.tape;
  Tensor *end[TAPE_SEGMENT_ENDS] = {deep->x, NULL};
  for (int i = 0; i < DEPTH; i++) {
    Tensor *output[TAPE_SEGMENT_ENDS];
    tape_segment(tape, &(TapeSegment){.run = run_layer, .context = &deep->layer[i], .input = {end[0], end[1]}}, output);
    memcpy(end, output, sizeof end);
  }
  return op_add(tape, weigh(tape, end[0]), end[1]);
}

static void gradients_are_the_same_bits(void **state) {
  (void)state;
  Deep plain, twice;
  open_deep(&plain, false);
  open_deep(&twice, true);
  Tensor *one = forward(&plain), *other = forward(&twice);
  assert_int_equal(tape_status(twice.fixture.tape), STATUS_OK);
  assert_memory_equal(one->value, other->value, sizeof(real));
  assert_false(twice.again || tape_segment_inside(twice.fixture.tape));
  assert_int_equal(tape_backward(plain.fixture.tape, one), STATUS_OK);
  assert_int_equal(tape_backward(twice.fixture.tape, other), STATUS_OK);
  for (int i = 0; i < plain.fixture.leaves; i++) {
    const Tensor *a = &plain.fixture.leaf[i], *b = &twice.fixture.leaf[i];
    assert_non_null(a->grad);
    assert_memory_equal(a->grad, b->grad, (size_t)tensor_count(a) * sizeof(real));
  }
  for (int i = 0; i < DEPTH; i++) {
    assert_int_equal(plain.layer[i].runs, 1);
    assert_int_equal(twice.layer[i].runs, 2);
  }
  assert_true(twice.again);
  assert_int_equal(arena_mark(twice.inner), 0);
  assert_true(tape_peak_bytes(twice.fixture.tape) < tape_peak_bytes(plain.fixture.tape));
  close_deep(&plain);
  close_deep(&twice);
}

/* Without recording a segment runs once, and its memory goes all the same. */
static void an_evaluation_runs_once(void **state) {
  (void)state;
  Deep plain, deep;
  open_deep(&plain, false);
  open_deep(&deep, true);
  tape_record(plain.fixture.tape, false);
  tape_record(deep.fixture.tape, false);
  Tensor *one = forward(&plain), *other = forward(&deep);
  assert_memory_equal(one->value, other->value, sizeof(real));
  assert_int_equal(deep.layer[0].runs, 1);
  assert_int_equal(arena_mark(deep.inner), 0);
  assert_true(arena_mark(deep.fixture.arena) < arena_mark(plain.fixture.arena) / 2);
  close_deep(&plain);
  close_deep(&deep);
}

static void keep_a_number(Tape *tape, void *context, Tensor *const *input, Tensor **output) {
  int *kept = tape_segment_keep(tape, sizeof *kept);
  assert_non_null(kept);
  if (!tape_segment_again(tape)) *(int **)context = kept;
  *kept = 7;
  output[0] = weigh(tape, input[0]);
}

static void what_is_kept_outlives_the_segment(void **state) {
  (void)state;
  Deep deep;
  Tensor *output[TAPE_SEGMENT_ENDS];
  int *kept = NULL;
  open_deep(&deep, true);
  tape_segment(deep.fixture.tape, &(TapeSegment){.run = keep_a_number, .context = &kept, .input = {deep.x}}, output);
  assert_null(output[1]);
  assert_int_equal(arena_mark(deep.inner), 0);
  assert_int_equal(*kept, 7);
  close_deep(&deep);
}

/* With ever less memory inside, the step fails in ever earlier places, and the tape can be used again. */
static void a_full_inner_arena_fails_the_step(void **state) {
  (void)state;
  Deep deep;
  int failures = 0;
  open_deep(&deep, true);
  for (size_t left = 0; left < 20000; left += 997) {
    size_t reserved = arena_reserved(deep.inner);
    assert_non_null(arena_alloc(deep.inner, reserved - left - ARENA_ALIGN));
    Tensor *loss = forward(&deep);
    Status status = tape_status(deep.fixture.tape);
    if (status == STATUS_OK) status = tape_backward(deep.fixture.tape, loss);
    assert_true(status == STATUS_OK || status == STATUS_NO_MEMORY);
    assert_false(tape_segment_inside(deep.fixture.tape) || tape_segment_again(deep.fixture.tape));
    failures += status != STATUS_OK;
    fixture_clear(&deep.fixture);
    begin_step(&deep);
    arena_release(deep.inner, 0);
  }
  assert_true(failures >= 3);
  Tensor *loss = forward(&deep);
  assert_int_equal(tape_backward(deep.fixture.tape, loss), STATUS_OK);
  close_deep(&deep);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(gradients_are_the_same_bits),
      cmocka_unit_test(an_evaluation_runs_once),
      cmocka_unit_test(what_is_kept_outlives_the_segment),
      cmocka_unit_test(a_full_inner_arena_fails_the_step),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
