/* Tokens from the leader to the stream and its stop strings: see generate.h. */
#include "infer/generate.h"
#include "base/array.h"
#include "base/clock.h"
#include <stdlib.h>
#include <string.h>

typedef struct Run {
  Leader *leader;
  const Vocabulary *vocabulary;
  const GenerateOptions *options;
  Generation *generation;
  TextStream stream;
  bool first; /* only begin-of-text tokens precede the next token */
  Status status;
} Run;

/* ---- text ---- */

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
  char *owned;
  const char *text;
  size_t bytes;
  TRY(token_list_add(&run->generation->ids, id));
  if (is_end(run->vocabulary, id)) return STATUS_OK;
  TRY(vocabulary_piece(run->vocabulary, id, run->first, &owned, &text, &bytes));
  run->first = false;
  Status status = text_stream_add(&run->stream, text, bytes);
  free(owned);
  return status == STATUS_OK ? run->status : status;
}

/* ---- tokens ---- */

static Status take_tokens(Run *run, double start) {
  Generation *g = run->generation;
  double first = start;
  for (bool more = true, told = false; more;) {
    int32_t id;
    TRY(leader_text_next(run->leader, &id, &more));
    if (!more || told) continue; /* tokens that were in transit when the stop string came */
    double now = clock_now();
    if (g->ids.count == 0) g->first_seconds = (first = now) - start;
    g->seconds = now - first;
    TRY(take_token(run, id));
    told = run->stream.stopped;
    if (told) TRY(leader_text_stop(run->leader));
  }
  text_stream_finish(&run->stream);
  return run->status;
}

/* ---- nodes and memory ---- */

static void sum_up(Generation *g, const Weights *weights, const LeaderAnswer *answer, int nodes) {
  for (int d = 0; d < nodes; d++) {
    g->bytes_sent += (int64_t)answer->nodes[d].bytes_sent;
    if (answer->counts[d] == 0) continue; /* it is gone, or the prompt is too short for it */
    g->nodes++;
    g->decoder = d;
  }
  const RequestDecoding *decoding = &answer->decoding[g->decoder];
  const ModelConfig *config = weights->config;
  int64_t bytes = param_packed_bytes(model_params(weights->model)) + lowbit_weights_all_bytes(weights->model);
  KvShape full = {
      .blocks = config->blocks,
      .width = config->kv_heads * (config->width / config->heads),
  };
  full.number_bytes = weights->cache_kind == NARROW_NONE ? (int64_t)sizeof(real) : (int64_t)sizeof(uint16_t);
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
  sampling.vocabulary = run->vocabulary->count;
  sampling.ends = run->vocabulary->ends;
  memcpy(sampling.end, run->vocabulary->end, sizeof sampling.end);
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

Status generate_run(Leader *leader, const Vocabulary *vocabulary, const GenerateOptions *options, const TokenList *prompt,
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

void generate_release(Generation *generation) {
  token_list_release(&generation->ids);
  free(generation->text);
  *generation = (Generation){.nodes = 0};
}
