/* What a batch holds, the ring of batches and the threads that fill it. Leaves out: operations on images (augment.c), resizing (image.c).
 *
 * Batches are numbered: serial = epoch * steps + step, and serial s lives in slot s mod slots. A worker claims the next number when its
 * slot is free; loader_next hands them out in order, so the number of workers changes nothing but the speed.
 *
 *   slot:  free --claimed--> busy --filled--> ready --loader_next--> held --next loader_next--> free
 *
 * Everything below `mutex` in the struct is guarded by it, but for the contents of a slot that is busy (its worker's) or held (the
 * caller's). */
#include "data/loader.h"
#include "base/log.h"
#include "base/share.h"
#include "base/threads.h"
#include "data/augment.h"
#include "data/dataset.h"
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Crops, planes, erasing ---- */

typedef struct CropBox {
  int x, y, w, h;
} CropBox;

enum { CROP_TRIES = 10, ERASE_TRIES = 10, PAD_SHARE = 8 };
static const double min_aspect = 3.0 / 4.0, max_aspect = 4.0 / 3.0;
static const double erase_min = 0.02, erase_max = 0.33, erase_aspect = 0.3; /* areas; the least of width to height */

static CropBox centre_crop(int width, int height) {
  double aspect = (double)width / height;
  int w = width, h = height;
  if (aspect < min_aspect) h = (int)lround(w / min_aspect);
  if (aspect > max_aspect) w = (int)lround(h * max_aspect);
  return (CropBox){(width - w) / 2, (height - h) / 2, w, h};
}

/* A random box within width x height: its area is uniform in [min, 1] of the whole, the logarithm of its aspect uniform between
 * 3/4 and 4/3; when ten draws do not fit, the largest centred box of an aspect in that range (as torchvision's RandomResizedCrop). */
static CropBox random_crop(Rng *rng, int width, int height, double min) {
  for (int i = 0; i < CROP_TRIES; i++) {
    double area = (double)width * height * (min + (1.0 - min) * rng_uniform(rng));
    double aspect = exp(log(min_aspect) + (log(max_aspect) - log(min_aspect)) * rng_uniform(rng));
    int w = (int)lround(sqrt(area * aspect)), h = (int)lround(sqrt(area / aspect));
    if (w < 1 || h < 1 || w > width || h > height) continue;
    int x = (int)rng_below(rng, (uint64_t)(width - w) + 1), y = (int)rng_below(rng, (uint64_t)(height - h) + 1);
    return (CropBox){x, y, w, h};
  }
  return centre_crop(width, height);
}

/* Where a side x side window starts on an image padded by side / 8 on all sides: each coordinate in [-side/8, side/8]. */
static void random_shift(Rng *rng, int side, int *dx, int *dy) {
  int pad = side / PAD_SHARE;
  *dx = (int)rng_below(rng, 2 * (uint64_t)pad + 1) - pad;
  *dy = (int)rng_below(rng, 2 * (uint64_t)pad + 1) - pad;
}

/* True half of the time. */
static bool random_flip(Rng *rng) { return rng_next(rng) >> 63; }

/* (v / 255 - mean) / std for each channel and level. */
typedef struct PixelTable {
  float values[3][256];
} PixelTable;

static void make_table(PixelTable *table, const double mean[3], const double std[3]) {
  for (int c = 0; c < 3; c++) {
    for (int v = 0; v < 256; v++) table->values[c][v] = (float)((v / 255.0 - mean[c]) / std[c]);
  }
}

static void fill_black(const PixelTable *table, int begin, int end, int side, float *out /* a row of each plane */) {
  for (int c = 0; c < 3; c++) {
    for (int x = begin; x < end; x++) out[(size_t)c * side * side + x] = table->values[c][0];
  }
}

/* Output columns [begin, end) of one row from consecutive pixels, or from pixels right to left. */
static void fill_row(const PixelTable *table, const uint8_t *pixel, int step, int begin, int end, int side, float *out) {
  float *r = out, *g = out + (size_t)side * side, *b = g + (size_t)side * side;
  for (int x = begin; x < end; x++, pixel += step) {
    r[x] = table->values[0][pixel[0]];
    g[x] = table->values[1][pixel[1]];
    b[x] = table->values[2][pixel[2]];
  }
}

static int within(int value, int max) { return value < 0 ? 0 : value > max ? max : value; }

/* out[c, y, x] = table of in's pixel (x + dx, y + dy), black outside of it; mirrored left to right with `flip`. */
static void put_planes(const PixelTable *table, const Image *in, int dx, int dy, bool flip, int side, float *out) {
  int left = within(-dx, side), right = within(in->width - dx, side); /* columns of the window that lie on the image */
  int begin = flip ? side - right : left, end = flip ? side - left : right;
  int start = flip ? right - 1 + dx : left + dx, step = flip ? -3 : 3;
  for (int y = 0; y < side; y++, out += side) {
    if (y + dy < 0 || y + dy >= in->height || begin >= end) {
      fill_black(table, 0, side, side, out);
      continue;
    }
    fill_black(table, 0, begin, side, out);
    fill_row(table, in->rgb + ((size_t)(y + dy) * in->width + start) * 3, step, begin, end, side, out);
    fill_black(table, end, side, side, out);
  }
}

/* The same window as an image: what put_planes puts through its table. */
static Status cut_window(const Image *in, int dx, int dy, bool flip, int side, Image *out) {
  TRY(image_reshape(out, side, side));
  uint8_t *to = out->rgb;
  for (int y = 0; y < side; y++) {
    for (int x = 0; x < side; x++, to += 3) {
      int from = (flip ? side - 1 - x : x) + dx;
      bool inside = from >= 0 && from < in->width && y + dy >= 0 && y + dy < in->height;
      if (inside)
        memcpy(to, in->rgb + ((size_t)(y + dy) * in->width + from) * 3, 3);
      else
        memset(to, 0, 3);
    }
  }
  return STATUS_OK;
}

/* Random erasing (Zhong et al., 2020): with this probability a box, whose area is uniform between 2% and 33% of the image's and the
 * logarithm of whose aspect is uniform between 0.3 and 1 / 0.3, becomes 0 in all planes (the mean colour, after normalisation); when ten
 * draws do not fit, nothing does. */
static void random_erase(Rng *rng, double probability, int side, float *planes) {
  if (!(rng_uniform(rng) < probability)) return;
  for (int i = 0; i < ERASE_TRIES; i++) {
    double area = (double)side * side * (erase_min + (erase_max - erase_min) * rng_uniform(rng));
    double aspect = exp(log(erase_aspect) * (1 - 2 * rng_uniform(rng)));
    int w = (int)lround(sqrt(area * aspect)), h = (int)lround(sqrt(area / aspect));
    if (w < 1 || h < 1 || w > side || h > side) continue;
    int x = (int)rng_below(rng, (uint64_t)(side - w) + 1), y = (int)rng_below(rng, (uint64_t)(side - h) + 1);
    for (int row = 0; row < 3 * h; row++) {
      float *plane = planes + (size_t)(row / h) * side * side;
      memset(plane + (size_t)(y + row % h) * side + x, 0, (size_t)w * sizeof *plane);
    }
    return;
  }
}

/* ---- Filling one batch ---- */

/* Which records, in which order, with which random changes.
 * Invariant: a batch is a function of the set, the options and its number alone. The order of an epoch has a random stream of its own,
 * and so has every position of every epoch. */

/* What all workers read and none writes. */
typedef struct LoaderPlan {
  Dataset *set;
  LoaderOptions options;
  PixelTable table;
  int64_t count, steps; /* records of the set, batches per epoch */
  Share share;          /* of each batch */
} LoaderPlan;

/* Broken images met so far, shared by the workers. */
typedef struct LoaderFaults {
  pthread_mutex_t mutex;
  uint8_t *known; /* [count] 1: was warned about */
  int64_t skipped;
} LoaderFaults;

/* One worker's own memory. */
typedef struct LoaderHand {
  int32_t *order; /* [count] the order of order_epoch */
  int64_t order_epoch;
  Image source, fitted;
  Image window, spare; /* of a policy's operations */
  ResizeScratch scratch;
} LoaderHand;

/* Keep the loader's streams apart from each other and from those of other users of the same seed. */
static const uint64_t order_key = 0x6f72646572206f66, image_key = 0x7069637475726573;

enum { MIN_BROKEN = 4 }; /* fewer broken images in a batch are never an error */

/* Where all images have one size: memory for reading and resizing one, so that no later step allocates, whichever worker comes to work in
 * it. No crop takes more than the whole image. */
static Status reserve_one_size(LoaderHand *hand, const LoaderPlan *plan) {
  int width, height;
  if (!dataset_fixed_size(plan->set, &width, &height)) return STATUS_OK;
  TRY(image_new(&hand->source, width, height));
  return image_resize(&hand->scratch, &hand->source, 0, 0, width, height, &hand->fitted, plan->options.filter);
}

static Status loader_fill_open(LoaderHand *hand, const LoaderPlan *plan) {
  *hand = (LoaderHand){.order_epoch = -1};
  hand->order = malloc((size_t)plan->count * sizeof *hand->order);
  if (!hand->order) return status_set(STATUS_NO_MEMORY, "no memory for the order of %lld images", (long long)plan->count);
  for (int64_t i = 0; i < plan->count; i++) hand->order[i] = (int32_t)i;
  if (plan->options.augment.kind > AUGMENT_CROP) { /* now, so that no step allocates */
    TRY(image_new(&hand->window, plan->options.image, plan->options.image));
    TRY(image_new(&hand->spare, plan->options.image, plan->options.image));
  }
  TRY(image_new(&hand->fitted, plan->options.image, plan->options.image));
  return reserve_one_size(hand, plan);
}

static void loader_fill_close(LoaderHand *hand) {
  free(hand->order);
  image_release(&hand->source);
  image_release(&hand->fitted);
  image_release(&hand->window);
  image_release(&hand->spare);
  image_resize_release(&hand->scratch);
}

/* Reads record `index`, or the next one that can be read, or marks it. */
static Status read_record(LoaderHand *hand, const LoaderPlan *plan, LoaderFaults *faults, int64_t index, int32_t *label, bool *broken) {
  const bool marks = plan->options.mark_broken;
  for (int64_t i = 0; i < plan->count; i++) {
    int64_t record = (index + i) % plan->count;
    Status status = dataset_read(plan->set, record, &hand->source, label);
    *broken = i > 0 || (marks && status != STATUS_OK);
    const bool unreadable = status == STATUS_BAD_FILE || status == STATUS_UNSUPPORTED /* by this build */;
    if (!unreadable && status != STATUS_IO && status != STATUS_NOT_FOUND) return status;
    pthread_mutex_lock(&faults->mutex);
    bool fresh = !faults->known[record]; /* a broken record is warned about the first time that it is met */
    faults->known[record] = 1;
    faults->skipped += fresh;
    pthread_mutex_unlock(&faults->mutex);
    if (fresh) log_warning("%s; %s", status_message(), marks ? "left out" : "skipped, another image takes its place");
    if (marks) {
      *label = -1;
      return STATUS_OK;
    }
  }
  return status_set(STATUS_BAD_FILE, "%s: not one image can be read", dataset_describe(plan->set));
}

/* `image` at the output's size: itself, or hand->fitted. */
static Status fit(LoaderHand *hand, const LoaderOptions *options, const Image *image, CropBox box, const Image **fitted) {
  *fitted = image;
  const int side = options->image;
  if (image->width == side && image->height == side && box.w == side && box.h == side) return STATUS_OK;
  *fitted = &hand->fitted;
  return image_resize(&hand->scratch, image, box.x, box.y, box.w, box.h, &hand->fitted, options->filter);
}

/* `image` without random changes: out [3, side, side]. */
static Status loader_fill_plain(LoaderHand *hand, const LoaderOptions *options, const PixelTable *table, const Image *image, float *out) {
  const Image *fitted;
  TRY(fit(hand, options, image, (CropBox){0, 0, image->width, image->height}, &fitted));
  put_planes(table, fitted, 0, 0, false, options->image, out);
  return STATUS_OK;
}

static Status fill_augmented(LoaderHand *hand, const LoaderPlan *plan, uint64_t stream, float *out) {
  const LoaderOptions *options = &plan->options;
  const Image *image = &hand->source, *fitted;
  Rng rng;
  rng_init(&rng, options->seed ^ image_key, stream);
  CropBox box = {0, 0, image->width, image->height};
  int dx = 0, dy = 0;
  bool crop = options->augment.kind != AUGMENT_NONE, flip = false;
  if (crop && options->crop_min > 0)
    box = random_crop(&rng, image->width, image->height, options->crop_min);
  else if (crop)
    random_shift(&rng, options->image, &dx, &dy);
  if (crop) flip = random_flip(&rng);
  TRY(fit(hand, options, image, box, &fitted));
  if (options->augment.kind > AUGMENT_CROP) {
    TRY(cut_window(fitted, dx, dy, flip, options->image, &hand->window));
    TRY(augment_policy_apply(&options->augment, &rng, &hand->window, &hand->spare));
    put_planes(&plan->table, &hand->window, 0, 0, false, options->image, out);
  } else {
    put_planes(&plan->table, fitted, dx, dy, flip, options->image, out);
  }
  if (options->erase > 0) random_erase(&rng, options->erase, options->image, out);
  return STATUS_OK;
}

/* Batch number `serial` = epoch * steps + step into batch, whose pixels and labels have room for options.batch images. */
static Status loader_fill(LoaderHand *hand, const LoaderPlan *plan, LoaderFaults *faults, int64_t serial, Batch *batch) {
  const LoaderOptions *options = &plan->options;
  int64_t begin = serial % plan->steps * options->batch, left = plan->count - begin;
  batch->epoch = serial / plan->steps;
  batch->step = serial % plan->steps;
  batch->last = batch->step == plan->steps - 1;
  batch->whole = (int)(left < options->batch ? left : options->batch);
  batch->first = (int)share_begin(batch->whole, plan->share);
  batch->count = (int)share_end(batch->whole, plan->share) - batch->first;
  begin += batch->first;
  if (options->shuffle && hand->order_epoch != batch->epoch) {
    /* From the unshuffled order each time: an epoch's order must not depend on the epochs this worker saw before. */
    Rng rng;
    rng_init(&rng, options->seed ^ order_key, (uint64_t)batch->epoch);
    for (int64_t i = 0; i < plan->count; i++) hand->order[i] = (int32_t)i;
    rng_shuffle(&rng, hand->order, plan->count);
    hand->order_epoch = batch->epoch;
  }
  size_t size = 3 * (size_t)options->image * options->image;
  int broken_count = 0;
  bool changed = options->augment.kind != AUGMENT_NONE || options->erase > 0;
  for (int i = 0; i < batch->count; i++) {
    bool broken = false;
    TRY(read_record(hand, plan, faults, hand->order[begin + i], &batch->labels[i], &broken));
    broken_count += broken;
    if (broken_count >= MIN_BROKEN && 2 * broken_count > batch->count) {
      return status_set(STATUS_BAD_FILE, "%s: more than half of a batch of %d images cannot be read; check the data set",
                        dataset_describe(plan->set), batch->count);
    }
    uint64_t stream = (uint64_t)(batch->epoch * plan->count + begin + i);
    float *out = batch->pixels + (size_t)i * size;
    if (batch->labels[i] < 0) {
      for (int y = 0; y < options->image; y++)
        fill_black(&plan->table, 0, options->image, options->image, out + (size_t)y * options->image);
      continue;
    }
    TRY(changed ? fill_augmented(hand, plan, stream, out) : loader_fill_plain(hand, options, &plan->table, &hand->source, out));
  }
  return STATUS_OK;
}

/* ---- A sheet of a batch ---- */

enum { SHEET_MAX = 64, SHEET_COLUMNS = 8, SHEET_GAP = 2, SHEET_TILE = 96 };

Status loader_sheet(const Batch *batch, const LoaderOptions *options, const char *path) {
  int count = batch->count < SHEET_MAX ? batch->count : SHEET_MAX, side = options->image;
  if (count < 1 || side < 1) return status_set(STATUS_BAD_VALUE, "%s: there is no image to draw", path);
  int zoom = side < SHEET_TILE ? SHEET_TILE / side : 1, tile = side * zoom + SHEET_GAP;
  int columns = count < SHEET_COLUMNS ? count : SHEET_COLUMNS, rows = (count + SHEET_COLUMNS - 1) / SHEET_COLUMNS;
  Image sheet;
  TRY(image_new(&sheet, columns * tile + SHEET_GAP, rows * tile + SHEET_GAP));
  for (int i = 0; i < count; i++) {
    const float *pixels = batch->pixels + (size_t)i * 3 * side * side;
    const int left = SHEET_GAP + i % SHEET_COLUMNS * tile, top = SHEET_GAP + i / SHEET_COLUMNS * tile;
    for (int y = 0; y < side * zoom; y++) {
      uint8_t *to = sheet.rgb + ((size_t)(top + y) * sheet.width + left) * 3;
      for (int k = 0; k < 3 * side * zoom; k++) {
        const int x = k / 3 / zoom, c = k % 3;
        double level = (pixels[((size_t)c * side + y / zoom) * side + x] * options->std[c] + options->mean[c]) * 255.0;
        *to++ = (uint8_t)(level < 0 ? 0 : level > 255 ? 255 : lround(level));
      }
    }
  }
  Status status = image_save_png(&sheet, path);
  image_release(&sheet);
  return status;
}

/* ---- Workers ---- */

enum { MAX_WORKERS = 64, MAX_AHEAD = 1024, MAX_BATCH = 1 << 20, MAX_IMAGE = 1 << 13, DEFAULT_AHEAD = 3, MESSAGE_BYTES = 1024 };

typedef enum SlotState { SLOT_FREE, SLOT_BUSY, SLOT_READY, SLOT_HELD } SlotState;

typedef struct Slot {
  SlotState state;
  Batch batch;
  Status status;
  char message[MESSAGE_BYTES]; /* with a status that is not OK: messages are kept per thread, this one has to change threads */
} Slot;

typedef struct Worker {
  pthread_t thread;
  LoaderHand hand;
  Loader *loader;
} Worker;

struct Loader {
  LoaderPlan plan;
  LoaderFaults faults;
  Worker *workers;
  int worker_count; /* running */
  int slot_count;
  pthread_mutex_t mutex;
  pthread_cond_t work, ready; /* a slot became free; a slot was filled */
  Slot *slots;
  int64_t claim, deliver; /* next number to be claimed, to be handed out */
  Slot *held;
  Share share; /* from the next seek on */
  bool stopping, seeking;
};

static void *work(void *argument) {
  Worker *worker = argument;
  Loader *loader = worker->loader;
  pthread_mutex_lock(&loader->mutex);
  for (;;) {
    while (!loader->stopping && (loader->seeking || loader->slots[loader->claim % loader->slot_count].state != SLOT_FREE))
      pthread_cond_wait(&loader->work, &loader->mutex);
    if (loader->stopping) break;
    int64_t serial = loader->claim++;
    Slot *slot = &loader->slots[serial % loader->slot_count];
    slot->state = SLOT_BUSY;
    pthread_mutex_unlock(&loader->mutex);
    slot->status = loader_fill(&worker->hand, &loader->plan, &loader->faults, serial, &slot->batch);
    if (slot->status != STATUS_OK) snprintf(slot->message, sizeof slot->message, "%s", status_message());
    pthread_mutex_lock(&loader->mutex);
    slot->state = SLOT_READY;
    pthread_cond_broadcast(&loader->ready);
  }
  pthread_mutex_unlock(&loader->mutex);
  return NULL;
}

Status loader_next(Loader *loader, Batch *batch) {
  pthread_mutex_lock(&loader->mutex);
  if (loader->held) loader->held->state = SLOT_FREE;
  pthread_cond_broadcast(&loader->work);
  Slot *slot = &loader->slots[loader->deliver % loader->slot_count];
  while (slot->state != SLOT_READY) pthread_cond_wait(&loader->ready, &loader->mutex);
  slot->state = SLOT_HELD;
  loader->held = slot;
  loader->deliver++;
  pthread_mutex_unlock(&loader->mutex);
  if (slot->status != STATUS_OK) return status_set(slot->status, "%s", slot->message);
  *batch = slot->batch;
  return STATUS_OK;
}

Status loader_seek(Loader *loader, int64_t epoch, int64_t step) {
  if (epoch < 0 || epoch > INT32_MAX || step < 0 || step > loader->plan.steps) {
    return status_set(STATUS_BAD_VALUE, "epoch %lld, step %lld: epochs count from 0, steps from 0 to %lld", (long long)epoch,
                      (long long)step, (long long)loader->plan.steps);
  }
  pthread_mutex_lock(&loader->mutex);
  loader->seeking = true;
  for (int i = 0; i < loader->slot_count; i++) { /* nothing is claimed any more: what was done before stays done */
    while (loader->slots[i].state == SLOT_BUSY) pthread_cond_wait(&loader->ready, &loader->mutex);
    if (loader->slots[i].state == SLOT_READY) loader->slots[i].state = SLOT_FREE;
  }
  loader->plan.share = loader->share;
  loader->claim = loader->deliver = epoch * loader->plan.steps + step;
  loader->seeking = false;
  pthread_cond_broadcast(&loader->work);
  pthread_mutex_unlock(&loader->mutex);
  return STATUS_OK;
}

void loader_share(Loader *loader, Share share) { loader->share = share; }

/* Pixels of one batch, all channels. */
static size_t batch_numbers(const LoaderOptions *options) { return (size_t)options->batch * 3 * options->image * options->image; }

LoaderFacts loader_facts(const Loader *loader) {
  const LoaderOptions *options = &loader->plan.options;
  LoaderFaults *faults = (LoaderFaults *)&loader->faults; /* the lock is no part of the value */
  size_t bytes = (size_t)loader->slot_count * (batch_numbers(options) * sizeof(float) + (size_t)options->batch * sizeof(int32_t));
  pthread_mutex_lock(&faults->mutex);
  int64_t skipped = faults->skipped;
  pthread_mutex_unlock(&faults->mutex);
  return (LoaderFacts){.steps = loader->plan.steps, .skipped = skipped, .bytes = bytes};
}

static Status check_range(const char *what, int64_t value, int64_t min, int64_t max) {
  if (value >= min && value <= max) return STATUS_OK;
  return status_set(STATUS_BAD_VALUE, "%s %lld: %lld to %lld are accepted", what, (long long)value, (long long)min, (long long)max);
}

static Status check_options(const LoaderOptions *options, int64_t count) {
  TRY(check_range("image size", options->image, 1, MAX_IMAGE));
  TRY(check_range("batch", options->batch, 1, MAX_BATCH));
  TRY(check_range("loader threads", options->workers, 1, MAX_WORKERS));
  TRY(check_range("batches ahead", options->ahead, 0, MAX_AHEAD));
  TRY(check_range("images in the data set", count, 1, INT32_MAX));
  if (!(options->crop_min >= 0 && options->crop_min <= 1)) {
    return status_set(STATUS_BAD_VALUE, "--crop-min %g: 0 to 1 are accepted", options->crop_min);
  }
  if (!(options->erase >= 0 && options->erase <= 1))
    return status_set(STATUS_BAD_VALUE, "probability of erasing %g: 0 to 1 are accepted", options->erase);
  for (int c = 0; c < 3; c++) {
    if (isfinite(options->mean[c]) && isfinite(options->std[c]) && options->std[c] > 0) continue;
    return status_set(STATUS_BAD_VALUE, "normalisation by mean %g and deviation %g: the deviation must be positive", options->mean[c],
                      options->std[c]);
  }
  if (options->drop_last && options->batch > count) {
    return status_set(STATUS_BAD_VALUE, "batch %d: the data set has only %lld images; take a smaller batch", options->batch,
                      (long long)count);
  }
  return STATUS_OK;
}

static Status make_slots(Loader *loader) {
  const LoaderOptions *options = &loader->plan.options;
  int ahead = options->ahead ? options->ahead : DEFAULT_AHEAD;
  loader->slot_count = 1 + (ahead > options->workers ? ahead : options->workers); /* 1: the one the caller holds */
  size_t pixels = batch_numbers(options);
  loader->slots = calloc((size_t)loader->slot_count, sizeof *loader->slots);
  loader->faults.known = calloc((size_t)loader->plan.count, 1);
  bool complete = loader->slots && loader->faults.known;
  for (int i = 0; complete && i < loader->slot_count; i++) {
    Batch *batch = &loader->slots[i].batch;
    batch->labels = malloc((size_t)options->batch * sizeof *batch->labels);
    complete = batch->labels && posix_memalign((void **)&batch->pixels, 64, pixels * sizeof *batch->pixels) == 0;
  }
  if (complete) return STATUS_OK;
  return status_set(STATUS_NO_MEMORY, "no memory for %d batches of %d images of %d x %d; take a smaller batch", loader->slot_count,
                    options->batch, options->image, options->image);
}

static Status start_workers(Loader *loader) {
  int wanted = loader->plan.options.workers;
  loader->workers = calloc((size_t)wanted, sizeof *loader->workers);
  if (!loader->workers) return status_set(STATUS_NO_MEMORY, "no memory for %d loader threads", wanted);
  for (int i = 0; i < wanted; i++) {
    Worker *worker = &loader->workers[i];
    worker->loader = loader;
    Status status = loader_fill_open(&worker->hand, &loader->plan);
    int error = status == STATUS_OK ? threads_spawn(&worker->thread, work, worker) : 0;
    if (error) status = status_set(STATUS_NO_MEMORY, "cannot start loader thread %d of %d: %s", i + 1, wanted, strerror(error));
    if (status != STATUS_OK) {
      loader_fill_close(&worker->hand);
      return status;
    }
    loader->worker_count++;
  }
  return STATUS_OK;
}

Status loader_new(Loader **loader, Dataset *set, const LoaderOptions *options) {
  *loader = NULL;
  int64_t count = dataset_count(set);
  TRY(check_options(options, count));
  Loader *fresh = calloc(1, sizeof *fresh);
  if (!fresh) return status_no_memory(NULL, "a loader");
  int64_t steps = options->drop_last ? count / options->batch : (count + options->batch - 1) / options->batch;
  fresh->plan = (LoaderPlan){.set = set, .options = *options, .count = count, .steps = steps};
  make_table(&fresh->plan.table, options->mean, options->std);
  pthread_mutex_init(&fresh->faults.mutex, NULL);
  pthread_mutex_init(&fresh->mutex, NULL);
  pthread_cond_init(&fresh->work, NULL);
  pthread_cond_init(&fresh->ready, NULL);
  Status status = make_slots(fresh);
  if (status == STATUS_OK) status = start_workers(fresh);
  if (status != STATUS_OK) {
    loader_free(fresh);
    return status;
  }
  *loader = fresh;
  return STATUS_OK;
}

void loader_free(Loader *loader) {
  if (!loader) return;
  pthread_mutex_lock(&loader->mutex);
  loader->stopping = true;
  pthread_cond_broadcast(&loader->work);
  pthread_mutex_unlock(&loader->mutex);
  for (int i = 0; i < loader->worker_count; i++) {
    pthread_join(loader->workers[i].thread, NULL);
    loader_fill_close(&loader->workers[i].hand);
  }
  for (int i = 0; loader->slots && i < loader->slot_count; i++) {
    free(loader->slots[i].batch.pixels);
    free(loader->slots[i].batch.labels);
  }
  free(loader->slots);
  free(loader->workers);
  free(loader->faults.known);
  pthread_cond_destroy(&loader->work);
  pthread_cond_destroy(&loader->ready);
  pthread_mutex_destroy(&loader->mutex);
  pthread_mutex_destroy(&loader->faults.mutex);
  free(loader);
}

void loader_levels(const LoaderOptions *options, float values[3][256]) {
  PixelTable table;
  make_table(&table, options->mean, options->std);
  memcpy(values, table.values, sizeof table.values);
}

Status loader_prepare(const Image *image, const LoaderOptions *options, float *out) {
  PixelTable table;
  LoaderHand hand = {0};
  make_table(&table, options->mean, options->std);
  Status status = image_new(&hand.fitted, options->image, options->image);
  if (status == STATUS_OK) status = loader_fill_plain(&hand, options, &table, image, out);
  loader_fill_close(&hand);
  return status;
}
