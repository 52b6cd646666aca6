/* PNG through libpng. Leaves out: gamma, colour profiles, text and all other ancillary chunks, which are skipped unread (their checksums
 * are verified all the same); the orientation (image_orientation.c). Invariant: a picture is only returned when every chunk's CRC and the
 * Adler-32 of its pixels were right, so that no damaged byte of the file changes a pixel unnoticed. libpng reports by longjmp: functions
 * between setjmp and it own nothing. */
#include "base/files.h"
#include "data/image_codec.h"
#include <png.h>
#include <stdlib.h>
#include <string.h>

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
  status_set(STATUS_BAD_FILE, "%s: broken picture (%s)", source->origin, text);
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
  status_set(STATUS_IO, "%s: cannot write the picture: %s", (const char *)png_get_error_ptr(png), text);
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
  if (!image->rgb) return status_set(STATUS_BAD_VALUE, "%s: there is no picture to write", path);
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
