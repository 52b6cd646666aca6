/* Text corpora as documents, streamed: plain files, folders, .gz, one document a line.
 *
 *   text:PATH[,PATH...]        each file is a document; the line breaks in it belong to it
 *   text-lines:PATH[,PATH...]  each line is a document, without its line break (LF or CRLF)
 *
 * PATH may be a file (any name; unpacked when it ends in .gz) or a folder. Where a PATH without '/' does not exist, ROOT/datasets/PATH of
 * data_paths.h is taken, so that a downloaded corpus goes by its name. A folder whose only entry is a folder stands for that.
 *
 *   a folder with a training file      train.txt, wiki.train.tokens or wiki.train.raw, each perhaps with .gz behind
 *   or a validation file               valid.txt, val.txt, validation.txt, dev.txt, wiki.valid.tokens, wiki.valid.raw
 *   or a test file                     test.txt, wiki.test.tokens, wiki.test.raw
 *     the parts are these files, the first of which training needs; with no validation file the test file serves as one, and the other
 *     way round; with only a training file that is divided as below
 *   any other folder                   all *.txt and *.txt.gz in it and in its folders, sorted by name; hidden names are passed over
 *   a file, or such a folder           the last 5% of its unpacked bytes, from the beginning of a line on, are the validation part and the
 *                                      test part; the rest is the training part
 *
 * TEXT_WHOLE is everything: the file, all of the folder's parts in the order above, or all of its texts.
 *
 * Each PATH is divided by itself. Commas in a
 * name: a list that exists as one path is one path. A document without text is passed over. Texts of special tokens ("<|endoftext|>") are
 * plain text: they neither divide documents nor become tokens. A NUL byte, a damaged .gz, a folder without texts and a part without any
 * text are errors that name the file. */
#ifndef DATA_TEXT_SOURCE_H
#define DATA_TEXT_SOURCE_H
#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum TextPart { TEXT_TRAIN, TEXT_VALID, TEXT_TEST, TEXT_WHOLE } TextPart;

typedef struct TextSource TextSource;

/* A piece of a document. Pieces of one document follow each other; the last one ends it. */
typedef struct TextBlock {
  const char *text; /* [bytes], the source's own, until the next call */
  size_t bytes;     /* 0 only where a document turned out to end with the block before */
  bool ends;        /* the document ends here */
} TextBlock;

/* The whole text of a file of at most `limit` bytes, unpacked when its name ends in ".gz", without a byte order mark and with a NUL behind
 * it (caller frees). BAD_FILE: a larger one, a .gz that is not whole, a NUL byte (with its line). */
Status text_source_read_file(const char *path, size_t limit, char **text, size_t *size);

bool text_source_knows(const char *name); /* by its prefix */

/* The part that a model is evaluated on unless another one is asked for. Files that are named one by one are meant as they are: TEXT_WHOLE;
 * of a folder TEXT_VALID; both also where text_source_open finds them by a name. name: one that text_source_knows. */
TextPart text_source_eval_part(const char *name, const char *data_dir);

/* data_dir: looked at first for a corpus by its name, or NULL. NULL in *source after a failure. */
Status text_source_open(TextSource **source, const char *name, const char *data_dir, TextPart part);
void text_source_close(TextSource *source);                 /* accepts NULL */
const char *text_source_describe(const TextSource *source); /* "train text, 1 file, from PATH" */

/* Goes to the beginning. whole: every document comes as one block, whatever its length; else a long one comes in blocks of about a
 * megabyte, cut before a space that a Latin letter follows, or a character from U+00C0 to U+07FF. Byte-level BPE (GPT-2, Llama 3) begins a
 * new piece there in any case, so that such a cut changes no token; a text without such a place (for many megabytes) stays in one block. */
void text_source_start(TextSource *source, bool whole);
/* *more: false at the end, with nothing in the block. Call text_source_start first. */
Status text_source_next(TextSource *source, TextBlock *block, bool *more);

/* What a corpus holds; add up its blocks, zeroed before the first. */
typedef struct TextFacts {
  int64_t documents, bytes; /* bytes of documents, without what was between them */
  int64_t words;            /* runs of anything but space, \t, \n, \v, \f, \r */
  int64_t lines;            /* LF bytes; with text-lines: the documents */
  bool in_word;             /* at the end of the last block */
} TextFacts;

void text_source_count(const TextSource *source, TextFacts *facts, const TextBlock *block);

#endif
