/* --out of the programs that write checkpoints of a session, astra-train and astra-kmeans: what may lie there, and what has to go. */
#ifndef CLI_TRAIN_OUT_H
#define CLI_TRAIN_OUT_H
#include "base/status.h"
#include "train/session.h"

/* Asked before the work. BAD_VALUE: OUT holds another tokenizer than the session's, which the first checkpoint would replace, or, beside
 * none, what would be taken for a part of the new one (out_directory_companion); `overwrite` allows that, and so does an OUT that the
 * session starts or learns from. UNSUPPORTED or BAD_VALUE as tokenizer_save_check. Errors begin with "--out". */
Status train_out_check_tokenizer(const Session *session, bool overwrite);

/* BAD_USAGE where OUT is or lies in a folder that --dataset or --eval-dataset reads images or texts from: what the run writes would be
 * taken for more of them, the next time and on --resume. */
Status train_out_check_data(const TrainOptions *options);

/* Removes what belongs to the checkpoint before and would be taken for the new one's: companions (out_directory_companion), codebooks
 * alone, adapters, the best checkpoint. What the session starts or learns from stays. */
Status train_out_forget(const Session *session);

#endif
