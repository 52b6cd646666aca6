/* The options of astra-infer: one table for all its commands, each takes its part; how codes travel between the devices; --strategy and
 * --table-memory with what is said about them. */
#ifndef CLI_INFER_SETTINGS_H
#define CLI_INFER_SETTINGS_H
#include "base/options.h"
#include "cli/network_options.h"
#include "infer/cluster/leader.h"
#include "infer/cluster/setup_message.h"
#include "infer/weights.h"
#include "nn/strategy.h"
#include <jansson.h>

/* What a device keeps of keys and values. */
typedef struct InferMemory {
  double tables;    /* bytes: infer_tables_make */
  int cache_type;   /* WeightsType */
  int remote_cache; /* REMOTE_CACHES */
} InferMemory;

enum { INFER_MEMORY_ROWS = 3 };

/* Appends the rows, with their defaults, which are set in *memory; returns how many. */
int infer_settings_memory_rows(InferMemory *memory, Option rows[INFER_MEMORY_ROWS]);

/* Options of how codes travel between devices: backend, reliability, and links as they are asked to be. Shared by the commands of
 * astra-infer that start devices. */
typedef struct InferLinkOptions {
  const char *deadline, *trace;                   /* as they were given; NULL: not */
  int transport, reliability, loss_unit, entropy; /* choices; transport and reliability: one more, the default */
  int64_t mtu, datagrams, parts;
  NetworkLinks network;
  InferMemory memory;
} InferLinkOptions;

enum { INFER_PART_AUTO = 4, INFER_OPTIONS_MAX = 96 };

typedef enum InferOnFailure { INFER_ABORT, INFER_RERUN, INFER_MASK, INFER_ON_FAILURE_AUTO } InferOnFailure;

typedef enum InferKind { INFER_KIND_IMAGES, INFER_KIND_TEXTS /* to classify */, INFER_KIND_LANGUAGE, INFER_KINDS } InferKind;

typedef struct InferSettings {
  const char *checkpoint, *groups, *split, *layout, *dataset, *data_dir, *file, *prompt_file, *text_file;
  int64_t nodes, threads, batch, top, samples, new_tokens, context, top_k, seed, window, stride;
  const char *per_sample;  /* CSV file of an evaluation; NULL: none */
  int64_t validation_part; /* samples held out of the training part, to be evaluated; 0: the test part */
  double timeout, temperature, top_p, min_p, repetition_penalty, frequency_penalty, presence_penalty;
  int strategy;                   /* Strategy */
  char strategies[STRATEGY_LIST]; /* its choices */
  int64_t retained;               /* blocks of bp-* */
  int weights;                    /* WeightsBits */
  int precision;                  /* WeightsPrecision */
  const char *backend;
  int perplexity; /* PerplexityUnit */
  int part;       /* TextPart, or INFER_PART_AUTO: of a text that is evaluated */
  OptionTexts prompts, stops, biases, texts, pairs;
  InferLinkOptions links;
  bool json, quiet, verbose, echo, special;
  const char *peers, *key_file;
  bool local;
  double wait, request_timeout;
  int on_failure; /* InferOnFailure */
  struct {
    const char *option;      /* one that was given and means nothing to a model of this kind; NULL: none was */
    int kinds;               /* what it is for, as bits */
  } not_for[INFER_KINDS];    /* by InferKind */
  const char *device_option; /* infer_settings_service_parse: the first one given of how devices compute; NULL: none was */
} InferSettings;

/* The program without a command takes images, texts to classify or prompts, with the options of each. */
typedef enum InferCommand {
  INFER_MAIN = 1,
  INFER_GENERATE = 2,
  INFER_EVAL = 4,
  INFER_SELFTEST = 8,
  INFER_LINKS = 32, /* the page of options of how codes travel */
  INFER_SERVE = 16, /* astra-serve */
  INFER_CHAT = 64   /* astra-chat */
} InferCommand;

/* The command's options with their defaults, which are set in *settings. */
void infer_settings_table(InferSettings *settings, InferCommand command, Option options[INFER_OPTIONS_MAX]);
void infer_settings_help(InferCommand command, FILE *stream); /* usage and options, but for those of links, which are INFER_LINKS */

/* Positional arguments go to positional [argc]. BAD_USAGE also for what is missing or does not go together, as far as that can be
 * told without the model. */
Status infer_settings_parse(InferSettings *settings, InferCommand command, int argc, char **argv, const char **positional, int *count);

bool infer_settings_datagrams(const InferSettings *settings); /* codes travel in datagrams; false: in streams */

/* For a program that goes on from prompts: BAD_USAGE with a strategy that cannot. */
Status infer_settings_check_decodes(const InferSettings *settings);

/* The same with --parts: blocks are computed in parts for a request of a single sample, and those of a prompt never are. */
Status infer_settings_check_parts(const InferSettings *settings);

/* How many tokens a text may have: *tokens is `wanted`, or where that is 0 what the model takes. BAD_USAGE, which names the option, where
 * the model takes fewer. */
Status infer_settings_context(const char *option, int64_t wanted, const ModelConfig *config, int64_t *tokens);

/* Of INFER_SERVE and INFER_CHAT: `own` [own_count] are the program's own options, which come first. */
void infer_settings_service_table(InferSettings *settings, InferCommand program, const Option *own, int own_count,
                                  Option options[INFER_OPTIONS_MAX]);
void infer_settings_service_help(InferCommand program, const Option *own, int own_count, const char *usage, const char *about,
                                 FILE *stream);
/* own[i].given: whether it was. */
Status infer_settings_service_parse(InferSettings *settings, InferCommand program, Option *own, int own_count, int argc, char **argv);

#endif
