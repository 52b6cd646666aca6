/* WebP through libwebp, in builds that found it (ASTRA_WEBP). Leaves out: animations, colour profiles, the orientation
 * (image_orientation.c). WebP has no checksums: damage inside the pixels can go unnoticed. */
#include "data/image_codec.h"
#include <string.h>
#ifdef ASTRA_WEBP
#include <webp/decode.h>
#endif

bool image_webp_is(const uint8_t *bytes, size_t size) {
  return size >= 12 && memcmp(bytes, "RIFF", 4) == 0 && memcmp(bytes + 8, "WEBP", 4) == 0;
}

#ifdef ASTRA_WEBP
static const char *reason(VP8StatusCode code) {
  if (code == VP8_STATUS_NOT_ENOUGH_DATA) return "it ends too early";
  if (code == VP8_STATUS_UNSUPPORTED_FEATURE) return "a feature that libwebp does not support";
  return code == VP8_STATUS_OUT_OF_MEMORY ? "no memory" : "libwebp cannot decode it";
}

Status image_webp_decode(Image *image, const uint8_t *bytes, size_t size, const char *origin) {
  WebPDecoderConfig config;
  if (!WebPInitDecoderConfig(&config)) return status_set(STATUS_UNSUPPORTED, "%s: the libwebp here is not that of this build", origin);
  VP8StatusCode code = WebPGetFeatures(bytes, size, &config.input);
  if (code != VP8_STATUS_OK) return status_set(STATUS_BAD_FILE, "%s: broken picture (%s)", origin, reason(code));
  if (config.input.has_animation) return status_set(STATUS_UNSUPPORTED, "%s: an animated WebP; only single pictures are read", origin);
  TRY(image_check_size(config.input.width, config.input.height, size, origin));
  TRY(image_reshape(image, config.input.width, config.input.height));
  config.output.colorspace = MODE_RGB; /* alpha is dropped */
  config.output.is_external_memory = 1;
  config.output.u.RGBA.rgba = image->rgb;
  config.output.u.RGBA.stride = image->width * 3;
  config.output.u.RGBA.size = (size_t)image->width * (size_t)image->height * 3;
  code = WebPDecode(bytes, size, &config);
  WebPFreeDecBuffer(&config.output);
  if (code == VP8_STATUS_OK) return STATUS_OK;
  image_release(image);
  return status_set(code == VP8_STATUS_OUT_OF_MEMORY ? STATUS_NO_MEMORY : STATUS_BAD_FILE, "%s: broken picture (%s)", origin, reason(code));
}
#else
Status image_webp_decode(Image *image, const uint8_t *bytes, size_t size, const char *origin) {
  (void)image, (void)bytes, (void)size;
  return status_set(STATUS_UNSUPPORTED, "%s: this build reads no WebP: install libwebp-dev and build again (make clean all)", origin);
}
#endif
