/* From the command line to device maps: see map_options.h. */
#include "train/map_options.h"
#include <stdlib.h>
#include <string.h>

/* --counts: as many positive numbers as devices, which sum to the tokens. */
static Status read_counts(Session *session) {
  const TrainOptions *options = &session->options;
  const char *at = options->counts;
  int64_t devices = options->devices[1], tokens = session->tokens, sum = 0;
  for (int64_t d = 0; d < devices; d++) {
    char *end;
    int64_t count = session->fixed_counts[d] = strtoll(at, &end, 10);
    if (end == at || count < 1 || *end != (d + 1 < devices ? ',' : '\0'))
      return status_set(STATUS_BAD_USAGE, "--counts %s: %lld positive numbers with commas between are accepted", options->counts,
                        (long long)devices);
    sum += count <= tokens ? count : tokens + 1; /* no sum of at most SESSION_DEVICES of these overflows */
    at = end + 1;
  }
  if (sum == tokens) return STATUS_OK;
  return status_set(STATUS_BAD_USAGE, "--counts %s: they do not sum to the %lld tokens of a sample", options->counts, (long long)tokens);
}

/* ---- which tokens */

static bool permutes(const TrainOptions *options) { return options->layout == NULL || strcmp(options->layout, "permuted") == 0; }

/* An option's value -> *map, which "trained" leaves as the model's configuration has it. */
static Status read_layout(const char *option, const char *value, const ModelConfig *config, TokenMap *map) {
  if (config_is_decoder(config))
    return status_set(STATUS_BAD_USAGE, "--%s %s: a layout is for tokens of pictures; devices hold contiguous spans of a text", option,
                      value);
  if (config->astra.groups == 0)
    return status_set(STATUS_BAD_USAGE, "--%s %s: a plain model (--groups 0) has all tokens on one device", option, value);
  if (strcmp(value, "trained") == 0 || token_map_parse(value, map)) return STATUS_OK;
  return status_set(STATUS_BAD_USAGE, "--%s %s: accepted are %s, trained (as the checkpoint says)%s", option, value, token_map_names,
                    strcmp(option, "layout") == 0 ? " and permuted (anew for each batch)" : "");
}

Status map_options_layout(Session *session, ModelConfig *config) {
  const TrainOptions *options = &session->options;
  TokenMap *training = &session->fixed_map, *evaluation = &config->astra.layout;
  *training = *evaluation;
  if (options->layout != NULL && (!permutes(options) || config_is_decoder(config) || config->astra.groups == 0))
    TRY(read_layout("layout", options->layout, config, training));
  if (options->eval_layout != NULL) return read_layout("eval-layout", options->eval_layout, config, evaluation);
  if (!permutes(options)) *evaluation = *training;
  return STATUS_OK;
}

Status map_options_set(Session *session) {
  const TrainOptions *options = &session->options;
  const bool pictures = !config_is_decoder(session->config);
  if (options->groups > 0 && options->patch_drop > 0)
    return status_set(STATUS_BAD_USAGE, "--patch-drop is for training a plain model (--groups 0)");
  session->map = (DeviceMapOptions){.devices_least = (int)options->devices[0],
                                    .devices_most = (int)options->devices[1],
                                    .counts = (MapCounts)options->map,
                                    .fixed = session->fixed_counts,
                                    .concentration = options->concentration,
                                    .permute = pictures && permutes(options),
                                    .map = session->fixed_map,
                                    .side = pictures ? session->config->image / session->config->patch : 0};
  if (options->map != COUNTS_FIXED)
    return options->counts == NULL ? STATUS_OK : status_set(STATUS_BAD_USAGE, "--counts is for --map fixed");
  if (options->counts == NULL) return status_set(STATUS_BAD_USAGE, "--map fixed needs --counts, e.g. --counts 16,16,16,16");
  if (options->devices[0] != options->devices[1])
    return status_set(STATUS_BAD_USAGE, "--map fixed needs one number of --devices, not a range");
  return read_counts(session);
}
