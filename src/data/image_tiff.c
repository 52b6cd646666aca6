/* TIFF through libtiff 4.5 or later, in builds that found it (ASTRA_TIFF). Leaves out: all pages but the first, colour profiles. libtiff
 * converts to 8-bit RGB, rounding 16 bits.
 * Invariant: libtiff sees the bytes through the functions here alone, prints nothing, and allocates no single block beyond what the
 * picture's size justifies. TIFF has no checksums: damage inside the pixels can go unnoticed. */
#include "data/image_codec.h"
#include <stdlib.h>
#include <string.h>
#ifdef ASTRA_TIFF
#include <tiffio.h>
#endif

bool image_tiff_is(const uint8_t *bytes, size_t size) {
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

static tsize_t source_read(thandle_t user, void *to, tsize_t wanted) {
  TiffSource *source = user;
  size_t left = source->at < source->size ? source->size - source->at : 0;
  size_t taken = wanted < 0 ? 0 : (size_t)wanted < left ? (size_t)wanted : left;
  memcpy(to, source->bytes + (taken ? source->at : 0), taken);
  source->at += taken;
  return (tsize_t)taken;
}

static tsize_t source_write(thandle_t user, void *from, tsize_t count) {
  (void)user, (void)from, (void)count;
  return -1;
}

static toff_t source_seek(thandle_t user, toff_t offset, int whence) {
  TiffSource *source = user;
  source->at = (size_t)offset + (whence == SEEK_CUR ? source->at : whence == SEEK_END ? source->size : 0);
  return source->at;
}

static int source_close(thandle_t user) {
  (void)user;
  return 0;
}

static toff_t source_size(thandle_t user) { return ((const TiffSource *)user)->size; }

__attribute__((format(printf, 4, 0))) static int keep_error(TIFF *tiff, void *user, const char *module, const char *format,
                                                            va_list arguments) {
  TiffSource *source = user;
  (void)tiff, (void)module;
  if (!source->reason[0]) vsnprintf(source->reason, sizeof source->reason, format, arguments);
  return 1;
}

static int ignore_warning(TIFF *tiff, void *user, const char *module, const char *format, va_list arguments) {
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
  TIFFOpenOptionsSetWarningHandlerExtR(options, ignore_warning, source);
  TIFF *tiff =
      TIFFClientOpenExt("picture", "rm", source, source_read, source_write, source_seek, source_close, source_size, NULL, NULL, options);
  TIFFOpenOptionsFree(options);
  return tiff;
}

static Status broken(const TiffSource *source, const char *origin) {
  return status_set(STATUS_BAD_FILE, "%s: broken picture (%s)", origin, source->reason[0] ? source->reason : "libtiff cannot decode it");
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
  decoder.req_orientation = decoder.orientation; /* image_orientation_apply turns it: libtiff leaves out the transposed ones */
  *orientation = decoder.orientation;
  bool done = TIFFRGBAImageGet(&decoder, raster, width, height) != 0;
  TIFFRGBAImageEnd(&decoder);
  return done && !source->reason[0];
}

static Status decode(Image *image, TIFF *tiff, TiffSource *source, const char *origin, int *orientation) {
  uint32_t width = 0, height = 0;
  if (!TIFFGetField(tiff, TIFFTAG_IMAGEWIDTH, &width) || !TIFFGetField(tiff, TIFFTAG_IMAGELENGTH, &height)) return broken(source, origin);
  TRY(image_check_size(width, height, source->size, origin));
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
Status image_tiff_decode(Image *image, const uint8_t *bytes, size_t size, const char *origin) {
  TiffSource source = {.bytes = bytes, .size = size};
  uint32_t width = 0, height = 0;
  int orientation = 1;
  int64_t limit = BLOCK_BYTES + 4 * (int64_t)size;
  TIFF *tiff = open_source(&source, limit);
  if (!tiff) return broken(&source, origin);
  TIFFGetField(tiff, TIFFTAG_IMAGEWIDTH, &width);
  TIFFGetField(tiff, TIFFTAG_IMAGELENGTH, &height);
  TIFFClose(tiff);
  TRY(image_check_size(width, height, size, origin));
  tiff = open_source(&source, limit + BLOCK_BYTES_PER_PIXEL * (int64_t)width * height);
  if (!tiff) return broken(&source, origin);
  Status status = decode(image, tiff, &source, origin, &orientation);
  TIFFClose(tiff);
  if (status == STATUS_OK) status = image_orientation_apply(image, orientation);
  if (status != STATUS_OK) image_release(image);
  return status;
}
#else
Status image_tiff_decode(Image *image, const uint8_t *bytes, size_t size, const char *origin) {
  (void)image, (void)bytes, (void)size;
  return status_set(STATUS_UNSUPPORTED, "%s: this build reads no TIFF: install libtiff-dev (4.5 or later) and build again (make clean all)",
                    origin);
}
#endif
