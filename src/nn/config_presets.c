/* Models by name, and what holds of each kind where nothing is said. */
#include "nn/config.h"
#include <string.h>

typedef struct Vision {
  const char *name;
  int64_t image, patch, width, blocks, heads;
  double mean[3], std[3];
} Vision;

static const Vision visions[] = {
    {"vit-base", 224, 16, 768, 12, 12, {0.5, 0.5, 0.5}, {0.5, 0.5, 0.5}},
    {"vit-small", 224, 16, 384, 12, 6, {0.5, 0.5, 0.5}, {0.5, 0.5, 0.5}},
    {"vit-tiny", 224, 16, 192, 12, 3, {0.5, 0.5, 0.5}, {0.5, 0.5, 0.5}},
    {"vit-cifar", 32, 4, 192, 6, 3, {0.5071, 0.4865, 0.4409}, {0.2673, 0.2564, 0.2762}},
};

typedef struct Decoder {
  const char *name;
  ModelKind kind;
  int64_t width, blocks, heads, kv_heads, mlp, vocabulary, context;
  double theta; /* Llama */
  bool tied;
  int64_t begin_id, end_id; /* -1: the tokenizer says */
} Decoder;

/* Of a small model an untied vocabulary would be a good part of all parameters, so llama-mini is tied. */
static const Decoder decoders[] = {
    {"gpt2", MODEL_GPT2, 768, 12, 12, 12, 3072, 50257, 1024, 0, true, 50256, 50256},
    {"gpt2-medium", MODEL_GPT2, 1024, 24, 16, 16, 4096, 50257, 1024, 0, true, 50256, 50256},
    {"gpt2-mini", MODEL_GPT2, 256, 6, 4, 4, 1024, 4096, 512, 0, true, -1, -1},
    {"llama-3-8b", MODEL_LLAMA, 4096, 32, 32, 8, 14336, 128256, 8192, 500000, false, 128000, 128001},
    {"llama-mini", MODEL_LLAMA, 256, 6, 8, 4, 688, 4096, 512, 10000, true, -1, -1},
};

const char *config_preset_names(void) {
  return "vit-base, vit-small, vit-tiny, vit-cifar, gpt2, gpt2-medium, gpt2-mini, llama-3-8b, llama-mini";
}

/* The paper's settings, without groups: a plain model until somebody chooses them. */
static const AstraConfig paper_settings = {.groups = 0,
                                           .codebook_size = 1024,
                                           .devices = 4,
                                           .devices_least = 4,
                                           .site = SITE_X,
                                           .class_token = CLASS_DISTRIBUTED,
                                           .commitment_weight = 0.0005,
                                           .noise = 1.0,
                                           .layout = {(TokenMapKind)TOKEN_MAP_DEFAULT, 0}};

static void default_vision(ModelConfig *config) {
  config->activation = ACTIVATION_GELU;
  config->norm_eps = 1e-12;
  config->image = 224;
  config->patch = 16;
  config->channels = 3;
  for (int i = 0; i < 3; i++) config->image_mean[i] = config->image_std[i] = 0.5;
  config->resample = 2;
}

static void default_decoder(ModelConfig *config) {
  bool llama = config->kind == MODEL_LLAMA;
  config->activation = llama ? ACTIVATION_NONE : ACTIVATION_GELU_TANH;
  config->norm_eps = llama ? 1e-6 : 1e-5;
  config->context = llama ? 2048 : 1024;
  config->tied = !llama;
  config->rope.theta = llama ? 10000 : 0;
  config->begin_id = config->pad_id = -1;
  config->astra.class_token = CLASS_NONE;
  config->astra.layout = (TokenMap){TOKEN_MAP_RASTER, 0};
  config->astra.site = llama ? SITE_KV : SITE_X;
}

void config_defaults(ModelConfig *config, ModelKind kind) {
  memset(config, 0, sizeof *config);
  config->kind = kind;
  config->astra = paper_settings;
  if (kind == MODEL_VIT)
    default_vision(config);
  else
    default_decoder(config);
}

static Status fill_vision(ModelConfig *config, const Vision *preset, int64_t classes) {
  config_defaults(config, MODEL_VIT);
  config->image = preset->image;
  config->patch = preset->patch;
  config->width = preset->width;
  config->blocks = preset->blocks;
  config->heads = config->kv_heads = preset->heads;
  config->mlp = 4 * preset->width;
  memcpy(config->image_mean, preset->mean, sizeof preset->mean);
  memcpy(config->image_std, preset->std, sizeof preset->std);
  return config_set_labels(config, NULL, classes);
}

static Status fill_decoder(ModelConfig *config, const Decoder *preset, int64_t classes) {
  config_defaults(config, preset->kind);
  config->width = preset->width;
  config->blocks = preset->blocks;
  config->heads = preset->heads;
  config->kv_heads = preset->kv_heads;
  config->mlp = preset->mlp;
  config->vocabulary = preset->vocabulary;
  config->context = preset->context;
  config->norm_eps = 1e-5;
  config->rope.theta = preset->theta;
  config->tied = preset->tied;
  config->begin_id = preset->begin_id;
  if (preset->end_id >= 0) config->end_id[config->end_ids++] = preset->end_id;
  return classes == 0 ? STATUS_OK : config_set_labels(config, NULL, classes);
}

Status config_preset(ModelConfig *config, const char *name, int64_t classes) {
  for (size_t i = 0; i < sizeof visions / sizeof *visions; i++)
    if (strcmp(visions[i].name, name) == 0) return fill_vision(config, &visions[i], classes);
  for (size_t i = 0; i < sizeof decoders / sizeof *decoders; i++)
    if (strcmp(decoders[i].name, name) == 0) return fill_decoder(config, &decoders[i], classes);
  memset(config, 0, sizeof *config);
  return status_set(STATUS_NOT_FOUND, "no model is called '%s'; known are %s", name, config_preset_names());
}
