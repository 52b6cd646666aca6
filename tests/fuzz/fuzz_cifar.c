/* Any bytes as a CIFAR file, of both kinds. What must hold: a file that passes the check consists of whole records whose labels are within
 * their limits. */
#include "data/dataset_cifar.c" /* its check of files in memory */
#include "fuzz/fuzz.h"
#include <stdlib.h>

static void read_as(const CifarRecord *record, int classes, const uint8_t *data, size_t size) {
  if (check_file(record, data, size, "input") != STATUS_OK) {
    if (!status_message()[0]) abort();
    return;
  }
  Image image = {0};
  size_t step = (size_t)record->labels + CIFAR_IMAGE;
  if (size == 0 || size % step != 0) abort();
  for (size_t at = 0; at < size; at += step) {
    int32_t label;
    if (unpack_record(record, data + at, &image, &label) != STATUS_OK || label < 0 || label >= classes) abort();
  }
  image_release(&image);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const CifarRecord cifar10 = {1, {10, 0}}, cifar100 = {2, {20, 100}};
  read_as(&cifar10, 10, data, size);
  read_as(&cifar100, 100, data, size);
  return 0;
}
