/* Renders the tree of a Jinja template: walks it, with variables in a chain of scopes and output in one buffer. Everything that a rendering
 * makes but its output lies in an arena and goes with it, so no error leaks and the arena's size is the limit of memory.
 * Invariant: nodes and the caller's JSON are never written to. */
#include "serve/jinja_internal.h"
#include <stdlib.h>

enum { DEPTH_MAX = 400, ARENA_BYTES = 64 << 20 };

const JinjaLimits jinja_limits = {4000000, 64 << 20, 16 << 20};

struct JinjaVariable {
  JinjaText name;
  JinjaValue value;
  JinjaVariable *next;
};

/* ---- variables */

static Status set_variable(JinjaRun *run, JinjaScope *scope, JinjaText name, JinjaValue value) {
  JinjaVariable *variable = scope->variables;
  for (; variable && !jinja_text_equal(variable->name, name); variable = variable->next) TRY(jinja_charge(run, 1));
  if (!variable) {
    TRY(jinja_alloc(run, sizeof *variable, &variable));
    *variable = (JinjaVariable){.name = name, .next = scope->variables};
    scope->variables = variable;
  }
  variable->value = value;
  return STATUS_OK;
}

static Status find_variable(JinjaRun *run, JinjaText name, JinjaValue *value) {
  for (const JinjaScope *scope = run->scope; scope; scope = scope->outer) {
    for (const JinjaVariable *variable = scope->variables; variable; variable = variable->next) {
      TRY(jinja_charge(run, 1));
      if (jinja_text_equal(variable->name, name)) return *value = variable->value, STATUS_OK;
    }
  }
  const JinjaBuiltin *function = jinja_builtin(JINJA_FUNCTIONS, name);
  *value = function ? (JinjaValue){.kind = JINJA_FUNCTION, .function = function} : jinja_undefined(name);
  return STATUS_OK;
}

/* Opens a scope in `outer`. It lies in the arena, as a macro that is defined in it may be called when it is over, through a namespace. */
static Status open_scope(JinjaRun *run, JinjaScope *outer) {
  TRY(jinja_alloc(run, sizeof *run->scope, &run->scope));
  *run->scope = (JinjaScope){.outer = outer};
  return STATUS_OK;
}

/* ---- expressions */

static Status evaluate(JinjaRun *run, const JinjaNode *node, JinjaValue *value);
static Status execute(JinjaRun *run, const JinjaNode *list);

static Status evaluate_list(JinjaRun *run, const JinjaNode *node, JinjaValue *value) {
  size_t count = 0;
  for (const JinjaNode *item = node->list; item; item = item->next) count++;
  TRY(jinja_list_new(run, count, value));
  JinjaValue *items = value->list->items;
  value->list->tuple = node->value.boolean;
  for (const JinjaNode *item = node->list; item; item = item->next) TRY(evaluate(run, item, items++));
  return STATUS_OK;
}

static Status evaluate_map(JinjaRun *run, const JinjaNode *node, JinjaValue *value) {
  TRY(jinja_map_new(run, 0, value));
  for (const JinjaNode *item = node->list; item; item = item->next->next) {
    JinjaValue key, member;
    TRY(evaluate(run, item, &key));
    TRY(evaluate(run, item->next, &member));
    if (key.kind != JINJA_STRING)
      return jinja_fail(run, STATUS_UNSUPPORTED, "keys of mappings are strings, not %s", jinja_kind_name(key.kind));
    TRY(jinja_map_put(run, value->map, key.text, member));
  }
  return STATUS_OK;
}

static Status index_value(JinjaRun *run, const JinjaValue *value, const JinjaValue *index, JinjaValue *result) {
  *result = jinja_undefined((JinjaText){"item", 4});
  if (index->kind == JINJA_STRING) return jinja_attribute(run, value, index->text, result);
  if (value->kind == JINJA_UNDEFINED) return jinja_attribute(run, value, result->text, result);
  if ((value->kind != JINJA_LIST && value->kind != JINJA_STRING) || (index->kind != JINJA_INTEGER && index->kind != JINJA_BOOLEAN))
    return STATUS_OK;
  size_t count;
  TRY(jinja_count(run, value, &count));
  int64_t at = index->kind == JINJA_BOOLEAN ? index->boolean : index->integer;
  if (at < 0) at += (int64_t)count;
  if (at < 0 || at >= (int64_t)count) return STATUS_OK;
  *result = value->kind == JINJA_LIST ? value->list->items[at] : jinja_string(jinja_characters(value->text, (size_t)at, (size_t)at + 1));
  return STATUS_OK;
}

static Status evaluate_slice(JinjaRun *run, const JinjaNode *node, JinjaValue *value) {
  const JinjaNode *nodes[3] = {node->b, node->c, node->list};
  const JinjaValue *bounds[3] = {NULL};
  JinjaValue of, values[3];
  TRY(evaluate(run, node->a, &of));
  for (int i = 0; i < 3; i++) {
    if (!nodes[i]) continue;
    TRY(evaluate(run, nodes[i], &values[i]));
    bounds[i] = &values[i];
  }
  return jinja_slice(run, &of, bounds, value);
}

static Status evaluate_arguments(JinjaRun *run, const JinjaNode *list, JinjaArgument **arguments, size_t *count) {
  *count = 0;
  *arguments = NULL;
  for (const JinjaNode *node = list; node; node = node->next) ++*count;
  if (!*count) return STATUS_OK;
  TRY(jinja_alloc(run, *count * sizeof **arguments, arguments));
  JinjaArgument *next = *arguments;
  for (const JinjaNode *node = list; node; node = node->next, next++) {
    next->name = node->text;
    TRY(evaluate(run, node->a, &next->value));
  }
  return STATUS_OK;
}

/* The text that a macro writes. It sees its parameters and the variables where it was defined, not those of its caller. */
static Status call_macro(JinjaRun *run, const JinjaMacro *macro, const JinjaArgument *arguments, size_t count, JinjaValue *value) {
  JinjaScope *caller = run->scope;
  size_t position = 0, used = 0, start = run->size;
  TRY(open_scope(run, macro->scope));
  for (const JinjaNode *parameter = macro->node->b; parameter; parameter = parameter->next, position++) {
    const JinjaArgument *argument = position < count && arguments[position].name.size == 0 ? &arguments[position] : NULL;
    for (size_t i = 0; i < count && !argument; i++) {
      if (jinja_text_equal(arguments[i].name, parameter->text)) argument = &arguments[i];
    }
    JinjaValue bound = argument ? argument->value : jinja_undefined(parameter->text);
    used += argument != NULL;
    if (!argument && parameter->a) TRY(evaluate(run, parameter->a, &bound));
    TRY(set_variable(run, run->scope, parameter->text, bound));
  }
  if (used < count)
    return jinja_fail(run, STATUS_BAD_VALUE, "the macro \"%.*s\" does not take these arguments", jinja_shown(macro->node->text),
                      macro->node->text.bytes);
  TRY(execute(run, macro->node->list));
  run->scope = caller;
  JinjaText text;
  TRY(jinja_capture(run, start, &text));
  *value = jinja_string(text);
  return STATUS_OK;
}

static Status evaluate_call(JinjaRun *run, const JinjaNode *node, JinjaValue *value) {
  JinjaValue self = jinja_none(), callee;
  const JinjaBuiltin *method = NULL;
  JinjaArgument *arguments;
  size_t count;
  if (node->a->kind == NODE_ATTRIBUTE) {
    TRY(evaluate(run, node->a->a, &self));
    if (self.kind == JINJA_STRING) method = jinja_builtin(JINJA_STRING_METHODS, node->a->text);
    if (self.kind == JINJA_MAP) method = jinja_builtin(JINJA_MAP_METHODS, node->a->text);
    if (!method) TRY(jinja_attribute(run, &self, node->a->text, &callee));
  } else {
    TRY(evaluate(run, node->a, &callee));
  }
  TRY(evaluate_arguments(run, node->list, &arguments, &count));
  run->line = node->line;
  if (method) return jinja_call(run, method, &self, arguments, count, value);
  if (callee.kind == JINJA_FUNCTION) return jinja_call(run, callee.function, &self, arguments, count, value);
  if (callee.kind == JINJA_MACRO) return call_macro(run, callee.macro, arguments, count, value);
  if (node->a->kind == NODE_ATTRIBUTE)
    return jinja_fail(run, STATUS_UNSUPPORTED, "%s has no method \"%.*s\" that is supported", jinja_kind_name(self.kind),
                      jinja_shown(node->a->text), node->a->text.bytes);
  if (callee.kind == JINJA_UNDEFINED)
    return jinja_fail(run, STATUS_UNSUPPORTED, "there is no function \"%.*s\"", jinja_shown(callee.text), callee.text.bytes);
  return jinja_fail(run, STATUS_BAD_VALUE, "%s is called like a function", jinja_kind_name(callee.kind));
}

static Status evaluate_builtin(JinjaRun *run, const JinjaNode *node, JinjaValue *value) { /* a filter or a test */
  JinjaValue self;
  JinjaArgument *arguments;
  size_t count;
  TRY(evaluate(run, node->a, &self));
  TRY(evaluate_arguments(run, node->list, &arguments, &count));
  run->line = node->line;
  return jinja_call(run, node->builtin, &self, arguments, count, value);
}

static Status evaluate_kind(JinjaRun *run, const JinjaNode *node, JinjaValue *value) {
  JinjaValue a, b;
  switch (node->kind) {
  case NODE_CONSTANT:
    *value = node->value;
    return STATUS_OK;
  case NODE_NAME:
    return find_variable(run, node->text, value);
  case NODE_LIST:
    return evaluate_list(run, node, value);
  case NODE_MAP:
    return evaluate_map(run, node, value);
  case NODE_NOT:
    TRY(evaluate(run, node->a, &a));
    *value = jinja_boolean(!jinja_true(&a));
    return STATUS_OK;
  case NODE_NEGATE:
    TRY(evaluate(run, node->a, &a));
    b = jinja_integer(0);
    if (a.kind == JINJA_REAL) return *value = jinja_real(-a.real), STATUS_OK;
    return jinja_binary(run, OPERATOR_SUBTRACT, &b, &a, value);
  case NODE_AND:
  case NODE_OR:
    TRY(evaluate(run, node->a, value));
    return jinja_true(value) == (node->kind == NODE_AND) ? evaluate(run, node->b, value) : STATUS_OK;
  case NODE_BINARY:
    TRY(evaluate(run, node->a, &a));
    TRY(evaluate(run, node->b, &b));
    run->line = node->line;
    return jinja_binary(run, node->op, &a, &b, value);
  case NODE_CONDITION:
    TRY(evaluate(run, node->b, &b));
    *value = jinja_undefined((JinjaText){"if", 2});
    return jinja_true(&b) ? evaluate(run, node->a, value) : node->c ? evaluate(run, node->c, value) : STATUS_OK;
  case NODE_ATTRIBUTE:
    TRY(evaluate(run, node->a, &a));
    run->line = node->line;
    return jinja_attribute(run, &a, node->text, value);
  case NODE_INDEX:
    TRY(evaluate(run, node->a, &a));
    TRY(evaluate(run, node->b, &b));
    run->line = node->line;
    return index_value(run, &a, &b, value);
  case NODE_SLICE:
    return evaluate_slice(run, node, value);
  case NODE_CALL:
    return evaluate_call(run, node, value);
  default:
    return evaluate_builtin(run, node, value);
  }
}

static Status evaluate(JinjaRun *run, const JinjaNode *node, JinjaValue *value) {
  run->line = node->line;
  TRY(jinja_charge(run, 1));
  if (++run->depth > DEPTH_MAX) return jinja_fail(run, STATUS_BAD_VALUE, "nested more than %d levels deep", (int)DEPTH_MAX);
  Status status = evaluate_kind(run, node, value);
  run->depth--;
  return status;
}

/* ---- statements */

/* In a scope of its own. */
static Status execute_apart(JinjaRun *run, const JinjaNode *list) {
  JinjaScope *outer = run->scope;
  TRY(open_scope(run, outer));
  TRY(execute(run, list));
  run->scope = outer;
  return STATUS_OK;
}

/* Gives names in a row the value, or as many items of it. */
static Status assign(JinjaRun *run, JinjaScope *scope, const JinjaNode *targets, const JinjaValue *value) {
  if (!targets->next && targets->kind == NODE_NAME) return set_variable(run, scope, targets->text, *value);
  if (!targets->next) {
    JinjaValue space;
    TRY(evaluate(run, targets->a, &space));
    if (space.kind != JINJA_MAP || !space.map->writable)
      return jinja_fail(run, STATUS_BAD_VALUE, "only a namespace has attributes that can be set");
    return jinja_map_put(run, space.map, targets->text, *value);
  }
  size_t count = 0;
  JinjaList items;
  TRY(jinja_items(run, value, &items));
  for (const JinjaNode *target = targets; target; target = target->next) {
    if (target->kind != NODE_NAME) return jinja_fail(run, STATUS_UNSUPPORTED, "several attributes set at once");
    if (count < items.count) TRY(set_variable(run, scope, target->text, items.items[count]));
    count++;
  }
  return count == items.count ? STATUS_OK : jinja_fail(run, STATUS_BAD_VALUE, "%zu values for %zu names", items.count, count);
}

/* The items for which the loop's condition holds, in place. */
static Status filter_items(JinjaRun *run, const JinjaNode *loop, JinjaList *items) {
  JinjaValue kept;
  JinjaScope *outer = run->scope;
  TRY(jinja_list_new(run, items->count, &kept));
  kept.list->count = 0;
  for (size_t i = 0; i < items->count; i++) {
    JinjaScope scope = {.outer = outer};
    JinjaValue holds;
    run->scope = &scope;
    TRY(assign(run, &scope, loop->b, &items->items[i]));
    TRY(evaluate(run, loop->c, &holds));
    if (jinja_true(&holds)) kept.list->items[kept.list->count++] = items->items[i];
  }
  run->scope = outer;
  *items = *kept.list;
  return STATUS_OK;
}

/* The variable `loop`. */
static Status describe_loop(JinjaRun *run, const JinjaList *items, size_t i, JinjaValue *loop) {
  const JinjaValue none = jinja_undefined((JinjaText){"loop", 4});
  const struct {
    const char *name;
    JinjaValue value;
  } members[] = {{"index", jinja_integer((int64_t)i + 1)},
                 {"index0", jinja_integer((int64_t)i)},
                 {"revindex", jinja_integer((int64_t)(items->count - i))},
                 {"revindex0", jinja_integer((int64_t)(items->count - i - 1))},
                 {"first", jinja_boolean(i == 0)},
                 {"last", jinja_boolean(i + 1 == items->count)},
                 {"depth", jinja_integer(1)}, /* of a recursive loop it would be another */
                 {"depth0", jinja_integer(0)},
                 {"length", jinja_integer((int64_t)items->count)},
                 {"previtem", i > 0 ? items->items[i - 1] : none},
                 {"nextitem", i + 1 < items->count ? items->items[i + 1] : none}};
  enum { MEMBERS = sizeof members / sizeof *members };
  if (i == 0) TRY(jinja_map_new(run, MEMBERS, loop));
  for (size_t j = 0; j < MEMBERS; j++) loop->map->pairs[j] = (JinjaPair){{members[j].name, strlen(members[j].name)}, members[j].value};
  loop->map->count = MEMBERS;
  return STATUS_OK;
}

static Status execute_for(JinjaRun *run, const JinjaNode *node) {
  JinjaValue over, loop;
  JinjaList items;
  TRY(evaluate(run, node->a, &over));
  TRY(jinja_items(run, &over, &items));
  if (node->c) TRY(filter_items(run, node, &items));
  if (items.count == 0) return execute_apart(run, node->otherwise);
  JinjaScope *outer = run->scope;
  for (size_t i = 0; i < items.count; i++) {
    TRY(open_scope(run, outer));
    TRY(jinja_charge(run, 1));
    TRY(describe_loop(run, &items, i, &loop));
    TRY(assign(run, run->scope, node->b, &items.items[i]));
    TRY(set_variable(run, run->scope, (JinjaText){"loop", 4}, loop));
    TRY(execute(run, node->list));
    bool leaves = run->leaving && run->leaving->kind == NODE_BREAK;
    run->leaving = NULL;
    if (leaves) break;
  }
  run->scope = outer;
  return STATUS_OK;
}

static Status execute_set(JinjaRun *run, const JinjaNode *node) {
  JinjaValue value;
  if (node->a) {
    TRY(evaluate(run, node->a, &value));
  } else {
    size_t start = run->size;
    JinjaText text;
    TRY(execute_apart(run, node->list));
    TRY(jinja_capture(run, start, &text));
    value = jinja_string(text);
  }
  run->line = node->line;
  return assign(run, run->scope, node->b, &value);
}

static Status define_macro(JinjaRun *run, const JinjaNode *node) {
  JinjaMacro *macro;
  TRY(jinja_alloc(run, sizeof *macro, &macro));
  *macro = (JinjaMacro){node, run->scope};
  return set_variable(run, run->scope, node->text, (JinjaValue){.kind = JINJA_MACRO, .macro = macro});
}

static Status execute_one(JinjaRun *run, const JinjaNode *node) {
  JinjaValue value;
  switch (node->kind) {
  case NODE_TEXT:
    return jinja_write(run, node->text);
  case NODE_OUTPUT:
    TRY(evaluate(run, node->a, &value));
    return jinja_write_value(run, &value, NULL);
  case NODE_IF:
    TRY(evaluate(run, node->a, &value));
    return execute(run, jinja_true(&value) ? node->list : node->otherwise);
  case NODE_FOR:
    return execute_for(run, node);
  case NODE_SET:
    return execute_set(run, node);
  case NODE_MACRO:
    return define_macro(run, node);
  case NODE_GROUP:
    return execute_apart(run, node->list);
  default:
    run->leaving = node;
    return STATUS_OK;
  }
}

static Status execute(JinjaRun *run, const JinjaNode *list) {
  if (++run->depth > DEPTH_MAX) return jinja_fail(run, STATUS_BAD_VALUE, "nested more than %d levels deep", (int)DEPTH_MAX);
  for (const JinjaNode *node = list; node && !run->leaving; node = node->next) {
    run->line = node->line;
    TRY(jinja_charge(run, 1));
    TRY(execute_one(run, node));
  }
  run->depth--;
  return STATUS_OK;
}

/* ---- templates */

Status jinja_parse(Jinja **template, const char *name, const char *text, size_t size) {
  *template = NULL;
  if (size > JINJA_SOURCE_MAX)
    return status_set(STATUS_UNSUPPORTED, "%s: a template of %zu bytes; at most %d are read", name, size, (int)JINJA_SOURCE_MAX);
  Jinja *fresh = calloc(1, sizeof *fresh);
  if (fresh) {
    fresh->name = strdup(name);
    fresh->source = malloc(size + 1);
    fresh->arena = arena_new(ARENA_BYTES);
  }
  if (!fresh || !fresh->name || !fresh->source || !fresh->arena) {
    jinja_free(fresh);
    return status_no_memory(name, "the template");
  }
  arena_huge_pages(fresh->arena, false);
  size_t used = 0;
  for (size_t i = 0; i < size; i++) {
    if (text[i] != '\r')
      fresh->source[used++] = text[i];
    else if (i + 1 == size || text[i + 1] != '\n')
      fresh->source[used++] = '\n';
  }
  if (used > 0 && fresh->source[used - 1] == '\n') used--;
  fresh->source[used] = '\0';
  Status status = jinja_parse_source(fresh, used);
  if (status != STATUS_OK) {
    jinja_free(fresh);
    return status;
  }
  *template = fresh;
  return STATUS_OK;
}

void jinja_free(Jinja *template) {
  if (!template) return;
  arena_free(template->arena);
  free(template->source);
  free(template->name);
  free(template);
}

static Status from_json(JinjaRun *run, const json_t *json, int depth, JinjaValue *value) {
  if (depth > JINJA_NESTING) return jinja_fail(run, STATUS_BAD_VALUE, "values nested more than %d levels deep", (int)JINJA_NESTING);
  switch (json_typeof(json)) {
  case JSON_NULL:
    *value = jinja_none();
    return STATUS_OK;
  case JSON_TRUE:
  case JSON_FALSE:
    *value = jinja_boolean(json_is_true(json));
    return STATUS_OK;
  case JSON_INTEGER:
    *value = jinja_integer(json_integer_value(json));
    return STATUS_OK;
  case JSON_REAL:
    *value = jinja_real(json_real_value(json));
    return STATUS_OK;
  case JSON_STRING:
    *value = jinja_string((JinjaText){json_string_value(json), json_string_length(json)});
    return STATUS_OK;
  case JSON_ARRAY:
    TRY(jinja_list_new(run, json_array_size(json), value));
    for (size_t i = 0; i < value->list->count; i++) TRY(from_json(run, json_array_get(json, i), depth + 1, &value->list->items[i]));
    return STATUS_OK;
  default:
    break;
  }
  const char *key;
  json_t *member;
  size_t count = json_object_size(json);
  TRY(jinja_charge(run, count));
  TRY(jinja_map_new(run, count, value));
  json_object_foreach((json_t *)json, key, member) { /* its keys differ from each other */
    JinjaPair *pair = &value->map->pairs[value->map->count++];
    pair->key = (JinjaText){key, strlen(key)};
    TRY(from_json(run, member, depth + 1, &pair->value));
  }
  return STATUS_OK;
}

static Status render_into(JinjaRun *run, const json_t *variables) {
  JinjaValue all;
  TRY(jinja_write(run, (JinjaText){"", 0})); /* an empty text is one, too */
  TRY(from_json(run, variables, 0, &all));
  for (size_t i = 0; i < all.map->count; i++) TRY(set_variable(run, &run->globals, all.map->pairs[i].key, all.map->pairs[i].value));
  return execute(run, run->template->body);
}

Status jinja_render(const Jinja *template, const json_t *variables, const JinjaLimits *limits, char **text, size_t *size) {
  JinjaRun run = {.template = template, .limits = limits, .steps = limits->steps, .line = 1};
  *text = NULL;
  run.scope = &run.globals;
  run.arena = arena_new(limits->memory);
  if (!run.arena) return status_no_memory(template->name, "the values of a template");
  arena_huge_pages(run.arena, false);
  Status status = render_into(&run, variables);
  arena_free(run.arena);
  if (status != STATUS_OK) {
    free(run.output);
    return status;
  }
  run.output[run.size] = '\0';
  *text = run.output;
  *size = run.size;
  return STATUS_OK;
}
