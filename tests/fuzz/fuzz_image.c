/* Any bytes as a picture. What must hold: either an error with a message and an empty image, or a picture all of whose pixels can be read
 * and resized. */
#include "data/image.h"
#include "data/resize.h"
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  Image image, small;
  if (image_decode(&image, data, size, "input") != STATUS_OK) {
    if (image.rgb || image.width || !status_message()[0]) abort();
    return 0;
  }
  if (image.width < 1 || image.height < 1 || !image.rgb) abort();
  if (image_new(&small, 8, 8) != STATUS_OK || resize_image(&image, &small, RESIZE_BICUBIC) != STATUS_OK) abort();
  image_release(&small);
  image_release(&image);
  return 0;
}
