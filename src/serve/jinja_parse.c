/* The tree of a Jinja template. One pass: text up to the next tag, then the tag's tokens, by recursive descent with one token of
 * look-ahead. Grammar and precedence follow Jinja 3's parser: or, and, not, comparison, + -, ~, * / // %, **, unary -, postfix, filters and
 * tests. Invariant: a function that returns NULL has set parser->status and its message; recursion is at most DEPTH_MAX deep. */
#include "serve/jinja_internal.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

enum { DEPTH_MAX = 200 };

typedef enum TokenKind { TOKEN_NAME, TOKEN_STRING, TOKEN_INTEGER, TOKEN_REAL, TOKEN_SIGN, TOKEN_END } TokenKind;

typedef struct Token {
  TokenKind kind;
  JinjaText text; /* as it stands; of a string what it means; of the end "%}" or "}}" */
} Token;

typedef struct Parser {
  const Jinja *template;
  const char *at, *end;
  Token token;
  int line;     /* of the token */
  int brackets; /* that are open inside a tag: there "}}" is two signs */
  int depth;
  int loops;        /* that are open: of break and continue */
  bool line_starts; /* what was read last ended in a newline, or nothing was read */
  Status status;
} Parser;

/* ---- tools */

static void *fail(Parser *parser, Status code, const char *format, ...) __attribute__((format(printf, 3, 4)));
static void *fail(Parser *parser, Status code, const char *format, ...) {
  char message[512];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(message, sizeof message, format, arguments);
  va_end(arguments);
  parser->status = status_set(code, "%s, line %d: %s", parser->template->name, parser->line, message);
  return NULL;
}

static int shown(JinjaText text) { return text.size < 60 ? (int)text.size : 60; } /* bytes of it in a message */

static void *fail_at_token(Parser *parser, const char *wanted) {
  return fail(parser, STATUS_BAD_FILE, "%s is expected where %s\"%.*s\" stands", wanted,
              parser->token.kind == TOKEN_STRING ? "the string " : "", shown(parser->token.text), parser->token.text.bytes);
}

static JinjaNode *node_new(Parser *parser, JinjaNodeKind kind) {
  JinjaNode *node = arena_alloc(parser->template->arena, sizeof *node);
  if (!node) return fail(parser, STATUS_NO_MEMORY, "the template is too large");
  *node = (JinjaNode){.kind = kind, .line = parser->line};
  return node;
}

static JinjaNode *node_over(Parser *parser, JinjaNodeKind kind, JinjaNode *a, JinjaNode *b) {
  JinjaNode *node = a && (b || kind == NODE_NOT || kind == NODE_NEGATE) ? node_new(parser, kind) : NULL;
  if (node) node->a = a, node->b = b;
  return node;
}

static JinjaNode *constant(Parser *parser, JinjaValue value) {
  JinjaNode *node = node_new(parser, NODE_CONSTANT);
  if (node) node->value = value;
  return node;
}

static bool enter(Parser *parser) {
  return ++parser->depth <= DEPTH_MAX || fail(parser, STATUS_UNSUPPORTED, "nested more than %d levels deep", (int)DEPTH_MAX);
}

/* ---- tokens */

static bool is_space(char byte) { return byte == ' ' || (byte >= '\t' && byte <= '\r'); }
static bool is_digit(char byte) { return byte >= '0' && byte <= '9'; }
static bool is_octal(char byte) { return byte >= '0' && byte <= '7'; }
static bool begins_name(char byte) { return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') || byte == '_'; }

static bool starts(const Parser *parser, const char *word) {
  size_t size = strlen(word);
  return (size_t)(parser->end - parser->at) >= size && memcmp(parser->at, word, size) == 0;
}

static void skip_spaces(Parser *parser) {
  for (; parser->at < parser->end && is_space(*parser->at); parser->at++) parser->line += *parser->at == '\n';
}

/* Behind the end of a tag or comment: "-" takes all white space with it, a tag without it one newline (trim_blocks). */
static void skip_behind(Parser *parser, char sign, bool block) {
  if (sign == '-')
    skip_spaces(parser);
  else if (block && sign != '+' && parser->at < parser->end && *parser->at == '\n')
    parser->at++, parser->line++;
  parser->line_starts = parser->at[-1] == '\n';
}

static size_t put_utf8(char *to, unsigned code) {
  if (code < 0x80) return to[0] = (char)code, 1;
  if (code < 0x800) return to[0] = (char)(0xc0 | code >> 6), to[1] = (char)(0x80 | (code & 63)), 2;
  if (code < 0x10000)
    return to[0] = (char)(0xe0 | code >> 12), to[1] = (char)(0x80 | (code >> 6 & 63)), to[2] = (char)(0x80 | (code & 63)), 3;
  to[0] = (char)(0xf0 | code >> 18), to[1] = (char)(0x80 | (code >> 12 & 63));
  return to[2] = (char)(0x80 | (code >> 6 & 63)), to[3] = (char)(0x80 | (code & 63)), 4;
}

static int hex_digit(char byte) {
  if (is_digit(byte)) return byte - '0';
  if (byte >= 'a' && byte <= 'f') return byte - 'a' + 10;
  return byte >= 'A' && byte <= 'F' ? byte - 'A' + 10 : -1;
}

/* A character by its number: `digits` hexadecimal ones behind the letter. */
static size_t put_number(Parser *parser, char letter, int digits, char *to) {
  unsigned code = 0;
  int i = 0;
  for (; i < digits && parser->at < parser->end; i++, parser->at++) {
    const int digit = hex_digit(*parser->at);
    if (digit < 0) break;
    code = code << 4 | (unsigned)digit;
  }
  if (i == digits && code <= 0x10ffff && (code < 0xd800 || code > 0xdfff)) return put_utf8(to, code);
  fail(parser, STATUS_BAD_FILE, "\\%c in a string is followed by the %d hexadecimal digits of a character", letter, digits);
  return 0;
}

/* What stands behind a backslash, as in Python; an unknown letter keeps the backslash. At most as many bytes as it has in the source. */
static size_t put_escape(Parser *parser, char *to) {
  static const char letters[] = "ntr\\'\"abfv", meant[] = "\n\t\r\\'\"\a\b\f\v";
  char letter = *parser->at++;
  const char *place = letter ? strchr(letters, letter) : NULL;
  if (place) return to[0] = meant[place - letters], 1;
  if (letter == '\n') return parser->line++, 0;
  if (letter == 'x' || letter == 'u' || letter == 'U') return put_number(parser, letter, letter == 'x' ? 2 : letter == 'u' ? 4 : 8, to);
  if (letter == 'N') return fail(parser, STATUS_UNSUPPORTED, "\\N in a string, a character by its name, is not supported"), 0;
  if (!is_octal(letter)) return to[0] = '\\', to[1] = letter, 2;
  unsigned code = (unsigned)(letter - '0');
  for (int i = 1; i < 3 && parser->at < parser->end && is_octal(*parser->at); i++) code = code << 3 | (unsigned)(*parser->at++ - '0');
  return put_utf8(to, code);
}

static bool read_string(Parser *parser) {
  char quote = *parser->at++;
  const char *close = parser->at;
  while (close < parser->end && *close != quote) close += *close == '\\' ? 2 : 1;
  if (close >= parser->end) return fail(parser, STATUS_BAD_FILE, "the string that begins here has no end");
  char *text = arena_alloc(parser->template->arena, (size_t)(close - parser->at) + 4);
  if (!text) return fail(parser, STATUS_NO_MEMORY, "the template is too large");
  size_t size = 0;
  while (parser->at < close) {
    char byte = *parser->at++;
    parser->line += byte == '\n';
    if (byte == '\\')
      size += put_escape(parser, text + size);
    else
      text[size++] = byte;
  }
  if (parser->status != STATUS_OK) return false;
  parser->at = close + 1;
  parser->token = (Token){TOKEN_STRING, {text, size}};
  return true;
}

static void read_number(Parser *parser) {
  const char *start = parser->at;
  while (parser->at < parser->end && is_digit(*parser->at)) parser->at++;
  bool real = parser->end - parser->at >= 2 && *parser->at == '.' && is_digit(parser->at[1]);
  if (real) {
    for (parser->at++; parser->at < parser->end && is_digit(*parser->at);) parser->at++;
  }
  if (parser->at < parser->end && (*parser->at | 0x20) == 'e') { /* 1e3, 1.5e-3 */
    const char *digits = parser->at + 1;
    digits += digits < parser->end && (*digits == '-' || *digits == '+');
    if (digits < parser->end && is_digit(*digits)) real = true, parser->at = digits;
    while (real && parser->at < parser->end && is_digit(*parser->at)) parser->at++;
  }
  parser->token = (Token){real ? TOKEN_REAL : TOKEN_INTEGER, {start, (size_t)(parser->at - start)}};
}

/* Reads the next token of a tag. Behind its end the parser is at the text again. */
static bool advance(Parser *parser) {
  static const char *const signs[] = {"**", "//", "==", "!=", "<=", ">=", "(", ")", "[", "]", "{", "}", ",",
                                      ":",  ".",  "|",  "+",  "-",  "*",  "/", "%", "~", "<", ">", "=", NULL};
  skip_spaces(parser);
  if (parser->at >= parser->end) return fail(parser, STATUS_BAD_FILE, "the template ends inside a tag");
  const char *start = parser->at;
  char sign = *start == '-' || *start == '+' ? *start : ' ';
  const char *close = sign == ' ' ? start : start + 1;
  bool block = parser->end - close >= 2 && close[0] == '%' && close[1] == '}',
       output = parser->end - close >= 2 && close[0] == '}' && close[1] == '}';
  if (parser->brackets == 0 && (block || output)) {
    parser->token = (Token){TOKEN_END, {close, 2}};
    parser->at = close + 2;
    skip_behind(parser, sign, block);
    return true;
  }
  if (*start == '"' || *start == '\'') return read_string(parser);
  if (is_digit(*start)) return read_number(parser), true;
  if (begins_name(*start)) {
    while (parser->at < parser->end && (begins_name(*parser->at) || is_digit(*parser->at))) parser->at++;
    parser->token = (Token){TOKEN_NAME, {start, (size_t)(parser->at - start)}};
    return true;
  }
  for (int i = 0; signs[i]; i++) {
    if (!starts(parser, signs[i])) continue;
    size_t size = strlen(signs[i]);
    parser->at += size;
    if (strchr("([{", *start)) parser->brackets++;
    if (strchr(")]}", *start) && --parser->brackets < 0) return fail(parser, STATUS_BAD_FILE, "\"%c\" closes nothing", *start);
    parser->token = (Token){TOKEN_SIGN, {start, size}};
    return true;
  }
  return fail(parser, STATUS_BAD_FILE, "a character that no expression has (0x%02x)", (unsigned)(unsigned char)*start);
}

static bool at_sign(const Parser *parser, const char *sign) {
  return parser->token.kind == TOKEN_SIGN && jinja_text_is(parser->token.text, sign);
}
static bool at_name(const Parser *parser, const char *name) {
  return parser->token.kind == TOKEN_NAME && jinja_text_is(parser->token.text, name);
}
static bool at_end(const Parser *parser, const char *sign) {
  return parser->token.kind == TOKEN_END && jinja_text_is(parser->token.text, sign);
}

static bool expect_sign(Parser *parser, const char *sign) {
  char wanted[8];
  snprintf(wanted, sizeof wanted, "\"%s\"", sign);
  return at_sign(parser, sign) ? advance(parser) : fail_at_token(parser, wanted) != NULL;
}

static bool expect_block_end(Parser *parser) { return at_end(parser, "%}") || fail_at_token(parser, "the end of the tag"); }

static bool take_name(Parser *parser, JinjaText *name) {
  if (parser->token.kind != TOKEN_NAME) return fail_at_token(parser, "a name");
  *name = parser->token.text;
  return advance(parser);
}

/* ---- expressions */

static JinjaNode *parse_expression(Parser *parser);
static JinjaNode *parse_or(Parser *parser);
static JinjaNode *parse_unary(Parser *parser, bool filters);

/* "(" is the token. Arguments, by position or name, up to ")". */
static bool parse_arguments(Parser *parser, JinjaNode **list) {
  if (!advance(parser)) return false;
  while (!at_sign(parser, ")")) {
    JinjaNode *node = node_new(parser, NODE_ARGUMENT);
    if (!node) return false;
    node->a = parse_expression(parser);
    if (!node->a) return false;
    if (at_sign(parser, "=") && node->a->kind == NODE_NAME) {
      node->text = node->a->text;
      if (!advance(parser) || !(node->a = parse_expression(parser))) return false;
    }
    *list = node;
    list = &node->next;
    if (!at_sign(parser, ")") && !expect_sign(parser, ",")) return false;
  }
  return advance(parser);
}

/* Items up to the sign that closes: of a list, or keys and values of a map. */
static JinjaNode *parse_items(Parser *parser, JinjaNodeKind kind, const char *close) {
  JinjaNode *node = node_new(parser, kind);
  if (!node || !advance(parser)) return NULL;
  for (JinjaNode **list = &node->list; !at_sign(parser, close);) {
    if (!(*list = parse_expression(parser))) return NULL;
    list = &(*list)->next;
    if (kind == NODE_MAP) {
      if (!expect_sign(parser, ":") || !(*list = parse_expression(parser))) return NULL;
      list = &(*list)->next;
    }
    if (!at_sign(parser, close) && !expect_sign(parser, ",")) return NULL;
  }
  return advance(parser) ? node : NULL;
}

/* "(" is the token: an expression in parentheses, or a tuple, which is a list here. */
static JinjaNode *parse_parentheses(Parser *parser) {
  JinjaNode *tuple = node_new(parser, NODE_LIST);
  if (!tuple || !advance(parser)) return NULL;
  bool commas = at_sign(parser, ")");
  for (JinjaNode **list = &tuple->list; !at_sign(parser, ")");) {
    if (!(*list = parse_expression(parser))) return NULL;
    list = &(*list)->next;
    if (at_sign(parser, ")")) break;
    if (!expect_sign(parser, ",")) return NULL;
    commas = true;
  }
  tuple->value = jinja_boolean(true);
  return !advance(parser) ? NULL : commas ? tuple : tuple->list;
}

static JinjaNode *parse_strings(Parser *parser) { /* those that stand in a row are one */
  JinjaText text = parser->token.text;
  if (!advance(parser)) return NULL;
  while (parser->token.kind == TOKEN_STRING) {
    JinjaText more = parser->token.text;
    char *joined = arena_alloc(parser->template->arena, text.size + more.size);
    if (!joined) return fail(parser, STATUS_NO_MEMORY, "the template is too large");
    memcpy(joined, text.bytes, text.size);
    memcpy(joined + text.size, more.bytes, more.size);
    text = (JinjaText){joined, text.size + more.size};
    if (!advance(parser)) return NULL;
  }
  return constant(parser, jinja_string(text));
}

static JinjaNode *parse_number(Parser *parser) {
  char digits[64];
  Token token = parser->token;
  if (token.text.size > (token.kind == TOKEN_REAL ? sizeof digits - 1 : 18))
    return fail(parser, STATUS_UNSUPPORTED, "a number with too many digits");
  snprintf(digits, sizeof digits, "%.*s", (int)token.text.size, token.text.bytes);
  JinjaValue value = token.kind == TOKEN_REAL ? jinja_real(strtod(digits, NULL)) : jinja_integer(strtoll(digits, NULL, 10));
  return advance(parser) ? constant(parser, value) : NULL;
}

static JinjaNode *parse_name(Parser *parser) {
  static const struct {
    const char *name;
    JinjaValue value;
  } words[] = {{"true", {.kind = JINJA_BOOLEAN, .boolean = true}},
               {"True", {.kind = JINJA_BOOLEAN, .boolean = true}},
               {"false", {.kind = JINJA_BOOLEAN}},
               {"False", {.kind = JINJA_BOOLEAN}},
               {"none", {.kind = JINJA_NONE}},
               {"None", {.kind = JINJA_NONE}}};
  JinjaText name;
  if (!take_name(parser, &name)) return NULL;
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
    if (jinja_text_is(name, words[i].name)) return constant(parser, words[i].value);
  }
  JinjaNode *node = node_new(parser, NODE_NAME);
  if (node) node->text = name;
  return node;
}

static JinjaNode *parse_primary(Parser *parser) {
  if (parser->token.kind == TOKEN_NAME) return parse_name(parser);
  if (parser->token.kind == TOKEN_STRING) return parse_strings(parser);
  if (parser->token.kind == TOKEN_INTEGER || parser->token.kind == TOKEN_REAL) return parse_number(parser);
  if (at_sign(parser, "(")) return parse_parentheses(parser);
  if (at_sign(parser, "[")) return parse_items(parser, NODE_LIST, "]");
  if (at_sign(parser, "{")) return parse_items(parser, NODE_MAP, "}");
  return fail_at_token(parser, "an expression");
}

/* "[" is the token: an index, or a slice with up to three bounds. */
static JinjaNode *parse_subscript(Parser *parser, JinjaNode *of) {
  JinjaNode *bounds[3] = {NULL}, *node = node_new(parser, NODE_INDEX);
  if (!node || !advance(parser)) return NULL;
  int colons = 0;
  while (!at_sign(parser, "]")) {
    if (at_sign(parser, ":") && colons < 2) {
      colons++;
      if (!advance(parser)) return NULL;
    } else if (bounds[colons]) {
      return fail_at_token(parser, "\"]\"");
    } else if (!(bounds[colons] = parse_expression(parser))) {
      return NULL;
    }
  }
  if (colons == 0 && !bounds[0]) return fail_at_token(parser, "an index");
  node->kind = colons ? NODE_SLICE : NODE_INDEX;
  node->a = of, node->b = bounds[0], node->c = bounds[1], node->list = bounds[2];
  return advance(parser) ? node : NULL;
}

static JinjaNode *parse_call(Parser *parser, JinjaNode *of) {
  JinjaNode *node = node_new(parser, NODE_CALL);
  if (!node || !parse_arguments(parser, &node->list)) return NULL;
  node->a = of;
  return node;
}

static JinjaNode *parse_postfix(Parser *parser, JinjaNode *node) {
  while (node) {
    if (at_sign(parser, "("))
      node = parse_call(parser, node);
    else if (at_sign(parser, "["))
      node = parse_subscript(parser, node);
    else if (at_sign(parser, ".")) {
      JinjaNode *attribute = node_new(parser, NODE_ATTRIBUTE);
      if (!attribute || !advance(parser)) return NULL;
      attribute->a = node;
      if (parser->token.kind == TOKEN_INTEGER) { /* a.0 is a[0] */
        attribute->kind = NODE_INDEX;
        attribute->b = parse_number(parser);
        if (!attribute->b) return NULL;
      } else if (!take_name(parser, &attribute->text))
        return NULL;
      node = attribute;
    } else
      break;
  }
  return node;
}

static JinjaNode *parse_filter(Parser *parser, JinjaNode *of) {
  JinjaNode *node = node_new(parser, NODE_FILTER);
  if (!node || !advance(parser) || !take_name(parser, &node->text)) return NULL;
  node->a = of;
  node->builtin = jinja_builtin(JINJA_FILTERS, node->text);
  if (!node->builtin) return fail(parser, STATUS_UNSUPPORTED, "the filter \"%.*s\" is not supported", shown(node->text), node->text.bytes);
  return !at_sign(parser, "(") || parse_arguments(parser, &node->list) ? node : NULL;
}

static bool begins_test_argument(const Parser *parser) {
  if (parser->token.kind == TOKEN_NAME)
    return !at_name(parser, "else") && !at_name(parser, "or") && !at_name(parser, "and") && !at_name(parser, "if");
  return parser->token.kind == TOKEN_STRING || parser->token.kind == TOKEN_INTEGER || parser->token.kind == TOKEN_REAL ||
         at_sign(parser, "[") || at_sign(parser, "{");
}

static JinjaNode *parse_test(Parser *parser, JinjaNode *of) {
  JinjaNode *node = node_new(parser, NODE_TEST);
  if (!node || !advance(parser)) return NULL;
  bool negated = at_name(parser, "not");
  if (negated && !advance(parser)) return NULL;
  if (!take_name(parser, &node->text)) return NULL;
  node->a = of;
  node->builtin = jinja_builtin(JINJA_TESTS, node->text);
  if (!node->builtin) return fail(parser, STATUS_UNSUPPORTED, "the test \"%.*s\" is not supported", shown(node->text), node->text.bytes);
  if (at_sign(parser, "(")) {
    if (!parse_arguments(parser, &node->list)) return NULL;
  } else if (begins_test_argument(parser)) {
    JinjaNode *argument = node_new(parser, NODE_ARGUMENT);
    if (!argument || !(argument->a = parse_postfix(parser, parse_primary(parser)))) return NULL;
    node->list = argument;
  }
  return negated ? node_over(parser, NODE_NOT, node, NULL) : node;
}

static JinjaNode *parse_unary(Parser *parser, bool filters) {
  if (!enter(parser)) return NULL;
  JinjaNode *node;
  if (at_sign(parser, "-"))
    node = advance(parser) ? node_over(parser, NODE_NEGATE, parse_unary(parser, false), NULL) : NULL;
  else if (at_sign(parser, "+"))
    node = advance(parser) ? parse_unary(parser, false) : NULL;
  else
    node = parse_primary(parser);
  node = parse_postfix(parser, node);
  while (node && filters) {
    if (at_sign(parser, "|"))
      node = parse_filter(parser, node);
    else if (at_name(parser, "is"))
      node = parse_test(parser, node);
    else if (at_sign(parser, "("))
      node = parse_call(parser, node);
    else
      break;
  }
  parser->depth--;
  return node;
}

/* Operators that group from the left, from the loosest to the tightest. */
static JinjaNode *parse_level(Parser *parser, int level) {
  static const struct {
    const char *sign;
    JinjaOperator op;
    int level;
  } signs[] = {{"+", OPERATOR_ADD, 0},    {"-", OPERATOR_SUBTRACT, 0}, {"~", OPERATOR_JOIN, 1},   {"*", OPERATOR_MULTIPLY, 2},
               {"/", OPERATOR_DIVIDE, 2}, {"//", OPERATOR_FLOOR, 2},   {"%", OPERATOR_MODULO, 2}, {"**", OPERATOR_POWER, 3}};
  if (level == 4) return parse_unary(parser, true);
  JinjaNode *node = parse_level(parser, level + 1);
  while (node && parser->token.kind == TOKEN_SIGN) {
    size_t i = 0, count = sizeof signs / sizeof *signs;
    while (i < count && !(signs[i].level == level && jinja_text_is(parser->token.text, signs[i].sign))) i++;
    if (i == count) break;
    if (!advance(parser)) return NULL;
    node = node_over(parser, NODE_BINARY, node, parse_level(parser, level + 1));
    if (node) node->op = signs[i].op;
  }
  return node;
}

static bool at_comparison(const Parser *parser, JinjaOperator *op) {
  static const char *const signs[] = {"==", "!=", "<", "<=", ">", ">="};
  for (int i = 0; i < 6; i++) {
    *op = (JinjaOperator)(OPERATOR_EQUAL + i);
    if (at_sign(parser, signs[i])) return true;
  }
  *op = OPERATOR_IN;
  return at_name(parser, "in");
}

/* a < b < c means a < b and b < c. */
static JinjaNode *parse_comparison(Parser *parser) {
  JinjaNode *left = parse_level(parser, 0), *all = left;
  for (bool first = true; left; first = false) {
    JinjaOperator op;
    if (at_name(parser, "not")) { /* only before "in" */
      if (!advance(parser)) return NULL;
      if (!at_name(parser, "in")) return fail_at_token(parser, "\"in\"");
      op = OPERATOR_NOT_IN;
    } else if (!at_comparison(parser, &op))
      break;
    if (!advance(parser)) return NULL;
    JinjaNode *right = parse_level(parser, 0), *one = node_over(parser, NODE_BINARY, left, right);
    if (!one) return NULL;
    one->op = op;
    all = first ? one : node_over(parser, NODE_AND, all, one);
    left = right;
  }
  return left ? all : NULL;
}

static JinjaNode *parse_not(Parser *parser) {
  if (!at_name(parser, "not")) return parse_comparison(parser);
  if (!enter(parser) || !advance(parser)) return NULL;
  JinjaNode *node = node_over(parser, NODE_NOT, parse_not(parser), NULL);
  parser->depth--;
  return node;
}

static JinjaNode *parse_and(Parser *parser) {
  JinjaNode *node = parse_not(parser);
  while (node && at_name(parser, "and")) node = advance(parser) ? node_over(parser, NODE_AND, node, parse_not(parser)) : NULL;
  return node;
}

static JinjaNode *parse_or(Parser *parser) {
  JinjaNode *node = parse_and(parser);
  while (node && at_name(parser, "or")) node = advance(parser) ? node_over(parser, NODE_OR, node, parse_and(parser)) : NULL;
  return node;
}

static JinjaNode *parse_expression(Parser *parser) {
  if (!enter(parser)) return NULL;
  JinjaNode *node = parse_or(parser);
  while (node && at_name(parser, "if")) {
    JinjaNode *condition = advance(parser) ? node_over(parser, NODE_CONDITION, node, parse_or(parser)) : NULL;
    if (condition && at_name(parser, "else") && !(advance(parser) && (condition->c = parse_expression(parser)))) return NULL;
    node = condition;
  }
  parser->depth--;
  return node;
}

/* ---- statements */

static bool parse_body(Parser *parser, JinjaNode **list, const char *const *ends);

/* Behind the "%}" of a tag: a body up to one of the tags named, whose name is the token then. */
static bool parse_block(Parser *parser, JinjaNode **list, const char *const *ends) {
  return expect_block_end(parser) && parse_body(parser, list, ends);
}

static JinjaNode *parse_if(Parser *parser) {
  static const char *const ends[] = {"elif", "else", "endif", NULL}, *const last[] = {"endif", NULL};
  JinjaNode *first = NULL, **place = &first;
  do {
    JinjaNode *node = advance(parser) ? node_new(parser, NODE_IF) : NULL;
    if (!node || !(node->a = parse_expression(parser)) || !parse_block(parser, &node->list, ends)) return NULL;
    *place = node;
    place = &node->otherwise;
  } while (at_name(parser, "elif"));
  if (at_name(parser, "else") && !(advance(parser) && parse_block(parser, place, last))) return NULL;
  return advance(parser) ? first : NULL;
}

/* Names in a row, as "for" and "set" have them; with `attributes` also NAME.NAME. */
static bool parse_targets(Parser *parser, JinjaNode **list, bool attributes) {
  for (;;) {
    JinjaNode *node = node_new(parser, NODE_NAME);
    if (!node || !take_name(parser, &node->text)) return false;
    if (attributes && at_sign(parser, ".")) {
      JinjaNode *attribute = node_new(parser, NODE_ATTRIBUTE);
      if (!attribute || !advance(parser) || !take_name(parser, &attribute->text)) return false;
      attribute->a = node;
      node = attribute;
    }
    *list = node;
    list = &node->next;
    if (!at_sign(parser, ",")) return true;
    if (!advance(parser)) return false;
  }
}

static JinjaNode *parse_for(Parser *parser) {
  static const char *const ends[] = {"else", "endfor", NULL}, *const last[] = {"endfor", NULL};
  JinjaNode *node = node_new(parser, NODE_FOR);
  bool parentheses = node && advance(parser) && at_sign(parser, "(");
  if (!node || parser->status != STATUS_OK || (parentheses && !advance(parser)) || !parse_targets(parser, &node->b, false) ||
      (parentheses && !expect_sign(parser, ")")))
    return NULL;
  if (!at_name(parser, "in")) return fail_at_token(parser, "\"in\"");
  if (!advance(parser) || !(node->a = parse_or(parser))) return NULL;
  if (at_name(parser, "if") && !(advance(parser) && (node->c = parse_expression(parser)))) return NULL;
  if (at_name(parser, "recursive")) return fail(parser, STATUS_UNSUPPORTED, "recursive loops are not supported");
  parser->loops++;
  if (!parse_block(parser, &node->list, ends)) return NULL;
  parser->loops--;
  if (at_name(parser, "else") && !(advance(parser) && parse_block(parser, &node->otherwise, last))) return NULL;
  return advance(parser) ? node : NULL;
}

static JinjaNode *parse_set(Parser *parser) {
  static const char *const ends[] = {"endset", NULL};
  JinjaNode *node = node_new(parser, NODE_SET);
  if (!node || !advance(parser) || !parse_targets(parser, &node->b, true)) return NULL;
  if (at_sign(parser, "=")) {
    if (!advance(parser) || !(node->a = parse_expression(parser))) return NULL;
    if (!at_sign(parser, ",")) return node;
    JinjaNode *tuple = node_new(parser, NODE_LIST); /* a, b = c, d */
    if (!tuple) return NULL;
    tuple->list = node->a;
    for (JinjaNode **list = &node->a->next; at_sign(parser, ",");) {
      if (!advance(parser) || !(*list = parse_expression(parser))) return NULL;
      list = &(*list)->next;
    }
    node->a = tuple;
    return node;
  }
  if (node->b->next) return fail_at_token(parser, "\"=\"");
  return parse_block(parser, &node->list, ends) && advance(parser) ? node : NULL;
}

static JinjaNode *parse_macro(Parser *parser) {
  static const char *const ends[] = {"endmacro", NULL};
  JinjaNode *node = node_new(parser, NODE_MACRO);
  if (!node || !advance(parser) || !take_name(parser, &node->text) || !expect_sign(parser, "(")) return NULL;
  for (JinjaNode **list = &node->b; !at_sign(parser, ")");) {
    JinjaNode *parameter = node_new(parser, NODE_NAME);
    if (!parameter || !take_name(parser, &parameter->text)) return NULL;
    if (at_sign(parser, "=") && !(advance(parser) && (parameter->a = parse_expression(parser)))) return NULL;
    *list = parameter;
    list = &parameter->next;
    if (!at_sign(parser, ")") && !expect_sign(parser, ",")) return NULL;
  }
  int loops = parser->loops;
  parser->loops = 0;
  if (!advance(parser) || !parse_block(parser, &node->list, ends)) return NULL;
  parser->loops = loops;
  return advance(parser) ? node : NULL;
}

static JinjaNode *parse_generation(Parser *parser) {
  static const char *const ends[] = {"endgeneration", NULL};
  JinjaNode *node = node_new(parser, NODE_GROUP);
  return node && advance(parser) && parse_block(parser, &node->list, ends) && advance(parser) ? node : NULL;
}

static JinjaNode *parse_break(Parser *parser) {
  if (parser->loops == 0)
    return fail(parser, STATUS_BAD_FILE, "\"%.*s\" outside of a loop", shown(parser->token.text), parser->token.text.bytes);
  JinjaNode *node = node_new(parser, at_name(parser, "break") ? NODE_BREAK : NODE_CONTINUE);
  return node && advance(parser) ? node : NULL;
}

/* The token is the tag's name. */
static JinjaNode *parse_tag(Parser *parser) {
  static const struct {
    const char *name;
    JinjaNode *(*parse)(Parser *);
  } tags[] = {{"if", parse_if},
              {"for", parse_for},
              {"set", parse_set},
              {"macro", parse_macro},
              {"break", parse_break},
              {"continue", parse_break},
              {"generation", parse_generation}};
  for (size_t i = 0; i < sizeof tags / sizeof *tags; i++) {
    if (at_name(parser, tags[i].name)) {
      JinjaNode *node = tags[i].parse(parser);
      return node && expect_block_end(parser) ? node : NULL;
    }
  }
  if (parser->token.kind != TOKEN_NAME) return fail_at_token(parser, "the name of a tag");
  JinjaText name = parser->token.text;
  if (name.size > 3 && memcmp(name.bytes, "end", 3) == 0)
    return fail(parser, STATUS_BAD_FILE, "\"%.*s\" ends nothing that is open", shown(name), name.bytes);
  return fail(parser, STATUS_UNSUPPORTED, "the tag \"%.*s\" is not supported", shown(name), name.bytes);
}

/* The text before the next tag, without what "-" or lstrip_blocks take from its end. `what` is the second character of the tag's opening,
 * NUL at the end of the template; the parser is behind the opening. */
static JinjaText read_text(Parser *parser, char *what) {
  const char *start = parser->at, *tag = start;
  while (tag + 1 < parser->end && !(tag[0] == '{' && (tag[1] == '{' || tag[1] == '%' || tag[1] == '#'))) tag++;
  if (tag + 1 >= parser->end) tag = parser->end;
  for (const char *at = start; at < tag; at++) parser->line += *at == '\n';
  parser->at = tag;
  *what = '\0';
  if (tag == parser->end) return (JinjaText){start, (size_t)(tag - start)};
  *what = tag[1];
  parser->at = tag + 2;
  char sign = parser->at < parser->end ? *parser->at : ' ';
  const char *end = tag;
  if (sign == '-') {
    while (end > start && is_space(end[-1])) end--;
  } else if (sign != '+' && *what != '{') {
    const char *line = tag;
    while (line > start && is_space(line[-1]) && line[-1] != '\n') line--;
    if (line > start ? line[-1] == '\n' : parser->line_starts) end = line;
  }
  if (sign == '-' || sign == '+') parser->at++;
  return (JinjaText){start, (size_t)(end - start)};
}

static bool skip_comment(Parser *parser) {
  const char *end = parser->at;
  while (end + 1 < parser->end && !(end[0] == '#' && end[1] == '}')) end++;
  if (end + 1 >= parser->end) return fail(parser, STATUS_BAD_FILE, "the comment that begins here has no end");
  for (const char *at = parser->at; at < end; at++) parser->line += *at == '\n';
  char sign = end > parser->at ? end[-1] : ' ';
  parser->at = end + 2;
  skip_behind(parser, sign, true);
  return true;
}

static JinjaNode *parse_output(Parser *parser) {
  JinjaNode *node = advance(parser) ? node_new(parser, NODE_OUTPUT) : NULL;
  if (!node || !(node->a = parse_expression(parser))) return NULL;
  return at_end(parser, "}}") ? node : fail_at_token(parser, "\"}}\"");
}

static bool at_one_of(const Parser *parser, const char *const *names) {
  while (*names && !at_name(parser, *names)) names++;
  return *names != NULL;
}

/* Text and tags up to one of the tags in `ends`, whose name is the token then; NULL: up to the end of the template. */
static bool parse_body(Parser *parser, JinjaNode **list, const char *const *ends) {
  int opened = parser->line;
  if (!enter(parser)) return false;
  for (;;) {
    char what;
    JinjaText text = read_text(parser, &what);
    JinjaNode *node = NULL;
    if (text.size > 0) {
      if (!(node = node_new(parser, NODE_TEXT))) return false;
      node->text = text;
      *list = node;
      list = &node->next;
    }
    if (what == '\0') {
      if (ends) return fail(parser, STATUS_BAD_FILE, "the template ends before \"%s\" (opened in line %d)", ends[0], opened);
      break;
    }
    if (what == '#') {
      if (!skip_comment(parser)) return false;
      continue;
    }
    if (what == '%') {
      if (!advance(parser)) return false;
      if (ends && at_one_of(parser, ends)) break;
      node = parse_tag(parser);
    } else {
      node = parse_output(parser);
    }
    if (!node) return false;
    *list = node;
    list = &node->next;
  }
  parser->depth--;
  return true;
}

Status jinja_parse_source(Jinja *template, size_t size) {
  Parser parser = {.template = template, .at = template->source, .end = template->source + size, .line = 1, .line_starts = true};
  parse_body(&parser, &template->body, NULL);
  return parser.status;
}
