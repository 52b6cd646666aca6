/* See json_scan.h. Invariant: no byte at or behind `end` is looked at. */
#include "nn/json_scan.h"
#include <string.h>

enum { DEPTH = 64 };

static void pass_space(JsonScan *scan) {
  while (scan->at < scan->end && (*scan->at == ' ' || *scan->at == '\n' || *scan->at == '\r' || *scan->at == '\t')) scan->at++;
}

static bool next_is(const JsonScan *scan, char character) { return scan->at < scan->end && *scan->at == character; }

bool json_scan_take(JsonScan *scan, char character) {
  pass_space(scan);
  if (!next_is(scan, character)) return false;
  scan->at++;
  return true;
}

bool json_scan_at_end(JsonScan *scan) {
  pass_space(scan);
  return scan->at == scan->end;
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

static void put_point(Output *output, uint32_t point) {
  uint8_t bytes[4];
  size_t count = point < 0x80 ? 1 : point < 0x800 ? 2 : point < 0x10000 ? 3 : 4;
  static const uint8_t lead[] = {0, 0, 0xc0, 0xe0, 0xf0};
  for (size_t i = count - 1; i > 0; i--, point >>= 6) bytes[i] = (uint8_t)(0x80 | (point & 0x3f));
  bytes[0] = (uint8_t)(lead[count] | point);
  put(output, bytes, count);
}

/* Bytes of the UTF-8 character at `at`, 0: it is none. No overlong forms, no halves of pairs, nothing above U+10FFFF. */
static size_t character_bytes(const uint8_t *at, size_t left) {
  uint8_t first = at[0];
  size_t count = first < 0x80 ? 1 : first < 0xc2 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : first < 0xf5 ? 4 : 0;
  if (count < 2 || count > left) return count == 1 ? 1 : 0;
  uint8_t least = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80, most = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
  if (at[1] < least || at[1] > most) return 0;
  for (size_t i = 2; i < count; i++)
    if ((at[i] & 0xc0) != 0x80) return 0;
  return count;
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

/* Behind "\u". */
static bool read_point(JsonScan *scan, Output *output) {
  uint32_t point, low;
  if (!read_unit(scan, &point) || point == 0 || (point >= 0xdc00 && point < 0xe000)) return false;
  if (point >= 0xd800 && point < 0xdc00) {
    if (scan->end - scan->at < 2 || scan->at[0] != '\\' || scan->at[1] != 'u') return false;
    scan->at += 2;
    if (!read_unit(scan, &low) || low < 0xdc00 || low >= 0xe000) return false;
    point = 0x10000 + ((point - 0xd800) << 10) + (low - 0xdc00);
  }
  put_point(output, point);
  return true;
}

static bool read_escape(JsonScan *scan, Output *output) {
  static const char names[] = "\"\\/bfnrt", meanings[] = "\"\\/\b\f\n\r\t";
  if (scan->at == scan->end) return false;
  char name = *scan->at++;
  if (name == 'u') return read_point(scan, output);
  const char *found = name ? strchr(names, name) : NULL;
  if (found) put(output, &meanings[found - names], 1);
  return found != NULL;
}

static bool read_string(JsonScan *scan, Output *output) {
  if (!json_scan_take(scan, '"')) return false;
  while (scan->at < scan->end && *scan->at != '"') {
    if (*scan->at == '\\') {
      scan->at++;
      if (!read_escape(scan, output)) return false;
      continue;
    }
    size_t bytes = (uint8_t)*scan->at < ' ' ? 0 : character_bytes((const uint8_t *)scan->at, (size_t)(scan->end - scan->at));
    if (bytes == 0) return false;
    put(output, scan->at, bytes);
    scan->at += bytes;
  }
  return json_scan_take(scan, '"');
}

bool json_scan_string(JsonScan *scan, char *out, size_t room, size_t *length) {
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

/* Its sign and digits before point and exponent, neither of which a whole number has here. */
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

bool json_scan_integer(JsonScan *scan, int64_t *number) {
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

bool json_scan_skip(JsonScan *scan) {
  JsonScan ahead = *scan;
  if (!skip(&ahead, 0)) return false;
  *scan = ahead;
  return true;
}
