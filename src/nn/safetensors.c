/* Reading safetensors: the header is checked once, whole, and after that every SafeTensor may be trusted except its numbers, whose digest
 * is compared when they are read. Leaves out the conversion of numbers (safetensors_convert.c) and writing (safetensors_write.c). Invariant
 * of an open file: names are unique and sorted; bytes = count x size of the dtype; the tensors' bytes lie in the data part, do not overlap
 * and fill it without a hole, so that no byte of the file is unaccounted for.
 *
 * The header is read twice: for its syntax and the memory that its content takes, then for the content. A tree of it (jansson's) takes up
 * to 45 bytes for each byte of a hostile header; this takes less than 3. */
#include "nn/safetensors.h"
#include "autograd/lowbit.h"
#include "autograd/real.h"
#include "base/files.h"
#include "base/status.h"
#include "base/utf8.h"
#include "nn/safetensors_internal.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* ---- Scanning the header ---- */

/* JSON text read from front to back, without a tree. Strict as RFC 8259 is: whole UTF-8, no NUL in a string, nesting to a depth of 64.
 * Positions only move over what was read whole. Invariant: no byte at or after `end` is read. */

typedef struct JsonScan {
  const char *at, *end; /* what is still to be read */
} JsonScan;

enum { DEPTH = 64 };

static void pass_space(JsonScan *scan) {
  while (scan->at < scan->end && (*scan->at == ' ' || *scan->at == '\n' || *scan->at == '\r' || *scan->at == '\t')) scan->at++;
}

static bool next_is(const JsonScan *scan, char character) { return scan->at < scan->end && *scan->at == character; }

/* Passes over white space, then over this character if it is the next one. */
static bool json_scan_take(JsonScan *scan, char character) {
  pass_space(scan);
  if (!next_is(scan, character)) return false;
  scan->at++;
  return true;
}

/* ---- strings */

typedef struct Output {
  char *out;
  size_t room, length;
} Output;

static void put(Output *output, const void *bytes, size_t count) {
  size_t left = output->length < output->room ? output->room - output->length : 0;
  if (output->out && left > 0) memcpy(output->out + output->length, bytes, count < left ? count : left);
  output->length += count;
}

static bool read_unit(JsonScan *scan, uint32_t *unit) {
  if (scan->end - scan->at < 4) return false;
  *unit = 0;
  for (int i = 0; i < 4; i++) {
    char c = *scan->at++;
    uint32_t digit = c >= '0' && c <= '9'   ? (uint32_t)(c - '0')
                     : c >= 'a' && c <= 'f' ? (uint32_t)(c - 'a') + 10
                     : c >= 'A' && c <= 'F' ? (uint32_t)(c - 'A') + 10
                                            : 16;
    if (digit == 16) return false;
    *unit = *unit << 4 | digit;
  }
  return true;
}

/* After "\u": the character as UTF-8. */
static bool read_point(JsonScan *scan, Output *output) {
  static const uint8_t lead[] = {0, 0, 0xc0, 0xe0, 0xf0};
  uint32_t point, low;
  if (!read_unit(scan, &point) || point == 0 || (point >= 0xdc00 && point < 0xe000)) return false;
  if (point >= 0xd800 && point < 0xdc00) {
    if (scan->end - scan->at < 2 || scan->at[0] != '\\' || scan->at[1] != 'u') return false;
    scan->at += 2;
    if (!read_unit(scan, &low) || low < 0xdc00 || low >= 0xe000) return false;
    point = 0x10000 + ((point - 0xd800) << 10) + (low - 0xdc00);
  }
  uint8_t bytes[4];
  const size_t count = point < 0x80 ? 1 : point < 0x800 ? 2 : point < 0x10000 ? 3 : 4;
  for (size_t i = count - 1; i > 0; i--, point >>= 6) bytes[i] = (uint8_t)(0x80 | (point & 0x3f));
  bytes[0] = (uint8_t)(lead[count] | point);
  put(output, bytes, count);
  return true;
}

static bool read_string(JsonScan *scan, Output *output) {
  static const char escapes[] = "\"\\/bfnrt", meanings[] = "\"\\/\b\f\n\r\t";
  if (!json_scan_take(scan, '"')) return false;
  while (scan->at < scan->end && *scan->at != '"') {
    if (*scan->at == '\\') {
      if (++scan->at == scan->end) return false;
      const char escape = *scan->at++, *found = escape ? strchr(escapes, escape) : NULL;
      if (found) put(output, &meanings[found - escapes], 1);
      if (!found && !(escape == 'u' && read_point(scan, output))) return false;
      continue;
    }
    size_t bytes = (uint8_t)*scan->at < ' ' ? 0 : utf8_size(scan->at, (size_t)(scan->end - scan->at));
    if (bytes == 0) return false;
    put(output, scan->at, bytes);
    scan->at += bytes;
  }
  return json_scan_take(scan, '"');
}

/* A string: up to `room` - 1 of its decoded bytes and a NUL go into out (NULL: nowhere); *length: how many it has in all. False: there is
 * no string here, or a malformed one. */
static bool json_scan_string(JsonScan *scan, char *out, size_t room, size_t *length) {
  JsonScan ahead = *scan;
  Output output = {out, room > 0 ? room - 1 : 0, 0};
  if (!read_string(&ahead, &output)) return false;
  if (out && room > 0) out[output.length < output.room ? output.length : output.room] = 0;
  *length = output.length;
  *scan = ahead;
  return true;
}

/* ---- numbers */

static size_t pass_digits(JsonScan *scan) {
  const char *from = scan->at;
  while (scan->at < scan->end && *scan->at >= '0' && *scan->at <= '9') scan->at++;
  return (size_t)(scan->at - from);
}

/* *whole: it has neither a point nor an exponent. */
static bool pass_number(JsonScan *scan, bool *whole) {
  json_scan_take(scan, '-');
  bool zero = next_is(scan, '0');
  size_t digits = pass_digits(scan);
  if (digits == 0 || (zero && digits > 1)) return false;
  *whole = true;
  if (next_is(scan, '.')) {
    scan->at++;
    *whole = false;
    if (pass_digits(scan) == 0) return false;
  }
  if (next_is(scan, 'e') || next_is(scan, 'E')) {
    scan->at++;
    *whole = false;
    if (next_is(scan, '+') || next_is(scan, '-')) scan->at++;
    if (pass_digits(scan) == 0) return false;
  }
  return true;
}

/* A whole number that an int64_t holds. False: something else is here. */
static bool json_scan_integer(JsonScan *scan, int64_t *number) {
  JsonScan ahead = *scan;
  bool whole, negative, fits = true;
  pass_space(&ahead);
  const char *from = ahead.at;
  if (!pass_number(&ahead, &whole) || !whole) return false;
  negative = *from == '-';
  *number = 0;
  for (const char *at = from + negative; at < ahead.at; at++) {
    int digit = negative ? '0' - *at : *at - '0';
    fits = fits && !__builtin_mul_overflow(*number, 10, number) && !__builtin_add_overflow(*number, digit, number);
  }
  if (fits) *scan = ahead;
  return fits;
}

/* ---- anything */

static bool pass_word(JsonScan *scan, const char *word) {
  size_t length = strlen(word);
  if ((size_t)(scan->end - scan->at) < length || memcmp(scan->at, word, length) != 0) return false;
  scan->at += length;
  return true;
}

static bool skip(JsonScan *scan, int depth);

/* Members up to `close`, of an object with names in front of them. */
static bool skip_members(JsonScan *scan, char close, int depth) {
  size_t length;
  if (depth == DEPTH) return false;
  if (json_scan_take(scan, close)) return true;
  do {
    if (close == '}' && !(json_scan_string(scan, NULL, 0, &length) && json_scan_take(scan, ':'))) return false;
    if (!skip(scan, depth + 1)) return false;
  } while (json_scan_take(scan, ','));
  return json_scan_take(scan, close);
}

static bool skip(JsonScan *scan, int depth) {
  size_t length;
  bool whole;
  if (json_scan_take(scan, '{')) return skip_members(scan, '}', depth);
  if (json_scan_take(scan, '[')) return skip_members(scan, ']', depth);
  if (next_is(scan, '"')) return json_scan_string(scan, NULL, 0, &length);
  if (pass_word(scan, "true") || pass_word(scan, "false") || pass_word(scan, "null")) return true;
  return pass_number(scan, &whole);
}

/* Any value. False: malformed. */
static bool json_scan_skip(JsonScan *scan) {
  JsonScan ahead = *scan;
  if (!skip(&ahead, 0)) return false;
  *scan = ahead;
  return true;
}

/* ---- Files ---- */

enum { LENGTH_BYTES = 8, KEY = 16, DTYPE = 24, PIECE = 1 << 17 };
static const char METADATA[] = "__metadata__";

typedef struct DataPart {
  const uint8_t *begin;
  uint64_t size;
  const char *origin;
} DataPart;

/* How much a header holds, and where its content goes. */
typedef struct HeaderParser {
  JsonScan scan;
  const DataPart *part;
  SafeFile *file;
  size_t tensors, pairs, text; /* of the first pass: text with a NUL after each string that is kept */
  size_t used;                 /* of the text, in the second pass */
} HeaderParser;

/* ---- the first pass: syntax, and how much there is */

/* An object of strings, or anything else: the second pass says what is wrong with it. */
static bool count_metadata(HeaderParser *parser) {
  size_t length;
  JsonScan *scan = &parser->scan;
  if (!json_scan_take(scan, '{')) return json_scan_skip(scan);
  if (json_scan_take(scan, '}')) return true;
  do {
    if (!json_scan_string(scan, NULL, 0, &length) || !json_scan_take(scan, ':')) return false;
    parser->pairs++;
    parser->text += length + 1;
    if (json_scan_string(scan, NULL, 0, &length))
      parser->text += length + 1;
    else if (!json_scan_skip(scan))
      return false;
  } while (json_scan_take(scan, ','));
  return json_scan_take(scan, '}');
}

static bool count_all(HeaderParser *parser) {
  JsonScan *scan = &parser->scan;
  if (!json_scan_take(scan, '{')) return false;
  if (!json_scan_take(scan, '}')) {
    do {
      char name[KEY];
      size_t length;
      if (!json_scan_string(scan, name, sizeof name, &length) || !json_scan_take(scan, ':')) return false;
      const bool metadata = length < sizeof name && strcmp(name, METADATA) == 0;
      if (!metadata) parser->tensors++, parser->text += length + 1;
      if (!(metadata ? count_metadata(parser) : json_scan_skip(scan))) return false;
    } while (json_scan_take(scan, ','));
    if (!json_scan_take(scan, '}')) return false;
  }
  pass_space(scan);
  return scan->at == scan->end;
}

/* ---- the second pass: one entry. A value of the wrong type ends it; otherwise the syntax is known to be right. */

static char *keep_string(HeaderParser *parser) {
  size_t length;
  char *place = parser->file->text + parser->used;
  if (!json_scan_string(&parser->scan, place, parser->text - parser->used, &length)) return NULL;
  parser->used += length + 1;
  return place;
}

static Status out_of_range(const SafeTensor *tensor, const char *origin) {
  return status_set(STATUS_BAD_FILE, "%s: the shape of tensor %.100s holds a number that is out of range", origin, tensor->name);
}

static Status read_shape(JsonScan *scan, SafeTensor *tensor, const char *origin) {
  bool list = json_scan_take(scan, '[');
  tensor->count = 1;
  tensor->dims = 0;
  if (list && json_scan_take(scan, ']')) return STATUS_OK;
  do {
    int64_t value;
    if (!list || tensor->dims == SAFE_DIMS)
      return status_set(STATUS_BAD_FILE, "%s: the shape of tensor %.100s must be a list of at most %d numbers", origin, tensor->name,
                        (int)SAFE_DIMS);
    if (!json_scan_integer(scan, &value) || value < 0 || __builtin_mul_overflow(tensor->count, value, &tensor->count))
      return out_of_range(tensor, origin);
    tensor->shape[tensor->dims++] = value;
  } while (json_scan_take(scan, ','));
  return json_scan_take(scan, ']') ? STATUS_OK : out_of_range(tensor, origin);
}

typedef struct Entry {
  char dtype[DTYPE];
  int64_t begin, end;
  bool typed, shaped, placed;
} Entry;

static Status read_field(HeaderParser *parser, Entry *entry, SafeTensor *tensor) {
  JsonScan *scan = &parser->scan;
  const char *origin = parser->part->origin;
  char key[KEY];
  size_t length;
  json_scan_string(scan, key, sizeof key, &length);
  json_scan_take(scan, ':');
  bool *seen = strcmp(key, "dtype") == 0          ? &entry->typed
               : strcmp(key, "shape") == 0        ? &entry->shaped
               : strcmp(key, "data_offsets") == 0 ? &entry->placed
                                                  : NULL;
  if (!seen) return json_scan_skip(scan) ? STATUS_OK : STATUS_BAD_FILE;
  if (*seen) return status_set(STATUS_BAD_FILE, "%s: tensor %.100s has a duplicate %s", origin, tensor->name, key);
  *seen = true;
  if (seen == &entry->shaped) return read_shape(scan, tensor, origin);
  if (seen == &entry->typed) {
    if (json_scan_string(scan, entry->dtype, sizeof entry->dtype, &length)) return STATUS_OK;
    return status_set(STATUS_BAD_FILE, "%s: tensor %.100s has no dtype", origin, tensor->name);
  }
  if (json_scan_take(scan, '[') && json_scan_integer(scan, &entry->begin) && json_scan_take(scan, ',') &&
      json_scan_integer(scan, &entry->end) && json_scan_take(scan, ']'))
    return STATUS_OK;
  return status_set(STATUS_BAD_FILE, "%s: data_offsets of tensor %.100s must be two whole numbers", origin, tensor->name);
}

static Status place_tensor(SafeTensor *tensor, const Entry *entry, const DataPart *part) {
  if (entry->begin < 0 || entry->end < entry->begin || (uint64_t)entry->end > part->size)
    return status_set(STATUS_BAD_FILE,
                      "%s: tensor %.100s claims bytes %lld to %lld of %llu; is the file truncated? Copy or download it again", part->origin,
                      tensor->name, (long long)entry->begin, (long long)entry->end, (unsigned long long)part->size);
  tensor->data = part->begin + entry->begin;
  tensor->bytes = (size_t)(entry->end - entry->begin);
  int64_t needed;
  const bool huge = __builtin_mul_overflow(tensor->count, (int64_t)safe_dtype_bytes(tensor->dtype), &needed);
  if (!huge && needed == entry->end - entry->begin) return STATUS_OK;
  return status_set(STATUS_BAD_FILE, "%s: tensor %.100s has %lld bytes, but its shape and dtype need %s%lld", part->origin, tensor->name,
                    (long long)(entry->end - entry->begin), huge ? "more than " : "", huge ? (long long)INT64_MAX : (long long)needed);
}

static Status read_tensor(HeaderParser *parser, SafeTensor *tensor) {
  const char *origin = parser->part->origin;
  JsonScan *scan = &parser->scan;
  Entry entry = {.dtype = ""};
  if (json_scan_take(scan, '{') && !json_scan_take(scan, '}')) {
    do TRY(read_field(parser, &entry, tensor));
    while (json_scan_take(scan, ','));
    json_scan_take(scan, '}');
  }
  if (!entry.typed) return status_set(STATUS_BAD_FILE, "%s: tensor %.100s has no dtype", origin, tensor->name);
  int dtype = 0;
  while (dtype < SAFE_DTYPES && strcmp(safe_dtype_name((SafeDtype)dtype), entry.dtype) != 0) dtype++;
  if (dtype == SAFE_DTYPES)
    return status_set(
        STATUS_BAD_FILE,
        "%s: dtype %.20s of tensor %.100s is not known; known are F32, F16, BF16, F64, I32, I64, U8, BOOL, I8, I16, U16, U32, U64, "
        "C64, F8_E4M3, F8_E5M2, F8_E8M0",
        origin, entry.dtype, tensor->name);
  tensor->dtype = (SafeDtype)dtype;
  if (!entry.shaped || !entry.placed)
    return status_set(STATUS_BAD_FILE, "%s: tensor %.100s has no %s", origin, tensor->name, entry.shaped ? "data_offsets" : "shape");
  return place_tensor(tensor, &entry, parser->part);
}

static Status read_metadata(HeaderParser *parser) {
  SafeFile *file = parser->file;
  JsonScan *scan = &parser->scan;
  if (!json_scan_take(scan, '{')) return status_set(STATUS_BAD_FILE, "%s: %s must be an object of strings", parser->part->origin, METADATA);
  if (json_scan_take(scan, '}')) return STATUS_OK;
  do {
    const char *key = keep_string(parser);
    file->metadata[file->metadata_count++] = (uint32_t)(key - file->text);
    json_scan_take(scan, ':');
    if (!keep_string(parser))
      return status_set(STATUS_BAD_FILE, "%s: %s entry %.100s must be a string", parser->part->origin, METADATA, key);
  } while (json_scan_take(scan, ','));
  json_scan_take(scan, '}');
  return STATUS_OK;
}

static Status read_all(HeaderParser *parser) {
  SafeFile *file = parser->file;
  bool metadata = false;
  json_scan_take(&parser->scan, '{');
  if (json_scan_take(&parser->scan, '}')) return STATUS_OK;
  do {
    char name[KEY];
    size_t length = 0;
    JsonScan before = parser->scan;
    json_scan_string(&parser->scan, name, sizeof name, &length);
    if (length < sizeof name && strcmp(name, METADATA) == 0) {
      if (metadata) return status_set(STATUS_BAD_FILE, "%s: a duplicate %s", parser->part->origin, METADATA);
      metadata = true;
      json_scan_take(&parser->scan, ':');
      TRY(read_metadata(parser));
      continue;
    }
    parser->scan = before;
    SafeTensor *tensor = &file->list[file->count++];
    tensor->name = keep_string(parser);
    json_scan_take(&parser->scan, ':');
    TRY(read_tensor(parser, tensor));
  } while (json_scan_take(&parser->scan, ','));
  return STATUS_OK;
}

/* ---- all entries together */

static int by_name(const void *a, const void *b) { return strcmp(((const SafeTensor *)a)->name, ((const SafeTensor *)b)->name); }

static int by_place(const void *a, const void *b, void *list) {
  const SafeTensor *x = (SafeTensor *)list + *(const uint32_t *)a, *y = (SafeTensor *)list + *(const uint32_t *)b;
  if (x->data != y->data) return x->data < y->data ? -1 : 1;
  if (x->bytes != y->bytes) return x->bytes < y->bytes ? -1 : 1; /* empty tensors first */
  return 0;
}

/* The tensors' bytes follow one another and fill the data part. */
static Status check_places(const SafeFile *file, const DataPart *part) {
  uint32_t *ordered = malloc((file->count + 1) * sizeof *ordered);
  if (!ordered) return status_no_memory(part->origin, "its header");
  for (size_t i = 0; i < file->count; i++) ordered[i] = (uint32_t)i;
  qsort_r(ordered, file->count, sizeof *ordered, by_place, file->list);
  const uint8_t *reached = part->begin, *end = part->begin + part->size;
  const char *before = "the header";
  Status status = STATUS_OK;
  for (size_t i = 0; i < file->count && status == STATUS_OK; i++) {
    const SafeTensor *tensor = &file->list[ordered[i]];
    if (tensor->data != reached)
      status = status_set(STATUS_BAD_FILE, "%s: the data of tensor %.100s %s %.100s", part->origin, tensor->name,
                          tensor->data < reached ? "overlaps that of" : "leaves a hole after", before);
    reached += tensor->bytes;
    before = tensor->name;
  }
  if (status == STATUS_OK && reached != end)
    status =
        status_set(STATUS_BAD_FILE, "%s: %llu bytes at the end belong to no tensor", part->origin, (unsigned long long)(end - reached));
  free(ordered);
  return status;
}

static int by_key(const void *a, const void *b, void *text) {
  return strcmp((char *)text + *(const uint32_t *)a, (char *)text + *(const uint32_t *)b);
}

static Status sort_names(SafeFile *file, const char *origin) {
  qsort(file->list, file->count, sizeof *file->list, by_name);
  for (size_t i = 1; i < file->count; i++)
    if (by_name(&file->list[i - 1], &file->list[i]) == 0)
      return status_set(STATUS_BAD_FILE, "%s: tensor %.100s has a duplicate", origin, file->list[i].name);
  qsort_r(file->metadata, file->metadata_count, sizeof *file->metadata, by_key, file->text);
  for (size_t i = 1; i < file->metadata_count; i++)
    if (by_key(&file->metadata[i - 1], &file->metadata[i], file->text) == 0)
      return status_set(STATUS_BAD_FILE, "%s: a duplicate %s entry %.100s", origin, METADATA, file->text + file->metadata[i]);
  return STATUS_OK;
}

/* ---- digests */

static Status digest_header(const SafeFile *file, uint64_t *number, const char *origin) {
  SafeDigest *digest = safe_digest_new();
  if (!digest) return status_no_memory(origin, "its header");
  safe_digest_begin(digest);
  for (size_t i = 0; i < file->count; i++) {
    const SafeTensor *tensor = &file->list[i];
    safe_digest_add_tensor(digest, tensor->name, tensor->dtype, tensor->dims, tensor->shape, tensor->digest);
  }
  for (size_t i = 0; i < file->metadata_count; i++) {
    const char *value, *key = safe_metadata(file, i, &value);
    safe_digest_add_pair(digest, key, value);
  }
  *number = safe_digest_end(digest);
  safe_digest_free(digest);
  return STATUS_OK;
}

/* Gives each tensor its digest; in *own that of the header, in *given how many there are in all. */
static bool take_digests(const SafeFile *file, uint64_t *own, size_t *given) {
  bool right = true;
  *given = 0;
  for (size_t i = 0; i < file->metadata_count; i++) {
    const char *value, *key = safe_metadata(file, i, &value);
    if (!safe_digest_is_key(key)) continue;
    ++*given;
    SafeTensor wanted = {.name = (char *)(uintptr_t)key + strlen(SAFE_DIGEST_PREFIX)}, *tensor = NULL;
    bool whole = strcmp(key, SAFE_DIGEST_KEY) == 0;
    if (!whole && file->count > 0) tensor = bsearch(&wanted, file->list, file->count, sizeof *file->list, by_name);
    if (tensor) tensor->sealed = true;
    const bool digits = strlen(value) == SAFE_DIGEST_TEXT - 1 && strspn(value, "0123456789abcdef") == SAFE_DIGEST_TEXT - 1;
    right = right && (whole || tensor) && digits;
    if (right) *(whole ? own : &tensor->digest) = strtoull(value, NULL, 16);
  }
  return right && *given == file->count + 1;
}

/* ---- the file */

static Status parse_header(SafeFile *file, const uint8_t *data, uint64_t length, const DataPart *part) {
  const JsonScan whole = {(const char *)data, (const char *)data + length};
  HeaderParser parser = {.scan = whole, .part = part, .file = file};
  if (!count_all(&parser)) return status_set(STATUS_BAD_FILE, "%s: its header is no JSON object", part->origin);
  file->list = calloc(parser.tensors + 1, sizeof *file->list);
  file->metadata = malloc((parser.pairs + 1) * sizeof *file->metadata);
  file->text = malloc(parser.text + 1);
  if (!file->list || !file->metadata || !file->text) return status_no_memory(part->origin, "its header");
  parser.scan = whole;
  TRY(read_all(&parser));
  TRY(check_places(file, part));
  TRY(sort_names(file, part->origin));
  uint64_t own = 0, found = 0;
  size_t given;
  const bool complete = take_digests(file, &own, &given);
  file->sealed = given > 0;
  if (given == 0) return STATUS_OK;
  if (complete) TRY(digest_header(file, &found, part->origin));
  if (complete && own == found) return STATUS_OK;
  return status_set(STATUS_BAD_FILE,
                    "%s: its header is damaged: names, shapes or metadata do not agree with their digest; fetch or make the file again",
                    part->origin);
}

static Status parse(SafeFile *file, const uint8_t *data, size_t size, const char *origin) {
  if (size < LENGTH_BYTES + 2) return status_set(STATUS_BAD_FILE, "%s: %zu bytes are too few for a safetensors file", origin, size);
  uint64_t length;
  memcpy(&length, data, sizeof length);
  if (length > size - LENGTH_BYTES)
    return status_set(STATUS_BAD_FILE, "%s: claims a header of %llu bytes in a file of %zu; is it a safetensors file, and complete?",
                      origin, (unsigned long long)length, size);
  if (length > SAFE_HEADER_MAX)
    return status_set(STATUS_BAD_FILE, "%s: has a header of %llu bytes; at most %llu are accepted", origin, (unsigned long long)length,
                      (unsigned long long)SAFE_HEADER_MAX);
  if (length == 0 || data[LENGTH_BYTES] != '{') return status_set(STATUS_BAD_FILE, "%s: has no safetensors header", origin);
  DataPart part = {data + LENGTH_BYTES + length, size - LENGTH_BYTES - length, origin};
  return parse_header(file, data + LENGTH_BYTES, length, &part);
}

/* ---- the public side */

/* On memory that the caller keeps. */
static Status parse_memory(SafeFile *file, const uint8_t *data, size_t size, const char *origin) {
  memset(file, 0, sizeof *file);
  file->path = strdup(origin);
  Status status = file->path ? parse(file, data, size, origin) : status_no_memory(origin, "its name");
  if (status != STATUS_OK) safetensors_close(file);
  return status;
}

Status safetensors_open(SafeFile *file, const char *path) {
  memset(file, 0, sizeof *file);
  FileMap map;
  TRY(files_map(&map, path));
  Status status = parse_memory(file, map.data, map.size, path);
  if (status == STATUS_OK)
    file->map = map;
  else
    files_unmap(&map);
  return status;
}

void safetensors_close(SafeFile *file) {
  free(file->list);
  free(file->metadata);
  free(file->text);
  free(file->path);
  if (file->map.data) files_unmap(&file->map);
  if (file->block) munmap(file->block, file->block_bytes);
  memset(file, 0, sizeof *file);
}

const SafeTensor *safetensors_find(const SafeFile *file, const char *name) {
  if (file->count == 0) return NULL;
  SafeTensor key = {.name = (char *)(uintptr_t)name};
  return bsearch(&key, file->list, file->count, sizeof *file->list, by_name);
}

/* ---- numbers */

Status safetensors_walk(const SafeTensor *tensor, SafePiece *piece, void *context) {
  SafeDigest *digest = tensor->sealed ? safe_digest_new() : NULL;
  if (tensor->sealed && !digest) return status_no_memory(tensor->name, "its header");
  if (digest) safe_digest_begin(digest);
  for (size_t at = 0; at < tensor->bytes; at += PIECE) {
    size_t bytes = tensor->bytes - at < PIECE ? tensor->bytes - at : PIECE;
    if (digest) safe_digest_add(digest, tensor->data + at, bytes);
    if (piece) piece(context, tensor->data + at, bytes);
  }
  bool same = !digest || safe_digest_end(digest) == tensor->digest;
  safe_digest_free(digest);
  if (same) return STATUS_OK;
  return status_set(STATUS_BAD_FILE, "tensor %.100s is damaged: its bytes do not agree with their digest; fetch or make the file again",
                    tensor->name);
}

Status safetensors_verify(const SafeTensor *tensor) { return safetensors_walk(tensor, NULL, NULL); }

typedef struct Conversion {
  SafeDtype from, to;
  uint8_t *out;
  int64_t done, bad; /* numbers; the first that does not fit, or -1 */
} Conversion;

static void convert_piece(void *context, const uint8_t *data, size_t bytes) {
  Conversion *job = context;
  int64_t count = (int64_t)(bytes / safe_dtype_bytes(job->from)), at = -1;
  if (job->bad < 0) safe_convert(job->to, job->out + (size_t)job->done * safe_dtype_bytes(job->to), job->from, data, count, &at);
  if (at >= 0) job->bad = job->done + at;
  job->done += count;
}

static Status convert(const SafeTensor *tensor, SafeDtype to, void *out) {
  if (!safe_dtype_agree(tensor->dtype, to))
    return status_set(STATUS_BAD_FILE, "tensor %.100s is %s where %s is needed", tensor->name, safe_dtype_name(tensor->dtype),
                      safe_dtype_is_float(to) ? "F32, F16, BF16 or F64" : "I32, I64, U16 or U8");
  Conversion job = {tensor->dtype, to, out, 0, -1};
  TRY(safetensors_walk(tensor, convert_piece, &job));
  if (job.bad < 0) return STATUS_OK;
  return status_set(STATUS_BAD_FILE, "tensor %.100s: number %lld, a %s, does not fit into %s", tensor->name, (long long)job.bad,
                    safe_dtype_name(tensor->dtype), safe_dtype_name(to));
}

Status safetensors_to_real(const SafeTensor *tensor, real *out) {
  if (tensor->lowbit == LOWBIT_NONE) return convert(tensor, SAFE_REAL, out);
  const LowbitMatrix matrix = {tensor->lowbit, tensor->shape[0], tensor->shape[1], tensor->data, NULL}; /* in blocks */
  for (int64_t row = 0; row < matrix.outputs; row++) lowbit_widen(&matrix, row, 0, matrix.inputs, out + row * matrix.inputs);
  return STATUS_OK;
}

Status safetensors_to_int32(const SafeTensor *tensor, int32_t *out) { return convert(tensor, SAFE_I32, out); }
