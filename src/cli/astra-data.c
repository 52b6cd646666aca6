/* astra-data: fetch data sets and pretrained weights, list what is known and where it lies (data_list.c), look at a data set, train a
 * tokenizer and encode and decode with one (data_encode.c), verify a checkpoint.
 * What it leaves out: reading and decoding (src/data); this file only turns arguments into calls and results into text and JSON. */
#include "base/files.h"
#include "base/gguf.h"
#include "base/log.h"
#include "base/printable.h"
#include "base/progress.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/data_commands.h"
#include "data/data_paths.h"
#include "data/dataset.h"
#include "data/download.h"
#include "data/loader.h"
#include "data/text/text_labels.h"
#include "data/text/text_source.h"
#include "nn/checkpoint.h"
#include "nn/json_build.h"
#include "nn/safetensors.h"
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- astra-data show of texts ---- */

/* Counts and samples of text for people and as JSON. Leaves out: tokens, which need a tokenizer. */

enum { SAMPLE_BYTES = 72 };

/* What `astra-data show` says of text: corpora (text:, text-lines:) and labelled texts (cola:, sst2:, agnews:, tsv:, csv:...:text=). */
static bool show_text_knows(const char *name) { return text_source_knows(name) || text_labels_knows(name); }

static Status print_sample(const char *text, size_t bytes) {
  char *shown = printable_excerpt(text, bytes, SAMPLE_BYTES);
  if (!shown) return status_no_memory(NULL, "what a text holds");
  printf("\"%s\"\n", shown);
  free(shown);
  return STATUS_OK;
}

/* ---- Corpora ---- */

static Status count_text(TextSource *source, bool quiet, TextFacts *facts) {
  TextBlock block;
  text_source_start(source, false);
  for (bool first = true, more;; first = false) {
    TRY(text_source_next(source, &block, &more));
    if (!more) return STATUS_OK;
    if (first && !quiet) {
      printf("begins with ");
      TRY(print_sample(block.text, block.bytes));
    }
    text_source_count(source, facts, &block);
  }
}

static Status show_corpus(const char *name, const char *data_dir, DatasetPart part, bool quiet, json_t **facts) {
  TextSource *source;
  TextFacts count = {0};
  TRY(text_source_open(&source, name, data_dir, part == DATASET_TEST ? TEXT_TEST : TEXT_TRAIN));
  if (!quiet) printf("%s\n", printable(text_source_describe(source)));
  Status status = count_text(source, quiet, &count);
  if (status == STATUS_OK) {
    if (!quiet)
      printf("%lld document%s, %lld line%s, %lld word%s, %lld byte%s\n", (long long)count.documents, text_plural(count.documents),
             (long long)count.lines, text_plural(count.lines), (long long)count.words, text_plural(count.words), (long long)count.bytes,
             text_plural(count.bytes));
    *facts = json_pack("{s:o, s:s, s:o, s:I, s:I, s:I, s:I}", "dataset", json_build_string(name), "part",
                       part == DATASET_TEST ? "test" : "train", "description", json_build_string(text_source_describe(source)), "documents",
                       (json_int_t)count.documents, "lines", (json_int_t)count.lines, "words", (json_int_t)count.words, "bytes",
                       (json_int_t)count.bytes);
    if (!*facts) status = status_no_memory(NULL, "what a text holds");
  }
  text_source_close(source);
  return status;
}

/* ---- Labelled texts ---- */

typedef struct ClassFacts {
  int64_t count;
  const char *sample, *pair; /* its first text, or pair of texts */
} ClassFacts;

static size_t count_classes(const LabelledText *set, ClassFacts *classes, size_t *longest) {
  size_t bytes = 0;
  for (int64_t i = 0; i < text_labels_count(set); i++) {
    int32_t label;
    const char *text = text_labels_text(set, i, &label);
    const char *pair = text_labels_pair(set, i);
    size_t size = strlen(text) + (pair ? strlen(pair) : 0);
    bytes += size;
    if (size > *longest) *longest = size;
    if (classes[label].count++ > 0) continue;
    classes[label].sample = text;
    classes[label].pair = pair;
  }
  return bytes;
}

static Status print_classes(const LabelledText *set, const ClassFacts *classes, bool quiet, json_t *list) {
  for (int64_t i = 0; i < text_labels_classes(set); i++) {
    const char *name = text_labels_names(set)[i];
    json_array_append_new(list, json_pack("{s:o, s:I}", "label", json_build_string(name), "count", (json_int_t)classes[i].count));
    if (quiet) continue;
    printf("%8lld  %-14s", (long long)classes[i].count, printable(name));
    if (classes[i].sample) TRY(print_sample(classes[i].sample, strlen(classes[i].sample)));
    if (classes[i].pair) printf("%8s  %-14s", "", "and");
    if (classes[i].pair) TRY(print_sample(classes[i].pair, strlen(classes[i].pair)));
    if (!classes[i].sample) puts("none");
  }
  return STATUS_OK;
}

static Status print_set(const LabelledText *set, const char *name, DatasetPart part, bool quiet, json_t **facts) {
  ClassFacts *classes = calloc((size_t)text_labels_classes(set), sizeof *classes);
  if (!classes) return status_no_memory(NULL, "what a text holds");
  size_t longest = 0, bytes = count_classes(set, classes, &longest);
  if (!quiet) printf("%s\n", printable(text_labels_describe(set)));
  json_t *list = json_array();
  Status status = print_classes(set, classes, quiet, list);
  free(classes);
  if (status != STATUS_OK) {
    json_decref(list);
    return status;
  }
  if (!quiet)
    printf("%zu bytes of text, %.1f a %s, the longest %zu\n", bytes, (double)bytes / (double)text_labels_count(set),
           text_labels_pair(set, 0) ? "pair" : "text", longest);
  *facts = json_pack("{s:o, s:s, s:o, s:I, s:o, s:I, s:I}", "dataset", json_build_string(name), "part",
                     part == DATASET_TEST ? "test" : "train", "description", json_build_string(text_labels_describe(set)), "texts",
                     (json_int_t)text_labels_count(set), "classes", list, "bytes", (json_int_t)bytes, "longest", (json_int_t)longest);
  return *facts ? STATUS_OK : status_no_memory(NULL, "what a text holds");
}

/* Reads the whole part and prints what is in it; quiet: it does not print. *facts: the same for --json, a new reference, NULL after a
 * failure. */
static Status show_text(const char *name, const char *data_dir, DatasetPart part, bool quiet, json_t **facts) {
  *facts = NULL;
  if (text_source_knows(name)) return show_corpus(name, data_dir, part, quiet, facts);
  LabelledText *set;
  TRY(text_labels_open(&set, name, data_dir, part));
  Status status = print_set(set, name, part, quiet, facts);
  text_labels_close(set);
  return status;
}

/* ---- The commands ---- */

enum { SHEET_MAX = 64, SHEET_SIDE = 96, SHOW_BROKEN = 10 };

static const char get_usage[] = "astra-data get NAME... [--dir DIR]";
static const char show_usage[] = "astra-data show DATASET [--part train|test] [--sheet FILE.png]";

static Status no_path(void) { return status_no_memory(NULL, "a path"); }

/* ---- get ---- */

static Status unknown_item(const char *name) {
  char known[512] = "";
  int count;
  const DownloadItem *items = download_catalogue(&count);
  for (int i = 0; i < count; i++) {
    size_t used = strlen(known);
    snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "", items[i].name);
  }
  return status_set(STATUS_BAD_USAGE, "'%s' is not in the catalogue; known are: %s", name, known);
}

static Status get_item(const DownloadItem *item, const char *dir, bool quiet, bool json, json_t *results) {
  char *store = NULL; /* of its kind, without --dir */
  if (!dir) TRY(data_paths_store(item->kind, &store));
  char *directory = files_join(dir ? dir : store, item->name);
  free(store);
  if (!directory) return no_path();
  Status status = download_item(item, directory, quiet);
  if (status == STATUS_OK) {
    if (!json) printf("%s: %s in %s (licence: %s)\n", item->name, item->about, printable(directory), item->licence);
    json_array_append_new(results, json_pack("{s:s, s:s, s:o, s:s}", "name", item->name, "kind", item->kind, "directory",
                                             json_build_string(directory), "licence", item->licence));
  }
  free(directory);
  return status;
}

static Status run_get(int argc, char **argv) {
  const char *dir = NULL;
  bool quiet = false, json = false;
  Option options[] = {{OPTION_GROUP, .help = "Options:"},
                      {OPTION_TEXT, "dir", 'd', &dir, "DIR", .help = "store in DIR/NAME (default: $ASTRA_HOME or ~/.cache/astra)"},
                      {OPTION_FLAG, "quiet", 'q', &quiet, .help = "no progress and no messages"},
                      {OPTION_FLAG, "json", 'j', &json, .help = "print one JSON object instead of text"},
                      {.kind = OPTION_GROUP}};
  if (cli_helped(options, get_usage,
                 "Downloads data sets and pretrained weights over HTTPS, resumes interrupted downloads, checks them against the published\n"
                 "checksums and unpacks them. 'astra-data list' shows the names. Proxy and authorities are taken from https_proxy and\n"
                 "SSL_CERT_FILE; files go to $ASTRA_HOME or ~/.cache/astra.",
                 argc, argv))
    return STATUS_OK;
  const char **names;
  int count;
  TRY(cli_parse_arguments(options, argc, argv, 1, argc, "no NAME given; 'astra-data list' shows the names", &names, &count));
  json_t *results = json_array();
  Status status = results ? STATUS_OK : no_path();
  for (int i = 0; i < count && status == STATUS_OK; i++) {
    if (!download_find(names[i])) status = unknown_item(names[i]);
  }
  if (status == STATUS_OK) log_quiet(quiet);
  for (int i = 0; i < count && status == STATUS_OK; i++) status = get_item(download_find(names[i]), dir, quiet, json, results);
  if (status == STATUS_OK && json) status = json_build_print(json_pack("{s:O}", "items", results));
  json_decref(results);
  free(names);
  return status;
}

/* ---- show ---- */

typedef struct Show {
  const char *name, *data_dir, *sheet;
  int part;
  int64_t count, seed;
  bool quiet, json;
  Dataset *set;
  int64_t *per_class; /* [classes] */
  int64_t broken;
} Show;

/* Reads every image: counts the classes, names the broken ones. */
static Status data_count_classes(Show *show, json_t *names) {
  Image image = {0};
  Progress progress;
  int64_t total = dataset_count(show->set);
  show->per_class = calloc((size_t)dataset_classes(show->set) + 1, sizeof *show->per_class);
  if (!show->per_class) return no_path();
  progress_start(&progress, "reading", total, show->quiet);
  Status status = STATUS_OK;
  for (int64_t i = 0; i < total && status == STATUS_OK; i++) {
    int32_t label = 0;
    status = dataset_read(show->set, i, &image, &label);
    if (i % 64 == 0) progress_update(&progress, i, NULL);
    if (status == STATUS_OK) show->per_class[label]++;
    if (status == STATUS_OK || status == STATUS_NO_MEMORY) continue;
    status = STATUS_OK;
    if (++show->broken > SHOW_BROKEN) continue;
    if (!show->json) printf("broken: %s\n", printable(status_message()));
    json_array_append_new(names, json_build_string(status_message()));
  }
  if (progress.terminal) progress_finish(&progress, total, NULL);
  image_release(&image);
  return status;
}

static void data_print_classes(const Show *show) {
  char *const *labels = dataset_labels(show->set);
  for (int64_t i = 0; i < dataset_classes(show->set); i++) printf("%8lld  %s\n", (long long)show->per_class[i], printable(labels[i]));
  if (show->broken > SHOW_BROKEN) printf("... and %lld more broken images\n", (long long)show->broken - SHOW_BROKEN);
  if (show->broken)
    printf("%lld of %lld image%s cannot be read and %s %s\n", (long long)show->broken, (long long)dataset_count(show->set),
           text_plural(dataset_count(show->set)), show->broken == 1 ? "is" : "are",
           show->part == DATASET_TRAIN ? "skipped in training" : "left out of evaluations");
}

static Status write_sheet(const Show *show) {
  int width = 0, height = 0;
  bool fixed = dataset_fixed_size(show->set, &width, &height);
  int64_t total = dataset_count(show->set);
  LoaderOptions options = {.image = fixed ? width : SHEET_SIDE,
                           .filter = RESIZE_BILINEAR,
                           .shuffle = true,
                           .batch = (int)(show->count < total ? show->count : total),
                           .workers = 1,
                           .ahead = 1,
                           .seed = (uint64_t)show->seed};
  dataset_mean_std(show->set, options.mean, options.std);
  Loader *loader = NULL;
  Batch batch;
  char *target;
  TRY(files_follow(show->sheet, &target));
  Status status = loader_new(&loader, show->set, &options);
  if (status == STATUS_OK) status = loader_next(loader, &batch);
  if (status == STATUS_OK) status = loader_sheet(&batch, &options, target);
  if (status == STATUS_OK && !show->json)
    printf("sheet of %d image%s: %s\n", batch.count, text_plural(batch.count), printable(show->sheet));
  loader_free(loader);
  free(target);
  return status;
}

static Status show_json(const Show *show, json_t *broken) {
  json_t *classes = json_array();
  for (int64_t i = 0; i < dataset_classes(show->set); i++)
    json_array_append_new(classes, json_pack("{s:o, s:I}", "label", json_build_string(dataset_labels(show->set)[i]), "count",
                                             (json_int_t)show->per_class[i]));
  double mean[3], std[3];
  dataset_mean_std(show->set, mean, std);
  return json_build_print(json_pack("{s:o, s:s, s:o, s:I, s:o, s:I, s:O, s:[f,f,f], s:[f,f,f], s:o}", "dataset",
                                    json_build_string(show->name), "part", show->part == DATASET_TEST ? "test" : "train", "description",
                                    json_build_string(dataset_describe(show->set)), "images", (json_int_t)dataset_count(show->set),
                                    "classes", classes, "broken", (json_int_t)show->broken, "broken_names", broken, "mean", mean[0],
                                    mean[1], mean[2], "std", std[0], std[1], std[2], "sheet", json_build_string(show->sheet)));
}

static Status show_of_text(const Show *show) {
  json_t *facts;
  if (show->sheet) return status_set(STATUS_BAD_USAGE, "--sheet shows images; %s is text", show->name);
  TRY(show_text(show->name, show->data_dir, (DatasetPart)show->part, show->json, &facts));
  if (show->json) return json_build_print(facts);
  json_decref(facts);
  return STATUS_OK;
}

static Status show_set(Show *show) {
  TRY(dataset_open(&show->set, show->name, show->data_dir, (DatasetPart)show->part));
  Status status = show->sheet ? files_try(show->sheet) : STATUS_OK; /* before every image is read */
  if (status != STATUS_OK) {
    dataset_close(show->set);
    return status;
  }
  json_t *broken = json_array();
  if (!show->json) printf("%s\n", printable(dataset_describe(show->set)));
  status = broken ? data_count_classes(show, broken) : no_path();
  if (status == STATUS_OK && !show->json) data_print_classes(show);
  if (status == STATUS_OK && show->sheet) status = write_sheet(show);
  if (status == STATUS_OK && show->json) status = show_json(show, broken);
  json_decref(broken);
  free(show->per_class);
  dataset_close(show->set);
  return status;
}

static Status run_show(int argc, char **argv) {
  Show show = {.count = SHEET_MAX, .seed = 42, .part = DATASET_TRAIN};
  Option options[] = {{OPTION_GROUP, .help = "Options:"},
                      {OPTION_TEXT, "data-dir", 0, &show.data_dir, "DIR", .help = "directory searched first"},
                      {OPTION_CHOICE, "part", 0, &show.part, .choices = "train|test", .help = "part of the data set"},
                      {OPTION_TEXT, "sheet", 's', &show.sheet, "FILE", .help = "write a contact sheet of images to this PNG"},
                      {OPTION_INT, "count", 'n', &show.count, "N", .min = 1, .max = SHEET_MAX, .help = "number of images on the sheet"},
                      {OPTION_INT, "seed", 0, &show.seed, "N", .min = 0, .max = 4294967295.0, .help = "seed of the choice of images"},
                      {OPTION_FLAG, "quiet", 'q', &show.quiet, .help = "no progress"},
                      {OPTION_FLAG, "json", 'j', &show.json, .help = "print one JSON object instead of text"},
                      {.kind = OPTION_GROUP}};
  if (cli_helped(options, show_usage,
                 "Reads a whole data set and prints its classes with their counts and the images that cannot be read;\n"
                 "of a text, documents, lines, words and bytes. DATASET is cifar100, cifar10, cifar100-sample (bundled),\n"
                 "folder:DIR, csv:FILE (images), text:PATH, text-lines:PATH (PATH,... files or folders; .gz), cola:DIR,\n"
                 "sst2:DIR, agnews:DIR, qqp:DIR, mrpc:DIR, tsv:FILE, or\n"
                 "csv:FILE:text=COLUMN[:pair=COLUMN][:label=COLUMN][:header=yes|no][:test=FILE].",
                 argc, argv))
    return STATUS_OK;
  const char **names;
  int count;
  TRY(cli_parse_arguments(options, argc, argv, 1, 1, "one DATASET is needed", &names, &count));
  show.name = names[0];
  free(names);
  log_quiet(show.quiet);
  const char *const of_sheet[] = {"count", "seed"};
  for (size_t i = 0; i < 2; i++)
    if (!show.sheet && options_given(options, of_sheet[i]))
      return status_set(STATUS_BAD_USAGE, "--%s is of the sheet of images; give --sheet FILE with it", of_sheet[i]);
  return show_text_knows(show.name) ? show_of_text(&show) : show_set(&show);
}

/* ---- astra-data verify: how digests work says nn/safetensors.h ---- */

static const char verify_usage[] = "astra-data verify DIR [--write]";
static const char verify_about[] =
    "Compares every tensor of a checkpoint and of its training state (or of one .safetensors file) with the digest that was\n"
    "written beside it, and names those that are damaged. DIR may be the name of an installed checkpoint. Files of other\n"
    "programs have no digests: that is said, and --write adds them, which leaves the tensors as they are.";

typedef struct Verify {
  const char *path;
  bool write, json;
  json_t *files;
  int64_t count, damaged;
} Verify;

static Status say_verified(Verify *verify, const char *path, const char *decision, size_t tensors, json_t *messages) {
  json_t *row = json_pack("{s:o, s:s, s:I, s:o}", "file", json_build_string(path), "decision", decision, "tensors", (json_int_t)tensors,
                          "damage", messages);
  verify->count++;
  verify->damaged += json_array_size(messages) > 0;
  if (!row || json_array_append_new(verify->files, row) != 0) return status_no_memory(NULL, "verifying a checkpoint");
  if (verify->json) return STATUS_OK;
  printf("%s: %s (%zu tensors)\n", printable(path), decision, tensors);
  for (size_t i = 0; i < json_array_size(messages); i++) printf("  %s\n", printable(json_string_value(json_array_get(messages, i))));
  return STATUS_OK;
}

static bool is_link(const char *path) {
  struct stat info;
  return lstat(path, &info) == 0 && S_ISLNK(info.st_mode);
}

static Status verify_file(Verify *verify, const char *path) {
  const char *decision = "ok", *written = is_link(path) ? "digests written, to a file in the place of the link" : "digests written";
  bool gguf = gguf_is_file(path);
  SafeFile file = {0};
  GgufFile container;
  json_t *messages = json_array();
  if (!messages) return status_no_memory(NULL, "verifying a checkpoint");
  Status status = gguf ? gguf_open(&container, path) : safetensors_open(&file, path);
  if (status == STATUS_BAD_FILE) {
    json_build_append(&messages, json_build_string(status_message()));
    return messages ? say_verified(verify, path, "damaged", 0, messages) : status_no_memory(NULL, "verifying a checkpoint");
  }
  if (status != STATUS_OK) {
    json_decref(messages);
    return status;
  }
  if (gguf) { /* the container holds no digests: that all of it is there is what can be said */
    status = say_verified(verify, path, "whole; a GGUF file has no digests, so nothing to compare", container.tensor_count, messages);
    gguf_close(&container);
    return status;
  }
  for (size_t i = 0; i < file.count; i++)
    if (safetensors_verify(&file.list[i]) != STATUS_OK) json_build_append(&messages, json_build_string(status_message()));
  bool damaged = json_array_size(messages) > 0;
  if (damaged)
    decision = "damaged";
  else if (!file.sealed && verify->write)
    status = safetensors_seal(&file), decision = written;
  else if (!file.sealed)
    decision = "no digests, so nothing to compare; --write adds them";
  if (!messages) status = status_no_memory(NULL, "verifying a checkpoint");
  if (status == STATUS_OK)
    status = say_verified(verify, file.path, decision, file.count, messages);
  else
    json_decref(messages);
  safetensors_close(&file);
  return status;
}

static Status verify_folder(Verify *verify, const char *folder) {
  static const char ending[] = ".safetensors";
  char **names;
  size_t count;
  TRY(files_list(folder, &names, &count));
  Status status = STATUS_OK;
  for (size_t i = 0; i < count && status == STATUS_OK; i++) {
    size_t length = strlen(names[i]);
    if (length < sizeof ending || strcmp(names[i] + length - (sizeof ending - 1), ending) != 0) continue;
    char *path = files_join(folder, names[i]);
    status = path ? verify_file(verify, path) : status_no_memory(NULL, "verifying a checkpoint");
    free(path);
  }
  files_list_free(names, count);
  return status;
}

/* A link that the user names stays one, and its file is written; those in a folder are replaced, as their files may be others' (files.h).
 */
static Status verify_named_file(Verify *verify, const char *path) {
  char *target;
  if (!verify->write) return verify_file(verify, path);
  TRY(files_follow(path, &target));
  Status status = verify_file(verify, target);
  free(target);
  return status;
}

/* What shards hold is compared like other files; an index that is in order is not mentioned. */
static Status verify_shards(Verify *verify, const char *folder) {
  char *index;
  Status status = checkpoint_check_shards(folder, &index);
  if (status == STATUS_BAD_FILE) {
    json_t *messages = json_pack("[o]", json_build_string(status_message()));
    status =
        messages ? say_verified(verify, index, "incomplete or damaged", 0, messages) : status_no_memory(NULL, "verifying a checkpoint");
  }
  free(index);
  return status;
}

static Status verify_all(Verify *verify, const char *path) {
  if (!files_is_dir(path)) return verify_named_file(verify, path);
  TRY(verify_folder(verify, path));
  TRY(verify_shards(verify, path));
  char *training = files_join(path, "training");
  Status status = !training                ? status_no_memory(NULL, "verifying a checkpoint")
                  : files_is_dir(training) ? verify_folder(verify, training)
                                           : STATUS_OK;
  free(training);
  if (status == STATUS_OK && verify->count == 0) return status_set(STATUS_NOT_FOUND, "%s holds no .safetensors files", path);
  return status;
}

static Status verify_named(Verify *verify) {
  char *found;
  if (!files_exists(verify->path))
    TRY(data_paths_find("checkpoints", verify->path, NULL, &found));
  else if ((found = strdup(verify->path)) == NULL)
    return status_no_memory(NULL, "verifying a checkpoint");
  verify->files = json_array();
  Status status = verify->files ? verify_all(verify, found) : status_no_memory(NULL, "verifying a checkpoint");
  if (status == STATUS_OK && verify->json)
    status = json_build_print(
        json_pack("{s:o, s:O, s:I}", "path", json_build_string(found), "files", verify->files, "damaged", (json_int_t)verify->damaged));
  json_decref(verify->files);
  free(found);
  if (status != STATUS_OK || verify->damaged == 0) return status;
  return status_set(STATUS_BAD_FILE, "%s: %lld of %lld files are damaged; fetch or make them again", verify->path,
                    (long long)verify->damaged, (long long)verify->count);
}

static Status run_verify(int argc, char **argv) {
  Verify verify = {.path = NULL};
  Option options[] = {{OPTION_GROUP, .help = "Options:"},
                      {OPTION_FLAG, "write", 'w', &verify.write, .help = "add digests to files without any"},
                      {OPTION_FLAG, "json", 'j', &verify.json, .help = "print one JSON object instead of text"},
                      {.kind = OPTION_GROUP}};
  if (cli_helped(options, verify_usage, verify_about, argc, argv)) return STATUS_OK;
  const char **paths;
  int count;
  TRY(cli_parse_arguments(options, argc, argv, 1, 1, "one DIR is needed", &paths, &count));
  verify.path = paths[0];
  free(paths);
  return verify_named(&verify);
}

/* ---- main ---- */

static const CliCommand *const commands[] = {
    &(const CliCommand){"get", "download, check and unpack data sets and pretrained weights", run_get},
    &data_list_command,
    &(const CliCommand){"show", "print classes, counts, samples and broken images of a data set; sizes of a text", run_show},
    &data_tokenizer_command,
    &data_encode_command,
    &data_decode_command,
    &(const CliCommand){"verify", "check a checkpoint's tensors against their digests", run_verify},
    NULL};

static void print_help(FILE *stream) {
  fprintf(stream,
          "usage: astra-data get NAME... | list | show DATASET | tokenizer FILE... |\n                  encode | decode | verify DIR\n\n"
          "Data sets, pretrained weights and tokenizers for astra-train and astra-infer.\n\n"
          "Commands:\n");
  cli_commands_help(commands, stream);
  fprintf(stream, "\n'astra-data COMMAND --help' shows its options; --version prints the version.\n"
                  "Exit codes: 0 done, 1 failed, 2 wrong usage.\n");
}

int main(int argc, char **argv) {
  return cli_run(argc, argv, &(CliProgram){.name = "astra-data", .commands = commands, .help = print_help});
}
