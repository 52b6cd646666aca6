/* What a picture's bytes must hold before stb_image may see them. Inside of src/data only. */
#ifndef DATA_IMAGE_GUARD_H
#define DATA_IMAGE_GUARD_H
#include "base/status.h"
#include <stddef.h>
#include <stdint.h>

/* Looks at JPEG, PPM and PGM; anything else is OK here. Errors name `origin`. */
Status image_guard_check(const uint8_t *bytes, size_t size, const char *origin);

#endif
