/* Training batches of text: windows of a corpus of tokens, or labelled texts. What a batch holds is a function of (seed, epoch, step)
 * alone. One thread at a time. */
#ifndef DATA_TEXT_LOADER_H
#define DATA_TEXT_LOADER_H
#include "base/share.h"
#include "data/text/text_labels.h"
#include "data/text/token_cache.h"

typedef struct TextLoaderOptions {
  int64_t context; /* T of windows; the most tokens of a labelled text */
  int batch;       /* B */
  bool shuffle;
  bool drop_last; /* leave out a last short batch */
  uint64_t seed;
  /* Of labelled texts alone: */
  int pool;        /* with shuffle: texts of so many batches are sorted by length among each other, so that less is padded; 0: none are */
  int64_t max;     /* as many alone, as text_loader_choose says; 0: all */
  bool one_length; /* without shuffle and drop_last: texts in the order of their lengths, and in a batch those of one length alone */
} TextLoaderOptions;

typedef struct TextBatch {
  int32_t *ids;        /* [count, T], owned by the loader until the next text_loader_next */
  int32_t *labels;     /* of windows [count, T]: each input's next token; of labelled texts [count] */
  int32_t *lengths;    /* [count], 1 to T; NULL of windows */
  int count;           /* B, or fewer in a last short batch; with one_length in any */
  int first, whole;    /* with a share: where it begins in the batch, of so many windows or texts; else 0 and count */
  int64_t longest;     /* tokens of the longest text of the whole batch; of windows T */
  int64_t epoch, step; /* step within the epoch, from 0 */
  bool last;           /* of the epoch */
} TextBatch;

typedef struct TextLoaderFacts {
  int64_t samples; /* windows per epoch, before drop_last, or texts */
  int64_t steps;   /* batches per epoch */
  int64_t width;   /* T */
  int64_t cut;     /* texts that were longer than the context */
} TextLoaderFacts;

typedef struct TextLoader TextLoader;

/* Windows of context + 1 tokens, of which the first `context` are the input and the last `context` the labels (each input's next token).
 * Documents run on within a window, divided by the cache's separators.
 *
 *   tokens   0 ............................................. N - 1
 *   windows  |--- T + 1 ---|
 *                        |--- T + 1 ---|              the next one begins where the last label of this one stands
 *                                    ...     |--- T + 1 ---|         moved to end with the corpus
 *
 * Every token but the first is a label at least once in an epoch. With shuffle each epoch has an order and an offset of its own: all
 * windows but the first and the last begin up to T - 1 tokens earlier, so that their borders differ from epoch to epoch.
 * The cache stays the caller's and must outlive the loader. BAD_VALUE: fewer than T + 1 tokens, or options out of range. */
Status text_loader_windows(TextLoader **loader, const TokenCache *cache, const TextLoaderOptions *options);

/* As many of them as an epoch has. */
int64_t text_loader_count_windows(const TokenCache *cache, int64_t context, bool shuffle);

/* Which `count` texts stand for a whole set, in the order of the file: the first ones or, where text_labels_are_grouped, a random choice
 * that is always the same. They are the first of chosen [text_labels_count]. */
void text_loader_choose(const LabelledText *set, int64_t count, int32_t *chosen);

/* Labelled texts as tokens: encoded once when opened, padded on the right.
 *
 *   ids     begin a a a 0 0 0    [B, T], T: the longest text of the set, at most the context
 *   lengths 4                    [B]; a classifier reads the last token, ids[length - 1]
 *
 * What a text's tokens are, and how one of more than `context` tokens is cut: text_loader_sample. Neither set nor encoder is needed
 * afterwards. Errors: the encoder's, a text without tokens, options out of range (BAD_VALUE). */
Status text_loader_labelled(TextLoader **loader, const LabelledText *set, const TextEncoder *encoder, const TextLoaderOptions *options);

void text_loader_free(TextLoader *loader); /* accepts NULL */

const TextLoaderFacts *text_loader_facts(const TextLoader *loader);
/* Of labelled texts: tokens of all of them, before drop_last, if each gives at most `max`. */
int64_t text_loader_tokens(const TextLoader *loader, int64_t max);
void text_loader_share(TextLoader *loader, Share share); /* of every batch from now on the windows or texts of this share alone */
/* The next batch is this one; step == steps: the next epoch's first. */
Status text_loader_seek(TextLoader *loader, int64_t epoch, int64_t step);
void text_loader_next(TextLoader *loader, TextBatch *batch); /* epoch after epoch, without end */

/* Appends the tokens of a text to classify: the beginning of text, where there is one, and the text; of a pair the first text, the
 * separator (a line break where the tokenizer has none) and the second one. More than `context` tokens are cut: the end of a text, of a
 * pair the ends of whichever text is longer. *cut: whether they were. BAD_VALUE: no tokens, or one outside of the vocabulary. */
Status text_loader_sample(const TextEncoder *encoder, const char *text, const char *pair, int64_t context, TokenList *out, bool *cut);

#endif
