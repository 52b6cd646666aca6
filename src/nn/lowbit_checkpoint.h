/* Inside the checkpoint code only: matrices of 8 and 4 bits in safetensors files (docs/FORMATS.md). NAME is the matrix's own name:
 *
 *   LOWBIT_INT8          NAME I8 [out, in] and NAME_scale F32 [out]
 *   LOWBIT_Q8_0, Q4_0    NAME U8 [out, bytes of a row], whole blocks */
#ifndef NN_LOWBIT_CHECKPOINT_H
#define NN_LOWBIT_CHECKPOINT_H
#include "nn/checkpoint_files.h"

enum { LOWBIT_SCALE_NAME = PARAM_NAME + 8 };

/* What `tensor` (may be NULL) of this parameter is: kind LOWBIT_NONE where it is of no such dtype or the parameter takes none. BAD_FILE for
 * a shape that fits neither layout, a scale that is missing or of another shape, and numbers that are not aligned. Looks at no number. */
Status lowbit_checkpoint_find(const CheckpointFiles *files, const Param *param, const SafeTensor *tensor, LowbitMatrix *matrix);

/* BAD_FILE: training does not start from such a matrix. */
Status lowbit_checkpoint_refuse(const CheckpointFiles *files, const Param *param);

/* Compares digests; BAD_FILE also for a scale that is not finite. */
Status lowbit_checkpoint_check(const CheckpointFiles *files, const Param *param, const SafeTensor *tensor, const LowbitMatrix *matrix);

/* The entries of a matrix: 1 or 2 of them in items. scale_name: where its name stands. Returns how many. */
size_t lowbit_checkpoint_items(const Param *param, char scale_name[LOWBIT_SCALE_NAME], SafeItem items[2]);

#endif
