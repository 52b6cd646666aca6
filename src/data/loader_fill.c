/* One batch: which records, in which order, with which random changes. Leaves out: threads (loader.c) and pixels (augment.c, resize.c).
 * Invariant: a batch is a function of the set, the options and its number alone. The order of an epoch has a random stream of its own,
 * and so has every position of every epoch. */
#include "data/loader_fill.h"
#include "base/log.h"
#include <stdlib.h>
#include <string.h>

/* Keep the loader's streams apart from each other and from those of other users of the same seed. */
static const uint64_t order_key = 0x6f72646572206f66, picture_key = 0x7069637475726573;

enum { LEAST_BROKEN = 4 }; /* fewer broken pictures in a batch are never an error */

Status loader_fill_open(LoaderHand *hand, const LoaderPlan *plan) {
  *hand = (LoaderHand){.order_epoch = -1};
  hand->order = malloc((size_t)plan->count * sizeof *hand->order);
  if (!hand->order) return status_set(STATUS_NO_MEMORY, "no memory for the order of %lld pictures", (long long)plan->count);
  for (int64_t i = 0; i < plan->count; i++) hand->order[i] = (int32_t)i;
  if (plan->options.augment.kind > AUGMENT_CROP) { /* now, so that no step allocates */
    TRY(image_new(&hand->window, plan->options.image, plan->options.image));
    TRY(image_new(&hand->spare, plan->options.image, plan->options.image));
  }
  return image_new(&hand->fitted, plan->options.image, plan->options.image);
}

void loader_fill_close(LoaderHand *hand) {
  free(hand->order);
  image_release(&hand->source);
  image_release(&hand->fitted);
  image_release(&hand->window);
  image_release(&hand->spare);
  resize_release(&hand->scratch);
}

/* From the unshuffled order each time: an epoch's order must not depend on the epochs this worker saw before. */
static void set_order(LoaderHand *hand, const LoaderPlan *plan, int64_t epoch) {
  if (!plan->options.shuffle || hand->order_epoch == epoch) return;
  Rng rng;
  rng_init(&rng, plan->options.seed ^ order_key, (uint64_t)epoch);
  for (int64_t i = 0; i < plan->count; i++) hand->order[i] = (int32_t)i;
  rng_shuffle(&rng, hand->order, plan->count);
  hand->order_epoch = epoch;
}

static bool broken(Status status) { return status == STATUS_BAD_FILE || status == STATUS_IO || status == STATUS_NOT_FOUND; }

/* Warns about a broken record the first time it is met; the message is the failed read's. */
static void note_broken(LoaderFaults *faults, int64_t index) {
  pthread_mutex_lock(&faults->mutex);
  bool fresh = !faults->known[index];
  faults->known[index] = 1;
  faults->skipped += fresh;
  pthread_mutex_unlock(&faults->mutex);
  if (fresh) log_warning("%s; skipped, another picture takes its place", status_message());
}

/* Reads record `index`, or the next one that can be read. */
static Status read_record(LoaderHand *hand, const LoaderPlan *plan, LoaderFaults *faults, int64_t index, int32_t *label, bool *replaced) {
  for (int64_t i = 0; i < plan->count; i++) {
    int64_t record = (index + i) % plan->count;
    Status status = dataset_read(plan->set, record, &hand->source, label);
    *replaced = i > 0;
    if (!broken(status)) return status;
    note_broken(faults, record);
  }
  return status_set(STATUS_BAD_FILE, "%s: not one picture can be read", dataset_describe(plan->set));
}

static bool fits(const Image *image, int side) { return image->width == side && image->height == side; }

/* `image` at the output's size: itself, or hand->fitted. */
static Status fit(LoaderHand *hand, const LoaderOptions *options, const Image *image, CropBox box, const Image **fitted) {
  *fitted = image;
  if (fits(image, options->image) && box.w == image->width && box.h == image->height) return STATUS_OK;
  *fitted = &hand->fitted;
  return resize_with(&hand->scratch, image, box.x, box.y, box.w, box.h, &hand->fitted, options->filter);
}

Status loader_fill_plain(LoaderHand *hand, const LoaderOptions *options, const PixelTable *table, const Image *image, float *out) {
  const Image *fitted;
  TRY(fit(hand, options, image, (CropBox){0, 0, image->width, image->height}, &fitted));
  augment_planes(table, fitted, 0, 0, false, options->image, out);
  return STATUS_OK;
}

static Status fill_augmented(LoaderHand *hand, const LoaderPlan *plan, uint64_t stream, float *out) {
  const LoaderOptions *options = &plan->options;
  const Image *image = &hand->source, *fitted;
  Rng rng;
  rng_init(&rng, options->seed ^ picture_key, stream);
  CropBox box = {0, 0, image->width, image->height};
  int dx = 0, dy = 0;
  bool crop = options->augment.kind != AUGMENT_NONE, flip = false;
  if (crop && options->crop_least > 0)
    box = augment_crop(&rng, image->width, image->height, options->crop_least);
  else if (crop)
    augment_shift(&rng, options->image, &dx, &dy);
  if (crop) flip = augment_flip(&rng);
  TRY(fit(hand, options, image, box, &fitted));
  if (options->augment.kind > AUGMENT_CROP) {
    TRY(augment_window(fitted, dx, dy, flip, options->image, &hand->window));
    TRY(augment_policy_apply(&options->augment, &rng, &hand->window, &hand->spare));
    augment_planes(&plan->table, &hand->window, 0, 0, false, options->image, out);
  } else {
    augment_planes(&plan->table, fitted, dx, dy, flip, options->image, out);
  }
  if (options->erase > 0) augment_erase(&rng, options->erase, options->image, out);
  return STATUS_OK;
}

Status loader_fill(LoaderHand *hand, const LoaderPlan *plan, LoaderFaults *faults, int64_t serial, Batch *batch) {
  const LoaderOptions *options = &plan->options;
  int64_t begin = serial % plan->steps * options->batch, left = plan->count - begin;
  batch->epoch = serial / plan->steps;
  batch->step = serial % plan->steps;
  batch->last = batch->step == plan->steps - 1;
  batch->whole = (int)(left < options->batch ? left : options->batch);
  batch->first = (int)share_begin(batch->whole, plan->share);
  batch->count = (int)share_end(batch->whole, plan->share) - batch->first;
  begin += batch->first;
  set_order(hand, plan, batch->epoch);
  size_t size = 3 * (size_t)options->image * options->image;
  int replaced_count = 0;
  bool changed = options->augment.kind != AUGMENT_NONE || options->erase > 0;
  for (int i = 0; i < batch->count; i++) {
    bool replaced = false;
    TRY(read_record(hand, plan, faults, hand->order[begin + i], &batch->labels[i], &replaced));
    replaced_count += replaced;
    if (replaced_count >= LEAST_BROKEN && 2 * replaced_count > batch->count) {
      return status_set(STATUS_BAD_FILE, "%s: more than half of a batch of %d pictures cannot be read; check the data set",
                        dataset_describe(plan->set), batch->count);
    }
    uint64_t stream = (uint64_t)(batch->epoch * plan->count + begin + i);
    float *out = batch->pixels + (size_t)i * size;
    TRY(changed ? fill_augmented(hand, plan, stream, out) : loader_fill_plain(hand, options, &plan->table, &hand->source, out));
  }
  return STATUS_OK;
}
