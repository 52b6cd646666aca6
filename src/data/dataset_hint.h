/* What somebody may have meant by the name of a data set that is not known or not there. */
#ifndef DATA_DATASET_HINT_H
#define DATA_DATASET_HINT_H
#include <stdbool.h>

enum { DATASET_HINT = 640 };

/* A sentence to put behind an error, with a blank before it: " Did you mean folder:clothing?"; "" without an idea. Looked at are a file or
 * folder of that name, here, in data_dir (or NULL) and where data sets are found, with another prefix than was given, and the names that
 * astra-data can get, however they are spelt. Returns `text`. */
const char *dataset_hint(const char *name, const char *data_dir, char text[DATASET_HINT]);

#endif
