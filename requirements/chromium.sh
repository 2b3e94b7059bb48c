#!/bin/sh
# Chromium for the tests of the report page: by apt-get when one may install packages, else one message.
set -eu
if command -v chromium >/dev/null && command -v chromedriver >/dev/null; then
    exit 0
fi
if command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
    echo "setup: installing Chromium with apt-get" >&2
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq >&2 || true # one bad repository among others need not matter
    apt-get install -y -qq --no-install-recommends chromium chromium-driver >/dev/null
    exit 0
fi
echo "setup: Chromium is not here (Debian: apt-get install chromium chromium-driver); its tests will be skipped" >&2
