/* Numbers with units, and lists of numbers. */
#include "cli/link_values.h"
#include "cli/infer_link_options.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

typedef struct Unit {
  const char *name;
  double size;
} Unit;

static Status with_unit(const char *option, const char *text, const Unit *units, const char *accepted, double *value) {
  char *end;
  double number = strtod(text, &end);
  for (const Unit *unit = units; end != text && unit->name; unit++)
    if (strcasecmp(end, unit->name) == 0 && isfinite(number * unit->size) && number >= 0) {
      *value = number * unit->size;
      return STATUS_OK;
    }
  return status_set(STATUS_BAD_USAGE, "--%s \"%s\": accepted are numbers with a unit, as in %s", option, text, accepted);
}

static Status of_option(Status status, const char *option) {
  return status == STATUS_OK ? STATUS_OK : status_wrap(STATUS_BAD_USAGE, "--%s", option);
}

Status link_values_rate(const char *option, const char *text, double *bits_per_second) {
  return of_option(infer_link_options_rate(text, bits_per_second), option);
}

Status link_values_time(const char *option, const char *text, double *seconds) {
  return of_option(infer_link_options_time(text, seconds), option);
}

Status link_values_size(const char *option, const char *text, double *bytes) {
  static const Unit units[] = {{"", 1}, {"k", 1024.0}, {"M", 1048576.0}, {"G", 1073741824.0}, {NULL, 0}};
  return with_unit(option, text, units, "512M, 2G or 0", bytes);
}

Status link_values_numbers(const char *option, const char *text, double *list, int room, int *count) {
  const char *at = text;
  for (*count = 0; *count < room; at++) {
    char *end;
    double number = strtod(at, &end);
    if (end == at || !isfinite(number) || number <= 0 || (*end && *end != ',')) break;
    list[(*count)++] = number;
    at = end;
    if (*at == '\0') return STATUS_OK;
  }
  return status_set(STATUS_BAD_USAGE, "--%s \"%s\": accepted is a list of at most %d positive numbers, as in 1,2,0.5", option, text, room);
}

Status link_values_list(const char *option, const char *text, int least, int most, int *list, int room, int *count) {
  const char *at = text;
  for (*count = 0; *count < room; at++) {
    char *end;
    long number = strtol(at, &end, 10);
    if (end == at || number < least || number > most || (*end && *end != ',')) break;
    list[(*count)++] = (int)number;
    at = end;
    if (*at == '\0') return STATUS_OK;
  }
  return status_set(STATUS_BAD_USAGE, "--%s \"%s\": accepted is a list of at most %d numbers from %d to %d, with commas between", option,
                    text, room, least, most);
}
