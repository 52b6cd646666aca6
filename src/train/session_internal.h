/* Parts of session_open that are concepts of their own: the weights a run starts from (start_weights.c) and the teacher of a run with
 * distillation (teacher.c). */
#ifndef TRAIN_SESSION_INTERNAL_H
#define TRAIN_SESSION_INTERNAL_H
#include "train/session.h"

/* Trains, or plans to. */
static inline bool session_learns(const Session *session) { return session->use == SESSION_TRAIN || session->use == SESSION_PLAN; }

/* ---- start_weights.c, in this order */

/* Sets session->origin: a path, "random" or "mimetic"; NULL where there are none for a plan, which needs none. */
Status start_weights_find(Session *session);

/* What the shapes of weights do not show (heads, epsilon, ids of special tokens...) is taken from a GGUF file, or from the config.json and
 * the preprocessor_config.json beside the weights, where these are and are for such a model: a preset of the same name may differ. */
Status start_weights_adopt(Session *session, ModelConfig *config);

/* Into the session's model, whose parameters that learn have memory; frozen ones are mapped into session->frozen. */
Status start_weights_load(Session *session);

/* Whether what a teacher says of a class, by its number, may be meant of another one. */
bool start_weights_other_classes(const ModelConfig *teacher, const ModelConfig *config);

/* ---- teacher.c */

/* Opens session->teacher where one of options.distill and distill_hidden is above 0: options.teacher, else the weights that the run starts
 * from. BAD_USAGE or BAD_VALUE names the option and what does not fit the run: kind of model, sizes of images and patches, normalisation,
 * classes, vocabulary, context. */
Status teacher_open(Session *session);

#endif
