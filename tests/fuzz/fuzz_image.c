/* Any bytes as an image. What must hold: either an error with a message and an empty image, or an image all of whose pixels can be read
 * and resized. A PNG is tried a second time with the checksums of its chunks made right, or hardly an input would get past them. */
#include "data/image.h"
#include "fuzz/fuzz.h"
#include <stdlib.h>
#include <string.h>

static uint32_t crc32_of(const uint8_t *bytes, size_t size) {
  uint32_t crc = 0xffffffff;
  for (size_t i = 0; i < size; i++) {
    crc ^= bytes[i];
    for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? 0xedb88320 : 0);
  }
  return ~crc;
}

static void repair_checksums(uint8_t *png, size_t size) {
  for (size_t at = 8; at + 12 <= size;) {
    size_t length = (size_t)png[at] << 24 | (size_t)png[at + 1] << 16 | (size_t)png[at + 2] << 8 | png[at + 3];
    if (length > size - at - 12) return;
    uint32_t crc = crc32_of(png + at + 4, 4 + length);
    for (int i = 0; i < 4; i++) png[at + 8 + length + (size_t)i] = (uint8_t)(crc >> (24 - 8 * i));
    at += 12 + length;
  }
}

static void try_image(const uint8_t *data, size_t size) {
  Image image, small;
  if (image_decode(&image, data, size, "input") != STATUS_OK) {
    if (image.rgb || image.width || !status_message()[0]) abort();
    return;
  }
  if (image.width < 1 || image.height < 1 || !image.rgb) abort();
  ResizeScratch scratch = {0};
  if (image_new(&small, 8, 8) != STATUS_OK) abort();
  if (image_resize(&scratch, &image, 0, 0, image.width, image.height, &small, RESIZE_BICUBIC) != STATUS_OK) abort();
  image_resize_release(&scratch);
  image_release(&small);
  image_release(&image);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  try_image(data, size);
  if (size < 8 || memcmp(data, "\x89PNG\r\n\x1a\n", 8) != 0) return 0;
  uint8_t *repaired = malloc(size);
  if (!repaired) abort();
  memcpy(repaired, data, size);
  repair_checksums(repaired, size);
  try_image(repaired, size);
  free(repaired);
  return 0;
}
