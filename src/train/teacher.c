/* Distillation: see teacher.h. */
#include "train/teacher.h"
#include "autograd/kernels/kernels.h"
#include "nn/checkpoint.h"

static Status refuse(const char *path, const char *what, int64_t teacher, int64_t run) {
  return status_set(STATUS_BAD_USAGE,
                    "--distill: the teacher %s has %s %lld, the run %lld; --teacher DIR names a plain model trained for the same data",
                    path, what, (long long)teacher, (long long)run);
}

static Status check_fit(const Session *session, const ModelConfig *teacher, const char *path) {
  const ModelConfig *config = session->config;
  if (teacher->kind != config->kind) return status_set(STATUS_BAD_USAGE, "--distill: the teacher %s is another kind of model", path);
  if (teacher->classes != config->classes) return refuse(path, "classes:", teacher->classes, config->classes);
  if (config_is_decoder(config)) {
    if (teacher->vocabulary != config->vocabulary) return refuse(path, "a vocabulary of", teacher->vocabulary, config->vocabulary);
    return teacher->context >= session->tokens ? STATUS_OK : refuse(path, "a context of", teacher->context, session->tokens);
  }
  return teacher->image == config->image ? STATUS_OK : refuse(path, "images of side", teacher->image, config->image);
}

static Status load(Session *session, ModelConfig *config, const char *path) {
  Teacher *teacher = &session->teacher;
  config->astra.groups = 0;
  TRY(check_fit(session, config, path));
  TRY(model_new(&teacher->model, config));
  if (session->use == SESSION_PLAN) return param_reserve(model_params(teacher->model), false);
  TRY(checkpoint_map_params(teacher->model, path, &teacher->mapping));
  return model_pack_weights(teacher->model, tape_uses_bf16(session->tape));
}

Status teacher_open(Session *session) {
  const TrainOptions *options = &session->options;
  const bool learning = session->use == SESSION_TRAIN || session->use == SESSION_PLAN;
  const char *path = options->teacher ? options->teacher : session->origin;
  ModelConfig config;
  if (options->distill == 0 && options->teacher)
    return status_set(STATUS_BAD_USAGE, "--teacher is for --distill SHARE, e.g. --distill 0.5");
  if (options->distill == 0 || !learning) return STATUS_OK;
  if (path == NULL || strcmp(path, "random") == 0 || strcmp(path, "mimetic") == 0)
    return status_set(STATUS_BAD_USAGE, "--distill needs a teacher: name a trained plain model with --teacher DIR");
  const bool described = options->teacher != NULL;
  TRY(described ? config_load(&config, path) : config_copy(&config, session->config));
  Status status = load(session, &config, path);
  config_release(&config);
  return status == STATUS_OK ? status : status_wrap(status, "--distill");
}

void teacher_close(Session *session) {
  model_free(session->teacher.model);
  checkpoint_unmap(session->teacher.mapping);
}

bool teacher_teaches(const Session *session) { return session->teacher.model != NULL && tape_recording(session->tape); }

/* All rows of a text, the class token of an image. */
static Tensor *encode(Session *session, const TaskBatch *batch, Tensor *pixels) {
  ModelInput input = {.pixels = pixels, .ids = batch->ids, .batch = batch->count};
  if (session_lay_plain(session, batch->tokens) != STATUS_OK) return NULL;
  return model_encode(session->teacher.model, session->tape, &input, &session->plain_layout, NULL,
                      batch->ids ? MODEL_ROWS_ALL : MODEL_ROWS_CLASS);
}

const real *teacher_classes(Session *session, const TaskBatch *batch, Tensor *pixels) {
  Tape *tape = session->tape;
  tape_record(tape, false);
  Tensor *encoded = encode(session, batch, pixels);
  if (encoded != NULL && batch->ids != NULL) { /* the row of the last token */
    int32_t *last = tape_alloc(tape, (size_t)batch->count * sizeof *last);
    for (int i = 0; last != NULL && !tape_planning(tape) && i < batch->count; i++) last[i] = batch->lengths[i] - 1;
    encoded = last ? op_select_rows(tape, encoded, last) : NULL;
  }
  Tensor *logits = encoded ? model_classify(session->teacher.model, tape, encoded) : NULL;
  tape_record(tape, true);
  if (logits == NULL) return NULL;
  const int64_t classes = tensor_width(logits);
  for (int64_t row = 0; !tape_planning(tape) && row < batch->count; row++) kernels()->softmax(classes, 1, logits->value + row * classes);
  return logits->value;
}

Status teacher_tokens(Session *session, const TaskBatch *batch, Tensor **rows, Tensor **table) {
  tape_record(session->tape, false);
  *rows = encode(session, batch, NULL);
  *table = model_token_table(session->teacher.model, session->tape);
  tape_record(session->tape, true);
  return tape_status(session->tape);
}
