/* Reading an image: a file's first bytes choose the decoder. JPEG, BMP, GIF, TGA, PPM and PGM are stb_image's, PNG libpng's, TIFF and WebP
 * those of libtiff and libwebp in builds that found them; the EXIF orientation is applied. PNG out. Leaves out: resizing (image.c),
 * animation, colour profiles. Bytes from files are hostile: dimensions go through image_check_size before memory is asked for. Each decoder
 * fills an empty image, leaves it empty on failure, and names `origin` in its errors. */
#include "base/files.h"
#include "base/status.h"
#include "data/image.h"
#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <png.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Decoders ask before they allocate anything that depends on the size. */
static Status image_check_size(int64_t width, int64_t height, int pixels_max, size_t file_bytes, const char *origin) {
  if (width < 1 || height < 1 || width > IMAGE_MAX_SIDE || height > IMAGE_MAX_SIDE || width * height > pixels_max) {
    return status_set(STATUS_BAD_FILE, "%s: %lld x %lld pixels; 1 to %d per side and up to %d in all are accepted%s", origin,
                      (long long)width, (long long)height, IMAGE_MAX_SIDE, pixels_max,
                      width < 1 || height < 1 ? "" : "; make the image smaller");
  }
  if (width * height > IMAGE_FREE_PIXELS && width * height / IMAGE_MAX_PIXELS_PER_BYTE > (int64_t)file_bytes) {
    return status_set(STATUS_BAD_FILE,
                      "%s: %lld x %lld pixels in %zu bytes: out of proportion (beyond %d pixels a file may hold %d for each of its bytes); "
                      "make the image smaller",
                      origin, (long long)width, (long long)height, file_bytes, IMAGE_FREE_PIXELS, IMAGE_MAX_PIXELS_PER_BYTE);
  }
  return STATUS_OK;
}

/* ---- PNG: libpng ---- */

enum { SIGNATURE_BYTES = 8 };

/* A library's reason why it cannot decode. A shortage of memory is not the file's fault: whoever reads many must not pass over it. */
static Status broken_image(const char *origin, const char *reason) {
  if (strcmp(reason, "outofmem") == 0 || strcmp(reason, "Out of memory") == 0)
    return status_no_memory(origin, "an image"); /* stb, libpng */
  return status_set(STATUS_BAD_FILE, "%s: broken image (%s)", origin, reason);
}

enum { PNG_BROKEN = 1, PNG_NO_MEMORY };

typedef struct PngSource {
  const uint8_t *bytes;
  size_t size, at;
  int pixels_max;
  const char *origin;
} PngSource;

static bool image_png_is(const uint8_t *bytes, size_t size) {
  return size >= SIGNATURE_BYTES && png_sig_cmp(bytes, 0, SIGNATURE_BYTES) == 0;
}

static void read_bytes(png_structp png, png_bytep to, size_t wanted) {
  PngSource *source = png_get_io_ptr(png);
  if (wanted > source->size - source->at) png_error(png, "it ends too early");
  memcpy(to, source->bytes + source->at, wanted);
  source->at += wanted;
}

static void read_failed(png_structp png, png_const_charp text) {
  const PngSource *source = png_get_error_ptr(png);
  longjmp(png_jmpbuf(png), broken_image(source->origin, text) == STATUS_NO_MEMORY ? PNG_NO_MEMORY : PNG_BROKEN);
}

static void ignore_warning(png_structp png, png_const_charp text) { (void)png, (void)text; }

/* Damage that libpng would pass over is an error here; what cannot change a pixel is not looked at: it is skipped, however long it is, and
 * takes no memory. */
static void be_strict(png_structp png) {
  png_set_crc_action(png, PNG_CRC_ERROR_QUIT, PNG_CRC_ERROR_QUIT);
  png_set_benign_errors(png, 0);
  png_set_keep_unknown_chunks(png, PNG_HANDLE_CHUNK_NEVER, NULL, -1);
  png_set_chunk_malloc_max(png, 0);
  png_set_user_limits(png, IMAGE_MAX_PIXELS, IMAGE_MAX_PIXELS);
}

/* Whatever the file holds becomes 8-bit RGB: the upper 8 of 16 bits, gray three times, alpha dropped. */
static void convert_to_rgb(png_structp png) {
  png_set_strip_16(png);
  png_set_expand(png);
  png_set_gray_to_rgb(png);
  png_set_strip_alpha(png);
}

/* Reads into `image`, which the caller releases on failure. */
static Status read_png(png_structp png, png_infop info, Image *image, const PngSource *source) {
  switch (setjmp(png_jmpbuf(png))) { /* from read_failed, which has said why */
  case PNG_BROKEN:
    return STATUS_BAD_FILE;
  case PNG_NO_MEMORY:
    return STATUS_NO_MEMORY;
  }
  be_strict(png);
  png_read_info(png, info);
  TRY(image_check_size(png_get_image_width(png, info), png_get_image_height(png, info), source->pixels_max, source->size, source->origin));
  TRY(image_reshape(image, (int)png_get_image_width(png, info), (int)png_get_image_height(png, info)));
  convert_to_rgb(png);
  int passes = png_set_interlace_handling(png);
  png_read_update_info(png, info);
  size_t row = (size_t)image->width * 3;
  if (png_get_rowbytes(png, info) != row) png_error(png, "its rows are not RGB");
  for (int pass = 0; pass < passes; pass++) {
    for (int y = 0; y < image->height; y++) png_read_row(png, image->rgb + (size_t)y * row, NULL);
  }
  png_read_end(png, NULL);
  return STATUS_OK;
}

/* Every checksum (CRC of each chunk, Adler-32 of the pixels) must be right and the file complete up to IEND. */
static Status image_png_decode(Image *image, const uint8_t *bytes, size_t size, int pixels_max, const char *origin) {
  PngSource source = {.bytes = bytes, .size = size, .pixels_max = pixels_max, .origin = origin};
  png_structp png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &source, read_failed, ignore_warning);
  png_infop info = png ? png_create_info_struct(png) : NULL;
  Status status = info ? STATUS_OK : status_no_memory(origin, "reading a PNG");
  if (info) {
    png_set_read_fn(png, &source, read_bytes);
    status = read_png(png, info, image, &source);
  }
  png_destroy_read_struct(&png, &info, NULL);
  if (status != STATUS_OK) image_release(image);
  return status;
}

/* ---- TIFF: libtiff ---- */

/* TIFF through libtiff 4.5 or later, in builds that found it (ASTRA_TIFF). Leaves out: all pages but the first, colour profiles. libtiff
 * converts to 8-bit RGB, rounding 16 bits.
 * Invariant: libtiff sees the bytes through the functions here alone, prints nothing, and allocates no single block beyond what the
 * image's size justifies. TIFF has no checksums: damage inside the pixels can go unnoticed. */

#ifdef ASTRA_TIFF
#include <tiffio.h>
#endif

static bool image_tiff_is(const uint8_t *bytes, size_t size) {
  return size >= 4 && (memcmp(bytes, "II*\0", 4) == 0 || memcmp(bytes, "MM\0*", 4) == 0 || memcmp(bytes, "II+\0", 4) == 0 ||
                       memcmp(bytes, "MM\0+", 4) == 0);
}

#ifdef ASTRA_TIFF
enum { BLOCK_BYTES_PER_PIXEL = 16, BLOCK_BYTES = 1 << 20, REASON = 200 };

typedef struct TiffSource {
  const uint8_t *bytes;
  size_t size, at;
  char reason[REASON]; /* the first error; "" */
} TiffSource;

static tsize_t tiff_read(thandle_t user, void *to, tsize_t wanted) {
  TiffSource *source = user;
  size_t left = source->at < source->size ? source->size - source->at : 0;
  size_t taken = wanted < 0 ? 0 : (size_t)wanted < left ? (size_t)wanted : left;
  memcpy(to, source->bytes + (taken ? source->at : 0), taken);
  source->at += taken;
  return (tsize_t)taken;
}

static tsize_t tiff_write(thandle_t user, void *from, tsize_t count) {
  (void)user, (void)from, (void)count;
  return -1;
}

static toff_t tiff_seek(thandle_t user, toff_t offset, int whence) {
  TiffSource *source = user;
  source->at = (size_t)offset + (whence == SEEK_CUR ? source->at : whence == SEEK_END ? source->size : 0);
  return source->at;
}

static int tiff_close(thandle_t user) {
  (void)user;
  return 0;
}

static toff_t tiff_size(thandle_t user) { return ((const TiffSource *)user)->size; }

__attribute__((format(printf, 4, 0))) static int keep_error(TIFF *tiff, void *user, const char *module, const char *format,
                                                            va_list arguments) {
  TiffSource *source = user;
  (void)tiff, (void)module;
  if (!source->reason[0]) vsnprintf(source->reason, sizeof source->reason, format, arguments);
  return 1;
}

static int tiff_ignore_warning(TIFF *tiff, void *user, const char *module, const char *format, va_list arguments) {
  (void)tiff, (void)user, (void)module, (void)format, (void)arguments;
  return 1;
}

/* A handle whose blocks are limited to `limit` bytes; NULL with source->reason. */
static TIFF *open_source(TiffSource *source, int64_t limit) {
  TIFFOpenOptions *options = TIFFOpenOptionsAlloc();
  if (!options) return NULL;
  *source = (TiffSource){.bytes = source->bytes, .size = source->size};
  TIFFOpenOptionsSetMaxSingleMemAlloc(options, (tmsize_t)limit);
  TIFFOpenOptionsSetErrorHandlerExtR(options, keep_error, source);
  TIFFOpenOptionsSetWarningHandlerExtR(options, tiff_ignore_warning, source);
  TIFF *tiff = TIFFClientOpenExt("image", "rm", source, tiff_read, tiff_write, tiff_seek, tiff_close, tiff_size, NULL, NULL, options);
  TIFFOpenOptionsFree(options);
  return tiff;
}

static Status broken(const TiffSource *source, const char *origin) {
  return status_set(STATUS_BAD_FILE, "%s: broken image (%s)", origin, source->reason[0] ? source->reason : "libtiff cannot decode it");
}

/* libtiff would multiply colours by an alpha that is meant to be apart from them. Here alpha is dropped, so it is told that this has been
 * done already. */
static void drop_alpha(TIFF *tiff) {
  uint16_t count = 0, *kinds = NULL, associated = EXTRASAMPLE_ASSOCALPHA;
  if (TIFFGetField(tiff, TIFFTAG_EXTRASAMPLES, &count, &kinds) && count == 1 && kinds[0] == EXTRASAMPLE_UNASSALPHA)
    TIFFSetField(tiff, TIFFTAG_EXTRASAMPLES, 1, &associated);
}

/* The pixels as they are stored, [height, width] of bytes R G B A in a word. */
static bool read_raster(TIFF *tiff, TiffSource *source, uint32_t *raster, uint32_t width, uint32_t height, int *orientation) {
  TIFFRGBAImage decoder;
  char reason[1024] = "";
  drop_alpha(tiff);
  if (!TIFFRGBAImageOK(tiff, reason) || !TIFFRGBAImageBegin(&decoder, tiff, 1, reason)) {
    if (!source->reason[0]) snprintf(source->reason, sizeof source->reason, "%.*s", REASON - 1, reason);
    return false;
  }
  decoder.req_orientation = decoder.orientation; /* image_turn turns it: libtiff leaves out the transposed ones */
  *orientation = decoder.orientation;
  bool done = TIFFRGBAImageGet(&decoder, raster, width, height) != 0;
  TIFFRGBAImageEnd(&decoder);
  return done && !source->reason[0];
}

static Status decode_tiff(Image *image, TIFF *tiff, TiffSource *source, int pixels_max, const char *origin, int *orientation) {
  uint32_t width = 0, height = 0;
  if (!TIFFGetField(tiff, TIFFTAG_IMAGEWIDTH, &width) || !TIFFGetField(tiff, TIFFTAG_IMAGELENGTH, &height)) return broken(source, origin);
  TRY(image_check_size(width, height, pixels_max, source->size, origin));
  TRY(image_reshape(image, (int)width, (int)height));
  size_t count = (size_t)width * height;
  uint32_t *raster = malloc(count * sizeof *raster);
  if (!raster) return status_set(STATUS_NO_MEMORY, "%s: no memory for %u x %u pixels", origin, width, height);
  bool done = read_raster(tiff, source, raster, width, height, orientation);
  for (size_t i = 0; done && i < count; i++) {
    image->rgb[3 * i] = (uint8_t)TIFFGetR(raster[i]);
    image->rgb[3 * i + 1] = (uint8_t)TIFFGetG(raster[i]);
    image->rgb[3 * i + 2] = (uint8_t)TIFFGetB(raster[i]);
  }
  free(raster);
  return done ? STATUS_OK : broken(source, origin);
}

/* Opened twice: the limit of a block follows from the size, which the first look tells. */
static Status image_tiff_decode(Image *image, const uint8_t *bytes, size_t size, int pixels_max, const char *origin) {
  TiffSource source = {.bytes = bytes, .size = size};
  uint32_t width = 0, height = 0;
  int orientation = 1;
  int64_t limit = BLOCK_BYTES + 4 * (int64_t)size;
  TIFF *tiff = open_source(&source, limit);
  if (!tiff) return broken(&source, origin);
  TIFFGetField(tiff, TIFFTAG_IMAGEWIDTH, &width);
  TIFFGetField(tiff, TIFFTAG_IMAGELENGTH, &height);
  TIFFClose(tiff);
  TRY(image_check_size(width, height, pixels_max, size, origin));
  tiff = open_source(&source, limit + BLOCK_BYTES_PER_PIXEL * (int64_t)width * height);
  if (!tiff) return broken(&source, origin);
  Status status = decode_tiff(image, tiff, &source, pixels_max, origin, &orientation);
  TIFFClose(tiff);
  if (status == STATUS_OK) status = image_turn(image, orientation);
  if (status != STATUS_OK) image_release(image);
  return status;
}
#else
static Status image_tiff_decode(Image *image, const uint8_t *bytes, size_t size, int pixels_max, const char *origin) {
  (void)image, (void)bytes, (void)size, (void)pixels_max;
  return status_set(STATUS_UNSUPPORTED, "%s: this build reads no TIFF: install libtiff-dev (4.5 or later) and build again (make clean all)",
                    origin);
}
#endif

/* ---- WebP: libwebp ---- */

/* WebP through libwebp, in builds that found it (ASTRA_WEBP). Leaves out: animations, colour profiles. WebP has no checksums: damage inside
 * the pixels can go unnoticed. */

#ifdef ASTRA_WEBP
#include <webp/decode.h>
#endif

static bool image_webp_is(const uint8_t *bytes, size_t size) {
  return size >= 12 && memcmp(bytes, "RIFF", 4) == 0 && memcmp(bytes + 8, "WEBP", 4) == 0;
}

#ifdef ASTRA_WEBP
static const char *reason(VP8StatusCode code) {
  if (code == VP8_STATUS_NOT_ENOUGH_DATA) return "it ends too early";
  if (code == VP8_STATUS_UNSUPPORTED_FEATURE) return "a feature that libwebp does not support";
  return code == VP8_STATUS_OUT_OF_MEMORY ? "no memory" : "libwebp cannot decode it";
}

static Status image_webp_decode(Image *image, const uint8_t *bytes, size_t size, int pixels_max, const char *origin) {
  WebPDecoderConfig config;
  if (!WebPInitDecoderConfig(&config)) return status_set(STATUS_UNSUPPORTED, "%s: the libwebp here is not that of this build", origin);
  VP8StatusCode code = WebPGetFeatures(bytes, size, &config.input);
  if (code != VP8_STATUS_OK) return status_set(STATUS_BAD_FILE, "%s: broken image (%s)", origin, reason(code));
  if (config.input.has_animation) return status_set(STATUS_BAD_FILE, "%s: an animated WebP; only single images are read", origin);
  TRY(image_check_size(config.input.width, config.input.height, pixels_max, size, origin));
  TRY(image_reshape(image, config.input.width, config.input.height));
  config.output.colorspace = MODE_RGB; /* alpha is dropped */
  config.output.is_external_memory = 1;
  config.output.u.RGBA.rgba = image->rgb;
  config.output.u.RGBA.stride = image->width * 3;
  config.output.u.RGBA.size = (size_t)image->width * (size_t)image->height * 3;
  code = WebPDecode(bytes, size, &config);
  WebPFreeDecBuffer(&config.output);
  if (code == VP8_STATUS_OK) return STATUS_OK;
  image_release(image);
  return status_set(code == VP8_STATUS_OUT_OF_MEMORY ? STATUS_NO_MEMORY : STATUS_BAD_FILE, "%s: broken image (%s)", origin, reason(code));
}
#else
static Status image_webp_decode(Image *image, const uint8_t *bytes, size_t size, int pixels_max, const char *origin) {
  (void)image, (void)bytes, (void)size, (void)pixels_max;
  return status_set(STATUS_UNSUPPORTED, "%s: this build reads no WebP: install libwebp-dev and build again (make clean all)", origin);
}
#endif

/* ---- What stb_image is not given ---- */

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
  MAX_DIGITS = 8,             /* of a number in a PPM or PGM header */
  MAX_LEVEL = 255
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

/* *max: the level of white. */
static Status check_pnm(const uint8_t *bytes, size_t size, const char *origin, int *max) {
  Walk walk = {.bytes = bytes, .size = size, .at = 2};
  int width = next_number(&walk), height = next_number(&walk);
  *max = next_number(&walk);
  if (width < 0 || height < 0 || *max < 0)
    return status_set(STATUS_BAD_FILE, "%s: broken image (a number in its header is too long)", origin);
  if (*max == 0) return status_set(STATUS_BAD_FILE, "%s: broken image (its header has no level of white)", origin);
  if (*max <= MAX_LEVEL) return STATUS_OK;
  return status_set(STATUS_BAD_FILE, "%s: levels up to %d; PPM and PGM with levels up to %d are accepted", origin, *max, MAX_LEVEL);
}

/* Looks at JPEG, PPM and PGM; anything else is OK here. Errors name `origin`. *max: the level of white in what stb_image decodes. */
static Status image_guard_check(const uint8_t *bytes, size_t size, const char *origin, int *max) {
  *max = MAX_LEVEL;
  if (size > 0 && bytes[0] == MARK) return check_jpeg(bytes, size, origin);
  if (size > 2 && bytes[0] == 'P' && (bytes[1] == '5' || bytes[1] == '6')) return check_pnm(bytes, size, origin, max);
  return STATUS_OK;
}

/* ---- Orientation ---- */

/* How an image was held: the EXIF orientation, which cameras store instead of turning the pixels. libexif reads the EXIF block, in builds
 * that found it (ASTRA_EXIF; others show images as stored); where the block lies in a JPEG, PNG or WebP is found here. Leaves out: TIFF,
 * whose orientation is a tag of its own. Invariant: an EXIF block that is broken, too large or of no sense never makes
 * an image fail; it is shown as it is stored. */

#ifdef ASTRA_EXIF
#include <libexif/exif-data.h>
#endif

/* find_orientation gives the EXIF orientation of a JPEG, PNG or WebP: 1 to 8; 1 where there is none or it makes no sense. */

#ifdef ASTRA_EXIF
enum { MAX_BLOCK = 0xffff /* as in a JPEG segment */, PREFIX = 6 };

typedef struct Block {
  const uint8_t *bytes; /* NULL: none */
  size_t size;
} Block;

static const uint8_t prefix[PREFIX] = "Exif\0"; /* before the block in a JPEG, at times elsewhere */

static Block find_in_jpeg(const uint8_t *bytes, size_t size) {
  enum { APPLICATION_1 = 0xe1 };
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
  if (!block.bytes || block.size > MAX_BLOCK) return IMAGE_UPRIGHT;
  uint8_t *copy = malloc(before + block.size);
  if (!copy) return IMAGE_UPRIGHT;
  memcpy(copy, prefix, before);
  memcpy(copy + before, block.bytes, block.size);
  ExifData *data = exif_data_new_from_data(copy, (unsigned)(before + block.size));
  free(copy);
  if (!data) return IMAGE_UPRIGHT;
  ExifEntry *entry = exif_content_get_entry(data->ifd[EXIF_IFD_0], EXIF_TAG_ORIENTATION);
  bool usable = entry && entry->format == EXIF_FORMAT_SHORT && entry->components == 1 && entry->size >= 2;
  int orientation = usable ? exif_get_short(entry->data, exif_data_get_byte_order(data)) : IMAGE_UPRIGHT;
  exif_data_unref(data);
  return orientation;
}

static int find_orientation(const uint8_t *bytes, size_t size) {
  Block block = {0};
  if (size > 2 && bytes[0] == 0xff && bytes[1] == 0xd8)
    block = find_in_jpeg(bytes, size);
  else if (image_png_is(bytes, size))
    block = find_in_png(bytes, size);
  else if (image_webp_is(bytes, size))
    block = find_in_webp(bytes, size);
  int orientation = orientation_of(block);
  return orientation >= IMAGE_UPRIGHT && orientation <= IMAGE_ORIENTATIONS ? orientation : IMAGE_UPRIGHT;
}
#else
static int find_orientation(const uint8_t *bytes, size_t size) {
  (void)bytes, (void)size;
  return IMAGE_UPRIGHT;
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

static const char *image_formats(void) { return "JPEG, PNG, BMP, GIF, TGA, PPM, PGM" WEBP_FORMAT TIFF_FORMAT; }

/* An image's bytes as stb_image reads them. The decoders take the end of the bytes for zeros and carry on; `ran_out` tells. What stb_image
 * reads ahead, into a buffer of its own, may be less than it asks for. */
typedef struct Source {
  const uint8_t *bytes;
  size_t size, at;
  const char *ahead; /* that buffer: the first thing that it reads into */
  bool ran_out;
  size_t gif_flags; /* where it sees no transparency flag, whatever is there; 0: nowhere */
} Source;

/* Where the flags of the Graphic Control Extension lie that holds for a GIF's first image; 0 where there is none. The first flag, the
 * lowest bit, says that a colour is transparent: stb_image would leave black in its place, where other decoders drop alpha and keep the
 * colour. */
static size_t find_gif_flags(const uint8_t *bytes, size_t size) {
  enum { SCREEN_FLAGS = 10, TABLE = 13, HAS_TABLE = 0x80, TABLE_BITS = 7, EXTENSION = 0x21, GRAPHIC_CONTROL = 0xf9, CONTROL_BYTES = 4 };
  Walk walk = {.bytes = bytes, .size = size, .at = TABLE};
  if (size < TABLE || memcmp(bytes, "GIF8", 4) != 0) return 0;
  if (bytes[SCREEN_FLAGS] & HAS_TABLE) walk.at += (size_t)3 * (2 << (bytes[SCREEN_FLAGS] & TABLE_BITS));
  size_t found = 0;
  for (; byte_at(&walk, walk.at) == EXTENSION; walk.at++) {
    if (byte_at(&walk, walk.at + 1) == GRAPHIC_CONTROL && byte_at(&walk, walk.at + 2) == CONTROL_BYTES) found = walk.at + 3;
    walk.at += 2;
    for (int length; (length = byte_at(&walk, walk.at)) > 0;) walk.at += 1 + (size_t)length; /* blocks, the last one empty */
  }
  return found;
}

static int source_read(void *user, char *to, int wanted) {
  Source *source = user;
  size_t left = source->size - source->at, taken = (size_t)wanted < left ? (size_t)wanted : left;
  if (!source->ahead) source->ahead = to;
  if (taken == 0 || ((int)taken < wanted && to != source->ahead)) source->ran_out = true;
  memcpy(to, source->bytes + source->at, taken);
  if (source->gif_flags && source->gif_flags >= source->at && source->gif_flags - source->at < taken)
    to[source->gif_flags - source->at] &= ~1;
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

/* Levels up to `max`, as PPM and PGM may have, to levels up to 255: stb_image hands them on as they are. Higher ones are white. */
static void stretch_levels(Image *image, int max) {
  const size_t count = max == MAX_LEVEL ? 0 : (size_t)image->width * image->height * 3;
  for (size_t i = 0; i < count; i++) {
    const int level = image->rgb[i] < max ? image->rgb[i] : max;
    image->rgb[i] = (uint8_t)((level * MAX_LEVEL + max / 2) / max);
  }
}

static Status decode_with_stb(Image *image, const uint8_t *bytes, size_t size, int pixels_max, const char *origin) {
  static const stbi_io_callbacks callbacks = {source_read, source_skip, source_ended};
  Source source = {.bytes = bytes, .size = size, .gif_flags = find_gif_flags(bytes, size)};
  int width = 0, height = 0, channels = 0, max;
  TRY(image_guard_check(bytes, size, origin, &max));
  if (!stbi_info_from_memory(bytes, (int)size, &width, &height, &channels)) {
    return status_set(STATUS_BAD_FILE, "%s: not an image that can be read (%s); this build reads %s", origin, failure(), image_formats());
  }
  if (height < 0 && height > INT_MIN) height = -height; /* a BMP whose rows stand from the top has a negative height */
  TRY(image_check_size(width, height, pixels_max, size, origin));
  uint8_t *pixels = stbi_load_from_callbacks(&callbacks, &source, &width, &height, &channels, 0);
  if (!pixels || source.ran_out) {
    free(pixels);
    return broken_image(origin, source.ran_out ? "it ends too early" : failure());
  }
  uint8_t *rgb = to_rgb(pixels, channels, (size_t)width * height);
  if (!rgb) return status_set(STATUS_NO_MEMORY, "%s: no memory for %d x %d pixels", origin, width, height);
  *image = (Image){width, height, rgb};
  stretch_levels(image, max);
  return STATUS_OK;
}

Status image_decode_up_to(Image *image, const uint8_t *bytes, size_t size, int pixels_max, const char *origin) {
  *image = (Image){0};
  if (size == 0) return status_set(STATUS_BAD_FILE, "%s: empty file instead of an image", origin);
  if (size > max_file_bytes)
    return status_set(STATUS_BAD_FILE, "%s: %zu bytes; images up to %zu are accepted", origin, size, max_file_bytes);
  if (image_tiff_is(bytes, size)) return image_tiff_decode(image, bytes, size, pixels_max, origin);
  if (image_png_is(bytes, size))
    TRY(image_png_decode(image, bytes, size, pixels_max, origin));
  else if (image_webp_is(bytes, size))
    TRY(image_webp_decode(image, bytes, size, pixels_max, origin));
  else
    TRY(decode_with_stb(image, bytes, size, pixels_max, origin));
  Status status = image_turn(image, find_orientation(bytes, size));
  if (status != STATUS_OK) image_release(image);
  return status;
}

Status image_decode(Image *image, const uint8_t *bytes, size_t size, const char *origin) {
  return image_decode_up_to(image, bytes, size, IMAGE_MAX_PIXELS, origin);
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

/* ---- PNG out ---- */

static void write_failed(png_structp png, png_const_charp text) {
  status_set(STATUS_IO, "cannot write %s: %s", (const char *)png_get_error_ptr(png), errno ? strerror(errno) : text);
  longjmp(png_jmpbuf(png), 1);
}

/* Separate from its caller, which owns the file, so that no local variable lives across longjmp. */
static Status write_png(png_structp png, png_infop info, const Image *image, FILE *stream) {
  if (setjmp(png_jmpbuf(png))) return STATUS_IO;
  errno = 0; /* what the library calls a write error has its cause there */
  png_init_io(png, stream);
  png_set_IHDR(png, info, (png_uint_32)image->width, (png_uint_32)image->height, 8, PNG_COLOR_TYPE_RGB, PNG_INTERLACE_NONE,
               PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  png_write_info(png, info);
  for (int y = 0; y < image->height; y++) png_write_row(png, image->rgb + (size_t)y * image->width * 3);
  png_write_end(png, NULL);
  return STATUS_OK;
}

Status image_save_png(const Image *image, const char *path) {
  if (!image->rgb) return status_set(STATUS_BAD_VALUE, "%s: there is no image to write", path);
  FileWriter writer;
  TRY(files_create(&writer, path));
  png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, (void *)path, write_failed, ignore_warning);
  png_infop info = png ? png_create_info_struct(png) : NULL;
  Status status = info ? write_png(png, info, image, writer.stream) : status_no_memory(path, "writing a PNG");
  png_destroy_write_struct(&png, &info);
  if (status == STATUS_OK) return files_commit(&writer);
  files_abort(&writer);
  return status;
}
