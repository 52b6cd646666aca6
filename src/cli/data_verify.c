/* The command line of astra-data verify: which files a directory has, what is said of each. How digests work: nn/safetensors.h. */
#include "base/files.h"
#include "base/gguf.h"
#include "cli/cli.h"
#include "cli/data_commands.h"
#include "data/data_paths.h"
#include "nn/json_build.h"
#include "nn/safetensors.h"
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] = "astra-data verify DIR [--write]";
static const char about[] =
    "Compares every tensor of a checkpoint and of its training state (or of one .safetensors file) with the digest that was\n"
    "written beside it, and names those that are damaged. DIR may be the name of an installed checkpoint. Files of other\n"
    "programs have no digests: that is said, and --write adds them, which leaves the tensors as they are.";

typedef struct Verify {
  const char *path;
  bool write, json;
  json_t *files;
  int64_t count, damaged;
} Verify;

/* ---- one file */

static Status say(Verify *verify, const char *path, const char *decision, size_t tensors, json_t *messages) {
  json_t *row = json_pack("{s:s, s:s, s:I, s:o}", "file", path, "verdict", decision, "tensors", (json_int_t)tensors, "damage", messages);
  verify->count++;
  verify->damaged += json_array_size(messages) > 0;
  if (!row || json_array_append_new(verify->files, row) != 0) return status_no_memory(NULL, "verifying a checkpoint");
  if (verify->json) return STATUS_OK;
  printf("%s: %s (%zu tensors)\n", path, decision, tensors);
  for (size_t i = 0; i < json_array_size(messages); i++) printf("  %s\n", json_string_value(json_array_get(messages, i)));
  return STATUS_OK;
}

/* Takes `messages` over. */
static Status verify_open(Verify *verify, const SafeFile *file, json_t *messages) {
  const char *decision = "ok";
  for (size_t i = 0; i < file->count; i++)
    if (safetensors_verify(&file->list[i]) != STATUS_OK) json_build_append(&messages, json_string(status_message()));
  if (!messages) return status_no_memory(NULL, "verifying a checkpoint");
  if (json_array_size(messages) > 0)
    decision = "damaged";
  else if (!file->sealed && verify->write) {
    TRY(safetensors_seal(file));
    decision = "digests written";
  } else if (!file->sealed)
    decision = "no digests, so nothing to compare; --write adds them";
  return say(verify, file->path, decision, file->count, messages);
}

/* Takes `messages` over; of a file that could not be opened. */
static Status verify_closed(Verify *verify, Status status, const char *path, json_t *messages) {
  if (status == STATUS_BAD_FILE) {
    json_build_append(&messages, json_string(status_message()));
    return messages ? say(verify, path, "damaged", 0, messages) : status_no_memory(NULL, "verifying a checkpoint");
  }
  json_decref(messages);
  return status;
}

/* The container holds no digests: that all of it is there is what can be said. */
static Status verify_gguf(Verify *verify, const char *path, json_t *messages) {
  GgufFile file;
  Status status = gguf_open(&file, path);
  if (status != STATUS_OK) return verify_closed(verify, status, path, messages);
  status = say(verify, path, "whole; a GGUF file has no digests, so nothing to compare", file.tensor_count, messages);
  gguf_close(&file);
  return status;
}

static Status verify_file(Verify *verify, const char *path) {
  SafeFile file;
  json_t *messages = json_array();
  if (!messages) return status_no_memory(NULL, "verifying a checkpoint");
  if (gguf_is_file(path)) return verify_gguf(verify, path, messages);
  Status status = safetensors_open(&file, path);
  if (status != STATUS_OK) return verify_closed(verify, status, path, messages);
  status = verify_open(verify, &file, messages);
  safetensors_close(&file);
  return status;
}

/* ---- a directory */

static bool is_tensors(const char *name) {
  static const char ending[] = ".safetensors";
  size_t length = strlen(name);
  return length >= sizeof ending && strcmp(name + length - (sizeof ending - 1), ending) == 0;
}

static Status verify_folder(Verify *verify, const char *folder) {
  char **names;
  size_t count;
  TRY(files_list(folder, &names, &count));
  Status status = STATUS_OK;
  for (size_t i = 0; i < count && status == STATUS_OK; i++) {
    if (!is_tensors(names[i])) continue;
    char *path = files_join(folder, names[i]);
    status = path ? verify_file(verify, path) : status_no_memory(NULL, "verifying a checkpoint");
    free(path);
  }
  files_list_free(names, count);
  return status;
}

static Status verify_all(Verify *verify, const char *path) {
  if (!files_is_dir(path)) return verify_file(verify, path);
  TRY(verify_folder(verify, path));
  char *training = files_join(path, "training");
  Status status = !training                ? status_no_memory(NULL, "verifying a checkpoint")
                  : files_is_dir(training) ? verify_folder(verify, training)
                                           : STATUS_OK;
  free(training);
  if (status == STATUS_OK && verify->count == 0) return status_set(STATUS_NOT_FOUND, "%s holds no .safetensors files", path);
  return status;
}

static Status run(Verify *verify) {
  char *found = files_exists(verify->path) ? strdup(verify->path) : NULL;
  if (!found) TRY(data_paths_find("checkpoints", verify->path, NULL, &found));
  verify->files = json_array();
  Status status = verify->files ? verify_all(verify, found) : status_no_memory(NULL, "verifying a checkpoint");
  if (status == STATUS_OK && verify->json)
    status = json_build_print(json_pack("{s:s, s:O, s:I}", "path", found, "files", verify->files, "damaged", (json_int_t)verify->damaged));
  json_decref(verify->files);
  free(found);
  if (status != STATUS_OK || verify->damaged == 0) return status;
  return status_set(STATUS_BAD_FILE, "%s: %lld of %lld files are damaged; fetch or make them again", verify->path,
                    (long long)verify->damaged, (long long)verify->count);
}

Status data_verify_run(int argc, char **argv) {
  Verify verify = {.path = NULL};
  bool help = false;
  Option options[] = {
      {.kind = OPTION_GROUP, .help = "Options:"},
      {.kind = OPTION_FLAG, .name = "write", .letter = 'w', .target = &verify.write, .help = "add digests to files without any"},
      {.kind = OPTION_FLAG, .name = "json", .target = &verify.json, .help = "print one JSON object instead of text"},
      {.kind = OPTION_FLAG, .name = "help", .letter = 'h', .target = &help, .help = "print this help"},
      {.kind = OPTION_GROUP}};
  if (cli_help_wanted(options, argc, argv)) {
    options_help(options, usage, about, stdout);
    return STATUS_OK;
  }
  const char **paths = calloc((size_t)argc + 1, sizeof *paths);
  int count = 0;
  Status status = paths ? options_parse(options, argc, argv, paths, &count) : status_no_memory(NULL, "verifying a checkpoint");
  if (status == STATUS_OK && count != 1) status = status_set(STATUS_BAD_USAGE, "verify: one DIR is needed, %d given", count);
  if (status == STATUS_OK) {
    verify.path = paths[0];
    status = run(&verify);
  }
  free(paths);
  return status;
}
