/* The words of training's options: each is the member of its enum that has its place, which nothing but their order says. */
#include "base/files.h"
#include "cli/train_options.h"
#include "data/text/text_perplexity.h"
#include "train/ranks.h"
#include "unit/remove_tree.h"
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
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

static Status resume_with(const char *name) {
  train_options_table(&command, table);
  command.resume = "no/such/run";
  for (Option *option = table; option->kind != OPTION_GROUP || option->help != NULL; option++)
    option->given = option->name != NULL && strcmp(option->name, name) == 0;
  return train_options_resume(&command, table, 0, NULL);
}

/* What a refusal on --resume lists is what is accepted there. */
static void what_a_resumed_run_takes_is_listed(void **state) {
  (void)state;
  static Option all[TRAIN_OPTIONS_MAX];
  char list[1024];
  int listed = 0;
  train_options_table(&command, all);
  assert_int_equal(resume_with("batch"), STATUS_BAD_USAGE);
  assert_non_null(strstr(status_message(), "--batch cannot be changed on --resume"));
  const char *begin = strstr(status_message(), "Accepted with it are ");
  assert_non_null(begin);
  snprintf(list, sizeof list, "%s,", begin);
  for (char *and = strstr(list, " and "); and; and = strstr(and, " and ")) memcpy(and, ",    ", 5);
  for (const Option *option = all; option->kind != OPTION_GROUP || option->help != NULL; option++) {
    char name[64];
    if (option->kind == OPTION_GROUP || strcmp(option->name, "resume") == 0) continue;
    snprintf(name, sizeof name, " --%s,", option->name);
    const bool is_listed = strstr(list, name) != NULL;
    if (resume_with(option->name) != (is_listed ? STATUS_NOT_FOUND : STATUS_BAD_USAGE))
      fail_msg("--%s is %s, but: %s", option->name, is_listed ? "listed" : "not listed", status_message());
    listed += is_listed;
  }
  assert_int_equal(listed, 23);
}

/* What is remembered of choices is their words, and nothing has moved. */
static void choices_are_remembered(void **state) {
  (void)state;
  static const char *const precisions[] = {"fp32", "bf16", "auto"}, *const types[] = {"f32", "f16", "bf16"},
                           *const recipes[] = {"tuned", "paper"};
  char folder[TEMPORARY_PATH], path[TEMPORARY_PATH + 32], program[] = "astra-train", argument[] = "--model=tiny",
                                                          *argv[] = {program, argument};
  assert_int_equal(make_temporary_folder(folder), 0);
  snprintf(path, sizeof path, "%s/training/options.txt", folder);
  for (int i = 0; i < 3 * 3 * 2; i++) {
    char expected[1024], *text;
    size_t size;
    train_options_table(&command, table);
    TrainOptions *options = &command.train;
    options->out = folder;
    options->precision = i % 3, options->dtype = i / 3 % 3, options->recipe = i / 9;
    options->batch = 8, options->epochs = 2, options->warmup = 5, options->eval_every = 7, options->optimizer.rate = 0.25;
    options->mixup = 0.75, options->cutmix = 1;
    options->distill = 0.5, options->distill_hidden = 1, options->class_bias = -0.5, options->class_mean_power = 0.5,
    options->exchange_blocks = 4, options->max_steps = 9;
    options->early_stopping = 3, options->keep_best = i % 2;
    assert_int_equal(train_options_remember(options, 2, argv, "/here", 6), STATUS_OK);
    snprintf(expected, sizeof expected,
             "--model=tiny\n--recipe\n%s\n--threads\n6\n--batch\n8\n--epochs\n2\n--warmup\n5\n--eval-every\n7\n--learning-rate\n0.25\n"
             "--mixup\n0.75\n--cutmix\n1\n--distill\n0.5\n--distill-hidden\n1\n--class-bias\n-0.5\n--class-mean-power\n0.5\n--exchange-"
             "blocks\n4\n--max-"
             "steps\n9\n--precision\n%s\n--"
             "dtype\n%s\n"
             "--early-stopping\n3\n--%s\n# begun in /here\n# xxh3 ",
             recipes[i / 9], precisions[i % 3], types[i / 3 % 3], i % 2 ? "keep-best" : "no-keep-best");
    assert_int_equal(files_read(path, 4096, &text, &size), STATUS_OK);
    assert_true(size > strlen(expected));
    text[strlen(expected)] = 0;
    assert_string_equal(text, expected);
    free(text);
  }
  remove_tree(folder);
}

/* Where a run goes that names no --out. */
static void usual_folders(void **state) {
  (void)state;
  static const struct {
    const char *model, *dataset, *prefix;
    int64_t rates[4];
    const char *expected;
  } cases[] = {{"vit-cifar-45k", "folder:/data/clothing/", "", {8}, "runs/vit-cifar-45k-clothing-g8"},
               {"./models/mine.gguf", "text:a/b", "", {0}, "runs/mine.gguf-b-g0"},
               {"vit-base", NULL, "codebooks-", {32}, "runs/codebooks-vit-base-cifar100-g32"},
               {"gpt2", "sst2:glue/SST-2", "", {8, 1, 4, 8}, "runs/gpt2-SST-2-g1-4-8"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    TrainOptions options = {.model = cases[i].model, .dataset = cases[i].dataset};
    memcpy(options.rates, cases[i].rates, sizeof cases[i].rates);
    assert_string_equal(train_options_usual_out(&options, cases[i].prefix), cases[i].expected);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(words_are_those_of_their_enums), cmocka_unit_test(all_words_are_compared),
                                     cmocka_unit_test(what_a_resumed_run_takes_is_listed), cmocka_unit_test(choices_are_remembered),
                                     cmocka_unit_test(usual_folders)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
