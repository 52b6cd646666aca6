/* Jinja templates, as far as chat templates use them: text with {{ expressions }}, {% tags %} and {# comments #}, rendered with variables
 * from JSON. Follows Jinja 3 as Hugging Face's transformers sets it up: trim_blocks, lstrip_blocks, the last newline of a template dropped,
 * tojson without escapes for HTML, raise_exception, strftime_now, break and continue.
 *
 * Tags: for (with if, else, break, continue), if, set (also of an attribute of a namespace, and as a block), macro, generation (ignored).
 * Left out, and refused by name and line when a template is parsed: raw, call, filter, include, import, extends, block, with; filters and
 * tests that jinja_builtins.c does not list. Upper and lower case are changed in ASCII alone.
 *
 * Templates come from files of other people: nesting, steps, memory and output are limited. A parsed template is not changed by rendering,
 * so any number of threads may render it. */
#ifndef SERVE_JINJA_H
#define SERVE_JINJA_H
#include "base/status.h"
#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

typedef struct Jinja Jinja;

enum { JINJA_SOURCE_MAX = 256 << 10 }; /* bytes of a template */

typedef struct JinjaLimits {
  uint64_t steps; /* nodes that are evaluated, and linear work in units of 64 bytes or elements */
  size_t memory;  /* bytes of values made on the way; at least 1 MiB are allowed */
  size_t output;  /* bytes of text */
} JinjaLimits;

extern const JinjaLimits jinja_limits; /* for a service: 4 million steps, 64 MiB, 16 MiB */

/* text [size], copied. `name` is put in front of messages. BAD_FILE: no valid template; UNSUPPORTED: a valid one that uses what is left
 * out. Both messages give the line. *template is NULL after a failure. */
Status jinja_parse(Jinja **template, const char *name, const char *text, size_t size);
void jinja_free(Jinja *template); /* accepts NULL */

/* variables: an object, whose members are the template's variables; it must not change meanwhile. *text is malloc'd (caller frees), with
 * a NUL behind its *size bytes; NULL after a failure. BAD_VALUE: raise_exception, whose message is passed on, or with the line an
 * operation that these values do not have, or a limit that was reached; UNSUPPORTED: a method or function that is not known. */
Status jinja_render(const Jinja *template, const json_t *variables, const JinjaLimits *limits, char **text, size_t *size);

#endif
