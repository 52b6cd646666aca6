/* Fuzz target: GGUF files. Whatever the bytes, what an accepted file points to lies in it, and configuration, tensors and tokenizer are
 * either refused with a message or can be read in full. */
#include "fuzz/fuzz.h"
#include "fuzz/tokenizer_check.h"
#include "nn/gguf_model.c"

enum { NUMBERS_MAX = 1 << 20 };

static void check_inside(const GgufFile *file, const uint8_t *data, size_t size) {
  for (size_t i = 0; i < file->tensor_count; i++) {
    const GgufTensor *tensor = &file->tensors[i];
    if (tensor->data < data || tensor->bytes > size || tensor->data + tensor->bytes > data + size) abort();
    if (gguf_tensor(file, tensor->name) != tensor || !tensor->format->name) abort();
  }
  for (size_t i = 0; i < file->entry_count; i++) {
    const GgufEntry *entry = &file->entries[i];
    const uint8_t *at = entry->data;
    if (at < data || at > data + size) abort();
    if (entry->type != GGUF_ARRAY || entry->element != GGUF_STRING) continue;
    for (uint64_t j = 0; j < entry->count; j++) {
      GgufText text = gguf_next_text(&at);
      if (at > data + size || text.size > size) abort();
    }
  }
}

static void check_status(Status status) {
  if (status != STATUS_OK && *status_message() == '\0') abort(); /* every refusal has its reason */
}

static void read_tensors(const GgufFile *file) {
  SafeFile tensors;
  Status status = make_tensors(&tensors, file);
  check_status(status);
  if (status != STATUS_OK) return;
  for (size_t i = 0; i < tensors.count; i++) {
    const SafeTensor *tensor = &tensors.list[i];
    real *numbers = tensor->count <= NUMBERS_MAX ? malloc((size_t)tensor->count * sizeof *numbers + 1) : NULL;
    if (numbers) check_status(safetensors_to_real(tensor, numbers));
    free(numbers);
  }
  safetensors_close(&tensors);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  GgufFile file;
  ModelConfig config;
  Tokenizer *tokenizer;
  Status status = gguf_parse(&file, data, size, "fuzz");
  check_status(status);
  if (status != STATUS_OK) return 0;
  check_inside(&file, data, size);
  status = gguf_model_config(&config, &file);
  check_status(status);
  if (status == STATUS_OK) config_release(&config);
  read_tensors(&file);
  status = tokenizer_llama_gguf(&tokenizer, &file);
  check_tokenizer(status, tokenizer, data, size);
  gguf_close(&file);
  return 0;
}
