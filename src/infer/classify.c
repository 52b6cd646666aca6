/* Finds, decodes and batches images, groups texts of one length into requests, and ranks classes. Printing: report.c. */
#include "infer/classify.h"
#include "base/array.h"
#include "base/clock.h"
#include "base/files.h"
#include "base/progress.h"
#include "data/text/text_loader.h"
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Top k by insertion: k is small and the row is read once. */
void ranking_top(const real *logits, int64_t classes, int count, int32_t *index, double *probability) {
  int held = 0;
  for (int64_t c = 0; c < classes; c++) {
    int place = held < count ? held++ : count;
    while (place > 0 && logits[index[place - 1]] < logits[c]) {
      if (place < count) index[place] = index[place - 1];
      place--;
    }
    if (place < count) index[place] = (int32_t)c;
  }
  if (!probability || count < 1) return;
  double sum = 0;
  for (int64_t c = 0; c < classes; c++) sum += exp((double)logits[c] - (double)logits[index[0]]);
  for (int i = 0; i < count; i++) probability[i] = exp((double)logits[index[i]] - (double)logits[index[0]]) / sum;
}

/* ---- images ---- */

/* Takes ownership of `path`; NULL is out of memory. The array's room is always the next power of two. */
static Status add_path(ImageFiles *files, char *path) {
  size_t count = (size_t)files->count;
  bool full = (count & (count - 1)) == 0;
  char **paths = path && full && count < INT_MAX / 2 ? realloc(files->paths, (count ? 2 * count : 1) * sizeof *paths) : NULL;
  if (paths) files->paths = paths;
  if (!path || (full && !paths)) {
    free(path);
    return status_set(STATUS_NO_MEMORY, "no memory for a list of images");
  }
  files->paths[files->count++] = path;
  return STATUS_OK;
}

static Status add_directory(ImageFiles *files, const char *directory) {
  char **names;
  size_t count;
  int before = files->count;
  TRY(files_list(directory, &names, &count));
  Status status = STATUS_OK;
  for (size_t i = 0; status == STATUS_OK && i < count; i++) {
    if (names[i][0] == '.') continue;
    char *path = files_join(directory, names[i]);
    if (path && files_is_dir(path)) {
      free(path);
    } else if (path && !image_has_extension(names[i])) {
      files->skipped++;
      free(path);
    } else {
      status = add_path(files, path);
    }
  }
  files_list_free(names, count);
  if (status != STATUS_OK || files->count > before) return status;
  return status_set(STATUS_BAD_FILE, "%s: a directory without images (%s); directories in it are not searched", directory,
                    image_extensions());
}

Status images_find(ImageFiles *files, const char *const *named, int count) {
  *files = (ImageFiles){0};
  Status status = STATUS_OK;
  for (int i = 0; status == STATUS_OK && i < count; i++)
    status = files_is_dir(named[i]) ? add_directory(files, named[i]) : add_path(files, strdup(named[i]));
  if (status != STATUS_OK) images_release(files);
  return status;
}

void images_release(ImageFiles *files) {
  for (int i = 0; i < files->count; i++) free(files->paths[i]);
  free(files->paths);
  *files = (ImageFiles){0};
}

Status images_classify(Leader *leader, const char *const *paths, int count, int64_t batch, int top, ImageResult *results, double *seconds) {
  LoaderOptions options;
  weights_loader_options(leader_weights(leader), &options);
  int64_t size = weights_pixels(leader_weights(leader)), classes = leader_weights(leader)->config->classes, held = 0;
  float *pixels = malloc((size_t)(batch * size) * sizeof *pixels);
  ImageResult **taken = malloc((size_t)batch * sizeof(ImageResult *));
  Status status = pixels && taken ? STATUS_OK : status_set(STATUS_NO_MEMORY, "no memory for %lld images", (long long)batch);
  *seconds = 0;
  for (int i = 0; i < count && status == STATUS_OK; i++) {
    ImageResult *result = &results[i];
    Image image = {0};
    *result = (ImageResult){.path = paths[i]};
    Status loaded = image_load(&image, paths[i]);
    if (loaded == STATUS_OK) loaded = loader_prepare(&image, &options, pixels + held * size);
    image_release(&image);
    result->read = loaded == STATUS_OK;
    if (result->read) taken[held++] = result;
    if (!result->read) snprintf(result->message, sizeof result->message, "%s", status_message());
    if (held == 0 || (held < batch && i + 1 < count)) continue;
    LeaderAnswer answer;
    double start = clock_now();
    status = leader_submit(leader, pixels, held);
    if (status == STATUS_OK) status = leader_collect(leader, &answer);
    double took = clock_now() - start;
    *seconds += took;
    for (int64_t b = 0; b < held && status == STATUS_OK; b++) {
      taken[b]->seconds = took;
      taken[b]->count = top < classes ? top : (int)classes;
      ranking_top(answer.logits + b * classes, classes, taken[b]->count, taken[b]->index, taken[b]->probability);
    }
    held = 0;
  }
  free(pixels);
  free(taken);
  return status;
}

/* ---- texts ---- */

void texts_release(Texts *texts) {
  token_list_release(&texts->tokens);
  free(texts->begin);
  *texts = (Texts){.count = 0};
}

Status texts_add(Texts *texts, const TextEncoder *encoder, const char *text, const char *pair, int64_t context) {
  bool cut;
  TRY(ARRAY_RESERVE(texts->begin, texts->count, 2, texts->room, "texts to classify")); /* one more: where the last text ends */
  texts->begin[texts->count] = texts->tokens.count;
  TRY(text_loader_sample(encoder, text, pair, context, &texts->tokens, &cut));
  texts->begin[++texts->count] = texts->tokens.count;
  int64_t length = texts_length(texts, texts->count - 1);
  if (length > texts->longest) texts->longest = length;
  if (texts->count == 1 || length < texts->shortest) texts->shortest = length;
  texts->cut += cut;
  return STATUS_OK;
}

/* ---- requests of texts ---- */

typedef struct Place {
  int64_t length, index;
} Place;

typedef struct Run {
  Leader *leader;
  const Texts *texts;
  Place *order;                       /* [count], shorter texts first */
  int64_t batch, submitted, answered; /* texts */
  double sent[LEADER_DEPTH];          /* when each request in flight was submitted */
  int64_t requests;
  int32_t *ids; /* [batch, longest]: the leader copies them */
} Run;

static int by_length(const void *a, const void *b) {
  const Place *x = a, *y = b;
  if (x->length != y->length) return x->length < y->length ? -1 : 1;
  return x->index < y->index ? -1 : 1;
}

static Status run_all(Run *run, bool quiet, TextsTake *take, void *context, double *seconds) {
  const Texts *texts = run->texts;
  const int64_t classes = leader_weights(run->leader)->config->classes;
  Progress progress;
  char note[40] = "";
  double start = clock_now();
  progress_start(&progress, "classifying", texts->count, quiet);
  while (run->answered < texts->count) {
    while (run->submitted < texts->count && leader_takes_more(run->leader)) {
      const Place *first = &run->order[run->submitted];
      int64_t left = texts->count - run->submitted, count = 0;
      for (; count < left && count < run->batch && first[count].length == first->length; count++)
        memcpy(run->ids + count * first->length, texts->tokens.ids + texts->begin[first[count].index],
               (size_t)first->length * sizeof *run->ids);
      run->submitted += count;
      run->sent[run->requests++ % LEADER_DEPTH] = clock_now();
      TRY(leader_text_classify(run->leader, run->ids, count, first->length));
    }
    int64_t oldest = run->requests - leader_under_way(run->leader);
    LeaderAnswer answer;
    TRY(leader_collect(run->leader, &answer));
    double took = clock_now() - run->sent[oldest % LEADER_DEPTH];
    for (int64_t b = 0; b < answer.batch; b++) TRY(take(context, run->order[run->answered++].index, answer.logits + b * classes, took));
    *seconds = clock_now() - start;
    snprintf(note, sizeof note, "%.0f texts/s", (double)run->answered / *seconds);
    progress_update(&progress, run->answered, note);
  }
  progress_finish(&progress, run->answered, note);
  return STATUS_OK;
}

Status texts_classify(Leader *leader, const Texts *texts, int64_t batch, bool quiet, TextsTake *take, void *context, double *seconds) {
  Run run = {.leader = leader,
             .texts = texts,
             .batch = batch,
             .order = malloc((size_t)texts->count * sizeof *run.order + 1),
             .ids = malloc((size_t)(batch * texts->longest) * sizeof *run.ids + 1)};
  Status status = run.order && run.ids ? STATUS_OK : status_no_memory(NULL, "texts to classify");
  *seconds = 0;
  for (int64_t i = 0; run.order && i < texts->count; i++) run.order[i] = (Place){texts_length(texts, i), i};
  if (status == STATUS_OK) {
    qsort(run.order, (size_t)texts->count, sizeof *run.order, by_length);
    status = run_all(&run, quiet, take, context, seconds);
  }
  free(run.order);
  free(run.ids);
  return status;
}
