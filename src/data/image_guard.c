/* A look at a picture's headers before stb_image decodes it. The version of Debian 12 (2.27) writes behind its table for a JPEG Huffman
 * table of more than 256 codes, takes four JPEG channels without Adobe's marker for YCbCr, and mixes up the bytes of 16-bit PPM and PGM;
 * these are refused here. So are JPEGs of more scans than any encoder writes: each scan, of 20 bytes if it is empty, makes the decoder walk
 * over the whole picture. Leaves out: everything the decoder checks itself. Invariant: of every JPEG segment that the decoder can come to,
 * the one here starts at the same byte: it skips fill bytes, garbage between segments and the coded data of a scan as the decoder does. */
#include "data/image_guard.h"
#include <ctype.h>
#include <stdbool.h>
#include <string.h>

enum {
  MARK = 0xff,
  START_OF_IMAGE = 0xd8,
  END_OF_IMAGE = 0xd9,
  START_OF_SCAN = 0xda,
  FIRST_RESTART = 0xd0,
  LAST_RESTART = 0xd7,
  HUFFMAN_TABLES = 0xc4,
  JPEG_EXTENSION = 0xc8,
  ARITHMETIC_CODING = 0xcc,
  FIRST_FRAME = 0xc0,
  LAST_FRAME = 0xcf,
  ADOBE_SEGMENT = 0xee,
  CODE_LENGTHS = 16,
  MOST_CODES = 256,
  PROGRESSIVE_FRAME = 0xc2,
  MAX_SCANS = 4,              /* one for each component */
  MAX_PROGRESSIVE_SCANS = 64, /* encoders write about ten */
  MOST_DIGITS = 8             /* of a number in a PPM or PGM header */
};

typedef struct Walk {
  const uint8_t *bytes;
  size_t size, at;
  bool adobe, four, progressive; /* Adobe's marker seen; a frame of four channels; a progressive frame */
  int scans;
} Walk;

/* Behind the end there are zeros, as for the decoder. */
static int byte_at(const Walk *walk, size_t at) { return at < walk->size ? walk->bytes[at] : 0; }
static int length_at(const Walk *walk, size_t at) { return byte_at(walk, at) << 8 | byte_at(walk, at + 1); }

/* Moves behind the next marker and returns it, or -1 at the end. In coded data FF 00 is a level and restart markers go on with it. */
static int next_marker(Walk *walk, bool coded) {
  for (; walk->at < walk->size; walk->at++) {
    if (walk->bytes[walk->at] != MARK) continue;
    while (byte_at(walk, walk->at) == MARK) walk->at++;
    if (walk->at >= walk->size) break;
    int marker = walk->bytes[walk->at];
    if (coded && (marker == 0 || (marker >= FIRST_RESTART && marker <= LAST_RESTART))) continue;
    walk->at++;
    return marker;
  }
  return -1;
}

/* walk->at is at the segment's length. */
static bool huffman_fits(const Walk *walk) {
  int left = length_at(walk, walk->at) - 2;
  for (size_t at = walk->at + 2; left > 0 && at < walk->size;) {
    int codes = 0;
    for (int i = 0; i < CODE_LENGTHS; i++) codes += byte_at(walk, at + 1 + (size_t)i);
    if (codes > MOST_CODES) return false;
    at += 1 + CODE_LENGTHS + (size_t)codes;
    left -= 1 + CODE_LENGTHS + codes;
  }
  return true;
}

static bool is_frame(int marker) {
  return marker >= FIRST_FRAME && marker <= LAST_FRAME && marker != HUFFMAN_TABLES && marker != JPEG_EXTENSION &&
         marker != ARITHMETIC_CODING;
}

static void note_segment(Walk *walk, int marker) {
  if (is_frame(marker)) walk->four = byte_at(walk, walk->at + 7) == 4;
  if (marker == PROGRESSIVE_FRAME) walk->progressive = true;
  if (marker == START_OF_SCAN) walk->scans++;
  if (marker == ADOBE_SEGMENT && walk->at + 7 <= walk->size && memcmp(walk->bytes + walk->at + 2, "Adobe", 5) == 0) walk->adobe = true;
}

static Status check_jpeg(const uint8_t *bytes, size_t size, const char *origin) {
  Walk walk = {.bytes = bytes, .size = size};
  if (next_marker(&walk, false) != START_OF_IMAGE) return STATUS_OK;
  bool coded = false;
  for (int marker; (marker = next_marker(&walk, coded)) >= 0 && marker != END_OF_IMAGE; walk.at += (size_t)length_at(&walk, walk.at)) {
    if (marker == HUFFMAN_TABLES && !huffman_fits(&walk)) {
      return status_set(STATUS_BAD_FILE, "%s: broken picture (a Huffman table of more than %d codes)", origin, MOST_CODES);
    }
    note_segment(&walk, marker);
    coded = coded || marker == START_OF_SCAN;
  }
  int most = walk.progressive ? MAX_PROGRESSIVE_SCANS : MAX_SCANS;
  if (walk.scans > most) return status_set(STATUS_BAD_FILE, "%s: a JPEG of %d scans; up to %d are accepted", origin, walk.scans, most);
  if (walk.four && !walk.adobe) {
    return status_set(STATUS_BAD_FILE, "%s: a CMYK JPEG without Adobe's marker, so its colours are not known; save it as RGB", origin);
  }
  return STATUS_OK;
}

/* The next number of a PPM or PGM header, behind blanks and comments; -1 when it has too many digits. */
static int next_number(Walk *walk) {
  while (walk->at < walk->size && (isspace(walk->bytes[walk->at]) || walk->bytes[walk->at] == '#')) {
    bool comment = walk->bytes[walk->at++] == '#';
    while (comment && walk->at < walk->size && walk->bytes[walk->at] != '\n' && walk->bytes[walk->at] != '\r') walk->at++;
  }
  int value = 0, digits = 0;
  for (; walk->at < walk->size && isdigit(walk->bytes[walk->at]); walk->at++) {
    if (++digits > MOST_DIGITS) return -1;
    value = value * 10 + walk->bytes[walk->at] - '0';
  }
  return value;
}

static Status check_pnm(const uint8_t *bytes, size_t size, const char *origin) {
  Walk walk = {.bytes = bytes, .size = size, .at = 2};
  int width = next_number(&walk), height = next_number(&walk), most = next_number(&walk);
  if (width < 0 || height < 0 || most < 0)
    return status_set(STATUS_BAD_FILE, "%s: broken picture (a number in its header is too long)", origin);
  if (most <= 255) return STATUS_OK;
  return status_set(STATUS_BAD_FILE, "%s: levels up to %d; PPM and PGM with levels up to 255 are accepted", origin, most);
}

Status image_guard_check(const uint8_t *bytes, size_t size, const char *origin) {
  if (size > 0 && bytes[0] == MARK) return check_jpeg(bytes, size, origin);
  if (size > 2 && bytes[0] == 'P' && (bytes[1] == '5' || bytes[1] == '6')) return check_pnm(bytes, size, origin);
  return STATUS_OK;
}
