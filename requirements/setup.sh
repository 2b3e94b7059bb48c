#!/bin/sh
# setup.sh PYTHON VENV LOCK STAMP: an environment with exactly what LOCK names, by hash.
set -eu
python=$1 venv=$2 lock=$3 stamp=$4

if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    echo "setup: '$python' is not Python 3.11 or newer; install it, or name one: make PYTHON=python3.11 setup" >&2
    exit 1
fi
case $lock in *base.lock)
    if ! "$python" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))'; then
        echo "setup: $lock is locked for Python 3.11; name one: make PYTHON=python3.11 setup" >&2
        exit 1
    fi
    if [ -x "$venv/bin/python" ] && ! "$venv/bin/python" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))'; then
        echo "setup: $venv has another Python than 3.11, for which $lock is locked; delete it, or name another place: make VENV=/path setup" >&2
        exit 1
    fi ;;
esac
# A lock that is installed already needs only its stamp (an environment shared by VENV=).
sum=$("$python" -c 'import hashlib, sys; print(hashlib.sha256(open(sys.argv[1], "rb").read()).hexdigest())' "$lock")
if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$sum" ]; then
    touch "$stamp" 2>/dev/null || true # somebody else's: it is looked at again next time
    exit 0
fi
echo "setup: installing $lock into $venv" >&2
[ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
# The lock is complete, so pip need not resolve anything; our own package comes last, without a download.
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r "$lock"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
echo "$sum" > "$stamp"
