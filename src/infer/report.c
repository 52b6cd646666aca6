/* Text and JSON of results. Figures come from the leader's sums; nothing is measured here. */
#include "infer/report.h"
#include "base/printable.h"
#include "infer/node_share.h"
#include "nn/json_build.h"
#include "nn/strategy.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static NodeStatistics sum_of_nodes(const Leader *leader) {
  NodeStatistics sum = {0};
  for (int d = 0; d < leader_nodes(leader); d++) {
    sum.bytes_sent += leader_sums(leader)->nodes[d].bytes_sent;
    sum.payload_sent += leader_sums(leader)->nodes[d].payload_sent;
    sum.coded_bits += leader_sums(leader)->nodes[d].coded_bits;
    sum.packed_bits += leader_sums(leader)->nodes[d].packed_bits;
  }
  return sum;
}

static bool sends_codes(const Leader *leader) { return strategy_facts(node_share_strategy(leader_setup(leader)))->sends_codes; }

/* A sum over everything that was sent, per token, block, site and receiver: a node of images sends to all others, one of a text to those
 * after it. */
static double per_token(const Leader *leader, int64_t samples, uint64_t sum) {
  const Weights *weights = leader_weights(leader);
  const Partition *partition = leader_setup(leader)->partition;
  int nodes = leader_nodes(leader), taking_part = 0;
  double copies = 0; /* of one sample's tokens */
  if (nodes < 2 || samples < 1 || !sends_codes(leader)) return 0;
  if (partition) copies = (double)(nodes - 1) * (double)(partition->tokens + (weights->config->astra.class_token == CLASS_SINGLE));
  for (int d = 0; d < nodes; d++) taking_part += leader_sums(leader)->tokens[d] > 0;
  for (int d = 0; d < taking_part && !partition; d++) copies += (double)leader_sums(leader)->tokens[d] * (taking_part - 1 - d);
  copies *= (double)weights->book_count * (double)samples;
  return copies > 0 ? (double)sum / copies : 0;
}

static double token_bytes(const Leader *leader, int64_t samples) { return per_token(leader, samples, sum_of_nodes(leader).payload_sent); }

static double token_bits(const Leader *leader, int64_t samples, bool coded) {
  NodeStatistics sum = sum_of_nodes(leader);
  return per_token(leader, samples, coded ? sum.coded_bits : sum.packed_bits);
}

static double share(int64_t part, int64_t whole) { return whole > 0 ? (double)part / (double)whole : 0; }
static double bytes_per_image(const Leader *leader, int64_t samples) {
  return samples > 0 ? (double)sum_of_nodes(leader).bytes_sent / (double)samples : 0;
}
static double per_second(double count, double seconds) { return seconds > 0 ? count / seconds : 0; }

static void print_classes(FILE *out, const Weights *weights, int count, const int32_t *index, const double *probability) {
  for (int k = 0; k < count; k++) fprintf(out, "  %6.2f%%  %s\n", 100 * probability[k], printable(weights->config->labels[index[k]]));
}

static json_t *json_classes(const Weights *weights, int count, const int32_t *index, const double *probability) {
  json_t *top = json_array();
  for (int k = 0; k < count; k++)
    json_array_append_new(top, json_pack("{s:s, s:i, s:o}", "label", weights->config->labels[index[k]], "class", (int)index[k],
                                         "probability", json_build_number(probability[k])));
  return top;
}

json_t *report_images(FILE *out, const Weights *weights, const ImageResult *results, int count) {
  json_t *list = out ? NULL : json_array();
  for (int i = 0; i < count; i++) {
    const ImageResult *r = &results[i];
    if (out && r->read) {
      fprintf(out, "%s\n", printable(r->path));
      print_classes(out, weights, r->count, r->index, r->probability);
    }
    if (out) continue;
    json_t *image =
        json_pack("{s:s, s:o}", "file", r->path, "top", json_classes(weights, r->read ? r->count : 0, r->index, r->probability));
    if (image && !r->read) json_object_set_new(image, "error", json_string(r->message));
    json_array_append_new(list, image);
  }
  return list;
}

enum { SHOWN = 100 /* bytes of a text */ };

json_t *report_texts(FILE *out, const Weights *weights, const TextSample *samples, const Texts *texts, const ClassTop *results) {
  json_t *list = out ? NULL : json_array();
  for (int64_t i = 0; i < texts->count; i++) {
    const TextSample *sample = &samples[i];
    const ClassTop *r = &results[i];
    if (out) {
      char *text = printable_excerpt(sample->text, strlen(sample->text), SHOWN);
      char *pair = sample->pair ? printable_excerpt(sample->pair, strlen(sample->pair), SHOWN) : NULL;
      fprintf(out, "\"%s\"", text ? text : "");
      if (pair) fprintf(out, " and \"%s\"", pair);
      fputc('\n', out);
      print_classes(out, weights, r->count, r->index, r->probability);
      free(text);
      free(pair);
      continue;
    }
    json_t *text = json_pack("{s:o, s:I, s:o, s:f}", "text", json_build_text(sample->text, strlen(sample->text)), "tokens",
                             (json_int_t)texts_length(texts, i), "top", json_classes(weights, r->count, r->index, r->probability),
                             "milliseconds", 1e3 * r->seconds);
    if (text && sample->pair) json_object_set_new(text, "pair", json_build_text(sample->pair, strlen(sample->pair)));
    json_array_append_new(list, text);
  }
  return list;
}

/* The share of the transfer time of codes in which the node did not wait for them; NAN where it was not measured. */
static double hidden_share(const NodeStatistics *node) {
  if (node->span <= 0) return NAN;
  double hidden = 1 - node->wait / node->span;
  return hidden < 0 ? 0 : hidden > 1 ? 1 : hidden;
}

void report_plan_line(FILE *out, double predicted, double measured) {
  fprintf(out, "predicted %.1f ms a sample", 1e3 * predicted);
  if (measured > 0) fprintf(out, ", measured %.1f ms (%+.0f%%)", 1e3 * measured, 100 * (measured / predicted - 1));
  fputc('\n', out);
}

double report_fpar(const Leader *leader) {
  int64_t sum = 0, squares = 0;
  for (int d = 0; d < leader_nodes(leader); d++) {
    sum += leader_sums(leader)->tokens[d];
    squares += leader_sums(leader)->tokens[d] * leader_sums(leader)->tokens[d];
  }
  return sum > 0 ? (double)squares / ((double)sum * (double)sum) : 0;
}

/* Missing packets and tokens; a run without any has no such table. */
static void report_losses(FILE *out, const Leader *leader) {
  bool missing = false;
  for (int d = 0; d < leader_nodes(leader); d++) {
    const NodeStatistics *s = &leader_sums(leader)->nodes[d];
    missing |= s->lost + s->late + s->masked + s->resent > 0;
  }
  if (!missing) return;
  fprintf(out, "%4s %12s %12s %12s %12s %14s %12s\n", "node", "packets lost", "packets late", "tokens lost", "tokens late", "tokens masked",
          "sent again");
  for (int d = 0; d < leader_nodes(leader); d++) {
    const NodeStatistics *s = &leader_sums(leader)->nodes[d];
    fprintf(out, "%4d %12llu %12llu %12llu %12llu %14llu %12llu\n", d, (unsigned long long)s->lost, (unsigned long long)s->late,
            (unsigned long long)s->lost_tokens, (unsigned long long)s->late_tokens, (unsigned long long)s->masked,
            (unsigned long long)s->resent);
  }
}

void report_nodes(FILE *out, const Leader *leader) {
  fprintf(out, "%4s %7s %12s %12s %10s %10s %8s %14s %14s\n", "node", "tokens", "compute ms", "quantise ms", "send ms", "wait ms", "hidden",
          "bytes sent", "bytes received");
  for (int d = 0; d < leader_nodes(leader); d++) {
    const NodeStatistics *s = &leader_sums(leader)->nodes[d];
    char hidden[16] = "-";
    if (isfinite(hidden_share(s))) snprintf(hidden, sizeof hidden, "%.0f%%", 100 * hidden_share(s));
    fprintf(out, "%4d %7lld %12.1f %12.1f %10.1f %10.1f %8s %14llu %14llu\n", d, (long long)leader_sums(leader)->tokens[d],
            1e3 * s->compute, 1e3 * s->quantise, 1e3 * s->send, 1e3 * s->wait, hidden, (unsigned long long)s->bytes_sent,
            (unsigned long long)s->bytes_received);
  }
  report_losses(out, leader);
  const NodeStatistics sum = sum_of_nodes(leader);
  if (sum.coded_bits < sum.packed_bits)
    fprintf(out, "entropy coding: %.1f%% of the bits that codes take packed\n", 100 * (double)sum.coded_bits / (double)sum.packed_bits);
  if (leader_nodes(leader) > 1 && sends_codes(leader)) fprintf(out, "full-precision attention rate %.3f\n", report_fpar(leader));
}

json_t *report_nodes_json(const Leader *leader) {
  json_t *list = json_array();
  for (int d = 0; d < leader_nodes(leader); d++) {
    const NodeStatistics *s = &leader_sums(leader)->nodes[d];
    json_t *node = json_pack("{s:i, s:I, s:f, s:f, s:f, s:f, s:f, s:o}", "node", d, "tokens", (json_int_t)leader_sums(leader)->tokens[d],
                             "compute_ms", 1e3 * s->compute, "quantise_ms", 1e3 * s->quantise, "send_ms", 1e3 * s->send, "wait_ms",
                             1e3 * s->wait, "span_ms", 1e3 * s->span, "hidden", json_build_number(hidden_share(s)));
#define REPORT_COUNT(name) json_object_set_new(node, #name, json_integer((json_int_t)s->name));
    WIRE_COUNTS(REPORT_COUNT)
#undef REPORT_COUNT
    json_object_set_new(node, "recovered", json_integer(0)); /* by parity packets, which were removed; stays for readers of this schema */
    json_object_set_new(node, "tables_ms", json_real(1e3 * s->tables));
    json_array_append_new(list, node);
  }
  return list;
}

/* The saving of entropy coding, if there is one. */
static void report_bits(FILE *out, const Leader *leader, int64_t samples) {
  double coded = token_bits(leader, samples, true), packed = token_bits(leader, samples, false);
  if (coded < packed)
    fprintf(out, "entropy coding: %.2f bits per token instead of %.2f (%+.1f%%)\n", coded, packed, 100 * (coded / packed - 1));
}

json_t *report_evaluation(FILE *out, const Leader *leader, const Evaluation *e) {
  if (!out)
    return json_pack("{s:I, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:I, s:o}", "samples", (json_int_t)e->samples, "top1",
                     share(e->correct1, e->samples), "top5", share(e->correct5, e->samples), "seconds", e->seconds, "images_per_second",
                     per_second((double)e->samples, e->seconds), "bytes_per_picture", bytes_per_image(leader, e->samples),
                     "bytes_per_token_block_receiver", token_bytes(leader, e->samples), "coded_bits_per_token_block_receiver",
                     token_bits(leader, e->samples, true), "packed_bits_per_token_block_receiver", token_bits(leader, e->samples, false),
                     "skipped", (json_int_t)e->skipped, "nodes", report_nodes_json(leader));
  fprintf(out, "%lld images on %d node%s in %.1f s, %.1f images/s\n", (long long)e->samples, leader_nodes(leader),
          leader_nodes(leader) == 1 ? "" : "s", e->seconds, per_second((double)e->samples, e->seconds));
  fprintf(out, "top-1 %.2f%%   top-5 %.2f%%\n", 100 * share(e->correct1, e->samples), 100 * share(e->correct5, e->samples));
  if (leader_nodes(leader) > 1 && sends_codes(leader))
    fprintf(out, "sent %.1f bytes per image by all nodes together; %g bytes per token, block and receiver\n",
            bytes_per_image(leader, e->samples), token_bytes(leader, e->samples));
  report_bits(out, leader, e->samples);
  if (e->skipped) fprintf(out, "%lld broken images were replaced by others\n", (long long)e->skipped);
  return NULL;
}

json_t *report_text_evaluation(FILE *out, const Leader *leader, const TextEvaluation *e) {
  if (!out)
    return json_pack("{s:I, s:I, s:I, s:I, s:o, s:o, s:o, s:I, s:f, s:f, s:f, s:I, s:f, s:f, s:f, s:o}", "windows", (json_int_t)e->windows,
                     "context", (json_int_t)e->context, "stride", (json_int_t)e->stride, "tokens", (json_int_t)e->score.counted, "nats",
                     json_build_number(e->score.loss), "perplexity", json_build_number(e->perplexity), "bits_per_byte",
                     json_build_number(e->bits_per_byte), "bytes", (json_int_t)e->bytes, "accuracy",
                     share((int64_t)e->score.correct, (int64_t)e->score.counted), "seconds", e->seconds, "tokens_per_second",
                     per_second((double)e->score.counted, e->seconds), "bytes_sent", (json_int_t)sum_of_nodes(leader).bytes_sent,
                     "bytes_per_token_block_receiver", token_bytes(leader, e->windows), "coded_bits_per_token_block_receiver",
                     token_bits(leader, e->windows, true), "packed_bits_per_token_block_receiver", token_bits(leader, e->windows, false),
                     "nodes", report_nodes_json(leader));
  const RequestScore *score = &e->score;
  int nodes = leader_nodes(leader);
  fprintf(out, "%lld windows of %lld tokens, each %lld further, on %d node%s in %.1f s, %.0f tokens/s\n", (long long)e->windows,
          (long long)e->context, (long long)e->stride, nodes, nodes == 1 ? "" : "s", e->seconds,
          per_second((double)e->score.counted, e->seconds));
  fprintf(out, "perplexity %.4f = exp(%.2f nats / %lld predicted tokens)\n", e->perplexity, score->loss, (long long)score->counted);
  fprintf(out, "%.4f bits per byte of the %lld bytes behind these tokens   next token right %.2f%%\n", e->bits_per_byte,
          (long long)e->bytes, 100 * share((int64_t)score->correct, (int64_t)score->counted));
  if (nodes > 1 && sends_codes(leader))
    fprintf(out, "sent %llu bytes by all nodes together; %g bytes per token, block, codebook set and receiver\n",
            (unsigned long long)sum_of_nodes(leader).bytes_sent, token_bytes(leader, e->windows));
  report_bits(out, leader, e->windows);
  return NULL;
}

json_t *report_label_evaluation(FILE *out, const Leader *leader, const Texts *texts, const LabelEvaluation *e) {
  if (!out)
    return json_pack("{s:I, s:f, s:o, s:o, s:I, s:I, s:I, s:f, s:f, s:I, s:o}", "samples", (json_int_t)e->samples, "accuracy", e->accuracy,
                     "matthews", json_build_number(e->matthews), "loss", json_build_number(e->loss), "shortest",
                     (json_int_t)texts->shortest, "longest", (json_int_t)texts->longest, "cut", (json_int_t)texts->cut, "seconds",
                     e->seconds, "texts_per_second", per_second((double)e->samples, e->seconds), "bytes_sent",
                     (json_int_t)sum_of_nodes(leader).bytes_sent, "nodes", report_nodes_json(leader));
  int nodes = leader_nodes(leader);
  double matthews = e->matthews;
  fprintf(out, "%lld texts of %lld to %lld tokens on %d node%s in %.1f s, %.0f texts/s\n", (long long)e->samples,
          (long long)texts->shortest, (long long)texts->longest, nodes, nodes == 1 ? "" : "s", e->seconds,
          per_second((double)e->samples, e->seconds));
  fprintf(out, "accuracy %.2f%%", 100 * e->accuracy);
  if (isfinite(matthews)) fprintf(out, " (Matthews correlation %.3f)", matthews);
  fprintf(out, "   mean loss %.4f\n", e->loss);
  if (nodes > 1) fprintf(out, "sent %llu bytes by all nodes together\n", (unsigned long long)sum_of_nodes(leader).bytes_sent);
  return NULL;
}

json_t *report_selftest(FILE *out, const SelftestReport *r) {
  if (!out)
    return json_pack("{s:b, s:i, s:I, s:I, s:I, s:I, s:I, s:o, s:o, s:o, s:o, s:s}", "passed", (int)r->passed, "nodes", r->nodes,
                     "pictures", (json_int_t)r->images, "codes", (json_int_t)r->codes, "ties", (json_int_t)r->ties, "followed",
                     (json_int_t)r->followed, "wrong", (json_int_t)r->wrong, "worst_logit_difference", json_build_number(r->worst_absolute),
                     "worst_logit_of_allowed", json_build_number(r->worst_same), "worst_replayed_of_allowed",
                     json_build_number(r->worst_replayed), "loss_of_allowed", json_build_number(r->worst_loss), "reason", r->reason);
  fprintf(out, "%-44s %lld on %d node%s\n", "samples", (long long)r->images, r->nodes, r->nodes == 1 ? "" : "s");
  if (r->codes) {
    fprintf(out, "%-44s %lld\n", "codes compared", (long long)r->codes);
    fprintf(out, "%-44s %lld (%.4f%%, at most %g%%)\n", "  ties within rounding that fell the other way", (long long)r->ties,
            100 * share(r->ties, r->codes), 100 * r->ties_allowed);
    fprintf(out, "%-44s %lld\n", "  that follow from those in later blocks", (long long)r->followed);
    fprintf(out, "%-44s %lld\n", "  wrong", (long long)r->wrong);
  }
  fprintf(out, "%-44s %.2e (%.3f of what is allowed)\n", "worst logit where no code differs", r->worst_absolute, r->worst_same);
  if (r->same_images < r->images)
    fprintf(out, "%-44s %.3f of what is allowed\n", "worst logit elsewhere, for the codes sent", r->worst_replayed);
  if (r->losses) fprintf(out, "%-44s %.3f of what is allowed\n", "mean loss of the labels", r->worst_loss);
  fprintf(out, "%s%s\n", r->passed ? "passed" : "FAILED: ", printable(r->reason));
  return NULL;
}

json_t *report_generation(FILE *out, const Leader *leader, const char *prompt, size_t bytes, const Generation *g) {
  static const char *const ends[] = {
#define REPORT_END(name, text) text,
      GENERATE_ENDS(REPORT_END)
#undef REPORT_END
  };
  const GenerateMemory *m = &g->memory;
  const double rate = g->ids.count > 1 ? per_second((double)(g->ids.count - 1), g->seconds) : 0; /* after the first token */
  if (!out) {
    json_t *ids = json_array();
    json_t *memory =
        json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "weights_shared", (json_int_t)m->weights, "codebooks_shared",
                  (json_int_t)m->codebooks, "tables_shared", (json_int_t)m->tables, "cache_rows", (json_int_t)m->cache_rows, "cache_codes",
                  (json_int_t)m->cache_codes, "cache_full", (json_int_t)m->cache_full, "buffers", (json_int_t)m->buffers);
    for (size_t i = 0; i < g->ids.count; i++) json_array_append_new(ids, json_integer(g->ids.ids[i]));
    return json_pack("{s:o, s:o, s:o, s:I, s:s, s:i, s:i, s:i, s:f, s:f, s:f, s:I, s:o}", "prompt", json_build_text(prompt, bytes), "text",
                     json_build_text(g->text, g->bytes), "ids", ids, "prompt_tokens", (json_int_t)g->prompt_tokens, "end", ends[g->end],
                     "nodes", leader_nodes(leader), "nodes_used", g->nodes, "decoder", g->decoder, "first_token_ms", 1e3 * g->first_seconds,
                     "decode_ms", 1e3 * g->seconds, "tokens_per_second", rate, "bytes_sent", (json_int_t)g->bytes_sent, "memory", memory);
  }
  const struct {
    const char *what;
    int64_t bytes;
  } rows[] = {{"weights (shared by all nodes)", m->weights},        {"codebooks (shared)", m->codebooks},
              {"tables of keys and values (shared)", m->tables},    {"keys and values in full", m->cache_rows},
              {"codes of the other nodes' tokens", m->cache_codes}, {"working memory, messages, codes", m->buffers}};
  fprintf(out, "\n%lld tokens on %d of %d node%s, first new one after %.1f ms\n", (long long)g->prompt_tokens, g->nodes,
          leader_nodes(leader), leader_nodes(leader) == 1 ? "" : "s", 1e3 * g->first_seconds);
  fprintf(out, "%zu new tokens on node %d, %.1f tokens/s; ended by: %s\n", g->ids.count, g->decoder, rate, ends[g->end]);
  if (g->nodes > 1) fprintf(out, "sent %lld bytes between the nodes\n", (long long)g->bytes_sent);
  fprintf(out, "memory of node %d:\n", g->decoder);
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) fprintf(out, "  %-34s %12lld bytes\n", rows[i].what, (long long)rows[i].bytes);
  fprintf(out, "  %-34s %12lld bytes; this one takes %.1f%%\n", "a cache in full would take", (long long)m->cache_full,
          100 * share(m->cache_rows + m->cache_codes, m->cache_full));
  return NULL;
}

/* ---- traffic between the nodes, and by the formulas of nn/strategy.h summed over the devices that take part ---- */

/* T of a sample, and how many nodes take part in it. */
static int64_t tokens_of(const Leader *leader, int *taking_part) {
  const int64_t *counts = leader_sums(leader)->tokens;
  bool divided = strategy_facts(node_share_strategy(leader_setup(leader)))->divides_tokens;
  int64_t tokens = 0;
  *taking_part = 0;
  for (int d = 0; d < leader_nodes(leader); d++) {
    *taking_part += counts[d] > 0;
    tokens = divided ? tokens + counts[d] : counts[d] > tokens ? counts[d] : tokens;
  }
  return tokens;
}

/* Codes and rows of a text's tokens go only to later devices; everything else to all others. */
static double traffic_formula(const Leader *leader, bool all_rows) {
  const NodeSetup *setup = leader_setup(leader);
  Strategy strategy = node_share_strategy(setup);
  DeviceShare share = {.last = !all_rows};
  double bytes = 0;
  share.tokens = tokens_of(leader, &share.devices);
  bool later_only = strategy_facts(strategy)->divides_tokens && !leader_setup(leader)->partition;
  if (strategy == STRATEGY_SINGLE || share.devices < 2) return 0;
  for (int d = 0; d < leader_nodes(leader); d++) {
    share.own = leader_sums(leader)->tokens[d];
    if (share.own == 0) continue;
    double bits = device_cost_all(setup->weights->config, strategy, &share, false, setup->retained).sent_bits; /* to each receiver */
    bytes += (share.devices - 1 - (later_only ? share.device : 0)) * bits / 8;
    share.before += share.own;
    share.device++;
  }
  return bytes / (double)share.tokens;
}

static double traffic_measured(const Leader *leader, int64_t samples) {
  int devices;
  double tokens = (double)tokens_of(leader, &devices) * (double)samples, bytes = 0;
  for (int d = 0; d < leader_nodes(leader); d++) bytes += (double)leader_sums(leader)->nodes[d].payload_sent;
  return tokens > 0 ? bytes / tokens : 0;
}

void report_traffic(FILE *out, const Leader *leader, int64_t samples, bool all_rows) {
  if (leader_nodes(leader) < 2 || samples < 1) return;
  fprintf(out, "strategy %s sent %g bytes per token over all nodes; by its formula %g\n",
          strategy_facts(leader_setup(leader)->strategy)->name, traffic_measured(leader, samples), traffic_formula(leader, all_rows));
}

void report_traffic_json(json_t *value, const Leader *leader, int64_t samples, bool all_rows) {
  if (!value) return;
  json_object_set_new(value, "bytes_per_token", json_real(traffic_measured(leader, samples)));
  json_object_set_new(value, "bytes_per_token_formula", json_real(traffic_formula(leader, all_rows)));
}
