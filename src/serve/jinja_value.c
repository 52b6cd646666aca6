/* Values of Jinja templates, with Python's rules: truth, order, arithmetic, slices, and how a value is written, plain or as JSON; and what
 * making them takes of a rendering: steps, memory, output.
 * Leaves out: keys of maps that are no strings; formatting with %; complex slices of maps. */
#include "serve/jinja_internal.h"
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

enum { REPEAT_MAX = 1 << 20 };

/* ---- steps, memory and output of a rendering */

Status jinja_fail(const JinjaRun *run, Status code, const char *format, ...) {
  char message[512];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(message, sizeof message, format, arguments);
  va_end(arguments);
  return status_set(code, "%s, line %d: %s", run->template->name, run->line, message);
}

Status jinja_charge(JinjaRun *run, size_t amount) {
  if (amount > run->steps)
    return jinja_fail(run, STATUS_BAD_VALUE, "the template takes more than %llu steps", (unsigned long long)run->limits->steps);
  run->steps -= amount;
  return STATUS_OK;
}

Status jinja_alloc(JinjaRun *run, size_t bytes, void *block) {
  void *fresh = arena_alloc(run->arena, bytes);
  if (!fresh) return jinja_fail(run, STATUS_BAD_VALUE, "the template makes more than %zu MiB of values", arena_reserved(run->arena) >> 20);
  memcpy(block, &fresh, sizeof fresh);
  return STATUS_OK;
}

Status jinja_write(JinjaRun *run, JinjaText text) {
  if (text.size > run->limits->output - run->size)
    return jinja_fail(run, STATUS_BAD_VALUE, "the template writes more than %zu bytes", run->limits->output);
  if (run->size + text.size + 1 > run->room) {
    size_t room = 2 * run->room > run->size + text.size + 1 ? 2 * run->room : run->size + text.size + 1024;
    char *output = realloc(run->output, room);
    if (!output) return status_no_memory(run->template->name, "the text");
    run->output = output;
    run->room = room;
  }
  if (text.size) memcpy(run->output + run->size, text.bytes, text.size);
  run->size += text.size;
  return STATUS_OK;
}

Status jinja_capture(JinjaRun *run, size_t start, JinjaText *text) {
  char *bytes = NULL;
  size_t size = run->size - start;
  TRY(jinja_charge(run, size / 64));
  TRY(jinja_alloc(run, size, &bytes));
  if (size) memcpy(bytes, run->output + start, size);
  run->size = start;
  *text = (JinjaText){bytes, size};
  return STATUS_OK;
}

/* ---- what a value is */

const char *jinja_kind_name(JinjaKind kind) {
  static const char *const names[] = {"undefined", "none",   "a boolean", "an integer", "a number",
                                      "a string",  "a list", "a mapping", "a function", "a macro"};
  return names[kind];
}

static bool is_number(const JinjaValue *value) {
  return value->kind == JINJA_BOOLEAN || value->kind == JINJA_INTEGER || value->kind == JINJA_REAL;
}
static int64_t whole(const JinjaValue *value) { return value->kind == JINJA_BOOLEAN ? value->boolean : value->integer; }
static double number(const JinjaValue *value) { return value->kind == JINJA_REAL ? value->real : (double)whole(value); }

bool jinja_true(const JinjaValue *value) {
  switch (value->kind) {
  case JINJA_UNDEFINED:
  case JINJA_NONE:
    return false;
  case JINJA_BOOLEAN:
    return value->boolean;
  case JINJA_INTEGER:
    return value->integer != 0;
  case JINJA_REAL:
    return value->real != 0;
  case JINJA_STRING:
    return value->text.size > 0;
  case JINJA_LIST:
    return value->list->generator || value->list->count > 0;
  case JINJA_MAP:
    return value->map->writable || value->map->count > 0;
  default:
    return true;
  }
}

/* ---- lists and maps */

Status jinja_list_new(JinjaRun *run, size_t count, JinjaValue *value) {
  *value = (JinjaValue){.kind = JINJA_LIST};
  TRY(jinja_charge(run, count));
  TRY(jinja_alloc(run, sizeof *value->list, &value->list));
  *value->list = (JinjaList){.count = count};
  return count ? jinja_alloc(run, count * sizeof *value->list->items, &value->list->items) : STATUS_OK;
}

Status jinja_map_new(JinjaRun *run, size_t room, JinjaValue *value) {
  *value = (JinjaValue){.kind = JINJA_MAP};
  TRY(jinja_alloc(run, sizeof *value->map, &value->map));
  *value->map = (JinjaMap){.room = room};
  return room ? jinja_alloc(run, room * sizeof *value->map->pairs, &value->map->pairs) : STATUS_OK;
}

static Status find_pair(JinjaRun *run, const JinjaMap *map, JinjaText key, JinjaPair **pair) {
  TRY(jinja_charge(run, map->count));
  *pair = NULL;
  for (size_t i = 0; i < map->count && !*pair; i++) {
    if (jinja_text_equal(map->pairs[i].key, key)) *pair = &map->pairs[i];
  }
  return STATUS_OK;
}

Status jinja_map_find(JinjaRun *run, const JinjaMap *map, JinjaText key, const JinjaValue **value) {
  JinjaPair *pair;
  TRY(find_pair(run, map, key, &pair));
  *value = pair ? &pair->value : NULL;
  return STATUS_OK;
}

Status jinja_map_put(JinjaRun *run, JinjaMap *map, JinjaText key, JinjaValue value) {
  JinjaPair *pair;
  TRY(find_pair(run, map, key, &pair));
  if (!pair && map->count == map->room) {
    size_t room = map->room ? 2 * map->room : 4;
    TRY(jinja_alloc(run, room * sizeof *pair, &pair));
    if (map->count) memcpy(pair, map->pairs, map->count * sizeof *pair);
    map->pairs = pair;
    map->room = room;
    pair = NULL;
  }
  if (!pair) pair = &map->pairs[map->count++];
  *pair = (JinjaPair){key, value};
  return STATUS_OK;
}

/* ---- characters, items, attributes */

static size_t characters(JinjaText text) {
  size_t count = 0;
  for (size_t at = 0; at < text.size; at += jinja_character(text, at)) count++;
  return count;
}

JinjaText jinja_characters(JinjaText text, size_t from, size_t to) {
  size_t start = 0, end;
  for (; from > 0; from--, to--) start += jinja_character(text, start);
  for (end = start; to > 0; to--) end += jinja_character(text, end);
  return (JinjaText){text.bytes + start, end - start};
}

Status jinja_count(JinjaRun *run, const JinjaValue *value, size_t *count) {
  *count = 0;
  switch (value->kind) {
  case JINJA_LIST:
    return *count = value->list->count, STATUS_OK;
  case JINJA_MAP:
    return *count = value->map->count, STATUS_OK;
  case JINJA_STRING:
    TRY(jinja_charge(run, value->text.size / 64));
    return *count = characters(value->text), STATUS_OK;
  case JINJA_UNDEFINED:
    return STATUS_OK;
  default:
    return jinja_fail(run, STATUS_BAD_VALUE, "%s has no items", jinja_kind_name(value->kind));
  }
}

Status jinja_items(JinjaRun *run, const JinjaValue *value, JinjaList *items) {
  JinjaValue list;
  *items = (JinjaList){.count = 0};
  if (value->kind == JINJA_LIST) return *items = *value->list, STATUS_OK;
  if (value->kind == JINJA_UNDEFINED) return STATUS_OK;
  if (value->kind == JINJA_MAP) {
    TRY(jinja_list_new(run, value->map->count, &list));
    for (size_t i = 0; i < list.list->count; i++) list.list->items[i] = jinja_string(value->map->pairs[i].key);
  } else if (value->kind == JINJA_STRING) {
    TRY(jinja_charge(run, value->text.size));
    TRY(jinja_list_new(run, characters(value->text), &list));
    for (size_t i = 0, at = 0; i < list.list->count; i++) {
      size_t size = jinja_character(value->text, at);
      list.list->items[i] = jinja_string((JinjaText){value->text.bytes + at, size});
      at += size;
    }
  } else {
    return jinja_fail(run, STATUS_BAD_VALUE, "%s has no items", jinja_kind_name(value->kind));
  }
  *items = *list.list;
  return STATUS_OK;
}

Status jinja_attribute(JinjaRun *run, const JinjaValue *value, JinjaText name, JinjaValue *result) {
  *result = jinja_undefined(name);
  if (value->kind == JINJA_UNDEFINED)
    return jinja_fail(run, STATUS_BAD_VALUE, "\"%.*s\" is undefined, so it has no \"%.*s\"", jinja_shown(value->text), value->text.bytes,
                      jinja_shown(name), name.bytes);
  if (value->kind != JINJA_MAP) return STATUS_OK;
  const JinjaValue *found;
  TRY(jinja_map_find(run, value->map, name, &found));
  if (found) *result = *found;
  return STATUS_OK;
}

/* A bound of a slice within [low, high]; where it is left out, `absent`. */
static Status slice_bound(JinjaRun *run, const JinjaValue *bound, int64_t count, int64_t low, int64_t high, int64_t absent, int64_t *at) {
  *at = absent;
  if (!bound || bound->kind == JINJA_NONE) return STATUS_OK;
  if (bound->kind != JINJA_INTEGER && bound->kind != JINJA_BOOLEAN)
    return jinja_fail(run, STATUS_BAD_VALUE, "the bound of a slice is %s", jinja_kind_name(bound->kind));
  *at = whole(bound);
  if (*at < 0) *at = *at < -count ? low : *at + count;
  *at = *at < low ? low : *at > high ? high : *at;
  return STATUS_OK;
}

Status jinja_slice(JinjaRun *run, const JinjaValue *value, const JinjaValue *bounds[3], JinjaValue *result) {
  if (value->kind != JINJA_LIST && value->kind != JINJA_STRING)
    return jinja_fail(run, STATUS_BAD_VALUE, "%s cannot be sliced", jinja_kind_name(value->kind));
  size_t length;
  TRY(jinja_count(run, value, &length));
  int64_t count = (int64_t)length, step = 1, from, to;
  if (bounds[2] && bounds[2]->kind == JINJA_INTEGER) step = bounds[2]->integer;
  if (step == 0) return jinja_fail(run, STATUS_BAD_VALUE, "the step of a slice is 0");
  step = step > count ? count + 1 : step < -count ? -count - 1 : step;
  TRY(slice_bound(run, bounds[0], count, step > 0 ? 0 : -1, step > 0 ? count : count - 1, step > 0 ? 0 : count - 1, &from));
  TRY(slice_bound(run, bounds[1], count, step > 0 ? 0 : -1, step > 0 ? count : count - 1, step > 0 ? count : -1, &to));
  int64_t size = step > 0 ? (to - from + step - 1) / step : (from - to - step - 1) / -step;
  if (value->kind == JINJA_STRING && step == 1) { /* one piece of the text */
    *result = jinja_string(size > 0 ? jinja_characters(value->text, (size_t)from, (size_t)to) : (JinjaText){"", 0});
    return STATUS_OK;
  }
  JinjaList items;
  TRY(jinja_items(run, value, &items));
  TRY(jinja_list_new(run, size > 0 ? (size_t)size : 0, result));
  for (size_t i = 0; i < result->list->count; i++) result->list->items[i] = items.items[from + (int64_t)i * step];
  if (value->kind == JINJA_LIST) return STATUS_OK;
  size_t start = run->size;
  for (size_t i = 0; i < result->list->count; i++) TRY(jinja_write(run, result->list->items[i].text));
  JinjaText text;
  TRY(jinja_capture(run, start, &text));
  *result = jinja_string(text);
  return STATUS_OK;
}

/* ---- comparison */

static Status equal_within(JinjaRun *run, const JinjaValue *a, const JinjaValue *b, int depth, bool *equal) {
  *equal = false;
  if (depth > JINJA_NESTING) return jinja_fail(run, STATUS_BAD_VALUE, "values nested more than %d levels deep", (int)JINJA_NESTING);
  if (is_number(a) && is_number(b)) {
    *equal = a->kind == JINJA_REAL || b->kind == JINJA_REAL ? number(a) == number(b) : whole(a) == whole(b);
    return STATUS_OK;
  }
  if (a->kind != b->kind) return STATUS_OK;
  switch (a->kind) {
  case JINJA_STRING:
    *equal = jinja_text_equal(a->text, b->text);
    return jinja_charge(run, a->text.size / 64);
  case JINJA_LIST:
    TRY(jinja_charge(run, a->list->count));
    *equal = a->list->count == b->list->count;
    for (size_t i = 0; i < a->list->count && *equal; i++) TRY(equal_within(run, &a->list->items[i], &b->list->items[i], depth + 1, equal));
    return STATUS_OK;
  case JINJA_MAP:
    *equal = a->map->count == b->map->count;
    for (size_t i = 0; i < a->map->count && *equal; i++) {
      const JinjaValue *other;
      TRY(jinja_map_find(run, b->map, a->map->pairs[i].key, &other));
      *equal = other != NULL;
      if (other) TRY(equal_within(run, &a->map->pairs[i].value, other, depth + 1, equal));
    }
    return STATUS_OK;
  case JINJA_FUNCTION:
    *equal = a->function == b->function;
    return STATUS_OK;
  case JINJA_MACRO:
    *equal = a->macro == b->macro;
    return STATUS_OK;
  default:
    *equal = true;
    return STATUS_OK; /* undefined, none */
  }
}

static Status less_than(JinjaRun *run, const JinjaValue *a, const JinjaValue *b, bool *less) {
  if (is_number(a) && is_number(b)) return *less = number(a) < number(b), STATUS_OK;
  if (a->kind != JINJA_STRING || b->kind != JINJA_STRING)
    return jinja_fail(run, STATUS_BAD_VALUE, "%s and %s have no order", jinja_kind_name(a->kind), jinja_kind_name(b->kind));
  size_t size = a->text.size < b->text.size ? a->text.size : b->text.size;
  int order = memcmp(a->text.bytes, b->text.bytes, size);
  *less = order ? order < 0 : a->text.size < b->text.size;
  return jinja_charge(run, size / 64);
}

static Status contains(JinjaRun *run, const JinjaValue *container, const JinjaValue *item, bool *found) {
  *found = false;
  if (container->kind == JINJA_STRING && item->kind == JINJA_STRING) {
    *found = item->text.size == 0 || memmem(container->text.bytes, container->text.size, item->text.bytes, item->text.size);
    return jinja_charge(run, container->text.size / 64);
  }
  if (container->kind == JINJA_MAP && item->kind == JINJA_STRING) {
    const JinjaValue *value;
    TRY(jinja_map_find(run, container->map, item->text, &value));
    *found = value != NULL;
    return STATUS_OK;
  }
  if (container->kind == JINJA_STRING ||
      (container->kind != JINJA_LIST && container->kind != JINJA_MAP && container->kind != JINJA_UNDEFINED))
    return jinja_fail(run, STATUS_BAD_VALUE, "%s cannot be in %s", jinja_kind_name(item->kind), jinja_kind_name(container->kind));
  for (size_t i = 0; container->kind == JINJA_LIST && i < container->list->count && !*found; i++) {
    TRY(jinja_charge(run, 1));
    TRY(equal_within(run, &container->list->items[i], item, 0, found));
  }
  return STATUS_OK;
}

/* ---- operators */

static Status no_operation(JinjaRun *run, const JinjaValue *a, const JinjaValue *b) {
  return jinja_fail(run, STATUS_BAD_VALUE, "the operation is not defined for %s and %s", jinja_kind_name(a->kind),
                    jinja_kind_name(b->kind));
}

static Status concatenate(JinjaRun *run, JinjaText a, JinjaText b, JinjaValue *result) {
  char *bytes = NULL;
  TRY(jinja_charge(run, (a.size + b.size) / 64));
  TRY(jinja_alloc(run, a.size + b.size, &bytes));
  memcpy(bytes, a.bytes, a.size);
  memcpy(bytes + a.size, b.bytes, b.size);
  *result = jinja_string((JinjaText){bytes, a.size + b.size});
  return STATUS_OK;
}

static Status add_lists(JinjaRun *run, const JinjaList *a, const JinjaList *b, JinjaValue *result) {
  TRY(jinja_list_new(run, a->count + b->count, result));
  if (a->count) memcpy(result->list->items, a->items, a->count * sizeof *a->items);
  if (b->count) memcpy(result->list->items + a->count, b->items, b->count * sizeof *b->items);
  return STATUS_OK;
}

static Status repeat_text(JinjaRun *run, JinjaText text, int64_t times, JinjaValue *result) {
  size_t start = run->size;
  if (times > REPEAT_MAX) return jinja_fail(run, STATUS_BAD_VALUE, "a string is repeated more than %d times", (int)REPEAT_MAX);
  for (int64_t i = 0; i < times && text.size > 0; i++) TRY(jinja_write(run, text));
  JinjaText all;
  TRY(jinja_capture(run, start, &all));
  *result = jinja_string(all);
  return STATUS_OK;
}

static Status whole_arithmetic(JinjaRun *run, JinjaOperator op, int64_t a, int64_t b, JinjaValue *result) {
  int64_t value = 0;
  bool overflow = false;
  if ((op == OPERATOR_FLOOR || op == OPERATOR_MODULO) && (b == 0 || b == -1)) {
    if (b == 0) return jinja_fail(run, STATUS_BAD_VALUE, "division by zero");
    overflow = op == OPERATOR_FLOOR && __builtin_sub_overflow(0, a, &value); /* INT64_MIN / -1 */
  } else {
    switch (op) {
    case OPERATOR_ADD:
      overflow = __builtin_add_overflow(a, b, &value);
      break;
    case OPERATOR_SUBTRACT:
      overflow = __builtin_sub_overflow(a, b, &value);
      break;
    case OPERATOR_MULTIPLY:
      overflow = __builtin_mul_overflow(a, b, &value);
      break;
    case OPERATOR_FLOOR:
      value = a / b - (a % b != 0 && (a < 0) != (b < 0));
      break; /* towards minus infinity */
    default:
      value = a % b + (a % b != 0 && (a < 0) != (b < 0) ? b : 0);
      break; /* with the sign of b */
    }
  }
  *result = jinja_integer(value);
  return overflow ? jinja_fail(run, STATUS_BAD_VALUE, "the result has more than 64 bits") : STATUS_OK;
}

static Status arithmetic(JinjaRun *run, JinjaOperator op, const JinjaValue *a, const JinjaValue *b, JinjaValue *result) {
  bool real = a->kind == JINJA_REAL || b->kind == JINJA_REAL;
  if (!real && op != OPERATOR_DIVIDE && op != OPERATOR_POWER) return whole_arithmetic(run, op, whole(a), whole(b), result);
  double x = number(a), y = number(b), value;
  if (y == 0 && (op == OPERATOR_DIVIDE || op == OPERATOR_FLOOR || op == OPERATOR_MODULO))
    return jinja_fail(run, STATUS_BAD_VALUE, "division by zero");
  switch (op) {
  case OPERATOR_ADD:
    value = x + y;
    break;
  case OPERATOR_SUBTRACT:
    value = x - y;
    break;
  case OPERATOR_MULTIPLY:
    value = x * y;
    break;
  case OPERATOR_DIVIDE:
    value = x / y;
    break;
  case OPERATOR_FLOOR:
    value = floor(x / y);
    break;
  case OPERATOR_MODULO:
    value = x - floor(x / y) * y;
    break;
  default:
    value = pow(x, y);
    break;
  }
  *result = jinja_real(value);
  if (!real && op == OPERATOR_POWER && y >= 0) {
    if (fabs(value) > 9007199254740992.0) return jinja_fail(run, STATUS_BAD_VALUE, "the result has more than 53 bits");
    *result = jinja_integer((int64_t)value);
  }
  return STATUS_OK;
}

Status jinja_binary(JinjaRun *run, JinjaOperator op, const JinjaValue *a, const JinjaValue *b, JinjaValue *result) {
  bool truth = false;
  switch (op) {
  case OPERATOR_JOIN: {
    JinjaText x, y;
    TRY(jinja_to_text(run, a, &x));
    TRY(jinja_to_text(run, b, &y));
    return concatenate(run, x, y, result);
  }
  case OPERATOR_EQUAL:
  case OPERATOR_NOT_EQUAL:
    TRY(equal_within(run, a, b, 0, &truth));
    break;
  case OPERATOR_LESS:
  case OPERATOR_GREATER_EQUAL:
    TRY(less_than(run, a, b, &truth));
    break;
  case OPERATOR_GREATER:
  case OPERATOR_LESS_EQUAL:
    TRY(less_than(run, b, a, &truth));
    break;
  case OPERATOR_IN:
  case OPERATOR_NOT_IN:
    TRY(contains(run, b, a, &truth));
    break;
  default:
    if (is_number(a) && is_number(b)) return arithmetic(run, op, a, b, result);
    if (op == OPERATOR_ADD && a->kind == JINJA_STRING && b->kind == JINJA_STRING) return concatenate(run, a->text, b->text, result);
    if (op == OPERATOR_ADD && a->kind == JINJA_LIST && b->kind == JINJA_LIST) return add_lists(run, a->list, b->list, result);
    if (op == OPERATOR_MULTIPLY && a->kind == JINJA_STRING && b->kind == JINJA_INTEGER)
      return repeat_text(run, a->text, b->integer, result);
    return no_operation(run, a, b);
  }
  bool inverted = op == OPERATOR_NOT_EQUAL || op == OPERATOR_NOT_IN || op == OPERATOR_GREATER_EQUAL || op == OPERATOR_LESS_EQUAL;
  *result = jinja_boolean(truth != inverted);
  return STATUS_OK;
}

/* ---- writing */

static Status write_string(JinjaRun *run, const char *text) { return jinja_write(run, (JinjaText){text, strlen(text)}); }

/* The shortest digits that give the same number again, as Python's repr does. */
static Status write_real(JinjaRun *run, double value, bool json) {
  char text[64];
  if (!isfinite(value)) {
    const char *sign = value < 0 ? "-" : "";
    if (isnan(value)) return write_string(run, json ? "NaN" : "nan");
    TRY(write_string(run, sign));
    return write_string(run, json ? "Infinity" : "inf");
  }
  int digits = 0;
  do snprintf(text, sizeof text, "%.*e", digits++, value);
  while (digits < 17 && strtod(text, NULL) != value);
  int exponent = atoi(strchr(text, 'e') + 1);
  if (exponent >= -4 && exponent < 16) {
    int places = digits - 1 - exponent;
    snprintf(text, sizeof text, "%.*f", places > 0 ? places : 1, value);
  }
  return write_string(run, text);
}

static Status write_scalar(JinjaRun *run, const JinjaValue *value, bool json) {
  char digits[32];
  switch (value->kind) {
  case JINJA_UNDEFINED:
    return json ? jinja_fail(run, STATUS_BAD_VALUE, "what is undefined has no JSON") : STATUS_OK;
  case JINJA_NONE:
    return write_string(run, json ? "null" : "None");
  case JINJA_BOOLEAN:
    return write_string(run, json ? (value->boolean ? "true" : "false") : value->boolean ? "True" : "False");
  case JINJA_INTEGER:
    snprintf(digits, sizeof digits, "%lld", (long long)value->integer);
    return write_string(run, digits);
  case JINJA_REAL:
    return write_real(run, value->real, json);
  default:
    return jinja_fail(run, STATUS_BAD_VALUE, "%s cannot be written", jinja_kind_name(value->kind));
  }
}

/* In quotes, as JSON with ensure_ascii=False, or as Python's repr: then in single quotes unless only these occur. */
static Status write_quoted(JinjaRun *run, JinjaText text, bool json) {
  static const char letters[] = "\n\t\r\b\f", names[] = "ntrbf";
  bool both = memchr(text.bytes, '"', text.size) != NULL || !memchr(text.bytes, '\'', text.size);
  char quote = json || !both ? '"' : '\'';
  TRY(jinja_write(run, (JinjaText){&quote, 1}));
  size_t done = 0;
  for (size_t i = 0; i < text.size; i++) {
    char byte = text.bytes[i], escape[8] = {'\\', byte};
    const char *letter = byte ? strchr(letters, byte) : NULL;
    if (letter && (json || letter - letters < 3))
      escape[1] = names[letter - letters];
    else if ((unsigned char)byte < 0x20)
      snprintf(escape, sizeof escape, json ? "\\u%04x" : "\\x%02x", (unsigned)byte);
    else if (byte != '\\' && byte != quote)
      continue;
    TRY(jinja_write(run, (JinjaText){text.bytes + done, i - done}));
    TRY(write_string(run, escape));
    done = i + 1;
  }
  TRY(jinja_write(run, (JinjaText){text.bytes + done, text.size - done}));
  return jinja_write(run, (JinjaText){&quote, 1});
}

static Status write_within(JinjaRun *run, const JinjaValue *value, const JinjaForm *form, int depth);

static Status write_break(JinjaRun *run, const JinjaForm *form, int depth) {
  if (form->indent < 0) return STATUS_OK;
  TRY(write_string(run, "\n"));
  for (int i = 0; i < depth * form->indent; i++) TRY(write_string(run, " "));
  return STATUS_OK;
}

static int compare_keys(const void *a, const void *b) {
  JinjaText first = ((const JinjaPair *)a)->key, second = ((const JinjaPair *)b)->key;
  int order = memcmp(first.bytes, second.bytes, first.size < second.size ? first.size : second.size);
  return order ? order : (first.size > second.size) - (first.size < second.size);
}

/* The members by their keys; as keys are UTF-8, the order of their bytes is that of their characters, which is Python's. */
static Status sort_pairs(JinjaRun *run, const JinjaMap *map, const JinjaPair **pairs) {
  JinjaPair *sorted = NULL;
  TRY(jinja_charge(run, map->count));
  TRY(jinja_alloc(run, map->count * sizeof *sorted, &sorted));
  if (map->count > 0) {
    memcpy(sorted, map->pairs, map->count * sizeof *sorted);
    qsort(sorted, map->count, sizeof *sorted, compare_keys);
  }
  *pairs = sorted;
  return STATUS_OK;
}

static Status write_items(JinjaRun *run, const JinjaValue *value, const JinjaForm *form, int depth) {
  bool map = value->kind == JINJA_MAP;
  size_t count = map ? value->map->count : value->list->count;
  bool tuple = !map && value->list->tuple && !form->json;
  const JinjaPair *pairs = map ? value->map->pairs : NULL;
  if (map && form->sorted) TRY(sort_pairs(run, value->map, &pairs));
  TRY(write_string(run, map ? "{" : tuple ? "(" : "["));
  for (size_t i = 0; i < count; i++) {
    TRY(jinja_charge(run, 1));
    if (i > 0) TRY(form->separators ? jinja_write(run, form->separators[0]) : write_string(run, form->indent < 0 ? ", " : ","));
    TRY(write_break(run, form, depth + 1));
    if (map) {
      TRY(write_quoted(run, pairs[i].key, form->json));
      TRY(form->separators ? jinja_write(run, form->separators[1]) : write_string(run, ": "));
    }
    TRY(write_within(run, map ? &pairs[i].value : &value->list->items[i], form, depth + 1));
  }
  if (count > 0) TRY(write_break(run, form, depth));
  return write_string(run, map ? "}" : !tuple ? "]" : count == 1 ? ",)" : ")");
}

static Status write_within(JinjaRun *run, const JinjaValue *value, const JinjaForm *form, int depth) {
  if (depth > JINJA_NESTING) return jinja_fail(run, STATUS_BAD_VALUE, "values nested more than %d levels deep", (int)JINJA_NESTING);
  if (value->kind == JINJA_STRING) return write_quoted(run, value->text, form->json);
  if (value->kind == JINJA_LIST || value->kind == JINJA_MAP) return write_items(run, value, form, depth);
  return write_scalar(run, value, form->json);
}

Status jinja_write_value(JinjaRun *run, const JinjaValue *value, const JinjaForm *form) {
  if (!form && value->kind == JINJA_STRING) return jinja_write(run, value->text);
  return write_within(run, value, form ? form : &(JinjaForm){.indent = -1}, 0);
}

Status jinja_to_text(JinjaRun *run, const JinjaValue *value, JinjaText *text) {
  if (value->kind == JINJA_STRING) return *text = value->text, STATUS_OK;
  size_t start = run->size;
  TRY(jinja_write_value(run, value, NULL));
  return jinja_capture(run, start, text);
}
