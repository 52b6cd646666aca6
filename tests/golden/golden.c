/* Compares the engine with reference values of whole models: logits, losses, codes and every parameter's gradient.
 *   golden DIR...      DIR holds config.json, model.safetensors, expected.safetensors and, for ASTRA, codebooks.safetensors
 * For each quantity the largest deviation is printed, as it is and as a part of what is allowed. Exit status: 0 within the tolerance,
 * 1 outside of it (or a directory that cannot be used), 2 wrong usage.
 *
 * Allowed is ABSOLUTE + RELATIVE |expected|. The expected values were computed in double and stored as float32. In float that rounding
 * disappears in the 1e-3; in double the relative part is nothing but it, half a unit in the last place, 2^-24 = 6e-8.
 * Codes have no tolerance: none may differ. They are compared in the order of the image's tokens. */
#include "autograd/ops/ops.h"
#include "nn/checkpoint.h"
#include "train/emulate.h"
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if REAL_IS_DOUBLE
#define ABSOLUTE  1e-6
#define RELATIVE  0x1p-24
#define REAL_NAME "double"
#else
#define ABSOLUTE  1e-4
#define RELATIVE  1e-3
#define REAL_NAME "float"
#endif

enum { NAME = 160, PLACE = 512 };

typedef struct Case {
  ModelConfig config;
  Model *model;
  Emulation emulation; /* where the model is an ASTRA one */
  TokenLayout layout;
  SafeFile expected;
  Arena *arena;
  Tape *tape;
  size_t compared; /* tensors of `expected` that were looked at */
  int outside;     /* quantities beyond the tolerance */
} Case;

static bool is_astra(const Case *test) { return test->config.astra.groups > 0; }

/* ---------------------------------------------------------------- reading */

/* The tensor of that name, of that many numbers (-1: any). */
static Status find(Case *test, const char *name, int64_t count, const SafeTensor **tensor) {
  *tensor = safetensors_find(&test->expected, name);
  if (*tensor == NULL) return status_set(STATUS_BAD_FILE, "%s has no \"%s\"", test->expected.path, name);
  if (count >= 0 && (*tensor)->count != count)
    return status_set(STATUS_BAD_FILE, "%s: \"%s\" holds %lld numbers, but the model makes %lld", test->expected.path, name,
                      (long long)(*tensor)->count, (long long)count);
  test->compared++;
  return STATUS_OK;
}

static Status read_reals(Case *test, const char *name, int64_t count, real **out) {
  const SafeTensor *tensor;
  TRY(find(test, name, count, &tensor));
  if ((*out = tape_alloc(test->tape, (size_t)tensor->count * sizeof **out)) == NULL) return tape_status(test->tape);
  return safetensors_to_real(tensor, *out);
}

static Status read_integers(Case *test, const char *name, int64_t count, int32_t **out) {
  const SafeTensor *tensor;
  TRY(find(test, name, count, &tensor));
  if ((*out = tape_alloc(test->tape, (size_t)tensor->count * sizeof **out)) == NULL) return tape_status(test->tape);
  return safetensors_to_int32(tensor, *out);
}

/* ---------------------------------------------------------------- set up */

static Status open_model(Case *test, const char *directory) {
  TRY(config_load(&test->config, directory));
  TRY(model_new(&test->model, &test->config));
  TRY(param_allocate(model_params(test->model), true));
  CheckpointReport report;
  TRY(checkpoint_load_params(test->model, directory, NULL, &report));
  if (report.new_head || report.resized_positions || report.unused != 0)
    return status_set(STATUS_BAD_FILE, "%s: model.safetensors does not hold exactly the parameters of config.json", directory);
  return STATUS_OK;
}

static Status open_codebooks(Case *test, const char *directory) {
  if (!is_astra(test)) return STATUS_OK;
  EmulateOptions options = {.noise = 0, .gradient = QUANTISE_STRAIGHT};
  TRY(emulate_init(&test->emulation, &test->config, &options));
  TRY(checkpoint_load_codebooks(&test->config, directory, test->emulation.codewords));
  return emulate_start_ema(&test->emulation, test->config.astra.codebook_size);
}

/* Content tokens sorted by device, in the order of the image or the text inside a device. */
static Status build_layout(Case *test, int64_t tokens) {
  ClassToken class_token = test->config.astra.class_token;
  if (!is_astra(test)) return layout_build_plain(&test->layout, tokens, class_token);
  int32_t *device_of;
  TRY(read_integers(test, "device_of", tokens, &device_of));
  int devices = test->config.astra.devices;
  int64_t *counts = tape_alloc(test->tape, (size_t)devices * sizeof *counts), at = 0;
  int32_t *order = tape_alloc(test->tape, (size_t)tokens * sizeof *order);
  if (counts == NULL || order == NULL) return tape_status(test->tape);
  for (int device = 0; device < devices; device++) {
    int64_t first = at;
    for (int32_t token = 0; token < tokens; token++)
      if (device_of[token] == device) order[at++] = token;
    counts[device] = at - first;
  }
  if (at != tokens) return status_set(STATUS_BAD_FILE, "%s: \"device_of\" names a device outside [0, %d)", test->expected.path, devices);
  return layout_build(&test->layout, tokens, devices, counts, config_is_decoder(&test->config) ? NULL : order, class_token, -1);
}

static Status open_case(Case *test, const char *directory) {
  char path[PLACE];
  if (!files_is_dir(directory)) return status_set(STATUS_NOT_FOUND, "%s is no directory", directory);
  TRY(open_model(test, directory));
  TRY(open_codebooks(test, directory));
  snprintf(path, sizeof path, "%s/expected.safetensors", directory);
  TRY(safetensors_open(&test->expected, path));
  test->arena = arena_new((size_t)1 << 32);
  test->tape = test->arena ? tape_new(test->arena) : NULL;
  return test->tape == NULL ? status_set(STATUS_NO_MEMORY, "no memory for the tape") : STATUS_OK;
}

static void close_case(Case *test) {
  tape_free(test->tape);
  arena_free(test->arena);
  safetensors_close(&test->expected);
  layout_release(&test->layout);
  emulate_release(&test->emulation);
  model_free(test->model);
  config_release(&test->config);
}

/* ---------------------------------------------------------------- comparing */

static Status compare(Case *test, const char *name, int64_t count, const real *got) {
  real *expected;
  TRY(read_reals(test, name, count, &expected));
  double deviation = 0, part = 0;
  for (int64_t i = 0; i < count; i++) {
    double difference = fabs((double)got[i] - (double)expected[i]);
    double share = difference / (ABSOLUTE + RELATIVE * fabs((double)expected[i]));
    if (!(difference <= deviation || isnan(deviation))) deviation = difference; /* a NaN comes through and stays */
    if (!(share <= part || isnan(part))) part = share;
  }
  bool inside = part <= 1;
  test->outside += !inside;
  printf("  %-72s %8lld %12.2e %11.4f%s\n", name, (long long)count, deviation, part, inside ? "" : "  OUTSIDE");
  return STATUS_OK;
}

/* Codes come in shared order, which is device-sorted; the expected ones are [B, T, G] in the order of the tokens. */
static Status compare_codes(Case *test, int index, int64_t batch) {
  static const char *const both[] = {"k", "v"};
  const EmulateSite *site = &test->emulation.site[index];
  const TokenLayout *layout = &test->layout;
  int sites = test->emulation.block_sites;
  int64_t groups = site->book.groups, count = batch * layout->tokens * groups, differing = 0;
  char name[NAME];
  int32_t *expected;
  snprintf(name, sizeof name, "codes.astra.layers.%d.%s", index / sites, sites == 1 ? "x" : both[index % sites]);
  TRY(read_integers(test, name, count, &expected));
  for (int64_t b = 0; b < batch; b++)
    for (int64_t s = 0; s < layout->shared; s++)
      for (int64_t g = 0; g < groups; g++) {
        int64_t token = layout->row_token[layout->shared_row[s]];
        differing += site->codes[(b * layout->shared + s) * groups + g] != expected[(b * layout->tokens + token) * groups + g];
      }
  test->outside += differing > 0;
  printf("  %-72s %8lld %5lld differ%s\n", name, (long long)count, (long long)differing, differing ? "              OUTSIDE" : "");
  return STATUS_OK;
}

static Status compare_gradients(Case *test) {
  const ParamSet *params = model_params(test->model);
  for (size_t i = 0; i < params->count; i++) {
    char name[NAME];
    snprintf(name, sizeof name, "grad.%s", params->list[i].name);
    TRY(compare(test, name, tensor_count(&params->list[i].tensor), params->list[i].tensor.grad));
  }
  return STATUS_OK;
}

/* ---------------------------------------------------------------- running */

typedef struct Inputs {
  ModelInput model;
  int64_t batch, tokens;
  int32_t *labels; /* [B], of a decoder [B, T] */
} Inputs;

static Status read_pixels(Case *test, Inputs *inputs) {
  const SafeTensor *tensor;
  const ModelConfig *config = &test->config;
  real *values;
  TRY(find(test, "pixel_values", -1, &tensor));
  int64_t shape[] = {tensor->shape[0], config->channels, config->image, config->image};
  if (tensor->dims != 4 || memcmp(tensor->shape, shape, sizeof shape) != 0)
    return status_set(STATUS_BAD_FILE, "%s: \"pixel_values\" is not [B, %lld, %lld, %lld]", test->expected.path, (long long)shape[1],
                      (long long)shape[2], (long long)shape[3]);
  test->compared--; /* read_reals counts it */
  TRY(read_reals(test, "pixel_values", tensor->count, &values));
  inputs->batch = shape[0];
  inputs->tokens = config_tokens(config);
  inputs->model.pixels = tape_constant(test->tape, 4, shape, values);
  TRY(tape_status(test->tape));
  return read_integers(test, "labels", inputs->batch, &inputs->labels);
}

static Status read_ids(Case *test, Inputs *inputs) {
  const SafeTensor *tensor;
  int32_t *ids;
  TRY(find(test, "input_ids", -1, &tensor));
  if (tensor->dims != 2) return status_set(STATUS_BAD_FILE, "%s: \"input_ids\" is not [B, T]", test->expected.path);
  test->compared--; /* read_integers counts it */
  TRY(read_integers(test, "input_ids", tensor->count, &ids));
  inputs->batch = tensor->shape[0];
  inputs->tokens = tensor->shape[1];
  inputs->model = (ModelInput){.ids = ids, .batch = inputs->batch};
  return read_integers(test, "labels", tensor->count, &inputs->labels);
}

typedef struct Results {
  Tensor *logits, *task, *loss;
} Results;

/* A decoder's loss is computed with its vocabulary product, in slices; the logits are computed beside it, for themselves. */
static Results heads(Case *test, const Inputs *inputs, Tensor *encoded) {
  Tape *tape = test->tape;
  Results results = {NULL, NULL, NULL};
  if (config_is_decoder(&test->config)) {
    results.logits = model_logits(test->model, tape, encoded);
    results.task = model_token_loss(test->model, tape, encoded, &(VocabLoss){.labels = inputs->labels});
  } else {
    results.logits = model_classify(test->model, tape, encoded);
    results.task = op_cross_entropy(tape, results.logits, &(CrossEntropy){.labels = inputs->labels});
  }
  return results;
}

static Status run_model(Case *test, const Inputs *inputs, Results *results) {
  Tape *tape = test->tape;
  Exchange *exchange = is_astra(test) ? &test->emulation.exchange : NULL;
  ModelRows rows = config_is_decoder(&test->config) ? MODEL_ROWS_ALL : MODEL_ROWS_CLASS;
  param_zero_grads(model_params(test->model));
  tape_record(tape, true);
  if (exchange) emulate_begin_step(&test->emulation, true);
  Tensor *encoded = model_encode(test->model, tape, &inputs->model, &test->layout, exchange, rows);
  TRY(tape_status(tape));
  *results = heads(test, inputs, encoded);
  results->loss = results->task;
  if (exchange)
    results->loss = op_add_scaled(tape, results->task, test->emulation.carried[EMULATE_COMMITMENT], test->config.astra.commitment_weight);
  TRY(tape_status(tape));
  return tape_backward(tape, results->loss);
}

static Status run_case(Case *test) {
  Inputs inputs = {0};
  Results results;
  TRY(config_is_decoder(&test->config) ? read_ids(test, &inputs) : read_pixels(test, &inputs));
  TRY(build_layout(test, inputs.tokens));
  TRY(run_model(test, &inputs, &results));
  int sites = is_astra(test) ? emulate_sites(&test->emulation) : 0;
  for (int index = 0; index < sites; index++) TRY(compare_codes(test, index, inputs.batch));
  TRY(compare(test, "logits", tensor_count(results.logits), results.logits->value));
  TRY(compare(test, "task_loss", 1, results.task->value));
  if (is_astra(test)) TRY(compare(test, "commitment", 1, test->emulation.carried[EMULATE_COMMITMENT]->value));
  TRY(compare(test, "loss", 1, results.loss->value));
  TRY(compare_gradients(test));
  if (test->compared != test->expected.count)
    return status_set(STATUS_BAD_FILE, "%s: %zu of its %zu tensors were compared; the others belong to no quantity of this model",
                      test->expected.path, test->compared, test->expected.count);
  return STATUS_OK;
}

static bool check_directory(const char *directory) {
  Case test = {0};
  printf("%s in %s, allowed: %.0e + %.0e |expected|\n", directory, REAL_NAME, ABSOLUTE, RELATIVE);
  printf("  %-72s %8s %12s %11s\n", "quantity", "numbers", "deviation", "of allowed");
  Status status = open_case(&test, directory);
  if (status == STATUS_OK) status = run_case(&test);
  fflush(stdout);
  if (status != STATUS_OK) fprintf(stderr, "golden: %s: %s\n", directory, status_message());
  printf("%s: %s\n", directory, status != STATUS_OK ? "FAILED" : test.outside ? "OUTSIDE the tolerance" : "ok");
  bool ok = status == STATUS_OK && test.outside == 0;
  close_case(&test);
  return ok;
}

int main(int argc, char **argv) {
  if (argc < 2 || argv[1][0] == '-') {
    fprintf(stderr, "usage: golden DIR...   (each with config.json, model.safetensors, expected.safetensors and, for ASTRA, "
                    "codebooks.safetensors)\n");
    return 2;
  }
  bool ok = true;
  for (int i = 1; i < argc; i++) ok = check_directory(argv[i]) && ok;
  return ok ? 0 : 1;
}
