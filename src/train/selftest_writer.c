/* selftest.safetensors: see selftest_writer.h. The checkpoint is read back from disk, so what is written here is what any reader must find.
 */
#include "train/selftest_writer.h"
#include "nn/checkpoint.h"
#include "nn/safetensors.h"
#include <stdlib.h>
#include <string.h>

enum { NAME = 96, FIXED = 6, OF_RATE = 2 /* tensors beside the codes: in all, and of each bit rate */ };

typedef struct Selftest {
  Model *model;
  CheckpointMapping *mapping; /* its weights as they are in the file */
  Emulation emulation;
  int devices; /* emulated; 0: a plain model */
  TokenLayout layout;
  Tape *tape;
  SafeItem *items;
  char (*names)[NAME];
  size_t count;
} Selftest;

static Status read_back(Selftest *test, const char *directory) {
  ModelConfig config = {0};
  Status status = config_load(&config, directory);
  if (status == STATUS_OK) status = model_new(&test->model, &config);
  if (status == STATUS_OK) status = checkpoint_map_params(test->model, directory, &test->mapping);
  test->devices = config.astra.groups > 0 ? config.astra.devices : 0;
  if (status == STATUS_OK && test->devices > 0)
    status = emulate_init(&test->emulation, &config, &(EmulateOptions){.covariance = SELFTEST_COVARIANCE});
  if (status == STATUS_OK && test->devices > 0) status = checkpoint_load_codebooks(&config, directory, test->emulation.codewords);
  for (int site = 0; status == STATUS_OK && site < emulate_all_sites(&test->emulation); site++)
    codebook_refresh(&test->emulation.all[site].book);
  config_release(&config);
  return status;
}

static bool is_largest_rate(const Selftest *test) {
  const ModelConfig *config = model_config(test->model);
  return config_rates(config) <= 1 || config_rate(config) == config_rates(config) - 1;
}

/* Of the bit rate with the most groups, and of what all share, the name alone; of the others groupsR.NAME. */
static void selftest_add(Selftest *test, SafeDtype source, const void *data, int dims, const int64_t *shape, const char *name) {
  SafeItem *item = &test->items[test->count];
  const ModelConfig *config = model_config(test->model);
  char rate[CONFIG_RATE_PREFIX];
  snprintf(test->names[test->count], NAME, "%s%s", config_rate_prefix(config, config_rate(config), rate), name);
  *item = (SafeItem){
      .name = test->names[test->count++], .dtype = source == SAFE_I32 ? SAFE_I32 : SAFE_F32, .source = source, .dims = dims, .data = data};
  memcpy(item->shape, shape, (size_t)dims * sizeof *shape);
}

static int32_t *device_of(const Selftest *test) {
  const TokenLayout *layout = &test->layout;
  int32_t *devices = tape_alloc(test->tape, (size_t)layout->tokens * sizeof *devices);
  for (int span = 0; devices != NULL && span < layout->spans; span++)
    for (int64_t row = layout->span[span].begin; row < layout->span[span].begin + layout->span[span].count; row++)
      if (layout->row_token[row] >= 0) devices[layout->row_token[row]] = span;
  return devices;
}

/* [B, T, G] of each site: "codes.astra.layers.3.x", or .k and .v where a block has two sites. */
static Status add_codes(Selftest *test, int64_t batch) {
  const Emulation *emulation = &test->emulation;
  const TokenLayout *layout = &test->layout;
  for (int index = 0; index < emulate_sites(emulation); index++) {
    const EmulateSite *site = &emulation->site[index];
    const size_t group = (size_t)site->book.groups;
    int32_t *codes = tape_alloc(test->tape, (size_t)(batch * layout->tokens) * group * sizeof *codes);
    if (codes == NULL) return tape_status(test->tape);
    for (int64_t b = 0; b < batch; b++)
      for (int64_t s = 0; s < layout->shared; s++) { /* from shared order into that of tokens */
        int32_t token = layout->row_token[layout->shared_row[s]];
        const int32_t *from = site->codes + (size_t)(b * layout->shared + s) * group;
        if (token >= 0) memcpy(codes + (size_t)(b * layout->tokens + token) * group, from, group * sizeof *from);
      }
    char name[NAME], place[CONFIG_CODEBOOK_PLACE];
    snprintf(name, sizeof name, "codes.%s", config_codebook_place(model_config(test->model), index, place));
    selftest_add(test, SAFE_I32, codes, 3, (int64_t[]){batch, test->layout.tokens, site->book.groups}, name);
  }
  return STATUS_OK;
}

static Status run_and_save(Session *session, Selftest *test, const TaskBatch *batch, const char *path) {
  Tape *tape = test->tape;
  ModelInput input = task_input(tape, batch, model_config(test->model));
  const bool exchange = test->devices > 0;
  int32_t *devices = device_of(test);
  if (devices == NULL) return tape_status(tape);
  int64_t tokens[] = {batch->count, test->layout.tokens};
  if (input.pixels != NULL) selftest_add(test, SAFE_REAL, input.pixels->value, 4, input.pixels->shape, "pixel_values");
  if (batch->ids != NULL) selftest_add(test, SAFE_I32, batch->ids, 2, tokens, "ids");
  if (batch->lengths != NULL) selftest_add(test, SAFE_I32, batch->lengths, 1, tokens, "lengths");
  if (exchange) selftest_add(test, SAFE_I32, devices, 1, (int64_t[]){test->layout.tokens}, "device_of");
  for (int rate = exchange ? test->emulation.rates - 1 : 0; rate >= 0; rate--) {
    if (exchange) {
      TRY(model_use_rate(test->model, config_rate_groups(model_config(test->model), rate)));
      emulate_use_rate(&test->emulation, rate);
    }
    Tensor *loss;
    if (exchange) emulate_begin_step(&test->emulation, false);
    Tensor *logits =
        session->task->head->answer(test->model, tape, batch, &test->layout, exchange ? &test->emulation.exchange : NULL, &loss);
    if (logits == NULL) return tape_status(tape);
    selftest_add(test, SAFE_REAL, logits->value, 2, (int64_t[]){batch->count, tensor_width(logits)}, "logits");
    if (loss != NULL && is_largest_rate(test)) selftest_add(test, SAFE_I32, batch->labels, 2, tokens, "labels"); /* the same at all rates */
    if (loss != NULL) selftest_add(test, SAFE_REAL, loss->value, 1, (int64_t[]){1}, "loss");
    TRY(add_codes(test, batch->count));
  }
  return safetensors_save(path, test->items, test->count, NULL);
}

static Status write_file(Session *session, Selftest *test, const char *directory, const char *path) {
  TRY(read_back(test, directory));
  TaskBatch batch;
  int64_t middle = session->data.count[TASK_TEST] / session->options.batch / 2; /* texts come in the order of their lengths */
  TRY(session->task->source->seek(session, TASK_TEST, 0, middle));
  TRY(session->task->source->next(session, TASK_TEST, &batch));
  const ModelConfig *config = model_config(test->model);
  if (test->devices == 0)
    TRY(layout_build_plain(&test->layout, batch.tokens, config_is_decoder(config) ? CLASS_NONE : CLASS_DISTRIBUTED));
  else
    TRY(device_map_place(&test->layout, config, batch.tokens, test->devices, session->order));
  if (batch.count > SELFTEST_SAMPLES) batch.count = SELFTEST_SAMPLES;
  return run_and_save(session, test, &batch, path);
}

Status selftest_writer_run(Session *session, const char *directory) {
  size_t max = FIXED + (size_t)(session->emulation.rates * (emulate_sites(&session->emulation) + OF_RATE));
  Selftest test = {.tape = session->tape, .items = calloc(max, sizeof *test.items), .names = calloc(max, sizeof *test.names)};
  char *path = files_join(directory, CHECKPOINT_SELFTEST);
  Status status = test.items != NULL && test.names != NULL && path != NULL ? STATUS_OK : status_no_memory(NULL, "the self-test");
  tape_record(session->tape, false);
  const bool bf16 = tape_uses_bf16(session->tape);
  tape_use_bf16(session->tape, false); /* the file holds what the weights give in full precision, whatever trained them */
  if (status == STATUS_OK) status = write_file(session, &test, directory, path);
  tape_use_bf16(session->tape, bf16);
  if (test.tape != NULL) tape_clear(test.tape);
  emulate_release(&test.emulation);
  layout_release(&test.layout);
  model_free(test.model);
  checkpoint_unmap(test.mapping);
  free(test.items);
  free(test.names);
  free(path);
  return status;
}
