/* Image files through a running cluster. */
#ifndef INFER_IMAGES_H
#define INFER_IMAGES_H
#include "infer/cluster/leader.h"
#include "infer/ranking.h"

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

/* Files as they are named; of a directory its images (image_has_extension), sorted bytewise by name, without those of directories in it
 * and without names that begin with a dot. BAD_FILE for a directory without images. */
Status images_find(ImageFiles *files, const char *const *named, int count);
void images_release(ImageFiles *files);

/* Classifies `count` files in requests of at most `batch`; the best `top` classes of each into results [count]. A file that cannot be read
 * does not stop the others. *seconds: wall time of the requests, decoding excluded. */
Status images_classify(Leader *leader, const char *const *paths, int count, int64_t batch, int top, ImageResult *results, double *seconds);

#endif
