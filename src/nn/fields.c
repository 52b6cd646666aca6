/* Typed fields of a JSON object: see fields.h. */
#include "nn/fields.h"
#include <stdio.h>
#include <string.h>

Status fields_bad(const Fields *fields, const char *key, const char *accepted) {
  return status_set(STATUS_BAD_FILE, "%s: field %s%s must be %s", fields->origin, fields->prefix, key, accepted);
}

const json_t *fields_value(const Fields *fields, const char *key) {
  const json_t *value = json_object_get(fields->object, key);
  return json_is_null(value) ? NULL : value;
}

Status fields_whole(const Fields *fields, const char *key, int64_t *out) {
  const json_t *value = fields_value(fields, key);
  if (!value) return STATUS_OK;
  if (!json_is_integer(value)) return fields_bad(fields, key, "a whole number");
  *out = json_integer_value(value);
  return STATUS_OK;
}

Status fields_required(const Fields *fields, const char *key, int64_t *out) {
  if (!fields_value(fields, key)) return status_set(STATUS_BAD_FILE, "%s: field %s%s is missing", fields->origin, fields->prefix, key);
  return fields_whole(fields, key, out);
}

Status fields_int(const Fields *fields, const char *key, int *out) {
  int64_t value = *out;
  TRY(fields_whole(fields, key, &value));
  if (value < 0 || value > 1 << 30) return fields_bad(fields, key, "a whole number from 0 to 2^30");
  *out = (int)value;
  return STATUS_OK;
}

Status fields_number(const Fields *fields, const char *key, double *out) {
  const json_t *value = fields_value(fields, key);
  if (!value) return STATUS_OK;
  if (!json_is_number(value)) return fields_bad(fields, key, "a number");
  *out = json_number_value(value);
  return STATUS_OK;
}

Status fields_flag(const Fields *fields, const char *key, bool *out) {
  const json_t *value = fields_value(fields, key);
  if (!value) return STATUS_OK;
  if (!json_is_boolean(value)) return fields_bad(fields, key, "true or false");
  *out = json_is_true(value);
  return STATUS_OK;
}

Status fields_triple(const Fields *fields, const char *key, double *out) {
  const json_t *value = fields_value(fields, key);
  if (!value) return STATUS_OK;
  if (!json_is_array(value) || json_array_size(value) != 3) return fields_bad(fields, key, "a list of three numbers");
  for (size_t i = 0; i < 3; i++) {
    if (!json_is_number(json_array_get(value, i))) return fields_bad(fields, key, "a list of three numbers");
    out[i] = json_number_value(json_array_get(value, i));
  }
  return STATUS_OK;
}

Status fields_choice(const Fields *fields, const char *key, const Choice *choices, int *out) {
  const json_t *value = fields_value(fields, key);
  if (!value) return STATUS_OK;
  const char *text = json_string_value(value);
  char accepted[128] = "one of ";
  for (const Choice *choice = choices; choice->name; choice++) {
    if (text && strcmp(choice->name, text) == 0) return *out = choice->value, STATUS_OK;
    size_t used = strlen(accepted);
    snprintf(accepted + used, sizeof accepted - used, "%s%s", choice == choices ? "" : ", ", choice->name);
  }
  return fields_bad(fields, key, accepted);
}

const char *fields_choice_name(const Choice *choices, int value) {
  while (choices->name && choices->value != value) choices++;
  return choices->name;
}
