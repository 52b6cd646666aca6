/* Plans without a model: what they say is what a session with weights says; nodes take what the paper's appendix computes; a model that
 * fits no memory is planned at once. */
#include "autograd/tape.h"
#include "train/plan.h"
#include "train/validate.h"
#include "unit/train/tiny_text.h"
#include <sys/resource.h>

static void planned(const TrainOptions *options, SessionUse use, TrainPlan *plan) {
  Session session;
  tiny_check(session_open(&session, options, use));
  tiny_check(plan_make(&session, plan));
  session_close(&session);
}

static void assert_same_plan(const TrainOptions *options) {
  TrainPlan with, without;
  planned(options, SESSION_TRAIN, &with);
  planned(options, SESSION_PLAN, &without);
  assert_memory_equal(&with, &without, sizeof with);
  assert_true(without.activations > 0 && without.step_flops > 2 * without.forward_flops);
}

static void no_weights_are_needed(void **state) {
  (void)state;
  TrainOptions options = tiny_options();
  options.optimizer.average = 0.9;
  assert_same_plan(&options);
  for (ModelKind kind = MODEL_GPT2; kind <= MODEL_LLAMA; kind++) {
    options = tiny_text_options(kind);
    options.devices[0] = options.devices[1] = 3;
    options.map = COUNTS_EVEN;
    assert_same_plan(&options);
    options.groups = 0;
    assert_same_plan(&options);
  }
}

/* As many random tokens: the sizes are the same, so the plan is. */
static void no_text_is_needed(void **state) {
  (void)state;
  TrainOptions options = tiny_text_options(MODEL_LLAMA);
  TrainPlan with, without;
  options.kmeans_samples = 8; /* else there are as many as the text has */
  planned(&options, SESSION_PLAN, &with);
  options.dataset = options.tokenizer = NULL;
  planned(&options, SESSION_PLAN, &without);
  assert_true(with.data > without.data); /* its tokens are mapped */
  with.data = without.data;
  assert_memory_equal(&with, &without, sizeof with);
}

static void frozen_weights_have_no_moments(void **state) {
  (void)state;
  TrainOptions options = tiny_text_options(MODEL_GPT2);
  TrainPlan whole, adapters;
  planned(&options, SESSION_PLAN, &whole);
  options.lora_rank = 2;
  planned(&options, SESSION_PLAN, &adapters);
  assert_true(whole.frozen == 0 && whole.trainable == whole.parameters);
  assert_true(adapters.frozen >= 2 * whole.parameters && adapters.frozen < 4 * whole.parameters);
  assert_true(adapters.trainable == adapters.parameters - whole.parameters);
  assert_true(adapters.moments == 2 * adapters.weights && adapters.gradients == adapters.weights);
  assert_true(adapters.moments < whole.moments / 4);
}

/* The largest pass of an evaluation, of the plain model and of the devices; where it takes more than a step it is what the run takes. */
static void evaluations_are_planned(void **state) {
  (void)state;
  for (int astra = 0; astra < 2; astra++) {
    TrainOptions options = tiny_options();
    Session session;
    Validation result;
    TrainPlan plan;
    if (!astra) options.groups = 0;
    tiny_open(&session, &options);
    tiny_check(plan_make(&session, &plan));
    const size_t floor = arena_mark(session.arena);
    arena_watch(session.arena);
    tiny_check(validate_run(&session, 0, options.batch, &result));
    if (astra) tiny_check(validate_run(&session, session.config->astra.devices, options.batch, &result));
    assert_true(plan.evaluation > 0 && plan.evaluation == (double)(arena_watched(session.arena) - floor));
    const double before = plan_training_bytes(&plan), rest = before - plan.gradients - plan.activations;
    plan.evaluation = plan.gradients + plan.activations + 1000;
    plan.selftest = plan.selftest_mapped = plan.selftest_activations = 0;
    assert_true(plan_training_bytes(&plan) >= before && plan_training_bytes(&plan) - plan.evaluation <= rest);
    session_close(&session);
  }
}

/* The last steps are on whole images: they decide the memory. The work is the mean over the run. */
static void dropped_patches_save_time_alone(void **state) {
  (void)state;
  TrainOptions options = tiny_options();
  Session session;
  TrainPlan whole, some, most;
  options.groups = 0;
  options.max_steps = 10;
  planned(&options, SESSION_PLAN, &whole);
  options.patch_drop = 0.25;
  planned(&options, SESSION_PLAN, &some);
  options.patch_drop = 0.75;
  tiny_check(session_open(&session, &options, SESSION_TRAIN));
  const Rng before = session.map_rng;
  session.step = 3;
  tiny_check(plan_make(&session, &most));
  assert_true(session.step == 3 && session.drop_step == 0 && memcmp(&before, &session.map_rng, sizeof before) == 0);
  session_close(&session);
  assert_true(some.activations == whole.activations && most.activations == whole.activations);
  assert_true(most.step_flops < some.step_flops && some.step_flops < whole.step_flops);
  assert_true(most.step_flops > 0.2 * whole.step_flops + 0.8 * whole.step_flops / 4); /* class tokens are never left out */
  assert_true(most.step_flops < 0.2 * whole.step_flops + 0.8 * whole.step_flops / 3);
}

/* Samples of all codebooks at once, as codebooks_fit has them; none where the codebooks come from a file. */
static void samples_of_k_means_count(void **state) {
  (void)state;
  TrainOptions options = tiny_options();
  TrainPlan few, more, none;
  options.kmeans_samples = 100;
  planned(&options, SESSION_PLAN, &few);
  options.kmeans_samples = 500;
  planned(&options, SESSION_PLAN, &more);
  options.codebooks = "somewhere";
  planned(&options, SESSION_PLAN, &none);
  double sample = TINY_BLOCKS * TINY_WIDTH * sizeof(real);
  assert_true(few.kmeans_samples == 100 * sample && more.kmeans_samples == 500 * sample);
  assert_true(plan_kmeans_bytes(&more) - plan_kmeans_bytes(&few) >= 400 * sample && more.kmeans_flops > few.kmeans_flops);
  assert_true(plan_kmeans_bytes(&more) >= more.kmeans_samples + more.kmeans_work + more.kmeans_activations + more.weights);
  assert_true(none.kmeans_samples == 0 && plan_kmeans_bytes(&none) == 0 && none.kmeans_flops == 0);
  assert_true(plan_training_bytes(&none) == plan_training_bytes(&few));
}

/* Llama-3-8B, N = 1024, 4 devices, G = 32, K = 1024: the figures of the appendix "Memory Cost Analysis". */
static void a_node_takes_what_the_paper_says(void **state) {
  (void)state;
  TrainOptions options = tiny_text_options(MODEL_LLAMA);
  Session session;
  PlanNode node;
  options.model = "llama-3-8b";
  options.dataset = options.tokenizer = NULL;
  options.context = 1024;
  options.batch = 1;
  options.groups = 32;
  options.entries = 1024;
  options.devices[0] = options.devices[1] = 4;
  tiny_check(session_open(&session, &options, SESSION_PLAN));
  tiny_check(plan_node_make(session.config, 1024, &node));
  assert_true(node.paper_full == 134217728);
  assert_true(node.paper == 35520512);
  assert_true(node.codebooks == 134217728);
  assert_true(node.cache_full == node.paper_full);
  assert_true(node.cache == 35520512); /* 33.9 MiB: what a node keeps is what the paper says */
  assert_true(node.weights > 16e9 && node.weights < 16.2e9);
  assert_true(node.together == node.weights + node.codebooks + node.cache + node.work);
  session_close(&session);
}

/* What the peers would send is not there; places for it are. */
static Status hear_nothing(Exchange *self, Tape *tape, const TokenLayout *layout, int block, int part, Tensor *const h[EXCHANGE_SITES]) {
  (void)self, (void)tape, (void)layout, (void)block, (void)part, (void)h;
  return STATUS_OK;
}
static Status take_zeroes(Exchange *self, Tape *tape, const TokenLayout *layout, int block, int part, ExchangeRows rows[EXCHANGE_SITES]) {
  (void)self, (void)block, (void)part;
  for (int site = 0; site < EXCHANGE_SITES; site++) {
    rows[site].x = tape_tensor(tape, 3, (int64_t[]){1, layout->remote, TEXT_WIDTH / 2}); /* 2 of 4 heads have keys and values */
    memset(rows[site].x->value, 0, (size_t)tensor_count(rows[site].x) * sizeof(real));
  }
  return STATUS_OK;
}

/* The prompt that a node is planned for, computed on it: the plan says what its tape took. */
static void a_node_works_in_the_memory_of_its_plan(void **state) {
  (void)state;
  TrainOptions options = tiny_text_options(MODEL_LLAMA);
  Session session;
  PlanNode node;
  TokenLayout layout = {0};
  Exchange exchange = {.begin = hear_nothing, .finish = take_zeroes};
  static const int32_t ids[TEXT_CONTEXT] = {1, 9, 12};
  const int64_t counts[] = {8, 8, 8};
  options.devices[0] = options.devices[1] = 3;
  tiny_check(session_open(&session, &options, SESSION_EVALUATE));
  tiny_check(plan_node_make(session.config, TEXT_CONTEXT, &node));
  tiny_check(layout_build(&layout, TEXT_CONTEXT, 3, counts, NULL, CLASS_NONE, 2));
  Arena *arena = arena_new((size_t)1 << 30), *block_arena = arena_new((size_t)1 << 30);
  Tape *tape = tape_new(arena);
  tape_record(tape, false);
  tape_segment_use(tape, block_arena);
  int32_t *given = tape_alloc(tape, sizeof ids);
  assert_non_null(given);
  memcpy(given, ids, sizeof ids);
  ModelInput input = {.ids = given, .batch = 1};
  assert_non_null(model_logits(session.model, tape, model_encode(session.model, tape, &input, &layout, &exchange, MODEL_ROWS_LAST)));
  assert_true((double)tape_peak_bytes(tape) == node.work);
  tape_clear(tape);
  layout_release(&layout);
  tape_free(tape);
  arena_free(block_arena);
  arena_free(arena);
  session_close(&session);
}

static void a_large_model_is_planned_without_its_memory(void **state) {
  (void)state;
  TrainOptions options = tiny_text_options(MODEL_LLAMA);
  TrainPlan plan;
  struct rusage usage;
  options.model = "llama-3-8b";
  options.dataset = options.tokenizer = NULL;
  options.context = 16; /* sanitizers touch a part of what activations would take */
  options.batch = 1;
  options.groups = 0;
  options.lora_rank = 16;
  planned(&options, SESSION_PLAN, &plan);
  assert_true(plan.parameters > 8.03e9 && plan.frozen > 16e9);
  assert_int_equal(getrusage(RUSAGE_SELF, &usage), 0);
  assert_true(usage.ru_maxrss < 1 << 20); /* KiB */
}

static int make(void **state) {
  int failed = tiny_make(state);
  if (failed == 0) tiny_text_files();
  return failed;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_large_model_is_planned_without_its_memory), /* first: it looks at the most that the process ever had */
      cmocka_unit_test(no_weights_are_needed),
      cmocka_unit_test(no_text_is_needed),
      cmocka_unit_test(frozen_weights_have_no_moments),
      cmocka_unit_test(evaluations_are_planned),
      cmocka_unit_test(dropped_patches_save_time_alone),
      cmocka_unit_test(samples_of_k_means_count),
      cmocka_unit_test(a_node_takes_what_the_paper_says),
      cmocka_unit_test(a_node_works_in_the_memory_of_its_plan),
  };
  return cmocka_run_group_tests(tests, make, tiny_remove);
}
