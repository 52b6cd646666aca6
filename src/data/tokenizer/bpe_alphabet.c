/* The characters that stand for bytes: see bpe_alphabet.h. All lie below U+0144, so that UTF-8 takes one or two bytes. */
#include "data/tokenizer/bpe_alphabet.h"
#include "data/tokenizer/bpe_pieces.h"
#include <stdbool.h>

enum { FIRST_STAND_IN = 256, PLAIN_BYTES = 188 };

static bool is_plain(int byte) { return (byte >= 33 && byte <= 126) || (byte >= 161 && byte != 173); }

/* How many of the bytes below this one are not plain: the number of its stand-in. */
static int stand_in(int byte) {
  if (byte <= 33) return byte;
  if (byte >= 127 && byte <= 161) return byte - 127 + 33;
  return 67; /* 173, the soft hyphen */
}

static int of_stand_in(int number) { return number < 33 ? number : number < 67 ? number - 33 + 127 : 173; }

unsigned char bpe_alphabet_byte(int n) {
  if (n >= PLAIN_BYTES) return (unsigned char)of_stand_in(n - PLAIN_BYTES);
  return (unsigned char)(n < 94 ? n + 33 : n < 106 ? n - 94 + 161 : n - 106 + 174);
}

size_t bpe_alphabet_write(const char *bytes, size_t size, char *text) {
  size_t length = 0;
  for (size_t i = 0; i < size; i++) {
    int byte = (unsigned char)bytes[i], character = is_plain(byte) ? byte : FIRST_STAND_IN + stand_in(byte);
    if (character >= 0x80) text[length++] = (char)(0xc0 | character >> 6);
    text[length++] = (char)(character < 0x80 ? character : 0x80 | (character & 0x3f));
  }
  text[length] = '\0';
  return length;
}

/* The byte that the character at text stands for, or -1; *length is that of the character. */
static int read_character(const unsigned char *text, size_t size, size_t *length) {
  *length = 1;
  if (text[0] < 0x80) return is_plain(text[0]) ? text[0] : -1;
  if (size < 2 || text[0] < 0xc2 || text[0] > 0xc5 || (text[1] & 0xc0) != 0x80) return -1;
  *length = 2;
  int character = (text[0] & 0x1f) << 6 | (text[1] & 0x3f);
  if (character < FIRST_STAND_IN) return is_plain(character) ? character : -1;
  return character < FIRST_STAND_IN + 256 - PLAIN_BYTES ? of_stand_in(character - FIRST_STAND_IN) : -1;
}

Status bpe_alphabet_read(const char *text, size_t size, char *bytes, size_t *count) {
  *count = 0;
  for (size_t at = 0, length; at < size; at += length) {
    int byte = read_character((const unsigned char *)text + at, size - at, &length);
    if (byte < 0) {
      char shown[BPE_PIECES_SHOWN];
      return status_set(STATUS_BAD_FILE, "piece %s has a character that stands for no byte", bpe_pieces_show(text, size, shown));
    }
    bytes[(*count)++] = (char)byte;
  }
  return STATUS_OK;
}
