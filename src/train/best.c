/* Notes of evaluations: see best.h. The file is written anew each time: there are tens of lines. */
#include "train/best.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { NOTES_MOST = 1 << 24 };

static char *notes_path(const Session *session) { return files_join(session->options.out, "training/evaluations.txt"); }

static bool is_better(const Session *session, const Best *best, double value) {
  if (!isfinite(value)) return false;
  return best->step < 0 || (session->task->lower_is_better ? value < best->value : value > best->value);
}

static bool note(Best *best, const Session *session, int64_t step, double value) {
  bool better = is_better(session, best, value);
  best->since++;
  best->last = step;
  if (better) *best = (Best){step, value, 0, step};
  return better;
}

/* The file's text, "" if there is none; the caller frees it. */
static Status read_notes(const char *path, char **text) {
  size_t size;
  if (files_exists(path)) return files_read(path, NOTES_MOST, text, &size);
  *text = calloc(1, 1);
  return *text ? STATUS_OK : status_set(STATUS_NO_MEMORY, "no memory");
}

/* Cuts off the lines behind session->step. */
static Status parse(Best *best, const Session *session, char *text, const char *path) {
  for (char *line = text; *line != '\0';) {
    long long step;
    double value;
    int length = 0;
    if (sscanf(line, "%lld %lf%n", &step, &value, &length) != 2 || line[length] != '\n')
      return status_set(STATUS_BAD_FILE, "%s is damaged: a step and a value to a line are expected; remove it to go on without", path);
    if (step > session->step) {
      *line = '\0';
      break;
    }
    note(best, session, step, value);
    line += length + 1;
  }
  return STATUS_OK;
}

static Status make_folder(const Session *session) {
  char *folder = files_join(session->options.out, "training");
  Status status = folder != NULL ? files_make_dirs(folder) : status_set(STATUS_NO_MEMORY, "no memory");
  free(folder);
  return status;
}

Status best_open(Best *best, const Session *session) {
  char *path = notes_path(session), *text = NULL;
  Status status = path != NULL ? STATUS_OK : status_set(STATUS_NO_MEMORY, "no memory");
  *best = (Best){.step = -1, .last = session->step == 0 || (path != NULL && files_exists(path)) ? -1 : BEST_UNKNOWN};
  if (status == STATUS_OK && session->step > 0) {
    status = read_notes(path, &text);
    if (status == STATUS_OK) status = parse(best, session, text, path);
  }
  if (status == STATUS_OK && best->last != BEST_UNKNOWN) status = make_folder(session);
  if (status == STATUS_OK && best->last != BEST_UNKNOWN) status = files_write(path, text ? text : "", text ? strlen(text) : 0);
  free(text);
  free(path);
  return status;
}

Status best_add(Best *best, const Session *session, double value, bool *better) {
  char *path = notes_path(session), *text = NULL, line[64];
  *better = note(best, session, session->step, value);
  Status status = path != NULL ? read_notes(path, &text) : status_set(STATUS_NO_MEMORY, "no memory");
  size_t used = status == STATUS_OK ? strlen(text) : 0;
  int length = snprintf(line, sizeof line, "%lld %.17g\n", (long long)session->step, value);
  char *all = status == STATUS_OK ? realloc(text, used + (size_t)length + 1) : NULL;
  if (all != NULL) {
    memcpy(all + used, line, (size_t)length + 1);
    text = all;
    status = files_write(path, all, used + (size_t)length);
  } else if (status == STATUS_OK) {
    status = status_set(STATUS_NO_MEMORY, "no memory");
  }
  free(text);
  free(path);
  return status;
}

/* ---------------------------------------------------------------- keeping */

static bool ends_with(const char *name, const char *end) {
  size_t length = strlen(name), tail = strlen(end);
  return length >= tail && strcmp(name + length - tail, end) == 0;
}

/* What makes a checkpoint: weights, configurations, tokenizers. */
static bool belongs(const char *path, const char *name) {
  return !files_is_dir(path) && !ends_with(name, ".csv") && !ends_with(name, ".png") && strncmp(name, "events.", 7) != 0 &&
         strstr(name, ".tmp-") == NULL;
}

static Status copy_file(const char *from, const char *to) {
  static const size_t most = (size_t)1 << 20;
  FileWriter writer;
  FILE *source = fopen(from, "rb");
  char *buffer = malloc(most);
  size_t got = 0;
  Status status = source == NULL   ? status_set(STATUS_IO, "%s: cannot be read", from)
                  : buffer == NULL ? status_set(STATUS_NO_MEMORY, "no memory")
                                   : files_create(&writer, to);
  if (status == STATUS_OK) {
    while ((got = fread(buffer, 1, most, source)) > 0 && fwrite(buffer, 1, got, writer.stream) == got) continue;
    status = ferror(source) ? status_set(STATUS_IO, "%s: cannot be read", from) : STATUS_OK;
    if (status == STATUS_OK)
      status = files_commit(&writer);
    else
      files_abort(&writer);
  }
  if (source != NULL) fclose(source);
  free(buffer);
  return status;
}

static Status copy_named(const char *out, const char *folder, const char *name) {
  char *from = files_join(out, name), *to = files_join(folder, name);
  Status status = from != NULL && to != NULL ? STATUS_OK : status_set(STATUS_NO_MEMORY, "no memory");
  if (status == STATUS_OK && belongs(from, name)) status = copy_file(from, to);
  free(from);
  free(to);
  return status;
}

Status best_keep(const Session *session) {
  const char *out = session->options.out;
  char *folder = files_join(out, "best"), **names;
  size_t count;
  Status status = folder != NULL ? files_make_dirs(folder) : status_set(STATUS_NO_MEMORY, "no memory");
  if (status == STATUS_OK && (status = files_list(out, &names, &count)) == STATUS_OK) {
    for (size_t i = 0; i < count && status == STATUS_OK; i++) status = copy_named(out, folder, names[i]);
    files_list_free(names, count);
  }
  free(folder);
  return status;
}

bool best_is_over(const Best *best, const Session *session) {
  return session->options.early_stopping > 0 && best->since >= session->options.early_stopping;
}
