/* Numbers of a program's JSON: see bench_figure.h. */
#include "cli/bench_figure.h"
#include "cli/bench_experiment.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The element of a list whose number `digits` is; NULL where it is none, or there is none. */
static json_t *element_at(const json_t *list, const char *digits) {
  const bool number = *digits && digits[strspn(digits, "0123456789")] == '\0';
  return number ? json_array_get(list, (size_t)strtoul(digits, NULL, 10)) : NULL;
}

double bench_figure_at(const json_t *root, const char *path) {
  char name[NAME_MAX_LENGTH];
  while (root && *path) {
    size_t length = strcspn(path, ".");
    snprintf(name, sizeof name, "%.*s", (int)length, path);
    root = json_is_array(root) ? element_at(root, name) : json_object_get(root, name);
    path += length + (path[length] == '.');
  }
  return json_is_number(root) ? json_number_value(root) : NAN;
}

/* ", PATH" of each number, as bench_figure_at takes it; of an object its own before those within, of lists those of the first element. */
static void write_numbers(FILE *out, const char *path, json_t *value) {
  char within[4 * NAME_MAX_LENGTH];
  const char *key, *dot = *path ? "." : "";
  json_t *member;
  if (json_is_number(value)) fprintf(out, ", %s", path);
  if (json_is_array(value)) {
    snprintf(within, sizeof within, "%s%s0", path, dot);
    write_numbers(out, within, json_array_get(value, 0));
  }
  for (int numbers = 1; numbers >= 0; numbers--) json_object_foreach(value, key, member) {
      snprintf(within, sizeof within, "%s%s%s", path, dot, key);
      if (json_is_number(member) == numbers && strcmp(within, "schema") != 0 && strcmp(within, "bench_seconds") != 0)
        write_numbers(out, within, member);
    }
}

Status bench_figure_missing(const char *path, const char *figure, json_t *root) {
  char *numbers = NULL;
  size_t size = 0;
  FILE *out = open_memstream(&numbers, &size);
  if (out) write_numbers(out, "", root);
  if (out && fclose(out) != 0) size = 0;
  status_set(STATUS_BAD_FILE, "%s: has no number \"%s\", the experiment's figure; it has %s", path, figure,
             size > 2 ? numbers + 2 : "none");
  free(numbers);
  return STATUS_BAD_FILE;
}
