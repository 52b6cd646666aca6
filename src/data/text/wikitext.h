/* WikiText as the wikitext task of EleutherAI's lm-evaluation-harness (lm-eval) takes it: its pages, the text that a model is given in
 * place of the spaced-out one, and the words that a perplexity is divided by. Texts are UTF-8; white space is Unicode's, as in Python's \s.
 */
#ifndef DATA_WIKITEXT_H
#define DATA_WIKITEXT_H
#include "base/status.h"
#include <stddef.h>
#include <stdint.h>

/* Calls `page` for each page of text [bytes]: a new one begins with a line "= Title =" of one sign each (not "= = Section = ="). What
 * stands before the first such line is a page if it is more than white space; the last page always is one. Lines end with LF, which the
 * last line of a page but the last of the text does not have. Ends with the first status that is not OK. */
Status wikitext_pages(const char *text, size_t bytes, Status (*page)(void *context, const char *text, size_t bytes), void *context);

/* The page without WikiText's spaces: " @-@ " becomes "-", " , " becomes ", ", "( a )" becomes "(a)"... *plain is malloc'd (caller frees),
 * with a NUL behind its *plain_bytes bytes. */
Status wikitext_detokenise(const char *page, size_t bytes, char **plain, size_t *plain_bytes);

/* Parts between runs of white space; an empty one before leading and behind trailing white space counts. At least 1. */
int64_t wikitext_words(const char *page, size_t bytes);

#endif
