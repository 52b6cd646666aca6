/* How often each distinct piece of text occurs. */
#ifndef DATA_BPE_WORDS_H
#define DATA_BPE_WORDS_H
#include "base/status.h"
#include <stddef.h>
#include <stdint.h>

typedef struct BpeWord {
  size_t start; /* into text */
  uint32_t size;
  int64_t count;
} BpeWord;

typedef struct BpeWords {
  BpeWord *list; /* [count], in order of first occurrence */
  size_t count, list_room;
  char *text;
  size_t used, text_room;
  uint32_t *slots; /* [mask + 1]: open addressing; number of the word plus one; 0: free */
  size_t mask;
} BpeWords;

/* Zero it first. A piece of [size >= 1] bytes occurred once more. BAD_VALUE: more distinct text than can be numbered. */
Status bpe_words_add(BpeWords *words, const char *bytes, size_t size);
void bpe_words_release(BpeWords *words);

#endif
