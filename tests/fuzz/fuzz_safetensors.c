/* Fuzz target: safetensors headers. Whatever the bytes, an accepted file has tensors inside of itself only, and all of them can be read. */
#include "fuzz/fuzz.h"
#include "nn/safetensors.c" /* memory is parsed where no file is */
#include <stdlib.h>

static void read_numbers(const SafeTensor *tensor) {
  size_t count = (size_t)tensor->count;
  if (count > 1 << 20) return; /* an element type of one byte makes this the limit of the input itself */
  real *numbers = malloc(count * sizeof *numbers + 1);
  int32_t *whole = malloc(count * sizeof *whole + 1);
  if (numbers) (void)safetensors_to_real(tensor, numbers);
  if (whole) (void)safetensors_to_int32(tensor, whole);
  free(numbers);
  free(whole);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  SafeFile file;
  Status status = parse_memory(&file, data, size, "fuzz");
  if (status != STATUS_OK) {
    if (*status_message() == '\0') abort(); /* every refusal has its reason */
    return 0;
  }
  for (size_t i = 0; i < file.count; i++) {
    const SafeTensor *tensor = &file.list[i];
    if (tensor->data < data || tensor->bytes > size || tensor->data + tensor->bytes > data + size) abort();
    if (safetensors_find(&file, tensor->name) != tensor) abort();
    read_numbers(tensor);
  }
  safetensors_close(&file);
  return 0;
}
