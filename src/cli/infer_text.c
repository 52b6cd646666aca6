/* Prompts of the command line through the nodes to stdout: see infer_text.h. */
#include "cli/infer_text.h"
#include "base/log.h"
#include "base/printable.h"
#include "base/utf8.h"
#include "cli/infer_prompts.h"
#include "cli/infer_stops.h"
#include "infer/generate.h"
#include "infer/report.h"
#include <unistd.h>

typedef struct Job {
  const InferSettings *settings;
  InferRun *run;
  Vocabulary vocabulary;
  InferPrompts prompts;
  InferStops stops;
  json_t *results; /* with --json */
  bool line_open;  /* text stands on the last line of stdout, which no end follows yet */
} Job;

/* ---- output ---- */

/* What a model writes goes as it is to a file or another program. A terminal gets line feeds and tabs, and nothing else that it obeys. */
static void write_text(void *context, const char *text, size_t bytes) {
  Job *job = context;
  bool terminal = isatty(STDOUT_FILENO);
  for (size_t at = 0, size; at < bytes; at += size) {
    char written[PRINTABLE_ROOM];
    size = terminal ? utf8_size(text + at, bytes - at) : bytes;
    if (size == 0) size = 1;
    if (!terminal || text[at] == '\n' || text[at] == '\t')
      fwrite(text + at, 1, size, stdout);
    else
      fputs(printable_copy(written, sizeof written, text + at, size), stdout);
  }
  fflush(stdout);
  job->line_open |= bytes > 0;
}

/* Before anything on stderr, which on a terminal wipes the line it comes to. */
static void end_line(Job *job) {
  putchar('\n');
  fflush(stdout);
  job->line_open = false;
}

static bool divides_tokens(const Leader *leader) { return strategy_facts(leader_setup(leader)->strategy)->divides_tokens; }

static void explain_end(const Leader *leader, const Generation *g) {
  if (g->end == GENERATE_CONTEXT) log_info("the context of %lld tokens is full: the text ends here", (long long)leader_tokens_most(leader));
  if (g->nodes < leader_nodes_here(leader) && g->prompt_tokens < leader_nodes_here(leader) && divides_tokens(leader))
    log_info("%lld token%s for %d nodes: only the first %d took part", (long long)g->prompt_tokens, g->prompt_tokens == 1 ? "" : "s",
             leader_nodes_here(leader), g->nodes);
}

static Status finish_prompt(Job *job, const InferPrompt *prompt, const Generation *g) {
  const InferSettings *s = job->settings;
  if (!s->json) {
    end_line(job);
    explain_end(job->run->leader, g);
    if (!s->quiet) report_generation(stderr, job->run->leader, g);
    return STATUS_OK;
  }
  json_t *result = report_generation_json(job->run->leader, prompt->text, prompt->bytes, g);
  if (result && json_array_append_new(job->results, result) == 0) return STATUS_OK;
  return status_set(STATUS_NO_MEMORY, "no memory for the JSON output");
}

static Status print_all(Job *job) {
  if (job->settings->json) {
    json_t *nodes = report_nodes_json(job->run->leader), *value = json_pack("{s:O, s:o}", "prompts", job->results, "nodes", nodes);
    return infer_run_print_json(value, job->run);
  }
  if (job->settings->quiet) return STATUS_OK;
  fputc('\n', stderr);
  report_nodes(stderr, job->run->leader);
  infer_split_report(stderr, &job->run->divided, job->run->leader);
  return STATUS_OK;
}

/* ---- the run ---- */

static Status go_on(Job *job, int index) {
  const InferSettings *s = job->settings;
  InferPrompt *prompt = &job->prompts.list[index];
  Generation generation = {.nodes = 0};
  GenerateOptions options = {.sampling = {.most = s->new_tokens,
                                          .temperature = s->temperature,
                                          .top_k = s->top_k,
                                          .top_p = s->top_p,
                                          .seed = (uint64_t)s->seed,
                                          .stream = (uint16_t)index},
                             .stops = (const char *const *)job->stops.list,
                             .stop_count = job->stops.count,
                             .write = s->json ? NULL : write_text,
                             .context = job};
  TRY(infer_prompts_complete(&job->prompts, prompt));
  if (s->echo && !s->json) write_text(job, prompt->text, prompt->bytes);
  Status status = generate_run(job->run->leader, &job->vocabulary, &options, &prompt->ids, &generation);
  if (status == STATUS_OK) status = finish_prompt(job, prompt, &generation);
  if (job->line_open) end_line(job);
  generate_release(&generation);
  return status;
}

static Status choose_context(const InferSettings *s, const ModelConfig *config, int64_t *most) {
  *most = s->context > 0 ? s->context : config->context;
  if (*most <= config->context) return STATUS_OK;
  return status_set(STATUS_BAD_USAGE, "--max-context %lld: the model takes at most %lld tokens", (long long)s->context,
                    (long long)config->context);
}

static Status run_job(Job *job) {
  const InferSettings *s = job->settings;
  InferRun *run = job->run;
  int64_t most;
  TRY(infer_stops_open(&job->stops, &s->stops));
  TRY(infer_run_load(s, run));
  TRY(infer_run_require(run, INFER_KIND_LANGUAGE));
  TRY(infer_run_require_options(s, run));
  TRY(choose_context(s, run->weights.config, &most));
  TRY(vocabulary_open(&job->vocabulary, run->directory, run->weights.config));
  TRY(infer_prompts_open(&job->prompts, s, &job->vocabulary, most));
  TRY(infer_run_start(s, run, &(LeaderOptions){.batch_most = 1, .tokens_most = most}));
  if (!(job->results = json_array())) return status_set(STATUS_NO_MEMORY, "no memory for results");
  for (int i = 0; i < job->prompts.count; i++) TRY(go_on(job, i));
  return print_all(job);
}

Status infer_text_generate(const InferSettings *s, InferRun *run, const char *const *arguments, int count) {
  Job job = {.settings = s, .run = run};
  (void)arguments, (void)count;
  Status status = run_job(&job);
  json_decref(job.results);
  infer_prompts_release(&job.prompts);
  infer_stops_release(&job.stops);
  vocabulary_close(&job.vocabulary);
  return status;
}
