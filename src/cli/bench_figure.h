/* The figure of an experiment, a number in the JSON that an evaluation prints. */
#ifndef CLI_BENCH_FIGURE_H
#define CLI_BENCH_FIGURE_H
#include "base/status.h"
#include <jansson.h>

/* "a.b" of an object, "a.0" of a list; NAN where there is no number. */
double bench_figure_at(const json_t *root, const char *path);

/* BAD_FILE: the file at `path`, which holds root, does not have this figure; the message lists the numbers that it has. */
Status bench_figure_missing(const char *path, const char *figure, json_t *root);

#endif
