/* Whether two command lines have the same settings: see bench_settings.h. */
#include "cli/bench_settings.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The next word of a command line, as command_line writes them, unquoted in its place; NULL behind the last. */
static char *next_word(char **rest) {
  char *word = *rest, *at = word, *to = word;
  bool quoted = false;
  if (*at == '\0') return NULL;
  for (; *at && (quoted || *at != ' '); at++) {
    if (*at == '\'')
      quoted = !quoted;
    else if (*at == '\\' && !quoted && at[1])
      *to++ = *++at;
    else
      *to++ = *at;
  }
  *rest = at + (*at == ' ');
  *to = '\0';
  return word;
}

/* The next word that is a setting. The number of threads is none: results differ in their rounding alone, and machines have other numbers.
 */
static char *next_setting(char **rest) {
  char *word = next_word(rest);
  while (word && strcmp(word, "--threads") == 0 && next_word(rest)) word = next_word(rest);
  return word;
}

/* Of a path in the results' folder, or in that of another experiment beside it, what it still ends with where both have moved: from seed-S
 * or EXPERIMENT on. NULL: it is none. */
static const char *fixed_part(const char *folder, const char *path, bool *own) {
  const char *slash = strrchr(folder, '/');
  const size_t length = strlen(folder), parent = slash ? (size_t)(slash - folder) + 1 : 0;
  *own = strncmp(path, folder, length) == 0 && strncmp(path + length, "/seed-", 6) == 0;
  if (*own) return path + length + 1;
  if (strncmp(path, folder, parent) != 0) return NULL;
  const size_t name = strcspn(path + parent, "/");
  return name > 0 && strncmp(path + parent + name, "/seed-", 6) == 0 ? path + parent : NULL;
}

/* What stood in the place of the results' folder when a command line of before was written. */
typedef struct FormerFolder {
  const char *text; /* this many characters of it; NULL: not met yet */
  size_t length;
} FormerFolder;

/* Whether a word of now is the same as one of before, but for the place of the results. */
static bool same_word(const char *folder, const char *now, const char *before, FormerFolder *former) {
  bool own;
  const char *fixed = fixed_part(folder, now, &own);
  if (fixed == NULL) return strcmp(now, before) == 0;
  const size_t length = strlen(before), behind = strlen(fixed);
  if (length < behind || strcmp(before + length - behind, fixed) != 0) return false;
  const FormerFolder here = {before, length - behind};
  if (here.length > 0 && before[here.length - 1] != '/') return false;
  if (!own) return true;
  if (former->text == NULL) *former = here;
  return former->length == here.length && memcmp(former->text, before, here.length) == 0;
}

/* The first settings that differ, `word` of now and `was` of before (NULL: there is none), for people; with the option whose values they
 * are. A fresh string; NULL: no memory. */
static char *describe_difference(const char *option, const char *word, const char *was) {
  const bool values = option && word && was && strncmp(word, "--", 2) != 0 && strncmp(was, "--", 2) != 0;
  const char *of = values ? option : "", *space = values ? " " : "";
  char *text;
  const int made = asprintf(&text, "\"%s%s%s\" now, \"%s%s%s\" then", of, space, word ? word : "", of, space, was ? was : "");
  return made < 0 ? NULL : text;
}

bool bench_settings_same(const char *folder, const char *now, const char *before, char **difference) {
  char *copy = now ? strdup(now) : NULL, *other = before ? strdup(before) : NULL, *rest = copy, *other_rest = other;
  const char *option = NULL;
  FormerFolder former = {0};
  bool same = copy && other;
  while (same) {
    const char *word = next_setting(&rest), *was = next_setting(&other_rest);
    if (word == NULL && was == NULL) break;
    same = word && was && same_word(folder, word, was, &former);
    if (!same && difference) *difference = describe_difference(option, word, was);
    if (word && strncmp(word, "--", 2) == 0) option = word;
  }
  free(copy), free(other);
  return same;
}
