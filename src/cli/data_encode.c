/* The command lines of astra-data encode and decode: where the text or the ids come from (an argument, a file, standard input) and how
 * what becomes of them is printed. The tokenizers are src/data/tokenizer/tokenizer.h.
 *
 * decode writes the bytes of the text as they are, so that `encode | decode` gives the same bytes; only to a terminal characters that it
 * would obey are written out, and a line feed follows. */
#include "base/clock.h"
#include "base/files.h"
#include "base/log.h"
#include "base/printable.h"
#include "base/status.h"
#include "cli/cli.h"
#include "cli/data_commands.h"
#include "data/data_paths.h"
#include "data/tokenizer/tokenizer.h"
#include "data/tokenizer/tokenizer_config.h"
#include "nn/json_build.h"
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- astra-data tokenizer ---- */

static const char usage[] = "astra-data tokenizer --out DIR [--vocab N] FILE...";
static const char about[] =
    "Trains a byte-level BPE with GPT-2's way of splitting text on plain or .gz files, and writes vocab.json, merges.txt and\n"
    "tokenizer.json to DIR. The last piece of the vocabulary is <|endoftext|>. The same text gives the same tokenizer.";

typedef struct Request {
  const char *out, **files;
  int count;
  int64_t pieces;
  bool quiet, json, overwrite;
  double started;
} Request;

static Status report(const Request *request, const TokenizerTraining *training, const Tokenizer *tokenizer) {
  double seconds = clock_now() - request->started;
  if (!request->json)
    printf("%s: tokenizer of %lld pieces, trained on %lld bytes (%lld distinct words) in %.1f s\n", printable(request->out),
           (long long)request->pieces, (long long)training->bytes, (long long)training->words, seconds);
  if (!request->json) return STATUS_OK;
  json_t *object = json_pack("{s:o, s:I, s:I, s:I, s:s, s:f}", "out", json_build_string(request->out), "pieces",
                             (json_int_t)request->pieces, "bytes", (json_int_t)training->bytes, "words", (json_int_t)training->words,
                             "fingerprint", tokenizer_fingerprint(tokenizer), "seconds", seconds);
  return json_build_print(object);
}

/* What lies beside an earlier tokenizer would be taken for this one's: its special tokens, its chat template. */
static Status forget_earlier(const char *directory) {
  TRY(files_prune(directory, NULL, out_directory_beside_tokenizer));
  return tokenizer_config_remove_templates(directory);
}

static Status run(const Request *request) {
  TokenizerTraining training = {.quiet = request->quiet};
  Tokenizer *tokenizer;
  if (!request->out) return status_set(STATUS_BAD_USAGE, "tokenizer: --out DIR is missing: where the files are written");
  if (!request->overwrite) TRY(out_directory_free(request->out, OUT_TOKENIZER, NULL));
  log_quiet(request->quiet);
  const bool there = files_is_dir(request->out);
  TRY(out_directory_try(request->out, NULL, "tokenizer.json")); /* before the work, not after it */
  Status status = tokenizer_train(&tokenizer, request->files, request->count, request->pieces, &training);
  if (status == STATUS_OK) {
    status = tokenizer_save(tokenizer, request->out);
    if (status == STATUS_OK) status = forget_earlier(request->out);
    if (status == STATUS_OK) status = report(request, &training, tokenizer);
    tokenizer_close(tokenizer);
  }
  if (status != STATUS_OK && !there) out_directory_leave(request->out, NULL);
  return status;
}

static Status run_tokenizer(int argc, char **argv) {
  Request request = {.pieces = 4096, .started = clock_now()};
  Option options[] = {{OPTION_GROUP, .help = "Options:"},
                      {OPTION_TEXT, "out", 'o', &request.out, "DIR", .help = "output directory"},
                      {OPTION_FLAG, "overwrite", 0, &request.overwrite, .help = "replace an existing tokenizer"},
                      {OPTION_INT, "vocab", 'v', &request.pieces, "N", .min = TOKENIZER_TRAIN_MIN, .max = TOKENIZER_TRAIN_MAX,
                       .help = "vocabulary size: 256 bytes, merges and <|endoftext|>"},
                      {OPTION_FLAG, "quiet", 'q', &request.quiet, .help = "no progress and no messages"},
                      {OPTION_FLAG, "json", 'j', &request.json, .help = "print one JSON object instead of text"},
                      {.kind = OPTION_GROUP}};
  if (cli_helped(options, usage, about, argc, argv)) return STATUS_OK;
  TRY(cli_parse_arguments(options, argc, argv, 1, argc, "no FILE given to train on", &request.files, &request.count));
  Status status = run(&request);
  free(request.files);
  return status;
}

const CliCommand data_tokenizer_command = {"tokenizer", "train a tokenizer on text", run_tokenizer};

/* ---- astra-data encode and decode ---- */

enum { INPUT_MAX = 1 << 30 };

typedef struct Encoding {
  const char *command, *tokenizer, *file;
  const char **arguments; /* [count]: a text, or ids */
  int count;
  bool special, begin, end, lines, json;
} Encoding;

/* ---- input ---- */

/* As cli_read_stream, with messages. */
static Status read_stream(FILE *stream, const char *name, char **data, size_t *size) {
  const Status status = cli_read_stream(stream, INPUT_MAX, "the text or its tokens", NULL, data, size);
  if (status == STATUS_BAD_VALUE) return status_set(status, "%s is larger than 1 GiB; encode it in parts", name);
  return status == STATUS_IO ? status_set(status, "%s cannot be read: %s", name, strerror(errno)) : status;
}

/* The arguments with spaces between them, or what --file or standard input holds. */
static Status read_input(const Encoding *request, char **data, size_t *size) {
  *data = NULL;
  if (request->file != NULL && request->count > 0)
    return status_set(STATUS_BAD_USAGE, "%s: --file and '%s' cannot be combined; give one of them", request->command,
                      request->arguments[0]);
  const char *path = request->file && strcmp(request->file, "-") != 0 ? request->file : NULL;
  if (request->count == 0 && !path) return read_stream(stdin, "standard input", data, size);
  if (request->count == 0) {
    FILE *stream = fopen(path, "rb");
    if (stream == NULL) return status_set(STATUS_NOT_FOUND, "--file %s cannot be opened: %s", path, strerror(errno));
    Status status = read_stream(stream, path, data, size);
    fclose(stream);
    return status;
  }
  *size = 0;
  for (int i = 0; i < request->count; i++) *size += strlen(request->arguments[i]) + 1;
  if ((*data = calloc(*size + 1, 1)) == NULL) return status_no_memory(NULL, "the text or its tokens");
  char *end = *data;
  for (int i = 0; i < request->count; i++) end = stpcpy(stpcpy(end, i > 0 ? " " : ""), request->arguments[i]);
  (*size)--;
  return STATUS_OK;
}

/* ---- encode ---- */

static Status add_end(const Encoding *request, int32_t id, const char *option, TokenList *ids) {
  if (id < 0) return status_set(STATUS_BAD_VALUE, "%s: the tokenizer in %s has no such token", option, request->tokenizer);
  return token_list_add(ids, id);
}

static Status encode(const Encoding *request, Tokenizer *tokenizer, const char *text, size_t bytes, TokenList *ids) {
  if (request->begin) TRY(add_end(request, tokenizer_begin(tokenizer), "--begin", ids));
  TRY(tokenizer_encode(tokenizer, text, bytes, request->special, ids));
  return request->end ? add_end(request, tokenizer_end(tokenizer), "--end", ids) : STATUS_OK;
}

static Status print_ids(const Encoding *request, const Tokenizer *tokenizer, size_t bytes, const TokenList *ids) {
  json_t *list = request->json ? json_array() : NULL;
  for (size_t i = 0; request->json && i < ids->count; i++) json_build_append(&list, json_integer(ids->ids[i]));
  if (request->json)
    return json_build_print(json_pack("{s:o?, s:I, s:I, s:I, s:s}", "ids", list, "tokens", (json_int_t)ids->count, "bytes",
                                      (json_int_t)bytes, "vocabulary", (json_int_t)tokenizer_count(tokenizer), "fingerprint",
                                      tokenizer_fingerprint(tokenizer)));
  for (size_t i = 0; i < ids->count; i++) printf("%s%d", i == 0 ? "" : request->lines ? "\n" : " ", (int)ids->ids[i]);
  putchar('\n');
  return STATUS_OK;
}

static Status encode_input(const Encoding *request, Tokenizer *tokenizer, const char *text, size_t bytes) {
  TokenList ids = {0};
  Status status = encode(request, tokenizer, text, bytes, &ids);
  if (status == STATUS_OK) status = print_ids(request, tokenizer, bytes, &ids);
  token_list_release(&ids);
  return status;
}

/* ---- decode ---- */

/* Numbers between spaces, line feeds, commas and brackets: what encode prints, and JSON lists. */
static Status parse_ids(const char *text, size_t bytes, int64_t vocabulary, TokenList *ids) {
  static const char between[] = " \t\r\n,[]";
  if (strlen(text) != bytes) return status_set(STATUS_BAD_VALUE, "decode: a NUL byte among the ids");
  for (const char *at = text + strspn(text, between); *at != '\0'; at += strspn(at, between)) {
    char *end;
    long id = strtol(at, &end, 10);
    if (end == at || (*end != '\0' && strchr(between, *end) == NULL) || id < 0 || id >= vocabulary)
      return status_set(STATUS_BAD_VALUE, "decode: '%.*s' is no id of this tokenizer; whole numbers from 0 to %lld are",
                        (int)strcspn(at, between), at, (long long)vocabulary - 1);
    TRY(token_list_add(ids, (int32_t)id));
    at = end;
  }
  return STATUS_OK;
}

static Status print_text(const Encoding *request, const TokenList *ids, const char *text, size_t bytes) {
  if (request->json)
    return json_build_print(
        json_pack("{s:o, s:I, s:I}", "text", json_build_text(text, bytes), "tokens", (json_int_t)ids->count, "bytes", (json_int_t)bytes));
  cli_write_text(text, bytes);
  if (isatty(STDOUT_FILENO)) putchar('\n');
  return STATUS_OK;
}

static Status decode_input(const Encoding *request, Tokenizer *tokenizer, const char *input, size_t size) {
  TokenList ids = {0};
  char *text = NULL;
  size_t bytes = 0;
  Status status = parse_ids(input, size, tokenizer_count(tokenizer), &ids);
  if (status == STATUS_OK) status = tokenizer_decode(tokenizer, ids.ids, ids.count, &text, &bytes);
  if (status == STATUS_OK) status = print_text(request, &ids, text, bytes);
  free(text);
  token_list_release(&ids);
  return status;
}

/* ---- the command lines ---- */

typedef Status Work(const Encoding *request, Tokenizer *tokenizer, const char *input, size_t size);

/* Of a path, or of an installed checkpoint; where there is neither, the message is that of a path. */
static Status open_tokenizer(Tokenizer **tokenizer, const char *name) {
  char *installed = NULL;
  if (!files_exists(name) && data_paths_find("checkpoints", name, NULL, &installed) == STATUS_OK) name = installed;
  const Status status = tokenizer_open(tokenizer, name);
  free(installed);
  return status;
}

static Status run_with(const Encoding *request, Work *work) {
  Tokenizer *tokenizer;
  char *input;
  size_t size = 0;
  if (request->tokenizer == NULL)
    return status_set(STATUS_BAD_USAGE,
                      "%s: --tokenizer PATH is missing: a tokenizer's file, or a directory that holds one, as a checkpoint does",
                      request->command);
  TRY(open_tokenizer(&tokenizer, request->tokenizer));
  Status status = read_input(request, &input, &size);
  if (status == STATUS_OK) status = work(request, tokenizer, input, size);
  free(input);
  tokenizer_close(tokenizer);
  return status;
}

static Status run_command(Encoding *request, Work *work, Option *options, const char *line, const char *help, int argc, char **argv) {
  if (cli_helped(options, line, help, argc, argv)) return STATUS_OK;
  TRY(cli_parse_arguments(options, argc, argv, 0, argc, "", &request->arguments, &request->count));
  Status status = run_with(request, work);
  free(request->arguments);
  return status;
}

#define TOKENIZER_OPTION                                                                                                                   \
  {                                                                                                                                        \
    OPTION_TEXT, "tokenizer", 't', &request.tokenizer, "PATH",                                                                             \
        .help = "tokenizer file, or directory of a tokenizer or checkpoint (required)"                                                     \
  }

static Status run_encode(int argc, char **argv) {
  Encoding request = {.command = "encode"};
  Option options[] = {{OPTION_GROUP, .help = "Options:"},
                      TOKENIZER_OPTION,
                      {OPTION_TEXT, "file", 'f', &request.file, "FILE", .help = "read the text from a file; -: standard input"},
                      {OPTION_FLAG, "special", 0, &request.special, .help = "parse special tokens in the text"},
                      {OPTION_FLAG, "begin", 0, &request.begin, .help = "prepend the beginning-of-text token"},
                      {OPTION_FLAG, "end", 0, &request.end, .help = "append the end-of-text token"},
                      {OPTION_FLAG, "lines", 0, &request.lines, .help = "print one id per line"},
                      {OPTION_FLAG, "json", 'j', &request.json, .help = "print one JSON object instead of text"},
                      {.kind = OPTION_GROUP}};
  return run_command(&request, encode_input, options, "astra-data encode --tokenizer PATH [TEXT | --file FILE]",
                     "Prints the token ids of a text: the argument, a file, or standard input. The text is taken as it is, with the\n"
                     "line feed at its end if it has one; several arguments are joined by spaces.",
                     argc, argv);
}

const CliCommand data_encode_command = {"encode", "convert text to token ids", run_encode};

static Status run_decode(int argc, char **argv) {
  Encoding request = {.command = "decode"};
  Option options[] = {{OPTION_GROUP, .help = "Options:"},
                      TOKENIZER_OPTION,
                      {OPTION_TEXT, "file", 'f', &request.file, "FILE", .help = "read the ids from a file; -: standard input"},
                      {OPTION_FLAG, "json", 'j', &request.json, .help = "print one JSON object instead of text"},
                      {.kind = OPTION_GROUP}};
  return run_command(&request, decode_input, options, "astra-data decode --tokenizer PATH [ID... | --file FILE]",
                     "Writes the text of token ids, which stand between spaces, line feeds or commas: the arguments, a file, or standard\n"
                     "input. The bytes are those of the text alone, without a line feed behind them (but on a terminal).",
                     argc, argv);
}

const CliCommand data_decode_command = {"decode", "convert token ids to text", run_decode};
