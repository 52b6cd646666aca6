/* Fuzz target: tokenizer.json of Hugging Face tokenizers. What must hold is in tokenizer_check.h. */
#include "data/tokenizer/tokenizer_files.c" /* its parser of bytes in memory */
#include "fuzz/fuzz.h"
#include "fuzz/tokenizer_check.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  Tokenizer *tokenizer;
  Status status = parse_json(&tokenizer, (const char *)data, size, "fuzz");
  check_tokenizer(status, tokenizer, data, size);
  return 0;
}
