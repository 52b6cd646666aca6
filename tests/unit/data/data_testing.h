/* What the tests of src/data share: a folder to work in, the real data when it is there, images to make. */
#ifndef DATA_TESTING_H
#define DATA_TESTING_H
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/files.h"
#include "data/image.h"
#include "unit/remove_tree.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define assert_ok(expression)                                                                                                              \
  do {                                                                                                                                     \
    if ((expression) != STATUS_OK) fail_msg("%s: %s", #expression, status_message());                                                      \
  } while (0)

/* The call fails with this status and its message contains the text. */
#define assert_fails(expression, status, text)                                                                                             \
  do {                                                                                                                                     \
    assert_int_equal(expression, status);                                                                                                  \
    if (!strstr(status_message(), text)) fail_msg("\"%s\" does not say \"%s\"", status_message(), text);                                   \
  } while (0)

static char testing_folder[TEMPORARY_PATH];

static inline int testing_make_folder(void **state) {
  (void)state;
  return make_temporary_folder(testing_folder);
}

static inline int testing_remove_folder(void **state) {
  (void)state;
  return remove_tree(testing_folder);
}

/* A path in the folder; valid until the fourth call after it. */
static inline const char *testing_path(const char *relative) {
  static char paths[4][512];
  static int next;
  char *path = paths[next++ % 4];
  snprintf(path, sizeof paths[0], "%s/%s", testing_folder, relative);
  return path;
}

/* Writes a file in the folder, making the folders it lies in. */
static inline const char *testing_write(const char *relative, const void *data, size_t size) {
  const char *path = testing_path(relative);
  char folder[512];
  snprintf(folder, sizeof folder, "%s", path);
  *strrchr(folder, '/') = 0;
  assert_ok(files_make_dirs(folder));
  assert_ok(files_write(path, data, size));
  return path;
}

/* A width x height PNG of one colour in the folder. */
static inline const char *testing_image(const char *relative, int width, int height, uint8_t r, uint8_t g, uint8_t b) {
  Image image;
  testing_write(relative, "", 0);
  assert_ok(image_new(&image, width, height));
  for (int i = 0; i < width * height; i++) memcpy(image.rgb + 3 * i, (uint8_t[]){r, g, b}, 3);
  const char *path = testing_path(relative);
  assert_ok(image_save_png(&image, path));
  image_release(&image);
  return path;
}

/* Whether this build reads a format ("WebP"): it says which ones it does where it reads none. */
static inline bool testing_reads_image(const char *format) {
  Image image;
  assert_int_equal(image_decode(&image, (const uint8_t *)"no image", 8, "none"), STATUS_BAD_FILE);
  return strstr(status_message(), format) != NULL;
}

/* shared/RELATIVE, or skips the test when it is not there. */
static inline const char *testing_shared(const char *relative) {
  static char path[512];
  const char *root = getenv("ASTRA_SHARED");
  snprintf(path, sizeof path, "%s/%s", root ? root : "../shared", relative);
  if (!files_exists(path)) {
    printf("skipped: %s is not there; ASTRA_SHARED names the folder with the real data\n", path);
    skip();
  }
  return path;
}

#endif
