/* Figures of an evaluation: see evaluation_report.h. */
#include "cli/evaluation_report.h"
#include "base/printable.h"
#include "nn/json_build.h"
#include "train/perplexity.h"
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool by_convention(const Session *session) { return session->options.perplexity != PERPLEXITY_AUTO; }
static PerplexityUnit convention(const Session *session) { return (PerplexityUnit)session->options.perplexity; }
static long long stride(const Session *session) {
  return (long long)(session->options.stride > 0 ? session->options.stride : session->tokens);
}

/* ---------------------------------------------------------------- for people */

/* The harness's other two measures. */
static void print_byte_measures(const Perplexity *p) {
  if (p->page_bytes > 0)
    printf("word_perplexity %.4f, byte_perplexity %.6f, bits_per_byte %.6f (%lld bytes)\n", p->value,
           perplexity_value(p->nats, p->page_bytes), p->nats / log(2) / (double)p->page_bytes, (long long)p->page_bytes);
}

static Status print_perplexity(const Session *session, const TrainResult *result) {
  Perplexity devices, plain;
  const char *name = perplexity_name(convention(session));
  TRY(perplexity_of(session, &result->plain.score, convention(session), &plain));
  printf("%s\n", printable(session->task->describe(session, TASK_TEST)));
  if (session_astra(session)) {
    TRY(perplexity_of(session, &result->emulated.score, convention(session), &devices));
    printf("perplexity (%s) %.4f on %d emulated devices = exp(%.2f nats / %lld)\n", name, devices.value, session->config->astra.devices,
           devices.nats, (long long)devices.units);
    print_byte_measures(&devices);
  }
  printf("perplexity (%s) %.4f plain = exp(%.2f nats / %lld)\n", name, plain.value, plain.nats, (long long)plain.units);
  print_byte_measures(&plain);
  printf("divided by %s; windows of %lld tokens, each %lld further\n", perplexity_counts(convention(session)), (long long)session->tokens,
         stride(session));
  return STATUS_OK;
}

Status evaluation_report_text(const Session *session, const TrainResult *result) {
  char devices[TASK_TEXT], plain[TASK_TEXT];
  const Task *task = session->task;
  if (by_convention(session)) return print_perplexity(session, result);
  const char *of = session->options.validation_part > 0 ? " held out" : "";
  task->tell(&result->emulated.score, devices);
  task->tell(&result->plain.score, plain);
  if (session_astra(session))
    printf("%s on %d emulated devices, %s plain (%lld %s%s)\n", devices, session->config->astra.devices,
           plain + strcspn(plain, "0123456789"), (long long)result->plain.samples, task->sample, of);
  else
    printf("%s (%lld %s%s)\n", plain, (long long)result->plain.samples, task->sample, of);
  return STATUS_OK;
}

/* ---------------------------------------------------------------- for programs */

/* For each measure of the task "NAME_plain" and "NAME", on the devices. */
static void add_measures(const Session *session, const Validation *best, const Validation *alone, json_t *object) {
  double devices[TASK_MEASURES], plain[TASK_MEASURES];
  char name[64];
  session->task->measure(&best->score, devices);
  session->task->measure(&alone->score, plain);
  for (int m = 0; session->task->measures[m] != NULL; m++) {
    snprintf(name, sizeof name, "%s_plain", session->task->measures[m]);
    json_object_set_new(object, name, json_build_number(plain[m]));
    json_object_set_new(object, session->task->measures[m], json_build_number(devices[m]));
  }
}

/* Replaces the perplexity per token by that of the convention. */
static Status add_convention(const Session *session, const Validation *best, const Validation *alone, json_t *object) {
  Perplexity devices, plain;
  TRY(perplexity_of(session, &best->score, convention(session), &devices));
  TRY(perplexity_of(session, &alone->score, convention(session), &plain));
  json_object_set_new(object, "perplexity_plain", json_build_number(plain.value));
  json_object_set_new(object, "perplexity", json_build_number(devices.value));
  json_object_set_new(object, "convention", json_string(perplexity_name(convention(session))));
  json_object_set_new(object, "divided_by", json_string(perplexity_counts(convention(session))));
  json_object_set_new(object, "nats_plain", json_build_number(plain.nats));
  json_object_set_new(object, "nats", json_build_number(devices.nats));
  json_object_set_new(object, "units", json_integer((json_int_t)plain.units));
  if (plain.page_bytes > 0) {
    json_object_set_new(object, "word_perplexity", json_build_number(devices.value));
    json_object_set_new(object, "byte_perplexity", json_build_number(perplexity_value(devices.nats, devices.page_bytes)));
    json_object_set_new(object, "bits_per_byte", json_build_number(devices.nats / log(2) / (double)devices.page_bytes));
    json_object_set_new(object, "bits_per_byte_plain", json_build_number(plain.nats / log(2) / (double)plain.page_bytes));
    json_object_set_new(object, "bytes", json_integer((json_int_t)plain.page_bytes));
  }
  json_object_set_new(object, "context", json_integer((json_int_t)session->tokens));
  json_object_set_new(object, "stride", json_integer(stride(session)));
  return STATUS_OK;
}

Status evaluation_report_json(const Session *session, const TrainResult *result, const char *checkpoint) {
  const Validation *best = session_astra(session) ? &result->emulated : &result->plain;
  json_t *object = json_pack("{s:s, s:I, s:f}", "checkpoint", checkpoint, "steps", (json_int_t)result->steps, "loss", result->loss);
  add_measures(session, best, &result->plain, object);
  Status status = by_convention(session) ? add_convention(session, best, &result->plain, object) : STATUS_OK;
  json_object_set_new(object, "seconds", json_real(result->seconds));
  json_object_set_new(object, "eval_samples", json_integer((json_int_t)result->plain.samples));
  if (session->options.validation_part > 0) json_object_set_new(object, "eval_part", json_string("valid"));
  if (status == STATUS_OK) return json_build_print(object);
  json_decref(object);
  return status;
}
