/* The teacher of a run with distillation (Hinton et al., 2015): in place of the labels alone, a run with codebooks learns the probabilities
 * that an unquantised model, as a rule the plain model it starts from, gives for the same batch, augmentation included. The teacher
 * computes on one device, with every token in full precision, and does not learn; its weights stay mapped in their file. Temperature 1: its
 * probabilities are mixed into the targets (CrossEntropy.teaching), so that the loss has the same scale with and without it.
 * With options.distill_hidden rows after each block are compared with the teacher's, too (Romero et al., 2015, "FitNets").
 * See session_internal.h. */
#include "base/log.h"
#include "nn/checkpoint.h"
#include "nn/model.h"
#include "train/session_internal.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

static Status refuse_teacher(const char *path, const char *what, int64_t teacher, int64_t run) {
  return status_set(STATUS_BAD_USAGE,
                    "the teacher %s has %s %lld, the run %lld; --teacher DIR names a plain model trained for the same data", path, what,
                    (long long)teacher, (long long)run);
}

/* Student and teacher are given the same pixels, which are normalised once, as the student's. */
static Status check_normalisation(const ModelConfig *teacher, const ModelConfig *config, const char *path) {
  static const double rounding = 1e-4; /* files of other programs have four decimals and more */
  const double *mean = teacher->image_mean, *std = teacher->image_std;
  bool same = true;
  for (int i = 0; i < 3; i++)
    same = same && fabs(mean[i] - config->image_mean[i]) <= rounding && fabs(std[i] - config->image_std[i]) <= rounding;
  if (same) return STATUS_OK;
  return status_set(
      STATUS_BAD_USAGE,
      "the teacher %s takes pixels less a mean of %g, %g, %g, divided by %g, %g, %g; in this run these are %g, %g, %g and "
      "%g, %g, %g. Begin with weights (--init DIR) that have the teacher's preprocessor_config.json, or name another --teacher",
      path, mean[0], mean[1], mean[2], std[0], std[1], std[2], config->image_mean[0], config->image_mean[1], config->image_mean[2],
      config->image_std[0], config->image_std[1], config->image_std[2]);
}

static Status check_teacher(const Session *session, const ModelConfig *teacher, const char *path) {
  const ModelConfig *config = session->config;
  if (teacher->kind != config->kind) return status_set(STATUS_BAD_USAGE, "the teacher %s is another kind of model", path);
  if (session->options.distill_hidden > 0 && teacher->width != config->width)
    return refuse_teacher(path, "a width of", teacher->width, config->width);
  if (session->options.distill_hidden > 0 && teacher->blocks != config->blocks)
    return refuse_teacher(path, "blocks:", teacher->blocks, config->blocks);
  if (teacher->classes != config->classes) return refuse_teacher(path, "classes:", teacher->classes, config->classes);
  if (config_is_decoder(config)) {
    if (teacher->vocabulary != config->vocabulary) return refuse_teacher(path, "a vocabulary of", teacher->vocabulary, config->vocabulary);
    return teacher->context >= session->tokens ? STATUS_OK : refuse_teacher(path, "a context of", teacher->context, session->tokens);
  }
  if (teacher->image != config->image) return refuse_teacher(path, "images of side", teacher->image, config->image);
  if (teacher->patch != config->patch) return refuse_teacher(path, "patches of side", teacher->patch, config->patch);
  return check_normalisation(teacher, config, path);
}

/* Vocabularies of one size may have other tokens, which shapes do not show. A warning alone: tokenizers in files of other kinds may differ
 * in how they break ties, and hardly in their ids. */
static void compare_tokenizers(const Session *session, const char *path) {
  Tokenizer *tokenizer;
  if (session->tokenizer == NULL || tokenizer_open(&tokenizer, path) != STATUS_OK) return;
  if (strcmp(tokenizer_fingerprint(tokenizer), tokenizer_fingerprint(session->tokenizer)) != 0)
    log_warning("the teacher %s has another tokenizer than this run: what it says of a token may be of another one; --teacher DIR names "
                "another",
                path);
  tokenizer_close(tokenizer);
}

/* Of weights that are to teach what starts from them: shapes alone would not say whose fault it is. */
static Status check_own_teacher(const Session *session) {
  const ModelConfig *config = session->config;
  if (session->origin_classes >= 0 && session->origin_classes != config->classes)
    return refuse_teacher(session->origin, "classes:", session->origin_classes, config->classes);
  if (session->origin_image >= 0 && session->origin_image != config->image)
    return refuse_teacher(session->origin, "images of side", session->origin_image, config->image);
  /* The teacher's head is read as it is in the file. */
  if (session->head_rows != NULL && session->options.distill > 0 && !session->options.resumed)
    return status_set(STATUS_BAD_USAGE,
                      "the classes of %s are in another order than those of --dataset %s: its answers would teach the wrong classes. "
                      "Give --distill 0, or --teacher DIR with a model of the same order",
                      session->origin, session->options.dataset);
  return STATUS_OK;
}

Status teacher_open(Session *session) {
  const TrainOptions *options = &session->options;
  const char *path = options->teacher ? options->teacher : session->origin;
  ModelConfig config;
  const bool wanted = options->distill > 0 || options->distill_hidden > 0;
  const char *option = options->distill > 0 ? "--distill" : "--distill-hidden";
  if (!wanted && options->teacher && session_learns(session))
    return status_set(STATUS_BAD_USAGE, "--teacher is for --distill SHARE, e.g. --distill 0.5, and --distill-hidden WEIGHT");
  if (!wanted || !session_learns(session)) return STATUS_OK;
  if (path == NULL || session_is_scratch(path))
    return status_set(STATUS_BAD_USAGE, "%s needs a teacher: name a trained plain model with --teacher DIR", option);
  const bool described = options->teacher != NULL;
  Status status = described ? config_load(&config, path) : config_copy(&config, session->config);
  if (status != STATUS_OK) return status_wrap(status, "%s", described ? "--teacher" : option);
  Teacher *teacher = &session->teacher;
  config.astra.groups = config.astra.rate_count = 0;
  status = described ? check_teacher(session, &config, path) : check_own_teacher(session);
  if (status == STATUS_OK && described) compare_tokenizers(session, path);
  if (status == STATUS_OK && described) teacher->other_names = start_weights_other_classes(&config, session->config);
  if (status == STATUS_OK && teacher->other_names && options->distill > 0)
    log_warning("--distill: the classes of the teacher %s have other names, or another order, than those of --dataset %s: it may teach "
                "something else; --teacher DIR names another",
                path, options->dataset);
  if (status == STATUS_OK) status = model_new(&teacher->model, &config);
  config_release(&config);
  if (status == STATUS_OK && session->use == SESSION_PLAN) {
    status = param_reserve(model_params(teacher->model), false);
  } else if (status == STATUS_OK) {
    status = checkpoint_map_params(teacher->model, path, &teacher->mapping);
    if (status == STATUS_OK) status = model_pack_weights(teacher->model, tape_uses_bf16(session->tape));
  }
  return status == STATUS_OK ? status : status_wrap(status, "%s", option);
}
