/* JSON text read from front to back, without a tree: for files whose headers may be large, of which a tree takes forty times the bytes.
 * Strict as RFC 8259 is: whole UTF-8, no NUL in a string, nesting to a depth of 64. Positions only move over what was read whole. */
#ifndef NN_JSON_SCAN_H
#define NN_JSON_SCAN_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct JsonScan {
  const char *at, *end; /* what is still to be read */
} JsonScan;

/* Passes over white space, then over this character if it is the next one. */
bool json_scan_take(JsonScan *scan, char character);

/* A string: its decoded bytes, as many as `room` - 1 takes, and a NUL, into out (NULL: nowhere), and how many they are in all. False: there
 * is no string here, or a malformed one. */
bool json_scan_string(JsonScan *scan, char *out, size_t room, size_t *length);

/* A whole number that an int64_t holds. False: something else is here. */
bool json_scan_integer(JsonScan *scan, int64_t *number);

/* Any value. False: malformed. */
bool json_scan_skip(JsonScan *scan);

/* Nothing but white space is left. */
bool json_scan_at_end(JsonScan *scan);

#endif
