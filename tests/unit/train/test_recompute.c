/* Blocks that are computed twice: the same bits as with all values kept, for every architecture, site and kind of run, in less memory and
 * for one more forward pass. */
#include "autograd/kernels/matmul.h"
#include "train/plan.c"
#include "unit/train/tiny_text.h"

static void assert_same_with(TrainOptions options, int64_t blocks) {
  Session kept, twice;
  options.recompute = 0;
  tiny_open(&kept, &options);
  options.recompute = blocks;
  tiny_open(&twice, &options);
  for (int step = 0; step < 4; step++) {
    TaskBatch batch;
    StepResult one, other;
    param_zero_grads(model_params(kept.model));
    param_zero_grads(model_params(twice.model));
    tiny_check(kept.task->source->next(&kept, TASK_TRAIN, &batch));
    tiny_check(micro_step(&kept, &batch, &one));
    tiny_check(twice.task->source->next(&twice, TASK_TRAIN, &batch));
    tiny_check(micro_step(&twice, &batch, &other));
    assert_memory_equal(&one, &other, sizeof one);
    size_t bytes = (size_t)model_params(kept.model)->total * sizeof(real);
    assert_memory_equal(model_params(kept.model)->grads, model_params(twice.model)->grads, bytes);
    double norm;
    tiny_check(optimizer_step(&kept.optimizer, 1, 1, &norm));
    assert_true(norm > 0);
    tiny_check(optimizer_step(&twice.optimizer, 1, 1, &norm));
  }
  tiny_assert_same(&kept, &twice); /* codebooks, averages and noise moments as well */
  for (int i = 0; i < emulate_sites(&kept.emulation); i++) {
    UsageSummary a = usage_summary(&kept.emulation.site[i].usage), b = usage_summary(&twice.emulation.site[i].usage);
    assert_memory_equal(&a, &b, sizeof a);
  }
  session_close(&kept);
  session_close(&twice);
}

static void assert_same_steps(TrainOptions options) {
  assert_same_with(options, SESSION_ALL_BLOCKS);
  assert_same_with(options, 1);
}

static void texts_give_the_same_bits(void **state) {
  (void)state;
  for (ModelKind kind = MODEL_GPT2; kind <= MODEL_LLAMA; kind++) {
    TrainOptions options = tiny_text_options(kind);
    assert_same_steps(options);
    options.drop_path = 0.3;
    options.site = kind == MODEL_GPT2 ? SITE_KV : SITE_X;
    options.prediction = true;
    assert_same_steps(options);
    options.plain_prediction = true;
    assert_same_steps(options);
    options.prediction = false;
    options.codebook_decay = options.dead_below = 0.5; /* so that codewords die */
    assert_same_steps(options);
    options.lora_rank = 2;
    options.gradient = QUANTISE_NONE;
    assert_same_steps(options);
    options.groups = options.lora_rank = 0;
    options.smoothing = 0.1;
    assert_same_steps(options);
  }
}

static void images_give_the_same_bits(void **state) {
  (void)state;
  TrainOptions options = tiny_options();
  assert_same_steps(options);
  options.drop_path = 0.5;
  assert_same_steps(options);
  options.class_token = CLASS_SINGLE;
  options.gradient = QUANTISE_ROTATION;
  assert_same_steps(options);
  options.groups = 0;
  options.patch_drop = 0.5;
  assert_same_steps(options);
}

static void plan_of(TrainOptions options, int64_t recompute, TrainPlan *plan) {
  Session session;
  options.recompute = recompute;
  tiny_check(session_open(&session, &options, SESSION_PLAN));
  tiny_check(plan_make(&session, plan));
  session_close(&session);
}

/* Of a model with enough blocks; the head's and the embedding's values are kept either way. */
static void it_takes_less_memory_and_one_more_pass(void **state) {
  (void)state;
  TrainOptions options = tiny_text_options(MODEL_GPT2);
  TrainPlan kept, twice;
  options.model = "llama-3-8b";
  options.dataset = options.tokenizer = NULL;
  options.context = 64;
  options.groups = 0;
  options.lora_rank = 16;
  options.batch = 1;
  plan_of(options, 0, &kept);
  plan_of(options, SESSION_ALL_BLOCKS, &twice);
  assert_true(twice.activations < kept.activations / 8);
  double blocks = twice.step_flops - kept.step_flops; /* what is done twice: the forward pass without the head */
  assert_true(blocks > 0.8 * kept.forward_flops && blocks < kept.forward_flops);
}

static double total_of(Session *session) {
  TrainPlan plan;
  tiny_check(plan_make(session, &plan));
  return plan_total_bytes(session, &plan) - plan_program_bytes(session);
}

/* A budget is kept with as few blocks computed twice as will do; one that none keeps is refused with what would be needed. */
static void a_budget_chooses_the_blocks(void **state) {
  (void)state;
  enum { MAX = 64 };
  TrainOptions options = tiny_text_options(MODEL_GPT2);
  options.model = "gpt2-mini";
  options.dataset = options.tokenizer = NULL;
  options.context = 64;
  options.groups = 0;
  options.batch = 64; /* so that a step takes more than a self-test */
  options.memory = 1;
  double total[MAX + 1]; /* with so many blocks computed twice */
  Session session;
  tiny_check(session_open(&session, &options, SESSION_PLAN));
  const int blocks = (int)session.config->blocks;
  assert_in_range(blocks, 4, MAX);
  for (int twice = 0; twice <= blocks; twice++) {
    session_recompute(&session, twice);
    total[twice] = total_of(&session);
    if (twice > 1) assert_true(total[twice] < total[twice - 1]);
  }
  assert_true(total[blocks - 1] < total[0]); /* the first block alone takes about what it saves */
  const int wanted[] = {0, blocks - 1, blocks};
  for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
    session.options.memory = total[wanted[i]] + plan_program_bytes(&session) + 1;
    tiny_check(plan_fit(&session));
    assert_int_equal(session.recomputed, wanted[i]);
    assert_true(total_of(&session) == total[wanted[i]]); /* what the search has planned before counts no more */
  }
  session.options.memory = total[blocks] + plan_program_bytes(&session) - 4096;
  assert_int_equal(plan_fit(&session), STATUS_BAD_USAGE);
  assert_non_null(strstr(status_message(), "blocks computed twice the run takes"));
  session_close(&session);
}

/* What is planned is what a step takes, and what a step takes is what it takes again. */
static void the_plan_holds(void **state) {
  (void)state;
  TrainOptions options = tiny_text_options(MODEL_LLAMA);
  options.recompute = SESSION_ALL_BLOCKS;
  options.devices[0] = options.devices[1] = 3;
  options.map = COUNTS_EVEN;
  Session session;
  TrainPlan plan;
  tiny_check(session_open(&session, &options, SESSION_TRAIN));
  tiny_check(codebooks_read(&session, tiny_path("books")));
  tiny_check(plan_make(&session, &plan));
  tiny_check(session.task->source->seek(&session, TASK_TRAIN, 0, 0));
  tiny_step(&session); /* the first draws no noise yet, and factorises its moments */
  matmul_reset_count();
  tiny_step(&session);
  assert_true(matmul_counted().flops == plan.step_flops);
  assert_int_equal(tape_peak_bytes(session.tape), (size_t)plan.activations);
  session_close(&session);
}

static int make(void **state) {
  int failed = tiny_make(state);
  if (failed != 0) return failed;
  tiny_text_files();
  TrainOptions options = tiny_text_options(MODEL_LLAMA);
  Session session;
  tiny_open(&session, &options);
  tiny_check(checkpoint_save_codebooks(session.config, tiny_path("books"), session.emulation.codewords, SAFE_F32));
  session_close(&session);
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(texts_give_the_same_bits),
      cmocka_unit_test(images_give_the_same_bits),
      cmocka_unit_test(it_takes_less_memory_and_one_more_pass),
      cmocka_unit_test(a_budget_chooses_the_blocks),
      cmocka_unit_test(the_plan_holds),
  };
  return cmocka_run_group_tests(tests, make, tiny_remove);
}
