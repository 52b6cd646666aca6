/* The training state: see state.h. One table (describe) serves saving and loading, so that neither can forget an entry. */
#include "train/state.h"
#include "nn/checkpoint_files.h"
#include "nn/safetensors.h"
#include "nn/safetensors_convert.h"
#include "train/frozen_digest.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { COUNTERS = 16, NAME = 64, FIXED_ENTRIES = 9, SITE_ENTRIES = 6, PART = 1024 };
static const int64_t STEPS_MOST = INT64_C(1000000000000000);

typedef struct Entry Entry;
typedef Status Check(const Entry *entry, const SafeTensor *tensor, const char *path);

struct Entry {
  char name[NAME];
  SafeDtype dtype;
  int64_t count;
  void *data;
  Check *check; /* of what a file holds */
};

typedef struct Table {
  Entry *list;
  size_t count;
  int64_t counters[COUNTERS];
  int64_t base; /* frozen_digest */
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

/* Every byte is a code. */
static Status check_nothing(const Entry *entry, const SafeTensor *tensor, const char *path) {
  (void)entry, (void)tensor, (void)path;
  return STATUS_OK;
}

/* A stored step is one that a run can have come to: all counters agree, and each generator is in a state that it can be in. */
static Status check_counters(const Entry *entry, const SafeTensor *tensor, const char *path) {
  int64_t counters[COUNTERS];
  memcpy(counters, tensor->data, (size_t)entry->count * sizeof *counters);
  bool fine = counters[0] >= 0 && counters[0] <= STEPS_MOST && counters[1] == counters[0] && counters[2] >= 0 && counters[3] >= 0;
  for (int r = 0; r < 3; r++) {
    int64_t any = 0;
    for (int word = 0; word < 4; word++) any |= counters[4 + 4 * r + word];
    fine = fine && any != 0;
  }
  if (fine) return STATUS_OK;
  return status_set(STATUS_BAD_FILE, "%s: \"counters\" holds numbers that no run can have written: it is damaged; start anew", path);
}

/* Adapters mean nothing beside other weights than those that they were trained beside. */
static Status check_base(const Entry *entry, const SafeTensor *tensor, const char *path) {
  if (memcmp(tensor->data, entry->data, sizeof(int64_t)) == 0) return STATUS_OK;
  return status_set(STATUS_BAD_FILE,
                    "%s: the weights beside which its adapters were trained are not those that --model and --init of this run name: they "
                    "have been replaced; put them back, or start anew",
                    path);
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

static void add(Table *table, int64_t count, void *data, const char *name) { add_entry(table, SAFE_REAL, count, data, name, check_finite); }

/* Numbers of the width that the run keeps them in. */
static void add_moment(Table *table, const Optimizer *optimizer, const OptimizerMoment *moment, const char *name) {
  char scales[NAME];
  switch ((OptimizerMoments)optimizer->options.moments) {
  case OPTIMIZER_16_BITS:
    add_entry(table, SAFE_BF16, optimizer->params->total, moment->numbers, name, check_bfloats);
    break;
  case OPTIMIZER_8_BITS:
    snprintf(scales, sizeof scales, "%s_scales", name);
    add_entry(table, SAFE_U8, optimizer->params->total, moment->numbers, name, check_nothing);
    add_entry(table, SAFE_F32, optimizer->scales, moment->scales, scales, check_scales);
    break;
  default:
    add(table, optimizer->params->total, moment->numbers, name);
  }
}

static void add_site(Table *table, EmulateSite *site, int index) {
  int64_t codes = site->book.groups * site->book.entries, words = site->book.entries * site->book.width;
  int64_t part = site->book.width / site->book.groups, moments = site->navq.kind == NOISE_FULL ? site->book.width * part : site->book.width;
  char name[NAME];
#define SITE_ENTRY(count, data, label)                                                                                                     \
  snprintf(name, sizeof name, "site.%d.%s", index, label);                                                                                 \
  add(table, count, data, name)
  SITE_ENTRY(words, site->book.codewords, "codewords");
  SITE_ENTRY(codes, site->ema.sizes, "sizes");
  SITE_ENTRY(words, site->ema.sums, "sums");
  SITE_ENTRY(site->book.width, site->navq.mean, "noise_mean");
  SITE_ENTRY(moments, site->navq.covariance, "noise_covariance");
  SITE_ENTRY(moments, site->navq.factor, "noise_factor");
#undef SITE_ENTRY
}

static void counters_get(const Session *session, int64_t counters[COUNTERS]) {
  const Rng *rng[] = {&session->map_rng, &session->revive_rng, &session->mixup_rng};
  counters[0] = session->step;
  counters[1] = session->optimizer.steps;
  counters[2] = (int64_t)session->emulation.step;
  counters[3] = session->emulation.site ? session->emulation.site[0].navq.updates : 0;
  for (int r = 0; r < 3; r++) memcpy(counters + 4 + 4 * r, rng[r]->state, sizeof rng[r]->state);
}

static void counters_put(Session *session, const int64_t counters[COUNTERS]) {
  Rng *rng[] = {&session->map_rng, &session->revive_rng, &session->mixup_rng};
  session->step = counters[0];
  session->optimizer.steps = counters[1];
  session->emulation.step = (uint64_t)counters[2];
  for (int r = 0; r < 3; r++) memcpy(rng[r]->state, counters + 4 + 4 * r, sizeof rng[r]->state);
  for (int index = 0; index < session->emulation.blocks * session->emulation.sites; index++)
    session->emulation.site[index].navq.updates = counters[3];
}

static Status describe(const Session *session, Table *table) {
  int sites = session->emulation.blocks * session->emulation.sites;
  *table = (Table){.list = calloc((size_t)(FIXED_ENTRIES + SITE_ENTRIES * sites), sizeof *table->list)};
  if (table->list == NULL) return status_set(STATUS_NO_MEMORY, "no memory for the state's table");
  const Optimizer *optimizer = &session->optimizer;
  int64_t total = optimizer->params->total;
  add(table, total, optimizer->params->values, "params");
  add_moment(table, optimizer, &optimizer->first, "optimizer.first");
  add_moment(table, optimizer, &optimizer->second, "optimizer.second");
  add(table, total, optimizer->average, "optimizer.average");
  add_entry(table, SAFE_I64, COUNTERS, table->counters, "counters", check_counters);
  if (session->options.lora_rank > 0) add_entry(table, SAFE_I64, 1, &table->base, "base", check_base);
  for (int index = 0; index < sites; index++) add_site(table, &session->emulation.site[index], index);
  counters_get(session, table->counters);
  table->base = frozen_digest(optimizer->params);
  return STATUS_OK;
}

static Status paths(const char *directory, char **folder, char **file) {
  *folder = files_join(directory, "training");
  *file = *folder ? files_join(*folder, "state.safetensors") : NULL;
  return *file ? STATUS_OK : status_set(STATUS_NO_MEMORY, "no memory");
}

static Status save_table(const Table *table, const char *folder, const char *path) {
  SafeItem *items = calloc(table->count, sizeof *items);
  if (items == NULL) return status_set(STATUS_NO_MEMORY, "no memory for the state's table");
  for (size_t i = 0; i < table->count; i++) {
    const Entry *entry = &table->list[i];
    items[i] = (SafeItem){
        .name = entry->name, .dtype = entry->dtype, .source = entry->dtype, .dims = 1, .shape = {entry->count}, .data = entry->data};
  }
  Status status = files_make_dirs(folder);
  if (status == STATUS_OK) status = safetensors_save(path, items, table->count, NULL);
  free(items);
  return status;
}

Status state_save(const Session *session, const char *directory) {
  Table table = {0};
  char *folder = NULL, *path = NULL;
  Status status = paths(directory, &folder, &path);
  if (status == STATUS_OK) status = describe(session, &table);
  if (status == STATUS_OK) status = save_table(&table, folder, path);
  free(table.list);
  free(folder);
  free(path);
  return status;
}

static Status check_entry(const Entry *entry, const SafeFile *file, const SafeTensor *tensor) {
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
  return entry->check(entry, tensor, file->path);
}

static Status load_table(const Table *table, const SafeFile *file) {
  for (size_t i = 0; i < table->count; i++) TRY(check_entry(&table->list[i], file, safetensors_find(file, table->list[i].name)));
  for (size_t i = 0; i < table->count; i++) { /* nothing is overwritten before everything fits */
    const SafeTensor *tensor = safetensors_find(file, table->list[i].name);
    memcpy(table->list[i].data, tensor->data, tensor->bytes);
  }
  return STATUS_OK;
}

static Status load_file(Session *session, const char *path) {
  SafeFile file = {0};
  Table table = {0};
  TRY(safetensors_open(&file, path));
  Status status = describe(session, &table);
  if (status == STATUS_OK) status = load_table(&table, &file);
  if (status == STATUS_OK) counters_put(session, table.counters);
  free(table.list);
  safetensors_close(&file);
  return status;
}

Status state_load(Session *session, const char *directory) {
  char *folder = NULL, *path = NULL;
  Status status = paths(directory, &folder, &path);
  if (status == STATUS_OK) status = load_file(session, path);
  for (int index = 0; status == STATUS_OK && index < session->emulation.blocks * session->emulation.sites; index++)
    codebook_refresh(&session->emulation.site[index].book);
  free(folder);
  free(path);
  return status;
}
