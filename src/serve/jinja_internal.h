/* What the parts of the Jinja interpreter share: the tree that jinja_parse.c makes of a template, values and the state of the
 * rendering that makes them (jinja_value.c), filters, tests, methods and functions (jinja_builtins.c). jinja.c puts them together. */
#ifndef SERVE_JINJA_INTERNAL_H
#define SERVE_JINJA_INTERNAL_H
#include "base/arena.h"
#include "base/utf8.h"
#include "serve/jinja.h"
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* ---- values: plain data, whose texts, lists and maps live in the arena of the rendering, in the template or in the caller's JSON */

typedef struct JinjaText {
  const char *bytes;
  size_t size;
} JinjaText;

typedef enum JinjaKind {
  JINJA_UNDEFINED, /* text: the name that has no value */
  JINJA_NONE,
  JINJA_BOOLEAN,
  JINJA_INTEGER,
  JINJA_REAL,
  JINJA_STRING,
  JINJA_LIST,
  JINJA_MAP,
  JINJA_FUNCTION, /* a builtin */
  JINJA_MACRO
} JinjaKind;

typedef struct JinjaNode JinjaNode;
typedef struct JinjaList JinjaList;
typedef struct JinjaMap JinjaMap;
typedef struct JinjaBuiltin JinjaBuiltin;
typedef struct JinjaMacro JinjaMacro;

typedef struct JinjaValue {
  JinjaKind kind;
  union {
    bool boolean;
    int64_t integer;
    double real;
    JinjaText text;
    JinjaList *list;
    JinjaMap *map;
    const JinjaBuiltin *function;
    const JinjaMacro *macro;
  };
} JinjaValue;

struct JinjaList {
  JinjaValue *items;
  size_t count;
  bool tuple;     /* written in parentheses */
  bool generator; /* what Jinja computes when it is asked for, and takes for true also where it is empty */
};

typedef struct JinjaPair {
  JinjaText key;
  JinjaValue value;
} JinjaPair;

struct JinjaMap {
  JinjaPair *pairs; /* in the order in which they were put there */
  size_t count, room;
  bool writable; /* a namespace */
};

static inline bool jinja_text_is(JinjaText text, const char *word) {
  return strlen(word) == text.size && memcmp(text.bytes, word, text.size) == 0;
}
static inline bool jinja_text_equal(JinjaText a, JinjaText b) { return a.size == b.size && memcmp(a.bytes, b.bytes, a.size) == 0; }

/* Bytes of a name that a message shows, as the precision of %.*s. */
static inline int jinja_shown(JinjaText text) { return text.size < 100 ? (int)text.size : 100; }

/* Bytes of the character at text[at]; a byte that belongs to no character of UTF-8 counts as one. */
static inline size_t jinja_character(JinjaText text, size_t at) {
  size_t size = utf8_size(text.bytes + at, text.size - at);
  return size ? size : 1;
}

static inline JinjaValue jinja_none(void) { return (JinjaValue){.kind = JINJA_NONE}; }
static inline JinjaValue jinja_boolean(bool value) { return (JinjaValue){.kind = JINJA_BOOLEAN, .boolean = value}; }
static inline JinjaValue jinja_integer(int64_t value) { return (JinjaValue){.kind = JINJA_INTEGER, .integer = value}; }
static inline JinjaValue jinja_real(double value) { return (JinjaValue){.kind = JINJA_REAL, .real = value}; }
static inline JinjaValue jinja_string(JinjaText text) { return (JinjaValue){.kind = JINJA_STRING, .text = text}; }
static inline JinjaValue jinja_undefined(JinjaText name) { return (JinjaValue){.kind = JINJA_UNDEFINED, .text = name}; }

/* ---- the tree */

typedef enum JinjaNodeKind {
  /* expressions */
  NODE_CONSTANT,  /* value */
  NODE_NAME,      /* text */
  NODE_LIST,      /* list: items; value: whether it is a tuple */
  NODE_MAP,       /* list: key, value, key, value... */
  NODE_NEGATE,    /* a */
  NODE_NOT,       /* a */
  NODE_AND,       /* a, b */
  NODE_OR,        /* a, b */
  NODE_BINARY,    /* op, a, b */
  NODE_CONDITION, /* a if b else c; c may be NULL */
  NODE_ATTRIBUTE, /* a . text */
  NODE_INDEX,     /* a [b] */
  NODE_SLICE,     /* a [b : c : list], each of which may be NULL */
  NODE_CALL,      /* a (list) */
  NODE_FILTER,    /* a | builtin (list) */
  NODE_TEST,      /* a is builtin (list) */
  NODE_ARGUMENT,  /* of a call, filter or test: a; text: its name or empty */
  /* statements */
  NODE_TEXT,     /* text */
  NODE_OUTPUT,   /* a */
  NODE_IF,       /* a; list; otherwise */
  NODE_FOR,      /* targets b (names in a row); over a; if c; list; otherwise */
  NODE_SET,      /* targets b = a, or with a NULL: = what list writes, in a scope of its own */
  NODE_MACRO,    /* text; parameters b (names, whose a is the default or NULL); list */
  NODE_BREAK,    /* */
  NODE_CONTINUE, /* */
  NODE_GROUP     /* list, in a scope of its own */
} JinjaNodeKind;

typedef enum JinjaOperator {
  OPERATOR_ADD,
  OPERATOR_SUBTRACT,
  OPERATOR_MULTIPLY,
  OPERATOR_DIVIDE,
  OPERATOR_FLOOR,
  OPERATOR_MODULO,
  OPERATOR_POWER,
  OPERATOR_JOIN,
  OPERATOR_EQUAL,
  OPERATOR_NOT_EQUAL,
  OPERATOR_LESS,
  OPERATOR_LESS_EQUAL,
  OPERATOR_GREATER,
  OPERATOR_GREATER_EQUAL,
  OPERATOR_IN,
  OPERATOR_NOT_IN
} JinjaOperator;

struct JinjaNode {
  JinjaNodeKind kind;
  JinjaOperator op;
  int line;
  JinjaText text;
  JinjaValue value;
  const JinjaBuiltin *builtin;
  JinjaNode *a, *b, *c, *list, *otherwise;
  JinjaNode *next; /* in the list that holds this node */
};

struct Jinja {
  char *name, *source; /* the source with "\n" as the only newline, and without the last one */
  Arena *arena;        /* of the tree */
  JinjaNode *body;
};

/* The tree of template->source [size] into template->body. */
Status jinja_parse_source(Jinja *template, size_t size);

/* ---- one rendering: its state, and what it takes (jinja_value.c) */

typedef struct JinjaVariable JinjaVariable;

typedef struct JinjaScope {
  JinjaVariable *variables;
  struct JinjaScope *outer;
} JinjaScope;

struct JinjaMacro {
  const JinjaNode *node;
  JinjaScope *scope; /* where it was defined, whose variables it sees */
};

typedef struct JinjaRun {
  const Jinja *template;
  const JinjaLimits *limits;
  Arena *arena;
  JinjaScope *scope, globals;
  uint64_t steps;           /* left */
  int depth;                /* of the tree that is evaluated, macros included */
  int line;                 /* of the node that is evaluated */
  const JinjaNode *leaving; /* the break or continue that ends bodies up to the next loop; else NULL */
  char *output;             /* [room], malloc'd */
  size_t size, room;
} JinjaRun;

/* Sets the message "NAME, line N: ...". */
Status jinja_fail(const JinjaRun *run, Status code, const char *format, ...) __attribute__((format(printf, 3, 4)));
Status jinja_charge(JinjaRun *run, size_t amount); /* steps for work on so many bytes or elements */
Status jinja_alloc(JinjaRun *run, size_t bytes, void *block);
Status jinja_write(JinjaRun *run, JinjaText text); /* appends to the output */

/* What was written since `start` is taken out of the output and becomes a text. */
Status jinja_capture(JinjaRun *run, size_t start, JinjaText *text);

/* ---- values (jinja_value.c) */

enum { JINJA_NESTING = 100 }; /* levels of lists and maps */

const char *jinja_kind_name(JinjaKind kind);
bool jinja_true(const JinjaValue *value);
Status jinja_list_new(JinjaRun *run, size_t count, JinjaValue *value); /* items are to be set */
Status jinja_map_new(JinjaRun *run, size_t room, JinjaValue *value);
Status jinja_map_put(JinjaRun *run, JinjaMap *map, JinjaText key, JinjaValue value);
Status jinja_map_find(JinjaRun *run, const JinjaMap *map, JinjaText key, const JinjaValue **value); /* NULL: it is not there */
Status jinja_binary(JinjaRun *run, JinjaOperator op, const JinjaValue *a, const JinjaValue *b, JinjaValue *result);

typedef struct JinjaForm {
  bool json;
  int indent;                  /* up to 16; negative: on one line */
  const JinjaText *separators; /* [2] between items, and behind a key; NULL: as usual */
  bool sorted;                 /* members by their keys */
} JinjaForm;

/* Writes a value in that form; NULL: as Python's str() does. */
Status jinja_write_value(JinjaRun *run, const JinjaValue *value, const JinjaForm *form);
Status jinja_to_text(JinjaRun *run, const JinjaValue *value, JinjaText *text);

/* What a loop over a value sees: of a list its items, of a map its keys, of a string its characters; or only how many these are, for which
 * no list is made. */
Status jinja_items(JinjaRun *run, const JinjaValue *value, JinjaList *items);
Status jinja_count(JinjaRun *run, const JinjaValue *value, size_t *count);

/* Characters [from, to) of a text that has as many. */
JinjaText jinja_characters(JinjaText text, size_t from, size_t to);

Status jinja_attribute(JinjaRun *run, const JinjaValue *value, JinjaText name, JinjaValue *result);
/* Each bound may be NULL. */
Status jinja_slice(JinjaRun *run, const JinjaValue *value, const JinjaValue *bounds[3], JinjaValue *result);

/* ---- filters, tests, methods and functions (jinja_builtins.c) */

enum { JINJA_ARGUMENTS = 4 }; /* most that a builtin takes, but for those that take any */

typedef struct JinjaArgument {
  JinjaText name; /* empty: by position */
  JinjaValue value;
} JinjaArgument;

typedef struct JinjaCall {
  JinjaValue self;                   /* what is filtered or tested, or whose method it is */
  JinjaValue given[JINJA_ARGUMENTS]; /* in the order of the builtin's names; undefined where left out */
  const JinjaArgument *all;          /* [count] as they were given */
  size_t count;
} JinjaCall;

struct JinjaBuiltin {
  const char *name;
  Status (*call)(JinjaRun *run, const JinjaCall *call, JinjaValue *result);
  int required;                       /* of the names */
  const char *names[JINJA_ARGUMENTS]; /* of the arguments; the first one "*": any */
};

typedef enum JinjaTable { JINJA_FILTERS, JINJA_TESTS, JINJA_FUNCTIONS, JINJA_STRING_METHODS, JINJA_MAP_METHODS } JinjaTable;

const JinjaBuiltin *jinja_builtin(JinjaTable table, JinjaText name); /* NULL: there is none */
Status jinja_call(JinjaRun *run, const JinjaBuiltin *builtin, const JinjaValue *self, const JinjaArgument *arguments, size_t count,
                  JinjaValue *result);

#endif
