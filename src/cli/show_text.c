/* Counts and samples of text for people and as JSON. Leaves out: tokens, which need a tokenizer. */
#include "cli/show_text.h"
#include "base/printable.h"
#include "data/text/text_labels.h"
#include "data/text/text_source.h"
#include <stdlib.h>
#include <string.h>

enum { SAMPLE_BYTES = 72 };

bool show_text_knows(const char *name) { return text_source_knows(name) || text_labels_knows(name); }

static Status no_memory(void) { return status_set(STATUS_NO_MEMORY, "out of memory for what a text holds"); }

static Status print_sample(const char *text, size_t bytes) {
  char *shown = printable_excerpt(text, bytes, SAMPLE_BYTES);
  if (!shown) return no_memory();
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
  TRY(text_source_open(&source, name, data_dir, part == DATASET_TEST ? TEXT_VALID : TEXT_TRAIN));
  if (!quiet) printf("%s\n", printable(text_source_describe(source)));
  Status status = count_text(source, quiet, &count);
  if (status == STATUS_OK) {
    if (!quiet)
      printf("%lld document%s, %lld lines, %lld words, %lld bytes\n", (long long)count.documents, count.documents == 1 ? "" : "s",
             (long long)count.lines, (long long)count.words, (long long)count.bytes);
    *facts = json_pack("{s:s, s:s, s:s, s:I, s:I, s:I, s:I}", "dataset", name, "part", part == DATASET_TEST ? "test" : "train",
                       "description", text_source_describe(source), "documents", (json_int_t)count.documents, "lines",
                       (json_int_t)count.lines, "words", (json_int_t)count.words, "bytes", (json_int_t)count.bytes);
    if (!*facts) status = no_memory();
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
    json_array_append_new(list, json_pack("{s:s, s:I}", "label", name, "count", (json_int_t)classes[i].count));
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
  if (!classes) return no_memory();
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
  *facts = json_pack("{s:s, s:s, s:s, s:I, s:o, s:I, s:I}", "dataset", name, "part", part == DATASET_TEST ? "test" : "train", "description",
                     text_labels_describe(set), "texts", (json_int_t)text_labels_count(set), "classes", list, "bytes", (json_int_t)bytes,
                     "longest", (json_int_t)longest);
  return *facts ? STATUS_OK : no_memory();
}

Status show_text(const char *name, const char *data_dir, DatasetPart part, bool quiet, json_t **facts) {
  *facts = NULL;
  if (text_source_knows(name)) return show_corpus(name, data_dir, part, quiet, facts);
  LabelledText *set;
  TRY(text_labels_open(&set, name, data_dir, part));
  Status status = print_set(set, name, part, quiet, facts);
  text_labels_close(set);
  return status;
}
