/* The training state: see state.h. One table (describe) serves saving and loading, and so does one function for the counters in it
 * (move_counters), so that neither can forget an entry. */
#include "train/state.h"
#include "autograd/param.h"
#include "base/hash.h"
#include "nn/checkpoint.h"
#include "nn/safetensors.h"
#include "train/evaluations.h"
#include "train/session.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- Digest of weights that do not learn ---- */

/* Which weights adapters stand beside, or a teacher has: a number that a training state keeps, so that a run does not go on with others.
 * FNV-1a, sampled. */

enum { PAGE = 4096, PAGES = 16, WHOLE = PAGE * PAGES };

static uint64_t add_sampled(uint64_t hash, const uint8_t *data, size_t bytes) {
  if (bytes <= WHOLE) return hash_add(hash, data, bytes);
  for (size_t page = 0; page < PAGES; page++) hash = hash_add(hash, data + (bytes - PAGE) * page / (PAGES - 1), PAGE);
  return hash;
}

/* Name, size and numbers of a parameter that has values, as they lie in memory (the same weights in 16 bits give another digest). Of a
 * tensor above 64 KiB 16 pages, evenly spread from the first to the last, stand for all of it: of 16 GB some 20 MB are read, and a change
 * that training or merging adapters makes is in every page. */
static uint64_t add_param(uint64_t hash, const Param *param) {
  const Tensor *tensor = &param->tensor;
  const LowbitMatrix *matrix = tensor->lowbit;
  const size_t count = (size_t)tensor_count(tensor);
  const int64_t facts[2] = {tensor_count(tensor), (int64_t)tensor->narrow_kind};
  hash = hash_add(hash_add(hash, param->name, strlen(param->name)), facts, sizeof facts);
  if (tensor->narrow != NULL) return add_sampled(hash, (const uint8_t *)tensor->narrow, count * sizeof *tensor->narrow);
  if (matrix == NULL) return add_sampled(hash, (const uint8_t *)tensor->value, count * sizeof *tensor->value);
  hash = add_sampled(hash, matrix->numbers, (size_t)matrix->outputs * lowbit_row_bytes(matrix->kind, matrix->inputs));
  return matrix->scale == NULL ? hash : hash_add(hash, matrix->scale, (size_t)matrix->outputs * sizeof *matrix->scale);
}

/* Of the parameters that do not learn; 0 where everything learns. */
static int64_t frozen_digest(const ParamSet *params) {
  uint64_t hash = HASH_BEGIN;
  bool any = false;
  for (size_t i = 0; i < params->count; i++) {
    if (!params->list[i].frozen) continue;
    hash = add_param(hash, &params->list[i]);
    any = true;
  }
  return any ? hash_signed(hash) : 0;
}

/* Of a teacher's, all of which have values. */
static int64_t teacher_digest(const ParamSet *params) {
  uint64_t hash = HASH_BEGIN;
  for (size_t i = 0; i < params->count; i++) hash = add_param(hash, &params->list[i]);
  return hash_signed(hash);
}

/* ---- State ---- */

enum { STATE_NAME = 64, FIXED_ENTRIES = 11, SITE_ENTRIES = 6, PART = 1024 };

/* Places in "counters", which files keep. */
enum {
  COUNTER_STEP,
  COUNTER_OPTIMIZER, /* its steps */
  COUNTER_EMULATION, /* likewise */
  COUNTER_UPDATES,   /* of the noise moments; of several bit rates they are in "rates" */
  COUNTER_GENERATORS,
  GENERATORS = 3,
  GENERATOR_WORDS = sizeof((Rng *)0)->state / sizeof(int64_t),
  COUNTERS = COUNTER_GENERATORS + GENERATORS * GENERATOR_WORDS
};
static const int64_t STEPS_MAX = INT64_C(1000000000000000);

typedef struct Entry Entry;
typedef Status Check(const Entry *entry, const SafeTensor *tensor, const char *path);

struct Entry {
  char name[STATE_NAME];
  SafeDtype dtype;
  int64_t count;
  void *data;
  Check *check;           /* of what a file holds; NULL: anything will do */
  bool optional;          /* files of earlier versions do not have it */
  const Session *session; /* for what the check says of the run; NULL: it says nothing of it */
};

typedef struct Table {
  Entry *list;
  size_t count;
  int64_t counters[COUNTERS];
  int64_t base, teacher;         /* frozen_digest, teacher_digest */
  int64_t data[TASK_PARTS];      /* TaskData.digest */
  int64_t updates[CONFIG_RATES]; /* of the noise moments of each bit rate */
} Table;

/* ---------------------------------------------------------------- what a file may hold */

/* The numbers as they lie in the file, perhaps not aligned. */
static Status check_finite(const Entry *entry, const SafeTensor *tensor, const char *path) {
  real part[PART];
  for (int64_t at = 0; at < entry->count; at += PART) {
    int64_t count = entry->count - at < PART ? entry->count - at : PART;
    memcpy(part, tensor->data + (size_t)at * sizeof *part, (size_t)count * sizeof *part);
    TRY(checkpoint_check_finite(path, tensor->name, part, count));
  }
  return STATUS_OK;
}

static Status check_bfloats(const Entry *entry, const SafeTensor *tensor, const char *path) {
  for (int64_t i = 0; i < entry->count; i++) {
    uint16_t number;
    memcpy(&number, tensor->data + (size_t)i * sizeof number, sizeof number);
    if ((number & 0x7f80) == 0x7f80)
      return status_set(STATUS_BAD_FILE, "%s: \"%s\" holds a number that is not finite: it is damaged; start anew", path, tensor->name);
  }
  return STATUS_OK;
}

static Status check_scales(const Entry *entry, const SafeTensor *tensor, const char *path) {
  for (int64_t i = 0; i < entry->count; i++) {
    float scale;
    memcpy(&scale, tensor->data + (size_t)i * sizeof scale, sizeof scale);
    if (!(scale >= 0 && isfinite(scale)))
      return status_set(STATUS_BAD_FILE, "%s: \"%s\" holds a scale that none can be: it is damaged; start anew", path, tensor->name);
  }
  return STATUS_OK;
}

/* A stored step is one that a run can have come to: all counters agree, and each generator is in a state that it can be in. */
static Status check_counters(const Entry *entry, const SafeTensor *tensor, const char *path) {
  int64_t counters[COUNTERS];
  memcpy(counters, tensor->data, (size_t)entry->count * sizeof *counters);
  const int64_t step = counters[COUNTER_STEP], updates = counters[COUNTER_UPDATES];
  bool fine = step >= 0 && step <= STEPS_MAX && counters[COUNTER_OPTIMIZER] == step && counters[COUNTER_EMULATION] >= 0 && updates >= 0 &&
              updates <= STEPS_MAX;
  for (int r = 0; r < GENERATORS; r++) {
    int64_t any = 0;
    for (int word = 0; word < GENERATOR_WORDS; word++) any |= counters[COUNTER_GENERATORS + GENERATOR_WORDS * r + word];
    fine = fine && any != 0;
  }
  if (fine) return STATUS_OK;
  return status_set(STATUS_BAD_FILE, "%s: \"counters\" holds numbers that no run can have written: it is damaged; start anew", path);
}

static Status check_updates(const Entry *entry, const SafeTensor *tensor, const char *path) {
  for (int64_t i = 0; i < entry->count; i++) {
    int64_t updates;
    memcpy(&updates, tensor->data + (size_t)i * sizeof updates, sizeof updates);
    if (updates < 0 || updates > STEPS_MAX)
      return status_set(STATUS_BAD_FILE, "%s: \"rates\" holds a number that no run can have come to: it is damaged; start anew", path);
  }
  return STATUS_OK;
}

/* Adapters mean nothing beside other weights than those that they were trained beside. */
static Status check_base(const Entry *entry, const SafeTensor *tensor, const char *path) {
  if (memcmp(tensor->data, entry->data, sizeof(int64_t)) == 0) return STATUS_OK;
  return status_set(STATUS_BAD_FILE,
                    "%s: the weights beside which its adapters were trained are not those that --model and --init of this run name: they "
                    "have been replaced; put them back, or start anew",
                    path);
}

static Status check_same_teacher(const Entry *entry, const SafeTensor *tensor, const char *path) {
  if (memcmp(tensor->data, entry->data, sizeof(int64_t)) == 0) return STATUS_OK;
  return status_set(
      STATUS_BAD_FILE,
      "%s: the teacher that the run has learned from had other weights than the one that --teacher, or --model and --init, of "
      "this run name: they have been replaced; put them back, or start anew",
      path);
}

/* Which samples are learnt from, and in which order, goes by their numbers, and so may which are held out: of other data the run would
 * learn what it is evaluated on. */
static Status check_same_data(const Entry *entry, const SafeTensor *tensor, const char *path) {
  const Session *session = entry->session;
  const TrainOptions *options = &session->options;
  const int64_t *here = entry->data;
  int64_t before[TASK_PARTS];
  memcpy(before, tensor->data, sizeof before);
  const bool learnt = before[TASK_TRAIN] != here[TASK_TRAIN], tested = before[TASK_TEST] != here[TASK_TEST];
  if (!learnt && !tested) return STATUS_OK;
  const bool apart = !learnt && options->eval_dataset != NULL;
  return status_set(STATUS_BAD_VALUE,
                    "--%s %s holds other data (%s%s%s part) than when the run was saved in %s: put back what was there, or begin a new run "
                    "from its weights, with --init %s and another --out",
                    apart ? "eval-dataset" : "dataset", apart ? options->eval_dataset : options->dataset, learnt ? "training" : "",
                    learnt && tested ? " and " : "", tested ? session_test_name(session) : "", path, options->out);
}

/* ---------------------------------------------------------------- the table */

static void add_entry(Table *table, SafeDtype dtype, int64_t count, void *data, const char *name, Check *check) {
  if (data == NULL) return;
  Entry *entry = &table->list[table->count++];
  snprintf(entry->name, sizeof entry->name, "%s", name);
  entry->dtype = dtype;
  entry->count = count;
  entry->data = data;
  entry->check = check;
}

static void state_add(Table *table, int64_t count, void *data, const char *name) {
  add_entry(table, SAFE_REAL, count, data, name, check_finite);
}

/* Numbers of the width that the run keeps them in. */
static void add_moment(Table *table, const Optimizer *optimizer, const OptimizerMoment *moment, const char *name) {
  char scales[STATE_NAME];
  switch ((OptimizerMoments)optimizer->options.moments) {
  case OPTIMIZER_16_BITS:
    add_entry(table, SAFE_BF16, optimizer->params->total, moment->numbers, name, check_bfloats);
    break;
  case OPTIMIZER_8_BITS:
    snprintf(scales, sizeof scales, "%s_scales", name);
    add_entry(table, SAFE_U8, optimizer->params->total, moment->numbers, name, NULL); /* every byte is a code */
    add_entry(table, SAFE_F32, optimizer->scales, moment->scales, scales, check_scales);
    break;
  default:
    state_add(table, optimizer->params->total, moment->numbers, name);
  }
}

static void add_site(Table *table, EmulateSite *site, int index) {
  int64_t codes = site->book.groups * site->book.entries, words = site->book.entries * site->book.width;
  int64_t moments = noise_spread(site->book.groups, site->book.width, site->navq.kind);
  char name[STATE_NAME];
#define SITE_ENTRY(count, data, label)                                                                                                     \
  snprintf(name, sizeof name, "site.%d.%s", index, label);                                                                                 \
  state_add(table, count, data, name)
  SITE_ENTRY(words, site->book.codewords, "codewords");
  SITE_ENTRY(codes, site->ema.sizes, "sizes");
  SITE_ENTRY(words, site->ema.sums, "sums");
  SITE_ENTRY(site->book.width, site->navq.mean, "noise_mean");
  SITE_ENTRY(moments, site->navq.covariance, "noise_covariance");
  SITE_ENTRY(moments, site->navq.factor, "noise_factor");
#undef SITE_ENTRY
}

static void move_words(void *session, int64_t *table, size_t words, bool load) {
  memcpy(load ? session : table, load ? table : session, words * sizeof *table);
}

/* Into the session (load), or out of it, which leaves the session as it is. */
static void move_counters(Session *session, Table *table, bool load) {
  Emulation *emulation = &session->emulation;
  Rng *const generators[GENERATORS] = {&session->map_rng, &session->revive_rng, &session->mixup_rng};
  move_words(&session->step, table->counters + COUNTER_STEP, 1, load);
  move_words(&session->optimizer.steps, table->counters + COUNTER_OPTIMIZER, 1, load);
  move_words(&emulation->step, table->counters + COUNTER_EMULATION, 1, load);
  for (int r = 0; r < GENERATORS; r++)
    move_words(generators[r]->state, table->counters + COUNTER_GENERATORS + GENERATOR_WORDS * r, GENERATOR_WORDS, load);
  for (int index = 0; index < emulate_all_sites(emulation); index++) { /* those of a rate have the same number */
    int64_t *updates = emulation->rates > 1 ? &table->updates[index / emulate_sites(emulation)] : &table->counters[COUNTER_UPDATES];
    move_words(&emulation->all[index].navq.updates, updates, 1, load);
  }
}

static Status describe(const Session *session, Table *table) {
  const Emulation *emulation = &session->emulation;
  const int sites = emulate_all_sites(emulation);
  *table = (Table){.list = calloc((size_t)(FIXED_ENTRIES + SITE_ENTRIES * sites), sizeof *table->list)};
  if (table->list == NULL) return status_no_memory(NULL, "the state's table");
  const Optimizer *optimizer = &session->optimizer;
  int64_t total = optimizer->params->total;
  if (session->data.digest[TASK_TRAIN] != 0) { /* first: other data may have another number of classes, too */
    memcpy(table->data, session->data.digest, sizeof table->data);
    add_entry(table, SAFE_I64, TASK_PARTS, table->data, "data", check_same_data);
    table->list[0].optional = true;
    table->list[0].session = session;
  }
  state_add(table, total, optimizer->params->values, "params");
  add_moment(table, optimizer, &optimizer->first, "optimizer.first");
  add_moment(table, optimizer, &optimizer->second, "optimizer.second");
  state_add(table, total, optimizer->average, "optimizer.average");
  add_entry(table, SAFE_I64, COUNTERS, table->counters, "counters", check_counters);
  if (session->options.lora_rank > 0) add_entry(table, SAFE_I64, 1, &table->base, "base", check_base);
  if (session->teacher.model != NULL) {
    table->teacher = teacher_digest(model_params(session->teacher.model));
    add_entry(table, SAFE_I64, 1, &table->teacher, "teacher", check_same_teacher);
    table->list[table->count - 1].optional = true;
  }
  if (emulation->rates > 1) add_entry(table, SAFE_I64, emulation->rates, table->updates, "rates", check_updates);
  for (int index = 0; index < sites; index++) add_site(table, &emulation->all[index], index);
  move_counters((Session *)session, table, false); /* reads it alone */
  table->base = frozen_digest(optimizer->params);
  return STATUS_OK;
}

static Status paths(const char *directory, char **folder, char **file) {
  *folder = files_join(directory, "training");
  *file = *folder ? files_join(*folder, "state.safetensors") : NULL;
  return *file ? STATUS_OK : status_no_memory(directory, "a path");
}

size_t state_bytes(const Session *session) {
  Table table;
  size_t bytes = 0;
  if (describe(session, &table) != STATUS_OK) return 0;
  for (size_t i = 0; i < table.count; i++) bytes += (size_t)table.list[i].count * safe_dtype_bytes(table.list[i].dtype);
  free(table.list);
  return bytes;
}

/* Numbers that a state is refused for when it is loaded are not saved in the place of the one before. */
static Status check_saved(const Session *session, const Entry *entry) {
  char name[STATE_NAME];
  const SafeTensor tensor = {.name = strcpy(name, entry->name), .count = entry->count, .data = entry->data};
  const bool numbers = entry->check == check_finite || entry->check == check_bfloats || entry->check == check_scales;
  if (!numbers || entry->check(entry, &tensor, "") == STATUS_OK) return STATUS_OK;
  return status_set(
      STATUS_NUMERIC,
      "training diverged: after step %lld %s holds a number that is not finite, and the state is not saved; the one before it, if "
      "there is one, stays. A lower --learning-rate, or --clip, may help",
      (long long)session->step, entry->name);
}

Status state_save(const Session *session, const char *directory) {
  Table table = {0};
  char *folder = NULL, *path = NULL;
  Status status = paths(directory, &folder, &path);
  if (status == STATUS_OK) status = describe(session, &table);
  SafeItem *items = status == STATUS_OK ? calloc(table.count, sizeof *items) : NULL;
  if (status == STATUS_OK && items == NULL) status = status_no_memory(NULL, "the state's table");
  for (size_t i = 0; items != NULL && i < table.count; i++) {
    const Entry *entry = &table.list[i];
    if (status == STATUS_OK) status = check_saved(session, entry);
    items[i] = (SafeItem){
        .name = entry->name, .dtype = entry->dtype, .source = entry->dtype, .dims = 1, .shape = {entry->count}, .data = entry->data};
  }
  if (status == STATUS_OK) status = files_make_dirs(folder);
  if (status == STATUS_OK) status = safetensors_save(path, items, table.count, NULL);
  free(items);
  free(table.list);
  free(folder);
  free(path);
  return status;
}

Status state_forget(const char *directory) {
  static const char *const names[] = {"training/state.safetensors", EVALUATIONS_FILE};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    char *path = files_join(directory, names[i]);
    const Status status = path ? files_remove(path) : status_no_memory(NULL, "a path");
    free(path);
    TRY(status);
  }
  return STATUS_OK;
}

static Status check_entry(const Entry *entry, const SafeFile *file, const SafeTensor *tensor) {
  if (tensor == NULL && entry->optional) return STATUS_OK;
  if (tensor == NULL)
    return status_set(STATUS_BAD_FILE, "%s has no \"%s\": it was written by a run with other options; resume with the same ones",
                      file->path, entry->name);
  if (tensor->count == entry->count && tensor->dtype != entry->dtype)
    return status_set(STATUS_BAD_FILE, "%s: \"%s\" holds %s, but this run needs %s: resume with the options of that run%s", file->path,
                      entry->name, safe_dtype_name(tensor->dtype), safe_dtype_name(entry->dtype),
                      strncmp(entry->name, "optimizer.", 10) == 0 ? " (--optimizer-bits)" : "");
  if (tensor->count != entry->count)
    return status_set(STATUS_BAD_FILE, "%s: \"%s\" holds %lld numbers, but this run needs %lld: resume with the options of that run",
                      file->path, entry->name, (long long)tensor->count, (long long)entry->count);
  Status status = safetensors_verify(tensor);
  if (status != STATUS_OK) return status_wrap(status, "%s", file->path);
  return entry->check != NULL ? entry->check(entry, tensor, file->path) : STATUS_OK;
}

/* What a run has learnt of its classes goes by their numbers. */
static Status check_classes(const Session *session, const char *directory) {
  ModelConfig before;
  if (config_load(&before, directory) != STATUS_OK) return STATUS_OK; /* the disk was full behind the state, say: it is written again */
  const bool as_many = before.classes == session->config->classes;
  const int64_t other = as_many ? config_other_label(&before, session->config->labels) : -1;
  Status status = STATUS_OK;
  if (other >= 0)
    status = status_set(STATUS_BAD_VALUE,
                        "class %lld is called \"%s\" in the data set, and was \"%s\" when the run was saved in %s: resume it with the "
                        "data that it began with",
                        (long long)other, session->config->labels[other], before.labels[other], directory);
  config_release(&before);
  return status;
}

Status state_load(Session *session, const char *directory) {
  char *folder = NULL, *path = NULL;
  TRY(check_classes(session, directory));
  Status status = paths(directory, &folder, &path);
  SafeFile file = {0};
  Table table = {0};
  if (status == STATUS_OK && !files_exists(path))
    status =
        status_set(STATUS_NOT_FOUND, "%s is not there: that run ended before its first checkpoint, so begin again with its command", path);
  if (status == STATUS_OK) status = safetensors_open(&file, path);
  if (status == STATUS_OK) status = describe(session, &table);
  for (size_t i = 0; i < table.count && status == STATUS_OK; i++)
    status = check_entry(&table.list[i], &file, safetensors_find(&file, table.list[i].name));
  if (status == STATUS_OK) { /* nothing is overwritten before everything fits */
    for (size_t i = 0; i < table.count; i++) {
      const SafeTensor *tensor = safetensors_find(&file, table.list[i].name);
      if (tensor != NULL) memcpy(table.list[i].data, tensor->data, tensor->bytes);
    }
    move_counters(session, &table, true);
    for (int index = 0; index < emulate_all_sites(&session->emulation); index++) codebook_refresh(&session->emulation.all[index].book);
  }
  free(table.list);
  safetensors_close(&file);
  free(folder);
  free(path);
  return status;
}
