/* The command line of astra-data tokenizer: arguments into calls of data/tokenizer/bpe_train.h, results into text and JSON. */
#include "cli/data_tokenizer.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/printable.h"
#include "base/progress.h"
#include "cli/cli.h"
#include "cli/out_directory.h"
#include "data/tokenizer/bpe_train.h"
#include "nn/json_build.h"
#include <jansson.h>
#include <stdlib.h>

static const char usage[] = "astra-data tokenizer --out DIR [--vocab N] FILE...";
static const char about[] =
    "Trains a byte-level BPE with GPT-2's way of splitting text on plain or .gz files, and writes vocab.json, merges.txt and\n"
    "tokenizer.json to DIR. The last piece of the vocabulary is <|endoftext|>. The same text gives the same tokenizer.";

typedef struct Request {
  const char *out, **files;
  int count;
  int64_t pieces, bytes;
  bool quiet, json, overwrite;
  double started;
} Request;

static Status no_memory(void) { return status_set(STATUS_NO_MEMORY, "no memory for the tokenizer's command line or output"); }

static Status read_files(Request *request, BpeTrain *train) {
  Progress progress;
  progress_start(&progress, "counting", request->count, request->quiet);
  for (int i = 0; i < request->count; i++) {
    progress_update(&progress, i, request->files[i]);
    TRY(bpe_train_add_file(train, request->files[i], &request->bytes));
  }
  progress_finish(&progress, request->count, NULL);
  return STATUS_OK;
}

static Status report(const Request *request, const BpeTrain *train, const Tokenizer *tokenizer) {
  double seconds = clock_now() - request->started;
  long long words = (long long)bpe_train_words(train);
  if (!request->json)
    printf("%s: tokenizer of %lld pieces, trained on %lld bytes (%lld distinct words) in %.1f s\n", printable(request->out),
           (long long)request->pieces, (long long)request->bytes, words, seconds);
  if (!request->json) return STATUS_OK;
  json_t *object = json_pack("{s:s, s:I, s:I, s:I, s:s, s:f}", "out", request->out, "pieces", (json_int_t)request->pieces, "bytes",
                             (json_int_t)request->bytes, "words", (json_int_t)words, "fingerprint", tokenizer_fingerprint(tokenizer),
                             "seconds", seconds);
  return json_build_print(object);
}

static Status train_and_save(Request *request, BpeTrain *train) {
  Tokenizer *tokenizer;
  TRY(read_files(request, train));
  TRY(bpe_train_run(train, request->pieces, request->quiet, &tokenizer));
  Status status = tokenizer_save(tokenizer, request->out);
  if (status == STATUS_OK) status = report(request, train, tokenizer);
  tokenizer_close(tokenizer);
  return status;
}

static Status run(Request *request) {
  BpeTrain *train;
  if (!request->out) return status_set(STATUS_BAD_USAGE, "tokenizer: --out DIR is missing: where the files are written");
  if (request->count == 0) return status_set(STATUS_BAD_USAGE, "tokenizer: no FILE given to train on");
  if (!request->overwrite) TRY(out_directory_free(request->out, OUT_TOKENIZER, NULL));
  log_quiet(request->quiet);
  request->started = clock_now();
  TRY(bpe_train_new(&train));
  Status status = train_and_save(request, train);
  bpe_train_free(train);
  return status;
}

Status data_tokenizer_run(int argc, char **argv) {
  Request request = {.pieces = 4096};
  bool help = false;
  Option options[] = {
      {.kind = OPTION_GROUP, .help = "Options:"},
      {.kind = OPTION_TEXT, .name = "out", .letter = 'o', .target = &request.out, .value = "DIR", .help = "write the files here"},
      {.kind = OPTION_FLAG, .name = "overwrite", .target = &request.overwrite, .help = "replace the tokenizer that lies there"},
      {.kind = OPTION_INT,
       .name = "vocab",
       .letter = 'v',
       .target = &request.pieces,
       .value = "N",
       .least = BPE_TRAIN_LEAST,
       .most = BPE_TRAIN_MOST,
       .help = "pieces of the vocabulary: 256 bytes, merges, <|endoftext|>"},
      {.kind = OPTION_FLAG, .name = "quiet", .letter = 'q', .target = &request.quiet, .help = "no progress and no remarks"},
      {.kind = OPTION_FLAG, .name = "json", .target = &request.json, .help = "one JSON object instead of text"},
      {.kind = OPTION_FLAG, .name = "help", .letter = 'h', .target = &help, .help = "this text"},
      {.kind = OPTION_GROUP}};
  if (cli_help_wanted(options, argc, argv)) {
    options_help(options, usage, about, stdout);
    return STATUS_OK;
  }
  request.files = calloc((size_t)argc + 1, sizeof *request.files);
  Status status = request.files ? options_parse(options, argc, argv, request.files, &request.count) : no_memory();
  if (status == STATUS_OK) status = run(&request);
  free(request.files);
  return status;
}
