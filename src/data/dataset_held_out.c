/* A training part divided in two: what is learnt from, and what is held out for validation (held_out.h). A view of the whole part, which it
 * owns; labels are asked for without decoding pictures. */
#include "data/dataset_source.h"
#include "data/held_out.h"
#include <stdlib.h>
#include <string.h>

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

static void close_view(Dataset *set) {
  View *view = set->state;
  if (!view) return;
  dataset_close(view->whole);
  free(view->record);
  free(view);
}

/* The side's numbers into view->record. */
static Status choose(Dataset *set, bool held_out, int64_t wanted) {
  View *view = set->state;
  int64_t count = view->whole->count;
  int32_t *labels = malloc((size_t)count * sizeof *labels);
  uint8_t *held = malloc((size_t)count);
  view->record = malloc((size_t)count * sizeof *view->record);
  Status status = labels && held && view->record ? STATUS_OK : status_set(STATUS_NO_MEMORY, "no memory for a data set");
  for (int64_t i = 0; status == STATUS_OK && i < count; i++) labels[i] = view->whole->label(view->whole, i);
  if (status == STATUS_OK) status = held_out_choose(labels, count, view->whole->classes, wanted, held);
  for (int64_t i = 0; status == STATUS_OK && i < count; i++)
    if (held[i] == held_out) view->record[set->count++] = (int32_t)i;
  free(labels);
  free(held);
  return status;
}

/* What the view has from the whole; the names of the classes become its own. */
static void take_over(Dataset *set, Dataset *whole) {
  set->classes = whole->classes;
  set->labels = whole->labels;
  whole->labels = NULL;
  set->fixed_size = whole->fixed_size;
  set->width = whole->width;
  set->height = whole->height;
  memcpy(set->mean, whole->mean, sizeof set->mean);
  memcpy(set->std, whole->std, sizeof set->std);
  set->read = read_viewed;
  set->label = label_viewed;
}

static Status fill(Dataset *set, const char *name, const char *data_dir, bool held_out, int64_t count) {
  View *view = set->state;
  TRY(dataset_open(&view->whole, name, data_dir, DATASET_TRAIN));
  take_over(set, view->whole);
  Status status = choose(set, held_out, count);
  if (status != STATUS_OK) return status_wrap(status, "%s", view->whole->description);
  set->mapped = (size_t)((double)view->whole->mapped * (double)set->count / (double)view->whole->count);
  return dataset_set_description(set, held_out ? "%lld pictures held out from %s" : "%lld pictures, without those held out, of %s",
                                 (long long)set->count, view->whole->description);
}

Status dataset_open_held_out(Dataset **set, const char *name, const char *data_dir, bool held_out, int64_t count) {
  if (count == 0 && !held_out) return dataset_open(set, name, data_dir, DATASET_TRAIN);
  *set = NULL;
  Dataset *fresh = calloc(1, sizeof *fresh);
  View *view = calloc(1, sizeof *view);
  if (!fresh || !view) {
    free(fresh);
    free(view);
    return status_set(STATUS_NO_MEMORY, "no memory for a data set");
  }
  fresh->state = view;
  fresh->close = close_view;
  Status status = fill(fresh, name, data_dir, held_out, count);
  if (status != STATUS_OK)
    dataset_close(fresh);
  else
    *set = fresh;
  return status;
}
