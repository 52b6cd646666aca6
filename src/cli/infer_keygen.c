/* See infer_keygen.h. The key goes to a file that only its owner can read, or to standard output, for those who keep secrets elsewhere. */
#include "cli/infer_keygen.h"
#include "base/log.h"
#include "cli/cli.h"
#include "infer/control/key_file.h"
#include <stdio.h>
#include <stdlib.h>

static Status print_key(const KeyFile *key) {
  char text[KEY_FILE_LINE + 1];
  key_file_text(key, text);
  if (fputs(text, stdout) >= 0 && fflush(stdout) == 0) return STATUS_OK;
  return status_set(STATUS_IO, "cannot write the key to standard output");
}

static Status make_key(const char *path) {
  KeyFile key;
  TRY(key_file_random(&key));
  if (!path) return print_key(&key);
  TRY(key_file_write(&key, path));
  log_info("%s: copy it to each device of the cluster, readable for its owner alone", path);
  return STATUS_OK;
}

Status infer_keygen_run(int argc, char **argv) {
  Option options[] = {{.kind = OPTION_GROUP}};
  int count;
  if (cli_help_wanted(options, argc, argv)) {
    options_help(options, "astra-infer keygen [FILE]",
                 "Makes the key that the devices of a cluster share: into a new FILE of mode 600, or to standard output.", stdout);
    return STATUS_OK;
  }
  const char **positional = malloc((size_t)argc * sizeof *positional);
  if (!positional) return status_set(STATUS_NO_MEMORY, "no memory for the arguments");
  Status status = options_parse(options, argc, argv, positional, &count);
  if (status == STATUS_OK && count > 1) status = status_set(STATUS_BAD_USAGE, "%s: keygen makes one key, in one FILE", positional[1]);
  if (status == STATUS_OK) status = make_key(count ? positional[0] : NULL);
  free(positional);
  return status;
}
