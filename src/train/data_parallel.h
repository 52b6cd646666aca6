/* Training over the ranks of a job: every rank has the whole model and a share of each batch. Gradients are added up bucket by bucket while
 * the backward pass still runs, codebooks by the sums of all shares, and all ranks take the same step.
 *
 *   rank 0   forward | backward ............ | wait | step |
 *                        bucket 0 ->   bucket 1 ->          when the last gradient in it is final
 *
 * A rank's loss counts by its share of the batch's samples (count / whole), so that the sum of the gradients is that of the mean over the
 * whole batch: in each task every sample has the same number of rows that count. Draws of a batch (maps, mixup) come from generators that
 * are alike in all ranks, draws of a sample from its place in the whole batch.
 *
 * When a gradient is final follows from how often the backward pass asks for it, which is counted while a step is planned. */
#ifndef TRAIN_DATA_PARALLEL_H
#define TRAIN_DATA_PARALLEL_H
#include "train/ranks.h"
#include "train/session.h"

typedef struct DataParallel DataParallel;

/* BAD_USAGE on all ranks where a batch has fewer samples than there are ranks; before data_parallel_open, and before much is computed. */
Status data_parallel_check(const Session *session);

/* Sets session->share and session->parallel; nothing happens in a process by itself. Before plan_check, which has the uses counted. */
Status data_parallel_open(Session *session);
void data_parallel_close(Session *session);

/* A backward pass will be planned: one of several, where a model has several bit rates. */
void data_parallel_begin_plan(const Session *session);

/* In place of tape_backward and emulate_update. Gradients set out in the last micro-batch of a step (session->more_batches). exchange:
 * whether the batch was quantised. */
Status data_parallel_backward(Session *session, Tensor *loss, const TaskBatch *batch, bool exchange);

/* optimizer_step, in all ranks alike; with options.shard_optimizer each takes its part of the step and gets the others' weights. */
Status data_parallel_step(Session *session, double factor, double scale, double *norm);

/* The moving average of the weights is whole in all ranks. */
void data_parallel_gather_average(Session *session);

/* In all ranks of a job: `write`, which rank 0 alone runs, finds all states of the optimizer whole. The others wait: what has failed there
 * is their status, too. */
Status data_parallel_write(Session *session, Status (*write)(Session *session));

/* PEER, naming a rank, if not all have the same weights and codebooks; BAD_USAGE, likewise, if not all compute in the same precision or,
 * with Muon, with as many threads. */
Status data_parallel_compare(Session *session);

/* Use of codewords by these sites [count], since it was cleared: over all ranks, in each. */
void data_parallel_add_usage(Session *session, EmulateSite *sites, int count);

#endif
