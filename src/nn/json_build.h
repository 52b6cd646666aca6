/* JSON objects and lists that are whole or NULL, and files of them that are whole or not there: the first value for which there is no
 * memory makes the whole NULL, and what comes after it is let go. */
#ifndef NN_JSON_BUILD_H
#define NN_JSON_BUILD_H
#include "base/status.h"
#include <jansson.h>

/* value is taken; NULL is what is left of one for which there was no memory. */
void json_build_put(json_t **object, const char *key, json_t *value);
void json_build_append(json_t **list, json_t *value);

/* Null for what is not finite, which JSON has no number for; NULL when out of memory. */
json_t *json_build_number(double value);

/* What programs print with --json: one object on one line, alone on standard output, with the member "schema" before all others. The number
 * is raised when a member changes its meaning or goes; new members may come at any time. */
enum { JSON_SCHEMA = 1 };

/* Prints it. object is taken; NULL is NO_MEMORY, as is a text in it that is not UTF-8. */
Status json_build_print(json_t *object);

/* Writes the file DIRECTORY/name, in lines and with numbers to their last digit. root is taken; NULL is NO_MEMORY. */
Status json_build_save(json_t *root, const char *directory, const char *name);

#endif
