/* Writes a Llama checkpoint and its tokenizer as one GGUF file, for scripts: make_gguf DIR OUT.gguf F32|F16|BF16|Q8_0|Q4_0|Q4_K|Q6_K
 * [TEMPLATE], or Q5_1, which is a file with a tensor of a type that is not taken. TEMPLATE: its chat template. */
#include "nn/checkpoint.h"
#include "unit/gguf_llama.h"
#include "unit/gguf_tokenizer.h"

static const struct {
  const char *name;
  uint32_t type;
} types[] = {{"F32", GL_F32},   {"F16", GL_F16},   {"BF16", GL_BF16}, {"Q8_0", GL_Q8_0},
             {"Q4_0", GL_Q4_0}, {"Q4_K", GL_Q4_K}, {"Q6_K", GL_Q6_K}, {"Q5_1", GL_F32}};

static int failed(void) {
  fprintf(stderr, "make_gguf: %s\n", status_message());
  return 1;
}

static Status load(Model **model, const char *directory) {
  ModelConfig config;
  Rng rng;
  rng_init(&rng, 1, 0);
  TRY(config_load(&config, directory));
  Status status = model_new(model, &config);
  if (status == STATUS_OK) status = param_allocate(model_params(*model), false);
  if (status == STATUS_OK) status = checkpoint_load_params(*model, directory, &rng, NULL);
  config_release(&config);
  return status;
}

int main(int argc, char **argv) {
  size_t chosen = 0, count = sizeof types / sizeof *types;
  Model *model = NULL;
  Tokenizer *tokenizer;
  GgufWriter writer;
  if (argc != 4 && argc != 5) return fprintf(stderr, "usage: make_gguf DIR OUT.gguf TYPE [TEMPLATE]\n"), 2;
  while (chosen < count && strcmp(types[chosen].name, argv[3]) != 0) chosen++;
  if (chosen == count) return fprintf(stderr, "make_gguf: no type %s\n", argv[3]), 2;
  if (load(&model, argv[1]) != STATUS_OK || tokenizer_open(&tokenizer, argv[1]) != STATUS_OK) return failed();
  gguf_writer_init(&writer);
  gguf_llama_write(&writer, model, types[chosen].type);
  gguf_tokenizer_write(&writer, tokenizer);
  if (argc == 5) gguf_add_text(&writer, "tokenizer.chat_template", argv[4]);
  if (strcmp(argv[3], "Q5_1") == 0) gguf_add_tensor(&writer, "output.weight", 7, 2, (int64_t[]){32, 1}, (uint8_t[24]){0}, 24);
  bool written = gguf_writer_save(&writer, argv[2]);
  gguf_writer_release(&writer);
  tokenizer_close(tokenizer);
  model_free(model);
  return !written;
}
