/* The tape itself, apart from the operations on it: its three modes, recycled gradients, sticky errors, reuse of memory. */
#include "autograd/kernels/matmul.h"
#include "unit/autograd/tape_fixture.h"
#include "unit/float_equal.h"
#include <stdio.h>
#include <sys/mman.h>

enum { BATCH = 2, ROWS = 12, WIDTH = 16, HEADS = 2, GROUPS = 4, ENTRIES = 8, CLASSES = 5, PARAMS = 10, PLACES = 20 };

/* A little transformer with a quantised half, and what decoders have besides: every mode runs exactly this. */
typedef struct Net {
  Tensor x, param[PARAMS];
  Tensor narrow;      /* [WIDTH, WIDTH], frozen, in 16 bits */
  const real *turn;   /* cosines and sines of a rotary embedding */
  int32_t *positions; /* [ROWS] */
  real *codebook;     /* [G, K, D/G] */
  int32_t *codes, *labels;
  AttentionSpan span[2];
  void *memory;
  size_t bytes;
} Net;

static const int64_t SHAPES[PARAMS][2] = {{WIDTH, 0},         {WIDTH, 0},     {WIDTH, WIDTH},     {WIDTH, 0},       {WIDTH, WIDTH},
                                          {3 * WIDTH, WIDTH}, {3 * WIDTH, 0}, {WIDTH, 3 * WIDTH}, {CLASSES, WIDTH}, {CLASSES, 0}};

/* Everything that a step reads lies in one block of pages, so that it can be shut off. */
static void net_open(Net *net, Rng *rng) {
  *net = (Net){.bytes = (size_t)1 << 20};
  net->memory = mmap(NULL, net->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  assert_true(net->memory != MAP_FAILED);
  char *at = net->memory;
  net->x = (Tensor){.value = (real *)at, .dims = 3, .shape = {BATCH, ROWS, WIDTH}};
  at += tensor_count(&net->x) * (int64_t)sizeof(real);
  for (int i = 0; i < PARAMS; i++) {
    net->param[i] = (Tensor){.value = (real *)at, .dims = SHAPES[i][1] ? 2 : 1, .shape = {SHAPES[i][0], SHAPES[i][1]}, .needs_grad = true};
    at += tensor_count(&net->param[i]) * (int64_t)sizeof(real);
  }
  net->codebook = (real *)at;
  for (real *value = net->memory; value < net->codebook + ENTRIES * WIDTH; value++) *value = (real)(0.5 * rng_normal(rng));
  net->codes = (int32_t *)(net->codebook + ENTRIES * WIDTH);
  for (int i = 0; i < BATCH * ROWS * GROUPS; i++) net->codes[i] = (int32_t)rng_below(rng, ENTRIES);
  net->labels = net->codes + BATCH * ROWS * GROUPS;
  for (int i = 0; i < BATCH * ROWS; i++) net->labels[i] = (int32_t)rng_below(rng, CLASSES);
  net->positions = net->labels + BATCH * ROWS;
  for (int i = 0; i < ROWS; i++) net->positions[i] = i % PLACES;
  uint16_t *narrow = (uint16_t *)(net->positions + ROWS);
  for (int i = 0; i < WIDTH * WIDTH; i++) narrow[i] = (uint16_t)(0x3000 + rng_below(rng, 1024));
  net->narrow = (Tensor){.dims = 2, .shape = {WIDTH, WIDTH}, .narrow = narrow, .narrow_kind = NARROW_F16};
  net->turn = net->codebook; /* PLACES rows of any numbers will do */
  net->span[0] = (AttentionSpan){0, 5, 0, 5};
  net->span[1] = (AttentionSpan){5, 7, 5, 7};
}

static void net_close(Net *net) { munmap(net->memory, net->bytes); }

static void net_clear_grads(Net *net) {
  for (int i = 0; i < PARAMS; i++) {
    net->param[i].grad = NULL;
    net->param[i].grad_filled = false;
  }
}

/* The table of classes serves as embedding and head; parts of p[5] as gate and up; a 16-bit weight. */
static Tensor *decoder_loss(Net *net, Tape *tape, Tensor *x) {
  Tensor *p = net->param;
  const Rope rope = {net->turn, net->turn + 1, PLACES, HEADS};
  const LinearPart gate = {.first = WIDTH, .count = WIDTH}, up = {.first = 2 * WIDTH, .count = WIDTH},
                   turned = {.count = WIDTH, .transposed = true};
  x = op_add(tape, x, op_token_embed(tape, &p[8], NULL, net->labels, NULL, BATCH, ROWS));
  x = op_rope(tape, op_linear_part(tape, x, &net->narrow, NULL, &turned, ACTIVATION_NONE, x), &rope, net->positions);
  x = op_swiglu(tape, op_linear_part(tape, x, &p[5], &p[6], &gate, ACTIVATION_NONE, NULL),
                op_linear_part(tape, x, &p[5], &p[6], &up, ACTIVATION_NONE, NULL));
  x = op_linear_columns(tape, x, &p[7], NULL, &(LinearPart){.count = WIDTH}, WIDTH, NULL);
  return op_vocab_loss(tape, op_scale(tape, x, 0.5), &p[8], &(VocabLoss){.labels = net->labels, .smoothing = 0.1});
}

static Tensor *net_loss(Net *net, Tape *tape) {
  Tensor *p = net->param, *x = &net->x, *commitment = NULL;
  Tensor *h = op_layer_norm(tape, x, &p[0], &p[1], 1e-6);
  Quantise quantise = {.codebook = net->codebook, .groups = GROUPS, .entries = ENTRIES, .codes = net->codes};
  Tensor *remote = op_quantise(tape, h, &quantise, &commitment);
  Tensor *k = op_linear(tape, h, &p[2], &p[3], ACTIVATION_NONE, NULL), *v = op_linear(tape, h, &p[4], NULL, ACTIVATION_NONE, NULL);
  Tensor *remote_k = op_linear(tape, remote, &p[2], &p[3], ACTIVATION_NONE, NULL);
  Tensor *remote_v = op_linear(tape, remote, &p[4], NULL, ACTIVATION_NONE, NULL);
  AttentionOptions attention = {.heads = HEADS, .kv_heads = HEADS, .spans = 2, .span = net->span};
  x = op_add(tape, op_attention(tape, h, k, v, remote_k, remote_v, &attention), x);
  x = op_linear(tape, op_linear(tape, x, &p[5], &p[6], ACTIVATION_GELU, NULL), &p[7], NULL, ACTIVATION_NONE, x);
  Tensor *logits = op_linear(tape, x, &p[8], &p[9], ACTIVATION_NONE, NULL);
  Tensor *loss = op_add_scaled(tape, op_cross_entropy(tape, logits, &(CrossEntropy){.labels = net->labels}), commitment, 0.1);
  return op_add_scaled(tape, loss, decoder_loss(net, tape, x), 0.5);
}

typedef struct Bench {
  Arena *arena;
  Tape *tape;
  Net net;
} Bench;

static void bench_open(Bench *bench) {
  Rng rng;
  rng_init(&rng, 5, 0);
  bench->arena = arena_new((size_t)64 << 20);
  bench->tape = tape_new(bench->arena);
  assert_non_null(bench->tape);
  net_open(&bench->net, &rng);
}

static void bench_close(Bench *bench) {
  tape_free(bench->tape);
  arena_free(bench->arena);
  net_close(&bench->net);
}

/* ---------------------------------------------------------------- modes */

static void values_are_the_same_with_and_without_recording(void **state) {
  (void)state;
  Bench bench;
  real loss[2];
  bench_open(&bench);
  for (int recording = 0; recording < 2; recording++) {
    tape_record(bench.tape, recording);
    assert_int_equal(tape_recording(bench.tape), recording);
    Tensor *y = net_loss(&bench.net, bench.tape);
    assert_non_null(y);
    loss[recording] = y->value[0];
    assert_true(isfinite((double)loss[recording]));
    assert_int_equal(y->needs_grad, recording);
    if (!recording) assert_int_equal(tape_backward(bench.tape, y), STATUS_BAD_VALUE); /* nothing was kept for it */
    tape_clear(bench.tape);
  }
  assert_memory_equal(&loss[0], &loss[1], sizeof loss[0]);
  bench_close(&bench);
}

static double real_step(Bench *bench) {
  tape_record(bench->tape, true);
  matmul_reset_count();
  Tensor *loss = net_loss(&bench->net, bench->tape);
  assert_int_equal(tape_backward(bench->tape, loss), STATUS_OK);
  tape_clear(bench->tape);
  net_clear_grads(&bench->net);
  return matmul_counted().flops;
}

static void planning_counts_what_a_step_takes_and_touches_no_number(void **state) {
  (void)state;
  Bench real_one, planned;
  bench_open(&real_one);
  double flops = real_step(&real_one);
  size_t bytes = tape_peak_bytes(real_one.tape);
  bench_close(&real_one);
  bench_open(&planned);
  assert_int_equal(mprotect(planned.net.memory, planned.net.bytes, PROT_NONE), 0); /* whoever looks at a number dies */
  tape_plan(planned.tape, true);
  assert_true(tape_planning(planned.tape));
  double planned_flops = real_step(&planned);
  assert_true(flops > 0);
  assert_true(planned_flops == flops);
  assert_int_equal(tape_peak_bytes(planned.tape), bytes);
  tape_plan(planned.tape, false);
  assert_int_equal(mprotect(planned.net.memory, planned.net.bytes, PROT_READ | PROT_WRITE), 0);
  assert_true(real_step(&planned) == flops); /* and the tape is good for real work afterwards */
  assert_int_equal(tape_peak_bytes(planned.tape), bytes);
  bench_close(&planned);
}

static void a_cleared_tape_repeats_itself_in_the_same_memory(void **state) {
  (void)state;
  Bench bench;
  bench_open(&bench);
  tape_record(bench.tape, true);
  Tensor *first = NULL;
  real loss = 0, grad[WIDTH];
  size_t peak = 0;
  for (int step = 0; step < 5; step++) {
    Tensor *y = net_loss(&bench.net, bench.tape);
    assert_int_equal(tape_backward(bench.tape, y), STATUS_OK);
    if (step == 0) {
      first = y;
      loss = y->value[0];
      memcpy(grad, bench.net.param[0].grad, sizeof grad);
      peak = tape_peak_bytes(bench.tape);
    }
    assert_ptr_equal(y, first);
    assert_memory_equal(&loss, y->value, sizeof loss);
    assert_memory_equal(grad, bench.net.param[0].grad, sizeof grad);
    assert_int_equal(tape_peak_bytes(bench.tape), peak);
    tape_clear(bench.tape);
    net_clear_grads(&bench.net);
    assert_int_equal(arena_mark(bench.arena), 0);
  }
  bench_close(&bench);
}

/* ---------------------------------------------------------------- gradients */

/* A chain of additions of one leaf to itself and others, `depth` long; returns the bytes that backward took on top of forward. */
static size_t chain_backward_bytes(int depth, double *grad) {
  Fixture f;
  fixture_open(&f, 3);
  Tensor *leaf = fixture_leaf(&f, true, 32, 32, 0, 0), *weight = fixture_leaf(&f, true, 32, 32, 0, 0), *x = leaf;
  for (int i = 0; i < 32 * 32; i++) weight->value[i] = i % 33 == 0; /* the unit matrix */
  for (int i = 0; i < depth; i++) x = op_linear(f.tape, x, weight, NULL, ACTIVATION_NONE, NULL);
  Tensor *loss = weigh(f.tape, x);
  size_t forward = arena_mark(f.arena);
  assert_int_equal(tape_backward(f.tape, loss), STATUS_OK);
  size_t bytes = arena_peak(f.arena) - forward;
  *grad = (double)leaf->grad[7];
  fixture_close(&f);
  return bytes;
}

/* An array that was given back serves the next of its size, and no other. */
static void borrowed_arrays_are_recycled(void **state) {
  (void)state;
  Fixture f;
  fixture_open(&f, 3);
  void *first = tape_borrow(f.tape, 4096), *second = tape_borrow(f.tape, 4096);
  assert_true(first != NULL && second != NULL && first != second);
  tape_give_back(f.tape, first, 4096);
  assert_ptr_not_equal(tape_borrow(f.tape, 8192), first);
  assert_ptr_equal(tape_borrow(f.tape, 4096), first);
  fixture_close(&f);
}

static void gradients_are_recycled(void **state) {
  (void)state;
  double shallow, deep;
  size_t few = chain_backward_bytes(4, &shallow), many = chain_backward_bytes(24, &deep);
  assert_true(few >= 3 * 32 * 32 * sizeof(real)); /* of the weight, of an output and of its input */
  assert_int_equal(few, many);
  assert_float_equal(shallow, weigh_weight(7), 1e-6);
  assert_float_equal(deep, weigh_weight(7), 1e-6);
}

/* x + x, and each again: gradients that are passed on without a copy must still add up. */
static void a_gradient_that_is_passed_on_adds_up(void **state) {
  (void)state;
  Fixture f;
  fixture_open(&f, 4);
  Tensor *x = fixture_leaf(&f, true, 3, 4, 0, 0), *other = fixture_leaf(&f, false, 3, 4, 0, 0);
  Tensor *twice = op_add(f.tape, x, x), *more = op_add(f.tape, op_add(f.tape, twice, other), op_add(f.tape, x, twice));
  assert_int_equal(tape_backward(f.tape, weigh(f.tape, more)), STATUS_OK);
  for (int i = 0; i < 12; i++) assert_float_equal((double)x->grad[i], 5 * weigh_weight(i), 1e-5);
  assert_null(other->grad); /* it asked for none */
  fixture_close(&f);
}

static void what_the_loss_does_not_hang_on_gets_no_gradient(void **state) {
  (void)state;
  Fixture f;
  fixture_open(&f, 4);
  Tensor *x = fixture_leaf(&f, true, 3, 4, 0, 0), *aside = fixture_leaf(&f, true, 3, 4, 0, 0);
  op_add(f.tape, aside, aside); /* recorded, but it leads nowhere */
  assert_int_equal(tape_backward(f.tape, weigh(f.tape, op_add(f.tape, x, x))), STATUS_OK);
  assert_non_null(x->grad);
  assert_null(aside->grad);
  fixture_close(&f);
}

/* Two backward passes without zeroing in between add up, as accumulation of batches needs. */
static void gradients_of_leaves_accumulate(void **state) {
  (void)state;
  Fixture f;
  fixture_open(&f, 6);
  Tensor *x = fixture_leaf(&f, true, 2, 3, 0, 0);
  real own[6] = {0};
  x->grad = own; /* as parameters have it: outside the arena */
  x->grad_filled = true;
  for (int pass = 0; pass < 3; pass++) {
    assert_int_equal(tape_backward(f.tape, weigh(f.tape, op_add(f.tape, x, x))), STATUS_OK);
    tape_clear(f.tape);
  }
  for (int i = 0; i < 6; i++) assert_float_equal((double)own[i], 6 * weigh_weight(i), 1e-5);
  fixture_close(&f);
}

/* ---------------------------------------------------------------- errors */

static void an_error_sticks_until_the_tape_is_cleared(void **state) {
  (void)state;
  Fixture f;
  fixture_open(&f, 1);
  Tensor *a = fixture_leaf(&f, true, 3, 4, 0, 0), *b = fixture_leaf(&f, true, 3, 5, 0, 0), *c = fixture_leaf(&f, true, 5, 4, 0, 0);
  assert_null(op_add(f.tape, a, b));
  assert_int_equal(tape_status(f.tape), STATUS_BAD_VALUE);
  char first[256];
  snprintf(first, sizeof first, "%s", status_message());
  assert_true(first[0] != '\0');
  assert_null(op_add(f.tape, a, a)); /* nothing goes on, however sound */
  assert_null(op_linear(f.tape, NULL, c, NULL, ACTIVATION_GELU, NULL));
  assert_null(tape_alloc(f.tape, 8));
  assert_null(weigh(f.tape, a));
  assert_int_equal(tape_fail(f.tape, STATUS_IO, "a later one"), STATUS_BAD_VALUE); /* the first one stays */
  assert_string_equal(status_message(), first);
  assert_int_equal(tape_backward(f.tape, a), STATUS_BAD_VALUE);
  fixture_clear(&f);
  assert_int_equal(tape_status(f.tape), STATUS_OK);
  assert_non_null(op_linear(f.tape, a, c, NULL, ACTIVATION_GELU, NULL));
  fixture_close(&f);
}

static void a_missing_input_is_an_error_of_its_own(void **state) {
  (void)state;
  Fixture f;
  fixture_open(&f, 1);
  Tensor *a = fixture_leaf(&f, true, 3, 4, 0, 0);
  assert_null(op_add(f.tape, a, NULL));
  assert_int_equal(tape_status(f.tape), STATUS_BAD_VALUE);
  assert_non_null(strstr(status_message(), "op_add"));
  fixture_close(&f);
}

static void backward_wants_one_number_that_hangs_on_a_parameter(void **state) {
  (void)state;
  Fixture f;
  fixture_open(&f, 1);
  Tensor *a = fixture_leaf(&f, true, 3, 4, 0, 0), *constant = fixture_leaf(&f, false, 3, 4, 0, 0);
  assert_int_equal(tape_backward(f.tape, op_add(f.tape, a, a)), STATUS_BAD_VALUE);
  fixture_clear(&f);
  assert_int_equal(tape_backward(f.tape, NULL), STATUS_BAD_VALUE);
  fixture_clear(&f);
  assert_int_equal(tape_backward(f.tape, weigh(f.tape, op_add(f.tape, constant, constant))), STATUS_BAD_VALUE);
  assert_non_null(strstr(status_message(), "parameter"));
  fixture_close(&f);
}

/* With ever more memory the same step fails in ever later places, and works in the end; it never crashes. */
static void a_full_arena_fails_the_step_wherever_it_happens(void **state) {
  (void)state;
  Bench bench;
  bench_open(&bench);
  real_step(&bench);
  size_t needed = tape_peak_bytes(bench.tape);
  bench_close(&bench);
  int failures = 0;
  for (size_t left = 0; left <= needed + 4096; left += needed / 60) {
    bench_open(&bench);
    size_t reserved = arena_reserved(bench.arena);
    assert_true(reserved > needed);
    tape_free(bench.tape);
    assert_non_null(arena_alloc(bench.arena, reserved - left - ARENA_ALIGN));
    bench.tape = tape_new(bench.arena);
    tape_record(bench.tape, true);
    Tensor *loss = net_loss(&bench.net, bench.tape);
    Status status = tape_backward(bench.tape, loss);
    assert_true(status == STATUS_OK || status == STATUS_NO_MEMORY);
    assert_true(left + 2 * ARENA_ALIGN > needed || status == STATUS_NO_MEMORY);
    if (status != STATUS_OK) assert_non_null(strstr(status_message(), "smaller batch"));
    failures += status != STATUS_OK;
    net_clear_grads(&bench.net);
    bench_close(&bench);
  }
  assert_true(failures >= 60);
}

/* ---------------------------------------------------------------- looking for a NaN */

static void the_first_value_that_is_not_finite_is_found(void **state) {
  (void)state;
  Fixture f;
  fixture_open(&f, 2);
  Tensor *x = fixture_leaf(&f, true, 4, 6, 0, 0), *w = fixture_leaf(&f, true, 6, 6, 0, 0);
  Tensor *one = fixture_leaf(&f, true, 6, 0, 0, 0), *zero = fixture_leaf(&f, true, 6, 0, 0, 0);
  TapeFault fault;
  assert_false(tape_find_not_finite(f.tape, &fault));
  for (int round = 0; round < 3; round++) {
    real kept = x->value[3];
    if (round == 1) x->value[3] = (real)INFINITY;
    Tensor *norm = op_layer_norm(f.tape, op_add(f.tape, x, x), one, zero, 1e-6);
    if (round == 2) norm->value[5] = (real)NAN;
    op_linear(f.tape, norm, w, NULL, ACTIVATION_NONE, NULL);
    assert_int_equal(tape_find_not_finite(f.tape, &fault), round > 0);
    assert_int_equal(fault.count, 3);
    if (round > 0) assert_int_equal(fault.number, round);
    if (round > 0) assert_int_equal(tensor_count(fault.output), 24);
    if (round == 0) assert_null(fault.op);
    if (round == 1) assert_string_equal(fault.op, "add");
    if (round == 2) assert_string_equal(fault.op, "layer_norm");
    x->value[3] = kept;
    fixture_clear(&f);
  }
  fixture_close(&f);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(values_are_the_same_with_and_without_recording),
      cmocka_unit_test(planning_counts_what_a_step_takes_and_touches_no_number),
      cmocka_unit_test(a_cleared_tape_repeats_itself_in_the_same_memory),
      cmocka_unit_test(gradients_are_recycled),
      cmocka_unit_test(borrowed_arrays_are_recycled),
      cmocka_unit_test(a_gradient_that_is_passed_on_adds_up),
      cmocka_unit_test(what_the_loss_does_not_hang_on_gets_no_gradient),
      cmocka_unit_test(gradients_of_leaves_accumulate),
      cmocka_unit_test(an_error_sticks_until_the_tape_is_cleared),
      cmocka_unit_test(a_missing_input_is_an_error_of_its_own),
      cmocka_unit_test(backward_wants_one_number_that_hangs_on_a_parameter),
      cmocka_unit_test(a_full_arena_fails_the_step_wherever_it_happens),
      cmocka_unit_test(the_first_value_that_is_not_finite_is_found),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
