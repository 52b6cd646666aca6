/* Defaults that follow from the data: see run_defaults.h. Leaves out: defaults that are the same for every run (session_defaults).
 * Invariant: after run_defaults_length no option is automatic any more. */
#include "train/run_defaults.h"
#include <math.h>
#include <stdarg.h>
#include <string.h>

enum { BATCH_LEAST = 8, BATCHES_LEAST = 8, WARMUP_MOST = 100, WARMUP_SHARE = 10, EVALUATIONS = 20 };

static bool learning(const Session *session) { return session->use == SESSION_TRAIN || session->use == SESSION_PLAN; }

/* Appends a part to the line of what was chosen; a part too many is cut off. */
__attribute__((format(printf, 2, 3))) static void say(Session *session, const char *format, ...) {
  size_t used = strlen(session->chosen);
  va_list arguments;
  va_start(arguments, format);
  if (used > 0 && used + 2 < sizeof session->chosen) strcpy(session->chosen + used, ", "), used += 2;
  vsnprintf(session->chosen + used, sizeof session->chosen - used, format, arguments);
  va_end(arguments);
}

/* A run that was begun before defaults followed from the data goes on with those of its time. */
static void earlier(Session *session) {
  TrainOptions *options = &session->options;
  if (options->batch == 0) options->batch = session->task->batch;
  if (options->epochs == 0) options->epochs = session->task->epochs;
  if (options->optimizer.rate < 0) options->optimizer.rate = 1e-4;
  if (options->warmup < 0) options->warmup = 100;
  if (options->eval_every == 0) options->eval_every = 1;
}

void run_defaults_batch(Session *session) {
  TrainOptions *options = &session->options;
  if (options->earlier_defaults) earlier(session);
  if (options->batch > 0) return;
  options->batch = session->task->batch;
  if (!learning(session)) return;
  int64_t samples = session->task->count(session, TASK_TRAIN);
  while (samples > 0 && options->batch > BATCH_LEAST && samples / options->batch < BATCHES_LEAST) options->batch /= 2;
  if (samples > 0)
    say(session, "batch %lld for %lld %s", (long long)options->batch, (long long)samples, session->task->sample);
  else
    say(session, "batch %lld", (long long)options->batch);
}

static void choose_epochs(Session *session) {
  TrainOptions *options = &session->options;
  int64_t steps = session_epoch_steps(session), least = (session->task->least_steps + steps - 1) / steps;
  bool more = least > session->task->epochs;
  if (options->epochs > 0) return;
  options->epochs = more ? least : session->task->epochs;
  if (options->max_steps > 0) return;
  say(session, "%lld epoch%s%s", (long long)options->epochs, options->epochs == 1 ? "" : "s", more ? " to have enough steps" : "");
}

static void choose_rate(Session *session) {
  OptimizerOptions *optimizer = &session->options.optimizer;
  const char *init = session->options.init;
  bool scratch = init != NULL && (strcmp(init, "random") == 0 || strcmp(init, "mimetic") == 0);
  if (optimizer->rate >= 0) return;
  optimizer->rate = scratch ? fmin(1e-3, 0.4 / (double)session->config->width) : session->options.lora_rank > 0 ? 3e-4 : 1e-4;
  say(session, "learning rate %.2g (%s)", optimizer->rate,
      scratch                          ? "from scratch"
      : session->options.lora_rank > 0 ? "adapters"
                                       : "pretrained weights");
}

void run_defaults_length(Session *session) {
  TrainOptions *options = &session->options;
  if (!learning(session)) return;
  choose_epochs(session);
  session->total_steps = options->max_steps > 0 ? options->max_steps : options->epochs * session_epoch_steps(session);
  choose_rate(session);
  if (options->warmup < 0) {
    int64_t share = session->total_steps / WARMUP_SHARE;
    options->warmup = share < WARMUP_MOST ? share : WARMUP_MOST;
    say(session, "warm-up of %lld of %lld steps", (long long)options->warmup, (long long)session->total_steps);
  }
  if (options->eval_every == 0) {
    int64_t epochs = session->total_steps / session_epoch_steps(session);
    options->eval_every = epochs > EVALUATIONS ? (epochs + EVALUATIONS - 1) / EVALUATIONS : 1;
    if (options->eval_every > 1) say(session, "evaluation every %lld epochs", (long long)options->eval_every);
  }
}

bool run_defaults_doubt(const Session *session, char *text, size_t size) {
  const TrainOptions *options = &session->options;
  int64_t last = session->total_steps - 1; /* the schedule counts from 0 */
  if (last <= 0 || options->warmup < session->total_steps) return false;
  snprintf(text, size,
           "--warmup %lld is as long as the run of %lld steps or longer: the learning rate never passes %.0f%% of its peak, and little is "
           "learnt; a tenth of the run is usual",
           (long long)options->warmup, (long long)session->total_steps, 100 * (double)last / (double)options->warmup);
  return true;
}
