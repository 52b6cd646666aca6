/* See bench_experiment.h. */
#include "cli/bench_experiment.h"
#include "base/array.h"
#include "base/files.h"
#include "base/log.h"
#include "base/options.h"
#include "base/order.h"
#include "base/printable.h"
#include "base/text.h"
#include "data/data_paths.h"
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const Evaluation EVALUATIONS[] = {{"astra-infer eval", "astra-infer", "eval", "checkpoint", .samples = true},
                                         {"astra-kmeans eval", "astra-kmeans", "eval", "codebooks", .samples = false},
                                         {"astra-bench fpar", "astra-bench", "fpar", "checkpoint", .folder = true},
                                         {"astra-bench class-token", "astra-bench", "class-token", "checkpoint", .samples = false}};

/* ---------------------------------------------------------------- reading */

static Status bad_file(const char *path, const char *what) {
  return status_set(STATUS_BAD_FILE, "%s: %s; see docs/FORMATS.md, \"Experiments\"", path, what);
}

/* Whether the first `length` characters are a name: of letters, digits and ._=-+, not too long. Names are folders, too. */
static bool is_name_of_length(const char *name, size_t length) {
  if (length == 0 || name[0] == '.' || length > NAME_MAX_LENGTH) return false;
  for (size_t i = 0; i < length; i++)
    if (!isalnum((unsigned char)name[i]) && (name[i] == '\0' || strchr("._=-+", name[i]) == NULL)) return false;
  return true;
}

static bool is_name(const char *name) { return is_name_of_length(name, strlen(name)); }

/* Of an experiment that is looked for in folders; anything else is a file's path. */
static bool is_looked_for(const char *name) { return is_name(name) && strchr(name, '.') == NULL; }

/* Whether it holds nothing that a terminal obeys: it is printed as it is. */
static bool is_printable(const char *text) { return printable_is(text, strlen(text)); }

int experiment_find_row(const Experiment *e, const char *name) {
  for (int i = 0; i < e->count; i++)
    if (name && strcmp(e->row[i].name, name) == 0) return i;
  return -1;
}

bool experiment_same_figure(const Experiment *e, int row, int other) {
  return row >= 0 && other >= 0 && strcmp(e->row[row].figure, e->row[other].figure) == 0;
}

/* What a member is; a sum of these. */
enum { ANY = 0, TEXT = 1, NUMBER = 2, REQUIRED = 4 };

typedef struct Member {
  const char *name;
  int kind;
} Member;

static const Member EXPERIMENT_MEMBERS[] = {{"title", TEXT + REQUIRED},
                                            {"about", TEXT},
                                            {"paper", TEXT},
                                            {"evaluation", TEXT},
                                            {"figure", TEXT + REQUIRED},
                                            {"scale", NUMBER},
                                            {"unit", TEXT},
                                            {"x_label", TEXT},
                                            {"baseline", TEXT},
                                            {"seeds", REQUIRED},
                                            {"train", ANY},
                                            {"eval", ANY},
                                            {"quick", ANY},
                                            {"rows", REQUIRED},
                                            {NULL, ANY}};
static const Member QUICK_MEMBERS[] = {{"train", ANY}, {"eval", ANY}, {NULL, ANY}};
static const Member ROW_MEMBERS[] = {{"name", TEXT + REQUIRED},
                                     {"from", TEXT},
                                     {"model", TEXT},
                                     {"of", TEXT},
                                     {"figure", TEXT},
                                     {"baseline", TEXT},
                                     {"train", ANY},
                                     {"eval", ANY},
                                     {"x", NUMBER},
                                     {"paper", NUMBER},
                                     {"note", TEXT},
                                     {NULL, ANY}};

static bool is_member(const Member *members, const char *name) {
  while (members->name && strcmp(members->name, name) != 0) members++;
  return members->name != NULL;
}

static Status unknown_member(const char *path, const Member *members, const char *name) {
  char accepted[256] = "";
  for (const Member *m = members; m->name; m++) {
    const size_t length = strlen(accepted);
    snprintf(accepted + length, sizeof accepted - length, "%s%s", length > 0 ? ", " : "", m->name);
  }
  return status_set(STATUS_BAD_FILE, "%s: there is no member \"%s\"; accepted are %s; see docs/FORMATS.md, \"Experiments\"", path, name,
                    accepted);
}

/* That `object` is one, of these members (up to one without a name): the JSON library does not say which one is of the wrong kind. */
static Status check_members(const char *path, const json_t *object, const Member *members) {
  const char *key;
  json_t *value;
  if (!json_is_object(object)) return bad_file(path, "a JSON object is accepted");
  json_object_foreach((json_t *)(uintptr_t)object, key, value) {
    if (!is_member(members, key)) return unknown_member(path, members, key);
  }
  for (const Member *m = members; m->name; m++) {
    value = json_object_get(object, m->name);
    if (value == NULL && (m->kind & REQUIRED))
      return status_set(STATUS_BAD_FILE, "%s: \"%s\" is missing; see docs/FORMATS.md, \"Experiments\"", path, m->name);
    const bool text = m->kind & TEXT;
    if (value && ((text && !json_is_string(value)) || ((m->kind & NUMBER) && !json_is_number(value))))
      return status_set(STATUS_BAD_FILE, "%s: %s: a %s is accepted", path, m->name, text ? "text" : "number");
  }
  return STATUS_OK;
}

static Status check_setting(const char *path, const char *kind, const char *key, const json_t *value) {
  const bool text = json_is_string(value);
  if (!is_name(key))
    return status_set(STATUS_BAD_FILE, "%s: %s: \"%s\" is no option: names have letters, digits and ._=-+", path, kind, key);
  if (!text && !json_is_number(value) && !json_is_boolean(value) && !json_is_null(value))
    return status_set(STATUS_BAD_FILE, "%s: %s.%s: a number, a text, true, false or null is accepted", path, kind, key);
  if (text && !is_printable(json_string_value(value)))
    return status_set(STATUS_BAD_FILE, "%s: %s.%s: a text with control characters; remove them", path, kind, key);
  return STATUS_OK;
}

/* Settings of `kind`, "train" or "eval"; NULL: none. BAD_FILE as well for options that the command accuracy gives by itself: theirs would
 * be lost. */
static Status check_settings(const char *path, const char *kind, const json_t *settings) {
  static const char *const own[] = {"data-dir", "out",       "json",
                                    "seed",     "overwrite", "resume"}; /* of training; of evaluations the first three */
  const size_t count = strcmp(kind, "train") == 0 ? sizeof own / sizeof *own : 3;
  const char *key;
  json_t *value;
  if (settings && !json_is_object(settings))
    return status_set(STATUS_BAD_FILE, "%s: %s: an object of options and their values is accepted", path, kind);
  json_object_foreach((json_t *)(uintptr_t)settings, key, value) {
    TRY(check_setting(path, kind, key, value));
    for (size_t i = 0; i < count; i++)
      if (strcmp(key, own[i]) == 0)
        return status_set(STATUS_BAD_FILE,
                          "%s: \"%s\" has \"%s\", which astra-bench accuracy gives itself, from its own options; remove it", path, kind,
                          key);
  }
  return STATUS_OK;
}

/* `path`: the file's, and the row in it. */
static Status understand_row(Experiment *e, const char *path, json_t *object) {
  Row *row = &e->row[e->count];
  const char *of = NULL, *baseline = NULL;
  *row = (Row){.figure = e->figure, .x = NAN, .paper = NAN};
  TRY(check_members(path, object, ROW_MEMBERS));
  (void)json_unpack(object, "{s:s, s?s, s?s, s?s, s?s, s?s, s?o, s?o, s?F, s?F}", "name", &row->name, "from", &row->from, "model",
                    &row->model, "of", &of, "figure", &row->figure, "baseline", &baseline, "train", &row->train, "eval", &row->eval, "x",
                    &row->x, "paper", &row->paper);
  if (!is_name(row->name) || experiment_find_row(e, row->name) >= 0)
    return bad_file(path, "every row needs a name of its own, of letters, digits and ._=-+");
  if (row->from && row->model) return bad_file(path, "a row has \"from\" or \"model\", not both");
  if (row->model && !is_printable(row->model)) return bad_file(path, "a model with control characters");
  const int from = experiment_find_row(e, row->from);
  if (row->from && (from < 0 || e->row[from].of >= 0)) return bad_file(path, "\"from\" must name an earlier row with a model of its own");
  row->of = experiment_find_row(e, of);
  if (of && (row->of < 0 || e->row[row->of].of >= 0))
    return bad_file(path, "\"of\" must name an earlier row with an evaluation of its own");
  if (of && (row->from || row->model || row->train || row->eval))
    return bad_file(path, "a row with \"of\" has no model or settings of its own: it reads another \"figure\"");
  row->baseline = experiment_find_row(e, baseline);
  if (baseline && row->baseline < 0) return bad_file(path, "a row's \"baseline\" must name an earlier row");
  if (!is_name(row->figure)) return bad_file(path, "\"figure\" is a name, of letters, digits and ._=-+");
  TRY(check_settings(path, "train", row->train));
  TRY(check_settings(path, "eval", row->eval));
  if (row->train == NULL && row->from == NULL && row->model == NULL && of == NULL)
    return bad_file(path, "a row without \"train\" needs \"from\" or \"model\"");
  e->count++;
  return STATUS_OK;
}

static Status read_row(Experiment *e, const char *path, json_t *object) {
  const char *name = json_string_value(json_object_get(object, "name"));
  char *place = NULL;
  const int made =
      name && is_name(name) ? asprintf(&place, "%s: row \"%s\"", path, name) : asprintf(&place, "%s: row %d", path, e->count + 1);
  if (made < 0) return status_no_memory(path, "the name of a row");
  const Status status = understand_row(e, place, object);
  free(place);
  return status;
}

/* Its index among those that are there so far, or -1. */
static int find_seed(const Experiment *e, int64_t seed) {
  for (int s = 0; s < e->seed_count; s++)
    if (e->seeds[s] == seed) return s;
  return -1;
}

static Status understand_quick(const char *path, const json_t *quick) {
  char *place;
  if (quick == NULL) return STATUS_OK;
  if (asprintf(&place, "%s: \"quick\"", path) < 0) return status_no_memory(path, "the name of a member");
  Status status = check_members(place, quick, QUICK_MEMBERS);
  if (status == STATUS_OK) status = check_settings(place, "train", json_object_get(quick, "train"));
  if (status == STATUS_OK) status = check_settings(place, "eval", json_object_get(quick, "eval"));
  free(place);
  return status;
}

static Status understand(Experiment *e, const char *path) {
  json_t *rows, *seeds, *train = NULL, *eval = NULL, *quick = NULL;
  const char *baseline = NULL, *evaluation = EVALUATIONS[0].name;
  e->scale = 1;
  e->unit = e->about = e->paper = "";
  e->x_label = "x";
  TRY(check_members(path, e->root, EXPERIMENT_MEMBERS));
  (void)json_unpack(e->root, "{s:s, s?s, s?s, s?s, s:s, s?F, s?s, s?s, s?s, s:o, s?o, s?o, s?o, s:o}", "title", &e->title, "about",
                    &e->about, "paper", &e->paper, "evaluation", &evaluation, "figure", &e->figure, "scale", &e->scale, "unit", &e->unit,
                    "x_label", &e->x_label, "baseline", &baseline, "seeds", &seeds, "train", &train, "eval", &eval, "quick", &quick, "rows",
                    &rows);
  TRY(check_settings(path, "train", train));
  TRY(check_settings(path, "eval", eval));
  TRY(understand_quick(path, quick));
  for (size_t i = 0; i < sizeof EVALUATIONS / sizeof *EVALUATIONS; i++)
    if (strcmp(evaluation, EVALUATIONS[i].name) == 0) e->evaluation = &EVALUATIONS[i];
  if (e->evaluation == NULL)
    return bad_file(path, "\"evaluation\" is astra-infer eval, astra-kmeans eval, astra-bench fpar or astra-bench class-token");
  const char *const texts[] = {e->title, e->about, e->paper, e->unit, e->x_label};
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
    if (!is_printable(texts[i])) return bad_file(path, "a text with control characters");
  if (!json_is_array(seeds) || json_array_size(seeds) == 0 || json_array_size(seeds) > SEEDS_MAX)
    return bad_file(path, "\"seeds\" is a list of 1 to 32 whole numbers");
  for (e->seed_count = 0; (size_t)e->seed_count < json_array_size(seeds); e->seed_count++) {
    const json_t *seed = json_array_get(seeds, (size_t)e->seed_count);
    if (!json_is_integer(seed) || json_integer_value(seed) < 0) return bad_file(path, "\"seeds\" is a list of 1 to 32 whole numbers");
    e->seeds[e->seed_count] = json_integer_value(seed);
    if (find_seed(e, e->seeds[e->seed_count]) >= 0) return bad_file(path, "a seed of \"seeds\" is there twice");
  }
  if (!json_is_array(rows) || json_array_size(rows) == 0 || json_array_size(rows) > ROWS_MAX)
    return bad_file(path, "1 to 64 rows are accepted");
  for (size_t i = 0; i < json_array_size(rows); i++) TRY(read_row(e, path, json_array_get(rows, i)));
  e->baseline = experiment_find_row(e, baseline);
  for (int i = 0; i < e->count; i++) {
    if (e->row[i].baseline < 0 && experiment_same_figure(e, i, e->baseline)) e->row[i].baseline = e->baseline;
    if (e->row[i].baseline == i) e->row[i].baseline = -1;
    e->has_baselines = e->has_baselines || e->row[i].baseline >= 0;
  }
  return baseline && e->baseline < 0 ? bad_file(path, "\"baseline\" must name a row") : STATUS_OK;
}

static Status read_file(Experiment *e) {
  const char *name = e->name;
  char relative[NAME_MAX_LENGTH + 8], *path = NULL, *text = NULL;
  size_t size;
  json_error_t error;
  if (is_looked_for(name)) {
    snprintf(relative, sizeof relative, "%s.json", name);
    const Status found = data_paths_find("experiments", relative, NULL, &path);
    if (found == STATUS_NOT_FOUND)
      return status_set(found,
                        "no experiment is named \"%s\": astra-bench accuracy --list prints all; a file of your own is given by its path, "
                        "as in ./mine.json",
                        name);
    TRY(found);
  } else if ((path = strdup(name)) == NULL) {
    return status_no_memory(NULL, "a path");
  }
  Status status = files_read(path, EXPERIMENT_FILE_LIMIT, &text, &size);
  if (status == STATUS_OK && (e->root = json_loadb(text, size, JSON_REJECT_DUPLICATES, &error)) == NULL)
    status = status_set(STATUS_BAD_FILE, "%s: line %d: %s", path, error.line, error.text);
  if (status == STATUS_OK) status = understand(e, path);
  free(text);
  free(path);
  return status;
}

/* ---------------------------------------------------------------- choosing */

static bool is_chosen(const Experiment *e, int seed) {
  for (int i = 0; i < e->chosen_count; i++)
    if (e->chosen[i] == seed) return true;
  return false;
}

bool experiment_is_run(const Experiment *e, int row, int seed) { return e->row[row].selected && is_chosen(e, seed); }

/* "1,2,3" in place of the file's, or NULL. */
static Status choose_seeds(Experiment *e, const char *seeds) {
  if (seeds == NULL) {
    const int count = e->quick ? 1 : e->seed_count;
    for (; e->chosen_count < count; e->chosen_count++) e->chosen[e->chosen_count] = e->chosen_count;
    return STATUS_OK;
  }
  int64_t list[SEEDS_MAX];
  const int count = options_integers(seeds, 0, INT64_MAX, list, SEEDS_MAX);
  while (e->chosen_count < count) {
    int index = find_seed(e, list[e->chosen_count]);
    if (is_chosen(e, index)) break;
    if (index < 0) e->seeds[index = e->seed_count++] = list[e->chosen_count];
    e->chosen[e->chosen_count++] = index;
  }
  if (count > 0 && e->chosen_count == count) return STATUS_OK;
  return status_set(STATUS_BAD_USAGE, "--seeds \"%s\": up to %d different whole numbers are accepted, as in 1,2,3", seeds, SEEDS_MAX);
}

/* A row, and those that it cannot do without: whose model it goes on from, whose evaluation it reads, which one it is compared with. */
static void select_row(Experiment *e, int row) {
  if (row < 0 || e->row[row].selected) return;
  e->row[row].selected = true;
  select_row(e, experiment_find_row(e, e->row[row].from));
  select_row(e, e->row[row].of);
  select_row(e, e->row[row].baseline);
}

static Status choose_rows(Experiment *e, const char *rows) {
  char name[NAME_MAX_LENGTH + 1];
  if (rows == NULL) {
    for (int row = 0; row < e->count; row++) e->row[row].selected = true;
    return STATUS_OK;
  }
  for (const char *at = rows;; at++) {
    size_t length = strcspn(at, ",");
    snprintf(name, sizeof name, "%.*s", (int)length, at);
    int row = length <= NAME_MAX_LENGTH ? experiment_find_row(e, name) : -1;
    if (row < 0) return status_set(STATUS_BAD_USAGE, "--rows: \"%s\" is no row of this experiment; --list --table TABLE names them", name);
    select_row(e, row);
    at += length;
    if (*at == '\0') return STATUS_OK;
  }
}

static Status choose_folder(Experiment *e, const char *out) {
  const char *slash = strrchr(e->name, '/'), *base = slash ? slash + 1 : e->name, *ending = ".json";
  const size_t length = strlen(base) - (text_ends_with(base, ending) ? strlen(ending) : 0);
  const int made = out ? asprintf(&e->folder, "%s", out) : asprintf(&e->folder, "runs/%.*s%s", (int)length, base, experiment_suffix(e));
  if (made < 0) return e->folder = NULL, status_no_memory(NULL, "a path");
  for (size_t end = strlen(e->folder); end > 1 && e->folder[end - 1] == '/';) e->folder[--end] = '\0';
  return STATUS_OK;
}

/* ---------------------------------------------------------------- one, read and chosen */

Status experiment_open(Experiment **e, const ExperimentChoice *choice) {
  Experiment *made = calloc(1, sizeof *made);
  *e = NULL;
  if (made == NULL) return status_no_memory(NULL, "an experiment");
  made->name = choice->name, made->quick = choice->quick;
  for (int i = 0; i < ROWS_MAX; i++)
    for (int s = 0; s < 2 * SEEDS_MAX; s++) made->run[i][s].value = NAN;
  Status status = read_file(made);
  if (status == STATUS_OK) status = choose_seeds(made, choice->seeds);
  if (status == STATUS_OK) status = choose_rows(made, choice->rows);
  if (status == STATUS_OK) status = choose_folder(made, choice->out);
  if (status == STATUS_OK)
    *e = made;
  else
    experiment_close(made);
  return status;
}

void experiment_close(Experiment *e) {
  if (e == NULL) return;
  for (int row = 0; row < e->count; row++)
    for (int s = 0; s < e->seed_count; s++) free(e->run[row][s].train_command), free(e->run[row][s].eval_command);
  free(e->folder);
  json_decref(e->root);
  free(e);
}

/* ---------------------------------------------------------------- models of other experiments */

bool experiment_read_reference(const char *text, int64_t seed, RunReference *to) {
  static const char begin[] = "{run:";
  if (strncmp(text, begin, sizeof begin - 1) != 0) return false;
  const char *name = text + sizeof begin - 1, *slash = name + strcspn(name, "/}");
  if (*slash != '/') return false;
  const char *row = slash + 1, *end = row + strcspn(row, "@}");
  *to = (RunReference){name, row, (int)(slash - name), (int)(end - row), seed};
  if (*end == '@') {
    if (!isdigit((unsigned char)end[1])) return false;
    char *behind;
    to->seed = strtoll(end + 1, &behind, 10);
    end = behind;
  }
  return *end == '}' && is_name_of_length(name, (size_t)to->experiment_length) && is_name_of_length(row, (size_t)to->row_length);
}

static Status visit_text(const char *text, int64_t seed, ReferenceVisit *visit, void *context) {
  RunReference to;
  for (const char *at = text ? strchr(text, '{') : NULL; at; at = strchr(at + 1, '{'))
    if (experiment_read_reference(at, seed, &to)) TRY(visit(context, &to));
  return STATUS_OK;
}

static Status visit_settings(json_t *settings, int64_t seed, ReferenceVisit *visit, void *context) {
  const char *key;
  json_t *value;
  Status status = settings ? STATUS_OK : status_no_memory(NULL, "settings");
  json_object_foreach(settings, key, value) {
    if (status == STATUS_OK) status = visit_text(json_string_value(value), seed, visit, context);
  }
  json_decref(settings);
  return status;
}

Status experiment_each_reference(const Experiment *e, int row, int64_t seed, bool trained, ReferenceVisit *visit, void *context) {
  const Row *r = &e->row[row];
  if (r->of >= 0) return STATUS_OK; /* it reads what another one has */
  if (!r->train || !trained) TRY(visit_text(r->model, seed, visit, context));
  if (r->train && !trained) TRY(visit_settings(experiment_settings(e, "train", r->train), seed, visit, context));
  return visit_settings(experiment_settings(e, "eval", r->eval), seed, visit, context);
}

/* ---------------------------------------------------------------- all that are found by their names */

typedef struct Waiting {
  const char *name;
  char *const *others; /* [count]; itself may be among them */
  size_t count;
  bool waits;
} Waiting;

static Status wait_for(void *context, const RunReference *to) {
  Waiting *w = context;
  const size_t length = (size_t)to->experiment_length;
  for (size_t i = 0; i < w->count; i++)
    w->waits |= strcmp(w->others[i], w->name) != 0 && strlen(w->others[i]) == length && memcmp(w->others[i], to->experiment, length) == 0;
  return STATUS_OK;
}

/* Whether a row of the experiment starts or learns from a model of one of these others. */
static Status waits_for(const char *name, char *const *others, size_t count, bool *waits) {
  Experiment *e;
  TRY(experiment_open(&e, &(ExperimentChoice){.name = name}));
  Waiting waiting = {name, others, count, false};
  Status status = STATUS_OK;
  for (int row = 0; row < e->count && status == STATUS_OK; row++) status = experiment_each_reference(e, row, 0, false, wait_for, &waiting);
  *waits = waiting.waits;
  experiment_close(e);
  return status;
}

/* From names in any order, in place: of those left, the first that waits for none of them is next. */
static Status order_names(char **names, size_t count) {
  for (size_t done = 0; done < count; done++) {
    bool waits = true;
    size_t next = done;
    for (; next < count; next++) {
      TRY(waits_for(names[next], names + done, count - done, &waits));
      if (!waits) break;
    }
    if (waits) return status_set(STATUS_BAD_FILE, "%s.json: it and other experiments start from each other's models", names[done]);
    char *const name = names[next];
    memmove(names + done + 1, names + done, (next - done) * sizeof *names);
    names[done] = name;
  }
  return STATUS_OK;
}

typedef struct Names {
  char **list; /* owned */
  size_t count, room;
} Names;

/* NAME of NAME.json, unless it is there; other files are no experiments. */
static Status add_name(void *context, const char *file) {
  static const char ending[] = ".json";
  Names *to = context;
  const size_t length = strlen(file), stem = length < sizeof ending ? 0 : length - (sizeof ending - 1);
  if (stem == 0 || strcmp(file + stem, ending) != 0) return STATUS_OK;
  for (size_t i = 0; i < to->count; i++)
    if (strlen(to->list[i]) == stem && memcmp(to->list[i], file, stem) == 0) return STATUS_OK;
  TRY(ARRAY_RESERVE(to->list, to->count, 1, to->room, "names of experiments"));
  if ((to->list[to->count] = strndup(file, stem)) == NULL) return status_no_memory(NULL, "a name");
  to->count++;
  return STATUS_OK;
}

/* Of all folders; which of two files with one name counts is decided where it is opened, by its name. */
static Status collect_names(const DataRoots *roots, Names *to) {
  for (int i = 0; i < roots->count; i++)
    if (files_is_dir(roots->paths[i])) TRY(files_each(roots->paths[i], add_name, to));
  if (to->count > 0) qsort(to->list, to->count, sizeof *to->list, order_by_bytes);
  return STATUS_OK;
}

/* Whether it can be opened by its name. */
static Status try_name(const char *name) {
  Experiment *e;
  if (!is_looked_for(name)) return status_set(STATUS_BAD_FILE, "experiments/%s.json: names have letters, digits and _=-+", name);
  const Status status = experiment_open(&e, &(ExperimentChoice){.name = name});
  experiment_close(e);
  return status;
}

/* "experiments" is a common name: in the current directory such a folder may hold JSON of another program. */
static Status drop_others(Names *names) {
  for (size_t i = 0; i < names->count;) {
    const Status status = try_name(names->list[i]);
    if (status == STATUS_NO_MEMORY) return status;
    if (status == STATUS_OK) {
      i++;
      continue;
    }
    log_warning("no experiment, left out: %s", status_message());
    free(names->list[i]);
    names->count--;
    memmove(names->list + i, names->list + i + 1, (names->count - i) * sizeof *names->list);
  }
  return STATUS_OK;
}

static Status none_found(const DataRoots *roots) {
  char *text = NULL;
  size_t size;
  FILE *folders = open_memstream(&text, &size);
  if (folders == NULL) return status_no_memory(NULL, "a list of folders");
  for (int i = 0; i < roots->count; i++) fprintf(folders, "%s%s", i > 0 ? ", " : "", roots->paths[i]);
  if (fclose(folders) != 0) text = NULL;
  status_set(STATUS_NOT_FOUND,
             "there is no experiment in %s; install those of the programs, or give a file of your own by its path: --table ./mine.json",
             text ? text : "any folder");
  free(text);
  return STATUS_NOT_FOUND;
}

Status experiment_names(char ***names, size_t *count) {
  Names found = {0};
  DataRoots roots;
  Status status = data_paths_roots(&roots, "experiments", NULL);
  if (status == STATUS_OK) status = collect_names(&roots, &found);
  if (status == STATUS_OK) status = drop_others(&found);
  if (status == STATUS_OK && found.count == 0) status = none_found(&roots);
  data_paths_release(&roots);
  if (status == STATUS_OK) status = order_names(found.list, found.count);
  if (status != STATUS_OK) {
    files_list_free(found.list, found.count);
    found = (Names){0};
  }
  *names = found.list, *count = found.count;
  return status;
}

json_t *experiment_settings(const Experiment *e, const char *kind, json_t *own) {
  json_t *all = json_object(), *common = json_object_get(e->root, kind), *quick = json_object_get(json_object_get(e->root, "quick"), kind);
  if (all && common) json_object_update(all, common);
  if (all && own) json_object_update(all, own);
  if (all && e->quick && quick) json_object_update(all, quick);
  return all;
}

/* Whether a text of the row's settings of this kind has {data}. */
static bool settings_use_data(const Experiment *e, const char *kind, json_t *own) {
  const char *key;
  json_t *value, *settings = experiment_settings(e, kind, own);
  bool uses = false;
  json_object_foreach(settings, key, value) {
    uses = uses || (json_is_string(value) && strstr(json_string_value(value), "{data}") != NULL);
  }
  json_decref(settings);
  return uses;
}

bool experiment_uses_data(const Experiment *e) {
  for (const Row *row = e->row; row < e->row + e->count; row++) {
    if (row->of >= 0) continue; /* it reads what another one has */
    if (row->model && strstr(row->model, "{data}")) return true;
    if ((row->train && settings_use_data(e, "train", row->train)) || settings_use_data(e, "eval", row->eval)) return true;
  }
  return false;
}

/* ---------------------------------------------------------------- folders */

const char *experiment_suffix(const Experiment *e) { return e->quick ? "-quick" : ""; }

char *experiment_folder(const char *parent, const char *name, bool quick) {
  char folder[NAME_MAX_LENGTH + 8];
  snprintf(folder, sizeof folder, "%s%s", name, quick ? "-quick" : "");
  return files_join(parent, folder);
}

char *experiment_place(const Experiment *e, int row, int seed, const char *suffix) {
  char relative[2 * NAME_MAX_LENGTH + 32];
  snprintf(relative, sizeof relative, "seed-%lld/%s%s", (long long)e->seeds[seed], e->row[row].name, suffix);
  return files_join(e->folder, relative);
}
