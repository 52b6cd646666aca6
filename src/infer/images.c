/* Finds, decodes, batches and ranks; printing is report.c's. */
#include "infer/images.h"
#include "base/clock.h"
#include "base/files.h"
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Takes `path` over; NULL is out of memory. The array's room is always the next power of two. */
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

static bool prepare(ImageResult *result, const LoaderOptions *options, float *out) {
  Image image = {0};
  Status status = image_load(&image, result->path);
  if (status == STATUS_OK) status = loader_prepare(&image, options, out);
  image_release(&image);
  if (status != STATUS_OK) snprintf(result->message, sizeof result->message, "%s", status_message());
  return result->read = status == STATUS_OK;
}

/* One request: the images that members [batch] name. */
static Status run_batch(Leader *leader, const float *pixels, int64_t batch, int top, ImageResult **members, double *seconds) {
  LeaderAnswer answer;
  double start = clock_now();
  TRY(leader_submit(leader, pixels, batch));
  TRY(leader_collect(leader, &answer));
  double took = clock_now() - start;
  *seconds += took;
  int64_t classes = leader_weights(leader)->config->classes;
  for (int64_t b = 0; b < batch; b++) {
    members[b]->seconds = took;
    members[b]->count = top < classes ? top : (int)classes;
    ranking_top(answer.logits + b * classes, classes, members[b]->count, members[b]->index, members[b]->probability);
  }
  return STATUS_OK;
}

Status images_classify(Leader *leader, const char *const *paths, int count, int64_t batch, int top, ImageResult *results, double *seconds) {
  LoaderOptions options;
  weights_loader_options(leader_weights(leader), &options);
  int64_t size = weights_pixels(leader_weights(leader)), held = 0;
  float *pixels = malloc((size_t)(batch * size) * sizeof *pixels);
  ImageResult **members = malloc((size_t)batch * sizeof(ImageResult *));
  Status status = pixels && members ? STATUS_OK : status_set(STATUS_NO_MEMORY, "no memory for %lld images", (long long)batch);
  *seconds = 0;
  for (int i = 0; i < count && status == STATUS_OK; i++) {
    results[i] = (ImageResult){.path = paths[i]};
    if (prepare(&results[i], &options, pixels + held * size)) members[held++] = &results[i];
    if (held == 0 || (held < batch && i + 1 < count)) continue;
    status = run_batch(leader, pixels, held, top, members, seconds);
    held = 0;
  }
  free(pixels);
  free(members);
  return status;
}
