/* Inside the safetensors reader and writer only: what each dtype is called, how large it is, and arrays from one to another. */
#ifndef NN_SAFETENSORS_CONVERT_H
#define NN_SAFETENSORS_CONVERT_H
#include "nn/safetensors.h"
#include <stdbool.h>

enum { SAFE_DTYPES = SAFE_F8_E8M0 + 1 };

const char *safe_dtype_name(SafeDtype dtype); /* "F32" */
size_t safe_dtype_bytes(SafeDtype dtype);
bool safe_dtype_is_float(SafeDtype dtype);                /* one that can be converted */
bool safe_dtype_agree(SafeDtype a, SafeDtype b);          /* both floats or both integers that can be converted */
bool safe_dtype_find(const char *name, SafeDtype *dtype); /* false: not one of ours */
const char *safe_dtype_names(void);                       /* "F32, F16, ..." for messages */

/* count numbers, unaligned at both ends. Floats go to floats (round to nearest even) and integers to integers: *at gets the index of the
 * first number that does not fit (a finite one that would become infinite, an integer out of range), or -1. They must agree. */
void safe_convert(SafeDtype to, void *out, SafeDtype from, const void *in, int64_t count, int64_t *at);

#endif
