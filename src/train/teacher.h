/* Distillation (Hinton et al., 2015) from an unquantised model: in place of the labels alone, a run with codebooks learns the probabilities
 * that a teacher, as a rule the plain model it starts from, gives for the same batch, augmentation included. The teacher computes on one
 * device, with every token in full precision, and does not learn; its weights stay mapped in their file. Temperature 1: its probabilities
 * are mixed into the targets (CrossEntropy.teaching), so that the loss has the same scale with and without it. */
#ifndef TRAIN_TEACHER_H
#define TRAIN_TEACHER_H
#include "train/session.h"

/* Opens session->teacher where options.distill > 0: options.teacher, else the weights that the run starts from. BAD_USAGE or BAD_VALUE
 * names the option and what does not fit the run: kind of model, sizes of images, classes, vocabulary, context. */
Status teacher_open(Session *session);
void teacher_close(Session *session); /* accepts a session without one */

/* Whether this pass learns from a teacher: there is one, and the tape records. */
bool teacher_teaches(const Session *session);

/* Its probabilities [B, classes] for the batch, whose pixels, if it has any, are `pixels` [B, C, H, W]: on the tape, not recorded. NULL
 * with the tape failed. */
const real *teacher_classes(Session *session, const TaskBatch *batch, Tensor *pixels);

/* Its rows [B, T, D'] and the table [V, D'] that makes logits of them, for VocabLoss. */
Status teacher_tokens(Session *session, const TaskBatch *batch, Tensor **rows, Tensor **table);

#endif
