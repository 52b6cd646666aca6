/* Batches ahead of the step: worker threads decode, augment, resize and normalise while the model computes. What a batch holds is a
 * function of (seed, epoch, position) alone, whatever the number of workers, so that a resumed run sees the same images. */
#ifndef DATA_LOADER_H
#define DATA_LOADER_H
#include "base/share.h"
#include "data/augment.h"
#include "data/dataset.h"

typedef struct LoaderOptions {
  int image; /* output is image x image */
  ResizeFilter filter;
  double mean[3], std[3]; /* of pixels scaled to [0, 1] */
  AugmentPolicy augment;  /* but for none a random crop and horizontal flip with probability 1/2, then the policy's operations */
  double crop_min;        /* least area of a random resized crop, e.g. 0.08; 0: resize to image x image unless it has that size, pad by
                           * image / 8 with black and crop (as usual for CIFAR) */
  double erase;           /* probability of random erasing (Zhong et al., 2020), whatever the policy */
  bool shuffle;           /* a new order each epoch */
  bool drop_last;         /* leave out a last short batch */
  bool mark_broken;       /* a broken image has label -1 and is black: for evaluations, where none may count twice */
  int batch;
  int workers; /* 1 or more */
  int ahead;   /* batches prepared ahead; 0: 3; raised to the number of workers */
  uint64_t seed;
} LoaderOptions;

typedef struct Batch {
  float *pixels;   /* [count, 3, image, image], owned by the loader until the next loader_next */
  int32_t *labels; /* [count]; -1: see mark_broken */
  int count;
  int first, whole;    /* with a share: where it begins in the batch, of so many images; else 0 and count */
  int64_t epoch, step; /* step within the epoch, from 0 */
  bool last;           /* of the epoch */
} Batch;

typedef struct Loader Loader;

Status loader_new(Loader **loader, Dataset *set, const LoaderOptions *options); /* the set stays the caller's */
void loader_free(Loader *loader);                                               /* stops the workers; accepts NULL */

typedef struct LoaderFacts {
  int64_t steps;   /* batches per epoch */
  int64_t skipped; /* different broken images met so far */
  size_t bytes;    /* of the prepared batches: the one in use and those ahead of it */
} LoaderFacts;

LoaderFacts loader_facts(const Loader *loader);
Status loader_seek(Loader *loader, int64_t epoch, int64_t step); /* the next batch is this one; step == steps: the next epoch's first */
/* From the next loader_seek on, of every batch this share of its images alone is read and handed out, as they are in the whole batch. */
void loader_share(Loader *loader, Share share);
/* Waits for the next batch (epoch after epoch, without end). A broken image is replaced by the next readable record, or marked, warned
 * about once by name and counted; more than half of a batch (and at least four) broken is an error. */
Status loader_next(Loader *loader, Batch *batch);

/* For single images (inference): resize to image x image, the whole image, as Hugging Face's ViT does (no crop), and normalise:
 * out [3, image, image]. */
Status loader_prepare(const Image *image, const LoaderOptions *options, float *out);
void loader_levels(const LoaderOptions *options, float values[3][256]); /* every number that can stand there, of each channel */

/* A PNG sheet of a batch (undoing the normalisation), at most 64 images, 8 to a row, small ones magnified by whole factors. */
Status loader_sheet(const Batch *batch, const LoaderOptions *options, const char *path);

#endif
