/* Text corpora as documents, streamed: plain files, folders, .gz, one document a line.
 *
 *   text:PATH[,PATH...]        each file is a document; the line breaks in it belong to it
 *   text-lines:PATH[,PATH...]  each line is a document, without its line break (LF or CRLF)
 *
 * text_files.h says what a PATH may be and where its training and validation parts come from; each PATH is divided by itself. Commas in a
 * name: a list that exists as one path is one path. A document without text is passed over. Texts of special tokens ("<|endoftext|>") are
 * plain text: they neither divide documents nor become tokens. A NUL byte, a damaged .gz, a folder without texts and a part without any
 * text are errors that name the file. */
#ifndef DATA_TEXT_SOURCE_H
#define DATA_TEXT_SOURCE_H
#include "data/text/text_files.h"
#include <stddef.h>

typedef struct TextSource TextSource;

/* A piece of a document. Pieces of one document follow each other; the last one ends it. */
typedef struct TextBlock {
  const char *text; /* [bytes], the source's own, until the next call */
  size_t bytes;     /* 0 only where a document turned out to end with the block before */
  bool ends;        /* the document ends here */
} TextBlock;

bool text_source_knows(const char *name); /* by its prefix */

/* data_dir: looked at first for a corpus by its name, or NULL. NULL in *source after a failure. */
Status text_source_open(TextSource **source, const char *name, const char *data_dir, TextPart part);
void text_source_close(TextSource *source);                 /* accepts NULL */
const char *text_source_describe(const TextSource *source); /* "train text, 1 file, from PATH" */

/* Goes to the beginning. whole: every document comes as one block, whatever its length; else a long one comes in blocks of about a
 * megabyte, cut before a space that a Latin letter follows. Byte-level BPE (GPT-2, Llama 3) begins a new piece there in any case, so that
 * such a cut changes no token; a text without such a place (for many megabytes) stays in one block. */
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
