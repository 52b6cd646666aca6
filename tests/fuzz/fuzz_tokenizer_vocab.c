/* Fuzz target: vocab.json and merges.txt, one after the other in the input with a NUL between. What must hold is in tokenizer_check.h. */
#include "data/tokenizer/tokenizer_files.c" /* its parser of bytes in memory */
#include "fuzz/fuzz.h"
#include "fuzz/tokenizer_check.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  const uint8_t *split = size ? memchr(data, '\0', size) : NULL;
  const char *vocab = (const char *)data;
  size_t first = split ? (size_t)(split - data) : size, second = split ? first + 1 : size;
  Tokenizer *tokenizer;
  Status status = parse_pair(&tokenizer, vocab, first, "fuzz", vocab + second, size - second, "fuzz");
  check_tokenizer(status, tokenizer, data, size);
  return 0;
}
