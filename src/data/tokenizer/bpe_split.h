/* Cutting text into the pieces within which byte pairs are merged: the regular expressions of GPT-2 and Llama-3, through PCRE2.
 *
 * White space is Unicode's White_Space property, which is not quite PCRE2's \s (that has U+180E too), and the contractions of Llama-3 are
 * of either case in ASCII alone (PCRE2's caseless s would match the long s, U+017F).
 * Text need not be UTF-8: it is cut into stretches of valid UTF-8, each split as if it were the whole text, and runs of bytes that belong
 * to no character (also overlong forms, surrogates and numbers above U+10FFFF), each run being one piece. So pieces always join to the
 * text. */
#ifndef DATA_BPE_SPLIT_H
#define DATA_BPE_SPLIT_H
#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>

typedef enum BpePattern { BPE_PATTERN_GPT2, BPE_PATTERN_LLAMA3 } BpePattern;

/* The expression as tokenizer.json has it. */
const char *bpe_split_published(BpePattern pattern);

/* A compiled expression. Threads may share it. */
typedef struct BpeSplit BpeSplit;
Status bpe_split_new(BpeSplit **split, BpePattern pattern);
void bpe_split_free(BpeSplit *split); /* accepts NULL */

/* A walk over one text after the other; one thread at a time, and the split outlives it. */
typedef struct BpeWalk BpeWalk;
Status bpe_split_walk(BpeWalk **walk, const BpeSplit *split);
void bpe_split_walk_free(BpeWalk *walk); /* accepts NULL */

/* Begins with a text, which stays the caller's. */
void bpe_split_start(BpeWalk *walk, const char *text, size_t size);

/* The next piece, of at least one byte; *size 0 at the end. */
Status bpe_split_next(BpeWalk *walk, const char **piece, size_t *size);

#endif
