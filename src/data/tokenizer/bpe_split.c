/* Pre-tokenisation: see bpe_split.h. PCRE2 sees valid UTF-8 only and need not check it; every character begins a match, so that matches are
 * anchored and follow one another. No expression backtracks over more than one run of white space. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "data/tokenizer/bpe_split.h"
#include "base/utf8.h"
#include <pcre2.h>
#include <stdlib.h>

/* White_Space of Unicode, to stand in a bracket expression. */
#define SPACE "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"

typedef struct Expression {
  const char *published, *own;
} Expression;

static const Expression expressions[] = {
    [BPE_PATTERN_GPT2] = {"'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",
                          "'(?:[stmd]|re|ve|ll)| ?\\p{L}+| ?\\p{N}+| ?[^" SPACE "\\p{L}\\p{N}]+|[" SPACE "]+(?![^" SPACE "])|[" SPACE "]+"},
    [BPE_PATTERN_LLAMA3] = {"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|"
                            "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
                            "'(?:[sStTmMdD]|[rR][eE]|[vV][eE]|[lL][lL])|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^" SPACE
                            "\\p{L}\\p{N}]+[\\r\\n]*|[" SPACE "]*[\\r\\n]+|[" SPACE "]+(?![^" SPACE "])|[" SPACE "]+"},
};

const char *bpe_split_published(BpePattern pattern) { return expressions[pattern].published; }

struct BpeSplit {
  pcre2_code *code;
};

struct BpeWalk {
  const BpeSplit *split;
  pcre2_match_data *match;
  const char *text;
  size_t size, at;
  size_t valid; /* text[at .. valid) is UTF-8; at == valid: what follows is to be looked at */
};

static Status pcre_error(const char *what, int code) {
  PCRE2_UCHAR text[128];
  if (code == PCRE2_ERROR_NOMEMORY) return status_set(STATUS_NO_MEMORY, "no memory to split text");
  pcre2_get_error_message(code, text, sizeof text);
  return status_set(STATUS_UNSUPPORTED, "%s: PCRE2 says: %s", what, (const char *)text);
}

Status bpe_split_new(BpeSplit **split, BpePattern pattern) {
  *split = calloc(1, sizeof **split);
  if (!*split) return status_set(STATUS_NO_MEMORY, "no memory to split text");
  int error;
  PCRE2_SIZE offset;
  (*split)->code = pcre2_compile((PCRE2_SPTR)expressions[pattern].own, PCRE2_ZERO_TERMINATED, PCRE2_UTF, &error, &offset, NULL);
  if (!(*split)->code) return pcre_error("the expression that splits text cannot be compiled", error);
  (void)pcre2_jit_compile((*split)->code, PCRE2_JIT_COMPLETE); /* where the machine has none, pcre2_match interprets */
  return STATUS_OK;
}

void bpe_split_free(BpeSplit *split) {
  if (!split) return;
  pcre2_code_free(split->code);
  free(split);
}

Status bpe_split_walk(BpeWalk **walk, const BpeSplit *split) {
  *walk = calloc(1, sizeof **walk);
  if (*walk) (*walk)->match = pcre2_match_data_create(1, NULL);
  if (!*walk || !(*walk)->match) return status_set(STATUS_NO_MEMORY, "no memory to split text");
  (*walk)->split = split;
  return STATUS_OK;
}

void bpe_split_walk_free(BpeWalk *walk) {
  if (!walk) return;
  pcre2_match_data_free(walk->match);
  free(walk);
}

void bpe_split_start(BpeWalk *walk, const char *text, size_t size) {
  walk->text = text;
  walk->size = size;
  walk->at = walk->valid = 0;
}

/* The end of the stretch of whole characters (`valid`) or of bytes in none (not `valid`) that begins at `at`. */
static size_t stretch_end(const BpeWalk *walk, bool valid) {
  size_t at = walk->at;
  for (size_t length; at < walk->size; at += valid ? length : 1) {
    length = utf8_size(walk->text + at, walk->size - at);
    if ((length > 0) != valid) break;
  }
  return at;
}

Status bpe_split_next(BpeWalk *walk, const char **piece, size_t *size) {
  *piece = walk->text + walk->at;
  *size = 0;
  if (walk->at == walk->size) return STATUS_OK;
  if (walk->at == walk->valid) walk->valid = stretch_end(walk, true);
  size_t end = walk->valid;
  if (walk->at == end) {
    end = walk->valid = stretch_end(walk, false);
  } else {
    int code = pcre2_match(walk->split->code, (PCRE2_SPTR)walk->text, walk->valid, walk->at, PCRE2_NO_UTF_CHECK | PCRE2_ANCHORED,
                           walk->match, NULL);
    if (code < 0) return pcre_error("splitting a text failed", code);
    end = pcre2_get_ovector_pointer(walk->match)[1];
  }
  *size = end - walk->at;
  walk->at = end;
  return STATUS_OK;
}
