/* What a perplexity is computed over and divided by: WikiText's pages, documents by themselves, windows over a corpus, conventions. */
#include "data/text/text_perplexity.h"
#include "base/array.h"
#include "base/status.h"
#include "data/text/text_source.h"
#include "data/text/token_cache.h"
#include "data/tokenizer/tokenizer.h"
#include <ctype.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* ---- Pages and plain text of WikiText ---- */

/* WikiText as the wikitext task of EleutherAI's lm-evaluation-harness takes it: its pages, the text that a model is given in place of the
 * spaced-out one, and the words that a perplexity is divided by. Texts are UTF-8; white space is Unicode's, as in Python's \s.
 *
 * The replacements and their order are the harness's. What it writes as patterns, "\(\s*([^\)]*?)\s*\)" and its like, always ends at the
 * first closing sign, so that it takes away white space inside of a pair. */

/* Bytes of the white space character at text [left >= 1], or 0. */
static size_t space_size(const char *text, size_t left) {
  const unsigned char *b = (const unsigned char *)text;
  if (b[0] < 0x80) return b[0] == ' ' || (b[0] >= 0x09 && b[0] <= 0x0d) || (b[0] >= 0x1c && b[0] <= 0x1f);
  if (left >= 2 && b[0] == 0xc2) return b[1] == 0x85 || b[1] == 0xa0 ? 2 : 0;
  if (left < 3) return 0;
  uint32_t code = ((uint32_t)b[0] << 16) | ((uint32_t)b[1] << 8) | b[2];
  bool space = code == 0xe19a80 || (code >= 0xe28080 && code <= 0xe2808a) || code == 0xe280a8 || code == 0xe280a9 || code == 0xe280af ||
               code == 0xe2819f || code == 0xe38080;
  return space ? 3 : 0;
}

/* Bytes of the white space character that ends at text + size, or 0. */
static size_t space_before(const char *text, size_t size) {
  for (size_t length = 1; length <= 3 && length <= size; length++)
    if (space_size(text + size - length, length) == length) return length;
  return 0;
}

/* Takes white space off both ends of *text [*size]. */
static void strip(const char **text, size_t *size) {
  for (size_t n; *size > 0 && (n = space_size(*text, *size)) > 0; *text += n) *size -= n;
  for (size_t n; *size > 0 && (n = space_before(*text, *size)) > 0;) *size -= n;
}

/* Parts between runs of white space; an empty one before leading and behind trailing white space counts. At least 1. */
static int64_t wikitext_words(const char *page, size_t bytes) {
  int64_t words = 1;
  bool inside = false; /* of a run of white space */
  for (size_t i = 0; i < bytes;) {
    size_t size = space_size(page + i, bytes - i);
    words += size > 0 && !inside;
    inside = size > 0;
    i += size > 0 ? size : 1;
  }
  return words;
}

typedef struct Buffer {
  char *text; /* [room], `size` of it in use */
  size_t size;
} Buffer;

/* Every `from` becomes `to`, which is not longer. */
static void replace(Buffer *buffer, const char *from, const char *to) {
  size_t length = strlen(from), shorter = strlen(to), written = 0;
  const char *at = buffer->text, *end = at + buffer->size;
  for (const char *found; (found = memmem(at, (size_t)(end - at), from, length)) != NULL; at = found + length) {
    memmove(buffer->text + written, at, (size_t)(found - at));
    written += (size_t)(found - at);
    memcpy(buffer->text + written, to, shorter);
    written += shorter;
  }
  memmove(buffer->text + written, at, (size_t)(end - at));
  buffer->size = written + (size_t)(end - at);
}

/* The harness's pattern for years, "/' [0-9]/" with its slashes, whose replacement is no digit but the text "[0-9]": kept as it is, and
 * five bytes longer for each time it stands in a text. */
static Status replace_slashes(Buffer *buffer) {
  Buffer out = {malloc(2 * buffer->size + 1), 0};
  if (out.text == NULL) return status_set(STATUS_NO_MEMORY, "no memory for a page of %zu bytes", buffer->size);
  for (size_t i = 0; i < buffer->size;) {
    const char *at = buffer->text + i;
    bool found = buffer->size - i >= 5 && memcmp(at, "/' ", 3) == 0 && isdigit((unsigned char)at[3]) && at[4] == '/';
    memcpy(out.text + out.size, found ? "/'[0-9]/" : at, found ? 8 : 1);
    out.size += found ? 8 : 1;
    i += found ? 5 : 1;
  }
  free(buffer->text);
  *buffer = out;
  return STATUS_OK;
}

/* White space inside of a pair of signs, next to them, goes. A sign that is not closed stays as it is. */
static void close_up(Buffer *buffer, char opening, char closing) {
  size_t written = 0, size = buffer->size;
  char *text = buffer->text;
  bool any = true; /* closing signs ahead: looked for in vain only once */
  for (size_t i = 0; i < size;) {
    const char *end = any && text[i] == opening ? memchr(text + i + 1, closing, size - i - 1) : NULL;
    if (end == NULL) {
      any = any && text[i] != opening;
      text[written++] = text[i++];
      continue;
    }
    const char *inner = text + i + 1;
    size_t length = (size_t)(end - inner), next = (size_t)(end - text) + 1;
    strip(&inner, &length);
    text[written++] = opening;
    memmove(text + written, inner, length);
    written += length;
    text[written++] = closing;
    i = next;
  }
  buffer->size = written;
}

/* The page without WikiText's spaces: " @-@ " becomes "-", " , " becomes ", ", "( a )" becomes "(a)"... *plain is malloc'd (caller frees),
 * with a NUL behind its *plain_bytes bytes. */
static Status wikitext_detokenise(const char *page, size_t bytes, char **plain, size_t *plain_bytes) {
  static const char *const before[][2] = {{" @-@ ", "-"}, {" @,@ ", ","}, {" @.@ ", "."}, {" : ", ": "}, {" ; ", "; "},
                                          {" . ", ". "},  {" ! ", "! "},  {" ? ", "? "},  {" , ", ", "}};
  static const char pairs[] = "()[]{}\"\"''";
  static const char *const behind[][2] = {{"= = = =", "===="}, {"= = =", "==="}, {"= =", "=="},  {" \xc2\xb0 ", "\xc2\xb0"},
                                          {" \n", "\n"},       {"\n ", "\n"},    {" N ", " 1 "}, {" 's", "'s"}};
  Buffer buffer = {malloc(bytes + 1), bytes};
  *plain = NULL;
  if (buffer.text == NULL) return status_set(STATUS_NO_MEMORY, "no memory for a page of %zu bytes", bytes);
  memcpy(buffer.text, page, bytes);
  replace(&buffer, "s '", "s'");
  Status status = replace_slashes(&buffer);
  if (status != STATUS_OK) free(buffer.text);
  TRY(status);
  for (size_t i = 0; i < sizeof before / sizeof *before; i++) replace(&buffer, before[i][0], before[i][1]);
  for (const char *pair = pairs; *pair; pair += 2) close_up(&buffer, pair[0], pair[1]);
  for (size_t i = 0; i < sizeof behind / sizeof *behind; i++) replace(&buffer, behind[i][0], behind[i][1]);
  buffer.text[buffer.size] = '\0';
  *plain = buffer.text;
  *plain_bytes = buffer.size;
  return STATUS_OK;
}

/* "= Title =", but neither "= = Section = =" nor what is deeper. */
static bool is_title(const char *line, size_t size) {
  strip(&line, &size);
  if (size < 2 || memcmp(line, "= ", 2) != 0 || memcmp(line + size - 2, " =", 2) != 0) return false;
  return !(size >= 3 && memcmp(line, "= =", 3) == 0) && !(size >= 3 && memcmp(line + size - 3, "= =", 3) == 0);
}

/* Calls `page` for each page of text [bytes]: a new one begins with a line "= Title =" of one sign each (not "= = Section = ="). What
 * stands before the first such line is a page if it is more than white space; the last page always is one. Lines end with LF, which the
 * last line of a page but the last of the text does not have. Ends with the first status that is not OK. */
static Status wikitext_pages(const char *text, size_t bytes, Status (*page)(void *context, const char *text, size_t bytes), void *context) {
  size_t begin = 0;
  for (size_t line = 0; line <= bytes;) {
    const char *end = memchr(text + line, '\n', bytes - line);
    size_t next = end ? (size_t)(end - text) + 1 : bytes + 1;
    if (line > 0 && is_title(text + line, next - 1 - line)) {
      const char *inner = text + begin;
      size_t size = line - 1 - begin;
      strip(&inner, &size);
      if (size > 0) TRY(page(context, text + begin, line - 1 - begin));
      begin = line;
    }
    line = next;
  }
  return page(context, text + begin, bytes - begin);
}

/* ---- Documents by themselves ---- */

/* The ids of document d are ids[first[d] .. first[d + 1]), of which the first stands
 * for the beginning; its window k predicts the tokens (k context, (k + 1) context] of them. */

typedef struct Reading {
  RollingText *rolling;
  Tokenizer *tokenizer;
  int32_t begin;
  size_t room; /* of first */
} Reading;

static Status add_document(Reading *reading) {
  RollingText *rolling = reading->rolling;
  TRY(ARRAY_RESERVE(rolling->first, rolling->documents, 2, reading->room, "a list of documents"));
  rolling->first[rolling->documents++] = (int64_t)rolling->ids.count;
  return token_list_add(&rolling->ids, reading->begin);
}

static Status add_page(void *context, const char *page, size_t bytes) {
  Reading *reading = context;
  RollingText *rolling = reading->rolling;
  char *plain;
  size_t plain_bytes = 0;
  TRY(add_document(reading));
  TRY(wikitext_detokenise(page, bytes, &plain, &plain_bytes));
  size_t before = rolling->ids.count;
  Status status = tokenizer_encode(reading->tokenizer, plain, plain_bytes, false, &rolling->ids);
  free(plain);
  rolling->tokens += (int64_t)(rolling->ids.count - before);
  rolling->words += wikitext_words(page, bytes);
  rolling->bytes += (int64_t)bytes;
  return status;
}

static Status read_documents(Reading *reading, TextSource *source) {
  TextBlock block;
  bool more = true;
  text_source_start(source, true);
  for (;;) {
    TRY(text_source_next(source, &block, &more));
    if (!more) break;
    TRY(wikitext_pages(block.text, block.bytes, add_page, reading));
  }
  if (reading->rolling->tokens == 0) return status_set(STATUS_BAD_VALUE, "%s: no token to predict", text_source_describe(source));
  reading->rolling->first[reading->rolling->documents] = (int64_t)reading->rolling->ids.count;
  return STATUS_OK;
}

/* Tokens that document d predicts. */
static int64_t length_of(const RollingText *rolling, int64_t d) { return rolling->first[d + 1] - rolling->first[d] - 1; }

static Status count_windows(RollingText *rolling) {
  rolling->windows = malloc((size_t)(rolling->documents + 1) * sizeof *rolling->windows);
  if (rolling->windows == NULL) return status_set(STATUS_NO_MEMORY, "no memory for %lld documents", (long long)rolling->documents);
  rolling->windows[0] = 0;
  for (int64_t d = 0; d < rolling->documents; d++)
    rolling->windows[d + 1] = rolling->windows[d] + (length_of(rolling, d) + rolling->context - 1) / rolling->context;
  return STATUS_OK;
}

Status rolling_text_read(RollingText *rolling, TextSource *source, Tokenizer *tokenizer, int64_t context) {
  Reading reading = {.rolling = rolling, .tokenizer = tokenizer, .begin = tokenizer_begin(tokenizer)};
  *rolling = (RollingText){.context = context};
  if (reading.begin < 0) reading.begin = tokenizer_end(tokenizer);
  if (reading.begin < 0) return status_set(STATUS_BAD_VALUE, "the tokenizer has no token for the beginning or end of a text to start from");
  Status status = read_documents(&reading, source);
  if (status == STATUS_OK) status = count_windows(rolling);
  if (status != STATUS_OK) rolling_text_release(rolling);
  return status;
}

void rolling_text_release(RollingText *rolling) {
  token_list_release(&rolling->ids);
  free(rolling->first);
  free(rolling->windows);
  *rolling = (RollingText){0};
}

static int64_t rolling_text_windows(const RollingText *rolling) { return rolling->windows[rolling->documents]; }

/* The document that window `index` belongs to. */
static int64_t document_of(const RollingText *rolling, int64_t index) {
  int64_t low = 0, high = rolling->documents; /* windows[low] <= index < windows[high] */
  while (high - low > 1) {
    int64_t middle = low + (high - low) / 2;
    if (rolling->windows[middle] <= index)
      low = middle;
    else
      high = middle;
  }
  return low;
}

/* As text_windows_rows. */
static int64_t rolling_text_rows(const RollingText *rolling, int64_t index) {
  const int64_t length = length_of(rolling, document_of(rolling, index));
  return length < rolling->context ? length : rolling->context;
}

/* As text_windows_fill. */
static void rolling_text_fill(const RollingText *rolling, int64_t index, int64_t width, int32_t *ids, int32_t *labels) {
  int64_t d = document_of(rolling, index), context = rolling->context, length = length_of(rolling, d);
  const int32_t *document = rolling->ids.ids + rolling->first[d];
  int64_t from = (index - rolling->windows[d]) * context, to = length < from + context ? length : from + context;
  int64_t begin = from == 0 ? 0 : to - context, rows = to - begin;
  for (int64_t i = 0; i < width; i++) {
    bool counted = i < rows && begin + i >= from;
    ids[i] = i < rows ? document[begin + i] : 0;
    labels[i] = counted ? document[begin + i + 1] : -1;
  }
}

/* ---- Windows ---- */

/* Which labels a window counts. Invariant: window i counts the labels at positions (end of window i - 1, end of window i]. */

Status text_windows_init(TextWindows *windows, const TokenCache *cache, int64_t context, int64_t stride) {
  int64_t tokens = token_cache_facts(cache)->tokens;
  if (context < 1) return status_set(STATUS_BAD_VALUE, "a context of %lld tokens; at least 1 is needed", (long long)context);
  if (stride < 1 || stride > context)
    return status_set(STATUS_BAD_VALUE, "a stride of %lld; 1 to the context, %lld, is possible", (long long)stride, (long long)context);
  if (tokens < 2) return status_set(STATUS_BAD_VALUE, "a text of %lld token; a perplexity needs two", (long long)tokens);
  int64_t labels = tokens - 1, beyond = labels > context ? labels - context : 0;
  *windows = (TextWindows){.cache = cache, .context = context, .stride = stride, .count = 1 + (beyond + stride - 1) / stride};
  return STATUS_OK;
}

void text_windows_roll(TextWindows *windows, const RollingText *rolling) {
  *windows =
      (TextWindows){.rolling = rolling, .context = rolling->context, .stride = rolling->context, .count = rolling_text_windows(rolling)};
}

/* In all windows together: tokens - 1, or those of the documents. */
static int64_t text_windows_labels(const TextWindows *windows) {
  return windows->rolling ? windows->rolling->tokens : token_cache_facts(windows->cache)->tokens - 1;
}

int64_t text_windows_rows(const TextWindows *windows, int64_t index) {
  if (windows->rolling) return rolling_text_rows(windows->rolling, index);
  const int64_t left = text_windows_labels(windows) - index * windows->stride;
  return left < windows->context ? left : windows->context;
}

int64_t text_windows_alike(const TextWindows *windows, int64_t index, int64_t max) {
  const int64_t rows = text_windows_rows(windows, index);
  int64_t count = 1;
  while (count < max && index + count < windows->count && text_windows_rows(windows, index + count) == rows) count++;
  return count;
}

void text_windows_fill(const TextWindows *windows, int64_t index, int64_t width, int32_t *ids, int32_t *labels) {
  if (windows->rolling) {
    rolling_text_fill(windows->rolling, index, width, ids, labels);
    return;
  }
  const int64_t begin = index * windows->stride, rows = text_windows_rows(windows, index);
  const int64_t counted_from = index == 0 ? 0 : windows->context - windows->stride;
  token_cache_copy(windows->cache, begin, rows, ids);
  token_cache_copy(windows->cache, begin + 1, rows, labels);
  for (int64_t i = rows; i < width; i++) ids[i] = 0;
  for (int64_t i = 0; i < width; i++) {
    if (i < counted_from || i >= rows) labels[i] = -1;
  }
}

/* ---- Conventions of perplexity ---- */

static int64_t words_of(const TextWindows *windows) { return token_cache_facts(windows->cache)->words; }
static int64_t words_and_lines_of(const TextWindows *windows) { return words_of(windows) + token_cache_facts(windows->cache)->lines; }
static int64_t page_words_of(const TextWindows *windows) { return windows->rolling->words; }

typedef struct Convention {
  const char *name, *counts;
  int64_t (*whole)(const TextWindows *windows); /* counted in the whole text; NULL: in what was evaluated */
} Convention;

static const Convention conventions[] = {
    [PERPLEXITY_TOKEN] = {"token", "predicted tokens (all but the first, those between documents included)", NULL},
    [PERPLEXITY_WORD] = {"word", "words of the text as it stands (divided by white space)", words_of},
    [PERPLEXITY_BYTE] = {"byte", "bytes of text behind the predicted tokens", NULL},
    [PERPLEXITY_GPT2_PAPER] = {"gpt2-paper", "words and line ends of the text as it stands (no detokenisation)", words_and_lines_of},
    [PERPLEXITY_LM_EVAL] = {"lm-eval", "words of the pages before they were detokenised, page by page", page_words_of},
};

const char *perplexity_name(PerplexityUnit unit) { return conventions[unit].name; }
const char *perplexity_counts(PerplexityUnit unit) { return conventions[unit].counts; }
/* counts the whole text, whatever was evaluated */
static bool perplexity_whole(PerplexityUnit unit) { return conventions[unit].whole != NULL; }

static int64_t units_of(PerplexityUnit unit, const TextWindows *windows, int64_t tokens, int64_t bytes) {
  if (conventions[unit].whole != NULL) return conventions[unit].whole(windows);
  return unit == PERPLEXITY_BYTE ? bytes : tokens;
}

static double value_of(double nats, int64_t units) { return units > 0 ? exp(nats / (double)units) : INFINITY; }

Perplexity perplexity_of(PerplexityUnit unit, const TextWindows *windows, double nats, int64_t tokens, int64_t bytes) {
  Perplexity p = {.unit = unit,
                  .nats = nats,
                  .units = units_of(unit, windows, tokens, bytes),
                  .page_bytes = windows->rolling != NULL ? windows->rolling->bytes : 0};
  p.value = value_of(nats, p.units);
  if (p.page_bytes > 0) {
    p.byte_value = value_of(nats, p.page_bytes);
    p.bits_per_byte = nats / log(2) / (double)p.page_bytes;
  }
  return p;
}

Status perplexity_check_whole(PerplexityUnit unit, const TextWindows *windows, int64_t samples, const char *option) {
  if (!perplexity_whole(unit) || samples >= windows->count) return STATUS_OK;
  return status_set(STATUS_BAD_USAGE, "--perplexity %s needs the whole text, of which %s takes %lld of %lld windows",
                    conventions[unit].name, option, (long long)samples, (long long)windows->count);
}
