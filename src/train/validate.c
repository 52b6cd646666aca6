/* Validation: see validate.h. */
#include "train/validate.h"
#include "autograd/ops/ops.h"
#include "train/interrupt.h"

/* Points the parameters at the averaged weights (true) or back at their own (false). Nothing happens without averaging. */
static void use_average(Session *session, bool average) {
  const Optimizer *optimizer = &session->optimizer;
  if (optimizer->average == NULL) return;
  ParamSet *params = model_params(session->model);
  const real *from = average ? params->values : optimizer->average;
  real *to = average ? optimizer->average : params->values;
  for (size_t i = 0; i < params->count; i++)
    if (!params->list[i].frozen) params->list[i].tensor.value = to + (params->list[i].tensor.value - from);
}

static Status validate_batch(Session *session, const Batch *batch, const TokenLayout *layout, Exchange *exchange, Validation *sum) {
  Tape *tape = session->tape;
  int64_t correct = 0;
  CrossEntropy loss = {.labels = batch->labels, .correct = &correct};
  if (exchange) emulate_begin_step(&session->emulation, false);
  Tensor *pixels = session_pixels(tape, batch, session->config);
  Tensor *logits = model_classify(session->model, tape,
                                  model_encode(session->model, tape, &(ModelInput){.pixels = pixels}, layout, exchange, MODEL_ROWS_CLASS));
  Tensor *value = op_cross_entropy(tape, logits, &loss);
  if (value != NULL) {
    sum->accuracy += (double)correct;
    sum->loss += (double)value->value[0] * batch->count;
    sum->samples += batch->count;
  }
  Status status = tape_status(tape);
  tape_clear(tape);
  return status;
}

static Status validate_all(Session *session, const TokenLayout *layout, Exchange *exchange, int64_t samples, Validation *sum) {
  int64_t available = dataset_count(session->test);
  if (samples <= 0 || samples > available) samples = available;
  TRY(loader_seek(session->test_loader, 0, 0));
  while (sum->samples < samples) {
    Batch batch;
    if (interrupt_asked()) return status_set(STATUS_INTERRUPTED, "the evaluation was interrupted");
    TRY(loader_next(session->test_loader, &batch));
    if (batch.count > samples - sum->samples) batch.count = (int)(samples - sum->samples);
    TRY(validate_batch(session, &batch, layout, exchange, sum));
  }
  return STATUS_OK;
}

Status validate_run(Session *session, int devices, int64_t samples, Validation *result) {
  *result = (Validation){0};
  const TokenLayout *layout = &session->plain_layout;
  if (devices > 0) {
    int64_t counts[SESSION_DEVICES], tokens = config_tokens(session->config);
    layout_even_counts(tokens, devices, counts);
    TRY(layout_build(&session->layout, tokens, devices, counts, NULL, session->config->astra.class_token, -1));
    layout = &session->layout;
  }
  tape_record(session->tape, false);
  use_average(session, true);
  Status status = validate_all(session, layout, devices > 0 ? &session->emulation.exchange : NULL, samples, result);
  use_average(session, false);
  if (result->samples > 0) {
    result->accuracy /= (double)result->samples;
    result->loss /= (double)result->samples;
  }
  return status;
}
