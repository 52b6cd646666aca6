/* POST /v1/images/classify: an image as the body, or several as files of multipart/form-data; their likeliest classes as JSON.
 *
 *   {"model", "results": [{"index", "name", "classes": [{"index", "label", "probability"}]} or {"index", "name", "error"}], "usage"}
 *
 * `model` and `top` (1 to 100, default 5) come as fields of the form or behind "?". Images are decoded on the HTTP thread and computed as
 * many at a time as the model's batch takes; one that cannot be read does not stop the others. */
#ifndef SERVE_IMAGE_REQUEST_H
#define SERVE_IMAGE_REQUEST_H
#include "serve/service.h"

enum {
  IMAGE_REQUEST_MAX = 256,       /* images in a request */
  IMAGE_REQUEST_PIXELS = 1 << 26 /* of an image: up to 800 MB while a thread decodes it (data/image.h) */
};

extern const HttpRoute image_request_route; /* its context is the service */

#endif
