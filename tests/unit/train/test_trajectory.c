/* Twenty steps of training against an independent implementation in double (tests/golden/trajectory-*, written by make_trajectory.py):
 * noise with lambda = 1, moving averages of codewords with revival, AdamW, clipping and schedule, for a ViT, a GPT-2 and a Llama. Compared
 * are every step's losses, gradient norm and number of revived codewords, and weights, codewords and cluster sizes at the end.
 *
 * Allowed in double: 1e-8 of the value, and 1e-8 of the tensor's largest where that is more: all that differs is the order of sums. In
 * float a rounding may change a code, and with it a loss by about a hundredth and all that follows: 2% of a step's numbers, and of a final
 * tensor a root mean square deviation of 2% of its root mean square; revived codewords may then differ by a few. */
#include "autograd/ops/ops.h"
#include "nn/checkpoint.h"
#include "train/emulate.h"
#include "train/optimizer.h"
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME = 160 };

typedef struct Trajectory {
  ModelConfig config;
  Model *model;
  Emulation emulation;
  Optimizer optimizer;
  TokenLayout layout;
  SafeFile golden;
  Arena *arena;
  Tape *tape;
  Rng rng;
  int64_t steps, batches, batch, tokens;
  real *pixels;       /* [batches, B, C, H, W], or */
  int32_t *ids;       /* [batches, B, T] */
  int32_t *labels;    /* [batches, B] or [batches, B, T] */
  int32_t *device_of; /* [steps, T] */
  double worst;       /* largest deviation as a part of what is allowed */
  char worst_name[NAME];
} Trajectory;

static void check(Status status) {
  if (status != STATUS_OK) fail_msg("%s", status_message());
}

/* ---------------------------------------------------------------- reading */

static const SafeTensor *find(const Trajectory *t, const char *name) {
  const SafeTensor *tensor = safetensors_find(&t->golden, name);
  if (tensor == NULL) fail_msg("%s has no %s", t->golden.path, name);
  return tensor;
}

static real *read_reals(const Trajectory *t, const char *name) {
  const SafeTensor *tensor = find(t, name);
  real *numbers = malloc((size_t)tensor->count * sizeof *numbers);
  assert_non_null(numbers);
  check(safetensors_to_real(tensor, numbers));
  return numbers;
}

static int32_t *read_integers(const Trajectory *t, const char *name) {
  const SafeTensor *tensor = find(t, name);
  int32_t *numbers = malloc((size_t)tensor->count * sizeof *numbers);
  assert_non_null(numbers);
  check(safetensors_to_int32(tensor, numbers));
  return numbers;
}

static double option(const Trajectory *t, const char *name) {
  char full[NAME];
  double number;
  snprintf(full, sizeof full, "training.%s", name);
  const SafeTensor *tensor = find(t, full);
  assert_true(tensor->count == 1 && tensor->dtype == SAFE_F64);
  memcpy(&number, tensor->data, sizeof number);
  return number;
}

/* ---------------------------------------------------------------- set up */

static void open_trajectory(Trajectory *t, const char *directory) {
  char path[NAME];
  CheckpointReport report;
  *t = (Trajectory){0};
  snprintf(path, sizeof path, "%s/trajectory.safetensors", directory);
  check(safetensors_open(&t->golden, path));
  check(config_load(&t->config, directory));
  check(model_new(&t->model, &t->config));
  check(param_allocate(model_params(t->model), true));
  check(checkpoint_load_params(t->model, directory, NULL, &report));
  assert_true(report.unused == 0);
  t->device_of = read_integers(t, "device_of");
  t->steps = find(t, "device_of")->shape[0];
  t->tokens = find(t, "device_of")->shape[1];
  t->batches = find(t, "labels")->shape[0];
  t->batch = find(t, "labels")->shape[1];
  t->labels = read_integers(t, "labels");
  if (config_is_decoder(&t->config))
    t->ids = read_integers(t, "input_ids");
  else
    t->pixels = read_reals(t, "pixel_values");
  t->arena = arena_new((size_t)1 << 30);
  t->tape = t->arena ? tape_new(t->arena) : NULL;
  assert_non_null(t->tape);
}

static void start_training(Trajectory *t, const char *directory) {
  EmulateOptions emulate = {
      .noise = option(t, "noise"),
      .covariance = NOISE_FULL,
      .gradient = QUANTISE_STRAIGHT,
      .ema = {.decay = option(t, "codebook_decay"), .smoothing = option(t, "smoothing"), .dead_below = option(t, "dead_below")},
      .seed = (uint64_t)option(t, "noise_seed")};
  OptimizerOptions optimizer = {.rate = option(t, "rate"),
                                .beta1 = option(t, "beta1"),
                                .beta2 = option(t, "beta2"),
                                .eps = option(t, "eps"),
                                .decay = option(t, "decay"),
                                .clip = option(t, "clip")};
  check(emulate_init(&t->emulation, &t->config, &emulate));
  check(checkpoint_load_codebooks(&t->config, directory, t->emulation.codewords));
  check(emulate_start_ema(&t->emulation, t->batch * t->tokens));
  check(optimizer_init(&t->optimizer, model_params(t->model), &optimizer));
  rng_init(&t->rng, (uint64_t)option(t, "revive_seed"), 0);
}

static void close_trajectory(Trajectory *t) {
  free(t->pixels);
  free(t->ids);
  free(t->labels);
  free(t->device_of);
  optimizer_release(&t->optimizer);
  emulate_release(&t->emulation);
  layout_release(&t->layout);
  tape_free(t->tape);
  arena_free(t->arena);
  model_free(t->model);
  config_release(&t->config);
  safetensors_close(&t->golden);
}

/* ---------------------------------------------------------------- comparing */

static void note(Trajectory *t, const char *name, double deviation, double allowed) {
  double part = deviation / allowed;
  if (!(part <= 1)) fail_msg("%s: %s deviates by %g, %g is allowed", t->golden.path, name, deviation, allowed);
  if (part <= t->worst) return;
  t->worst = part;
  snprintf(t->worst_name, sizeof t->worst_name, "%s", name);
}

static void compare_step(Trajectory *t, const char *name, int64_t step, double got) {
  char full[NAME];
  double expected;
  snprintf(full, sizeof full, "step.%s", name);
  const SafeTensor *tensor = find(t, full);
  assert_int_equal(tensor->count, t->steps);
  memcpy(&expected, tensor->data + step * (int64_t)sizeof expected, sizeof expected);
  snprintf(full, sizeof full, "%s of step %d", name, (int)step);
  bool whole = strcmp(name, "revived") == 0;
  if (REAL_IS_DOUBLE)
    note(t, full, fabs(got - expected), whole ? 0.5 : 1e-8 * fabs(expected));
  else
    note(t, full, fabs(got - expected), whole ? 4 : 0.02 * fabs(expected));
}

static void compare_final(Trajectory *t, const char *name, int64_t count, const real *got) {
  real *expected = read_reals(t, name);
  double largest = 0, deviation = 0, squares = 0, differences = 0;
  assert_int_equal(find(t, name)->count, count);
  for (int64_t i = 0; i < count; i++) {
    double difference = (double)got[i] - (double)expected[i];
    largest = fmax(largest, fabs((double)expected[i]));
    deviation = fmax(deviation, isnan(difference) ? INFINITY : fabs(difference));
    squares += (double)expected[i] * (double)expected[i];
    differences += difference * difference;
  }
  if (REAL_IS_DOUBLE)
    note(t, name, deviation, 1e-8 * largest);
  else
    note(t, name, sqrt(differences), 0.02 * sqrt(squares));
  free(expected);
}

static void compare_end(Trajectory *t) {
  static const char *const sites[] = {"k", "v"};
  const ParamSet *params = model_params(t->model);
  char name[NAME];
  for (size_t i = 0; i < params->count; i++) {
    snprintf(name, sizeof name, "final.%s", params->list[i].name);
    compare_final(t, name, tensor_count(&params->list[i].tensor), params->list[i].tensor.value);
  }
  for (int index = 0; index < emulate_sites(&t->emulation); index++) {
    const EmulateSite *site = &t->emulation.site[index];
    const char *which = t->emulation.block_sites == 1 ? "x" : sites[index % 2];
    snprintf(name, sizeof name, "final.astra.layers.%d.%s.codebook", index / t->emulation.block_sites, which);
    compare_final(t, name, site->book.entries * site->book.width, site->book.codewords);
    snprintf(name, sizeof name, "sizes.astra.layers.%d.%s.codebook", index / t->emulation.block_sites, which);
    compare_final(t, name, site->book.groups * site->book.entries, site->ema.sizes);
  }
}

/* ---------------------------------------------------------------- a step, as in trainer.c */

static void lay_tokens(Trajectory *t, int64_t step) {
  const int32_t *device_of = t->device_of + step * t->tokens;
  int64_t counts[8] = {0}, at = 0;
  int32_t order[64];
  assert_true(t->config.astra.devices <= 8 && t->tokens <= 64);
  for (int device = 0; device < t->config.astra.devices; device++)
    for (int32_t token = 0; token < t->tokens; token++)
      if (device_of[token] == device) order[at++] = token, counts[device]++;
  assert_int_equal(at, t->tokens);
  check(layout_build(&t->layout, t->tokens, t->config.astra.devices, counts, config_is_decoder(&t->config) ? NULL : order,
                     t->config.astra.class_token, -1));
}

static Tensor *task_loss(Trajectory *t, int64_t at) {
  bool decoder = config_is_decoder(&t->config);
  const int64_t shape[] = {t->batch, t->config.channels, t->config.image, t->config.image};
  const int32_t *labels = t->labels + at * t->batch * (decoder ? t->tokens : 1);
  ModelInput input = {0};
  if (decoder)
    input = (ModelInput){.ids = t->ids + at * t->batch * t->tokens, .batch = t->batch};
  else
    input.pixels = tape_constant(t->tape, 4, shape, t->pixels + at * shape[0] * shape[1] * shape[2] * shape[3]);
  Tensor *encoded =
      model_encode(t->model, t->tape, &input, &t->layout, &t->emulation.exchange, decoder ? MODEL_ROWS_ALL : MODEL_ROWS_CLASS);
  check(tape_status(t->tape));
  if (decoder) return model_token_loss(t->model, t->tape, encoded, &(VocabLoss){.labels = labels});
  return op_cross_entropy(t->tape, model_classify(t->model, t->tape, encoded), &(CrossEntropy){.labels = labels});
}

static void train_step(Trajectory *t, int64_t step) {
  param_zero_grads(model_params(t->model));
  lay_tokens(t, step);
  tape_record(t->tape, true);
  emulate_begin_step(&t->emulation, true);
  Tensor *task = task_loss(t, step % t->batches);
  Tensor *loss = op_add_scaled(t->tape, task, t->emulation.carried[EMULATE_COMMITMENT], t->config.astra.commitment_weight);
  check(tape_status(t->tape));
  compare_step(t, "task", step, (double)task->value[0]);
  compare_step(t, "commitment", step, (double)t->emulation.carried[EMULATE_COMMITMENT]->value[0]);
  compare_step(t, "loss", step, (double)loss->value[0]);
  check(tape_backward(t->tape, loss));
  emulate_clear_usage(&t->emulation);
  check(emulate_update(&t->emulation, t->tape, &t->rng));
  compare_step(t, "revived", step, (double)t->emulation.revived);
  tape_clear(t->tape);
  double norm, factor = optimizer_schedule(step, (int64_t)option(t, "warmup"), t->steps, option(t, "floor"));
  check(optimizer_step(&t->optimizer, factor, 1, &norm));
  compare_step(t, "norm", step, norm);
}

static void follow(const char *directory) {
  Trajectory t;
  open_trajectory(&t, directory);
  start_training(&t, directory);
  for (int64_t step = 0; step < t.steps; step++) train_step(&t, step);
  compare_end(&t);
  printf("  %s: %d steps, at worst %.2g of what is allowed (%s)\n", directory, (int)t.steps, t.worst, t.worst_name);
  close_trajectory(&t);
}

static void vit(void **state) { (void)state, follow("tests/golden/trajectory-vit"); }
static void gpt2(void **state) { (void)state, follow("tests/golden/trajectory-gpt2"); }
static void llama(void **state) { (void)state, follow("tests/golden/trajectory-llama"); }

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(vit), cmocka_unit_test(gpt2), cmocka_unit_test(llama)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
