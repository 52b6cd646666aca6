/* astra-data list: what can be fetched and where it is stored, then the checkpoints that are installed besides.
 *
 * Leaves out: fetching (src/data/download.h). A checkpoint is listed under the name that --model and --checkpoint take, where that name
 * finds it (data_paths_find): what is hidden by another folder of its name in an earlier place is not. */
#include "base/files.h"
#include "base/printable.h"
#include "cli/cli.h"
#include "cli/data_commands.h"
#include "data/data_paths.h"
#include "data/dataset.h"
#include "data/download.h"
#include "nn/checkpoint.h"
#include "nn/json_build.h"
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct Listing {
  const char *data_dir; /* searched first; may be NULL */
  bool json;
  json_t *rows;       /* what is listed already */
  const char *folder; /* that is gone through */
} Listing;

/* licence and path may be NULL. */
static void add_row(Listing *to, const char *name, const char *kind, const char *about, const char *licence, const char *path) {
  if (!to->json)
    printf("%-18s %-12s %s\n%-18s %-12s %s%s\n", printable(name), kind, about, "", "", path ? "stored in " : "not stored here",
           printable(path));
  json_array_append_new(to->rows, json_pack("{s:o, s:s, s:s, s:s?, s:o}", "name", json_build_string(name), "kind", kind, "about", about,
                                            "licence", licence, "stored", json_build_string(path)));
}

/* ---- What can be fetched ---- */

/* Where a data set that can be opened, or weights that are complete, lie; NULL when nowhere. */
static char *item_found(const DownloadItem *item, const char *data_dir) {
  char *found = NULL;
  if (strcmp(item->kind, "datasets") == 0) {
    Dataset *set = NULL;
    if (dataset_open(&set, item->name, data_dir, DATASET_TEST) == STATUS_OK) { /* images; texts are looked for below */
      const char *from = strstr(dataset_describe(set), "from ");
      found = from ? strdup(from + strlen("from ")) : NULL;
      dataset_close(set);
      return found;
    }
  }
  if (data_paths_find(item->kind, item->name, data_dir, &found) != STATUS_OK) return NULL;
  if (download_present(item, found)) return found;
  free(found);
  return NULL;
}

static void list_fetched(Listing *to) {
  int count;
  const DownloadItem *items = download_catalogue(&count);
  for (int i = 0; i < count; i++) {
    char *found = item_found(&items[i], to->data_dir);
    add_row(to, items[i].name, items[i].kind, items[i].about, items[i].licence, found);
    free(found);
  }
}

/* ---- What is installed ---- */

static bool is_listed(const Listing *in, const char *kind, const char *name) {
  size_t i;
  json_t *row;
  json_array_foreach(in->rows, i, row) {
    const char *listed = json_string_value(json_object_get(row, "name")), *as = json_string_value(json_object_get(row, "kind"));
    if (listed != NULL && strcmp(listed, name) == 0 && strcmp(as, kind) == 0) return true;
  }
  return false;
}

/* "ViT, 6 blocks of width 192, 100 classes; 8 groups, 4 devices". Returns text. */
static const char *describe(const ModelConfig *config, char *text, size_t room) {
  static const char *const kinds[] = {[MODEL_VIT] = "ViT", [MODEL_GPT2] = "GPT-2", [MODEL_LLAMA] = "Llama"};
  char rates[CONFIG_RATES_TEXT], classes[48] = "", codes[CONFIG_RATES_TEXT + 48] = "";
  if (config->classes > 0) snprintf(classes, sizeof classes, ", %lld classes", (long long)config->classes);
  if (config->astra.groups > 0)
    snprintf(codes, sizeof codes, "; %s groups, %d devices", config_rates_text(config, rates), config->astra.devices);
  snprintf(text, room, "%s, %lld blocks of width %lld%s%s", kinds[config->kind], (long long)config->blocks, (long long)config->width,
           classes, codes);
  return text;
}

static bool is_found(const Listing *to, const char *name, const char *path) {
  char *found = NULL;
  const bool is = data_paths_find("checkpoints", name, to->data_dir, &found) == STATUS_OK && strcmp(found, path) == 0;
  free(found);
  return is;
}

static Status list_checkpoint(Listing *to, const char *name, const char *path) {
  const char *weights;
  char about[512];
  ModelConfig config;
  if (!checkpoint_is_path(path) || !is_found(to, name, path)) return STATUS_OK;
  if (files_is_dir(path)) {
    TRY(checkpoint_find_weights(path, &weights));
    if (weights == NULL) return STATUS_OK;
  }
  if (config_load(&config, path) != STATUS_OK) return STATUS_OK; /* of another program */
  add_row(to, name, "checkpoints", describe(&config, about, sizeof about), NULL, path);
  config_release(&config);
  return STATUS_OK;
}

static Status visit(void *context, const char *name) {
  Listing *to = context;
  if (is_listed(to, "checkpoints", name)) return STATUS_OK;
  char *path = files_join(to->folder, name);
  if (path == NULL) return status_no_memory(NULL, "a path");
  const Status status = list_checkpoint(to, name, path);
  free(path);
  return status;
}

static Status list_installed(Listing *to) {
  DataRoots roots;
  Status status = data_paths_roots(&roots, "checkpoints", to->data_dir);
  for (int i = 0; i < roots.count && status == STATUS_OK; i++) {
    to->folder = roots.paths[i];
    if (files_is_dir(to->folder) && access(to->folder, R_OK | X_OK) == 0) status = files_each(to->folder, visit, to);
  }
  data_paths_release(&roots);
  return status;
}

/* ---- The command ---- */

static Status run_list(int argc, char **argv) {
  Listing listing = {0};
  Option options[] = {{OPTION_GROUP, .help = "Options:"},
                      {OPTION_TEXT, "data-dir", 0, &listing.data_dir, "DIR", .help = "directory searched first"},
                      {OPTION_FLAG, "json", 'j', &listing.json, .help = "print one JSON object instead of text"},
                      {.kind = OPTION_GROUP}};
  if (cli_helped(
          options, "astra-data list [--data-dir DIR]",
          "Lists what 'astra-data get' can fetch and the checkpoints that are installed: name, kind, contents, and where it is stored.",
          argc, argv))
    return STATUS_OK;
  TRY(cli_parse(options, argc, argv));
  listing.rows = json_array();
  list_fetched(&listing);
  Status status = list_installed(&listing);
  if (status == STATUS_OK && listing.json) status = json_build_print(json_pack("{s:O}", "items", listing.rows));
  json_decref(listing.rows);
  return status;
}

const CliCommand data_list_command = {"list", "list what can be downloaded, what is installed, and where", run_list};
