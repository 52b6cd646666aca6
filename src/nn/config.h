/* The model configuration in a checkpoint's config.json: Hugging Face's fields and, under "astra", ours. Vision transformers classify
 * images; GPT-2 and Llama (the decoders) predict the next token or, as ...ForSequenceClassification, classify a text. */
#ifndef NN_CONFIG_H
#define NN_CONFIG_H
#include "autograd/ops/ops.h"
#include "base/status.h"
#include "nn/layout.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum ModelKind { MODEL_VIT, MODEL_GPT2, MODEL_LLAMA } ModelKind;
typedef enum Site { SITE_X, SITE_KV } Site;

enum {
  CONFIG_RATES = 16,
  CONFIG_RATES_TEXT = 224,
  CONFIG_BLOCKS_MAX = 1024,
  CONFIG_CODEBOOK_SIZE = 1024 /* the paper's K, where nothing says another */
};

typedef struct AstraConfig {
  int groups;              /* G of the bit rate in use; 0: a plain model */
  int rates[CONFIG_RATES]; /* a model with codebooks for several bit rates: G of each, ascending; groups is one of them */
  int rate_count;          /* how many; 0: groups alone */
  int codebook_size;       /* K */
  int devices;             /* that it was trained for; the upper end of a range */
  int devices_min;         /* the lower end */
  Site site;
  ClassToken class_token;
  double commitment_weight; /* beta */
  double noise;             /* lambda */
  bool rotation;            /* what is quantised is mapped to another basis first (BlockParams.rotation) */
  bool prediction;          /* with a rotation: only what its code of the block before does not tell of a token is quantised */
  bool exact_first;         /* with predictions, of texts: every device computes the first block's tokens from their ids */
  bool position_mean;       /* with predictions, of images: tokens are quantised less their mean at their position */
  int64_t exchange_blocks;  /* of images: the number of blocks, from the first on, that exchange codes; in later ones tokens attend only
                             * to tokens of the same device; 0: all exchange */
  double class_bias;        /* of a ViT's distributed class tokens: added to the scores of their attention to quantised tokens, but for
                             * training */
  double class_mean_power;  /* of the same: in their mean each counts as its device's number of tokens to this power; 0: all alike */
  TokenMap layout;          /* of a ViT's tokens on devices, in evaluation and on nodes; a decoder's is raster */
} AstraConfig;

/* Rotary positions (Llama). The frequencies of Llama 3.1 (rope_type "llama3"): see config_rope_frequencies. */
typedef struct RopeConfig {
  double theta;
  bool llama3;                            /* the four below apply */
  double factor, low_factor, high_factor; /* factor, low_freq_factor, high_freq_factor */
  int64_t original;                       /* original_max_position_embeddings */
} RopeConfig;

enum { CONFIG_ENDS = 8, CONFIG_DROPOUTS = 3 };

typedef struct ModelConfig {
  ModelKind kind;
  int64_t width, blocks, heads, kv_heads, mlp; /* D, L, H, kv heads, hidden width of the MLP */
  Activation activation;                       /* of the MLP; ACTIVATION_NONE: SwiGLU (Llama) */
  double norm_eps;
  int64_t classes;                    /* 0: the head of a decoder predicts tokens */
  char **labels;                      /* [classes] names (id2label), owned; NULL entries never; NULL without classes */
  int64_t image, patch, channels;     /* ViT */
  double image_mean[3], image_std[3]; /* preprocessor_config.json */
  int resample;                       /* 2 bilinear, 3 bicubic, as Pillow numbers them */
  int64_t vocabulary, context;        /* decoders: V, and the longest sequence */
  bool tied;                          /* decoders: the head that predicts tokens is the token embedding */
  RopeConfig rope;                    /* Llama */
  double dropout[CONFIG_DROPOUTS];    /* GPT-2: embd_pdrop, resid_pdrop, attn_pdrop, kept for the file; nothing here drops out */
  int64_t begin_id, pad_id;           /* decoders: bos_token_id, pad_token_id; -1: not set */
  int64_t end_id[CONFIG_ENDS];        /* decoders: eos_token_id, one or a list */
  int end_ids;                        /* how many of these */
  AstraConfig astra;
} ModelConfig;

/* A preset by name ("vit-base", "gpt2", "llama-mini"...), with `classes` unnamed classes; 0, only for decoders: it predicts tokens. The
 * small decoders have a vocabulary of 4,096 and no special token ids: these come from the tokenizer. BAD_USAGE lists the names,
 * and so does NOT_FOUND about what looks like a path. */
Status config_preset(ModelConfig *config, const char *name, int64_t classes);
const char *config_preset_names(void); /* "vit-base, vit-small, ..." */

/* The defaults of Hugging Face and the paper for this kind (all sizes of the network itself 0, no classes). */
void config_defaults(ModelConfig *config, ModelKind kind);

/* Reading. The configuration is filled anew (release an old one first) and is all zeroes after a failure. Required of config.json:
 * model_type and the sizes of the network (FORMATS.md lists them for each type); other fields have Hugging Face's defaults, among them two
 * classes where neither id2label nor num_labels is given; fields that are not known are ignored, but those that would change what is
 * computed in a way that is not supported are UNSUPPORTED. `architectures` says whether a decoder predicts tokens or classifies. Of
 * preprocessor_config.json, which only a ViT has, image_mean, image_std and resample are used (do_normalize false: mean 0, std 1); the size
 * of images is config.json's image_size. Of generation_config.json, which decoders may have, eos_token_id is used: its ids are added.
 * In place of a directory config_load takes a GGUF file (gguf_model.h). */
Status config_load(ModelConfig *config, const char *directory); /* config.json and, where present, the other one of its kind */
/* Says so where a ViT's directory has no preprocessor_config.json: once, by who reads images for the weights that lie there. */
void config_warn_no_preprocessor(const ModelConfig *config, const char *directory);
Status config_save(const ModelConfig *config, const char *directory); /* config.json, after a ViT's other one */
Status config_check(const ModelConfig *config);                       /* all ranges and divisibilities; names the field */
Status config_check_file(const ModelConfig *config,
                         const char *origin); /* the same of what a file says: messages name it, BAD_VALUE is BAD_FILE */
Status config_set_labels(ModelConfig *config, char *const *labels, int64_t classes); /* copies; NULL: LABEL_0... */
Status config_check_labels(const ModelConfig *config);                               /* UTF-8, which a file of JSON asks for */
/* The first class that names [config->classes] call otherwise; -1: none, or there are no names. */
int64_t config_other_label(const ModelConfig *config, char *const *names);
/* The configuration's class of each of names [config->classes]: class_of [config->classes]. *matched is false where a name is missing or
 * stands twice: class_of is 0, 1, 2... then. NO_MEMORY. */
Status config_match_labels(const ModelConfig *config, char *const *names, int32_t *class_of, bool *matched);
Status config_copy(ModelConfig *to, const ModelConfig *from);
void config_release(ModelConfig *config);

bool config_is_decoder(const ModelConfig *config);
int64_t config_tokens(const ModelConfig *config);     /* content tokens of one image; of a decoder's longest sequence */
int config_sites(const ModelConfig *config);          /* codebook sets per block: 1 for x, 2 for kv */
int64_t config_kv_width(const ModelConfig *config);   /* numbers of a token's keys, or values: heads of keys x their size */
int64_t config_site_width(const ModelConfig *config); /* numbers of a token at a site */

/* Bit rates: a model has codebooks for each, and uses one at a time. They are numbered from 0 in ascending order. */
int config_rates(const ModelConfig *config);                                    /* how many; 0: a plain model */
int config_rate_groups(const ModelConfig *config, int rate);                    /* G of one */
int config_rate(const ModelConfig *config);                                     /* the one in use */
Status config_use_rate(ModelConfig *config, int groups);                        /* BAD_VALUE lists those that the model has */
Status config_set_rates(ModelConfig *config, const int64_t *groups, int count); /* count 0: none; the largest is in use. For config_check */
const char *config_rates_text(const ModelConfig *config, char text[CONFIG_RATES_TEXT]); /* "1, 2, 4, 8" */
/* What a token sends in full precision per block under sequence parallelism, whatever the model's site: the row after the first norm or, if
 * they are fewer numbers (grouped queries: 2 x kv width < D), keys before rotation and values. Number of sites, and numbers at each. */
int config_whole_sites(const ModelConfig *config);
int64_t config_whole_width(const ModelConfig *config);

/* The first block whose tokens travel as codes: 1 with AstraConfig.exact_first, else 0; and the first behind it whose tokens do not travel:
 * L, or AstraConfig.exchange_blocks. Those in between have codebooks: one for each site, numbered from the first block's on; 0 in a plain
 * model. */
int config_first_coded(const ModelConfig *config);
int config_end_coded(const ModelConfig *config);
int64_t config_codebooks(const ModelConfig *config);
Status config_check_exchange(int64_t exchange_blocks, int64_t blocks);      /* --exchange-blocks: BAD_USAGE where the model has fewer */
int64_t config_prediction_inputs(const ModelConfig *config, int64_t block); /* numbers that a token of the block is predicted from */
bool config_plain_prediction(const AstraConfig *astra); /* as earlier versions made them: with neither exact_first nor position_mean */
int64_t config_known_width(const ModelConfig *config);  /* the most of them; 0 without predictions */

/* Parts of tensors' names. A site of a block that has so many: "x", or "k" and "v"; `index` may count on from block to block. */
const char *config_site_name(int sites, int64_t index);
/* The block and site of a codebook, as config_codebooks counts them: "astra.layers.3.k". */
enum { CONFIG_CODEBOOK_PLACE = 48 };
const char *config_codebook_place(const ModelConfig *config, int64_t index, char text[CONFIG_CODEBOOK_PLACE]);
/* What tells the tensors of a bit rate from those of others: "groups2.", or "" of the rate with the most groups. */
enum { CONFIG_RATE_PREFIX = 24 };
const char *config_rate_prefix(const ModelConfig *config, int rate, char text[CONFIG_RATE_PREFIX]);

/* Sent per token over all blocks: G ceil(log2 K) for each codebook, and with exact_first the bits of its id, ceil(log2 V), which all
 * devices need. */
double config_bits_per_token(const ModelConfig *config);
double config_code_bits(const ModelConfig *config); /* G ceil(log2 K): of a token at one site of one block */

/* Compression ratio against numbers of `number_bits` (32 or 16) in place of codes: number_bits D L / bits per token (kv: 2 x width of kv);
 * 0: plain. The paper's ratios are against 32 bits for ViT and GPT-2, and against 16 for Llama: config_paper_bits. */
double config_compression(const ModelConfig *config, int number_bits);
int config_paper_bits(const ModelConfig *config);

/* "76.8-fold compression of 32-bit numbers (the paper's baseline), 38.4-fold of 16-bit ones". Returns text. */
enum { CONFIG_COMPRESSION = 128 };
const char *config_compression_text(const ModelConfig *config, char text[CONFIG_COMPRESSION]);

/* Rotary positions (Su et al., 2021) of a head of d = head_width numbers:
 *
 *   frequency of pair i of a head of d numbers:  f_i = theta^(-2 i / d),  its wavelength in tokens:  w_i = 2 pi / f_i
 *
 * With rope_type "llama3" (Llama 3.1) low frequencies are slowed down so that a context `factor` times as long fits:
 *
 *   w_i < original / high_factor:  f_i as it is
 *   w_i > original / low_factor:   f_i / factor
 *   between:  (1 - s) f_i / factor + s f_i  with  s = (original / w_i - low_factor) / (high_factor - low_factor) */
void config_rope_frequencies(const RopeConfig *rope, int64_t head_width, double *frequency); /* [d / 2], radians a token */

#endif
