/* Picture files through a running cluster. */
#ifndef INFER_PICTURES_H
#define INFER_PICTURES_H
#include "infer/cluster/leader.h"
#include "infer/ranking.h"

enum { PICTURES_MESSAGE = 256 };

typedef struct PictureResult {
  const char *path;
  bool read;                      /* false: a broken or missing file, which `message` explains */
  char message[PICTURES_MESSAGE]; /* names the file */
  double seconds;                 /* of the request that it was part of, from its submission to the answer */
  int count;                      /* classes below */
  int32_t index[RANKING_MOST];
  double probability[RANKING_MOST];
} PictureResult;

/* The picture files that a command line names. */
typedef struct PictureFiles {
  char **paths; /* [count], owned */
  int count;
  int skipped; /* files of directories that are no pictures by their extension */
} PictureFiles;

/* Files as they are named; of a directory its pictures (image_has_extension), sorted bytewise by name, without those of directories in it
 * and without names that begin with a dot. BAD_FILE for a directory without pictures. */
Status pictures_find(PictureFiles *files, const char *const *named, int count);
void pictures_release(PictureFiles *files);

/* Classifies `count` files in requests of at most `batch`; the best `top` classes of each into results [count]. A file that cannot be read
 * does not stop the others. *seconds: wall time of the requests, decoding excluded. */
Status pictures_classify(Leader *leader, const char *const *paths, int count, int64_t batch, int top, PictureResult *results,
                         double *seconds);

#endif
