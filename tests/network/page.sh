#!/bin/bash
# The page of astra-serve in Chromium: a chat, an image, a device that is killed while it runs, a server that is stopped and comes back, a key,
# the keyboard alone, a phone. Skipped where node or Chromium is not there; ASTRA_SHOTS=DIR keeps screenshots.
# Usage: tests/network/page.sh; programs in $BUILD/bin (build/bin). limit: 240
set -u
bin=$(realpath "${BUILD:-build}/bin")
chromium=${CHROMIUM:-$(command -v chromium || command -v chromium-browser || command -v google-chrome)}
if ! command -v node >/dev/null; then echo "skipped: node is not there to drive a browser"; exit 77; fi
if [ -z "$chromium" ]; then echo "skipped: Chromium is not there (Debian: chromium; or CHROMIUM=PROGRAM)"; exit 77; fi
exec node tests/network/page.mjs "$bin" "$chromium"
