/* Fuzz target: the set-up that a hostile leader may send, to a worker with a small model of images and to one of texts (bit 0 of the
 * first byte). Holds: what is accepted packs to the same bytes, its tokens are all there once, and its numbers are in range. */
#include "fuzz/fuzz.h"
#include "infer/cluster/setup_message.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static void check_order(const ClusterSetup *s) {
  uint64_t sum = 0;
  for (int64_t i = 0; i < s->tokens; i++) {
    need(s->order[i] >= 0 && s->order[i] < s->tokens);
    sum |= (uint64_t)1 << s->order[i];
  }
  need(s->tokens == 0 || sum == ((uint64_t)1 << s->tokens) - 1);
}

static void check(const ClusterSetup *s, const uint8_t *data, size_t size) {
  uint8_t *again = malloc(size);
  need(again != NULL && setup_message_bytes(s) == size);
  need(setup_message_pack(s, again) == STATUS_OK && memcmp(again, data, size) == 0);
  free(again);
  check_order(s);
  need(s->nodes >= 1 && s->nodes <= WIRE_NODES && s->self < s->nodes && s->parts <= MAX_PARTS && s->batch_max >= 1);
  need(isfinite(s->reliability.timeout) && s->reliability.timeout > 0 && s->links.loss < 1);
  for (int i = 1; i < s->links.trace.count; i++) need(s->links.trace.points[i].seconds > s->links.trace.points[i - 1].seconds);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static ModelConfig images, texts;
  if (!images.width) {
    need(config_preset(&images, "vit-cifar", 7) == STATUS_OK && config_preset(&texts, "gpt2-mini", 0) == STATUS_OK);
    images.image = 16, images.patch = 4;
  }
  if (size < 1) return 0;
  static Codebook books[1];
  const Weights weights = {.config = data[0] & 1 ? &texts : &images, .books = books};
  ClusterSetup setup;
  if (setup_message_parse(data + 1, size - 1, &weights, &setup) == STATUS_OK) check(&setup, data + 1, size - 1);
  setup_message_release(&setup);
  return 0;
}
