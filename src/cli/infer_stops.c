/* See infer_stops.h. */
#include "cli/infer_stops.h"
#include <stdlib.h>
#include <string.h>

/* What a letter behind a backslash stands for; 0: nothing. */
static char meaning(char letter) {
  static const char letters[] = "nt\\", meanings[] = "\n\t\\";
  const char *at = letter ? strchr(letters, letter) : NULL;
  return at ? meanings[at - letters] : 0;
}

static Status add(InferStops *stops, const char *given) {
  char *out = malloc(strlen(given) + 1);
  if (!out) return status_set(STATUS_NO_MEMORY, "no memory for a stop string");
  stops->list[stops->count++] = out;
  if (!*given) return status_set(STATUS_BAD_USAGE, "--stop: '' is not accepted; give a text that is not empty");
  for (const char *at = given; *at; at++) {
    *out = *at == '\\' ? meaning(*++at) : *at;
    if (!*out++)
      return status_set(STATUS_BAD_USAGE, "--stop: '%s' is not accepted; behind a backslash give n (line end), t (tab) or a backslash",
                        given);
  }
  *out = 0;
  return STATUS_OK;
}

Status infer_stops_open(InferStops *stops, const OptionTexts *given) {
  *stops = (InferStops){.count = 0};
  for (int i = 0; i < given->count; i++) TRY(add(stops, given->list[i]));
  return STATUS_OK;
}

void infer_stops_release(InferStops *stops) {
  for (int i = 0; i < stops->count; i++) free(stops->list[i]);
  *stops = (InferStops){.count = 0};
}
