#!/bin/sh
# Slurm where it is missing, for its tests: by apt-get when one may install packages, else one message.
# No service is configured or started: the tests start their own daemons and stop them.
set -eu
if command -v slurmctld >/dev/null && command -v slurmd >/dev/null && command -v munged >/dev/null; then
    exit 0
fi
if command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
    echo "setup: installing Slurm with apt-get" >&2
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq >&2 || true # one bad repository among others need not matter
    apt-get install -y -qq --no-install-recommends slurm-wlm munge >/dev/null
    exit 0
fi
echo "setup: Slurm is not here (Debian, Ubuntu: apt-get install slurm-wlm munge); its tests will be skipped" >&2
