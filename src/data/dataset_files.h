/* Inside of src/data only: a list of labelled picture files, what image folders and CSV manifests come down to. */
#ifndef DATA_DATASET_FILES_H
#define DATA_DATASET_FILES_H
#include "data/dataset_source.h"

typedef struct PictureFile {
  char *path; /* owned */
  int32_t label;
} PictureFile;

typedef struct PictureList {
  PictureFile *files;
  int64_t count, room;
} PictureList;

enum { DATASET_FILES_FOLD = 5 }; /* with no split given, picture 4, 9, 14... of a class or manifest is for testing */

DatasetPart dataset_files_part(int64_t index); /* the part of the index-th picture when there is no split */

/* Appends a file; takes `path` over, also on failure. A NULL path is out of memory. */
Status dataset_files_add(PictureList *list, char *path, int32_t label);
void dataset_files_release(PictureList *list);

/* Makes the list the set's source: takes it over, sets count, read, label and close. */
Status dataset_files_attach(Dataset *set, PictureList *list);

#endif
