/* A checkpoint of 16 bits keeps its codebooks in 16 bits and is the same model to other devices; one of 32 bits is never rounded. */
#include "infer/cluster/fingerprint.h"
#include "sample_fixture.h"

static void open_as(SampleFixture *f, SafeDtype dtype, WeightsType type, Weights *weights) {
  assert_int_equal(checkpoint_save(f->sample.model, f->directory, f->sample.codewords, NULL, dtype), STATUS_OK);
  if (weights_load_as(weights, f->directory, type) != STATUS_OK) fail_msg("%s", status_message());
}

static void make(SampleFixture *f) {
  ModelConfig config = {0};
  assert_int_equal(sample_config(&config, "tiny", 4, 50, 4, CLASS_DISTRIBUTED), STATUS_OK);
  sample_fixture_make(f, &config);
}

static void sixteen_bits_stay_what_they_are(void **state) {
  (void)state;
  static const SafeDtype dtypes[] = {SAFE_F16, SAFE_BF16};
  static const NarrowKind kinds[] = {NARROW_F16, NARROW_BF16};
  SampleFixture f = {.directory = ""};
  make(&f);
  for (int i = 0; i < 2; i++) {
    Weights narrow, wide;
    Fingerprints of_narrow, of_wide;
    open_as(&f, dtypes[i], WEIGHTS_AUTO, &narrow);
    open_as(&f, dtypes[i], WEIGHTS_FLOAT32, &wide);
    assert_int_equal(narrow.cache_kind, kinds[i]);
    assert_int_equal(wide.cache_kind, NARROW_NONE);
    assert_int_equal(narrow.codeword_bytes * sizeof(real), wide.codeword_bytes * sizeof(uint16_t));
    for (int b = 0; b < narrow.book_count; b++) {
      const Codebook *book = &narrow.books[b];
      assert_true(book->narrow != NULL && book->kind == kinds[i] && wide.books[b].narrow == NULL);
      for (int64_t n = 0; n < book->entries * book->width; n++)
        assert_true((real)narrow_to_float(book->kind, book->narrow[n]) == wide.books[b].codewords[n]);
    }
    assert_int_equal(fingerprint_weights(&narrow, &of_narrow), STATUS_OK);
    assert_int_equal(fingerprint_weights(&wide, &of_wide), STATUS_OK);
    assert_true(of_narrow.codebook == of_wide.codebook && of_narrow.model == of_wide.model);
    weights_release(&narrow);
    weights_release(&wide);
  }
  sample_fixture_close(&f);
}

static void codebooks_are_not_rounded(void **state) {
  (void)state;
  SampleFixture f = {.directory = ""};
  Weights weights;
  make(&f);
  open_as(&f, SAFE_F32, WEIGHTS_AUTO, &weights);
  assert_true(weights.cache_kind == NARROW_NONE && weights.books[0].narrow == NULL);
  weights_release(&weights);
  open_as(&f, SAFE_F32, WEIGHTS_FLOAT16, &weights);
  assert_true(weights.cache_kind == NARROW_F16 && weights.books[0].narrow == NULL); /* other codes than training's would be sent */
  weights_release(&weights);
  sample_fixture_close(&f);
}

/* In bf16 a checkpoint of halves has every matrix of blocks that one of floats with the same numbers has, rounded once and to the same
 * bits. Its head stays as it is. */
static void halves_are_rounded_to_bf16_once(void **state) {
  (void)state;
  static const char *const presets[] = {"tiny", "tiny-gpt2", "tiny-llama"};
  for (int kind = 0; kind < 3; kind++) {
    SampleFixture f = {.directory = ""};
    ModelConfig config = {0};
    Weights narrow, wide;
    int rounded = 0;
    assert_int_equal(sample_config(&config, presets[kind], 4, 50, 4, CLASS_DISTRIBUTED), STATUS_OK);
    sample_fixture_make(&f, &config);
    open_as(&f, SAFE_F16, WEIGHTS_AUTO, &narrow);
    assert_int_equal(weights_use_precision(&narrow, WEIGHTS_BF16), STATUS_OK);
    assert_int_equal(checkpoint_load_params(f.sample.model, f.directory, NULL, &(CheckpointReport){0}), STATUS_OK);
    open_as(&f, SAFE_F32, WEIGHTS_AUTO, &wide);
    assert_int_equal(weights_use_precision(&wide, WEIGHTS_BF16), STATUS_OK);
    const ParamSet *set = model_params(wide.model);
    for (size_t i = 0; i < set->count; i++) {
      const Tensor *a = &model_params(narrow.model)->list[i].tensor, *b = &set->list[i].tensor;
      if (a->narrow != NULL && !set->list[i].hidden) {
        assert_true(a->packed == NULL && a->shadow == NULL);
        continue;
      }
      assert_true((a->packed != NULL) == (b->packed != NULL) && (a->shadow != NULL) == (b->shadow != NULL));
      if (b->packed) assert_memory_equal(a->packed->words, b->packed->words, b->packed->bytes);
      if (b->shadow) assert_memory_equal(a->shadow, b->shadow, (size_t)tensor_count(b) * sizeof *b->shadow);
      rounded += a->narrow != NULL && (a->packed != NULL || a->shadow != NULL);
    }
    assert_true(rounded >= 12); /* four matrices of each of three blocks, at least */
    weights_release(&narrow);
    weights_release(&wide);
    sample_fixture_close(&f);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(sixteen_bits_stay_what_they_are), cmocka_unit_test(codebooks_are_not_rounded),
                                     cmocka_unit_test(halves_are_rounded_to_bf16_once)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
