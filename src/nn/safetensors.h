/* safetensors files: u64 header length, JSON header, data. The reader trusts nothing: header length, offsets (inside the file, no overlap,
 * no hole), dtypes, shapes and their products are checked before the first use, and each error names file and tensor.
 *
 * Files that this code has written hold a digest of each tensor and of the header (docs/FORMATS.md). The header's is compared when a file
 * is opened, a tensor's when its numbers are read, by the functions below; code that uses `data` in place calls safetensors_walk or
 * safetensors_verify first. A file without digests is read as it is. */
#ifndef NN_SAFETENSORS_H
#define NN_SAFETENSORS_H
#include "autograd/lowbit.h"
#include "autograd/real.h"
#include "base/files.h"
#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Dtypes from SAFE_BOOL on, except SAFE_U16, are recognised, so that files with them can be read, but not converted. Published dtypes that
 * are missing here pack several numbers into a byte. */
typedef enum SafeDtype {
  SAFE_F32,
  SAFE_F16,
  SAFE_BF16,
  SAFE_F64,
  SAFE_I32,
  SAFE_I64,
  SAFE_U8,
  SAFE_BOOL,
  SAFE_I8,
  SAFE_I16,
  SAFE_U16,
  SAFE_U32,
  SAFE_U64,
  SAFE_C64,
  SAFE_F8_E4M3,
  SAFE_F8_E5M2,
  SAFE_F8_E8M0
} SafeDtype;
enum { SAFE_DIMS = 8 };

typedef struct SafeTensor {
  char *name;
  SafeDtype dtype;
  int dims;
  int64_t shape[SAFE_DIMS];
  const uint8_t *data; /* into the mapping; not necessarily aligned */
  size_t bytes;
  int64_t count;
  LowbitKind lowbit; /* of a GGUF file: the bytes are rows of blocks of this kind, and dtype is not used */
  bool sealed;       /* the file has its digest: */
  uint64_t digest;   /* XXH3-64 of its bytes */
} SafeTensor;

typedef struct SafeFile {
  FileMap map;
  char *path;
  SafeTensor *list; /* sorted by name */
  size_t count;
  bool sealed;        /* it has digests, of all tensors */
  char *text;         /* names, keys and values, each followed by a NUL */
  uint32_t *metadata; /* [metadata_count] of the text: keys, sorted, followed by their values */
  size_t metadata_count;
  void *block; /* read-only mapping of block_bytes: converted tensors of a GGUF file; or NULL */
  size_t block_bytes;
} SafeFile;

Status safetensors_open(SafeFile *file, const char *path);
void safetensors_close(SafeFile *file);
const SafeTensor *safetensors_find(const SafeFile *file, const char *name); /* NULL: absent */

/* Calls `piece` (may be NULL) with the tensor's bytes, in order, some whole numbers at a time, right after hashing each piece, while it is
 * in the cache; BAD_FILE at the end when the digest differs. */
typedef void SafePiece(void *context, const uint8_t *data, size_t bytes);
Status safetensors_walk(const SafeTensor *tensor, SafePiece *piece, void *context);
Status safetensors_verify(const SafeTensor *tensor); /* only the digest */

/* Converts any float type to real, and I32/I64/U8/U16 to int32: BAD_FILE for a dtype of the other kind, a value out of range, or damaged
 * bytes. out holds tensor->count numbers. */
Status safetensors_to_real(const SafeTensor *tensor, real *out);
Status safetensors_to_int32(const SafeTensor *tensor, int32_t *out);

/* Writing: describe, then write in one call. `data`, or the numbers that `fill` computes a chunk at a time, are float32, double, int32...
 * as `source` says and converted to `dtype`: floats to floats (any of F32, F16, BF16, F64, rounded to nearest even), whole numbers to whole
 * numbers. A finite number that would become infinite, or a whole number out of range, is BAD_VALUE. Of the same dtype and source, any
 * dtype is written as it is. */
typedef struct SafeItem {
  const char *name;
  SafeDtype dtype;  /* in the file */
  SafeDtype source; /* of data */
  int dims;
  int64_t shape[SAFE_DIMS];
  const void *data;
  void (*fill)(void *context, int64_t first, int64_t count,
               void *out); /* instead of data: computes the numbers [first, first + count); or NULL */
  void *context;           /* of fill */
} SafeItem;
/* metadata: pairs of strings, NULL-terminated (key, value, key, value, NULL), or NULL; digests are added, and older ones among the pairs
 * left out. Atomic. The data part starts at a multiple of 64
 * and tensors whose size is a multiple of 64 bytes come first, so they are 64-byte aligned in the file; every tensor is aligned for its
 * dtype. Names must be unique. */
Status safetensors_save(const char *path, const SafeItem *items, size_t count, const char *const *metadata);

/* Rewrites an open file in place, with digests; tensors keep their bytes, the file its other metadata. The mapping remains that of the old
 * file. */
Status safetensors_seal(const SafeFile *file);

#if REAL_IS_DOUBLE
#define SAFE_REAL SAFE_F64
#else
#define SAFE_REAL SAFE_F32
#endif

const char *safe_dtype_name(SafeDtype dtype); /* "F32" */
size_t safe_dtype_bytes(SafeDtype dtype);
bool safe_dtype_is_float(SafeDtype dtype); /* one that can be converted */

/* bfloat16, round to nearest even, the payload of a NaN kept. */
uint16_t safetensors_float_to_bfloat(float value);

/* Digests as in these files, for other files that keep one: XXH3-64, seed 0, as 16 small hexadecimal digits, the most significant
 * first. */
enum { SAFE_DIGEST_TEXT = 17 };
uint64_t safe_digest_of(const void *data, size_t bytes);
void safe_digest_text(uint64_t number, char text[SAFE_DIGEST_TEXT]);

#endif
