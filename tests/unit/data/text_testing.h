/* What the tests of text share: an encoder of one token a byte, .gz files, windows read back. */
#ifndef TEXT_TESTING_H
#define TEXT_TESTING_H
#include "data/tokenizer/tokenizer.h"
#include "data_testing.h"

enum { TEXT_TESTING_SEPARATOR = 256, TEXT_TESTING_BEGIN = 257, TEXT_TESTING_VOCABULARY = 258 };

/* Token = byte; counts its calls in *(int *)context. */
static inline Status text_testing_encode(void *context, const char *text, size_t bytes, TokenList *out) {
  ++*(int *)context;
  for (size_t i = 0; i < bytes; i++) TRY(token_list_add(out, (uint8_t)text[i]));
  return STATUS_OK;
}

static inline TextEncoder text_testing_encoder(int *calls) {
  *calls = 0;
  return (TextEncoder){.encode = text_testing_encode,
                       .context = calls,
                       .vocabulary = TEXT_TESTING_VOCABULARY,
                       .begin = -1,
                       .separator = TEXT_TESTING_SEPARATOR,
                       .cuttable = true,
                       .fingerprint = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"};
}

static inline const char *text_testing_put(const char *relative, const char *text) { return testing_write(relative, text, strlen(text)); }

/* The same, packed. */
static inline const char *text_testing_pack(const char *relative, const char *text) {
  char plain[512], command[1200];
  snprintf(plain, sizeof plain, "%s", text_testing_put("to-be-packed", text));
  const char *path = text_testing_put(relative, "");
  snprintf(command, sizeof command, "gzip -c '%s' > '%s' && rm '%s'", plain, path, plain);
  assert_int_equal(system(command), 0);
  return path;
}

/* "PREFIX:PATH" of a path in the folder; valid until the fourth call after it. */
static inline const char *text_testing_name(const char *prefix, const char *relative) {
  static char names[4][600];
  static int next;
  char *name = names[next++ % 4];
  snprintf(name, sizeof names[0], "%s:%s", prefix, testing_path(relative));
  return name;
}

#endif
