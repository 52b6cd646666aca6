/* The table of options, their defaults, and what goes together. */
#include "cli/infer_settings.h"
#include "base/log.h"
#include "base/options.h"
#include "base/threads.h"
#include "cli/cli.h"
#include "cli/network_options.h"
#include "data/data_paths.h"
#include "data/text/text_perplexity.h"
#include "infer/classify.h"
#include "infer/cluster/leader.h"
#include "infer/cluster/setup_message.h"
#include "infer/sampler.h"
#include "infer/transport/packet.h"
#include "infer/weights.h"
#include "infer/wire.h"
#include "nn/kv_tables.h"
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- How codes travel ---- */

enum { INFER_LINK_ROWS = 32 /* at most */ };

int infer_settings_memory_rows(InferMemory *o, Option rows[INFER_MEMORY_ROWS]) {
  const Option table[INFER_MEMORY_ROWS] = {
      {OPTION_SIZE, "table-memory", 0, &o->tables, "SIZE", .help = "memory for keys and values of all codewords, e.g. 2G; 0: none"},
      {OPTION_CHOICE, "cache-type", 0, &o->cache_type, .choices = WEIGHTS_TYPES,
       .help = "data type of cached keys and values, and of codebooks where exact; auto: the checkpoint's"},
      {OPTION_CHOICE, "remote-cache", 0, &o->remote_cache, .choices = REMOTE_CACHES,
       .help = "what decoding caches of other devices' tokens: codes, or keys and values in full (faster, larger)"}};
  *o = (InferMemory){.tables = KV_TABLES_MEMORY};
  memcpy(rows, table, sizeof table);
  return INFER_MEMORY_ROWS;
}

/* Rows for a table of options, with headings, and the defaults in *options; returns how many. */
static int infer_link_options_rows(InferLinkOptions *o, Option rows[INFER_LINK_ROWS]) {
  *o = (InferLinkOptions){.network = {.bandwidth = -1, .latency = -1, .jitter = -1, .seed = 42}, .entropy = ENTROPY_AUTO};
  const Option exchange[] = {
      {OPTION_GROUP, .help = "Exchange between nodes:"},
      {OPTION_CHOICE, "transport", 0, &o->transport, .choices = "auto|tcp|udp", .removed = "mpi",
       .help = "TCP streams or sealed datagrams; auto: udp with --peers, else tcp"},
      {OPTION_CHOICE, "reliability", 0, &o->reliability, .choices = "auto|deadline|retransmit", .removed = "fec",
       .help = "lost datagrams: continue without them, or retransmit; auto: deadline"},
      {OPTION_TEXT, "deadline", 0, &o->deadline, "TIME", .help = "maximum wait for codes, e.g. 30ms; auto: as long as the sender is alive"},
      network_options_datagrams(&o->datagrams),
      {OPTION_INT, "parts", 0, &o->parts, "N", .min = 0, .max = MAX_PARTS,
       .help = "parts of a block whose codes are sent separately; 0: chosen by --split auto, else 1"},
      {OPTION_CHOICE, "entropy", 0, &o->entropy, .choices = "off|auto|on",
       .help = "entropy-code codes by the checkpoint's frequencies; auto: where that saves 5%"},
      {OPTION_INT, "mtu", 0, &o->mtu, "BYTES", .min = 0, .max = 9000,
       .help = "maximum datagram size with all headers; 0: the route's MTU"}};
  const Option network[] = {
      {OPTION_CHOICE, "loss-unit", 0, &o->loss_unit, .choices = "packet|token", .help = "what is lost: packets or single tokens"},
      {OPTION_TEXT, "trace", 0, &o->trace, "FILE", .help = "bandwidth trace: lines SECONDS MBIT, or markov:20-100mbit[:SECONDS]"}};
  Option *at = rows;
  memcpy(at, exchange, sizeof exchange);
  at += sizeof exchange / sizeof *exchange;
  at += infer_settings_memory_rows(&o->memory, at);
  *at++ = (Option){OPTION_GROUP, .help = "Simulated network (seeded):"};
  at += network_links_rows(&o->network, at);
  memcpy(at, network, sizeof network);
  at += sizeof network / sizeof *network;
  return (int)(at - rows);
}

/* ---- Strategies ---- */

Status infer_settings_check_decodes(const InferSettings *s) {
  const StrategyFacts *facts = strategy_facts((Strategy)s->strategy);
  if (facts->decodes) return STATUS_OK;
  return status_set(STATUS_BAD_USAGE,
                    "--strategy %s has no key-value cache and cannot continue a prompt: astra and single can; "
                    "`astra-infer eval` takes every strategy",
                    facts->name);
}

/* Of the command line by itself; BAD_USAGE names the options that do not go together, and what does. */
static Status infer_strategy_check(const InferSettings *s, const Option *options) {
  const StrategyFacts *facts = strategy_facts((Strategy)s->strategy);
  bool retains = s->strategy == STRATEGY_BP_AG || s->strategy == STRATEGY_BP_SP;
  if (options_given(options, "retained") && !retains) return status_set(STATUS_BAD_USAGE, "--retained is for --strategy bp-ag and bp-sp");
  if (s->split && !facts->divides_tokens)
    return status_set(STATUS_BAD_USAGE, "--split: --strategy %s divides no tokens; --nodes N says how many nodes there are", facts->name);
  return s->prompts.count > 0 || s->prompt_file ? infer_settings_check_decodes(s) : STATUS_OK;
}

Status infer_settings_check_parts(const InferSettings *s) {
  if (s->links.parts < 2) return STATUS_OK;
  return status_set(STATUS_BAD_USAGE, "--parts %lld: the blocks of a prompt are not computed in parts; those of images and of `eval` are",
                    (long long)s->links.parts);
}

/* ---- Texts ---- */

Status infer_settings_context(const char *option, int64_t wanted, const ModelConfig *config, int64_t *tokens) {
  *tokens = wanted > 0 ? wanted : config->context;
  if (*tokens <= config->context) return STATUS_OK;
  return status_set(STATUS_BAD_USAGE, "%s %lld: the model takes at most %lld tokens", option, (long long)wanted,
                    (long long)config->context);
}

/* ---- Datagrams ---- */

bool infer_settings_datagrams(const InferSettings *s) {
  /* Between devices a segment that a stream has lost holds up all behind it for longer than a request takes; whole rows bear no loss. */
  bool usual = s->peers && strategy_facts((Strategy)s->strategy)->sends_codes;
  return s->links.transport ? s->links.transport - 1 == TRANSPORT_UDP : usual;
}

static Status check_datagrams(const InferSettings *s, const Option *options) {
  static const char *const names[] = {"datagrams", "mtu"};
  for (size_t i = 0; i < sizeof names / sizeof *names && !infer_settings_datagrams(s); i++)
    if (options_given(options, names[i]))
      return status_set(STATUS_BAD_USAGE, "--%s is for --transport udp: here codes go in a stream", names[i]);
  return STATUS_OK;
}

/* ---- All options of astra-infer ---- */

enum {
  IMAGES = INFER_MAIN,
  TEXT = INFER_GENERATE,
  RUNS = INFER_MAIN | INFER_GENERATE | INFER_EVAL,
  ALL = RUNS | INFER_SELFTEST,
  SERVICES = INFER_SERVE | INFER_CHAT,
  CLUSTERS = RUNS | SERVICES, /* lead one */
  EVERY = ALL | SERVICES,
  KINDS_AT = 8, /* bits of the kinds of models that an option means something to; none: to all */
  OF_TEXTS = 1 << (KINDS_AT + INFER_KIND_TEXTS),
  OF_LANGUAGE = 1 << (KINDS_AT + INFER_KIND_LANGUAGE),
  OF_IMAGES = 1 << (KINDS_AT + INFER_KIND_IMAGES),
  OF_CLASSES = OF_TEXTS | OF_IMAGES
};

/* Taken by the commands `of`, and those of `generate` by the program itself. */
typedef struct Row {
  int of;
  Option option;
} Row;

/* The options of a command; of [MAX_OPTIONS] may be NULL. */
static void select_options(InferSettings *s, InferCommand command, Option *options, int *of) {
  const Row rows[] = {
      {EVERY, {OPTION_GROUP, .help = "What to run:"}},
      {ALL,
       {OPTION_TEXT, "checkpoint", 'c', &s->checkpoint, "DIR",
        .help = "directory or GGUF file of the model, or the name of an installed one (required)"}},
      {EVERY,
       {OPTION_CHOICE, "weights", 0, &s->weights, .choices = WEIGHTS_BITS,
        .help = "int8, int4: quantise matrices to 8 or 4 bits; file: as stored"}},
      {EVERY,
       {OPTION_CHOICE, "precision", 0, &s->precision, .choices = WEIGHTS_PRECISIONS,
        .help = "precision of products and activations; auto: bf16 where it is faster"}},
      {EVERY, {OPTION_TEXT, "backend", 0, &s->backend, "NAME", .help = CLI_BACKEND_HELP}},
      {EVERY,
       {OPTION_TEXT, "groups", 'g', &s->groups, "G",
        .help = "bit rate, of a checkpoint with several; auto: by the links' speed; default: largest number of groups"}},
      {IMAGES | TEXT, {OPTION_TEXTS, "prompt", 'p', &s->prompts, "TEXT", .help = "text to continue; may be repeated"}},
      {TEXT | OF_LANGUAGE,
       {OPTION_TEXT, "prompt-file", 0, &s->prompt_file, "FILE", .help = "read the prompt from a file; -: standard input"}},
      {TEXT | OF_LANGUAGE,
       {OPTION_FLAG, "special", 0, &s->special, .help = "texts of special tokens in a prompt, such as <|endoftext|>, become those tokens"}},
      {IMAGES | OF_TEXTS, {OPTION_TEXTS, "text", 0, &s->texts, "TEXT", .help = "text to classify; may be repeated"}},
      {IMAGES | OF_TEXTS, {OPTION_TEXTS, "text-pair", 0, &s->pairs, "TEXT", .help = "second text of a pair, one per --text"}},
      {IMAGES | OF_TEXTS,
       {OPTION_TEXT, "text-file", 0, &s->text_file, "FILE", .help = "one text per line, or a pair separated by a tab; -: standard input"}},
      {INFER_EVAL,
       {OPTION_TEXT, "dataset", 'd', &s->dataset, "NAME",
        .help = "cifar100, folder:DIR...; text:PATH, text-lines:PATH; sst2:DIR, cola:DIR, tsv:FILE... (required)"}},
      {INFER_EVAL, {OPTION_TEXT, "data-dir", 0, &s->data_dir, "DIR", .help = "directory searched first for the data set"}},
      {INFER_EVAL,
       {OPTION_INT, "samples", 's', &s->samples, "N", .min = 0, .max = 1e12,
        .help = "N images, texts or windows of the test part; 0: all"}},
      {INFER_EVAL,
       {OPTION_INT, "validation-part", 0, &s->validation_part, "N", .min = 0, .max = INT32_MAX,
        .help = "the N samples held out by astra-train --validation-part N; 0: the test part"}},
      {INFER_EVAL | OF_LANGUAGE,
       {OPTION_CHOICE, "eval-part", 0, &s->part, .choices = "train|valid|test|whole|auto",
        .help = "part of a text; auto: the whole of named files, else valid"}},
      {INFER_EVAL | OF_LANGUAGE | OF_TEXTS,
       {OPTION_INT, "context", 0, &s->window, "N", .min = 0, .max = 1 << 20,
        .help = "tokens per window, or maximum per text to classify; 0: the model's context"}},
      {INFER_EVAL | OF_LANGUAGE,
       {OPTION_INT, "stride", 0, &s->stride, "N", .min = 0, .max = 1 << 20, .help = "tokens between windows; 0: the context"}},
      {INFER_EVAL | OF_LANGUAGE,
       {OPTION_CHOICE, "perplexity", 0, &s->perplexity, .choices = PERPLEXITY_CHOICES, .help = "unit of perplexity"}},
      {INFER_SELFTEST, {OPTION_TEXT, "file", 'f', &s->file, "FILE", .help = "samples to compare with (default: DIR/selftest.safetensors)"}},
      {TEXT, {OPTION_GROUP, .help = "Text generation:"}},
      {TEXT | OF_LANGUAGE,
       {OPTION_INT, "max-new-tokens", 'm', &s->new_tokens, "N", .min = 0, .max = 1e9, .help = "maximum number of new tokens"}},
      {TEXT | OF_LANGUAGE,
       {OPTION_REAL, "temperature", 0, &s->temperature, "T", .min = 0, .max = SAMPLING_TEMPERATURE_MAX,
        .help = "sampling temperature; 0: greedy decoding"}},
      {TEXT | OF_LANGUAGE,
       {OPTION_INT, "top-k", 0, &s->top_k, "K", .min = 0, .max = SAMPLING_TOP_K_MAX,
        .help = "sample from the K most likely tokens; 0: all"}},
      {TEXT | OF_LANGUAGE,
       {OPTION_REAL, "top-p", 0, &s->top_p, "P", .min = SAMPLING_TOP_P_MIN, .max = 1,
        .help = "sample from the most likely tokens with total probability P"}},
      {TEXT | OF_LANGUAGE,
       {OPTION_REAL, "min-p", 0, &s->min_p, "P", .min = 0, .max = SAMPLING_MIN_P_MAX,
        .help = "sample from tokens at least P times as probable as the most likely one"}},
      {TEXT | OF_LANGUAGE,
       {OPTION_REAL, "repetition-penalty", 0, &s->repetition_penalty, "R", .min = SAMPLING_REPETITION_MIN, .max = SAMPLING_REPETITION_MAX,
        .help = "divide the logits of tokens of the prompt and text by R; 1: none"}},
      {TEXT | OF_LANGUAGE,
       {OPTION_REAL, "frequency-penalty", 0, &s->frequency_penalty, "F", .min = -SAMPLING_PENALTY_MAX, .max = SAMPLING_PENALTY_MAX,
        .help = "subtract F from a token's logit for each time it is in the new text"}},
      {TEXT | OF_LANGUAGE,
       {OPTION_REAL, "presence-penalty", 0, &s->presence_penalty, "F", .min = -SAMPLING_PENALTY_MAX, .max = SAMPLING_PENALTY_MAX,
        .help = "subtract F from the logits of all tokens of the new text"}},
      {TEXT | OF_LANGUAGE,
       {OPTION_TEXTS, "logit-bias", 0, &s->biases, "ID=BIAS", .help = "add BIAS (-100 to 100) to the logit of token ID; may be repeated"}},
      {TEXT | OF_LANGUAGE, {OPTION_INT, "seed", 0, &s->seed, "N", .min = 0, .max = 9e15, .help = "sampling seed"}},
      {TEXT | OF_LANGUAGE,
       {OPTION_TEXTS, "stop", 0, &s->stops, "TEXT", .help = "stop before this text (\\n, \\t, \\\\ as in C); may be repeated"}},
      {EVERY, {OPTION_GROUP, .help = "Nodes:"}},
      {CLUSTERS,
       {OPTION_INT, "nodes", 'n', &s->nodes, "N", .min = 0, .max = WIRE_NODES,
        .help = "number of processes, at most 64; 0: as many as the model was trained for"}},
      {CLUSTERS,
       {OPTION_TEXT, "split", 0, &s->split, "LIST",
        .help = "tokens per node: shares like 3,1,1,1; auto: by measured speed, without slow devices; all: with all of them; default: "
                "even"}},
      {IMAGES | INFER_EVAL | INFER_SERVE | OF_IMAGES,
       {OPTION_TEXT, "layout", 0, &s->layout, "LAYOUT",
        .help = "token placement: raster, strided, checkerboard, random:SEED or trained (default)"}},
      {TEXT | SERVICES | OF_LANGUAGE | OF_TEXTS,
       {OPTION_INT, "max-context", 0, &s->context, "N", .min = 0, .max = 1e9,
        .help = "maximum tokens per text, new ones included (texts to classify are cut); 0: the model's context"}},
      {EVERY,
       {OPTION_INT, "threads", 't', &s->threads, "N", .min = 0, .max = THREADS_MAX,
        .help = "threads per node; 0: one, or all cores for a single node and for this device with --peers"}},
      {EVERY,
       {OPTION_TIMEOUT, "timeout", 0, &s->timeout, "TIME", .min = 0.1, .max = 86400, .help = "fail if a node is silent for this long"}},
      {CLUSTERS,
       {OPTION_TEXT, "peers", 0, &s->peers, "LIST",
        .help = "HOST:PORT,... of `astra-infer worker` processes, or auto: those that announce themselves; this process is a device too"}},
      {CLUSTERS, {OPTION_FLAG, "local", 0, &s->local, .help = "--no-local: only the peers compute"}},
      {CLUSTERS, {OPTION_TEXT, "key-file", 0, &s->key_file, "FILE", .help = "the cluster's key (astra-infer keygen)"}},
      {CLUSTERS, {OPTION_TIMEOUT, "wait", 0, &s->wait, "TIME", .help = "how long to wait for a busy worker"}},
      {CLUSTERS,
       {OPTION_CHOICE, "on-failure", 0, &s->on_failure, .choices = "abort|rerun|mask|auto",
        .help = "when a device fails; auto: rerun with --peers and for a service, else abort"}},
      {RUNS,
       {OPTION_TIMEOUT, "request-timeout", 0, &s->request_timeout, "TIME",
        .help = "time limit per request, from its turn on, retries included; 0: none"}},
      {IMAGES | INFER_SERVE | OF_CLASSES,
       {OPTION_INT, "batch", 'b', &s->batch, "N", .min = 1, .max = 65536, .help = "maximum number of images or texts per request"}},
      {INFER_EVAL,
       {OPTION_INT, "batch", 'b', &s->batch, "N", .min = 0, .max = 65536,
        .help = "images, windows or texts per request; 0: 64, at most 4,096 tokens of text"}},
      {EVERY, {OPTION_GROUP, .help = "Output:"}},
      {IMAGES | OF_CLASSES,
       {OPTION_INT, "top", 0, &s->top, "N", .min = 1, .max = RANKING_MAX, .help = "classes to print per image or text"}},
      {TEXT | OF_LANGUAGE, {OPTION_FLAG, "echo", 0, &s->echo, .help = "print the prompt before its continuation"}},
      {ALL, {OPTION_FLAG, "json", 'j', &s->json, .help = "print one JSON object instead of text"}},
      {INFER_EVAL, {OPTION_TEXT, "per-sample", 0, &s->per_sample, "FILE", .help = "write loss and correctness of each sample as CSV"}},
      {EVERY, {OPTION_FLAG, "quiet", 'q', &s->quiet, .help = "no progress and no table of nodes"}},
      {EVERY,
       {OPTION_FLAG, "verbose", 'v', &s->verbose, .help = "print the kernels in use and the process numbers of the nodes to stderr"}},
  };
  int wanted = command == INFER_MAIN ? IMAGES | TEXT : (int)command;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    if (!(rows[i].of & wanted)) continue;
    *options++ = rows[i].option;
    if (of) *of++ = rows[i].of;
  }
  *options = (Option){.kind = OPTION_GROUP};
}

static void set_defaults(InferSettings *s, InferCommand command) {
  *s = (InferSettings){.batch = command == INFER_EVAL ? 0 : 8,
                       .part = INFER_PART_AUTO,
                       .retained = 1,
                       .top = 5,
                       .timeout = 30,
                       .new_tokens = 64,
                       .top_p = 1,
                       .repetition_penalty = 1,
                       .seed = 42,
                       .local = true,
                       .wait = 30,
                       .on_failure = INFER_ON_FAILURE_AUTO};
}

enum { STRATEGY_ROWS = 3 };
static int strategy_rows(InferSettings *s, Option rows[STRATEGY_ROWS]) {
  const Option table[STRATEGY_ROWS] = {{OPTION_GROUP, .help = "Strategy:"},
                                       {OPTION_CHOICE, "strategy", 0, &s->strategy, .choices = strategy_list("|", false, s->strategies),
                                        .help = "astra, or one of the baselines it is compared with"},
                                       {OPTION_INT, "retained", 0, &s->retained, "N", .min = 1, .max = CONFIG_BLOCKS_MAX,
                                        .help = "blocks that bp-ag and bp-sp compute in full"}};
  memcpy(rows, table, sizeof table);
  return STRATEGY_ROWS;
}

/* Those that have a page of help to themselves (`astra-infer links`): behind the others. */
static void add_links(InferSettings *s, InferCommand command, Option *options, int *of) {
  while (options->kind != OPTION_GROUP || options->help) options++, of = of ? of + 1 : NULL;
  int count = command == INFER_SELFTEST ? 0 : strategy_rows(s, options);
  count += infer_link_options_rows(&s->links, options + count);
  for (int i = 0; of && i < count; i++) of[i] = ALL | (options[i].target == &s->links.memory.remote_cache ? OF_LANGUAGE : 0);
  options[count] = (Option){.kind = OPTION_GROUP};
}

void infer_settings_table(InferSettings *s, InferCommand command, Option options[INFER_OPTIONS_MAX]) {
  set_defaults(s, command);
  select_options(s, command, options, NULL);
  add_links(s, command, options, NULL);
}

static void name_links(FILE *stream) { fprintf(stream, "\nMore options: astra-infer links\n"); }

void infer_settings_help(InferCommand command, FILE *stream) {
  static const struct {
    InferCommand command;
    const char *usage, *about;
  } pages[] = {{INFER_MAIN, "astra-infer --checkpoint DIR [OPTION...] IMAGE...",
                "Classifies images or texts, or generates text, on several processes that each hold a share of the tokens."},
               {INFER_GENERATE, "astra-infer [generate] --checkpoint DIR --prompt TEXT [OPTION...]",
                "Generates text from prompts: the nodes share the prompt, and the one with its last token decodes."},
               {INFER_EVAL, "astra-infer eval --checkpoint DIR --dataset NAME [OPTION...]",
                "Measures accuracy on the test part of a data set, or perplexity on a text, through the real processes."},
               {INFER_SELFTEST, "astra-infer selftest --checkpoint DIR [OPTION...]",
                "Repeats a checkpoint's sample images or texts on real processes and compares codes and logits with training's."},
               {INFER_LINKS, "astra-infer ... [OPTION...]",
                "What travels between nodes, and how: options of all commands that start nodes (selftest: not the strategy)."}};
  InferSettings settings;
  Option options[INFER_OPTIONS_MAX] = {{.kind = OPTION_GROUP}};
  set_defaults(&settings, command == INFER_LINKS ? INFER_MAIN : command);
  if (command == INFER_LINKS)
    add_links(&settings, INFER_MAIN, options, NULL);
  else
    select_options(&settings, command, options, NULL);
  for (Option *from = options, *to = options; command == INFER_MAIN; from++) { /* the page of generate has the rarer ones, too */
    const bool rare = from->name && (strstr(from->name, "-penalty") || !strcmp(from->name, "logit-bias") || !strcmp(from->name, "special"));
    if (!rare) *to++ = *from;
    if (from->kind == OPTION_GROUP && !from->help) break;
  }
  for (size_t i = 0; i < sizeof pages / sizeof *pages; i++) {
    if (pages[i].command == command) options_help(options, pages[i].usage, pages[i].about, stream);
  }
  if (command != INFER_MAIN && command != INFER_LINKS) name_links(stream); /* the main page ends with all commands */
}

/* Of an option that says how to draw, where nothing is drawn. */
static Status check_drawing(const InferSettings *s, const Option *options) {
  static const char *const names[] = {"top-k", "top-p", "min-p", "seed"};
  for (size_t i = 0; i < sizeof names / sizeof *names && s->temperature <= 0; i++)
    if (options_given(options, names[i]))
      return status_set(STATUS_BAD_USAGE, "--%s: sampling needs a --temperature above 0; without it decoding is greedy", names[i]);
  return STATUS_OK;
}

/* Images, texts to classify or prompts: one of these. */
static Status check_main(const InferSettings *s, const char *const *positional, int count) {
  bool prompt = s->prompts.count > 0 || s->prompt_file, text = s->texts.count > 0 || s->text_file;
  for (int i = 0; i < count; i++)
    if (!positional[i][0]) return status_set(STATUS_BAD_USAGE, "argument %d is empty: an image's or a directory's name is expected", i + 1);
  if (count > 0 && (prompt || text)) return status_set(STATUS_BAD_USAGE, "%s: give images, texts or prompts, not several", positional[0]);
  if (text && prompt) return status_set(STATUS_BAD_USAGE, "--text is classified, --prompt is gone on from: give one of them");
  if (s->pairs.count > 0 && s->pairs.count != s->texts.count)
    return status_set(STATUS_BAD_USAGE, "--text-pair: %d for %d --text; each --text needs one, or none does", s->pairs.count,
                      s->texts.count);
  if (!prompt && !text && count == 0)
    return status_set(STATUS_BAD_USAGE, "no image given (and no --text TEXT to classify, no --prompt TEXT for a language model)");
  return STATUS_OK;
}

/* BAD_USAGE: `what`, and behind it a command that works here with the images and checkpoints that come with the programs, where they are
 * found. */
static Status with_example(const char *what, int64_t nodes) {
  static const char *const names[] = {"vit-cifar-g8", "vit-cifar"}; /* one with codebooks before a plain one */
  char text[1024] = "", *model = NULL, *images = NULL;
  bool astra = false;
  for (size_t i = 0; model == NULL && i < sizeof names / sizeof *names; i++) {
    ModelConfig config;
    if (data_paths_find("checkpoints", names[i], NULL, &model) != STATUS_OK) continue;
    if (config_load(&config, model) == STATUS_OK) {
      astra = config.astra.groups > 0;
      config_release(&config);
    } else {
      free(model);
      model = NULL;
    }
  }
  if (model != NULL && data_paths_find("datasets", "pictures", NULL, &images) == STATUS_OK)
    snprintf(text, sizeof text, ". For example: astra-infer --nodes %lld%s --checkpoint %s %s", (long long)nodes,
             astra || nodes == 1 ? "" : " --strategy sp", model, images); /* a plain model runs on several nodes by other strategies only */
  free(model);
  free(images);
  return status_set(STATUS_BAD_USAGE, "%s%s", what, text);
}

static Status check_inputs(const InferSettings *s, InferCommand command, const char *name, const char *const *positional, int count) {
  bool prompt = s->prompts.count > 0 || s->prompt_file;
  if (command != INFER_MAIN && count > 0) return status_set(STATUS_BAD_USAGE, "%s: %s takes options only", positional[0], name);
  if (!s->checkpoint) {
    const char *what = "--checkpoint DIR is missing: the directory of the model to run";
    return command == INFER_MAIN ? with_example(what, s->nodes > 0 ? s->nodes : 4) : status_set(STATUS_BAD_USAGE, "%s", what);
  }
  if (command == INFER_EVAL && !s->dataset)
    return status_set(STATUS_BAD_USAGE, "--dataset NAME is missing: the images or the text to evaluate the model on");
  if (command == INFER_GENERATE && !prompt) return status_set(STATUS_BAD_USAGE, "--prompt TEXT is missing: what to go on from");
  return command == INFER_MAIN ? check_main(s, positional, count) : STATUS_OK;
}

/* One machine, or several. */
static Status check_devices(const InferSettings *s, const Option *options) {
  if (!s->peers && !s->local) return status_set(STATUS_BAD_USAGE, "--no-local: without --peers no device is left");
  if (!s->peers && s->key_file) return status_set(STATUS_BAD_USAGE, "--key-file: the key is for --peers, of which none are given");
  if (!s->peers && options_given(options, "wait"))
    return status_set(STATUS_BAD_USAGE, "--wait: a busy worker is waited for, one of --peers, of which none are given");
  if (s->peers && s->nodes > 0)
    return status_set(STATUS_BAD_USAGE, "--nodes and --peers: processes of this machine, or devices with a worker each, not both");
  return STATUS_OK;
}

/* Which kinds of models the command line is for, as far as its options say. */
static void note_kinds(InferSettings *s, const Option *options, const int *of) {
  for (; options->kind != OPTION_GROUP || options->help; options++, of++) {
    int kinds = *of >> KINDS_AT;
    if (!options->given || !kinds) continue;
    for (int kind = 0; kind < INFER_KINDS; kind++) {
      if (kinds >> kind & 1) continue;
      s->not_for[kind].option = options->name;
      s->not_for[kind].kinds = kinds;
    }
  }
}

Status infer_settings_parse(InferSettings *s, InferCommand command, int argc, char **argv, const char **positional, int *count) {
  Option options[INFER_OPTIONS_MAX];
  int of[INFER_OPTIONS_MAX];
  set_defaults(s, command);
  select_options(s, command, options, of);
  add_links(s, command, options, of);
  TRY(options_parse(options, argc, argv, positional, count));
  TRY(check_inputs(s, command, argv[0], positional, *count));
  TRY(check_drawing(s, options));
  if (command != INFER_SELFTEST) TRY(check_devices(s, options));
  TRY(infer_strategy_check(s, options));
  if (s->prompts.count > 0 || s->prompt_file) TRY(infer_settings_check_parts(s));
  TRY(check_datagrams(s, options));
  note_kinds(s, options, of);
  log_quiet(s->quiet);
  log_verbose(s->verbose);
  return STATUS_OK;
}

/* ---- astra-serve and astra-chat ---- */

/* of [INFER_OPTIONS_MAX] may be NULL. */
static void service_options(InferSettings *s, InferCommand program, const Option *own, int own_count, Option options[INFER_OPTIONS_MAX],
                            int *of) {
  set_defaults(s, program);
  memcpy(options, own, (size_t)own_count * sizeof *own);
  for (int i = 0; of && i < own_count; i++) *of++ = 0;
  select_options(s, program, options + own_count, of);
  add_links(s, program, options + own_count, of);
}

void infer_settings_service_table(InferSettings *s, InferCommand program, const Option *own, int own_count,
                                  Option options[INFER_OPTIONS_MAX]) {
  service_options(s, program, own, own_count, options, NULL);
}

void infer_settings_service_help(InferCommand program, const Option *own, int own_count, const char *usage, const char *about,
                                 FILE *stream) {
  InferSettings settings;
  Option options[INFER_OPTIONS_MAX];
  set_defaults(&settings, program);
  memcpy(options, own, (size_t)own_count * sizeof *own);
  select_options(&settings, program, options + own_count, NULL);
  options_help(options, usage, about, stream);
  name_links(stream);
}

/* Of the options that astra-chat and astra-serve share: all but those of the output say how devices compute. */
static const char *first_device_option(const InferSettings *s, const Option *options) {
  for (; options->kind != OPTION_GROUP || options->help; options++)
    if (options->given && options->target != &s->quiet && options->target != &s->verbose) return options->name;
  return NULL;
}

Status infer_settings_service_parse(InferSettings *s, InferCommand program, Option *own, int own_count, int argc, char **argv) {
  Option options[INFER_OPTIONS_MAX];
  int of[INFER_OPTIONS_MAX];
  service_options(s, program, own, own_count, options, of);
  TRY(cli_parse(options, argc, argv));
  for (int i = 0; i < own_count; i++) own[i].given = options[i].given;
  TRY(check_devices(s, options));
  TRY(infer_strategy_check(s, options));
  TRY(check_datagrams(s, options));
  s->device_option = first_device_option(s, options + own_count);
  note_kinds(s, options, of);
  log_quiet(s->quiet);
  log_verbose(s->verbose);
  return STATUS_OK;
}
