/* Drafts of a text's next tokens, which one decoding step checks together (speculative decoding): where they come from, and how many pay.
 *
 * Prompt look-up (Saxena, 2023): the text's last tokens are looked for in what is before them, and what followed there is the draft. A text
 * that quotes its prompt, or itself, is decoded several tokens at a time.
 *
 * How many pay. A step of R rows takes a + b R seconds, measured, and makes v tokens a second with what is drafted now. One more row is
 * worth its time where it gives more tokens than that time would otherwise: the i-th draft, which counts only if all before it are right,
 * if
 *
 *   p^i > v b        p: the share of this text's drafts that were right, lately, after occurrences as long as this one
 *
 * Texts are the same with any number of drafts, but for rounding (decode_batch.h): a token is picked as without them (sampler_pick), and a
 * draft counts where it equals it. */
#ifndef INFER_SPECULATION_H
#define INFER_SPECULATION_H
#include <stdbool.h>
#include <stdint.h>

enum { SPECULATION_MAX = 8 /* drafts of a sequence in a step */ };

#define SPECULATION_MODES(X)                                                                                                               \
  X(AUTO, "auto")     /* look-up where it pays */                                                                                          \
  X(LOOKUP, "lookup") /* always */                                                                                                         \
  X(OFF, "off")
typedef enum SpeculationMode {
#define SPECULATION_ENUM(name, text) SPECULATION_##name,
  SPECULATION_MODES(SPECULATION_ENUM)
#undef SPECULATION_ENUM
      SPECULATION_MODE_COUNT
} SpeculationMode;

/* Of a text ids [count] at most `most` drafts of what follows -> their number. They follow the latest of the longest earlier occurrences of
 * the text's end, of *length tokens, at least two; one that reaches the end goes on periodically. */
int speculation_look_up(const int32_t *ids, int64_t count, int most, int32_t *drafts, int *length);

/* What a device's steps take: moving sums, zeroed at the beginning. */
typedef struct SpeculationCosts {
  double weight, rows, seconds, rows_squared, rows_seconds; /* sums over steps, older ones less */
  double tokens;                                            /* that these steps made */
} SpeculationCosts;

/* A step of `rows` rows that made `tokens` tokens. */
void speculation_measure(SpeculationCosts *costs, int rows, int tokens, double seconds);

/* How a text's drafts fared, by the length of what had occurred before: 2 and 3 tokens, 4 to 7, more. Zeroed at its beginning. */
enum { SPECULATION_LENGTHS = 3 };
typedef struct SpeculationRecord {
  double right[SPECULATION_LENGTHS],
      checked[SPECULATION_LENGTHS]; /* moving sums; checked: those that were right, and the first wrong one */
  int steps;                        /* without drafts, since the last ones */
} SpeculationRecord;

void speculation_note(SpeculationRecord *record, int length, int drafts, int right);

/* Of `found` drafts how many are to be checked. Some are tried now and then where they do not pay, so that a change is noticed. */
int speculation_worth(const SpeculationCosts *costs, const SpeculationRecord *record, int length, int found);

#endif
