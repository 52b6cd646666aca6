/* The command lines of a row, as the command accuracy notes them: those of now beside those of before. */
#ifndef CLI_BENCH_SETTINGS_H
#define CLI_BENCH_SETTINGS_H
#include <stdbool.h>

/* Whether both command lines have the same settings. How the results' folder is spelt, and where it lay before, is none, nor is the number
 * of threads. *difference (may be NULL): otherwise the first, a fresh string, or NULL for no memory. */
bool bench_settings_same(const char *folder, const char *now, const char *before, char **difference);

#endif
