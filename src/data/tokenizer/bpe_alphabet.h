/* GPT-2's alphabet: each of the 256 bytes is written as one printable character in vocab.json, merges.txt and tokenizer.json. The bytes 33
 * to 126, 161 to 172 and 174 to 255 stand for the character of that number, the other 68 in order for U+0100 to U+0143 (a space is U+0120).
 */
#ifndef DATA_BPE_ALPHABET_H
#define DATA_BPE_ALPHABET_H
#include "base/status.h"
#include <stddef.h>

/* Bytes -> UTF-8 text of the alphabet, NUL-terminated; `text` has room for 2 size + 1. Returns its length. */
size_t bpe_alphabet_write(const char *bytes, size_t size, char *text);

/* Text of the alphabet -> bytes, of which there are at most as many as in the text; in place is allowed. BAD_FILE: a character that is not
 * in the alphabet. */
Status bpe_alphabet_read(const char *text, size_t size, char *bytes, size_t *count);

/* The n-th byte of the alphabet in the order of its characters, which is the order of GPT-2's first 256 ids. */
unsigned char bpe_alphabet_byte(int n);

#endif
