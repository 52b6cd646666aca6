/* See json_build.h. Text goes straight to the stream: json_dumps forgets some of its own failures to allocate. */
#include "nn/json_build.h"
#include "base/files.h"
#include "base/utf8.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void settle(json_t **whole, int failed) {
  if (!failed) return;
  json_decref(*whole);
  *whole = NULL;
}

void json_build_put(json_t **object, const char *key, json_t *value) { settle(object, json_object_set_new(*object, key, value)); }

void json_build_append(json_t **list, json_t *value) { settle(list, json_array_append_new(*list, value)); }

json_t *json_build_number(double value) { return isfinite(value) ? json_real(value) : json_null(); }

json_t *json_build_text(const char *text, size_t bytes) {
  size_t bad = 0, used = 0;
  for (size_t at = 0, size; at < bytes; at += size ? size : 1) bad += (size = utf8_size(text + at, bytes - at)) == 0;
  if (bad == 0) return json_stringn(text ? text : "", bytes);
  char *clean = malloc(bytes + 2 * bad + 1);
  if (!clean) return NULL;
  for (size_t at = 0; at < bytes;) {
    size_t size = utf8_size(text + at, bytes - at);
    memcpy(clean + used, size ? text + at : "\xef\xbf\xbd", size ? size : 3);
    used += size ? size : 3;
    at += size ? size : 1;
  }
  json_t *value = json_stringn(clean, used);
  free(clean);
  return value;
}

json_t *json_build_string(const char *text) { return text ? json_build_text(text, strlen(text)) : json_null(); }

Status json_build_print(json_t *object) {
  json_t *whole = object ? json_pack("{s:i}", "schema", JSON_SCHEMA) : NULL;
  if (whole) settle(&whole, json_object_update(whole, object));
  char *text = whole ? json_dumps(whole, JSON_COMPACT | JSON_REAL_PRECISION(12)) : NULL;
  json_decref(object);
  json_decref(whole);
  if (!text) return status_set(STATUS_NO_MEMORY, "no memory for the JSON output, or a text in it is not UTF-8");
  puts(text);
  free(text);
  return STATUS_OK;
}

Status json_build_save(json_t *root, const char *directory, const char *name) {
  char *path = files_join(directory, name);
  FileWriter writer;
  Status status = root && path ? files_create(&writer, path) : status_no_memory(directory, name);
  if (status == STATUS_OK) {
    if (json_dumpf(root, writer.stream, JSON_INDENT(2) | JSON_REAL_PRECISION(17)) == 0 || ferror(writer.stream))
      status = files_commit(&writer); /* which reports what the stream could not write */
    else
      files_abort(&writer), status = status_no_memory(directory, name);
  }
  free(path);
  json_decref(root);
  return status;
}
