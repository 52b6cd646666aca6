/* How many packets and bytes a group is on a link, headers of packets included: the same arithmetic for what is measured, predicted and
 * sent. */
#ifndef INFER_GROUP_SIZE_H
#define INFER_GROUP_SIZE_H
#include <stddef.h>
#include <stdint.h>

/* An Ethernet frame of 1,500 bytes. */
enum {
  GROUP_PACKET_MOST = 1500 - 28 - 8 - 16, /* bytes of a datagram's packet: less IPv4 and UDP, clear header, tag */
  GROUP_DATAGRAM_OVERHEAD = 8 + 16 + 28 + 14,
  GROUP_SEGMENT_MOST = 1500 - 20 - 32, /* bytes of a TCP segment: less IPv4, and TCP with its time stamps */
  GROUP_SEGMENT_OVERHEAD = 20 + 32 + 14,
  GROUP_STREAM_PACKETS = 16
};

typedef struct GroupSize {
  uint32_t packets, bytes;
} GroupSize;

/* Codes of so many tokens in datagrams, interleaved, at least `least` of them; nothing at all without tokens. packets 0: it cannot be sent
 * so. */
GroupSize group_size_codes(int64_t tokens, double token_bits, size_t max_packet, int least);

/* So many bytes of rows in a stream, which knows no packets: up to GROUP_STREAM_PACKETS pieces, so that others get their turn on a shared
 * link, and the overhead of all segments beyond one a piece is in `bytes`. */
GroupSize group_size_stream(double bytes);

#endif
