/* Which class is taken for which: counts of an evaluation, as CSV and as an image. */
#ifndef TRAIN_CONFUSION_H
#define TRAIN_CONFUSION_H
#include "base/status.h"
#include <stdint.h>

enum { CONFUSION_CLASSES = 1000 }; /* of more there is none: an image could not show them */

typedef struct Confusion {
  int64_t classes;  /* C; 0: nothing is counted */
  uint32_t *counts; /* [C of the label, C of the answer], owned */
} Confusion;

/* More than CONFUSION_CLASSES or fewer than 2: nothing is counted. */
Status confusion_init(Confusion *confusion, int64_t classes);
void confusion_release(Confusion *confusion);
void confusion_clear(Confusion *confusion);
void confusion_add(Confusion *confusion, int64_t label, int64_t answer);

/* DIRECTORY/confusion.csv: a header "label,NAME,NAME..." of answers, then a row for each label; names in quotes where they hold what CSV
 * obeys. DIRECTORY/confusion.png: a cell for each pair, the darker the larger its share of the label's samples, rows being labels; up to 40
 * classes with names and counts, of more the cells alone. Atomic. names [C]. Nothing is written where nothing is counted. */
Status confusion_save(const Confusion *confusion, char *const *names, const char *directory);

#endif
