/* Reading an image: chooses the decoder by a file's first bytes, and is the one of stb_image (JPEG, BMP, GIF, TGA, PPM, PGM). Leaves out:
 * the other decoders (image_formats.c), resizing (resize.c), animation, colour profiles.
 * Bytes from files are hostile: dimensions go through image_check_size before memory is asked for. */
#include "base/files.h"
#include "base/status.h"
#include "data/image.h"
#include "data/image_internal.h"
#include <ctype.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* ---- What stb_image is not given ---- */

/* What an image's bytes must hold before stb_image may see them. Inside of src/data only. */
/* A look at an image's headers before stb_image decodes it. The version of Debian 12 (2.27) writes behind its table for a JPEG Huffman
 * table of more than 256 codes, takes four JPEG channels without Adobe's marker for YCbCr, and mixes up the bytes of 16-bit PPM and PGM;
 * these are refused here. So are JPEGs of more scans than any encoder writes: each scan, of 20 bytes if it is empty, makes the decoder walk
 * over the whole image. Leaves out: everything the decoder checks itself. Invariant: of every JPEG segment that the decoder can come to,
 * the one here starts at the same byte: it skips fill bytes, garbage between segments and the coded data of a scan as the decoder does. */

enum {
  MARK = 0xff,
  START_OF_IMAGE = 0xd8,
  END_OF_IMAGE = 0xd9,
  START_OF_SCAN = 0xda,
  FIRST_RESTART = 0xd0,
  LAST_RESTART = 0xd7,
  HUFFMAN_TABLES = 0xc4,
  JPEG_EXTENSION = 0xc8,
  ARITHMETIC_CODING = 0xcc,
  FIRST_FRAME = 0xc0,
  LAST_FRAME = 0xcf,
  ADOBE_SEGMENT = 0xee,
  CODE_LENGTHS = 16,
  MAX_CODES = 256,
  PROGRESSIVE_FRAME = 0xc2,
  MAX_SCANS = 4,              /* one for each component */
  MAX_PROGRESSIVE_SCANS = 64, /* encoders write about ten */
  MAX_DIGITS = 8              /* of a number in a PPM or PGM header */
};

typedef struct Walk {
  const uint8_t *bytes;
  size_t size, at;
  bool adobe, four, progressive; /* Adobe's marker seen; a frame of four channels; a progressive frame */
  int scans;
} Walk;

/* Behind the end there are zeros, as for the decoder. */
static int byte_at(const Walk *walk, size_t at) { return at < walk->size ? walk->bytes[at] : 0; }
static int length_at(const Walk *walk, size_t at) { return byte_at(walk, at) << 8 | byte_at(walk, at + 1); }

/* Moves behind the next marker and returns it, or -1 at the end. In coded data FF 00 is a level and restart markers go on with it. */
static int next_marker(Walk *walk, bool coded) {
  for (; walk->at < walk->size; walk->at++) {
    if (walk->bytes[walk->at] != MARK) continue;
    while (byte_at(walk, walk->at) == MARK) walk->at++;
    if (walk->at >= walk->size) break;
    int marker = walk->bytes[walk->at];
    if (coded && (marker == 0 || (marker >= FIRST_RESTART && marker <= LAST_RESTART))) continue;
    walk->at++;
    return marker;
  }
  return -1;
}

/* walk->at is at the segment's length. */
static bool huffman_fits(const Walk *walk) {
  int left = length_at(walk, walk->at) - 2;
  for (size_t at = walk->at + 2; left > 0 && at < walk->size;) {
    int codes = 0;
    for (int i = 0; i < CODE_LENGTHS; i++) codes += byte_at(walk, at + 1 + (size_t)i);
    if (codes > MAX_CODES) return false;
    at += 1 + CODE_LENGTHS + (size_t)codes;
    left -= 1 + CODE_LENGTHS + codes;
  }
  return true;
}

static bool is_frame(int marker) {
  return marker >= FIRST_FRAME && marker <= LAST_FRAME && marker != HUFFMAN_TABLES && marker != JPEG_EXTENSION &&
         marker != ARITHMETIC_CODING;
}

static void note_segment(Walk *walk, int marker) {
  if (is_frame(marker)) walk->four = byte_at(walk, walk->at + 7) == 4;
  if (marker == PROGRESSIVE_FRAME) walk->progressive = true;
  if (marker == START_OF_SCAN) walk->scans++;
  if (marker == ADOBE_SEGMENT && walk->at + 7 <= walk->size && memcmp(walk->bytes + walk->at + 2, "Adobe", 5) == 0) walk->adobe = true;
}

static Status check_jpeg(const uint8_t *bytes, size_t size, const char *origin) {
  Walk walk = {.bytes = bytes, .size = size};
  if (next_marker(&walk, false) != START_OF_IMAGE) return STATUS_OK;
  bool coded = false;
  for (int marker; (marker = next_marker(&walk, coded)) >= 0 && marker != END_OF_IMAGE; walk.at += (size_t)length_at(&walk, walk.at)) {
    if (marker == HUFFMAN_TABLES && !huffman_fits(&walk)) {
      return status_set(STATUS_BAD_FILE, "%s: broken image (a Huffman table of more than %d codes)", origin, MAX_CODES);
    }
    note_segment(&walk, marker);
    coded = coded || marker == START_OF_SCAN;
  }
  int max = walk.progressive ? MAX_PROGRESSIVE_SCANS : MAX_SCANS;
  if (walk.scans > max) return status_set(STATUS_BAD_FILE, "%s: a JPEG of %d scans; up to %d are accepted", origin, walk.scans, max);
  if (walk.four && !walk.adobe) {
    return status_set(STATUS_BAD_FILE, "%s: a CMYK JPEG without Adobe's marker, so its colours are not known; save it as RGB", origin);
  }
  return STATUS_OK;
}

/* The next number of a PPM or PGM header, behind blanks and comments; -1 when it has too many digits. */
static int next_number(Walk *walk) {
  while (walk->at < walk->size && (isspace(walk->bytes[walk->at]) || walk->bytes[walk->at] == '#')) {
    bool comment = walk->bytes[walk->at++] == '#';
    while (comment && walk->at < walk->size && walk->bytes[walk->at] != '\n' && walk->bytes[walk->at] != '\r') walk->at++;
  }
  int value = 0, digits = 0;
  for (; walk->at < walk->size && isdigit(walk->bytes[walk->at]); walk->at++) {
    if (++digits > MAX_DIGITS) return -1;
    value = value * 10 + walk->bytes[walk->at] - '0';
  }
  return value;
}

static Status check_pnm(const uint8_t *bytes, size_t size, const char *origin) {
  Walk walk = {.bytes = bytes, .size = size, .at = 2};
  int width = next_number(&walk), height = next_number(&walk), max = next_number(&walk);
  if (width < 0 || height < 0 || max < 0)
    return status_set(STATUS_BAD_FILE, "%s: broken image (a number in its header is too long)", origin);
  if (max <= 255) return STATUS_OK;
  return status_set(STATUS_BAD_FILE, "%s: levels up to %d; PPM and PGM with levels up to 255 are accepted", origin, max);
}

/* Looks at JPEG, PPM and PGM; anything else is OK here. Errors name `origin`. */
static Status image_guard_check(const uint8_t *bytes, size_t size, const char *origin) {
  if (size > 0 && bytes[0] == MARK) return check_jpeg(bytes, size, origin);
  if (size > 2 && bytes[0] == 'P' && (bytes[1] == '5' || bytes[1] == '6')) return check_pnm(bytes, size, origin);
  return STATUS_OK;
}

/* ---- Orientation ---- */

/* How an image was held: the EXIF orientation, which cameras store instead of turning the pixels. libexif reads the EXIF block, in builds
 * that found it (ASTRA_EXIF; others show images as stored); where the block lies in a JPEG, PNG or WebP is found here. Leaves out: TIFF,
 * whose orientation is a tag of its own (image_formats.c). Invariant: an EXIF block that is broken, too large or of no sense never fails a
 * image; it is shown as it is stored. */

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
  enum { FIRST_APPLICATION = 0xe0, APPLICATION_1 = 0xe1, LAST_APPLICATION = 0xef, COMMENT = 0xfe };
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

/* ---- Decoding ---- */

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"
#pragma GCC diagnostic ignored "-Wunused-parameter"
#pragma GCC diagnostic ignored "-Wsign-compare"
#pragma GCC diagnostic ignored "-Wmissing-prototypes"
#pragma GCC diagnostic ignored "-Wshadow"
#define STB_IMAGE_IMPLEMENTATION
#define STBI_NO_STDIO
#define STBI_ONLY_JPEG
#define STBI_ONLY_BMP
#define STBI_ONLY_GIF
#define STBI_ONLY_TGA
#define STBI_ONLY_PNM
#define STBI_MAX_DIMENSIONS (1 << 20)
/* Zeroed, because stb_image uses tables that a broken JPEG does not define. */
#define STBI_MALLOC(size)         calloc(1, size)
#define STBI_REALLOC(block, size) realloc(block, size)
#define STBI_FREE(block)          free(block)
#include <stb/stb_image.h>
#pragma GCC diagnostic pop

static const size_t max_file_bytes = (size_t)1 << 30;

#ifdef ASTRA_WEBP
#define WEBP_FORMAT ", WebP"
#else
#define WEBP_FORMAT ""
#endif
#ifdef ASTRA_TIFF
#define TIFF_FORMAT ", TIFF"
#else
#define TIFF_FORMAT ""
#endif

const char *image_formats(void) { return "JPEG, PNG, BMP, GIF, TGA, PPM, PGM" WEBP_FORMAT TIFF_FORMAT; }

/* An image's bytes as stb_image reads them. The decoders take the end of the bytes for zeros and carry on; `ran_out` tells. Reads of
 * READ_AHEAD bytes are stb_image's own buffering, which may get less. */
enum { READ_AHEAD = sizeof((stbi__context *)0)->buffer_start };

typedef struct Source {
  const uint8_t *bytes;
  size_t size, at;
  bool ran_out;
} Source;

static int source_read(void *user, char *to, int wanted) {
  Source *source = user;
  size_t left = source->size - source->at, taken = (size_t)wanted < left ? (size_t)wanted : left;
  if (taken == 0 || ((int)taken < wanted && wanted != READ_AHEAD)) source->ran_out = true;
  memcpy(to, source->bytes + source->at, taken);
  source->at += taken;
  return (int)taken;
}

static void source_skip(void *user, int count) {
  Source *source = user;
  size_t left = source->size - source->at;
  if (count < 0) count = 0;
  if ((size_t)count > left) source->ran_out = true;
  source->at += (size_t)count < left ? (size_t)count : left;
}

static int source_ended(void *user) {
  const Source *source = user;
  return source->at == source->size;
}

static const char *failure(void) {
  const char *reason = stbi_failure_reason();
  return reason ? reason : "unknown reason";
}

/* Pixels of 1 (gray), 2 (gray, alpha), 3 or 4 (RGB, alpha) channels to RGB; takes `pixels` over. stb_image's own conversion reads
 * behind 16-bit images. */
static uint8_t *to_rgb(uint8_t *pixels, int channels, size_t count) {
  if (channels == 3 || !pixels) return pixels;
  uint8_t *rgb = malloc(count * 3);
  for (size_t i = 0; rgb && i < count; i++) {
    const uint8_t *from = pixels + i * channels;
    bool gray = channels < 3;
    rgb[3 * i] = from[0];
    rgb[3 * i + 1] = from[gray ? 0 : 1];
    rgb[3 * i + 2] = from[gray ? 0 : 2];
  }
  free(pixels);
  return rgb;
}

static Status decode_with_stb(Image *image, const uint8_t *bytes, size_t size, const char *origin) {
  static const stbi_io_callbacks callbacks = {source_read, source_skip, source_ended};
  Source source = {bytes, size, 0, false};
  int width = 0, height = 0, channels = 0;
  TRY(image_guard_check(bytes, size, origin));
  if (!stbi_info_from_memory(bytes, (int)size, &width, &height, &channels)) {
    return status_set(STATUS_BAD_FILE, "%s: not an image that can be read (%s); this build reads %s", origin, failure(), image_formats());
  }
  TRY(image_check_size(width, height, size, origin));
  uint8_t *pixels = stbi_load_from_callbacks(&callbacks, &source, &width, &height, &channels, 0);
  if (!pixels || source.ran_out) {
    free(pixels);
    return status_set(STATUS_BAD_FILE, "%s: broken image (%s)", origin, source.ran_out ? "it ends too early" : failure());
  }
  uint8_t *rgb = to_rgb(pixels, channels, (size_t)width * height);
  if (!rgb) return status_set(STATUS_NO_MEMORY, "%s: no memory for %d x %d pixels", origin, width, height);
  *image = (Image){width, height, rgb};
  return STATUS_OK;
}

Status image_decode(Image *image, const uint8_t *bytes, size_t size, const char *origin) {
  *image = (Image){0};
  if (size == 0) return status_set(STATUS_BAD_FILE, "%s: empty file instead of an image", origin);
  if (size > max_file_bytes)
    return status_set(STATUS_BAD_FILE, "%s: %zu bytes; images up to %zu are accepted", origin, size, max_file_bytes);
  if (image_tiff_is(bytes, size)) return image_tiff_decode(image, bytes, size, origin);
  if (image_png_is(bytes, size))
    TRY(image_png_decode(image, bytes, size, origin));
  else if (image_webp_is(bytes, size))
    TRY(image_webp_decode(image, bytes, size, origin));
  else
    TRY(decode_with_stb(image, bytes, size, origin));
  Status status = image_orientation_apply(image, image_orientation_find(bytes, size));
  if (status != STATUS_OK) image_release(image);
  return status;
}

Status image_load(Image *image, const char *path) {
  *image = (Image){0};
  char *bytes = NULL;
  size_t size = 0;
  TRY(files_read(path, max_file_bytes, &bytes, &size));
  Status status = image_decode(image, (const uint8_t *)bytes, size, path);
  free(bytes);
  return status;
}
