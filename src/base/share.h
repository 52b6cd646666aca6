/* Parts of a whole that is divided as evenly as possible among several. */
#ifndef BASE_SHARE_H
#define BASE_SHARE_H
#include <stdint.h>

/* Of tokens, rows, heads or columns among devices, or a device's rows in parts: the first parts have one item more where `count` does not
 * divide. */
static inline int64_t share_even_begin(int64_t count, int parts, int part) {
  int64_t rest = count % parts;
  return count / parts * part + (part < rest ? part : rest);
}
static inline int64_t share_even_count(int64_t count, int parts, int part) { return count / parts + (part < count % parts); }

/* Of a batch's samples among the ranks of a job. */
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
