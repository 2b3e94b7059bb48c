#!/bin/sh
# LaTeX where it is missing: by apt-get when one may install packages, else one message.
set -eu
if command -v latexmk >/dev/null && command -v pdflatex >/dev/null && kpsewhich siunitx.sty >/dev/null; then
    exit 0
fi
packages="latexmk texlive-latex-recommended texlive-latex-extra texlive-science texlive-fonts-recommended"
if command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
    echo "setup: installing LaTeX with apt-get" >&2
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq >&2 || true # one bad repository among others need not matter
    apt-get install -y -qq --no-install-recommends $packages >/dev/null
    exit 0
fi
python -c 'from cxrbench.paper.typeset import NO_LATEX; print(NO_LATEX)' >&2
exit 1
