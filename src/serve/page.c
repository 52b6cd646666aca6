/* Looks up the files of the page. */
#include "serve/page.h"
#include <string.h>

const char *const page_fields[] = {"Content-Security-Policy",
                                   "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; "
                                   "base-uri 'none'; form-action 'none'; "
                                   "frame-ancestors 'none'",
                                   "X-Content-Type-Options",
                                   "nosniff",
                                   "Referrer-Policy",
                                   "no-referrer",
                                   "Cache-Control",
                                   "no-cache",
                                   NULL};

const PageFile *page_find(const char *path) {
  if (strcmp(path, "/index.html") == 0) path = "/";
  for (const PageFile *file = page_files; file->path; file++) {
    if (strcmp(file->path, path) == 0) return file;
  }
  return NULL;
}
