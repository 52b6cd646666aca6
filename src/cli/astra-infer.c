/* astra-infer: classifies images and texts and goes on from prompts on several processes of this machine, measures models over a data set
 * through them, and proves that they compute what training emulated. */
#include "autograd/kernels/matmul.h"
#include "base/log.h"
#include "cli/cli.h"
#include "cli/infer_run.h"
#include "cli/infer_settings.h"
#include "data/text/text_labels.h"
#include "infer/report.h"
#include "nn/json_build.h"
#include <math.h>
#include <stdlib.h>

/* ---- astra-infer IMAGE... ---- */

static Status report_failures(const ImageResult *results, int count) {
  int failed = 0;
  for (int i = 0; i < count; i++) {
    if (results[i].read) continue;
    log_error("%s", results[i].message);
    failed++;
  }
  if (!failed) return STATUS_OK;
  return status_set(STATUS_BAD_FILE, "%d of %d images could not be read", failed, count);
}

static int64_t count_read(const ImageResult *results, int count) {
  int64_t read = 0;
  for (int i = 0; i < count; i++) read += results[i].read;
  return read;
}

/* Of the request that each image was part of. */
static json_t *times_json(const ImageResult *results, int count) {
  json_t *list = json_array();
  for (int i = 0; i < count; i++) json_build_append(&list, json_build_number(results[i].read ? 1e3 * results[i].seconds : NAN));
  return list;
}

static Status print_images(const InferSettings *s, const InferRun *run, const ImageResult *results, int count, double seconds) {
  if (s->json) {
    json_t *value =
        json_pack("{s:o, s:o, s:f, s:o}", "pictures", report_images(NULL, &run->weights, results, count), "nodes",
                  report_nodes_json(run->leader), "milliseconds", 1e3 * seconds, "picture_milliseconds", times_json(results, count));
    report_traffic_json(value, run->leader, count_read(results, count), false);
    return infer_run_print_json(value, run);
  }
  report_images(stdout, &run->weights, results, count);
  if (s->quiet || count_read(results, count) == 0) return STATUS_OK; /* of what nobody computed there is nothing to tell */
  putchar('\n');
  report_nodes(stdout, run->leader);
  report_traffic(stdout, run->leader, count_read(results, count), false);
  infer_split_report(stdout, &run->divided, run->leader);
  return STATUS_OK;
}

static Status classify_files(const InferSettings *s, InferRun *run, const ImageFiles *files) {
  ImageResult *results = calloc((size_t)files->count, sizeof *results);
  if (!results) return status_set(STATUS_NO_MEMORY, "no memory for %d images", files->count);
  double seconds;
  Status status = infer_run_load(s, run);
  if (status == STATUS_OK) status = infer_run_require(run, INFER_KIND_IMAGES);
  if (status == STATUS_OK) status = infer_run_require_options(s, run);
  if (status == STATUS_OK) status = infer_run_start(s, run, &(LeaderOptions){.batch_max = s->batch});
  if (status == STATUS_OK)
    status = images_classify(run->leader, (const char *const *)files->paths, files->count, s->batch, (int)s->top, results, &seconds);
  if (status == STATUS_OK) status = print_images(s, run, results, files->count, seconds);
  if (status == STATUS_OK) status = report_failures(results, files->count);
  free(results);
  return status;
}

static Status classify(const InferSettings *s, InferRun *run, const char *const *arguments, int count) {
  ImageFiles files;
  InferSettings fitted = *s;
  TRY(images_find(&files, arguments, count));
  if (files.skipped) log_info("%d file%s skipped: no image by the name", files.skipped, files.skipped == 1 ? "" : "s");
  if (fitted.batch > files.count) fitted.batch = files.count;
  Status status = classify_files(&fitted, run, &files);
  images_release(&files);
  return status;
}

/* ---- astra-infer eval ---- */

enum { IMAGES_OF_A_REQUEST = 64 };

static Status evaluate_images(const InferSettings *s, InferRun *run) {
  Evaluation evaluation;
  int64_t batch = s->batch > 0 ? s->batch : IMAGES_OF_A_REQUEST;
  TRY(s->validation_part > 0 ? dataset_open_held_out(&run->set, s->dataset, s->data_dir, true, s->validation_part)
                             : dataset_open(&run->set, s->dataset, s->data_dir, DATASET_TEST));
  if (s->validation_part > 0) log_info("%s", dataset_describe(run->set));
  TRY(infer_run_load(s, run));
  TRY(infer_run_require(run, INFER_KIND_IMAGES));
  TRY(infer_run_require_options(s, run));
  run->divided.ahead = true;
  TRY(infer_run_start(s, run, &(LeaderOptions){.batch_max = batch}));
  TRY(evaluate_run(run->leader, run->set, s->samples, batch, s->quiet, run->rows.stream, &evaluation));
  if (s->json) {
    json_t *value = report_evaluation(NULL, run->leader, &evaluation);
    if (value) json_object_set_new(value, "dataset", json_string(s->dataset));
    if (value) json_object_set_new(value, "part", json_string(s->validation_part > 0 ? "valid" : "test"));
    report_traffic_json(value, run->leader, evaluation.samples, false);
    return infer_run_print_json(value, run);
  }
  report_evaluation(stdout, run->leader, &evaluation);
  report_traffic(stdout, run->leader, evaluation.samples, false);
  if (s->quiet) return STATUS_OK;
  putchar('\n');
  report_nodes(stdout, run->leader);
  infer_split_report(stdout, &run->divided, run->leader);
  return STATUS_OK;
}

static Status evaluate_any(const InferSettings *s, InferRun *run, const char *const *arguments, int count) {
  if (infer_text_eval_knows(s->dataset)) return infer_text_eval(s, run, arguments, count);
  return text_labels_knows(s->dataset) ? infer_classify_eval(s, run, arguments, count) : evaluate_images(s, run);
}

static Status evaluate(const InferSettings *s, InferRun *run, const char *const *arguments, int count) {
  if (s->per_sample == NULL) return evaluate_any(s, run, arguments, count);
  TRY(files_create(&run->rows, s->per_sample));
  Status status = evaluate_any(s, run, arguments, count);
  if (status == STATUS_OK) return files_commit(&run->rows);
  files_abort(&run->rows);
  return status;
}

/* ---- astra-infer selftest ---- */

static Status prove(const InferSettings *s, InferRun *run, const char *const *paths, int count) {
  SelftestReport report;
  (void)paths, (void)count;
  TRY(infer_run_load(s, run));
  infer_run_catch_signals();
  TRY(infer_tables_make(s->links.table_memory, s->verbose, &run->weights));
  LeaderOptions options = infer_run_options(s, run, run->weights.books ? 2 : 1);
  TRY(selftest_run(&run->weights, run->directory, s->file, &options, &report));
  if (s->json)
    TRY(infer_run_print_json(report_selftest(NULL, &report), run));
  else
    report_selftest(stdout, &report);
  return report.passed ? STATUS_OK : status_set(STATUS_NUMERIC, "the processes do not compute what training emulated: %s", report.reason);
}

/* ---- commands ---- */

static Status run_main_body(const InferSettings *s, InferRun *run, const char *const *arguments, int count) {
  if (count > 0) return classify(s, run, arguments, count);
  bool text = s->texts.count > 0 || s->text_file;
  return (text ? infer_classify_texts : infer_text_generate)(s, run, arguments, count);
}

static Status run_main(int argc, char **argv) { return infer_run_command(INFER_MAIN, argc, argv, run_main_body); }

static Status run_or_help(InferCommand command, int argc, char **argv, InferBody *body) {
  InferSettings settings;
  Option options[INFER_OPTIONS_MAX];
  infer_settings_table(&settings, command, options);
  if (!cli_help_wanted(options, argc, argv)) return infer_run_command(command, argc, argv, body);
  infer_settings_help(command, stdout);
  return STATUS_OK;
}

static Status run_generate(int argc, char **argv) { return run_or_help(INFER_GENERATE, argc, argv, infer_text_generate); }
static Status run_eval(int argc, char **argv) { return run_or_help(INFER_EVAL, argc, argv, evaluate); }
static Status run_selftest(int argc, char **argv) { return run_or_help(INFER_SELFTEST, argc, argv, prove); }

static Status show_links(int argc, char **argv) {
  if (argc > 1 && strcmp(argv[1], "--help") != 0) return status_set(STATUS_BAD_USAGE, "%s: links takes nothing, it lists options", argv[1]);
  infer_settings_help_links(stdout);
  return STATUS_OK;
}

static const CliCommand *const commands[] = {
    &(const CliCommand){"generate", "generate text from prompts (the default with --prompt); all its options", run_generate},
    &(const CliCommand){"eval", "measure accuracy on images or texts, or perplexity on a text", run_eval},
    &(const CliCommand){"selftest", "check that the processes compute what training emulated", run_selftest},
    &(const CliCommand){"links", "list further options: strategies, transport, simulated network", show_links},
    &infer_worker_command,
    &infer_plan_command,
    &infer_keygen_command,
    NULL};

static void help(FILE *stream) {
  infer_settings_help(INFER_MAIN, stream);
  fprintf(stream, "\nCommands (astra-infer COMMAND --help):\n");
  cli_commands_help(commands, stream);
}

/* For where the options' values stand; what they are set to is infer_settings_parse's. */
static void table(Option options[CLI_OPTIONS_MAX]) {
  static InferSettings settings;
  infer_settings_table(&settings, INFER_MAIN, options);
}

int main(int argc, char **argv) {
  matmul_start();
  const CliProgram program = {"astra-infer", commands, run_main, help, table};
  return cli_run(argc, argv, &program);
}
