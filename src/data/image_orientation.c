/* How a picture was held: the EXIF orientation, which cameras store instead of turning the pixels. libexif reads the EXIF block, in builds
 * that found it (ASTRA_EXIF; others show pictures as stored); where the block lies in a JPEG, PNG or WebP is found here. Leaves out: TIFF,
 * whose orientation is a tag of its own (image_tiff.c). Invariant: an EXIF block that is broken, too large or of no sense never fails a
 * picture; it is shown as it is stored. */
#include "data/image_codec.h"
#include <stdlib.h>
#include <string.h>
#ifdef ASTRA_EXIF
#include <libexif/exif-data.h>
#endif

enum { UPRIGHT = 1, LAST_ORIENTATION = 8 };

#ifdef ASTRA_EXIF
enum { MAX_BLOCK = 0xffff /* as in a JPEG segment */, PREFIX = 6 };

typedef struct Block {
  const uint8_t *bytes; /* NULL: none */
  size_t size;
} Block;

static const uint8_t prefix[PREFIX] = "Exif\0"; /* before the block in a JPEG, at times elsewhere */

static Block find_in_jpeg(const uint8_t *bytes, size_t size) {
  enum { MARK = 0xff, FIRST_APPLICATION = 0xe0, APPLICATION_1 = 0xe1, LAST_APPLICATION = 0xef, COMMENT = 0xfe };
  for (size_t at = 2; at + 4 <= size && bytes[at] == MARK;) {
    uint8_t marker = bytes[at + 1];
    size_t length = (size_t)bytes[at + 2] << 8 | bytes[at + 3];
    if (marker == MARK) {
      at++; /* fill byte */
      continue;
    }
    if (length < 2 || length > size - at - 2) break;
    if (marker == APPLICATION_1 && length >= 2 + PREFIX && memcmp(bytes + at + 4, prefix, PREFIX) == 0)
      return (Block){bytes + at + 4, length - 2};
    if (marker == 0xda) break; /* the pixels begin */
    at += 2 + length;
  }
  return (Block){0};
}

static Block find_in_png(const uint8_t *bytes, size_t size) {
  for (size_t at = 8; at + 12 <= size;) {
    size_t length = (size_t)bytes[at] << 24 | (size_t)bytes[at + 1] << 16 | (size_t)bytes[at + 2] << 8 | bytes[at + 3];
    if (length > size - at - 12) break;
    if (memcmp(bytes + at + 4, "eXIf", 4) == 0) return (Block){bytes + at + 8, length};
    at += 12 + length;
  }
  return (Block){0};
}

static Block find_in_webp(const uint8_t *bytes, size_t size) {
  for (size_t at = 12; at + 8 <= size;) {
    size_t length = (size_t)bytes[at + 7] << 24 | (size_t)bytes[at + 6] << 16 | (size_t)bytes[at + 5] << 8 | bytes[at + 4];
    if (length > size - at - 8) break;
    if (memcmp(bytes + at, "EXIF", 4) == 0) return (Block){bytes + at + 8, length};
    at += 8 + length + length % 2;
  }
  return (Block){0};
}

/* libexif takes blocks that begin with the prefix only. */
static int orientation_of(Block block) {
  bool prefixed = block.size >= PREFIX && memcmp(block.bytes, prefix, PREFIX) == 0;
  size_t before = prefixed ? 0 : PREFIX;
  if (!block.bytes || block.size > MAX_BLOCK) return UPRIGHT;
  uint8_t *copy = malloc(before + block.size);
  if (!copy) return UPRIGHT;
  memcpy(copy, prefix, before);
  memcpy(copy + before, block.bytes, block.size);
  ExifData *data = exif_data_new_from_data(copy, (unsigned)(before + block.size));
  free(copy);
  if (!data) return UPRIGHT;
  ExifEntry *entry = exif_content_get_entry(data->ifd[EXIF_IFD_0], EXIF_TAG_ORIENTATION);
  bool usable = entry && entry->format == EXIF_FORMAT_SHORT && entry->components == 1 && entry->size >= 2;
  int orientation = usable ? exif_get_short(entry->data, exif_data_get_byte_order(data)) : UPRIGHT;
  exif_data_unref(data);
  return orientation;
}

int image_orientation_find(const uint8_t *bytes, size_t size) {
  Block block = {0};
  if (size > 2 && bytes[0] == 0xff && bytes[1] == 0xd8)
    block = find_in_jpeg(bytes, size);
  else if (image_png_is(bytes, size))
    block = find_in_png(bytes, size);
  else if (image_webp_is(bytes, size))
    block = find_in_webp(bytes, size);
  int orientation = orientation_of(block);
  return orientation >= UPRIGHT && orientation <= LAST_ORIENTATION ? orientation : UPRIGHT;
}
#else
int image_orientation_find(const uint8_t *bytes, size_t size) {
  (void)bytes, (void)size;
  return UPRIGHT;
}
#endif

/* Row 0 of what is stored is, by orientation, the top (1), the top mirrored (2), the bottom (3, 4), the left (5, 8 from below) or the right
 * side (6, 7) of what was seen. Pixel (x, y) of the upright picture comes from: */
static void stored_place(int orientation, int width, int height, int x, int y, int *from_x, int *from_y) {
  bool transposed = orientation >= 5;
  bool right_to_left = orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
  bool bottom_to_top = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
  int column = transposed ? y : x, row = transposed ? x : y;
  *from_x = right_to_left ? width - 1 - column : column;
  *from_y = bottom_to_top ? height - 1 - row : row;
}

Status image_orientation_apply(Image *image, int orientation) {
  if (orientation <= UPRIGHT || orientation > LAST_ORIENTATION) return STATUS_OK;
  bool transposed = orientation >= 5;
  Image upright = {0};
  TRY(image_reshape(&upright, transposed ? image->height : image->width, transposed ? image->width : image->height));
  for (int y = 0; y < upright.height; y++) {
    for (int x = 0; x < upright.width; x++) {
      int from_x, from_y;
      stored_place(orientation, image->width, image->height, x, y, &from_x, &from_y);
      memcpy(upright.rgb + 3 * ((size_t)y * upright.width + x), image->rgb + 3 * ((size_t)from_y * image->width + from_x), 3);
    }
  }
  image_release(image);
  *image = upright;
  return STATUS_OK;
}
