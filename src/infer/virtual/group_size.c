/* Sizes of groups. */
#include "infer/virtual/group_size.h"
#include "infer/transport/packet.h"
#include <math.h>

GroupSize group_size_codes(int64_t tokens, double token_bits, size_t max_packet, int least) {
  int packets = max_packet > PACKET_HEADER ? interleave_packets(tokens, token_bits, max_packet - PACKET_HEADER, least) : 0;
  double bytes = (double)packets * PACKET_HEADER;
  for (int f = 0; f < packets; f++) bytes += ceil((double)interleave_count(tokens, packets, f) * token_bits / 8);
  return bytes < UINT32_MAX ? (GroupSize){(uint32_t)packets, (uint32_t)bytes} : (GroupSize){0};
}

GroupSize group_size_stream(double bytes) {
  double segments = fmax(1, ceil((bytes + PACKET_HEADER) / GROUP_SEGMENT_MOST)), packets = fmin(segments, GROUP_STREAM_PACKETS);
  bytes += PACKET_HEADER + (segments - packets) * GROUP_SEGMENT_OVERHEAD;
  return bytes < UINT32_MAX ? (GroupSize){(uint32_t)packets, (uint32_t)bytes} : (GroupSize){0};
}
