/* Fuzz target: Llama-3's tokenizer.model. What must hold is in tokenizer_check.h. */
#include "fuzz/fuzz.h"
#include "fuzz/tokenizer_check.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  Tokenizer *tokenizer;
  Status status = tokenizer_llama_ranks(&tokenizer, (const char *)data, size, "fuzz");
  check_tokenizer(status, tokenizer, data, size);
  return 0;
}
