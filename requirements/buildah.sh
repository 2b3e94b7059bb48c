#!/bin/sh
# buildah and mmdebstrap, for the test of the Containerfile: by apt-get when one may install packages, else one message.
set -eu
if command -v buildah >/dev/null && command -v mmdebstrap >/dev/null; then
    exit 0
fi
if command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
    echo "setup: installing buildah and mmdebstrap with apt-get" >&2
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq >&2 || true # one bad repository among others need not matter
    apt-get install -y -qq --no-install-recommends buildah mmdebstrap >/dev/null
    exit 0
fi
echo "setup: buildah is not here (Debian, Ubuntu: apt-get install buildah mmdebstrap); its test will be skipped" >&2
