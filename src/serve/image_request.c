/* See image_request.h. An ImageRequest belongs to its HTTP request and to the batch that the engine has not ended; the last of these frees
 * it. */
#include "serve/image_request.h"
#include "base/clock.h"
#include "data/image.h"
#include "infer/classify.h"
#include "nn/json_build.h"
#include "serve/multipart.h"
#include <stdlib.h>
#include <string.h>

enum { TOP = 5, PARTS = IMAGE_REQUEST_MAX + 8 };

/* Pixels after which the other requests of the HTTP thread have their turn: half a second of decoding. */
enum { PIXELS_AT_ONCE = 1 << 25 };

typedef struct ImageRequest {
  pthread_mutex_t lock;
  int references;
  HttpRequest *request; /* NULL: its client has been answered or is gone */
  Service *service;
  const ServiceModel *model;
  MultipartPart *images; /* [count] slices of the body */
  int count, next, top, read, batch;
  int members[IMAGE_REQUEST_MAX]; /* [batch] of the batch that is computed */
  uint64_t ticket;                /* of that batch */
  json_t *results;                /* [count] */
  bool busy;                      /* a batch is with the engine */
  bool let_in;                    /* one has been: those behind it are not refused by a full queue */
  Status status;
  char message[256];
  EngineResult last;
  double begun; /* clock_now, when the images were there */
  /* Under the lock, until the HTTP thread has seen it: */
  bool ended;
  real *logits; /* [batch, classes] */
  EngineResult result;
  char failure[256];
} ImageRequest;

static void release(ImageRequest *r) {
  pthread_mutex_lock(&r->lock);
  int left = --r->references;
  pthread_mutex_unlock(&r->lock);
  if (left > 0) return;
  pthread_mutex_destroy(&r->lock);
  json_decref(r->results);
  free(r->images);
  free(r->logits);
  free(r);
}

static void on_end(void *context, const real *logits, const EngineResult *result) {
  ImageRequest *r = context;
  size_t size = (size_t)r->batch * (size_t)r->model->weights->config->classes * sizeof *logits;
  real *copy = logits ? malloc(size) : NULL;
  if (copy) memcpy(copy, logits, size);
  service_count_result(r->service, result, true);
  pthread_mutex_lock(&r->lock);
  r->ended = true;
  r->logits = copy;
  r->result = *result;
  snprintf(r->failure, sizeof r->failure, "%s", result->message ? result->message : "the service is shutting down");
  if (r->request) http_wake(r->request);
  pthread_mutex_unlock(&r->lock);
  release(r);
}

/* ---- images in */

static void set_result(ImageRequest *r, int index, const char *name, json_t *value) {
  json_t *result = json_pack("{s:i, s:o, s:o}", "index", index, "name",
                             json_build_text(r->images[index].file, strlen(r->images[index].file)), name, value);
  json_array_set_new(r->results, (size_t)index, result ? result : json_null());
}

/* Fills pixels with the next images: up to a whole batch, to PIXELS_AT_ONCE, or to one that cannot be read, whose size nobody knows. */
static Status read_batch(ImageRequest *r, float *pixels) {
  LoaderOptions options;
  bool broken = false;
  int64_t size = weights_pixels(r->model->weights), decoded = 0;
  weights_loader_options(r->model->weights, &options);
  for (r->batch = 0; r->next < r->count && r->batch < r->model->images_max && decoded < PIXELS_AT_ONCE && !broken; r->next++) {
    const MultipartPart *part = &r->images[r->next];
    Image image = {0};
    const char *name = part->file[0] ? part->file : "the image";
    Status status = image_decode_up_to(&image, (const uint8_t *)part->data, part->bytes, IMAGE_REQUEST_PIXELS, name);
    if (status == STATUS_OK) status = loader_prepare(&image, &options, pixels + r->batch * size);
    decoded += (int64_t)image.width * image.height;
    image_release(&image);
    if (status == STATUS_NO_MEMORY) return status;
    broken = status != STATUS_OK;
    if (!broken)
      r->members[r->batch++] = r->next;
    else
      set_result(r, r->next, "error", json_build_text(status_message(), strlen(status_message())));
  }
  r->read += r->batch;
  return STATUS_OK;
}

/* The next batch goes to the engine; of images that cannot be read, there is none. */
static Status submit(ImageRequest *r) {
  int64_t left = r->count - r->next, batch = left < r->model->images_max ? left : r->model->images_max;
  float *pixels = malloc((size_t)(batch * weights_pixels(r->model->weights)) * sizeof *pixels);
  Status status = pixels ? read_batch(r, pixels) : status_no_memory(NULL, "images");
  if (status == STATUS_OK && r->batch > 0) {
    pthread_mutex_lock(&r->lock);
    r->references++;
    pthread_mutex_unlock(&r->lock);
    r->busy = true;
    const EngineImages images = {.pixels = pixels, .count = r->batch, .more = r->let_in, .on_end = on_end, .context = r};
    status = engine_classify(r->model->engine, &images, &r->ticket);
    if (status == STATUS_OK)
      r->let_in = true;
    else
      r->busy = false, release(r);
  }
  free(pixels);
  return status;
}

/* ---- classes out */

static json_t *classes_json(const ImageRequest *r, const real *logits) {
  const ModelConfig *config = r->model->weights->config;
  int32_t index[RANKING_MAX];
  double probability[RANKING_MAX];
  int count = r->top < config->classes ? r->top : (int)config->classes;
  json_t *list = json_array();
  ranking_top(logits, config->classes, count, index, probability);
  for (int i = 0; i < count; i++) {
    const char *label = config->labels ? config->labels[index[i]] : "";
    json_array_append_new(list, json_pack("{s:i, s:o, s:f}", "index", (int)index[i], "label", json_build_text(label, strlen(label)),
                                          "probability", probability[i]));
  }
  return list;
}

/* What the engine has made of the last batch; false: it is not there yet. */
static bool take_batch(ImageRequest *r) {
  pthread_mutex_lock(&r->lock);
  bool ended = r->ended;
  real *logits = r->logits;
  r->ended = false;
  r->logits = NULL;
  pthread_mutex_unlock(&r->lock);
  if (!ended) return false;
  r->busy = false;
  r->last = r->result;
  if (!logits && r->status == STATUS_OK) {
    r->status = r->result.end == ENGINE_DESERTED ? STATUS_BUSY : STATUS_PEER;
    snprintf(r->message, sizeof r->message, "%s", r->failure);
  }
  for (int b = 0; b < r->batch && logits; b++)
    set_result(r, r->members[b], "classes", classes_json(r, logits + b * r->model->weights->config->classes));
  free(logits);
  return true;
}

/* The answer came too late, or the service ends: the queue was not full. */
static void refuse_late(const ImageRequest *r, HttpRequest *request) {
  http_retry_after(request, engine_retry_seconds(r->model->engine));
  http_reply_error(request, 503, NULL, NULL, "%s",
                   r->last.end == ENGINE_CANCELLED ? "the service is shutting down" : http_late_reason(request));
}

static bool ready(void *context, HttpRequest *request) {
  ImageRequest *r = context;
  if (r->busy && !take_batch(r) && !http_late(request)) return false;
  const bool more = r->status == STATUS_OK && r->next < r->count;
  if (r->busy || r->last.end == ENGINE_CANCELLED || (more && http_late(request))) {
    refuse_late(r, request);
    return true;
  }
  if (more) {
    Status status = submit(r);
    if (status != STATUS_OK) r->status = status, snprintf(r->message, sizeof r->message, "%s", status_message());
  }
  if (r->status != STATUS_OK) {
    service_refuse(request, r->model, status_set(r->status, "%s", r->message), "image", NULL);
    return true;
  }
  if (r->busy) return false;
  if (r->next < r->count) return http_wake(request), false;
  if (r->read == 0) {
    const char *error = json_string_value(json_object_get(json_array_get(r->results, 0), "error"));
    http_reply_error(request, 422, "image", "invalid_image", "%s", error ? error : "no image could be read");
    return true;
  }
  http_reply_json(request, 200,
                  json_pack("{s:s, s:s, s:s, s:O, s:{s:i}, s:f}", "id", http_id(request), "object", "image.classification", "model",
                            r->model->name, "results", r->results, "usage", "images", r->read, "seconds", clock_now() - r->begun));
  return true;
}

static void close_request(void *context, HttpRequest *request) {
  ImageRequest *r = context;
  pthread_mutex_lock(&r->lock);
  r->request = NULL;
  pthread_mutex_unlock(&r->lock);
  if (r->busy) engine_cancel(r->model->engine, r->ticket);
  http_note(request, "model", json_string(r->model->name));
  http_note(request, "images", json_integer(r->read));
  release(r);
}

/* ---- the request */

static Status read_top(const char *text, int *top, const char **param) {
  char *end;
  *param = "top";
  long number = strtol(text, &end, 10);
  if (end == text || *end || number < 1 || number > RANKING_MAX)
    return status_set(STATUS_BAD_VALUE, "top: '%.20s' is not accepted; 1 to %d is", text, RANKING_MAX);
  *top = (int)number;
  *param = NULL;
  return STATUS_OK;
}

/* Files of the form stay in parts; its fields are read. *param: which of them is not accepted. */
static Status read_form(MultipartPart *parts, int *count, char *model, size_t room, int *top, const char **param) {
  int images = 0;
  for (int i = 0; i < *count; i++) {
    char text[SERVICE_NAME];
    snprintf(text, sizeof text, "%.*s", (int)(parts[i].bytes < sizeof text ? parts[i].bytes : sizeof text - 1), parts[i].data);
    bool file = parts[i].file[0] || strncmp(parts[i].type, "image/", 6) == 0;
    if (file)
      parts[images++] = parts[i];
    else if (strcmp(parts[i].name, "model") == 0)
      snprintf(model, room, "%s", text);
    else if (strcmp(parts[i].name, "top") == 0)
      TRY(read_top(text, top, param));
  }
  *count = images;
  *param = "image";
  if (images == 0) return status_set(STATUS_BAD_VALUE, "a form without an image: send files, as curl -F image=@FILE does");
  return images <= IMAGE_REQUEST_MAX ? STATUS_OK
                                     : status_set(STATUS_BAD_VALUE, "%d images; at most %d in a request", images, IMAGE_REQUEST_MAX);
}

static Status read_body(HttpRequest *request, MultipartPart *parts, int *count, char *model, size_t room, int *top, const char **param) {
  size_t bytes;
  const char *body = http_body(request, &bytes), *type = http_field(request, "Content-Type");
  if (type && strncasecmp(type, "multipart/form-data", 19) == 0) {
    TRY(multipart_parse(type, body, bytes, parts, PARTS, count));
    return read_form(parts, count, model, room, top, param);
  }
  if (bytes == 0) return status_set(STATUS_BAD_VALUE, "an empty body: send an image, or a form with files");
  parts[0] = (MultipartPart){.data = body, .bytes = bytes};
  *count = 1;
  return STATUS_OK;
}

static bool type_accepted(const char *type) {
  static const char *const accepted[] = {"image/", "multipart/form-data", "application/octet-stream"};
  if (!type) return true;
  for (int i = 0; i < 3; i++)
    if (strncasecmp(type, accepted[i], strlen(accepted[i])) == 0) return true;
  return false;
}

static void answer(void *context, HttpRequest *request) {
  Service *service = context;
  char name[SERVICE_NAME] = "";
  int count = 0, top = TOP;
  const char *asked = http_argument(request, "model"), *asked_top = http_argument(request, "top"), *param = NULL;
  if (!type_accepted(http_field(request, "Content-Type"))) {
    http_reply_error(request, 415, NULL, NULL, "Content-Type must be image/..., application/octet-stream or multipart/form-data");
    return;
  }
  MultipartPart *parts = calloc(PARTS, sizeof *parts);
  ImageRequest *r = calloc(1, sizeof *r);
  snprintf(name, sizeof name, "%s", asked ? asked : "");
  Status status = parts && r ? STATUS_OK : status_no_memory(NULL, "images");
  if (status == STATUS_OK && asked_top) status = read_top(asked_top, &top, &param);
  if (status == STATUS_OK) status = read_body(request, parts, &count, name, sizeof name, &top, &param);
  const ServiceModel *model = status == STATUS_OK ? service_find(service, request, name[0] ? name : NULL, false) : NULL;
  if (status != STATUS_OK) service_refuse(request, NULL, status, param, NULL);
  if (!model) {
    free(parts);
    free(r);
    return;
  }
  *r = (ImageRequest){.references = 1,
                      .request = request,
                      .service = service,
                      .model = model,
                      .images = parts,
                      .count = count,
                      .top = top,
                      .begun = clock_now()};
  pthread_mutex_init(&r->lock, NULL);
  r->results = json_array();
  for (int i = 0; i < count; i++) json_array_append_new(r->results, json_null());
  http_work(request, &(HttpWork){.ready = ready, .close = close_request, .context = r});
}

const HttpRoute image_request_route = {"POST", "/v1/images/classify", HTTP_WORK, answer};
