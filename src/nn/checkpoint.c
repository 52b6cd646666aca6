/* Reading a checkpoint's parameters into a model, with a new head and other position embeddings where the task differs. Leaves out: which
 * files there are (checkpoint_files.c), codebooks and writing (checkpoint_save.c). Invariant: a success has filled every parameter with
 * finite numbers; a failure may have filled some, and the model must then not be used. */
#include "nn/checkpoint.h"
#include "base/gguf.h"
#include "base/log.h"
#include "base/text.h"
#include "nn/checkpoint_internal.h"
#include "nn/model.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* ---- Weights of few bits ---- */

/* Matrices of 8 and 4 bits in safetensors files (docs/FORMATS.md). NAME is the matrix's own name:
 *
 *   LOWBIT_INT8          NAME I8 [out, in] and NAME_scale F32 [out]
 *   LOWBIT_Q8_0, Q4_0    NAME U8 [out, bytes of a row], whole blocks */

const char *checkpoint_scale_name(char text[LOWBIT_SCALE_NAME], const Param *param) {
  snprintf(text, LOWBIT_SCALE_NAME, "%s_scale", param->name);
  return text;
}

/* What `tensor` (may be NULL) of this parameter is: kind LOWBIT_NONE where it is of no such dtype or the parameter takes none. BAD_FILE for
 * a shape that fits neither layout, a scale that is missing or of another shape, and numbers that are not aligned. Reads no number. */
static Status lowbit_checkpoint_find(const CheckpointFiles *files, const Param *param, const SafeTensor *tensor, LowbitMatrix *matrix) {
  *matrix = (LowbitMatrix){.kind = LOWBIT_NONE};
  if (tensor == NULL || tensor->lowbit != LOWBIT_NONE || (tensor->dtype != SAFE_I8 && tensor->dtype != SAFE_U8)) return STATUS_OK;
  if (!param->narrow || param->tensor.dims != 2) return STATUS_OK;
  static const LowbitKind kinds[] = {LOWBIT_INT8, LOWBIT_Q8_0, LOWBIT_Q4_0};
  const long long outputs = param_outputs(param), inputs = param_inputs(param);
  const bool whole = tensor->dtype == SAFE_I8;
  LowbitKind kind = LOWBIT_NONE;
  for (size_t i = whole ? 0 : 1; kind == LOWBIT_NONE && i < (whole ? 1 : sizeof kinds / sizeof *kinds); i++)
    if (tensor->dims == 2 && tensor->shape[0] == outputs && tensor->shape[1] == (int64_t)lowbit_row_bytes(kinds[i], inputs))
      kind = kinds[i];
  if (kind == LOWBIT_NONE) {
    char have[SHAPE_TEXT];
    return status_set(
        STATUS_BAD_FILE,
        "%s: tensor %s of 8-bit numbers has shape %s; the model's %lld outputs of %lld inputs are I8 [%lld, %lld], or U8 [%lld, %zu] "
        "or [%lld, %zu] in blocks",
        files->path, param->name, checkpoint_shape_text(have, tensor->dims, tensor->shape), outputs, inputs, outputs, inputs, outputs,
        lowbit_row_bytes(LOWBIT_Q8_0, inputs), outputs, lowbit_row_bytes(LOWBIT_Q4_0, inputs));
  }
  if (inputs > LOWBIT_MAX_INPUTS)
    return status_set(STATUS_BAD_FILE, "%s: tensor %s of 8-bit numbers has more than %d inputs", files->path, param->name,
                      LOWBIT_MAX_INPUTS);
  if (kind != LOWBIT_INT8 && (uintptr_t)tensor->data % sizeof(uint16_t) != 0)
    return status_set(STATUS_BAD_FILE, "%s: tensor %s is not aligned; write the file again with astra-quantize", files->path, param->name);
  *matrix = (LowbitMatrix){kind, outputs, inputs, tensor->data, NULL};
  if (kind != LOWBIT_INT8) return STATUS_OK;
  char name[LOWBIT_SCALE_NAME];
  const SafeTensor *scale = checkpoint_files_find(files, checkpoint_scale_name(name, param));
  if (scale == NULL || scale->dtype != SAFE_F32 || !checkpoint_same_shape(scale, 1, (int64_t[]){outputs}))
    return status_set(STATUS_BAD_FILE,
                      "%s: tensor %s needs %s, F32 [%lld]: a scale for each output; write the file again with astra-quantize", files->path,
                      param->name, name, outputs);
  if ((uintptr_t)scale->data % sizeof(float) != 0)
    return status_set(STATUS_BAD_FILE, "%s: tensor %s is not aligned; write the file again with astra-quantize", files->path, name);
  matrix->scale = (const float *)(const void *)scale->data;
  return STATUS_OK;
}

/* BAD_FILE: training does not start from such a matrix. */
static Status lowbit_checkpoint_refuse(const CheckpointFiles *files, const Param *param) {
  return status_set(
      STATUS_BAD_FILE,
      "%s: tensor %s has 8 or 4 bits, which can be run but not trained from: use the checkpoint that astra-quantize was given", files->path,
      param->name);
}

static bool scales_are_finite(const LowbitMatrix *matrix, const SafeTensor *tensor) {
  bool finite = true;
  if (matrix->kind == LOWBIT_INT8) {
    for (int64_t o = 0; o < matrix->outputs; o++) finite &= isfinite(matrix->scale[o]) != 0;
    return finite;
  }
  for (size_t at = 0; at < tensor->bytes; at += lowbit_row_bytes(matrix->kind, LOWBIT_BLOCK)) {
    uint16_t half;
    memcpy(&half, tensor->data + at, sizeof half);
    finite &= (half & 0x7c00) != 0x7c00;
  }
  return finite;
}

/* ---- The whole set of tensors ---- */

/* Tensors that are no parameters but known, by the last parts of their names. */
static const char *const known_beside[] = {
    "attn.bias",
    "attn.masked_bias",        /* masks of GPT-2, which follow from the configuration */
    "rotary_emb.inv_freq",     /* frequencies of Llama, likewise */
    "embeddings.position_ids", /* 0, 1, 2 ..., in files of earlier libraries */
    "embeddings.mask_token",   /* of pretraining on masked images */
    "pooler.dense.weight",
    "pooler.dense.bias", /* ViTModel's, which no classifier uses */
    "lm_head.weight",    /* a second copy of a tied head; or a classifier takes its place */
    "score.weight",
    "classifier.weight",
    "classifier.bias", /* a classifier where there is none in the model */
};

/* Also what lies below "astra.", codebooks above all: the configuration says what of it is used, and training may make a plain model. */
static bool is_known_beside(const char *name) {
  if (strncmp(name, "astra.", 6) == 0) return true;
  for (size_t i = 0; i < sizeof known_beside / sizeof *known_beside; i++) {
    const size_t length = strlen(name), end = strlen(known_beside[i]);
    if (text_ends_with(name, known_beside[i]) && (length == end || name[length - end - 1] == '.')) return true;
  }
  return false;
}

/* used [tensors of all files, one after the other]. */
static void mark_used(const CheckpointFiles *files, const SafeTensor *tensor, bool *used) {
  for (size_t i = 0; i < files->count; used += files->list[i++].count)
    for (size_t j = 0; j < files->list[i].count; j++) used[j] |= tensor == &files->list[i].list[j];
}

/* A run may open one checkpoint several times, as its own teacher or to draft with: what has just been said is not said again. */
static void warn_unused(const CheckpointFiles *files, size_t count, const char *first) {
  static uint64_t said;
  char text[1024];
  snprintf(text, sizeof text, "%zu tensor%s of %.600s belong%s to no parameter of the model, the first is %.100s: %s not used%s", count,
           text_plural((int64_t)count), files->count == 1 ? files->list[0].path : files->path, count == 1 ? "s" : "", first,
           count == 1 ? "it is" : "they are", strstr(first, ".lora_") ? "; merge adapters into the weights that they belong to first" : "");
  const uint64_t digest = safe_digest_of(text, strlen(text));
  if (digest != said) log_warning("%s", text);
  said = digest;
}

/* Warns of tensors that belong to no parameter, as the numbers of a model that they were part of would be other ones. *count: how many.
 * Adapters of the model are in no file. */
static Status check_unused(const CheckpointFiles *files, Model *model, size_t *count) {
  const ParamSet *set = model_params(model);
  const char *first = NULL;
  size_t tensors = 0;
  for (size_t i = 0; i < files->count; i++) tensors += files->list[i].count;
  bool *used = calloc(tensors + 1, sizeof *used), *next = used;
  *count = 0;
  if (!used) return status_no_memory(files->path, "opening it");
  for (size_t i = 0; i < set->count; i++) {
    char scale[LOWBIT_SCALE_NAME];
    if (model_is_adapter(model, i)) continue;
    const SafeTensor *tensor = checkpoint_files_find(files, set->list[i].name);
    mark_used(files, tensor, used);
    if (tensor && tensor->lowbit == LOWBIT_NONE && tensor->dtype == SAFE_I8)
      mark_used(files, checkpoint_files_find(files, checkpoint_scale_name(scale, &set->list[i])), used);
  }
  for (size_t i = 0; i < files->count; i++)
    for (size_t j = 0; j < files->list[i].count; j++, next++) {
      if (*next || is_known_beside(files->list[i].list[j].name)) continue;
      if (!first) first = files->list[i].list[j].name;
      ++*count;
    }
  free(used);
  if (first) warn_unused(files, *count, first);
  return STATUS_OK;
}

/* BAD_FILE when the files hold more blocks than the model: the first blocks of a deeper model compute nonsense. */
static Status check_depth(const CheckpointFiles *files, const ModelConfig *config) {
  static const char *const first_norm[][2] = {[MODEL_VIT] = {"vit.encoder.layer.", ".layernorm_before.weight"},
                                              [MODEL_GPT2] = {"transformer.h.", ".ln_1.weight"},
                                              [MODEL_LLAMA] = {"model.layers.", ".input_layernorm.weight"}};
  char name[96];
  snprintf(name, sizeof name, "%s%lld%s", first_norm[config->kind][0], (long long)config->blocks, first_norm[config->kind][1]);
  if (checkpoint_files_find(files, name) == NULL) return STATUS_OK;
  return status_set(STATUS_BAD_FILE,
                    "%s: there are more than the model's %lld block%s (tensor %s); use the model (config.json or --model) "
                    "that the checkpoint was made for",
                    files->path, (long long)config->blocks, text_plural(config->blocks), name);
}

/* For a tensor that a model cannot do without. */
static Status missing(const CheckpointFiles *files, const Param *param) {
  char want[SHAPE_TEXT];
  checkpoint_shape_text(want, param->tensor.dims, param->tensor.shape);
  if (strcmp(param->name, "lm_head.weight") == 0)
    return status_set(STATUS_BAD_FILE,
                      "%s: there is no tensor lm_head.weight of shape %s, with which the model predicts tokens; if its table of tokens is "
                      "meant, set tie_word_embeddings to true in the config.json beside it, otherwise get the whole checkpoint",
                      files->index ? files->index : files->list[0].path, want);
  if (files->index)
    return status_set(STATUS_BAD_FILE, "none of the shards that %s names holds tensor %s of shape %s: is a shard missing from it?",
                      files->index, param->name, want);
  return status_set(STATUS_BAD_FILE, "%s: there is no tensor %s of shape %s; is this a checkpoint of the same kind and depth as the model?",
                    files->path, param->name, want);
}

/* ---- Mapped tensors ---- */

/* Parameters that do not learn, shared by forked processes: F32 tensors stay where they are in the file's mapping, and so do 16-bit
 * matrices whose operations widen them; all others are widened once into one block that is then made read-only.
 *
 *   block | widened 0 .... pad | widened 3 ... pad |        (anonymous, shared, each on a cache line)
 *
 * Invariant: no page behind a mapped parameter is writable, and every number in it is finite. */

struct CheckpointMapping {
  CheckpointFiles files;
  LowbitMatrix *matrices; /* [matrix_count] of as many as there are parameters: those that are kept in blocks */
  size_t matrix_count;
  real *block;
  size_t bytes;
};

static bool usable_in_place(const SafeTensor *tensor) {
  return tensor->lowbit == LOWBIT_NONE && tensor->dtype == SAFE_REAL && !REAL_IS_DOUBLE && (uintptr_t)tensor->data % sizeof(real) == 0;
}

static NarrowKind kept_narrow(const Param *param, const SafeTensor *tensor) {
  if (!param->narrow || tensor->lowbit != LOWBIT_NONE || (uintptr_t)tensor->data % sizeof(uint16_t) != 0) return NARROW_NONE;
  return tensor->dtype == SAFE_F16 ? NARROW_F16 : tensor->dtype == SAFE_BF16 ? NARROW_BF16 : NARROW_NONE;
}

/* Only for inference: there is no gradient through blocks. */
static bool kept_lowbit(const ParamSet *set, const Param *param, const SafeTensor *tensor) {
  bool taken = param->narrow && tensor->lowbit != LOWBIT_NONE && tensor->shape[1] <= LOWBIT_MAX_INPUTS;
  return taken && !set->values && (uintptr_t)tensor->data % sizeof(uint16_t) == 0;
}

/* Written by astra-quantize: find_fitting has checked its shape. */
static bool is_lowbit_file(const Param *param, const SafeTensor *tensor) {
  return param->narrow && tensor->lowbit == LOWBIT_NONE && (tensor->dtype == SAFE_I8 || tensor->dtype == SAFE_U8);
}

/* What has a place in the set's own blocks is not mapped. */
static bool is_mapped(const ParamSet *set, const Param *param) { return param->frozen ? !set->frozen_values : !set->values; }

/* Inference changes nothing: what does not fit as it is has to be trained first. */
static Status find_fitting(const CheckpointFiles *files, const Param *param, const SafeTensor **tensor) {
  char have[SHAPE_TEXT] = "none", want[SHAPE_TEXT];
  *tensor = checkpoint_files_find(files, param->name);
  LowbitMatrix matrix;
  TRY(lowbit_checkpoint_find(files, param, *tensor, &matrix));
  if (matrix.kind != LOWBIT_NONE) return STATUS_OK;
  if (*tensor && checkpoint_same_shape(*tensor, param->tensor.dims, param->tensor.shape)) return STATUS_OK;
  if (*tensor) checkpoint_shape_text(have, (*tensor)->dims, (*tensor)->shape);
  if (gguf_is_file(files->path))
    return status_set(STATUS_BAD_FILE, "%s: its metadata ask for tensor %s of shape %s, the file has %s; is it a whole model's file?",
                      files->path, param->name, checkpoint_shape_text(want, param->tensor.dims, param->tensor.shape), have);
  const bool made = param->optional || param->fitted; /* by training, where there is none */
  if (!*tensor && (!made || files->index)) return missing(files, param);
  return status_set(STATUS_BAD_FILE,
                    "%s: config.json asks for tensor %s of shape %s, the file has %s; run astra-train with --init on this checkpoint first",
                    files->path, param->name, checkpoint_shape_text(want, param->tensor.dims, param->tensor.shape), have);
}

static Status make_block(CheckpointMapping *mapping, const ParamSet *set) {
  int64_t numbers = 0;
  for (size_t i = 0; i < set->count; i++) {
    const SafeTensor *tensor;
    if (!is_mapped(set, &set->list[i])) continue;
    TRY(find_fitting(&mapping->files, &set->list[i], &tensor));
    if (!usable_in_place(tensor) && !kept_narrow(&set->list[i], tensor) && !kept_lowbit(set, &set->list[i], tensor) &&
        !is_lowbit_file(&set->list[i], tensor))
      numbers += param_padded(&set->list[i]);
  }
  if (numbers == 0) return STATUS_OK;
  mapping->bytes = (size_t)numbers * sizeof(real);
  void *block = mmap(NULL, mapping->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (block == MAP_FAILED)
    return status_set(STATUS_NO_MEMORY, "%s: no memory for %.1f MB of parameters", mapping->files.path, (double)mapping->bytes / 1e6);
  mapping->block = block;
  return STATUS_OK;
}

/* Of numbers that stay in the file, looked at piece by piece beside their digest, which is when their pages are first touched. */
typedef struct FiniteCheck {
  NarrowKind kind;
  int bad;
} FiniteCheck;

/* Bits of an exponent that is all ones: an infinity or a NaN. No early exit: the loops become vector instructions. */
static void check_piece(void *context, const uint8_t *data, size_t bytes) {
  FiniteCheck *check = context;
  const uint16_t exponent = check->kind == NARROW_F16 ? 0x7c00 : 0x7f80, *narrow = (const uint16_t *)(const void *)data;
  const real *wide = (const real *)(const void *)data;
  int bad = 0;
  if (check->kind != NARROW_NONE)
    for (size_t i = 0; i < bytes / sizeof *narrow; i++) bad |= (narrow[i] & exponent) == exponent;
  else
    for (size_t i = 0; i < bytes / sizeof *wide; i++) bad |= !isfinite(wide[i]);
  check->bad |= bad;
}

static Status check_in_place(const CheckpointMapping *mapping, const SafeTensor *tensor, NarrowKind kind) {
  FiniteCheck check = {.kind = kind};
  Status status = safetensors_walk(tensor, check_piece, &check);
  if (status != STATUS_OK) return status_wrap(status, "%s", mapping->files.path);
  if (!check.bad) return STATUS_OK;
  return status_set(STATUS_BAD_FILE, "%s: tensor %.100s holds a NaN or an infinity", mapping->files.path, tensor->name);
}

/* The numbers of one parameter, in the file or at *free_place, which moves on. */
static Status place_numbers(CheckpointMapping *mapping, const ParamSet *set, Param *param, const SafeTensor *tensor, real **free_place) {
  NarrowKind kind = kept_narrow(param, tensor);
  LowbitMatrix *matrix = &mapping->matrices[mapping->matrix_count];
  if (is_lowbit_file(param, tensor)) {
    if (set->values) return lowbit_checkpoint_refuse(&mapping->files, param);
    mapping->matrix_count++;
    TRY(lowbit_checkpoint_find(&mapping->files, param, tensor, matrix));
    param->tensor.lowbit = matrix;
    char name[LOWBIT_SCALE_NAME];
    Status status = safetensors_verify(tensor);
    if (status == STATUS_OK && matrix->kind == LOWBIT_INT8)
      status = safetensors_verify(checkpoint_files_find(&mapping->files, checkpoint_scale_name(name, param)));
    if (status != STATUS_OK) return status_wrap(status, "%s", mapping->files.path);
    if (scales_are_finite(matrix, tensor)) return STATUS_OK;
    return status_set(STATUS_BAD_FILE, "%s: the scales of tensor %s hold a NaN or an infinity", mapping->files.path, param->name);
  }
  if (kept_lowbit(set, param, tensor)) {
    mapping->matrix_count++;
    *matrix = (LowbitMatrix){tensor->lowbit, tensor->shape[0], tensor->shape[1], tensor->data, NULL};
    param->tensor.lowbit = matrix;
    if (scales_are_finite(matrix, tensor)) return STATUS_OK;
    return status_set(STATUS_BAD_FILE, "%s: tensor %.100s holds a NaN or an infinity", mapping->files.path, tensor->name);
  }
  if (kind) {
    param->tensor.narrow = (uint16_t *)(uintptr_t)tensor->data; /* frozen: never written */
    param->tensor.narrow_kind = kind;
    return check_in_place(mapping, tensor, kind);
  }
  if (usable_in_place(tensor)) {
    param->tensor.value = (real *)(uintptr_t)tensor->data;
    return check_in_place(mapping, tensor, NARROW_NONE);
  }
  param->tensor.value = *free_place;
  *free_place += param_padded(param);
  return checkpoint_read(&mapping->files, tensor, param->tensor.value);
}

static void forget(Param *param) {
  Tensor *tensor = &param->tensor;
  tensor->value = tensor->grad = NULL;
  tensor->narrow = NULL;
  tensor->narrow_kind = NARROW_NONE;
  tensor->lowbit = NULL;
  tensor->needs_grad = tensor->grad_filled = false;
}

static Status map_all(CheckpointMapping *mapping, Model *model, const char *directory) {
  ParamSet *set = model_params(model);
  TRY(checkpoint_files_open(&mapping->files, directory));
  TRY(check_depth(&mapping->files, model_config(model)));
  TRY(make_block(mapping, set));
  mapping->matrices = malloc((set->count + 1) * sizeof *mapping->matrices);
  if (!mapping->matrices) return status_no_memory(directory, "opening it");
  real *free_place = mapping->block;
  for (size_t i = 0; i < set->count; i++) {
    const SafeTensor *tensor;
    if (!is_mapped(set, &set->list[i])) continue;
    TRY(find_fitting(&mapping->files, &set->list[i], &tensor));
    forget(&set->list[i]);
    TRY(place_numbers(mapping, set, &set->list[i], tensor, &free_place));
  }
  if (mapping->block && mprotect(mapping->block, mapping->bytes, PROT_READ) != 0)
    return status_set(STATUS_IO, "%s: cannot make the parameters read-only", directory);
  size_t unused;
  return set->values ? STATUS_OK : check_unused(&mapping->files, model, &unused); /* else checkpoint_load_params has looked */
}

Status checkpoint_map_params(Model *model, const char *directory, CheckpointMapping **mapping) {
  *mapping = calloc(1, sizeof **mapping);
  if (!*mapping) return status_no_memory(directory, "opening it");
  Status status = map_all(*mapping, model, directory);
  if (status == STATUS_OK) return status;
  ParamSet *set = model_params(model);
  for (size_t i = 0; i < set->count; i++)
    if (is_mapped(set, &set->list[i])) forget(&set->list[i]); /* what was placed goes away now */
  checkpoint_unmap(*mapping);
  *mapping = NULL;
  return status;
}

void checkpoint_unmap(CheckpointMapping *mapping) {
  if (!mapping) return;
  if (mapping->block) munmap(mapping->block, mapping->bytes);
  checkpoint_files_close(&mapping->files);
  free(mapping->matrices);
  free(mapping);
}

Status checkpoint_unchanged(const CheckpointMapping *mapping) {
  for (size_t i = 0; i < mapping->files.count; i++) TRY(files_unchanged(&mapping->files.list[i].map, mapping->files.list[i].path));
  return STATUS_OK;
}

const char *checkpoint_file_at(const CheckpointMapping *mapping, const void *address) {
  for (size_t i = 0; i < mapping->files.count; i++) {
    const FileMap *map = &mapping->files.list[i].map;
    if ((const uint8_t *)address >= map->data && (const uint8_t *)address < map->data + map->size) return mapping->files.list[i].path;
  }
  return NULL;
}

/* ---- Position embeddings of another grid ---- */

/* Bicubic interpolation. Sums run in double; done once per load, so it is written for reading. */

enum { TAPS = 4 };

typedef struct Taps {
  int64_t place[TAPS]; /* rows or columns of the source, clamped to its borders */
  double weight[TAPS];
} Taps;

/* The side of the grid behind `rows` position embeddings (one for the class token and side^2); 0 when there is no such square. */
static int64_t positions_side(int64_t rows) {
  if (rows < 2 || rows > (int64_t)1 << 40) return 0;
  int64_t side = (int64_t)llround(sqrt((double)(rows - 1)));
  return side * side == rows - 1 ? side : 0;
}

/* Keys' cubic kernel with a = -0.75 at distance x. */
static double cubic(double x) {
  const double a = -0.75;
  x = fabs(x);
  if (x <= 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a;
}

static Taps taps_at(int64_t index, int64_t from_side, int64_t to_side) {
  double centre = ((double)index + 0.5) * (double)from_side / (double)to_side - 0.5;
  double first = floor(centre) - 1;
  Taps taps;
  for (int i = 0; i < TAPS; i++) {
    int64_t place = (int64_t)first + i;
    taps.place[i] = place < 0 ? 0 : place >= from_side ? from_side - 1 : place;
    taps.weight[i] = cubic(centre - (first + i));
  }
  return taps;
}

/* from [1 + from_side^2, width] -> to [1 + to_side^2, width]: the class token's row is copied, the grid is interpolated as PyTorch's
 * interpolate(mode="bicubic", align_corners=False) does (a = -0.75, borders repeated), which is what Hugging Face uses. */
static void positions_resize(const real *from, int64_t from_side, real *to, int64_t to_side, int64_t width) {
  memcpy(to, from, (size_t)width * sizeof *to);
  const real *grid = from + width;
  for (int64_t row = 0; row < to_side; row++) {
    const Taps y = taps_at(row, from_side, to_side);
    for (int64_t column = 0; column < to_side; column++) {
      const Taps x = taps_at(column, from_side, to_side);
      for (int64_t k = 0; k < width; k++) {
        double sum = 0;
        for (int i = 0; i < TAPS * TAPS; i++) {
          const int up = i / TAPS, along = i % TAPS;
          sum += y.weight[up] * x.weight[along] * (double)grid[(y.place[up] * from_side + x.place[along]) * width + k];
        }
        to[(1 + row * to_side + column) * width + k] = (real)sum;
      }
    }
  }
}

/* ---- Loading ---- */

static bool is_positions(const Param *param) { return text_ends_with(param->name, "position_embeddings"); }

static Status shape_error(const CheckpointFiles *files, const Param *param, const SafeTensor *tensor) {
  char have[SHAPE_TEXT], want[SHAPE_TEXT];
  const char *advice = "use the model (config.json or --model) that the checkpoint was made for";
  if (strstr(param->name, "patch_embeddings")) advice = "its patches are of another size: choose a model with the same patch size";
  if (strstr(param->name, "wte.") || strstr(param->name, "embed_tokens.") || strstr(param->name, "lm_head."))
    advice = "its vocabulary or width is another one: choose the model and tokenizer that belong together";
  if (is_positions(param)) advice = "only a square grid of patches of the same width can be interpolated to another image size";
  return status_set(STATUS_BAD_FILE, "%s: tensor %s has shape %s where the model has %s; %s", files->path, param->name,
                    checkpoint_shape_text(have, tensor->dims, tensor->shape),
                    checkpoint_shape_text(want, param->tensor.dims, param->tensor.shape), advice);
}

static bool fits(const Param *param, const SafeTensor *tensor) {
  return checkpoint_same_shape(tensor, param->tensor.dims, param->tensor.shape);
}

/* ---- the head */

/* One part that is absent or of another class count makes the whole head new: halves of two heads do not belong together. */
static Status check_head(const CheckpointFiles *files, const ParamSet *set, CheckpointReport *report) {
  for (size_t i = 0; i < set->count; i++) {
    const Param *param = &set->list[i];
    if (!param->optional) continue;
    const SafeTensor *tensor = checkpoint_files_find(files, param->name);
    if (tensor && fits(param, tensor)) continue;
    const Tensor *own = &param->tensor; /* all dimensions but the first, the classes, must agree */
    if (tensor &&
        (tensor->dims != own->dims || memcmp(tensor->shape + 1, own->shape + 1, (size_t)(own->dims - 1) * sizeof *own->shape) != 0))
      return shape_error(files, param, tensor);
    report->new_head = true;
  }
  return STATUS_OK;
}

/* ---- one parameter */

/* Whether what is stored are numbers that can be converted, which its header tells: not as in files of FP8. */
static Status check_numbers(const CheckpointFiles *files, const SafeTensor *tensor) {
  if (tensor->lowbit != LOWBIT_NONE || safe_dtype_is_float(tensor->dtype)) return STATUS_OK;
  return status_set(STATUS_BAD_FILE, "%s: tensor %.100s is %s where F32, F16, BF16 or F64 is needed", files->path, tensor->name,
                    safe_dtype_name(tensor->dtype));
}

/* What will be mapped, as it would be: what astra-quantize wrote cannot be, beside parameters that learn. */
static Status look_at_frozen(const CheckpointFiles *files, const ParamSet *set, const Param *param) {
  const SafeTensor *tensor;
  TRY(find_fitting(files, param, &tensor));
  if (!is_lowbit_file(param, tensor)) return check_numbers(files, tensor);
  return set->values ? lowbit_checkpoint_refuse(files, param) : STATUS_OK;
}

/* look: only whether it can be read. */
static Status load_one(const CheckpointFiles *files, Param *param, bool look, CheckpointReport *report) {
  const SafeTensor *tensor = checkpoint_files_find(files, param->name);
  if (!tensor) return missing(files, param);
  LowbitMatrix matrix;
  TRY(lowbit_checkpoint_find(files, param, tensor, &matrix));
  if (matrix.kind != LOWBIT_NONE) return lowbit_checkpoint_refuse(files, param);
  if (fits(param, tensor)) return look ? check_numbers(files, tensor) : checkpoint_read(files, tensor, param->tensor.value);
  if (!is_positions(param)) return shape_error(files, param, tensor);
  report->resized_positions = true;
  const int64_t *from = tensor->shape, *to = param->tensor.shape;
  bool alike = tensor->dims == 3 && param->tensor.dims == 3 && from[0] == to[0] && from[2] == to[2];
  int64_t from_side = alike ? positions_side(from[1]) : 0, to_side = positions_side(to[1]);
  if (from_side == 0 || to_side == 0) return shape_error(files, param, tensor);
  if (look) return check_numbers(files, tensor);
  real *grid = malloc((size_t)tensor->count * sizeof *grid);
  if (!grid) return status_set(STATUS_NO_MEMORY, "%s: no memory to interpolate %s", files->path, param->name);
  Status status = checkpoint_read(files, tensor, grid);
  if (status == STATUS_OK) positions_resize(grid, from_side, param->tensor.value, to_side, to[2]);
  free(grid);
  return status;
}

static Status load_all(const CheckpointFiles *files, Model *model, bool look, Rng *rng, CheckpointReport *report) {
  ParamSet *set = model_params(model);
  TRY(check_head(files, set, report));
  for (size_t i = 0; i < set->count; i++) {
    Param *param = &set->list[i];
    const SafeTensor *tensor = checkpoint_files_find(files, param->name);
    if (model_is_adapter(model, i)) continue;
    if (param->frozen && (look || !set->frozen_values)) { /* mapped, or to be */
      if (look) TRY(look_at_frozen(files, set, param));
    } else if (param->fitted && !(tensor && fits(param, tensor))) {
      report->unfitted++;
    } else if (param->optional && report->new_head) {
      if (!look) param_initialise_one(param, rng);
    } else {
      TRY(load_one(files, param, look, report));
    }
  }
  return check_unused(files, model, &report->unused);
}

static Status open_and_load(Model *model, const char *path, bool look, Rng *rng, CheckpointReport *report) {
  CheckpointReport ignored;
  if (!report) report = &ignored;
  memset(report, 0, sizeof *report);
  CheckpointFiles files;
  TRY(checkpoint_files_open(&files, path));
  Status status = check_depth(&files, model_config(model));
  if (status == STATUS_OK) status = load_all(&files, model, look, rng, report);
  checkpoint_files_close(&files);
  return status;
}

Status checkpoint_load_params(Model *model, const char *path, Rng *rng, CheckpointReport *report) {
  return open_and_load(model, path, false, rng, report);
}

Status checkpoint_check_params(Model *model, const char *path, CheckpointReport *report) {
  return open_and_load(model, path, true, NULL, report);
}
