/* Whether --out can be written, asked before the work that is for it; shared by astra-train and astra-kmeans. */
#ifndef CLI_OUT_DIRECTORY_H
#define CLI_OUT_DIRECTORY_H
#include "base/status.h"

/* Makes OUT (and in it FOLDER, if that is not NULL) and tries whether the file NAME can be created there. What an earlier run left stays as
 * it is. Errors begin with "--out OUT". */
Status out_directory_try(const char *out, const char *folder, const char *name);

/* Takes back what out_directory_try made, where nothing came into it. */
void out_directory_leave(const char *out, const char *folder);

#endif
