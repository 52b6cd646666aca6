/* The front of all data sets: picks the source by name, keeps what they have in common, holds out records, suggests names. Leaves out:
 * files and formats (dataset_cifar.c, dataset_files.c, dataset_synthetic.c) and everything that changes images (loader.c).
 * Invariant: an open set never changes, so that any thread may read it. */
#include "data/dataset.h"
#include "base/files.h"
#include "base/hash.h"
#include "base/status.h"
#include "base/text.h"
#include "data/data_paths.h"
#include "data/dataset_internal.h"
#include "data/download.h"
#include "data/image.h"
#include "data/text/text_labels.h"
#include <ctype.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- What may have been meant by a name ---- */

/* What a place holds is told by the names in it; nothing is opened.
 * Invariant: what is suggested is a name that data sets of that kind accept, and not the one that was given. */

typedef bool NameTest(const char *folder, const char *name);

/* Whether one of the names in the folder is such a one. */
static bool any_name(const char *folder, NameTest *accepts) {
  char **names;
  size_t count;
  bool found = false;
  if (files_list(folder, &names, &count) != STATUS_OK) return false;
  for (size_t i = 0; i < count && !found; i++) found = names[i][0] != '.' && accepts(folder, names[i]);
  files_list_free(names, count);
  return found;
}

static bool with_join(const char *folder, const char *name, bool (*ask)(const char *path)) {
  char *path = files_join(folder, name);
  bool answer = path != NULL && ask(path);
  free(path);
  return answer;
}

static bool is_image(const char *folder, const char *name) { return folder != NULL && image_has_extension(name); }
static bool holds_images(const char *path) { return files_is_dir(path) && any_name(path, is_image); }
static bool is_class(const char *folder, const char *name) {
  return dataset_split_named(name) == DATASET_SPLIT_NONE && with_join(folder, name, holds_images);
}
bool dataset_holds_classes(const char *path) { return files_is_dir(path) && any_name(path, is_class); }

static bool is_training_part(const char *folder, const char *name) {
  return dataset_split_named(name) == DATASET_SPLIT_TRAIN && with_join(folder, name, dataset_holds_classes);
}

static bool is_text_name(const char *name) {
  static const char *const ends[] = {".txt", ".txt.gz", ".tokens", ".raw"};
  for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
    if (text_ends_with(name, ends[i])) return true;
  return false;
}

static bool is_text(const char *folder, const char *name) { return folder != NULL && is_text_name(name); }
static bool is_cifar(const char *folder, const char *name) { return folder != NULL && strcmp(name, "train.bin") == 0; }

static bool suggest_path(const char *given, const char *path, DatasetKind kind, char text[DATASET_HINT]) {
  char meant[DATASET_HINT - 32];
  if (!files_exists(path)) return false;
  if (files_is_dir(path) && any_name(path, is_cifar)) {
    if (kind == DATASET_TEXTS) return false;
    snprintf(text, DATASET_HINT, " Did you mean cifar100 with --data-dir %.400s?", path);
    return true;
  }
  const char *prefix = NULL; /* under which it is a data set */
  if (!files_is_dir(path))
    prefix = text_ends_with(path, ".csv") ? "csv:" : text_ends_with(path, ".tsv") ? "tsv:" : is_text_name(path) ? "text:" : NULL;
  else if (dataset_holds_classes(path) || any_name(path, is_training_part))
    prefix = "folder:";
  else if (any_name(path, is_text))
    prefix = "text:";
  if (prefix == NULL) return false;
  const bool texts = prefix[0] == 't'; /* csv:FILE alone is a list of images */
  if (kind == (texts ? DATASET_IMAGES : DATASET_TEXTS)) return false;
  snprintf(meant, sizeof meant, "%s%.500s", prefix, path);
  if (strcmp(meant, given) == 0) return false;
  snprintf(text, DATASET_HINT, " Did you mean %s?", meant);
  return true;
}

/* "CIFAR-100" is spelt like "cifar100". */
static bool spelt_alike(const char *a, const char *b) {
  for (;; a++, b++) {
    while (*a == '-' || *a == '_' || *a == ' ') a++;
    while (*b == '-' || *b == '_' || *b == ' ') b++;
    if (tolower((unsigned char)*a) != tolower((unsigned char)*b)) return false;
    if (*a == '\0') return true;
  }
}

const char *dataset_hint(const char *name, const char *data_dir, DatasetKind kind, char text[DATASET_HINT]) {
  static const char *const prefixes[] = {"folder:", "csv:", "tsv:", "text:", "text-lines:"};
  const char *rest = name;
  for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
    if (strncmp(name, prefixes[i], strlen(prefixes[i])) == 0) rest = name + strlen(prefixes[i]);
  text[0] = '\0';
  if (*rest == '\0' || suggest_path(name, rest, kind, text)) return text;
  /* What is installed under that name. */
  DataRoots roots;
  if (rest[0] != '/' && data_paths_roots(&roots, "datasets", data_dir) == STATUS_OK) {
    bool found = false;
    for (int i = 0; i < roots.count && !found; i++) {
      char *path = files_join(roots.paths[i], rest);
      found = path != NULL && suggest_path(name, path, kind, text);
      free(path);
    }
    data_paths_release(&roots);
    if (found) return text;
  }
  /* What can be downloaded under a name like it. */
  int count;
  const DownloadItem *items = download_catalogue(&count);
  for (int i = 0; i < count; i++) {
    char meant[96];
    if (strcmp(items[i].kind, "datasets") != 0 || !spelt_alike(rest, items[i].name)) continue;
    if (kind == (dataset_cifar.knows(items[i].name) ? DATASET_TEXTS : DATASET_IMAGES)) continue;
    snprintf(meant, sizeof meant, "%s%s", strncmp(items[i].about, "text:", 5) == 0 ? "text:" : "", items[i].name);
    if (strcmp(meant, name) != 0) snprintf(text, DATASET_HINT, " Did you mean %s? `astra-data get %s` downloads it.", meant, items[i].name);
    break;
  }
  return text;
}

/* ---- Which records are held out ---- */

typedef struct Record {
  uint64_t hash;
  int64_t index;
  int32_t label;
} Record;

typedef struct Share {
  int64_t records, quota;
  int64_t rest; /* what the quota is short of the exact share, in parts of the count */
} Share;

static int by_label_and_hash(const void *a, const void *b) {
  const Record *x = a, *y = b;
  if (x->label != y->label) return x->label < y->label ? -1 : 1;
  return x->hash < y->hash ? -1 : x->hash > y->hash; /* a bijection: no two are equal */
}

static Status refuse(int64_t wanted, int64_t count) {
  return status_set(STATUS_BAD_VALUE, "%lld of %lld records cannot be held out for validation: every class keeps one for training",
                    (long long)wanted, (long long)count);
}

/* Quotas in proportion, by largest remainders. */
static Status share_out(Share *share, int64_t classes, int64_t count, int64_t wanted) {
  int64_t left = wanted;
  for (int64_t c = 0; c < classes; c++) {
    share[c].quota = wanted * share[c].records / count;
    share[c].rest = wanted * share[c].records % count;
    left -= share[c].quota;
  }
  for (; left > 0; left--) {
    Share *max = NULL;
    for (int64_t c = 0; c < classes; c++) {
      bool spare = share[c].quota + 1 < share[c].records;
      if (spare && (!max || share[c].rest > max->rest)) max = &share[c];
    }
    if (!max) return refuse(wanted, count);
    max->quota++;
    max->rest -= count;
  }
  return STATUS_OK;
}

Status held_out_choose(const int32_t *labels, int64_t count, int64_t classes, int64_t wanted, uint8_t *held) {
  if (wanted >= count) return refuse(wanted, count);
  Record *record = malloc((size_t)count * sizeof *record);
  Share *share = calloc((size_t)classes, sizeof *share);
  Status status = record && share ? STATUS_OK : status_set(STATUS_NO_MEMORY, "no memory for the order of %lld records", (long long)count);
  for (int64_t i = 0; status == STATUS_OK && i < count; i++) {
    uint64_t z = ((uint64_t)i + 1) * 0x9E3779B97F4A7C15u; /* splitmix64 */
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    record[i] = (Record){z ^ (z >> 31), i, labels[i]};
    share[labels[i]].records++;
  }
  if (status == STATUS_OK) status = share_out(share, classes, count, wanted);
  if (status == STATUS_OK) {
    qsort(record, (size_t)count, sizeof *record, by_label_and_hash);
    memset(held, 0, (size_t)count);
    for (int64_t i = 0; i < count; i++)
      if (share[record[i].label].quota-- > 0) held[record[i].index] = 1;
  }
  free(record);
  free(share);
  return status;
}

Status train_share_choose(const int32_t *labels, int64_t count, int64_t classes, TrainShare share, uint8_t *keep) {
  if (share.of > 0 && share.of <= share.without)
    return status_set(STATUS_BAD_VALUE, "nothing is left of %lld records held out without %lld of them: more than %lld are accepted",
                      (long long)share.of, (long long)share.without, (long long)share.without);
  uint8_t *less = malloc((size_t)count);
  if (!less) return status_set(STATUS_NO_MEMORY, "no memory for a share of %lld records", (long long)count);
  memset(keep, 1, (size_t)count);
  Status status = share.of > 0 ? held_out_choose(labels, count, classes, share.of, keep) : STATUS_OK;
  if (status == STATUS_OK && share.without > 0) {
    status = held_out_choose(labels, count, classes, share.without, less);
    for (int64_t i = 0; status == STATUS_OK && i < count; i++) keep[i] &= !less[i];
  }
  free(less);
  return status;
}

const char *train_share_text(TrainShare share, int64_t count, const char *noun, char text[TRAIN_SHARE_TEXT]) {
  const char *what = share.of == 0        ? ", without those held out, of"
                     : share.without == 0 ? " held out from"
                                          : ", part of those held out, from";
  snprintf(text, TRAIN_SHARE_TEXT, "%lld %s%s", (long long)count, noun, what);
  return text;
}

/* ---- A set of a share of the records ---- */

/* A view of the whole training part, which it owns; labels are asked for without decoding images. */

typedef struct View {
  Dataset *whole;
  int32_t *record; /* [count] numbers in the whole */
} View;

static Status read_viewed(Dataset *set, int64_t index, Image *image, int32_t *label) {
  const View *view = set->state;
  return view->whole->read(view->whole, view->record[index], image, label);
}

static int32_t label_viewed(const Dataset *set, int64_t index) {
  const View *view = set->state;
  return view->whole->label(view->whole, view->record[index]);
}

static uint64_t identify_viewed(const Dataset *set, int64_t index, uint64_t hash) {
  const View *view = set->state;
  return view->whole->identify(view->whole, view->record[index], hash);
}

static void close_view(Dataset *set) {
  View *view = set->state;
  if (!view) return;
  dataset_close(view->whole);
  free(view->record);
  free(view);
}

/* The share's numbers into view->record. */
static Status choose(Dataset *set, TrainShare share) {
  View *view = set->state;
  int64_t count = view->whole->count;
  int32_t *labels = calloc((size_t)count, sizeof *labels);
  uint8_t *keep = malloc((size_t)count);
  view->record = malloc((size_t)count * sizeof *view->record);
  Status status = labels && keep && view->record ? STATUS_OK : status_no_memory(NULL, "a data set");
  for (int64_t i = 0; status == STATUS_OK && i < count; i++) labels[i] = view->whole->label(view->whole, i);
  if (status == STATUS_OK) status = train_share_choose(labels, count, view->whole->classes, share, keep);
  for (int64_t i = 0; status == STATUS_OK && i < count; i++)
    if (keep[i]) view->record[set->count++] = (int32_t)i;
  free(labels);
  free(keep);
  return status;
}

Status dataset_open_share(Dataset **set, const char *name, const char *data_dir, TrainShare share) {
  char text[TRAIN_SHARE_TEXT];
  if (share.of == 0 && share.without == 0) return dataset_open(set, name, data_dir, DATASET_TRAIN);
  *set = NULL;
  Dataset *fresh = calloc(1, sizeof *fresh);
  View *view = calloc(1, sizeof *view);
  if (!fresh || !view) {
    free(fresh);
    free(view);
    return status_no_memory(NULL, "a data set");
  }
  Status status = dataset_open(&view->whole, name, data_dir, DATASET_TRAIN);
  Dataset *whole = view->whole;
  if (status == STATUS_OK) {
    *fresh = *whole; /* sizes, mean and deviation; the names of the classes become its own */
    whole->labels = NULL;
    fresh->count = 0;
    fresh->description = NULL;
    fresh->read = read_viewed;
    fresh->label = label_viewed;
    if (whole->identify) fresh->identify = identify_viewed;
  }
  fresh->state = view;
  fresh->close = close_view;
  if (status == STATUS_OK && (status = choose(fresh, share)) != STATUS_OK) status_wrap(status, "%s", whole->description);
  if (status == STATUS_OK) {
    fresh->mapped = (size_t)((double)whole->mapped * (double)fresh->count / (double)whole->count);
    status = dataset_set_description(fresh, "%s %s", train_share_text(share, fresh->count, "images", text), whole->description);
  }
  if (status != STATUS_OK)
    dataset_close(fresh);
  else
    *set = fresh;
  return status;
}

const char *dataset_part_name(DatasetPart part) { return part == DATASET_TRAIN ? "train" : "test"; }

Status dataset_set_description(Dataset *set, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  int length = vasprintf(&set->description, format, arguments);
  va_end(arguments);
  if (length >= 0) return STATUS_OK;
  set->description = NULL;
  return status_no_memory(NULL, "a data set's description");
}

const char *dataset_after_prefix(const char *name, const char *prefix) {
  size_t length = strlen(prefix);
  return strncmp(name, prefix, length) == 0 ? name + length : NULL;
}

Status dataset_doubt_file(Status status, const char *path) {
  const char *option = strrchr(path, ':');
  if (status != STATUS_NOT_FOUND || option == NULL || strchr(option, '=') == NULL) return status;
  return status_set(STATUS_BAD_USAGE,
                    "%s: no such file. If %s is to be an option: behind a file of texts text=, pair=, label=, header= and test= are "
                    "accepted, behind a list of images none",
                    path, option);
}

static const DatasetSource *source_of(const char *name) {
  static const DatasetSource *const sources[] = {&dataset_folder, &dataset_manifest, &dataset_synthetic, &dataset_cifar};
  for (size_t i = 0; i < sizeof sources / sizeof *sources; i++)
    if (sources[i]->knows(name)) return sources[i];
  return NULL;
}

Status dataset_check_name(const char *name, const char *data_dir) {
  char hint[DATASET_HINT], texts[TEXT_LABELS_LIST];
  if (source_of(name)) return STATUS_OK;
  return status_set(STATUS_BAD_USAGE,
                    "data set \"%s\" is not known.%s Accepted are cifar100, cifar10, cifar100-sample, folder:DIR, csv:FILE and "
                    "synthetic:WIDTHxHEIGHT:CLASSES; of texts text:PATH, %s, tsv:FILE and csv:FILE:text=COLUMN",
                    name, dataset_hint(name, data_dir, DATASET_ANY, hint), text_labels_list("", texts));
}

Status dataset_open(Dataset **set, const char *name, const char *data_dir, DatasetPart part) {
  *set = NULL;
  TRY(dataset_check_name(name, data_dir));
  Dataset *fresh = calloc(1, sizeof *fresh);
  if (!fresh) return status_no_memory(NULL, "a data set");
  for (int c = 0; c < 3; c++) fresh->mean[c] = fresh->std[c] = 0.5;
  Status status = source_of(name)->open(fresh, name, data_dir, part);
  if (status != STATUS_OK) {
    dataset_close(fresh);
    return status;
  }
  *set = fresh;
  return STATUS_OK;
}

void dataset_close(Dataset *set) {
  if (!set) return;
  if (set->close) set->close(set);
  for (int64_t i = 0; set->labels && i < set->classes; i++) free(set->labels[i]);
  free(set->labels);
  free(set->description);
  free(set);
}

int64_t dataset_count(const Dataset *set) { return set->count; }
int64_t dataset_classes(const Dataset *set) { return set->classes; }
size_t dataset_mapped(const Dataset *set) { return set->mapped; }
char *const *dataset_labels(const Dataset *set) { return set->labels; }
const char *dataset_describe(const Dataset *set) { return set->description; }

bool dataset_is_grouped(const Dataset *set) { return set->grouped; }

bool dataset_fixed_size(const Dataset *set, int *width, int *height) {
  if (!set->fixed_size) return false;
  *width = set->width;
  *height = set->height;
  return true;
}

uint64_t dataset_digest(const Dataset *set) {
  uint64_t hash = hash_add(HASH_BEGIN, &set->classes, sizeof set->classes);
  for (int64_t i = 0; i < set->count; i++) {
    const int32_t label = set->label(set, i);
    hash = hash_add(hash, &label, sizeof label);
    if (set->identify) hash = set->identify(set, i, hash);
  }
  return hash;
}

void dataset_mean_std(const Dataset *set, double mean[3], double std[3]) {
  memcpy(mean, set->mean, sizeof set->mean);
  memcpy(std, set->std, sizeof set->std);
}

Status dataset_read(Dataset *set, int64_t index, Image *image, int32_t *label) {
  if (index < 0 || index >= set->count) {
    return status_set(STATUS_BAD_VALUE, "image %lld of %s: 0 to %lld are there", (long long)index, set->description,
                      (long long)set->count - 1);
  }
  return set->read(set, index, image, label);
}
