/* selftest.safetensors: see selftest_writer.h. The checkpoint is read back from disk, so what is written here is what any reader must find.
 */
#include "train/selftest_writer.h"
#include <stdlib.h>
#include <string.h>

enum { NAME = 64, FIXED = 6 /* tensors beside the codes */ };

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
  for (int site = 0; status == STATUS_OK && site < test->emulation.blocks * test->emulation.sites; site++)
    codebook_refresh(&test->emulation.site[site].book);
  config_release(&config);
  return status;
}

static void add(Selftest *test, SafeDtype source, const void *data, int dims, const int64_t *shape, const char *name) {
  SafeItem *item = &test->items[test->count];
  snprintf(test->names[test->count], NAME, "%s", name);
  *item = (SafeItem){
      .name = test->names[test->count++], .dtype = source == SAFE_I32 ? SAFE_I32 : SAFE_F32, .source = source, .dims = dims, .data = data};
  memcpy(item->shape, shape, (size_t)dims * sizeof *shape);
}

/* Codes in shared order -> in token order [B, T, G]. */
static int32_t *codes_by_token(const Selftest *test, const EmulateSite *site, int64_t batch) {
  const TokenLayout *layout = &test->layout;
  size_t group = (size_t)site->book.groups;
  int32_t *out = tape_alloc(test->tape, (size_t)(batch * layout->tokens) * group * sizeof *out);
  for (int64_t b = 0; out != NULL && b < batch; b++)
    for (int64_t s = 0; s < layout->shared; s++) {
      int32_t token = layout->row_token[layout->shared_row[s]];
      if (token >= 0)
        memcpy(out + (size_t)(b * layout->tokens + token) * group, site->codes + (size_t)(b * layout->shared + s) * group,
               group * sizeof *out);
    }
  return out;
}

static int32_t *device_of(const Selftest *test) {
  const TokenLayout *layout = &test->layout;
  int32_t *devices = tape_alloc(test->tape, (size_t)layout->tokens * sizeof *devices);
  for (int span = 0; devices != NULL && span < layout->spans; span++)
    for (int64_t row = layout->span[span].begin; row < layout->span[span].begin + layout->span[span].count; row++)
      if (layout->row_token[row] >= 0) devices[layout->row_token[row]] = span;
  return devices;
}

/* "codes.astra.layers.3.x", or .k and .v where a block has two sites. */
static Status add_codes(Selftest *test, int64_t batch) {
  static const char *const kv[] = {"k", "v"};
  const Emulation *emulation = &test->emulation;
  for (int index = 0; index < emulation->blocks * emulation->sites; index++) {
    const EmulateSite *site = &emulation->site[index];
    int32_t *codes = codes_by_token(test, site, batch);
    if (codes == NULL) return tape_status(test->tape);
    char name[NAME];
    snprintf(name, sizeof name, "codes.astra.layers.%d.%s", index / emulation->sites,
             emulation->sites == 1 ? "x" : kv[index % emulation->sites]);
    add(test, SAFE_I32, codes, 3, (int64_t[]){batch, test->layout.tokens, site->book.groups}, name);
  }
  return STATUS_OK;
}

static void add_input(Selftest *test, const TaskBatch *batch, const ModelInput *input) {
  int64_t shape[] = {batch->count, test->layout.tokens};
  if (input->pixels != NULL) add(test, SAFE_REAL, input->pixels->value, 4, input->pixels->shape, "pixel_values");
  if (batch->ids != NULL) add(test, SAFE_I32, batch->ids, 2, shape, "ids");
  if (batch->lengths != NULL) add(test, SAFE_I32, batch->lengths, 1, shape, "lengths");
}

static Status run_and_save(Session *session, Selftest *test, const TaskBatch *batch, const char *path) {
  Tape *tape = test->tape;
  Tensor *loss;
  ModelInput input = task_input(tape, batch, model_config(test->model));
  Exchange *exchange = test->devices > 0 ? &test->emulation.exchange : NULL;
  if (exchange != NULL) emulate_begin_step(&test->emulation, false);
  Tensor *logits = session->task->answer(test->model, tape, batch, &test->layout, exchange, &loss);
  int32_t *devices = device_of(test);
  if (logits == NULL || devices == NULL) return tape_status(tape);
  add_input(test, batch, &input);
  if (exchange != NULL) add(test, SAFE_I32, devices, 1, (int64_t[]){test->layout.tokens}, "device_of");
  add(test, SAFE_REAL, logits->value, 2, (int64_t[]){batch->count, tensor_width(logits)}, "logits");
  if (loss != NULL) {
    add(test, SAFE_I32, batch->labels, 2, (int64_t[]){batch->count, test->layout.tokens}, "labels");
    add(test, SAFE_REAL, loss->value, 1, (int64_t[]){1}, "loss");
  }
  TRY(add_codes(test, batch->count));
  return safetensors_save(path, test->items, test->count, NULL);
}

static Status place_tokens(Session *session, Selftest *test, int64_t tokens) {
  const ModelConfig *config = model_config(test->model);
  if (test->devices == 0) return layout_build_plain(&test->layout, tokens, config_is_decoder(config) ? CLASS_NONE : CLASS_DISTRIBUTED);
  return device_map_place(&test->layout, config, tokens, test->devices, session->order);
}

static Status write_file(Session *session, Selftest *test, const char *directory, const char *path) {
  TRY(read_back(test, directory));
  TaskBatch batch;
  int64_t middle = session->task->count(session, TASK_TEST) / session->options.batch / 2; /* texts come in the order of their lengths */
  TRY(session->task->seek(session, TASK_TEST, 0, middle));
  TRY(session->task->next(session, TASK_TEST, &batch));
  TRY(place_tokens(session, test, batch.tokens));
  if (batch.count > SELFTEST_SAMPLES) batch.count = SELFTEST_SAMPLES;
  return run_and_save(session, test, &batch, path);
}

static void release(Selftest *test) {
  if (test->tape != NULL) tape_clear(test->tape);
  emulate_release(&test->emulation);
  layout_release(&test->layout);
  model_free(test->model);
  checkpoint_unmap(test->mapping);
  free(test->items);
  free(test->names);
}

Status selftest_writer_run(Session *session, const char *directory) {
  size_t most = FIXED + (size_t)(session->emulation.blocks * session->emulation.sites);
  Selftest test = {.tape = session->tape, .items = calloc(most, sizeof *test.items), .names = calloc(most, sizeof *test.names)};
  char *path = files_join(directory, "selftest.safetensors");
  Status status =
      test.items != NULL && test.names != NULL && path != NULL ? STATUS_OK : status_set(STATUS_NO_MEMORY, "no memory for the self-test");
  tape_record(session->tape, false);
  const bool bf16 = tape_uses_bf16(session->tape);
  tape_use_bf16(session->tape, false); /* the file holds what the weights give in full precision, whatever trained them */
  if (status == STATUS_OK) status = write_file(session, &test, directory, path);
  tape_use_bf16(session->tape, bf16);
  release(&test);
  free(path);
  return status;
}
