/* config.json's fields of a vision transformer, and preprocessor_config.json. */
#include "nn/config_parts.h"

Status config_vision_read(const Fields *fields, ModelConfig *config) {
  int activation = (int)config->activation;
  bool qkv_bias = true;
  TRY(fields_required(fields, "hidden_size", &config->width));
  TRY(fields_required(fields, "num_hidden_layers", &config->blocks));
  TRY(fields_required(fields, "num_attention_heads", &config->heads));
  TRY(fields_required(fields, "intermediate_size", &config->mlp));
  config->kv_heads = config->heads;
  TRY(fields_whole(fields, "image_size", &config->image));
  TRY(fields_whole(fields, "patch_size", &config->patch));
  TRY(fields_whole(fields, "num_channels", &config->channels));
  TRY(fields_number(fields, "layer_norm_eps", &config->norm_eps));
  TRY(fields_choice(fields, "hidden_act", config_activations, &activation));
  config->activation = (Activation)activation;
  TRY(fields_flag(fields, "qkv_bias", &qkv_bias));
  if (!qkv_bias)
    return status_set(STATUS_UNSUPPORTED,
                      "%s: qkv_bias is false; only models whose query, key and value projections have biases are supported",
                      fields->origin);
  return config_labels_read(fields, config);
}

Status config_vision_read_preprocessor(const Fields *fields, ModelConfig *config) {
  bool normalise = true, rescale = true;
  double factor = 1.0 / 255.0;
  TRY(fields_int(fields, "resample", &config->resample));
  TRY(fields_triple(fields, "image_mean", config->image_mean));
  TRY(fields_triple(fields, "image_std", config->image_std));
  TRY(fields_flag(fields, "do_normalize", &normalise));
  TRY(fields_flag(fields, "do_rescale", &rescale));
  TRY(fields_number(fields, "rescale_factor", &factor));
  if (!rescale || factor < 0.99 / 255.0 || factor > 1.01 / 255.0)
    return status_set(STATUS_UNSUPPORTED, "%s: only pictures rescaled by 1/255 are supported (do_rescale true, rescale_factor 0.00392...)",
                      fields->origin);
  for (int i = 0; i < 3 && !normalise; i++) {
    config->image_mean[i] = 0;
    config->image_std[i] = 1;
  }
  return STATUS_OK;
}

json_t *config_vision_json(const ModelConfig *config) {
  return json_pack("{s:[s], s:s, s:I, s:I, s:I, s:I, s:s, s:f, s:b, s:I, s:I, s:I, s:o, s:o}", "architectures", "ViTForImageClassification",
                   "model_type", "vit", "hidden_size", (json_int_t)config->width, "num_attention_heads", (json_int_t)config->heads,
                   "num_hidden_layers", (json_int_t)config->blocks, "intermediate_size", (json_int_t)config->mlp, "hidden_act",
                   fields_choice_name(config_activations, (int)config->activation), "layer_norm_eps", config->norm_eps, "qkv_bias", 1,
                   "image_size", (json_int_t)config->image, "patch_size", (json_int_t)config->patch, "num_channels",
                   (json_int_t)config->channels, "id2label", config_labels_json(config, false), "label2id",
                   config_labels_json(config, true));
}

json_t *config_vision_preprocessor(const ModelConfig *config) {
  const double *mean = config->image_mean, *std = config->image_std;
  return json_pack("{s:s, s:b, s:b, s:b, s:f, s:[fff], s:[fff], s:i, s:{s:I, s:I}}", "image_processor_type", "ViTImageProcessor",
                   "do_resize", 1, "do_rescale", 1, "do_normalize", 1, "rescale_factor", 1.0 / 255.0, "image_mean", mean[0], mean[1],
                   mean[2], "image_std", std[0], std[1], std[2], "resample", config->resample, "size", "height", (json_int_t)config->image,
                   "width", (json_int_t)config->image);
}
