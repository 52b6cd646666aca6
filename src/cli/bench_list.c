/* See bench_list.h. */
#include "cli/bench_list.h"
#include "base/files.h"
#include "base/printable.h"
#include "cli/bench_experiment.h"
#include "nn/json_build.h"
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct Listing {
  bool json;
  json_t *entries; /* of JSON: collected, and printed at the end */
} Listing;

typedef Status PrintExperiment(const Experiment *e, Listing *to);

/* A row that reads another one's evaluation is there when that is. */
static Status is_made(const Experiment *e, int row, int seed, bool *made) {
  char *result = experiment_place(e, e->row[row].of >= 0 ? e->row[row].of : row, seed, EXPERIMENT_EVALUATED);
  if (result == NULL) return status_no_memory(NULL, "a path");
  *made = files_exists(result);
  free(result);
  return STATUS_OK;
}

static Status print_experiment(const Experiment *e, Listing *to) {
  int made = 0;
  const int runs = e->count * e->chosen_count;
  for (int i = 0; i < runs; i++) {
    bool one = false;
    TRY(is_made(e, i / e->chosen_count, e->chosen[i % e->chosen_count], &one));
    made += one;
  }
  if (to->json)
    json_build_append(&to->entries,
                      json_pack("{s:o, s:s, s:o, s:i, s:i, s:i}", "table", json_build_string(e->name), "title", e->title, "out",
                                json_build_string(e->folder), "rows", e->count, "seeds", e->chosen_count, "made", made));
  else
    printf("%-22s %4d %5d %5d of %-4d  %s\n", e->name, e->count, e->chosen_count, made, runs, e->title);
  return STATUS_OK;
}

static Status print_row(const Experiment *e, int row, Listing *to) {
  json_t *seeds = to->json ? json_array() : NULL;
  if (!to->json) printf("%-32s", e->row[row].name);
  for (int i = 0; i < e->chosen_count; i++) {
    const int seed = e->chosen[i];
    bool made = false;
    TRY(is_made(e, row, seed, &made));
    if (made && to->json) json_build_append(&seeds, json_integer(e->seeds[seed]));
    if (made && !to->json) printf(" %lld", (long long)e->seeds[seed]);
  }
  if (to->json)
    json_build_append(&to->entries, json_pack("{s:s, s:o}", "row", e->row[row].name, "made", seeds));
  else
    printf("\n");
  return STATUS_OK;
}

static Status print_rows(const Experiment *e, Listing *to) {
  if (!to->json) printf("%s\n%s%s%-32s made with seeds (%s)\n", e->title, e->about, *e->about ? "\n" : "", "row", printable(e->folder));
  for (int row = 0; row < e->count; row++) TRY(print_row(e, row, to));
  return STATUS_OK;
}

static Status list_one(const ExperimentChoice *choice, PrintExperiment *print, Listing *to) {
  Experiment *e;
  TRY(experiment_open(&e, choice));
  const Status status = print(e, to);
  experiment_close(e);
  return status;
}

static Status list_all(const ExperimentChoice *choice, Listing *to) {
  char **names;
  size_t count;
  TRY(experiment_names(&names, &count));
  if (!to->json) printf("%-22s %4s %5s %13s  %s\n", "table", "rows", "seeds", "made", "what");
  Status status = STATUS_OK;
  for (size_t i = 0; i < count && status == STATUS_OK; i++) {
    ExperimentChoice one = *choice;
    char *out = NULL;
    if (choice->out && (out = experiment_folder(choice->out, names[i], choice->quick)) == NULL) status = status_no_memory(NULL, "a path");
    one.name = names[i], one.out = out;
    if (status == STATUS_OK) status = list_one(&one, print_experiment, to);
    free(out);
  }
  files_list_free(names, count);
  return status;
}

Status list_experiments(const ExperimentChoice *choice, bool json) {
  const bool all = choice->name == NULL || strcmp(choice->name, "all") == 0;
  Listing to = {json, json ? json_array() : NULL};
  const Status status = all ? list_all(choice, &to) : list_one(choice, print_rows, &to);
  if (status != STATUS_OK || !json) return json_decref(to.entries), status;
  return json_build_print(all ? json_pack("{s:o}", "tables", to.entries)
                              : json_pack("{s:o, s:o}", "table", json_build_string(choice->name), "rows", to.entries));
}
