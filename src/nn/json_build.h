/* JSON objects and lists that are complete or NULL, and files that are complete or absent: the first value that cannot be allocated makes
 * the whole object NULL, and later values are dropped. */
#ifndef NN_JSON_BUILD_H
#define NN_JSON_BUILD_H
#include "base/status.h"
#include <jansson.h>
#include <stddef.h>

/* Takes ownership of value; NULL: one that could not be allocated. */
void json_build_put(json_t **object, const char *key, json_t *value);
void json_build_append(json_t **list, json_t *value);

/* JSON null for numbers that are not finite; NULL when out of memory. */
json_t *json_build_number(double value);

/* A string, whatever bytes the text has: those that are no UTF-8 become U+FFFD. NULL when out of memory. */
json_t *json_build_text(const char *text, size_t bytes);

/* The same of a whole string: a path, a name, a message. Of NULL JSON null. */
json_t *json_build_string(const char *text);

/* What programs print with --json: one object on one line, alone on standard output, with "schema" as its first member. The number is
 * raised when a member changes its meaning or is removed; new members may be added at any time. */
enum { JSON_SCHEMA = 1 };

/* Prints it and takes ownership; NULL is NO_MEMORY, as is a string that is not UTF-8. */
Status json_build_print(json_t *object);

/* Writes DIRECTORY/name, indented and with full-precision numbers. Takes ownership of root; NULL is NO_MEMORY. */
Status json_build_save(json_t *root, const char *directory, const char *name);

#endif
