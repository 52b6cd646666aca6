/* The decoders behind image_decode for PNG, TIFF and WebP, each with its library, and PNG out. */
#include "base/files.h"
#include "data/image_internal.h"
#include <png.h>
#include <stdlib.h>
#include <string.h>

/* ---- PNG: libpng ---- */

enum { SIGNATURE_BYTES = 8 };

typedef struct PngSource {
  const uint8_t *bytes;
  size_t size, at;
  const char *origin;
} PngSource;

bool image_png_is(const uint8_t *bytes, size_t size) { return size >= SIGNATURE_BYTES && png_sig_cmp(bytes, 0, SIGNATURE_BYTES) == 0; }

static void read_bytes(png_structp png, png_bytep to, size_t wanted) {
  PngSource *source = png_get_io_ptr(png);
  if (wanted > source->size - source->at) png_error(png, "it ends too early");
  memcpy(to, source->bytes + source->at, wanted);
  source->at += wanted;
}

static void read_failed(png_structp png, png_const_charp text) {
  const PngSource *source = png_get_error_ptr(png);
  status_set(STATUS_BAD_FILE, "%s: broken image (%s)", source->origin, text);
  longjmp(png_jmpbuf(png), 1);
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
  if (setjmp(png_jmpbuf(png))) return STATUS_BAD_FILE; /* read_failed has said why */
  be_strict(png);
  png_read_info(png, info);
  TRY(image_check_size(png_get_image_width(png, info), png_get_image_height(png, info), source->size, source->origin));
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

Status image_png_decode(Image *image, const uint8_t *bytes, size_t size, const char *origin) {
  PngSource source = {bytes, size, 0, origin};
  png_structp png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &source, read_failed, ignore_warning);
  png_infop info = png ? png_create_info_struct(png) : NULL;
  Status status = info ? STATUS_OK : status_set(STATUS_NO_MEMORY, "%s: no memory to read a PNG", origin);
  if (info) {
    png_set_read_fn(png, &source, read_bytes);
    status = read_png(png, info, image, &source);
  }
  png_destroy_read_struct(&png, &info, NULL);
  if (status != STATUS_OK) image_release(image);
  return status;
}

static void write_failed(png_structp png, png_const_charp text) {
  status_set(STATUS_IO, "%s: cannot write the image: %s", (const char *)png_get_error_ptr(png), text);
  longjmp(png_jmpbuf(png), 1);
}

/* Separate from its caller, which owns the file, so that no local variable lives across longjmp. */
static Status write_png(png_structp png, png_infop info, const Image *image, FILE *stream) {
  if (setjmp(png_jmpbuf(png))) return STATUS_IO;
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
  Status status = info ? write_png(png, info, image, writer.stream) : status_set(STATUS_NO_MEMORY, "%s: no memory to write a PNG", path);
  png_destroy_write_struct(&png, &info);
  if (status == STATUS_OK) return files_commit(&writer);
  files_abort(&writer);
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
  TIFF *tiff =
      TIFFClientOpenExt("picture", "rm", source, source_read, source_write, source_seek, source_close, source_size, NULL, NULL, options);
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

/* ---- WebP: libwebp ---- */

/* WebP through libwebp, in builds that found it (ASTRA_WEBP). Leaves out: animations, colour profiles, the orientation
 * (image_load.c). WebP has no checksums: damage inside the pixels can go unnoticed. */

#ifdef ASTRA_WEBP
#include <webp/decode.h>
#endif

bool image_webp_is(const uint8_t *bytes, size_t size) {
  return size >= 12 && memcmp(bytes, "RIFF", 4) == 0 && memcmp(bytes + 8, "WEBP", 4) == 0;
}

#ifdef ASTRA_WEBP
static const char *reason(VP8StatusCode code) {
  if (code == VP8_STATUS_NOT_ENOUGH_DATA) return "it ends too early";
  if (code == VP8_STATUS_UNSUPPORTED_FEATURE) return "a feature that libwebp does not support";
  return code == VP8_STATUS_OUT_OF_MEMORY ? "no memory" : "libwebp cannot decode it";
}

Status image_webp_decode(Image *image, const uint8_t *bytes, size_t size, const char *origin) {
  WebPDecoderConfig config;
  if (!WebPInitDecoderConfig(&config)) return status_set(STATUS_UNSUPPORTED, "%s: the libwebp here is not that of this build", origin);
  VP8StatusCode code = WebPGetFeatures(bytes, size, &config.input);
  if (code != VP8_STATUS_OK) return status_set(STATUS_BAD_FILE, "%s: broken image (%s)", origin, reason(code));
  if (config.input.has_animation) return status_set(STATUS_UNSUPPORTED, "%s: an animated WebP; only single images are read", origin);
  TRY(image_check_size(config.input.width, config.input.height, size, origin));
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
Status image_webp_decode(Image *image, const uint8_t *bytes, size_t size, const char *origin) {
  (void)image, (void)bytes, (void)size;
  return status_set(STATUS_UNSUPPORTED, "%s: this build reads no WebP: install libwebp-dev and build again (make clean all)", origin);
}
#endif
