/* Around a packet: see datagram.h. */
#include "infer/wire/datagram.h"
#include "infer/wire.h"
#include "infer/wire/packet.h"
#include <string.h>

enum { FIRST = WIRE_VERSION << 4 | 1 };

Status datagram_close(DatagramSender *sender, const uint8_t *packet, size_t bytes, uint8_t *datagram) {
  uint64_t sequence = ++sender->sequence;
  if (sequence >> 48) return status_set(STATUS_UNSUPPORTED, "the numbers of datagrams are used up");
  datagram[0] = FIRST;
  datagram[1] = sender->self;
  for (int i = 0; i < 6; i++) datagram[2 + i] = (uint8_t)(sequence >> 8 * i);
  memcpy(datagram + DATAGRAM_HEAD, packet, bytes);
  return seal_close(sender->seal, sequence, datagram, DATAGRAM_HEAD, datagram + DATAGRAM_HEAD, bytes, datagram + DATAGRAM_HEAD + bytes);
}

int datagram_sender(const uint8_t *datagram, size_t size) {
  return size >= DATAGRAM_AROUND + PACKET_HEADER && datagram[0] == FIRST ? datagram[1] : -1;
}

uint8_t *datagram_open(DatagramReceiver *receiver, uint8_t *datagram, size_t size, size_t *bytes) {
  uint64_t sequence = 0;
  for (int i = 0; i < 6; i++) sequence |= (uint64_t)datagram[2 + i] << 8 * i;
  *bytes = size - DATAGRAM_AROUND;
  uint8_t *packet = datagram + DATAGRAM_HEAD;
  if (!replay_window_fresh(&receiver->window, sequence)) return NULL;
  if (!seal_open(receiver->seal, sequence, datagram, DATAGRAM_HEAD, packet, *bytes, packet + *bytes)) return NULL;
  replay_window_note(&receiver->window, sequence);
  return packet;
}
