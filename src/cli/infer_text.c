/* Prompts of the command line through the nodes to stdout, and the evaluation of a text. */
#include "base/array.h"
#include "base/clock.h"
#include "base/files.h"
#include "base/log.h"
#include "base/options.h"
#include "base/printable.h"
#include "base/text.h"
#include "base/utf8.h"
#include "cli/cli.h"
#include "cli/infer_run.h"
#include "cli/perplexity_report.h"
#include "data/text/text_perplexity.h"
#include "data/tokenizer/tokenizer.h"
#include "infer/evaluate.h"
#include "infer/report.h"
#include "infer/text_stream.h"
#include "infer/vocabulary.h"
#include "nn/json_build.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- Where a text ends ---- */

/* The stop strings of a command line, where \n, \t and \\ stand for a line end, a tab and a backslash. */
typedef struct InferStops {
  char *list[OPTION_TEXTS_MAX]; /* owned */
  int count;
} InferStops;

/* BAD_USAGE: an empty one, or another letter behind a backslash. */
static Status add_stop(InferStops *stops, const char *given) {
  static const char letters[] = "nt\\", meanings[] = "\n\t\\";
  char *out = malloc(strlen(given) + 1);
  if (!out) return status_no_memory(NULL, "a stop string");
  stops->list[stops->count++] = out;
  if (!*given) return status_set(STATUS_BAD_USAGE, "--stop: '' is not accepted; give a text that is not empty");
  for (const char *at = given; *at; at++) {
    const char *letter = *at == '\\' && at[1] ? strchr(letters, at[1]) : NULL;
    if (*at == '\\' && !letter)
      return status_set(STATUS_BAD_USAGE, "--stop: '%s' is not accepted; behind a backslash give n (line end), t (tab) or a backslash",
                        given);
    *out++ = letter ? meanings[letter - letters] : *at;
    at += letter != NULL;
  }
  *out = 0;
  return STATUS_OK;
}

/* ---- Prompts ---- */

/* The prompts of a command line as ids: all are read and measured before anything is started, but for standard input, which is read when
 * its turn comes. */

typedef struct Prompt {
  char name[256]; /* for messages: "the prompt", "prompt 2", a file */
  char *owned;    /* the text of a file */
  const char *text;
  size_t bytes;
  TokenList ids;
  bool late; /* standard input, not read yet */
} Prompt;

typedef struct Prompts {
  const Vocabulary *vocabulary;
  int64_t max;  /* tokens that there is room for */
  bool special; /* texts of special tokens become those */
  Prompt list[OPTION_TEXTS_MAX + 1];
  int count;
} Prompts;

static Status encode(const Prompts *prompts, Prompt *prompt) {
  const char *nul = memchr(prompt->text, 0, prompt->bytes);
  if (nul) return status_set(STATUS_BAD_FILE, "%s: a NUL byte at offset %zu; a prompt is text", prompt->name, (size_t)(nul - prompt->text));
  Status status = vocabulary_prompt(prompts->vocabulary, prompt->text, prompt->bytes, prompts->special, &prompt->ids);
  if (status != STATUS_OK) return status_wrap(status, "%s", prompt->name);
  if ((int64_t)prompt->ids.count <= prompts->max) return STATUS_OK;
  return status_set(STATUS_BAD_VALUE, "%s has %zu tokens, but the context has room for %lld", prompt->name, prompt->ids.count,
                    (long long)prompts->max);
}

/* A prompt that was read from a file. */
static Status encode_owned(Prompts *prompts, Prompt *prompt) {
  const size_t mark = utf8_mark(prompt->owned, prompt->bytes);
  prompt->text = prompt->owned + mark;
  prompt->bytes -= mark;
  return encode(prompts, prompt);
}

/* In the order --prompt..., --prompt-file. A prompt of more than `max` tokens is BAD_VALUE, as is one that is no text; both are named. */
static Status open_prompts(Prompts *prompts, const InferSettings *s, const Vocabulary *vocabulary, int64_t max) {
  *prompts = (Prompts){.vocabulary = vocabulary, .max = max, .special = s->special};
  for (int i = 0; i < s->prompts.count; i++) {
    Prompt *prompt = &prompts->list[prompts->count++];
    prompt->text = s->prompts.list[i];
    prompt->bytes = strlen(prompt->text);
    snprintf(prompt->name, sizeof prompt->name, s->prompts.count == 1 ? "the prompt" : "prompt %d", i + 1);
    TRY(encode(prompts, prompt));
  }
  if (!s->prompt_file) return STATUS_OK;
  Prompt *prompt = &prompts->list[prompts->count++];
  prompt->late = strcmp(s->prompt_file, "-") == 0;
  snprintf(prompt->name, sizeof prompt->name, "%s", prompt->late ? "standard input" : s->prompt_file);
  if (prompt->late) return STATUS_OK;
  TRY(files_read(s->prompt_file, INFER_TEXT_BYTES, &prompt->owned, &prompt->bytes));
  return encode_owned(prompts, prompt);
}

/* ---- Sampling ---- */

/* What the options say of sampling. */
static Status read_sampling(const InferSettings *s, int64_t vocabulary, Sampling *sampling) {
  *sampling = (Sampling){.max = s->new_tokens,
                         .temperature = s->temperature,
                         .top_k = s->top_k,
                         .top_p = s->top_p,
                         .min_p = s->min_p,
                         .repetition_penalty = s->repetition_penalty,
                         .frequency_penalty = s->frequency_penalty,
                         .presence_penalty = s->presence_penalty,
                         .seed = (uint64_t)s->seed};
  if (s->biases.count > SAMPLING_BIASES)
    return status_set(STATUS_BAD_USAGE, "--logit-bias: given %d times; at most %d are taken", s->biases.count, SAMPLING_BIASES);
  for (int i = 0; i < s->biases.count; i++) {
    char *at, *end = NULL;
    errno = 0;
    const long long id = strtoll(s->biases.list[i], &at, 10);
    const double add = at > s->biases.list[i] && *at == '=' ? strtod(at + 1, &end) : 0;
    if (errno || end == NULL || end == at + 1 || *end || !(fabs(add) <= 100) || id < 0 || id >= vocabulary)
      return status_set(STATUS_BAD_USAGE,
                        "--logit-bias: '%s' is not accepted; give ID=BIAS with an id from 0 to %lld and a bias from -100 to 100",
                        s->biases.list[i], (long long)vocabulary - 1);
    sampling->bias[sampling->biases++] = (SamplingBias){(int32_t)id, (float)add};
  }
  return STATUS_OK;
}

/* ---- New tokens: from the leader to the stream and its stop strings ---- */

typedef struct GenerateOptions {
  Sampling sampling;        /* vocabulary and ends are set by run_prompt */
  const char *const *stops; /* [stop_count] */
  int stop_count;
  TextStreamWrite *write; /* receives the new text as it is generated; NULL: none */
  void *context;
} GenerateOptions;

#define GENERATE_ENDS(X)                                                                                                                   \
  X(LENGTH, "length")   /* the maximum number of tokens */                                                                                 \
  X(END, "end")         /* an end token was generated */                                                                                   \
  X(STOP, "stop")       /* a stop string was generated */                                                                                  \
  X(CONTEXT, "context") /* the context is full */

typedef enum GenerateEnd {
#define GENERATE_ENUM(name, text) GENERATE_##name,
  GENERATE_ENDS(GENERATE_ENUM)
#undef GENERATE_ENUM
} GenerateEnd;

/* Memory of the node that decodes, in bytes. */
typedef struct GenerateMemory {
  int64_t weights;    /* mapped and shared by all nodes */
  int64_t codebooks;  /* shared */
  int64_t tables;     /* of keys and values of codewords; shared */
  int64_t cache_rows; /* keys and values in full */
  int64_t cache_codes;
  int64_t cache_full; /* what the same tokens would take in full */
  int64_t buffers;    /* peak of the computation, and buffers of codes, requests and answers */
} GenerateMemory;

typedef struct Generation {
  int64_t prompt_tokens;
  int nodes;     /* that took part */
  int decoder;   /* the one that decoded */
  TokenList ids; /* new ones */
  char *text;    /* [bytes] and a NUL: what the stream has written */
  size_t bytes, capacity;
  double first_seconds; /* from the request to the first token */
  double seconds;       /* from the first token to the last, on the node that made them: they may come together */
  double rate;          /* tokens a second after the first one; 0: there was no other */
  GenerateEnd end;
  int64_t bytes_sent; /* by all nodes together */
  GenerateMemory memory;
} Generation;

typedef struct Run {
  Leader *leader;
  const Vocabulary *vocabulary;
  const GenerateOptions *options;
  Generation *generation;
  TextStream stream;
  bool first; /* only begin-of-text tokens precede the next token */
  Status status;
} Run;

static void collect_text(void *context, const char *text, size_t bytes) {
  Run *run = context;
  Generation *g = run->generation;
  Status status = ARRAY_RESERVE(g->text, g->bytes, bytes + 1, g->capacity, "text");
  if (status != STATUS_OK) {
    run->status = status;
    return;
  }
  memcpy(g->text + g->bytes, text, bytes);
  g->text[g->bytes += bytes] = 0;
  if (run->options->write && bytes > 0) run->options->write(run->options->context, text, bytes);
}

static bool is_end(const Vocabulary *vocabulary, int32_t id) {
  for (int i = 0; i < vocabulary->ends; i++) {
    if (vocabulary->end[i] == id) return true;
  }
  return false;
}

static Status take_token(Run *run, int32_t id) {
  TRY(token_list_add(&run->generation->ids, id));
  if (is_end(run->vocabulary, id)) return STATUS_OK;
  TRY(vocabulary_write(run->vocabulary, id, run->first, &run->stream));
  run->first = false;
  return run->status;
}

static Status take_tokens(Run *run, double start) {
  Generation *g = run->generation;
  for (bool more = true, told = false; more;) {
    int32_t id;
    TRY(leader_text_next(run->leader, &id, &more));
    if (!more || told) continue; /* tokens that were in transit when the stop string came */
    if (g->ids.count == 0) g->first_seconds = clock_now() - start;
    TRY(take_token(run, id));
    told = run->stream.stopped;
    if (told) TRY(leader_text_stop(run->leader));
  }
  text_stream_finish(&run->stream);
  return run->status;
}

static void sum_up(Generation *g, const Weights *weights, const LeaderAnswer *answer, int nodes) {
  for (int d = 0; d < nodes; d++) {
    g->bytes_sent += (int64_t)answer->nodes[d].bytes_sent;
    if (answer->counts[d] == 0) continue; /* it is gone, or the prompt is too short for it */
    g->nodes++;
    g->decoder = d;
  }
  const RequestDecoding *decoding = &answer->decoding[g->decoder];
  g->seconds = decoding->seconds;
  g->rate = decoding->tokens > 1 && g->seconds > 0 ? (double)(decoding->tokens - 1) / g->seconds : 0;
  const ModelConfig *config = weights->config;
  const ParamSet *params = model_params(weights->model);
  int64_t bytes = params->packed_bytes + params->shadow_total * (int64_t)sizeof *params->shadows + lowbit_weights_all_bytes(weights->model);
  KvShape full = {
      .blocks = config->blocks,
      .width = config_kv_width(config),
  };
  full.number_bytes = (int64_t)narrow_kind_bytes(weights->cache_kind);
  full.tokens = full.local = g->prompt_tokens + ((int64_t)decoding->tokens > 0 ? (int64_t)decoding->tokens - 1 : 0);
  g->memory = (GenerateMemory){.weights = bytes,
                               .codebooks = (int64_t)weights->codeword_bytes,
                               .tables = (int64_t)kv_tables_bytes(weights->keys),
                               .cache_rows = (int64_t)decoding->row_bytes,
                               .cache_codes = (int64_t)decoding->code_bytes,
                               .cache_full = kv_cache_predict(&full),
                               .buffers = (int64_t)decoding->buffer_bytes};
}

static Status run_prompt(Run *run, const TokenList *prompt) {
  Leader *leader = run->leader;
  Sampling sampling = run->options->sampling;
  LeaderAnswer answer;
  vocabulary_sampling(run->vocabulary, &sampling);
  if (sampling.max > leader_tokens_max(leader)) sampling.max = leader_tokens_max(leader);
  double start = clock_now();
  TRY(leader_text_prompt(leader, prompt->ids, (int64_t)prompt->count, &sampling));
  TRY(take_tokens(run, start));
  TRY(leader_collect(leader, &answer));
  const TokenList *ids = &run->generation->ids;
  if (run->stream.stopped)
    run->generation->end = GENERATE_STOP;
  else if (ids->count && is_end(run->vocabulary, ids->ids[ids->count - 1]))
    run->generation->end = GENERATE_END;
  else
    run->generation->end = (int64_t)ids->count >= run->options->sampling.max ? GENERATE_LENGTH : GENERATE_CONTEXT;
  sum_up(run->generation, leader_weights(leader), &answer, leader_nodes(leader));
  return STATUS_OK;
}

/* prompt: its ids, at least one; BAD_VALUE if there are more than the cluster was made for. Release *generation also after a failure. */
static Status generate(Leader *leader, const Vocabulary *vocabulary, const GenerateOptions *options, const TokenList *prompt,
                       Generation *generation) {
  *generation = (Generation){.prompt_tokens = (int64_t)prompt->count};
  if ((int64_t)prompt->count > leader_tokens_max(leader))
    return status_set(STATUS_BAD_VALUE, "the prompt has %zu tokens, but the context has room for %lld", prompt->count,
                      (long long)leader_tokens_max(leader));
  Run run = {.leader = leader, .vocabulary = vocabulary, .options = options, .generation = generation, .first = true};
  for (size_t i = 0; i < prompt->count; i++) run.first = run.first && prompt->ids[i] == vocabulary->begin;
  text_stream_init(&run.stream, options->stops, options->stop_count, collect_text, &run);
  collect_text(&run, "", 0); /* there is always a text */
  Status status = run.status == STATUS_OK ? run_prompt(&run, prompt) : run.status;
  text_stream_release(&run.stream);
  return status;
}

/* ---- The command ---- */

typedef struct Job {
  const InferSettings *settings;
  InferRun *run;
  Vocabulary vocabulary;
  Prompts prompts;
  InferStops stops;
  Sampling sampling;
  json_t *results; /* with --json */
  bool line_open;  /* text stands on the last line of stdout, which no end follows yet */
} Job;

/* ---- output ---- */

static void write_text(void *context, const char *text, size_t bytes) {
  Job *job = context;
  cli_write_text(text, bytes);
  job->line_open |= bytes > 0;
}

/* Before anything on stderr, which on a terminal wipes the line it comes to. */
static void end_line(Job *job) {
  putchar('\n');
  cli_flush_text();
  job->line_open = false;
}

/* Writes text to `out`, or, where that is NULL, returns the same as a fresh JSON value: NULL when out of memory. */
static json_t *report_generation(FILE *out, const Leader *leader, const char *prompt, size_t bytes, const Generation *g) {
  static const char *const ends[] = {
#define REPORT_END(name, text) text,
      GENERATE_ENDS(REPORT_END)
#undef REPORT_END
  };
  const GenerateMemory *m = &g->memory;
  if (!out) {
    json_t *ids = json_array();
    json_t *memory =
        json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "weights_shared", (json_int_t)m->weights, "codebooks_shared",
                  (json_int_t)m->codebooks, "tables_shared", (json_int_t)m->tables, "cache_rows", (json_int_t)m->cache_rows, "cache_codes",
                  (json_int_t)m->cache_codes, "cache_full", (json_int_t)m->cache_full, "buffers", (json_int_t)m->buffers);
    for (size_t i = 0; i < g->ids.count; i++) json_array_append_new(ids, json_integer(g->ids.ids[i]));
    return json_pack("{s:o, s:o, s:o, s:I, s:s, s:i, s:i, s:i, s:f, s:f, s:f, s:I, s:o}", "prompt", json_build_text(prompt, bytes), "text",
                     json_build_text(g->text, g->bytes), "ids", ids, "prompt_tokens", (json_int_t)g->prompt_tokens, "end", ends[g->end],
                     "nodes", leader_nodes(leader), "nodes_used", g->nodes, "decoder", g->decoder, "first_token_ms", 1e3 * g->first_seconds,
                     "decode_ms", 1e3 * g->seconds, "tokens_per_second", g->rate, "bytes_sent", (json_int_t)g->bytes_sent, "memory",
                     memory);
  }
  const struct {
    const char *what;
    int64_t bytes;
  } rows[] = {{"weights (shared by all nodes)", m->weights},        {"codebooks (shared)", m->codebooks},
              {"tables of keys and values (shared)", m->tables},    {"keys and values in full", m->cache_rows},
              {"codes of the other nodes' tokens", m->cache_codes}, {"working memory, messages, codes", m->buffers}};
  fprintf(out, "\n%lld token%s on %d of %d node%s, first new one after %.1f ms\n", (long long)g->prompt_tokens,
          text_plural(g->prompt_tokens), g->nodes, leader_nodes(leader), text_plural(leader_nodes(leader)), 1e3 * g->first_seconds);
  fprintf(out, "%zu new token%s on node %d, %.1f tokens/s; ended by: %s\n", g->ids.count, text_plural((int64_t)g->ids.count), g->decoder,
          g->rate, ends[g->end]);
  if (g->nodes > 1) fprintf(out, "sent %lld bytes between the nodes\n", (long long)g->bytes_sent);
  fprintf(out, "memory of node %d:\n", g->decoder);
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) fprintf(out, "  %-34s %12lld bytes\n", rows[i].what, (long long)rows[i].bytes);
  fprintf(out, "  %-34s %12lld bytes; this one takes %.1f%%\n", "a cache in full would take", (long long)m->cache_full,
          m->cache_full > 0 ? 100 * ((double)(m->cache_rows + m->cache_codes) / (double)m->cache_full) : 0);
  return NULL;
}

static Status finish_prompt(Job *job, const Prompt *prompt, const Generation *g) {
  const InferSettings *s = job->settings;
  const Leader *leader = job->run->leader;
  if (!s->json) {
    const int here = node_setup_count(leader_setup(leader));
    end_line(job);
    if (g->end == GENERATE_CONTEXT)
      log_info("the context of %lld tokens is full: the text ends here", (long long)leader_tokens_max(leader));
    if (g->nodes < here && g->prompt_tokens < here && strategy_facts(leader_setup(leader)->strategy)->divides_tokens)
      log_info("the prompt has %lld token%s, so only %d of %d nodes took part", (long long)g->prompt_tokens, text_plural(g->prompt_tokens),
               g->nodes, here);
    if (!s->quiet) report_generation(stderr, job->run->leader, NULL, 0, g);
    return STATUS_OK;
  }
  json_t *result = report_generation(NULL, job->run->leader, prompt->text, prompt->bytes, g);
  if (result && json_array_append_new(job->results, result) == 0) return STATUS_OK;
  return status_no_memory(NULL, "the JSON output");
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
  Prompt *prompt = &job->prompts.list[index];
  Generation generation = {.nodes = 0};
  GenerateOptions options = {.sampling = job->sampling,
                             .stops = (const char *const *)job->stops.list,
                             .stop_count = job->stops.count,
                             .write = s->json ? NULL : write_text,
                             .context = job};
  options.sampling.stream = (uint16_t)index;
  if (prompt->late) {
    prompt->late = false;
    TRY(infer_run_read_standard_input(&prompt->owned, &prompt->bytes));
    TRY(encode_owned(&job->prompts, prompt));
  }
  if (s->echo && !s->json) write_text(job, prompt->text, prompt->bytes);
  Status status = generate(job->run->leader, &job->vocabulary, &options, &prompt->ids, &generation);
  if (status == STATUS_OK) status = finish_prompt(job, prompt, &generation);
  if (job->line_open) end_line(job);
  token_list_release(&generation.ids);
  free(generation.text);
  return status;
}

static Status run_job(Job *job) {
  const InferSettings *s = job->settings;
  InferRun *run = job->run;
  int64_t max;
  for (int i = 0; i < s->stops.count; i++) TRY(add_stop(&job->stops, s->stops.list[i]));
  TRY(infer_run_load(s, run));
  TRY(infer_run_require(run, INFER_KIND_LANGUAGE));
  TRY(infer_run_require_options(s, run));
  TRY(infer_settings_context("--max-context", s->context, run->weights.config, &max));
  TRY(read_sampling(s, run->weights.config->vocabulary, &job->sampling));
  TRY(vocabulary_open(&job->vocabulary, run->directory, run->weights.config));
  TRY(open_prompts(&job->prompts, s, &job->vocabulary, max));
  TRY(infer_run_start(s, run, &(LeaderOptions){.batch_max = 1, .tokens_max = max}));
  if (!(job->results = json_array())) return status_no_memory(NULL, "results");
  for (int i = 0; i < job->prompts.count; i++) TRY(go_on(job, i));
  return print_all(job);
}

Status infer_text_generate(const InferSettings *s, InferRun *run, const char *const *arguments, int count) {
  Job job = {.settings = s, .run = run};
  (void)arguments, (void)count;
  Status status = run_job(&job);
  json_decref(job.results);
  for (int i = 0; i < job.prompts.count; i++) {
    token_list_release(&job.prompts.list[i].ids);
    free(job.prompts.list[i].owned);
  }
  for (int i = 0; i < job.stops.count; i++) free(job.stops.list[i]);
  vocabulary_close(&job.vocabulary);
  return status;
}

/* ---- Evaluation of a text ---- */

/* The text is tokenised before the nodes are started: what a text costs in memory is theirs no concern. */

enum { REQUEST_TOKENS = 4096 }; /* of all windows of a request: enough for large products, few enough for two requests at once */

typedef struct Text {
  Vocabulary vocabulary;
  char *about;
  TokenCache *cache;   /* or, for PERPLEXITY_LM_EVAL, */
  RollingText rolling; /* documents by themselves */
  TextWindows windows;
} Text;

static Status eval_choose_context(const InferSettings *s, const ModelConfig *config, int64_t *context) {
  if (s->validation_part > 0)
    return status_set(STATUS_BAD_USAGE, "--validation-part is for images and labelled texts; of a text there is --eval-part valid");
  TRY(infer_settings_context("--context", s->window, config, context));
  if (s->stride > *context)
    return status_set(STATUS_BAD_USAGE, "--stride %lld is longer than the context of %lld tokens: some tokens would not be seen",
                      (long long)s->stride, (long long)*context);
  if (s->stride > 0 && s->perplexity == PERPLEXITY_LM_EVAL)
    return status_set(STATUS_BAD_USAGE, "--stride cannot be combined with --perplexity lm-eval, whose windows follow from --context");
  return STATUS_OK;
}

static Status open_windows(const InferSettings *s, const ModelConfig *config, Text *text) {
  TextSource *source;
  int64_t context;
  TRY(eval_choose_context(s, config, &context));
  const TextPart part = s->part != INFER_PART_AUTO ? (TextPart)s->part : text_source_eval_part(s->dataset, s->data_dir);
  TRY(text_source_open(&source, s->dataset, s->data_dir, part));
  Status status;
  if (s->perplexity == PERPLEXITY_LM_EVAL) {
    status = rolling_text_read(&text->rolling, source, text->vocabulary.tokenizer, context);
    if (status == STATUS_OK) text_windows_roll(&text->windows, &text->rolling);
  } else {
    TextEncoder encoder;
    status = tokenizer_encoder(&encoder, text->vocabulary.tokenizer);
    if (status == STATUS_OK) status = token_cache_open(&text->cache, source, &encoder, &(TokenCacheOptions){.quiet = s->quiet});
    if (status == STATUS_OK) status = text_windows_init(&text->windows, text->cache, context, s->stride > 0 ? s->stride : context);
  }
  if (status == STATUS_OK && !(text->about = strdup(text_source_describe(source)))) status = status_no_memory(NULL, "a name");
  text_source_close(source);
  if (status != STATUS_OK) return status_wrap(status, "--dataset %s", s->dataset);
  if (s->perplexity == PERPLEXITY_AUTO || s->samples == 0) return STATUS_OK;
  return perplexity_check_whole((PerplexityUnit)s->perplexity, &text->windows, s->samples, "--samples");
}

/* What the evaluation comes to under --perplexity. Where tokens are unscored only what is divided by tokens is known. */
static Perplexity apply_convention(const InferSettings *s, const Text *text, const TextEvaluation *evaluation) {
  const PerplexityUnit unit = (PerplexityUnit)s->perplexity;
  const double nats = evaluation->unscored == 0 || unit == PERPLEXITY_TOKEN ? evaluation->score.loss : NAN;
  return perplexity_of(unit, &text->windows, nats, (int64_t)evaluation->score.counted, evaluation->bytes);
}

/* Writes text to `out`, or, where that is NULL, returns the same as a fresh JSON value: NULL when out of memory. */
static json_t *report_text_evaluation(FILE *out, const Leader *leader, const TextEvaluation *e) {
  const ReportSent sent = report_sent(leader, e->windows);
  const double right = e->score.counted > 0 ? (double)e->score.correct / (double)e->score.counted : 0;
  const double rate = e->seconds > 0 ? (double)e->score.counted / e->seconds : 0;
  if (!out)
    return json_pack("{s:I, s:I, s:I, s:I, s:o, s:o, s:o, s:I, s:f, s:f, s:f, s:I, s:f, s:f, s:f, s:o}", "windows", (json_int_t)e->windows,
                     "context", (json_int_t)e->context, "stride", (json_int_t)e->stride, "tokens", (json_int_t)e->score.counted, "nats",
                     json_build_number(e->score.loss), "perplexity", json_build_number(e->perplexity), "bits_per_byte",
                     json_build_number(e->bits_per_byte), "bytes", (json_int_t)e->bytes, "accuracy", right, "seconds", e->seconds,
                     "tokens_per_second", rate, "bytes_sent", (json_int_t)sent.bytes, "bytes_per_token_block_receiver", sent.token_bytes,
                     "coded_bits_per_token_block_receiver", sent.coded_bits, "packed_bits_per_token_block_receiver", sent.packed_bits,
                     "nodes", report_nodes_json(leader));
  const RequestScore *score = &e->score;
  int nodes = leader_nodes(leader);
  fprintf(out, "%lld window%s of %lld tokens, each %lld further, on %d node%s in %.1f s, %.0f tokens/s\n", (long long)e->windows,
          text_plural(e->windows), (long long)e->context, (long long)e->stride, nodes, text_plural(nodes), e->seconds, rate);
  fprintf(out, "perplexity %.4f = exp(%.2f nats / %lld predicted tokens)\n", e->perplexity, score->loss, (long long)score->counted);
  if (e->unscored > 0)
    fprintf(out, "%lld tokens have no loss, since their device failed: no figures by bytes or words   next token right %.2f%%\n",
            (long long)e->unscored, 100 * right);
  else
    fprintf(out, "%.4f bits per byte of the %lld bytes behind these tokens   next token right %.2f%%\n", e->bits_per_byte,
            (long long)e->bytes, 100 * right);
  if (sent.codes)
    fprintf(out, "sent %llu bytes by all nodes together; %g bytes per token, block, codebook set and receiver\n",
            (unsigned long long)sent.bytes, sent.token_bytes);
  report_bits(out, &sent);
  return NULL;
}

static Status print(const InferSettings *s, const InferRun *run, const Text *text, const TextEvaluation *evaluation) {
  bool convention = s->perplexity != PERPLEXITY_AUTO;
  Perplexity measured = {0};
  if (convention) measured = apply_convention(s, text, evaluation);
  if (s->json) {
    json_t *value = report_text_evaluation(NULL, run->leader, evaluation);
    if (value) json_object_set_new(value, "dataset", json_build_string(s->dataset));
    if (value && convention) perplexity_report_json(&measured, value);
    report_traffic_json(value, run->leader, evaluation->windows, true);
    return infer_run_print_json(value, run);
  }
  printf("%s\n", printable(text->about));
  report_text_evaluation(stdout, run->leader, evaluation);
  if (convention) {
    char divided[128];
    snprintf(divided, sizeof divided, ", divided by %s", perplexity_counts(measured.unit));
    perplexity_report_print(&measured, "", divided);
  }
  report_traffic(stdout, run->leader, evaluation->windows, true);
  infer_run_report(s, run);
  return STATUS_OK;
}

static Status evaluate(const InferSettings *s, InferRun *run, Text *text) {
  TextEvaluation evaluation;
  TRY(vocabulary_open(&text->vocabulary, run->directory, run->weights.config));
  TRY(open_windows(s, run->weights.config, text));
  int64_t batch = s->batch > 0 ? s->batch : REQUEST_TOKENS / text->windows.context;
  if (batch > text->windows.count) batch = text->windows.count;
  if (s->samples > 0 && batch > s->samples) batch = s->samples;
  if (batch < 1) batch = 1;
  run->divided.all_rows = true;
  TRY(infer_run_start(s, run, &(LeaderOptions){.batch_max = batch, .tokens_max = text->windows.context}));
  TRY(evaluate_text_run(run->leader, &text->vocabulary, &text->windows, s->samples, batch, s->quiet, run->rows.stream, &evaluation));
  return print(s, run, text, &evaluation);
}

Status infer_text_eval(const InferSettings *s, InferRun *run, const char *const *arguments, int count) {
  Text text = {.about = NULL};
  (void)arguments, (void)count;
  TRY(infer_run_load(s, run));
  TRY(infer_run_require(run, INFER_KIND_LANGUAGE));
  TRY(infer_run_require_options(s, run));
  Status status = evaluate(s, run, &text);
  token_cache_close(text.cache);
  rolling_text_release(&text.rolling);
  free(text.about);
  vocabulary_close(&text.vocabulary);
  return status;
}
