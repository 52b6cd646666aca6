/* A part of a whole that is divided as evenly as possible among several: of a batch's samples, among the ranks of a job. */
#ifndef BASE_SHARE_H
#define BASE_SHARE_H
#include <stdint.h>

typedef struct Share {
  int part, parts; /* part 0 to parts - 1; parts 0: the whole */
} Share;

/* Of `count` items in order the share begins here and ends where the next one would begin. Part 0 has an item if there are any. */
static inline int64_t share_begin(int64_t count, Share share) {
  return share.parts > 0 ? (count * share.part + share.parts - 1) / share.parts : 0;
}
static inline int64_t share_end(int64_t count, Share share) {
  return share.parts > 0 ? share_begin(count, (Share){share.part + 1, share.parts}) : count;
}

#endif
