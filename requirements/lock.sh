#!/bin/sh
# Remake the locks from the .in files: `make lock`.
set -eu
cd "$(dirname "$0")"
flags="--python-version 3.11 --generate-hashes --no-header --no-annotate --quiet"
# torch's Linux wheels bring CUDA: this lock is for x86-64 Linux.
uv pip compile base.in $flags --python-platform x86_64-manylinux_2_28 -o base.lock
# The laptop's lock carries markers, so the same file serves Linux, macOS and Windows.
uv pip compile light.in paper.in $flags --universal --overrides paper.overrides --constraints base.lock -o paper.lock.all
awk '/^[^ ]/ { never = /never/ } !never' paper.lock.all > paper.lock # drop what the overrides disabled
rm paper.lock.all
uv pip compile light.in docs.in $flags --universal --constraints base.lock -o docs.lock
echo "# uv, which makes the environment: installed by hash where none is on PATH, with any Python from 3.9 on." > uv.txt
echo uv | uv pip compile - --python-version 3.9 --universal --generate-hashes --no-header --no-annotate --quiet >> uv.txt
