/* Prompts on the command line or in files, through the nodes to stdout: see infer_text.h. */
#include "cli/infer_text.h"
#include "base/files.h"
#include "base/log.h"
#include "infer/generate.h"
#include "infer/report.h"
#include <stdlib.h>
#include <string.h>

enum { PROMPT_BYTES = 64 << 20 };

/* ---- prompts ---- */

typedef struct Prompt {
  char *owned; /* of a file */
  const char *text;
  size_t bytes;
} Prompt;

static Status read_standard_input(char **text, size_t *bytes) {
  size_t capacity = 1 << 16;
  char *grown = malloc(capacity);
  for (*text = grown, *bytes = 0; grown; grown = *text) {
    size_t got = fread(*text + *bytes, 1, capacity - *bytes, stdin);
    *bytes += got;
    if (got == 0) break;
    if (*bytes < capacity) continue;
    if (capacity >= PROMPT_BYTES) return status_set(STATUS_BAD_VALUE, "standard input: a prompt of more than %d MB", PROMPT_BYTES >> 20);
    grown = realloc(*text, capacity *= 2);
    if (!grown) break;
    *text = grown;
  }
  if (!grown) return status_set(STATUS_NO_MEMORY, "no memory for a prompt");
  return ferror(stdin) ? status_set(STATUS_IO, "standard input cannot be read") : STATUS_OK;
}

static Status read_file(const char *path, Prompt *prompt) {
  bool standard = strcmp(path, "-") == 0;
  TRY(standard ? read_standard_input(&prompt->owned, &prompt->bytes) : files_read(path, PROMPT_BYTES, &prompt->owned, &prompt->bytes));
  prompt->text = prompt->owned;
  const char *nul = memchr(prompt->text, 0, prompt->bytes);
  if (!nul) return STATUS_OK;
  return status_set(STATUS_BAD_FILE, "%s: a NUL byte at offset %zu; a prompt is text", standard ? "standard input" : path,
                    (size_t)(nul - prompt->text));
}

/* ---- output ---- */

static void write_text(void *context, const char *text, size_t bytes) {
  (void)context;
  fwrite(text, 1, bytes, stdout);
  fflush(stdout);
}

static void explain_end(const Leader *leader, const Generation *g) {
  if (g->end == GENERATE_CONTEXT) log_info("the context of %lld tokens is full: the text ends here", (long long)leader_tokens_most(leader));
  if (g->nodes < leader_nodes(leader))
    log_info("%lld token%s for %d nodes: only the first %d took part", (long long)g->prompt_tokens, g->prompt_tokens == 1 ? "" : "s",
             leader_nodes(leader), g->nodes);
}

typedef struct Job {
  const InferSettings *settings;
  InferRun *run;
  Vocabulary vocabulary;
  json_t *results; /* with --json */
} Job;

static Status finish_prompt(Job *job, const Prompt *prompt, const Generation *g) {
  const InferSettings *s = job->settings;
  if (!s->json) {
    putchar('\n');
    explain_end(job->run->leader, g);
    if (!s->quiet) report_generation(stdout, job->run->leader, g);
    return STATUS_OK;
  }
  json_t *result = report_generation_json(job->run->leader, prompt->text, prompt->bytes, g);
  if (result && json_array_append_new(job->results, result) == 0) return STATUS_OK;
  return status_set(STATUS_NO_MEMORY, "no memory for the JSON output");
}

/* ---- the run ---- */

static Status go_on(Job *job, const Prompt *prompt) {
  const InferSettings *s = job->settings;
  Generation generation = {.nodes = 0};
  TokenList ids = {0};
  GenerateOptions options = {
      .sampling = {.most = s->new_tokens, .temperature = s->temperature, .top_k = s->top_k, .top_p = s->top_p, .seed = (uint64_t)s->seed},
      .stops = s->stops.list,
      .stop_count = s->stops.count,
      .write = s->json ? NULL : write_text};
  Status status = vocabulary_prompt(&job->vocabulary, prompt->text, prompt->bytes, &ids);
  if (status == STATUS_OK && s->echo && !s->json) write_text(NULL, prompt->text, prompt->bytes);
  if (status == STATUS_OK) status = generate_run(job->run->leader, &job->vocabulary, &options, &ids, prompt->bytes == 0, &generation);
  if (status == STATUS_OK) status = finish_prompt(job, prompt, &generation);
  generate_release(&generation);
  token_list_release(&ids);
  return status;
}

static Status go_on_from_all(Job *job) {
  const InferSettings *s = job->settings;
  Prompt prompt = {0};
  Status status = STATUS_OK;
  for (int i = 0; i < s->prompts.count && status == STATUS_OK; i++)
    status = go_on(job, &(Prompt){.text = s->prompts.list[i], .bytes = strlen(s->prompts.list[i])});
  if (status == STATUS_OK && s->prompt_file) {
    status = read_file(s->prompt_file, &prompt);
    if (status == STATUS_OK) status = go_on(job, &prompt);
    free(prompt.owned);
  }
  return status;
}

static Status print_all(Job *job) {
  if (job->settings->json) {
    json_t *nodes = report_nodes_json(job->run->leader), *value = json_pack("{s:O, s:o}", "prompts", job->results, "nodes", nodes);
    return infer_run_print_json(value, job->run);
  }
  if (job->settings->quiet) return STATUS_OK;
  putchar('\n');
  report_nodes(stdout, job->run->leader);
  return STATUS_OK;
}

Status infer_text_generate(const InferSettings *s, InferRun *run, const char *const *arguments, int count) {
  Job job = {.settings = s, .run = run};
  (void)arguments, (void)count;
  TRY(infer_run_load(s, run));
  TRY(infer_run_require_language(run, "go on from a prompt"));
  TRY(vocabulary_open(&job.vocabulary, run->directory, run->weights.config));
  job.results = json_array();
  Status status = job.results ? infer_run_start(s, run, &(LeaderOptions){.batch_most = 1, .tokens_most = s->context})
                              : status_set(STATUS_NO_MEMORY, "no memory for results");
  if (status == STATUS_OK) status = go_on_from_all(&job);
  if (status == STATUS_OK) status = print_all(&job);
  json_decref(job.results);
  vocabulary_close(&job.vocabulary);
  return status;
}
