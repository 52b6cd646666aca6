/* What a checkpoint's config.json says of the model: Hugging Face's fields and, under "astra", ours. */
#ifndef NN_CONFIG_H
#define NN_CONFIG_H
#include "autograd/ops/ops.h"
#include "base/status.h"
#include "nn/layout.h"
#include <stddef.h>
#include <stdint.h>

typedef enum ModelKind { MODEL_VIT, MODEL_GPT2, MODEL_LLAMA } ModelKind;
typedef enum Site { SITE_X, SITE_KV } Site;

typedef struct AstraConfig {
  int groups;        /* 0: a plain model */
  int codebook_size; /* K */
  int devices;       /* that it was trained for; the upper end of a range */
  int devices_least; /* the lower end */
  Site site;
  ClassToken class_token;
  double commitment_weight; /* beta */
  double noise;             /* lambda */
} AstraConfig;

typedef struct ModelConfig {
  ModelKind kind;
  int64_t width, blocks, heads, kv_heads, mlp; /* D, L, H, kv heads, hidden width of the MLP */
  Activation activation;
  double norm_eps;
  int64_t image, patch, channels, classes; /* ViT */
  char **labels;                           /* [classes] names (id2label), owned; NULL entries never */
  double image_mean[3], image_std[3];      /* preprocessor_config.json */
  int resample;                            /* 2 bilinear, 3 bicubic, as Pillow numbers them */
  AstraConfig astra;
} ModelConfig;

/* A preset by name ("vit-base", "vit-small", "vit-tiny", "vit-cifar"), with `classes` unnamed classes. NOT_FOUND lists the names. */
Status config_preset(ModelConfig *config, const char *name, int64_t classes);
const char *config_preset_names(void); /* "vit-base, vit-small, ..." */

/* What Hugging Face's ViTConfig and the paper say where nothing else is said (all sizes of the network itself 0, no classes). */
void config_defaults(ModelConfig *config);

/* Reading. The configuration is filled anew (release an old one first) and is all zeroes after a failure. Required of config.json:
 * model_type, hidden_size, num_hidden_layers, num_attention_heads, intermediate_size; other fields have Hugging Face's defaults, among them
 * two classes where neither id2label nor num_labels is given; fields that are not known are ignored. Of preprocessor_config.json
 * image_mean, image_std and resample are used (do_normalize false: mean 0, std 1); the size of pictures is config.json's image_size. */
Status config_load(ModelConfig *config, const char *directory);       /* config.json and, where present, preprocessor_config.json */
Status config_save(const ModelConfig *config, const char *directory); /* both files, config.json last */
Status config_parse(ModelConfig *config, const char *json, size_t size, const char *origin);              /* config.json's text: fuzzed */
Status config_parse_preprocessor(ModelConfig *config, const char *json, size_t size, const char *origin); /* into a parsed one */
Status config_check(const ModelConfig *config);                                      /* every range and divisibility; names the field */
Status config_set_labels(ModelConfig *config, char *const *labels, int64_t classes); /* copies; NULL: LABEL_0... */
Status config_copy(ModelConfig *to, const ModelConfig *from);
void config_release(ModelConfig *config);

int64_t config_tokens(const ModelConfig *config);        /* content tokens of one image */
int config_sites(const ModelConfig *config);             /* codebook sets per block: 1 for x, 2 for kv */
int64_t config_site_width(const ModelConfig *config);    /* numbers of a token at a site */
int config_code_bits(const ModelConfig *config);         /* ceil(log2 K) */
double config_bits_per_token(const ModelConfig *config); /* sent per token over all blocks: L sites G log2 K */
double config_compression(const ModelConfig *config);    /* 32 D L / bits per token (kv: 2 x width of kv); 0: plain */

#endif
