/* The words of training's options: each is the member of its enum that has its place, which nothing but their order says. */
#include "cli/train_options.h"
#include "data/text/text_perplexity.h"
#include "train/ranks.h"
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

static const struct {
  const char *option, *word;
  int value;
} words[] = {{"map", "even", COUNTS_EVEN},
             {"map", "fixed", COUNTS_FIXED},
             {"map", "dirichlet", COUNTS_DIRICHLET},
             {"map", "auto", SESSION_MAP_AUTO},
             {"site", "x", SITE_X},
             {"site", "kv", SITE_KV},
             {"site", "auto", SESSION_SITE_AUTO},
             {"recipe", "tuned", RECIPE_TUNED},
             {"recipe", "paper", RECIPE_PAPER},
             {"class-token", "distributed", CLASS_DISTRIBUTED},
             {"class-token", "single", CLASS_SINGLE},
             {"noise-covariance", "full", NOISE_FULL},
             {"noise-covariance", "diagonal", NOISE_DIAGONAL},
             {"noise-covariance", "joint", NOISE_JOINT},
             {"noise-covariance", "restored", NOISE_RESTORED},
             {"vq-gradient", "ste", QUANTISE_STRAIGHT},
             {"vq-gradient", "rotation", QUANTISE_ROTATION},
             {"vq-gradient", "none", QUANTISE_NONE},
             {"kmeans-start", "greedy", KMEANS_GREEDY},
             {"kmeans-start", "plus-plus", KMEANS_PLUS_PLUS},
             {"kmeans-start", "random", KMEANS_RANDOM},
             {"kmeans-start", "split", KMEANS_SPLIT},
             {"precision", "fp32", PRECISION_FP32},
             {"precision", "bf16", PRECISION_BF16},
             {"precision", "auto", PRECISION_AUTO},
             {"optimizer", "adamw", OPTIMIZER_ADAMW},
             {"optimizer", "muon", OPTIMIZER_MUON},
             {"optimizer-bits", "32", OPTIMIZER_32_BITS},
             {"optimizer-bits", "16", OPTIMIZER_16_BITS},
             {"optimizer-bits", "8", OPTIMIZER_8_BITS},
             {"wire", "fp32", WIRE_FP32},
             {"wire", "bf16", WIRE_BF16},
             {"dtype", "f32", SAFE_F32},
             {"dtype", "f16", SAFE_F16},
             {"dtype", "bf16", SAFE_BF16},
             {"perplexity", "auto", PERPLEXITY_AUTO},
             {"perplexity", "token", PERPLEXITY_TOKEN},
             {"perplexity", "word", PERPLEXITY_WORD},
             {"perplexity", "byte", PERPLEXITY_BYTE},
             {"perplexity", "gpt2-paper", PERPLEXITY_GPT2_PAPER},
             {"perplexity", "lm-eval", PERPLEXITY_LM_EVAL},
             {"eval-part", "train", TEXT_TRAIN},
             {"eval-part", "valid", TEXT_VALID},
             {"eval-part", "test", TEXT_TEST},
             {"eval-part", "whole", TEXT_WHOLE},
             {"eval-part", "auto", SESSION_PART_AUTO}};
enum { WORDS = sizeof words / sizeof *words };

static TrainCommand command;
static Option table[TRAIN_OPTIONS_MAX];

static void words_are_those_of_their_enums(void **state) {
  (void)state;
  for (int i = 0; i < WORDS; i++) {
    char line[64], program[] = "astra-train", *argv[] = {program, line, NULL};
    const char *positional[2];
    int count;
    snprintf(line, sizeof line, "--%s=%s", words[i].option, words[i].word);
    train_options_table(&command, table);
    assert_int_equal(options_parse(table, 2, argv, positional, &count), STATUS_OK);
    const int value = *(const int *)options_find(table, words[i].option)->target;
    if (value != words[i].value) fail_msg("%s is %d, not %d", line, value, words[i].value);
  }
}

/* None is left out above. */
static void all_words_are_compared(void **state) {
  (void)state;
  train_options_table(&command, table);
  for (const Option *option = table; option->kind != OPTION_GROUP || option->help != NULL; option++) {
    if (option->kind != OPTION_CHOICE) continue;
    int wanted = 1, compared = 0;
    for (const char *at = option->choices; *at != 0; at++) wanted += *at == '|';
    for (int i = 0; i < WORDS; i++) compared += strcmp(words[i].option, option->name) == 0;
    if (compared != wanted) fail_msg("--%s has %d words, of which %d are compared", option->name, wanted, compared);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(words_are_those_of_their_enums), cmocka_unit_test(all_words_are_compared)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
