/* astra-quantize: writes a checkpoint whose matrices have 8 or 4 bits, once, in place of rounding them whenever it is loaded. */
#include "autograd/kernels/matmul.h"
#include "base/files.h"
#include "base/printable.h"
#include "base/threads.h"
#include "cli/cli.h"
#include "cli/infer_run.h"
#include "data/tokenizer/tokenizer_config.h"
#include "nn/checkpoint.h"
#include "nn/json_build.h"
#include "nn/safetensors.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct Quantize {
  const char *checkpoint, *out;
  int weights; /* 0: int8, 1: int4 */
  int64_t threads;
  bool overwrite, json, quiet;
} Quantize;

static const char usage[] = "astra-quantize --checkpoint DIR --out DIR [OPTION...]",
                  about[] = "Writes a checkpoint with matrices of 8 or 4 bits, which astra-infer runs as it is.";

static void make_table(Quantize *q, Option options[CLI_OPTIONS_MAX]) {
  const Option rows[] = {
      {OPTION_GROUP, .help = "Options:"},
      {OPTION_TEXT, "checkpoint", 'c', &q->checkpoint, "DIR", .help = "directory of the model, or the name of an installed one (required)"},
      {OPTION_CHOICE, "weights", 0, &q->weights, .choices = "int8|int4",
       .help = "8 bits with a scale per output, or 4 bits with a scale per 32 inputs"},
      {OPTION_TEXT, "out", 'o', &q->out, "DIR", .help = "output directory (required)"},
      {OPTION_FLAG, "overwrite", 0, &q->overwrite, .help = "replace an existing checkpoint"},
      {OPTION_INT, "threads", 't', &q->threads, "N", .min = 0, .max = THREADS_MAX, .help = "compute threads; 0: one per core"},
      {OPTION_FLAG, "json", 'j', &q->json, .help = "print one JSON object instead of text"},
      {OPTION_FLAG, "quiet", 'q', &q->quiet, .help = "warnings and errors only"},
      {.kind = OPTION_GROUP}};
  *q = (Quantize){0};
  memcpy(options, rows, sizeof rows);
}

/* ---- what stays as it is ---- */

static bool exact_in(SafeDtype dtype, int64_t count, const real *numbers) {
  bool exact = true;
  for (int64_t i = 0; i < count; i++) {
    const float number = (float)numbers[i];
    exact &=
        numbers[i] == (real)(dtype == SAFE_F16 ? narrow_half_to_float(narrow_half(number)) : narrow_bfloat_to_float(narrow_bfloat(number)));
  }
  return exact;
}

/* What is kept in 16 bits is read piece by piece, unless it is of that dtype. */
static bool exact_tensor(SafeDtype dtype, const Tensor *tensor) {
  enum { PIECE = 256 };
  const int64_t count = tensor_count(tensor);
  real piece[PIECE];
  if (tensor->value) return exact_in(dtype, count, tensor->value);
  if (!tensor->narrow || tensor->narrow_kind == (dtype == SAFE_F16 ? NARROW_F16 : NARROW_BF16)) return true;
  bool exact = true;
  for (int64_t first = 0, numbers; first < count && exact; first += numbers) {
    numbers = count - first < PIECE ? count - first : PIECE;
    tensor_read(tensor, first, numbers, piece);
    exact = exact_in(dtype, numbers, piece);
  }
  return exact;
}

/* The narrowest dtype that holds all other numbers as they are. */
static SafeDtype rest_dtype(const Weights *weights, const real *codebooks, int64_t codewords) {
  static const SafeDtype narrow[] = {SAFE_F16, SAFE_BF16};
  const ParamSet *set = model_params(weights->model);
  for (size_t d = 0; d < 2; d++) {
    bool exact = exact_in(narrow[d], codewords, codebooks);
    for (size_t i = 0; i < set->count && exact; i++) exact = exact_tensor(narrow[d], &set->list[i].tensor);
    if (exact) return narrow[d];
  }
  return SAFE_F32;
}

/* ---- the work ---- */

typedef struct Outcome {
  int64_t matrices, numbers; /* that were rounded */
  int64_t before, after;     /* bytes of all parameters */
} Outcome;

static Status write_checkpoint(const Quantize *q, const char *directory, const Weights *weights) {
  const ModelConfig *config = weights->config;
  const int64_t codewords =
      (int64_t)config_rates(config) * weights->book_count * config->astra.codebook_size * (weights->books ? config_site_width(config) : 0);
  real *codebooks = codewords ? malloc((size_t)codewords * sizeof *codebooks) : NULL;
  if (codewords && !codebooks) return status_no_memory(NULL, "codebooks");
  Status status = codewords ? checkpoint_load_codebooks(config, directory, codebooks) : STATUS_OK;
  if (status == STATUS_OK) status = checkpoint_save(weights->model, q->out, codebooks, NULL, rest_dtype(weights, codebooks, codewords));
  free(codebooks);
  if (status == STATUS_OK) status = files_copy_chosen(directory, q->out, out_directory_companion);
  /* What an earlier checkpoint has left there and this one has not would be taken for this one's. */
  if (status == STATUS_OK) status = files_prune(q->out, directory, out_directory_companion);
  if (status == STATUS_OK) status = q->overwrite ? out_directory_forget(q->out, &directory, 1) : tokenizer_config_remove_templates(q->out);
  if (status == STATUS_OK) status = tokenizer_config_copy_templates(directory, q->out);
  return status;
}

static Status report(const Quantize *q, const char *directory, const Outcome *o) {
  const char *bits = q->weights ? "int4" : "int8";
  if (q->json)
    return json_build_print(json_pack("{s:o, s:o, s:s, s:I, s:I, s:I, s:I}", "checkpoint", json_build_string(directory), "out",
                                      json_build_string(q->out), "weights", bits, "matrices", (json_int_t)o->matrices, "numbers",
                                      (json_int_t)o->numbers, "bytes_before", (json_int_t)o->before, "bytes_after", (json_int_t)o->after));
  if (!q->quiet)
    printf("%s: %lld %s of %lld numbers as %s; parameters of %.1f MB became %.1f MB\n", printable(q->out), (long long)o->matrices,
           o->matrices == 1 ? "matrix" : "matrices", (long long)o->numbers, bits, (double)o->before / 1e6, (double)o->after / 1e6);
  return STATUS_OK;
}

/* Matrices of few bits, and their numbers, are added `sign` times: those that the file had are none that were rounded. */
static void count_matrices(Model *model, int sign, Outcome *outcome) {
  const ParamSet *set = model_params(model);
  for (size_t i = 0; i < set->count; i++) {
    if (set->list[i].tensor.lowbit == NULL) continue;
    outcome->matrices += sign;
    outcome->numbers += sign * tensor_count(&set->list[i].tensor);
  }
}

static Status quantize(const Quantize *q, const char *directory) {
  Weights weights;
  Outcome outcome = {0};
  TRY(weights_load(&weights, directory));
  config_warn_no_preprocessor(weights.config, directory); /* what is written has one */
  outcome.before = lowbit_weights_all_bytes(weights.model);
  count_matrices(weights.model, -1, &outcome);
  Status status = weights_quantise(&weights, q->weights ? WEIGHTS_INT4 : WEIGHTS_INT8);
  outcome.after = lowbit_weights_all_bytes(weights.model);
  count_matrices(weights.model, 1, &outcome);
  if (status == STATUS_OK && outcome.matrices == 0)
    status = status_set(STATUS_BAD_VALUE, "%s: no matrix is left to round: all have few bits already", directory);
  if (status == STATUS_OK) status = write_checkpoint(q, directory, &weights);
  if (status == STATUS_OK) status = report(q, directory, &outcome);
  weights_release(&weights);
  return status;
}

static Status run(int argc, char **argv) {
  Quantize q;
  Option options[CLI_OPTIONS_MAX];
  char *directory = NULL;
  make_table(&q, options);
  if (cli_helped(options, usage, about, argc, argv)) return STATUS_OK;
  TRY(cli_parse(options, argc, argv));
  if (!q.checkpoint) return status_set(STATUS_BAD_USAGE, "--checkpoint DIR is missing: the directory of the model to quantise");
  if (!q.out) return status_set(STATUS_BAD_USAGE, "--out DIR is missing: the directory to write the quantised checkpoint to");
  TRY(cli_check_kernels(NULL));
  TRY(infer_run_find(q.checkpoint, &directory));
  Status status = STATUS_OK;
  if (!files_is_dir(directory))
    status = status_set(STATUS_BAD_VALUE, "--checkpoint %s: a file has the bits that it has; astra-infer --weights rounds what it loads",
                        directory);
  if (status == STATUS_OK && files_same(q.out, directory))
    status = status_set(STATUS_BAD_USAGE, "--out %s is the checkpoint itself; give another directory", q.out);
  if (status == STATUS_OK) status = out_directory_refuse_training(q.out);
  if (status == STATUS_OK && !q.overwrite) status = out_directory_free(q.out, OUT_CHECKPOINT, NULL);
  if (status == STATUS_OK && !q.overwrite) status = out_directory_free(q.out, OUT_TOKENIZER, NULL); /* which would be replaced or removed */
  const bool made = !files_exists(q.out);
  if (status == STATUS_OK) status = out_directory_try(q.out, NULL, CHECKPOINT_WHOLE); /* before the work, not after it */
  if (status == STATUS_OK) {
    status = threads_start((int)q.threads);
    if (status == STATUS_OK) status = quantize(&q, directory);
    if (status != STATUS_OK && made) out_directory_leave(q.out, NULL);
    threads_stop();
  }
  free(directory);
  return status;
}

static void help(FILE *stream) {
  Quantize q;
  Option options[CLI_OPTIONS_MAX];
  make_table(&q, options);
  options_help(options, usage, about, stream);
}

static void own_table(Option options[CLI_OPTIONS_MAX]) {
  static Quantize q;
  make_table(&q, options);
}

int main(int argc, char **argv) {
  matmul_start();
  return cli_run(argc, argv, &(CliProgram){.name = "astra-quantize", .otherwise = run, .help = help, .table = own_table});
}
