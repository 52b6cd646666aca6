/* Which files, and which bytes of them, a part of a text corpus consists of.
 *
 * PATH may be a file (any name; unpacked when it ends in .gz) or a folder. Where a PATH without '/' does not exist, ROOT/datasets/PATH of
 * data_paths.h is taken, so that a downloaded corpus goes by its name. A folder whose only entry is a folder stands for that.
 *
 *   a folder with a training file      train.txt, wiki.train.tokens or wiki.train.raw, each perhaps with .gz behind
 *   or a validation file               valid.txt, val.txt, validation.txt, dev.txt, wiki.valid.tokens, wiki.valid.raw
 *   (and perhaps a test file)          test.txt, wiki.test.tokens, wiki.test.raw
 *     the parts are these files; with no validation file the test file serves as one, and the other way round; with only a training file
 *     that is divided as below
 *   any other folder                   all *.txt and *.txt.gz in it and in its folders, sorted by name; hidden names are passed over
 *   a file, or such a folder           the last 5% of its unpacked bytes, from the beginning of a line on, are the validation part and the
 *                                      test part; the rest is the training part
 *
 * TEXT_WHOLE is everything: the file, all of the folder's parts in the order above, or all of its texts. Inside of src/data only. */
#ifndef DATA_TEXT_FILES_H
#define DATA_TEXT_FILES_H
#include "base/status.h"
#include <stdbool.h>
#include <stdint.h>

typedef enum TextPart { TEXT_TRAIN, TEXT_VALID, TEXT_TEST, TEXT_WHOLE } TextPart;

typedef struct TextFile {
  char *path;         /* owned */
  int64_t first, end; /* unpacked bytes [first, end) of it; end -1: to its end */
} TextFile;

typedef struct TextFiles {
  TextFile *files;
  int count, room;
  bool divided; /* a 5% rule was applied */
} TextFiles;

/* Appends what PATH stands for. data_dir: looked at first for a corpus by its name, or NULL. Release also after a failure. */
Status text_files_add(TextFiles *list, const char *path, const char *data_dir, TextPart part);
void text_files_release(TextFiles *list);

const char *text_files_part(TextPart part); /* "train", "valid", "test", "whole" */

#endif
