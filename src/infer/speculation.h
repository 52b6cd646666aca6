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
  X(AUTO, "auto")     /* look-up, and drafts of other devices, where they pay */                                                           \
  X(LOOKUP, "lookup") /* always */                                                                                                         \
  X(OFF, "off")                                                                                                                            \
  X(DRAFT, "draft") /* drafts of other devices alone, always */
typedef enum SpeculationMode {
#define SPECULATION_ENUM(name, text) SPECULATION_##name,
  SPECULATION_MODES(SPECULATION_ENUM)
#undef SPECULATION_ENUM
      SPECULATION_MODE_COUNT
} SpeculationMode;

/* Of a text ids [count] at most `max` drafts of what follows -> their number. They follow the latest of the longest earlier occurrences of
 * the text's end, of *length tokens, at least two; one that reaches the end goes on periodically. */
int speculation_look_up(const int32_t *ids, int64_t count, int max, int32_t *drafts, int *length);

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

/* ---- drafts of another device, which has nothing to decode and a smaller copy of the model (drafter.h). They come as a chain: the ids
 * that stand, as it thinks, from position `base` of the text on, up to which it has been told. It goes on while the text's device computes,
 * so that a chain may begin with ids that have been confirmed meanwhile.
 *
 * k drafts that are asked for give 1 + p + ... + p^k tokens in the a + b (1 + k) seconds of a step and w k seconds of waiting (p, a and b
 * as above, w measured). Asked for is the k that gives most tokens a second. */

enum { SPECULATION_CHAIN = 2 * SPECULATION_MAX + 1 /* twice a step's, and the token that follows the first ones */ };

/* Of a chain [count] from position base on: how many, the last ones, follow text [tokens]. 0: it is stale, or ahead of the text. */
int speculation_follow(const int32_t *text, int64_t tokens, int64_t base, const int32_t *chain, int count);

/* How another device's drafts fared on this one, and what waiting for them took: moving sums over steps, zeroed at the beginning. */
typedef struct SpeculationDrafter {
  double right, checked;
  double asked, waited; /* drafts that were asked for; seconds */
  int steps;            /* that are in the sums, at most as many as a trial has */
  int rest;             /* steps until the next trial: they did not pay */
  int failures;         /* trials in which they did not, one after another; each doubles the time until the next */
} SpeculationDrafter;

/* Of a step for which `asked` drafts were waited for, for `waited` seconds, and `drafts` were checked. */
void speculation_drafted(SpeculationDrafter *drafter, int asked, int drafts, int right, double waited);

/* How many drafts to ask for before the next step; at least `min`, 0 or 1. With 0 they are tried again at times where they do not pay. */
int speculation_ask(const SpeculationCosts *costs, SpeculationDrafter *drafter, int min);

/* More of that device's drafts are right than of those that follow occurrences of this length. */
bool speculation_prefers(const SpeculationDrafter *drafter, const SpeculationRecord *record, int length);

#endif
