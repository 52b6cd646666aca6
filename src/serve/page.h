/* The page of the service and its files, which are part of the program: src/serve/page, made into arrays by tools/embed-page.sh. */
#ifndef SERVE_PAGE_H
#define SERVE_PAGE_H
#include <stddef.h>

typedef struct PageFile {
  const char *path; /* "/" for the page itself, "/page.js" */
  const char *type; /* for Content-Type */
  const unsigned char *data;
  size_t bytes;
  const char *tag; /* for ETag, in its quotes: another one for other contents */
} PageFile;

extern const PageFile page_files[]; /* up to one whose path is NULL */

/* NULL: there is no such file. "/index.html" is the page as well. */
const PageFile *page_find(const char *path);

/* What every answer with a file of the page has in its head besides type and tag: pairs of name and value, up to a NULL. Nothing from other
 * servers and nothing inline is run, and no other page may frame this one. */
extern const char *const page_fields[];

#endif
