/* See preamble.h. */
#include "infer/control/preamble.h"
#include "infer/control/byte_cursor.h"
#include <errno.h>
#include <sys/socket.h>

void preamble_pack(const Preamble *preamble, uint8_t bytes[PREAMBLE_BYTES]) {
  uint8_t *at = bytes;
  byte_cursor_put_u32(&at, WIRE_MAGIC);
  byte_cursor_put_u8(&at, preamble->version);
  byte_cursor_put_u8(&at, (uint8_t)preamble->role);
  byte_cursor_put_u16(&at, 0);
  byte_cursor_put(&at, preamble->session, GREETING_SESSION);
}

Status preamble_parse(const uint8_t bytes[PREAMBLE_BYTES], Preamble *preamble) {
  const uint8_t *at = bytes;
  uint32_t magic = byte_cursor_get_u32(&at);
  uint8_t version = byte_cursor_get_u8(&at), role = byte_cursor_get_u8(&at);
  bool clean = byte_cursor_get_u16(&at) == 0;
  if (magic != WIRE_MAGIC || role < PREAMBLE_LEADER || role > PREAMBLE_PEER || !clean)
    return status_set(STATUS_BAD_VALUE, "the connection does not begin as one of astra-infer does");
  *preamble = (Preamble){.version = version, .role = (PreambleRole)role};
  byte_cursor_get(&at, preamble->session, GREETING_SESSION);
  return STATUS_OK;
}

Status preamble_send(int fd, PreambleRole role, const uint8_t session[GREETING_SESSION]) {
  uint8_t bytes[PREAMBLE_BYTES];
  Preamble preamble = {.version = WIRE_VERSION, .role = role};
  memcpy(preamble.session, session, GREETING_SESSION);
  preamble_pack(&preamble, bytes);
  if (send(fd, bytes, sizeof bytes, MSG_NOSIGNAL) == (ssize_t)sizeof bytes) return STATUS_OK;
  return status_set(STATUS_PEER, "closed the connection at once");
}

Status preamble_take(int fd, PreambleTaken *taken, Preamble *preamble, bool *done) {
  ssize_t n = recv(fd, taken->bytes + taken->got, PREAMBLE_BYTES - taken->got, MSG_DONTWAIT);
  *done = false;
  if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return STATUS_OK;
  if (n <= 0) return status_set(STATUS_PEER, "the caller went away");
  taken->got += (size_t)n;
  *done = taken->got == PREAMBLE_BYTES;
  return *done ? preamble_parse(taken->bytes, preamble) : STATUS_OK;
}

Status preamble_check_answer(int fd, const char *name) {
  uint8_t bytes[PREAMBLE_BYTES];
  Preamble theirs = {.version = 0};
  if (recv(fd, bytes, sizeof bytes, MSG_PEEK | MSG_DONTWAIT) != (ssize_t)sizeof bytes || wire_get_u32(bytes) != WIRE_MAGIC)
    return STATUS_OK;
  if (preamble_parse(bytes, &theirs) != STATUS_OK) return STATUS_OK;
  return greeting_compare(theirs.version, &(Fingerprints){0}, &(Fingerprints){0}, name);
}
