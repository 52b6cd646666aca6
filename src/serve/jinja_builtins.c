/* Filters, tests, methods of strings and mappings, and functions of Jinja templates: those that chat templates use. Each is a row of a
 * table: its name, the names of its arguments, how many of them it needs. Letters change case in ASCII alone. */
#include "serve/jinja_internal.h"
#include <errno.h>
#include <stdlib.h>
#include <time.h>

enum { RANGE_MAX = 100000 }; /* as Jinja's sandbox has it */

static bool given(const JinjaCall *call, int i) { return call->given[i].kind != JINJA_UNDEFINED; }

static Status want_text(JinjaRun *run, const JinjaValue *value, JinjaText *text) {
  *text = (JinjaText){"", 0};
  if (value->kind != JINJA_STRING) return jinja_fail(run, STATUS_BAD_VALUE, "a string is expected, not %s", jinja_kind_name(value->kind));
  *text = value->text;
  return jinja_charge(run, text->size / 64);
}

static Status want_whole(JinjaRun *run, const JinjaValue *value, int64_t *number) {
  *number = 0;
  if (value->kind != JINJA_INTEGER)
    return jinja_fail(run, STATUS_BAD_VALUE, "an integer is expected, not %s", jinja_kind_name(value->kind));
  *number = value->integer;
  return STATUS_OK;
}

/* ---- pieces of texts */

/* Bytes of the white space (Python's) at text[at]; 0: none. */
static size_t space_at(JinjaText text, size_t at) {
  const unsigned char *byte = (const unsigned char *)text.bytes + at;
  size_t size = jinja_character(text, at);
  if (size == 1) return (*byte >= '\t' && *byte <= '\r') || (*byte >= 0x1c && *byte <= ' ');
  if (size == 2) return byte[0] == 0xc2 && (byte[1] == 0x85 || byte[1] == 0xa0) ? 2 : 0;
  if (size != 3) return 0;
  unsigned code = (unsigned)(byte[0] & 15) << 12 | (unsigned)(byte[1] & 63) << 6 | (byte[2] & 63u);
  return code == 0x1680 || (code >= 0x2000 && code <= 0x200a) || code == 0x2028 || code == 0x2029 || code == 0x202f || code == 0x205f ||
                 code == 0x3000
             ? 3
             : 0;
}

/* Whether the character at text[at] is one of `set`, or white space where there is no set. */
static bool is_stripped(JinjaText text, size_t at, const JinjaValue *set) {
  if (set->kind != JINJA_STRING) return space_at(text, at) > 0;
  size_t size = jinja_character(text, at);
  for (size_t i = 0; i < set->text.size; i += jinja_character(set->text, i)) {
    if (jinja_character(set->text, i) == size && memcmp(set->text.bytes + i, text.bytes + at, size) == 0) return true;
  }
  return false;
}

static size_t last_character(JinjaText text) { /* where it begins */
  for (size_t size = 2; size <= 4 && size <= text.size; size++) {
    if (utf8_size(text.bytes + text.size - size, size) == size) return text.size - size;
  }
  return text.size - 1;
}

/* Steps for work on so many more bytes. *rest: bytes for which no step was charged yet. */
static Status charge_bytes(JinjaRun *run, size_t bytes, size_t *rest) {
  *rest += bytes;
  TRY(jinja_charge(run, *rest / 64));
  *rest %= 64;
  return STATUS_OK;
}

/* Each character that is looked at is compared with the whole set. */
static Status strip(JinjaRun *run, const JinjaCall *call, bool left, bool right, JinjaValue *result) {
  JinjaText text;
  TRY(jinja_to_text(run, &call->self, &text));
  const JinjaValue *set = &call->given[0];
  const size_t each = set->kind == JINJA_STRING ? set->text.size : 1;
  size_t rest = 0;
  while (left && text.size > 0) {
    TRY(charge_bytes(run, each, &rest));
    if (!is_stripped(text, 0, set)) break;
    size_t size = jinja_character(text, 0);
    text.bytes += size;
    text.size -= size;
  }
  while (right && text.size > 0) {
    TRY(charge_bytes(run, each, &rest));
    if (!is_stripped(text, last_character(text), set)) break;
    text.size = last_character(text);
  }
  *result = jinja_string(text);
  return STATUS_OK;
}

static Status trim_both(JinjaRun *run, const JinjaCall *call, JinjaValue *result) { return strip(run, call, true, true, result); }
static Status trim_left(JinjaRun *run, const JinjaCall *call, JinjaValue *result) { return strip(run, call, true, false, result); }
static Status trim_right(JinjaRun *run, const JinjaCall *call, JinjaValue *result) { return strip(run, call, false, true, result); }

typedef enum Case { CASE_UPPER, CASE_LOWER, CASE_CAPITAL, CASE_TITLE, CASE_TITLE_FILTER } Case;

static bool is_letter(char byte) { return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') || (byte & 0x80); }

/* The method title() begins a word behind everything that is no letter, the filter behind white space and opening brackets. */
static bool begins_word(JinjaText text, size_t at, Case to) {
  if (at == 0) return true;
  if (to == CASE_TITLE) return !is_letter(text.bytes[at - 1]);
  return to == CASE_TITLE_FILTER && text.bytes[at - 1] && strchr("-({[< \t\n\r\f\v", text.bytes[at - 1]);
}

static Status change_case(JinjaRun *run, const JinjaCall *call, Case to, JinjaValue *result) {
  JinjaText text;
  char *changed;
  TRY(jinja_to_text(run, &call->self, &text));
  TRY(jinja_charge(run, text.size / 64));
  TRY(jinja_alloc(run, text.size, &changed));
  for (size_t i = 0; i < text.size; i++) {
    char byte = text.bytes[i];
    bool upper = to == CASE_UPPER || (to != CASE_LOWER && begins_word(text, i, to));
    if (upper && byte >= 'a' && byte <= 'z') byte = (char)(byte - 'a' + 'A');
    if (!upper && byte >= 'A' && byte <= 'Z') byte = (char)(byte - 'A' + 'a');
    changed[i] = byte;
  }
  *result = jinja_string((JinjaText){changed, text.size});
  return STATUS_OK;
}

static Status to_upper(JinjaRun *run, const JinjaCall *call, JinjaValue *result) { return change_case(run, call, CASE_UPPER, result); }
static Status to_lower(JinjaRun *run, const JinjaCall *call, JinjaValue *result) { return change_case(run, call, CASE_LOWER, result); }
static Status to_capital(JinjaRun *run, const JinjaCall *call, JinjaValue *result) { return change_case(run, call, CASE_CAPITAL, result); }
static Status to_title(JinjaRun *run, const JinjaCall *call, JinjaValue *result) { return change_case(run, call, CASE_TITLE, result); }
static Status filter_title(JinjaRun *run, const JinjaCall *call, JinjaValue *result) {
  return change_case(run, call, CASE_TITLE_FILTER, result);
}

static bool text_begins(JinjaText text, JinjaText with) { return with.size <= text.size && memcmp(text.bytes, with.bytes, with.size) == 0; }
static bool text_ends(JinjaText text, JinjaText with) {
  return with.size <= text.size && memcmp(text.bytes + text.size - with.size, with.bytes, with.size) == 0;
}

/* The argument may be a list of texts, any of which will do. */
static Status affix(JinjaRun *run, const JinjaCall *call, bool (*has)(JinjaText, JinjaText), JinjaValue *result) {
  JinjaList one = {.items = (JinjaValue *)&call->given[0], .count = 1},
            *all = call->given[0].kind == JINJA_LIST ? call->given[0].list : &one;
  *result = jinja_boolean(false);
  for (size_t i = 0; i < all->count; i++) {
    JinjaText text = {"", 0};
    TRY(jinja_charge(run, 1));
    TRY(want_text(run, &all->items[i], &text));
    if (has(call->self.text, text)) *result = jinja_boolean(true);
  }
  return STATUS_OK;
}
static Status starts_with(JinjaRun *run, const JinjaCall *call, JinjaValue *result) { return affix(run, call, text_begins, result); }
static Status ends_with(JinjaRun *run, const JinjaCall *call, JinjaValue *result) { return affix(run, call, text_ends, result); }

static Status remove_prefix(JinjaRun *run, const JinjaCall *call, JinjaValue *result) {
  JinjaText text = call->self.text, prefix;
  TRY(want_text(run, &call->given[0], &prefix));
  if (text_begins(text, prefix)) text = (JinjaText){text.bytes + prefix.size, text.size - prefix.size};
  *result = jinja_string(text);
  return STATUS_OK;
}

static Status remove_suffix(JinjaRun *run, const JinjaCall *call, JinjaValue *result) {
  JinjaText text = call->self.text, suffix;
  TRY(want_text(run, &call->given[0], &suffix));
  if (text_ends(text, suffix)) text.size -= suffix.size;
  *result = jinja_string(text);
  return STATUS_OK;
}

/* The next piece of *rest up to `separator` (any white space where it is empty), which is taken out of it; false: it was the last one. */
static bool cut_piece(JinjaText *rest, JinjaText separator, JinjaText *piece) {
  size_t at = 0, size = 0;
  if (separator.size) {
    const char *found = memmem(rest->bytes, rest->size, separator.bytes, separator.size);
    at = found ? (size_t)(found - rest->bytes) : rest->size;
    size = found ? separator.size : 0;
  } else {
    while (at < rest->size && !space_at(*rest, at)) at += jinja_character(*rest, at);
    for (size_t space; at + size < rest->size && (space = space_at(*rest, at + size)) > 0;) size += space;
  }
  *piece = (JinjaText){rest->bytes, at};
  *rest = (JinjaText){rest->bytes + at + size, rest->size - at - size};
  return size > 0;
}

static bool ends_in_space(JinjaText text) {
  JinjaText left = text, piece;
  while (cut_piece(&left, (JinjaText){"", 0}, &piece)) continue;
  return piece.size == 0;
}

static Status split_text(JinjaRun *run, const JinjaCall *call, JinjaValue *result) {
  JinjaText separator = {"", 0}, rest, piece;
  int64_t max = -1;
  TRY(want_text(run, &call->self, &rest));
  if (given(call, 0) && call->given[0].kind != JINJA_NONE) {
    TRY(want_text(run, &call->given[0], &separator));
    if (separator.size == 0) return jinja_fail(run, STATUS_BAD_VALUE, "the separator of split is empty");
  }
  if (given(call, 1)) TRY(want_whole(run, &call->given[1], &max));
  if (separator.size == 0) { /* white space at the ends separates nothing */
    JinjaValue stripped;
    TRY(strip(run, &(JinjaCall){.self = call->self}, true, max < 0, &stripped));
    rest = stripped.text;
  }
  size_t count = 1;
  JinjaText left = rest;
  for (int64_t i = 0; (max < 0 || i < max) && cut_piece(&left, separator, &piece); i++) count++;
  const bool ends = separator.size == 0 && max >= 0 && count > 1 && left.size == 0 && ends_in_space(rest); /* which is no piece */
  count -= ends;
  if (separator.size == 0 && rest.size == 0) count = 0;
  TRY(jinja_list_new(run, count, result));
  for (size_t i = 0; i < count; i++) {
    if (i + 1 < count || max < 0 || ends)
      cut_piece(&rest, separator, &piece);
    else
      piece = rest;
    result->list->items[i] = jinja_string(piece);
  }
  return STATUS_OK;
}

static Status split_lines(JinjaRun *run, const JinjaCall *call, JinjaValue *result) {
  JinjaText text, newline = {"\n", 1}, piece;
  TRY(want_text(run, &call->self, &text));
  if (text_ends(text, newline)) text.size--;
  JinjaText left = text;
  size_t count = call->self.text.size > 0;
  while (cut_piece(&left, newline, &piece)) count++;
  TRY(jinja_list_new(run, count, result));
  for (size_t i = 0; i < count; i++) {
    cut_piece(&text, newline, &piece);
    result->list->items[i] = jinja_string(piece);
  }
  return STATUS_OK;
}

static Status replace_text(JinjaRun *run, const JinjaCall *call, JinjaValue *result) {
  JinjaText rest, old, new, piece = {"", 0};
  int64_t max = -1;
  TRY(jinja_to_text(run, &call->self, &rest));
  TRY(jinja_to_text(run, &call->given[0], &old));
  TRY(jinja_to_text(run, &call->given[1], &new));
  if (given(call, 2)) TRY(want_whole(run, &call->given[2], &max));
  if (old.size == 0) return jinja_fail(run, STATUS_UNSUPPORTED, "an empty string is not replaced");
  TRY(jinja_charge(run, rest.size / 64));
  size_t start = run->size;
  for (int64_t i = 0; (max < 0 || i < max) && cut_piece(&rest, old, &piece); i++) {
    TRY(jinja_charge(run, 1));
    TRY(jinja_write(run, piece));
    TRY(jinja_write(run, new));
    piece.size = 0;
  }
  TRY(jinja_write(run, rest)); /* empty where the last cut found nothing: then it took the rest */
  TRY(jinja_write(run, piece));
  TRY(jinja_capture(run, start, &piece));
  *result = jinja_string(piece);
  return STATUS_OK;
}

static Status find_text(JinjaRun *run, const JinjaCall *call, JinjaValue *result) {
  JinjaText text = call->self.text, wanted;
  TRY(want_text(run, &call->given[0], &wanted));
  TRY(jinja_charge(run, text.size / 64));
  const char *found = wanted.size ? memmem(text.bytes, text.size, wanted.bytes, wanted.size) : text.bytes;
  int64_t characters = 0;
  for (size_t at = 0; found && text.bytes + at < found; at += jinja_character(text, at)) characters++;
  *result = jinja_integer(found ? characters : -1);
  return STATUS_OK;
}

static Status count_text(JinjaRun *run, const JinjaCall *call, JinjaValue *result) {
  JinjaText text, wanted, piece;
  int64_t count = 0;
  TRY(want_text(run, &call->self, &text));
  TRY(want_text(run, &call->given[0], &wanted));
  if (wanted.size == 0) return jinja_fail(run, STATUS_UNSUPPORTED, "an empty string is not counted");
  while (cut_piece(&text, wanted, &piece)) count++;
  *result = jinja_integer(count);
  return STATUS_OK;
}

static Status is_digits(JinjaRun *run, const JinjaCall *call, JinjaValue *result) {
  JinjaText text;
  TRY(want_text(run, &call->self, &text));
  size_t i = 0;
  while (i < text.size && text.bytes[i] >= '0' && text.bytes[i] <= '9') i++;
  *result = jinja_boolean(text.size > 0 && i == text.size);
  return STATUS_OK;
}

static Status attribute_path(JinjaRun *run, const JinjaValue *value, JinjaText path, JinjaValue *result) { /* "a.b" */
  JinjaText name;
  *result = *value;
  for (bool more = true; more;) {
    more = cut_piece(&path, (JinjaText){".", 1}, &name);
    JinjaValue inner = *result;
    TRY(jinja_attribute(run, &inner, name, result));
  }
  return STATUS_OK;
}

static Status join_items(JinjaRun *run, const JinjaValue *value, const JinjaValue *separator, const JinjaValue *attribute,
                         JinjaValue *result) {
  JinjaList items;
  JinjaText text, between = {"", 0};
  if (separator->kind != JINJA_UNDEFINED) TRY(jinja_to_text(run, separator, &between));
  TRY(jinja_items(run, value, &items));
  size_t start = run->size;
  for (size_t i = 0; i < items.count; i++) {
    JinjaValue item = items.items[i];
    TRY(jinja_charge(run, 1));
    if (attribute && attribute->kind == JINJA_STRING) TRY(attribute_path(run, &items.items[i], attribute->text, &item));
    if (i > 0) TRY(jinja_write(run, between));
    TRY(jinja_write_value(run, &item, NULL));
  }
  TRY(jinja_capture(run, start, &text));
  *result = jinja_string(text);
  return STATUS_OK;
}

static Status filter_join(JinjaRun *run, const JinjaCall *call, JinjaValue *result) {
  return join_items(run, &call->self, &call->given[0], &call->given[1], result);
}
static Status method_join(JinjaRun *run, const JinjaCall *call, JinjaValue *result) {
  return join_items(run, &call->given[0], &call->self, NULL, result);
}

/* ---- filters of other values */

static Status filter_length(JinjaRun *run, const JinjaCall *call, JinjaValue *result) {
  size_t count;
  TRY(jinja_count(run, &call->self, &count));
  *result = jinja_integer((int64_t)count);
  return STATUS_OK;
}

/* With the arguments of transformers' filter, which are those of Python's json.dumps, and not Jinja's own. */
static Status filter_tojson(JinjaRun *run, const JinjaCall *call, JinjaValue *result) {
  size_t start = run->size;
  int64_t indent = -1;
  JinjaText text, separators[2];
  const JinjaValue *pair = &call->given[2];
  const bool separated = given(call, 2) && pair->kind != JINJA_NONE;
  if (jinja_true(&call->given[0]))
    return jinja_fail(run, STATUS_UNSUPPORTED, "tojson with ensure_ascii=true is not supported; it writes all characters as they are");
  if (given(call, 1) && call->given[1].kind != JINJA_NONE) TRY(want_whole(run, &call->given[1], &indent));
  if (indent > 16) indent = 16;
  if (separated && (pair->kind != JINJA_LIST || pair->list->count != 2))
    return jinja_fail(run, STATUS_BAD_VALUE, "the separators of tojson are two strings, as in (', ', ': ')");
  for (int i = 0; i < 2 && separated; i++) TRY(want_text(run, &pair->list->items[i], &separators[i]));
  const JinjaForm form = {.json = true,
                          .indent = indent < 0 ? -1 : (int)indent,
                          .separators = separated ? separators : NULL,
                          .sorted = jinja_true(&call->given[3])};
  TRY(jinja_write_value(run, &call->self, &form));
  TRY(jinja_capture(run, start, &text));
  *result = jinja_string(text);
  return STATUS_OK;
}

static Status filter_default(JinjaRun *run, const JinjaCall *call, JinjaValue *result) {
  (void)run;
  bool replaced = call->self.kind == JINJA_UNDEFINED || (jinja_true(&call->given[1]) && !jinja_true(&call->self));
  *result = !replaced ? call->self : given(call, 0) ? call->given[0] : jinja_string((JinjaText){"", 0});
  return STATUS_OK;
}

static Status filter_first(JinjaRun *run, const JinjaCall *call, JinjaValue *result) {
  JinjaList items;
  TRY(jinja_items(run, &call->self, &items));
  *result = items.count ? items.items[0] : jinja_undefined((JinjaText){"first", 5});
  return STATUS_OK;
}

static Status filter_last(JinjaRun *run, const JinjaCall *call, JinjaValue *result) {
  JinjaList items;
  TRY(jinja_items(run, &call->self, &items));
  *result = items.count ? items.items[items.count - 1] : jinja_undefined((JinjaText){"last", 4});
  return STATUS_OK;
}

static Status filter_list(JinjaRun *run, const JinjaCall *call, JinjaValue *result) {
  JinjaList items;
  TRY(jinja_items(run, &call->self, &items));
  TRY(jinja_list_new(run, items.count, result));
  if (items.count) memcpy(result->list->items, items.items, items.count * sizeof *items.items);
  return STATUS_OK;
}

static Status filter_reverse(JinjaRun *run, const JinjaCall *call, JinjaValue *result) {
  const JinjaValue back = jinja_integer(-1), *bounds[3] = {NULL, NULL, &back};
  TRY(jinja_slice(run, &call->self, bounds, result));
  if (result->kind == JINJA_LIST) result->list->generator = true;
  return STATUS_OK;
}

static Status filter_string(JinjaRun *run, const JinjaCall *call, JinjaValue *result) {
  JinjaText text;
  TRY(jinja_to_text(run, &call->self, &text));
  *result = jinja_string(text);
  return STATUS_OK;
}

static Status filter_safe(JinjaRun *run, const JinjaCall *call, JinjaValue *result) {
  (void)run;
  *result = call->self;
  return STATUS_OK;
}

/* A number from a number or from the whole of a short text, around which white space is passed over; false: it is none, or hexadecimal. */
static bool to_number(const JinjaValue *value, double *real, int64_t *integer) {
  char text[64], *end = text;
  *real = 0;
  *integer = 0;
  if (value->kind == JINJA_INTEGER || value->kind == JINJA_BOOLEAN)
    *integer = value->kind == JINJA_BOOLEAN ? value->boolean : value->integer;
  if (value->kind == JINJA_INTEGER || value->kind == JINJA_BOOLEAN) return *real = (double)*integer, true;
  if (value->kind == JINJA_REAL)
    *real = value->real;
  else if (value->kind == JINJA_STRING && value->text.size > 0 && value->text.size < sizeof text) {
    memcpy(text, value->text.bytes, value->text.size);
    text[value->text.size] = '\0';
    if (strlen(text) < value->text.size || strpbrk(text, "xX")) return false;
    *real = strtod(text, &end);
    if (end == text || end[strspn(end, " \t\n\v\f\r")] != '\0') return false;
    errno = 0;
    *integer = strtoll(text, &end, 10); /* to the last digit, of a whole number */
    if (errno == 0 && end[strspn(end, " \t\n\v\f\r")] == '\0') return true;
    *integer = 0;
  } else
    return false;
  if (*real > -9e18 && *real < 9e18) *integer = (int64_t)*real;
  return true;
}

static Status filter_int(JinjaRun *run, const JinjaCall *call, JinjaValue *result) {
  double real;
  int64_t integer;
  (void)run;
  *result = to_number(&call->self, &real, &integer) ? jinja_integer(integer) : given(call, 0) ? call->given[0] : jinja_integer(0);
  return STATUS_OK;
}

static Status filter_float(JinjaRun *run, const JinjaCall *call, JinjaValue *result) {
  double real;
  int64_t integer;
  (void)run;
  *result = to_number(&call->self, &real, &integer) ? jinja_real(real) : given(call, 0) ? call->given[0] : jinja_real(0);
  return STATUS_OK;
}

static Status filter_abs(JinjaRun *run, const JinjaCall *call, JinjaValue *result) {
  JinjaValue zero = jinja_integer(0), less;
  TRY(jinja_binary(run, OPERATOR_LESS, &call->self, &zero, &less));
  *result = call->self;
  return less.boolean ? jinja_binary(run, OPERATOR_SUBTRACT, &zero, &call->self, result) : STATUS_OK;
}

typedef enum MapPart { PART_KEYS, PART_VALUES, PART_BOTH } MapPart;

static Status map_parts(JinjaRun *run, const JinjaMap *map, MapPart part, JinjaValue *result) {
  TRY(jinja_list_new(run, map->count, result));
  for (size_t i = 0; i < map->count; i++) {
    JinjaValue *item = &result->list->items[i], key = jinja_string(map->pairs[i].key);
    *item = part == PART_VALUES ? map->pairs[i].value : key;
    if (part != PART_BOTH) continue;
    TRY(jinja_list_new(run, 2, item));
    item->list->tuple = true;
    item->list->items[0] = key;
    item->list->items[1] = map->pairs[i].value;
  }
  return STATUS_OK;
}

static Status map_keys(JinjaRun *run, const JinjaCall *call, JinjaValue *result) {
  return map_parts(run, call->self.map, PART_KEYS, result);
}
static Status map_values(JinjaRun *run, const JinjaCall *call, JinjaValue *result) {
  return map_parts(run, call->self.map, PART_VALUES, result);
}
static Status map_items(JinjaRun *run, const JinjaCall *call, JinjaValue *result) {
  if (call->self.kind == JINJA_UNDEFINED) return jinja_list_new(run, 0, result);
  if (call->self.kind != JINJA_MAP) return jinja_fail(run, STATUS_BAD_VALUE, "%s has no items", jinja_kind_name(call->self.kind));
  return map_parts(run, call->self.map, PART_BOTH, result);
}
static Status filter_items(JinjaRun *run, const JinjaCall *call, JinjaValue *result) {
  TRY(map_items(run, call, result));
  result->list->generator = true;
  return STATUS_OK;
}

static Status map_get(JinjaRun *run, const JinjaCall *call, JinjaValue *result) {
  JinjaText key;
  const JinjaValue *found;
  TRY(want_text(run, &call->given[0], &key));
  TRY(jinja_map_find(run, call->self.map, key, &found));
  *result = found ? *found : given(call, 1) ? call->given[1] : jinja_none();
  return STATUS_OK;
}

/* An argument by its name; NULL: it was not given. */
static const JinjaValue *named(const JinjaCall *call, const char *name) {
  for (size_t i = 0; i < call->count; i++)
    if (jinja_text_is(call->all[i].name, name)) return &call->all[i].value;
  return NULL;
}

/* map(attribute="a.b", default=...), or map("filter", ...) with what that filter takes. */
static Status filter_map(JinjaRun *run, const JinjaCall *call, JinjaValue *result) {
  JinjaList items;
  const JinjaBuiltin *filter = NULL;
  const JinjaValue *attribute = named(call, "attribute"), *otherwise = named(call, "default");
  if (call->count > 0 && call->all[0].name.size == 0) {
    JinjaText name = {"", 0};
    TRY(want_text(run, &call->all[0].value, &name));
    filter = jinja_builtin(JINJA_FILTERS, name);
  }
  if (!filter && (!attribute || attribute->kind != JINJA_STRING || call->count > (size_t)(otherwise ? 2 : 1)))
    return jinja_fail(run, STATUS_UNSUPPORTED, "map takes the name of a filter, or attribute=");
  TRY(jinja_items(run, &call->self, &items));
  TRY(jinja_list_new(run, items.count, result));
  result->list->generator = true;
  for (size_t i = 0; i < items.count; i++) {
    JinjaValue *item = &result->list->items[i];
    TRY(jinja_charge(run, 1));
    if (filter)
      TRY(jinja_call(run, filter, &items.items[i], call->all + 1, call->count - 1, item));
    else
      TRY(attribute_path(run, &items.items[i], attribute->text, item));
    if (!filter && item->kind == JINJA_UNDEFINED && otherwise) *item = *otherwise;
  }
  return STATUS_OK;
}

/* Of the items those that pass a test, or do not: by themselves, or an attribute of theirs. Without a test: those that are true. */
static Status choose(JinjaRun *run, const JinjaCall *call, bool by_attribute, bool wanted, JinjaValue *result) {
  const JinjaValue *name = &call->given[by_attribute], *operand = by_attribute ? &call->given[2] : &call->given[1];
  const JinjaBuiltin *test = NULL;
  JinjaList items;
  JinjaText path = {"", 0};
  if (by_attribute) TRY(want_text(run, &call->given[0], &path));
  if (name->kind != JINJA_UNDEFINED) {
    JinjaText text = {"", 0};
    TRY(want_text(run, name, &text));
    if (!(test = jinja_builtin(JINJA_TESTS, text)))
      return jinja_fail(run, STATUS_UNSUPPORTED, "the test \"%.*s\" is not supported", jinja_shown(text), text.bytes);
  }
  TRY(jinja_items(run, &call->self, &items));
  TRY(jinja_list_new(run, items.count, result));
  result->list->generator = true;
  size_t count = 0;
  for (size_t i = 0; i < items.count; i++) {
    JinjaValue value = items.items[i], passed;
    TRY(jinja_charge(run, 1));
    if (by_attribute) TRY(attribute_path(run, &items.items[i], path, &value));
    passed = jinja_boolean(jinja_true(&value));
    if (test) TRY(jinja_call(run, test, &value, &(JinjaArgument){.value = *operand}, operand->kind != JINJA_UNDEFINED, &passed));
    if (passed.boolean == wanted) result->list->items[count++] = items.items[i];
  }
  result->list->count = count;
  return STATUS_OK;
}

static Status filter_select(JinjaRun *run, const JinjaCall *call, JinjaValue *result) { return choose(run, call, false, true, result); }
static Status filter_reject(JinjaRun *run, const JinjaCall *call, JinjaValue *result) { return choose(run, call, false, false, result); }
static Status filter_selectattr(JinjaRun *run, const JinjaCall *call, JinjaValue *result) { return choose(run, call, true, true, result); }
static Status filter_rejectattr(JinjaRun *run, const JinjaCall *call, JinjaValue *result) { return choose(run, call, true, false, result); }

/* ---- tests */

#define KIND_TEST(name, condition)                                                                                                         \
  static Status name(JinjaRun *run, const JinjaCall *call, JinjaValue *result) {                                                           \
    (void)run;                                                                                                                             \
    JinjaKind kind = call->self.kind;                                                                                                      \
    *result = jinja_boolean(condition);                                                                                                    \
    return STATUS_OK;                                                                                                                      \
  }
KIND_TEST(is_defined, kind != JINJA_UNDEFINED)
KIND_TEST(is_undefined, kind == JINJA_UNDEFINED)
KIND_TEST(is_none, kind == JINJA_NONE)
KIND_TEST(is_string, kind == JINJA_STRING)
KIND_TEST(is_mapping, kind == JINJA_MAP && !call->self.map->writable)
KIND_TEST(is_iterable, kind == JINJA_LIST || kind == JINJA_MAP || kind == JINJA_STRING || kind == JINJA_UNDEFINED)
KIND_TEST(is_sequence, kind == JINJA_LIST || kind == JINJA_MAP || kind == JINJA_STRING || kind == JINJA_UNDEFINED)
KIND_TEST(is_number, kind == JINJA_INTEGER || kind == JINJA_REAL || kind == JINJA_BOOLEAN)
KIND_TEST(is_integer, kind == JINJA_INTEGER)
KIND_TEST(is_float, kind == JINJA_REAL)
KIND_TEST(is_boolean, kind == JINJA_BOOLEAN)
KIND_TEST(is_true, kind == JINJA_BOOLEAN && call->self.boolean)
KIND_TEST(is_false, kind == JINJA_BOOLEAN && !call->self.boolean)
KIND_TEST(is_callable, kind == JINJA_FUNCTION || kind == JINJA_MACRO)

static Status is_divisible(JinjaRun *run, const JinjaCall *call, JinjaValue *result) {
  JinjaValue rest;
  TRY(jinja_binary(run, OPERATOR_MODULO, &call->self, &call->given[0], &rest));
  *result = jinja_boolean(!jinja_true(&rest));
  return STATUS_OK;
}
static Status is_odd(JinjaRun *run, const JinjaCall *call, JinjaValue *result) {
  JinjaCall halved = {.self = call->self, .given = {jinja_integer(2)}};
  TRY(is_divisible(run, &halved, result));
  result->boolean = !result->boolean;
  return STATUS_OK;
}
static Status is_even(JinjaRun *run, const JinjaCall *call, JinjaValue *result) {
  JinjaCall halved = {.self = call->self, .given = {jinja_integer(2)}};
  return is_divisible(run, &halved, result);
}

#define COMPARISON(name, op)                                                                                                               \
  static Status name(JinjaRun *run, const JinjaCall *call, JinjaValue *result) {                                                           \
    return jinja_binary(run, op, &call->self, &call->given[0], result);                                                                    \
  }
COMPARISON(is_equal, OPERATOR_EQUAL)
COMPARISON(is_not_equal, OPERATOR_NOT_EQUAL)
COMPARISON(is_less, OPERATOR_LESS)
COMPARISON(is_less_equal, OPERATOR_LESS_EQUAL)
COMPARISON(is_greater, OPERATOR_GREATER)
COMPARISON(is_greater_equal, OPERATOR_GREATER_EQUAL)
COMPARISON(is_in, OPERATOR_IN)

/* Python's `is`: of lists and mappings whether they are one, of other values whether they are equal and of one kind, as small numbers and
 * the strings of a template are. */
static Status is_same(JinjaRun *run, const JinjaCall *call, JinjaValue *result) {
  const JinjaValue *a = &call->self, *b = &call->given[0];
  *result = jinja_boolean(false);
  if (a->kind != b->kind) return STATUS_OK;
  if (a->kind == JINJA_LIST) return result->boolean = a->list == b->list, STATUS_OK;
  if (a->kind == JINJA_MAP) return result->boolean = a->map == b->map, STATUS_OK;
  return is_equal(run, call, result);
}

/* ---- functions */

static Status function_range(JinjaRun *run, const JinjaCall *call, JinjaValue *result) {
  int64_t from = 0, to, step = 1;
  TRY(want_whole(run, &call->given[0], &to));
  if (given(call, 1)) {
    from = to;
    TRY(want_whole(run, &call->given[1], &to));
  }
  if (given(call, 2)) TRY(want_whole(run, &call->given[2], &step));
  if (step == 0) return jinja_fail(run, STATUS_BAD_VALUE, "the step of range is 0");
  double exact = ((double)to - (double)from) / (double)step;
  if (exact > RANGE_MAX) return jinja_fail(run, STATUS_BAD_VALUE, "a range of more than %d numbers", (int)RANGE_MAX);
  size_t count = exact > 0 ? (size_t)exact + ((double)(size_t)exact < exact) : 0;
  TRY(jinja_list_new(run, count, result));
  for (size_t i = 0; i < count; i++) result->list->items[i] = jinja_integer((int64_t)((uint64_t)from + (uint64_t)i * (uint64_t)step));
  return STATUS_OK;
}

static Status function_dict(JinjaRun *run, const JinjaCall *call, JinjaValue *result) {
  TRY(jinja_map_new(run, call->count, result));
  for (size_t i = 0; i < call->count; i++) {
    if (call->all[i].name.size == 0) return jinja_fail(run, STATUS_UNSUPPORTED, "arguments without a name are not supported here");
    TRY(jinja_map_put(run, result->map, call->all[i].name, call->all[i].value));
  }
  return STATUS_OK;
}

static Status function_namespace(JinjaRun *run, const JinjaCall *call, JinjaValue *result) {
  TRY(function_dict(run, call, result));
  result->map->writable = true;
  return STATUS_OK;
}

static Status function_raise(JinjaRun *run, const JinjaCall *call, JinjaValue *result) {
  JinjaText message;
  (void)result;
  TRY(jinja_to_text(run, &call->given[0], &message));
  return jinja_fail(run, STATUS_BAD_VALUE, "%.*s", message.size < 400 ? (int)message.size : 400, message.bytes);
}

static Status function_strftime(JinjaRun *run, const JinjaCall *call, JinjaValue *result) {
  char format[128], text[256];
  time_t now = time(NULL);
  struct tm local;
  JinjaText wanted;
  TRY(want_text(run, &call->given[0], &wanted));
  if (wanted.size >= sizeof format || !localtime_r(&now, &local))
    return jinja_fail(run, STATUS_BAD_VALUE, "the format of the date is too long");
  memcpy(format, wanted.bytes, wanted.size);
  format[wanted.size] = '\0';
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
  size_t size = strftime(text, sizeof text, format, &local);
#pragma GCC diagnostic pop
  size_t start = run->size;
  TRY(jinja_write(run, (JinjaText){text, size}));
  TRY(jinja_capture(run, start, &wanted));
  *result = jinja_string(wanted);
  return STATUS_OK;
}

/* ---- tables */

static const JinjaBuiltin filters[] = {{"abs", filter_abs, 0, {NULL}},
                                       {"capitalize", to_capital, 0, {NULL}},
                                       {"count", filter_length, 0, {NULL}},
                                       {"d", filter_default, 0, {"default_value", "boolean"}},
                                       {"default", filter_default, 0, {"default_value", "boolean"}},
                                       {"first", filter_first, 0, {NULL}},
                                       {"float", filter_float, 0, {"default"}},
                                       {"int", filter_int, 0, {"default"}},
                                       {"items", filter_items, 0, {NULL}},
                                       {"join", filter_join, 0, {"d", "attribute"}},
                                       {"last", filter_last, 0, {NULL}},
                                       {"length", filter_length, 0, {NULL}},
                                       {"list", filter_list, 0, {NULL}},
                                       {"lower", to_lower, 0, {NULL}},
                                       {"map", filter_map, 0, {"*"}},
                                       {"reject", filter_reject, 0, {"test", "value"}},
                                       {"rejectattr", filter_rejectattr, 1, {"attribute", "test", "value"}},
                                       {"replace", replace_text, 2, {"old", "new", "count"}},
                                       {"reverse", filter_reverse, 0, {NULL}},
                                       {"safe", filter_safe, 0, {NULL}},
                                       {"select", filter_select, 0, {"test", "value"}},
                                       {"selectattr", filter_selectattr, 1, {"attribute", "test", "value"}},
                                       {"string", filter_string, 0, {NULL}},
                                       {"title", filter_title, 0, {NULL}},
                                       {"tojson", filter_tojson, 0, {"ensure_ascii", "indent", "separators", "sort_keys"}},
                                       {"trim", trim_both, 0, {"chars"}},
                                       {"upper", to_upper, 0, {NULL}},
                                       {NULL, NULL, 0, {NULL}}};

static const JinjaBuiltin tests[] = {{"!=", is_not_equal, 1, {"other"}},
                                     {"<", is_less, 1, {"other"}},
                                     {"<=", is_less_equal, 1, {"other"}},
                                     {"==", is_equal, 1, {"other"}},
                                     {">", is_greater, 1, {"other"}},
                                     {">=", is_greater_equal, 1, {"other"}},
                                     {"boolean", is_boolean, 0, {NULL}},
                                     {"callable", is_callable, 0, {NULL}},
                                     {"defined", is_defined, 0, {NULL}},
                                     {"divisibleby", is_divisible, 1, {"num"}},
                                     {"eq", is_equal, 1, {"other"}},
                                     {"equalto", is_equal, 1, {"other"}},
                                     {"even", is_even, 0, {NULL}},
                                     {"false", is_false, 0, {NULL}},
                                     {"float", is_float, 0, {NULL}},
                                     {"ge", is_greater_equal, 1, {"other"}},
                                     {"greaterthan", is_greater, 1, {"other"}},
                                     {"gt", is_greater, 1, {"other"}},
                                     {"in", is_in, 1, {"seq"}},
                                     {"integer", is_integer, 0, {NULL}},
                                     {"iterable", is_iterable, 0, {NULL}},
                                     {"le", is_less_equal, 1, {"other"}},
                                     {"lessthan", is_less, 1, {"other"}},
                                     {"lt", is_less, 1, {"other"}},
                                     {"mapping", is_mapping, 0, {NULL}},
                                     {"ne", is_not_equal, 1, {"other"}},
                                     {"none", is_none, 0, {NULL}},
                                     {"number", is_number, 0, {NULL}},
                                     {"odd", is_odd, 0, {NULL}},
                                     {"sameas", is_same, 1, {"other"}},
                                     {"sequence", is_sequence, 0, {NULL}},
                                     {"string", is_string, 0, {NULL}},
                                     {"true", is_true, 0, {NULL}},
                                     {"undefined", is_undefined, 0, {NULL}},
                                     {NULL, NULL, 0, {NULL}}};

static const JinjaBuiltin functions[] = {{"dict", function_dict, 0, {"*"}},
                                         {"namespace", function_namespace, 0, {"*"}},
                                         {"raise_exception", function_raise, 1, {"message"}},
                                         {"range", function_range, 1, {"a", "b", "c"}},
                                         {"strftime_now", function_strftime, 1, {"format"}},
                                         {NULL, NULL, 0, {NULL}}};

static const JinjaBuiltin string_methods[] = {{"capitalize", to_capital, 0, {NULL}},
                                              {"count", count_text, 1, {"sub"}},
                                              {"endswith", ends_with, 1, {"suffix"}},
                                              {"find", find_text, 1, {"sub"}},
                                              {"isdigit", is_digits, 0, {NULL}},
                                              {"join", method_join, 1, {"iterable"}},
                                              {"lower", to_lower, 0, {NULL}},
                                              {"lstrip", trim_left, 0, {"chars"}},
                                              {"removeprefix", remove_prefix, 1, {"prefix"}},
                                              {"removesuffix", remove_suffix, 1, {"suffix"}},
                                              {"replace", replace_text, 2, {"old", "new", "count"}},
                                              {"rstrip", trim_right, 0, {"chars"}},
                                              {"split", split_text, 0, {"sep", "maxsplit"}},
                                              {"splitlines", split_lines, 0, {NULL}},
                                              {"startswith", starts_with, 1, {"prefix"}},
                                              {"strip", trim_both, 0, {"chars"}},
                                              {"title", to_title, 0, {NULL}},
                                              {"upper", to_upper, 0, {NULL}},
                                              {NULL, NULL, 0, {NULL}}};

static const JinjaBuiltin map_methods[] = {{"get", map_get, 1, {"key", "default"}},
                                           {"items", map_items, 0, {NULL}},
                                           {"keys", map_keys, 0, {NULL}},
                                           {"values", map_values, 0, {NULL}},
                                           {NULL, NULL, 0, {NULL}}};

const JinjaBuiltin *jinja_builtin(JinjaTable table, JinjaText name) {
  static const JinjaBuiltin *const tables[] = {filters, tests, functions, string_methods, map_methods};
  const JinjaBuiltin *row = tables[table];
  while (row->name && !jinja_text_is(name, row->name)) row++;
  return row->name ? row : NULL;
}

Status jinja_call(JinjaRun *run, const JinjaBuiltin *builtin, const JinjaValue *self, const JinjaArgument *arguments, size_t count,
                  JinjaValue *result) {
  JinjaCall call = {.self = *self, .all = arguments, .count = count};
  for (int i = 0; i < JINJA_ARGUMENTS; i++) call.given[i] = jinja_undefined((JinjaText){"argument", 8});
  bool any = builtin->names[0] && strcmp(builtin->names[0], "*") == 0;
  for (size_t i = 0; i < count && !any; i++) {
    size_t at = i;
    if (arguments[i].name.size > 0) {
      for (at = 0; at < JINJA_ARGUMENTS && builtin->names[at] && !jinja_text_is(arguments[i].name, builtin->names[at]);) at++;
    }
    if (at >= JINJA_ARGUMENTS || !builtin->names[at])
      return jinja_fail(run, STATUS_UNSUPPORTED, "\"%s\" is not supported with these arguments", builtin->name);
    call.given[at] = arguments[i].value;
  }
  if (!any && count < (size_t)builtin->required)
    return jinja_fail(run, STATUS_BAD_VALUE, "\"%s\" needs %d arguments", builtin->name, builtin->required);
  return builtin->call(run, &call, result);
}
