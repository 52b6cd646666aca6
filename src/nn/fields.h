/* Inside the configuration code only: typed fields of a JSON object. A field that is absent, or null, which Hugging Face writes for "not
 * set", leaves *out as it is; one of another type is BAD_FILE and named. */
#ifndef NN_FIELDS_H
#define NN_FIELDS_H
#include "base/status.h"
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

/* An object and the words that name it in a message: "config.json: " or "config.json: astra." */
typedef struct Fields {
  const json_t *object;
  const char *origin, *prefix;
} Fields;

/* A list of words and their meanings ends with {NULL, 0}. The first word of a meaning is the one that is written. */
typedef struct Choice {
  const char *name;
  int value;
} Choice;

const json_t *fields_value(const Fields *fields, const char *key); /* NULL: absent or null */
Status fields_bad(const Fields *fields, const char *key, const char *accepted);
Status fields_whole(const Fields *fields, const char *key, int64_t *out);
Status fields_required(const Fields *fields, const char *key, int64_t *out); /* absent: BAD_FILE */
Status fields_int(const Fields *fields, const char *key, int *out);          /* 0 to 2^30 */
Status fields_number(const Fields *fields, const char *key, double *out);
Status fields_flag(const Fields *fields, const char *key, bool *out);
Status fields_triple(const Fields *fields, const char *key, double *out); /* [3] */
Status fields_choice(const Fields *fields, const char *key, const Choice *choices, int *out);
const char *fields_choice_name(const Choice *choices, int value);

#endif
