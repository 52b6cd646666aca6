/* Training batches from a corpus of tokens: windows of context + 1 tokens, of which the first `context` are the input and the last
 * `context` the labels (each input's next token). Documents run on within a window, divided by the cache's separators.
 *
 *   tokens   0 ............................................. N - 1
 *   windows  |--- T + 1 ---|
 *                        |--- T + 1 ---|              the next one begins where the last label of this one stands
 *                                    ...     |--- T + 1 ---|         moved to end with the corpus
 *
 * Every token but the first is a label at least once in an epoch. With shuffle each epoch has an order and an offset of its own: all
 * windows but the first and the last begin up to T - 1 tokens earlier, so that their borders differ from epoch to epoch. What a batch holds
 * is a function of (seed, epoch, step) alone. One thread at a time. */
#ifndef DATA_TEXT_LOADER_H
#define DATA_TEXT_LOADER_H
#include "base/share.h"
#include "data/text/text_encoder.h"
#include "data/text/text_labels.h"
#include "data/text/token_cache.h"

typedef struct TextLoaderOptions {
  int64_t context; /* T */
  int batch;       /* B */
  bool shuffle;
  bool drop_last; /* leave out a last short batch */
  uint64_t seed;
} TextLoaderOptions;

typedef struct TextBatch {
  int32_t *ids;        /* [count, T], owned by the loader until the next text_loader_next */
  int32_t *labels;     /* [count, T] */
  int count;           /* B, or fewer in a last short batch */
  int first, whole;    /* with a share: where it begins in the batch, of so many windows; else 0 and count */
  int64_t epoch, step; /* step within the epoch, from 0 */
  bool last;           /* of the epoch */
} TextBatch;

typedef struct TextLoader TextLoader;

/* The cache stays the caller's and must outlive the loader. BAD_VALUE: fewer than T + 1 tokens, or options out of range. */
Status text_loader_new(TextLoader **loader, const TokenCache *cache, const TextLoaderOptions *options);
void text_loader_free(TextLoader *loader); /* accepts NULL */

int64_t text_loader_steps(const TextLoader *loader);     /* batches per epoch */
int64_t text_loader_windows(const TextLoader *loader);   /* windows per epoch, before drop_last */
void text_loader_share(TextLoader *loader, Share share); /* of every batch from now on its windows of this share alone */
/* The next batch is this one; step == text_loader_steps: the next epoch's first. */
Status text_loader_seek(TextLoader *loader, int64_t epoch, int64_t step);
void text_loader_next(TextLoader *loader, TextBatch *batch); /* epoch after epoch, without end */

/* Batches of labelled texts as tokens: encoded once when opened, padded on the right, shuffled by seed and epoch, seekable. What a batch
 * holds is a function of (seed, epoch, step) alone. One thread at a time.
 *
 *   ids     begin a a a 0 0 0    [B, T], T = text_batches_width: the longest text of the set, at most the context
 *   lengths 4                    [B]; a classifier reads the last token, ids[length - 1]
 *
 * What a text's tokens are, and how one of more than `context` tokens is cut: text_encoder_sample. */

typedef struct TextBatchesOptions {
  int64_t context; /* of the model: the most tokens of a text */
  int batch;       /* B */
  bool shuffle, drop_last;
  int pool;        /* with shuffle: texts of so many batches are sorted by length among each other, so that less is padded; 0: none are */
  int64_t max;     /* of the set's first rows, so many alone; 0: all */
  bool one_length; /* without shuffle and drop_last: texts in the order of their lengths, and in a batch those of one length alone */
  uint64_t seed;
} TextBatchesOptions;

typedef struct LabelBatch {
  int32_t *ids;        /* [count, T], owned by the batches until the next text_batches_next */
  int32_t *lengths;    /* [count], 1 to T */
  int32_t *labels;     /* [count] */
  int count;           /* B, or fewer in a last short batch; with one_length in any */
  int first, whole;    /* with a share: where it begins in the batch, of so many texts; else 0 and count */
  int64_t longest;     /* tokens of the longest text of the whole batch */
  int64_t epoch, step; /* step within the epoch, from 0 */
  bool last;           /* of the epoch */
} LabelBatch;

typedef struct TextBatches TextBatches;

/* Neither set nor encoder is needed afterwards. Errors: the encoder's, a text without tokens, options out of range (BAD_VALUE). */
Status text_batches_new(TextBatches **batches, const LabelledText *set, const TextEncoder *encoder, const TextBatchesOptions *options);
void text_batches_free(TextBatches *batches); /* accepts NULL */

int64_t text_batches_count(const TextBatches *batches);     /* texts */
int64_t text_batches_steps(const TextBatches *batches);     /* batches per epoch */
int64_t text_batches_width(const TextBatches *batches);     /* T */
int64_t text_batches_cut(const TextBatches *batches);       /* texts that were longer than the context */
void text_batches_share(TextBatches *batches, Share share); /* of every batch from now on its texts of this share alone */
/* The next batch is this one; step == text_batches_steps: the next epoch's first. */
Status text_batches_seek(TextBatches *batches, int64_t epoch, int64_t step);
void text_batches_next(TextBatches *batches, LabelBatch *batch); /* epoch after epoch, without end */

#endif
