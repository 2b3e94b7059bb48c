#!/bin/sh
# LaTeX where it is missing: by apt-get when one may install packages, else one message.
set -eu
if command -v latexmk >/dev/null && command -v pdflatex >/dev/null && kpsewhich tabulary.sty longtable.sty >/dev/null; then
    exit 0
fi
packages="latexmk texlive-latex-recommended texlive-latex-extra texlive-fonts-recommended"
if command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
    echo "setup: installing LaTeX with apt-get, which takes minutes" >&2
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq >&2 || true # one bad repository among others need not matter
    apt-get install -y -qq --no-install-recommends $packages >/dev/null && exit 0
    echo "setup: apt-get could not install LaTeX; when its trouble above is over, run this again" >&2
    exit 1
fi
cat "$(dirname "$0")/../src/cxrbench/paper/no_latex.txt" >&2
exit 1
