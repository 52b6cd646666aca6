/* Classification of images and texts by a running cluster, and the best classes of its answers. */
#ifndef INFER_CLASSIFY_H
#define INFER_CLASSIFY_H
#include "data/tokenizer/tokenizer.h"
#include "infer/cluster/leader.h"

enum { RANKING_MAX = 100 };

/* The `count` largest of logits [classes], best first (ties to the lowest index), with their softmax probabilities (may be NULL).
 * count <= classes. */
void ranking_top(const real *logits, int64_t classes, int count, int32_t *index, double *probability);

/* The best classes of a sample. */
typedef struct ClassTop {
  int count; /* classes below, best first */
  int32_t index[RANKING_MAX];
  double probability[RANKING_MAX];
  double seconds; /* of the request that it was part of */
} ClassTop;

/* ---- image files ---- */

enum { IMAGES_MESSAGE = 256 };

typedef struct ImageResult {
  const char *path;
  bool read;                    /* false: a broken or missing file, which `message` explains */
  char message[IMAGES_MESSAGE]; /* names the file */
  double seconds;               /* of the request that it was part of, from its submission to the answer */
  int count;                    /* classes below */
  int32_t index[RANKING_MAX];
  double probability[RANKING_MAX];
} ImageResult;

/* The image files that a command line names. */
typedef struct ImageFiles {
  char **paths; /* [count], owned */
  int count;
  int skipped; /* files of directories that are no images by their extension */
} ImageFiles;

/* Files as they are named; of a directory its images (image_has_extension), sorted bytewise by name, without subdirectories and without
 * names that begin with a dot. BAD_FILE for a directory without images. */
Status images_find(ImageFiles *files, const char *const *named, int count);
void images_release(ImageFiles *files);

/* Classifies `count` files in requests of at most `batch`; the best `top` classes of each into results [count]. A file that cannot be read
 * does not stop the others. *seconds: wall time of the requests, decoding excluded. */
Status images_classify(Leader *leader, const char *const *paths, int count, int64_t batch, int top, ImageResult *results, double *seconds);

/* ---- texts to classify. A request holds texts of one length, so that each is divided among the nodes as if it came alone: its answer does
 * not depend on other texts. Texts are numbered in the order in which they were added. ---- */

typedef struct Texts {
  TokenList tokens; /* of all texts, one after another */
  size_t *begin;    /* [count + 1] */
  int64_t count;
  size_t room;
  int64_t longest, shortest; /* tokens of a text */
  int64_t cut;               /* texts that were longer than the context */
} Texts;

/* Begin with a zeroed one. As text_loader_sample; pair may be NULL. */
Status texts_add(Texts *texts, const TextEncoder *encoder, const char *text, const char *pair, int64_t context);
void texts_release(Texts *texts); /* accepts a zeroed one */
static inline int64_t texts_length(const Texts *texts, int64_t index) { return (int64_t)(texts->begin[index + 1] - texts->begin[index]); }

/* Called for each text, shorter ones first: logits [classes], valid during the call; seconds: of the request that it was part of. */
typedef Status TextsTake(void *context, int64_t index, const real *logits, double seconds);

/* At most `batch` texts to a request; the next request is sent while the last one is computed. The leader's tokens_max must be at least
 * the longest text. quiet: no progress. *seconds: wall time of all. */
Status texts_classify(Leader *leader, const Texts *texts, int64_t batch, bool quiet, TextsTake *take, void *context, double *seconds);

#endif
