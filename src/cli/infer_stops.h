/* The stop strings of a command line, where \n, \t and \\ stand for a line end, a tab and a backslash. */
#ifndef CLI_INFER_STOPS_H
#define CLI_INFER_STOPS_H
#include "base/options.h"

typedef struct InferStops {
  char *list[OPTION_TEXTS_MOST]; /* owned */
  int count;
} InferStops;

Status infer_stops_open(InferStops *stops, const OptionTexts *given); /* BAD_USAGE: an empty one, or another letter behind a backslash */
void infer_stops_release(InferStops *stops);                          /* accepts what a failed open left */

#endif
