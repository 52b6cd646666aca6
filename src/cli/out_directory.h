/* Whether --out can be written, asked before the work that is for it; shared by astra-train and astra-kmeans. */
#ifndef CLI_OUT_DIRECTORY_H
#define CLI_OUT_DIRECTORY_H
#include "base/status.h"

/* A checkpoint (codebooks alone, too), or a tokenizer. */
typedef enum OutKind { OUT_CHECKPOINT, OUT_TOKENIZER } OutKind;

/* BAD_VALUE where OUT holds a file of that kind of work, whoever wrote it: it would be replaced or made useless. `also` is a way on beside
 * another directory and --overwrite, or NULL. Asked before anything is opened or computed. */
Status out_directory_free(const char *out, OutKind kind, const char *also);

/* Makes OUT (and in it FOLDER, if that is not NULL) and tries whether the file NAME can be created there. What an earlier run left stays as
 * it is, but for files that it was killed while writing (files_clean). Errors begin with "--out OUT". */
Status out_directory_try(const char *out, const char *folder, const char *name);

/* Takes back what out_directory_try made, where nothing came into it. */
void out_directory_leave(const char *out, const char *folder);

/* BAD_USAGE where OUT is the directory that `base` is or that the file `base` lies in, by whatever name: adapters go on from the weights
 * that they began with, which an export into their place would replace. What is no path ("random") is apart from everything. */
Status out_directory_apart(const char *out, const char *base);

#endif
