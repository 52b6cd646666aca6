/* The evaluations of a run so far: see evaluations.h. The file is written anew each time: there are tens of lines. */
#include "train/evaluations.h"
#include "base/files.h"
#include "base/log.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { NOTES_MAX = 1 << 24, CONDITIONS = 128 };

static char *notes_path(const Session *session) { return files_join(session->options.out, EVALUATIONS_FILE); }

/* Than that of a step, -1 for none; the first of equals is the best. */
static bool is_better(const Session *session, double value, int64_t step, double than) {
  bool lower = session->task->report->lower_is_better;
  return isfinite(value) && (step < 0 || (lower ? value < than : value > than));
}

static void note(Evaluations *evaluations, const Session *session, int64_t step, double value, bool kept) {
  evaluations->since++;
  evaluations->last = step;
  if (is_better(session, value, evaluations->step, evaluations->value))
    evaluations->step = step, evaluations->value = value, evaluations->since = 0;
  if (kept) evaluations->kept = step, evaluations->kept_value = value;
}

/* What a run's evaluations are made under, without spaces. */
static void name_conditions(const Session *session, char text[CONDITIONS]) {
  const TrainOptions *options = &session->options;
  char layout[TOKEN_MAP_NAME];
  token_map_name(&session->config->astra.layout, layout);
  snprintf(text, CONDITIONS, "samples:%lld,loss:%.9g,layout:%s", (long long)options->eval_samples, options->eval_token_loss, layout);
}

/* All values so far were of other conditions. The one in OUT/best makes room for the next. */
static void forget(Evaluations *evaluations) {
  evaluations->step = evaluations->kept = -1;
  evaluations->since = 0;
}

static void put_note(FILE *stream, int64_t step, double value, bool kept, const char *conditions) {
  fprintf(stream, "%lld %.17g %s %s\n", (long long)step, value, kept ? "kept" : "-", conditions);
}

/* The file's text, "" if there is none; the caller frees it. */
static Status read_notes(const char *path, char **text) {
  size_t size;
  if (files_exists(path)) return files_read(path, NOTES_MAX, text, &size);
  *text = calloc(1, 1);
  return *text ? STATUS_OK : status_no_memory(path, "its text");
}

/* Closes a stream of open_memstream and writes its text to the file. Frees the text. */
static Status write_notes(const char *path, FILE *stream, char **text, const size_t *size) {
  const bool whole = fclose(stream) == 0;
  Status status = whole ? files_write(path, *text, *size) : status_no_memory(path, "its text");
  free(*text);
  return status;
}

/* Whether OUT/best holds a checkpoint: somebody may have removed it. */
static bool has_best(const Session *session) {
  char *path = files_join(session->options.out, "best/config.json");
  bool there = path != NULL && files_exists(path);
  free(path);
  return there;
}

typedef struct Note {
  long long step;
  double value;
  char mark[8], conditions[CONDITIONS];
  int fields; /* 2 of the lines of earlier versions, else 4 */
} Note;

static bool read_note(Note *note, const char *line) {
  char excess;
  note->fields = sscanf(line, "%lld %lf %7s %127s %c", &note->step, &note->value, note->mark, note->conditions, &excess);
  return note->fields == 2 || (note->fields == 4 && (strcmp(note->mark, "kept") == 0 || strcmp(note->mark, "-") == 0));
}

/* Writes the lines up to session->step to the stream. Earlier versions said neither what was kept (it was each that was better than all
 * before, if any was) nor the conditions, which are taken to be those of the run that reads them first. */
static Status parse(Evaluations *evaluations, const Session *session, char *text, const char *path, FILE *stream) {
  const bool there = has_best(session);
  char own[CONDITIONS], before[CONDITIONS] = "";
  name_conditions(session, own);
  for (char *line = text, *end; *line != '\0'; line = end + 1) {
    Note one;
    if ((end = strchr(line, '\n')) != NULL) *end = '\0';
    if (end == NULL || !read_note(&one, line))
      return status_set(
          STATUS_BAD_FILE,
          "%s is damaged: a step, a value, \"kept\" or \"-\", and conditions to a line are expected; remove it to go on without", path);
    if (one.step > session->step) break;
    if (one.fields == 2) snprintf(one.conditions, sizeof one.conditions, "%s", own);
    if (before[0] != '\0' && strcmp(before, one.conditions) != 0) forget(evaluations);
    const bool better = is_better(session, one.value, evaluations->step, evaluations->value), marked = strcmp(one.mark, "kept") == 0;
    const bool kept = there && (one.fields == 2 ? better : marked);
    note(evaluations, session, one.step, one.value, kept);
    put_note(stream, one.step, one.value, kept, one.conditions);
    memcpy(before, one.conditions, sizeof before);
  }
  if (before[0] == '\0' || strcmp(before, own) == 0) return STATUS_OK;
  if (session->step < session->total_steps) /* a finished run makes no more of them */
    log_info("evaluations are made under other conditions (%s) than before (%s): the best of them is sought anew", own, before);
  forget(evaluations);
  return STATUS_OK;
}

Status evaluations_open(Evaluations *evaluations, const Session *session) {
  char *path = notes_path(session), *folder = path ? files_folder(path) : NULL, *text = NULL, *kept = NULL;
  size_t size;
  FILE *stream = open_memstream(&kept, &size);
  Status status = folder != NULL && stream != NULL ? STATUS_OK : status_no_memory(NULL, "notes of the run");
  *evaluations = (Evaluations){
      .step = -1, .kept = -1, .last = session->step == 0 || (path != NULL && files_exists(path)) ? -1 : EVALUATIONS_NOT_NOTED};
  if (status == STATUS_OK && session->step > 0) {
    status = read_notes(path, &text);
    if (status == STATUS_OK) status = parse(evaluations, session, text, path, stream);
  }
  const bool written = status == STATUS_OK && evaluations->last != EVALUATIONS_NOT_NOTED;
  if (written) status = files_make_dirs(folder);
  if (written && status == STATUS_OK) {
    status = write_notes(path, stream, &kept, &size);
  } else if (stream != NULL) {
    fclose(stream);
    free(kept);
  }
  free(text);
  free(folder);
  free(path);
  return status;
}

bool evaluations_lack_step(const Evaluations *evaluations, const Session *session) {
  return evaluations->last != EVALUATIONS_NOT_NOTED && evaluations->last < session->step;
}

bool evaluations_better_than_kept(const Evaluations *evaluations, const Session *session, double value) {
  return is_better(session, value, evaluations->kept, evaluations->kept_value);
}

Status evaluations_add(Evaluations *evaluations, const Session *session, double value, bool kept) {
  char *path = notes_path(session), *text = NULL, *all = NULL, conditions[CONDITIONS];
  size_t size;
  FILE *stream = open_memstream(&all, &size);
  note(evaluations, session, session->step, value, kept);
  Status status = path != NULL && stream != NULL ? read_notes(path, &text) : status_no_memory(NULL, "notes of the run");
  if (status == STATUS_OK) {
    fputs(text, stream);
    name_conditions(session, conditions);
    put_note(stream, session->step, value, kept, conditions);
    status = write_notes(path, stream, &all, &size);
  } else if (stream != NULL) {
    fclose(stream);
    free(all);
  }
  free(text);
  free(path);
  return status;
}

bool evaluations_stop_run(const Evaluations *evaluations, const Session *session) {
  return session->options.early_stopping > 0 && evaluations->since >= session->options.early_stopping;
}
