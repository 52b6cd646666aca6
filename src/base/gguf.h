/* GGUF, the one-file container of llama.cpp and its relatives (specification: docs/gguf.md of ggml): metadata by key, descriptions of
 * tensors, their data. This is the container alone: what keys and tensors mean to a model is nn's to say, to a tokenizer data's.
 *
 *   "GGUF" | u32 version | u64 tensors | u64 entries | entries | tensor descriptions | padding | data
 *
 * The reader trusts nothing: every count, length, offset and size is checked against the file before its first use, so that what a
 * GgufFile points to lies in the file. Little-endian files of version 2 and 3. Values and data are not aligned for their type. */
#ifndef BASE_GGUF_H
#define BASE_GGUF_H
#include "base/files.h"
#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum GgufType {
  GGUF_U8,
  GGUF_I8,
  GGUF_U16,
  GGUF_I16,
  GGUF_U32,
  GGUF_I32,
  GGUF_F32,
  GGUF_BOOL,
  GGUF_STRING,
  GGUF_ARRAY,
  GGUF_U64,
  GGUF_I64,
  GGUF_F64,
  GGUF_TYPES
} GgufType;

/* Bytes in the file, any, without a NUL. */
typedef struct GgufText {
  const char *bytes;
  size_t size;
} GgufText;

typedef struct GgufEntry {
  GgufText key;
  GgufType type;
  GgufType element;    /* of an array */
  uint64_t count;      /* of an array; else 1 */
  const uint8_t *data; /* the value; of an array its first element */
} GgufEntry;

/* What a tensor's numbers are stored as: those that are used somewhere in this project. */
enum {
  GGUF_DATA_F32 = 0,
  GGUF_DATA_F16 = 1,
  GGUF_DATA_Q4_0 = 2,
  GGUF_DATA_Q8_0 = 8,
  GGUF_DATA_Q4_K = 12,
  GGUF_DATA_Q6_K = 14,
  GGUF_DATA_BF16 = 30
};
enum { GGUF_DIMS = 4, GGUF_NAME = 65 };

/* How a type stores numbers. Blocks lie along the first dimension of a tensor's shape. */
typedef struct GgufFormat {
  const char *name;       /* "Q4_K" */
  int16_t numbers, bytes; /* of a block; 1 number where each stands alone */
} GgufFormat;

typedef struct GgufTensor {
  char name[GGUF_NAME];
  uint32_t type;            /* GGUF_DATA_..., or another whose format is known */
  const GgufFormat *format; /* of that type */
  int dims;                 /* 1 to GGUF_DIMS */
  int64_t shape[GGUF_DIMS]; /* the dimension of neighbours in memory first */
  int64_t count;
  const uint8_t *data;
  size_t bytes;
} GgufTensor;

typedef struct GgufFile {
  FileMap map;
  char *path;
  GgufEntry *entries; /* sorted by key */
  size_t entry_count;
  GgufTensor *tensors; /* sorted by name */
  size_t tensor_count;
} GgufFile;

/* Whether this is the path of a regular file that is named *.gguf or begins like one. */
bool gguf_is_file(const char *path);

Status gguf_open(GgufFile *file, const char *path);
Status gguf_parse(GgufFile *file, const uint8_t *data, size_t size, const char *origin); /* on memory the caller keeps: fuzzed */
void gguf_close(GgufFile *file);                                                         /* accepts a zeroed one */

/* Opens the file, hands it to `read` and closes it again. */
typedef Status GgufReader(void *out, const GgufFile *file);
Status gguf_read_path(const char *path, GgufReader *read, void *out);

const GgufTensor *gguf_tensor(const GgufFile *file, const char *name); /* NULL: absent */
const GgufEntry *gguf_entry(const GgufFile *file, const char *key);    /* NULL: absent */

/* Values of a key. One that is absent leaves *out as it is; one of another type or range is BAD_FILE and named. */
Status gguf_whole(const GgufFile *file, const char *key, int64_t *out); /* any integer type */
Status gguf_number(const GgufFile *file, const char *key, double *out); /* any number */
Status gguf_flag(const GgufFile *file, const char *key, bool *out);
Status gguf_text(const GgufFile *file, const char *key, GgufText *out);
Status gguf_array(const GgufFile *file, const char *key, GgufType element, const GgufEntry **out);

/* Elements of arrays. The string at *at, which moves behind it: begin at data, at most count times. */
GgufText gguf_next_text(const uint8_t **at);
int64_t gguf_integer_at(const GgufEntry *array, uint64_t index); /* of integers */
float gguf_float_at(const GgufEntry *array, uint64_t index);     /* of GGUF_F32 */

bool gguf_text_is(GgufText text, const char *word);

#endif
