/* The options of astra-infer: one table for all its commands, each takes its part. */
#ifndef CLI_INFER_SETTINGS_H
#define CLI_INFER_SETTINGS_H
#include "base/options.h"
#include "cli/infer_link_options.h"

enum { INFER_PART_AUTO = 4, INFER_OPTIONS_MOST = 96 };

typedef enum InferOnFailure { INFER_ABORT, INFER_RERUN, INFER_MASK, INFER_ON_FAILURE_AUTO } InferOnFailure;

typedef enum InferKind { INFER_KIND_PICTURES, INFER_KIND_TEXTS /* to classify */, INFER_KIND_LANGUAGE, INFER_KINDS } InferKind;

typedef struct InferSettings {
  const char *checkpoint, *split, *layout, *dataset, *data_dir, *file, *prompt_file, *text_file;
  int64_t nodes, threads, batch, top, samples, new_tokens, context, top_k, seed, window, stride;
  int64_t validation_part; /* samples held out of the training part, to be evaluated; 0: the test part */
  double timeout, temperature, top_p;
  int strategy;     /* Strategy */
  int64_t retained; /* blocks of bp-* */
  int weights;      /* WeightsBits */
  int precision;    /* WeightsPrecision */
  const char *backend;
  int perplexity; /* PerplexityUnit */
  int part;       /* TextPart, or INFER_PART_AUTO: of a text that is evaluated */
  OptionTexts prompts, stops, texts, pairs;
  InferLinkOptions links;
  bool json, quiet, verbose, echo, special;
  const char *peers, *key_file;
  bool local;
  double wait, request_timeout;
  int on_failure; /* InferOnFailure */
  struct {
    const char *option;   /* one that was given and means nothing to a model of this kind; NULL: none was */
    int kinds;            /* what it is for, as bits */
  } not_for[INFER_KINDS]; /* by InferKind */
} InferSettings;

/* The program without a command takes pictures, texts to classify or prompts, with the options of each. */
typedef enum InferCommand { INFER_MAIN = 1, INFER_GENERATE = 2, INFER_EVAL = 4, INFER_SELFTEST = 8 } InferCommand;

/* The command's options with their defaults, which are set in *settings. */
void infer_settings_table(InferSettings *settings, InferCommand command, Option options[INFER_OPTIONS_MOST]);
void infer_settings_help(InferCommand command, FILE *stream); /* usage and options, but for those of links */
void infer_settings_help_links(FILE *stream);

/* Positional arguments go to positional [argc]. BAD_USAGE also for what is missing or does not go together, as far as that can be
 * told without the model. */
Status infer_settings_parse(InferSettings *settings, InferCommand command, int argc, char **argv, const char **positional, int *count);

#endif
