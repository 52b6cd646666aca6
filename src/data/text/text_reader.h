/* The text of one file as a stream of bytes, unpacked on the way when its name ends in ".gz". Leaves out: lines, documents, encodings.
 * What it lets through is text: a NUL byte is refused with the file and the line. Inside of src/data and its tests only. */
#ifndef DATA_TEXT_READER_H
#define DATA_TEXT_READER_H
#include "base/status.h"
#include <stddef.h>
#include <stdint.h>

typedef struct TextReader TextReader;

Status text_reader_open(TextReader **reader, const char *path); /* NULL after a failure */
void text_reader_close(TextReader *reader);                     /* accepts NULL */

/* The next bytes, at least one and at most `room`; *got == 0 at the end. A byte order mark at the start of the file is left out. A .gz
 * whose members' checksums or lengths are wrong, that ends early, or that has anything but zeroes behind its last member is BAD_FILE: at
 * the latest when its end would be reported, so that who stops before the end must have it read to its end elsewhere
 * (text_reader_size). */
Status text_reader_read(TextReader *reader, char *buffer, size_t room, size_t *got);

Status text_reader_size(const char *path, int64_t *bytes); /* unpacked, without a byte order mark; reads the file to its end */

/* The whole of a file of at most `limit` bytes, with a NUL behind it (caller frees); a larger one is BAD_FILE. */
Status text_reader_all(const char *path, size_t limit, char **text, size_t *size);

#endif
