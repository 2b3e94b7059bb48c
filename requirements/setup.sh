#!/bin/sh
# setup.sh PYTHON VENV LOCK STAMP: an environment of Python 3.11 with exactly what LOCK names, by hash, made by uv.
# PYTHON may be empty: then uv finds a Python 3.11 or fetches one.
set -eu
python=$1 venv=$2 lock=$3 stamp=$4 here=$(dirname "$0")

fail() {
    echo "setup: $1" >&2
    exit 1
}
is() { # is PYTHON CONDITION-ON-VERSION
    "$1" -c "import sys; sys.exit(not sys.version_info[:2] $2)" 2>/dev/null
}

# A lock that is installed already needs only its stamp (an environment shared by VENV=).
sum=$({ sha256sum "$lock" 2>/dev/null || shasum -a 256 "$lock"; } | cut -d ' ' -f 1)
if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$sum" ]; then
    touch "$stamp" 2>/dev/null || true # somebody else's: it is looked at again next time
    exit 0
fi
[ -z "$python" ] || is "$python" '== (3, 11)' \
    || fail "'$python' is not Python 3.11; leave PYTHON out, and uv finds a Python 3.11 or fetches one"
[ ! -x "$venv/bin/python" ] || is "$venv/bin/python" '== (3, 11)' \
    || fail "$venv has another Python than 3.11, for which $lock is locked; delete it, or name another place: make VENV=/path setup"
{ mkdir -p "$venv" && [ -w "$venv" ]; } 2>/dev/null || fail "$venv may not be written; name another place: make VENV=/path setup"

# uv: the one on PATH if it is new enough, else the pinned one in a folder of its own.
if uv --version 2>/dev/null | awk -F '[ .]' '{ new = $2 > 0 || $3 >= 8 } END { exit !new }'; then
    uv=uv
else
    uv=$venv/.uv/bin/uv
    if ! cmp -s "$here/uv.txt" "$venv/.uv/uv.txt"; then
        any=${python:-python3}
        is "$any" '>= (3, 9)' || fail "'$any' is not Python 3.9 or newer; install one, or uv"
        echo "setup: fetching uv, which installs the packages" >&2
        log=$venv/setup.log
        rm -rf "$venv/.uv" "$venv/.pip"
        if ! "$any" -m pip --version >/dev/null 2>&1; then # Debian's Python may have venv but not pip
            "$any" -m venv "$venv/.pip" >"$log" 2>&1 \
                || fail "'$any' has neither pip nor venv; install one of them (Debian: apt-get install python3-venv), or uv"
            any=$venv/.pip/bin/python
        fi
        PIP_USER=0 PIP_REQUIRE_VIRTUALENV=0 "$any" -m pip install --disable-pip-version-check --no-deps \
            --only-binary :all: --require-hashes -r "$here/uv.txt" --target "$venv/.uv" >"$log" 2>&1 || {
            ! grep -qE 'NewConnectionError|ConnectTimeout|ProxyError|name resolution' "$log" \
                || fail "no network: pip cannot reach the package index; run this again when it can"
            fail "pip could not install uv: $(grep -E '^ *(ERROR|error)' "$log" | tail -n 1); all it said is in $log"
        }
        cp "$here/uv.txt" "$venv/.uv/uv.txt"
        rm -rf "$venv/.pip" "$log"
    fi
fi

# Who told pip of another index means uv too.
[ -z "${PIP_INDEX_URL:-}" ] || export UV_DEFAULT_INDEX="${UV_DEFAULT_INDEX:-$PIP_INDEX_URL}"
[ -x "$venv/bin/python" ] || "$uv" venv --quiet --allow-existing --python "${python:-3.11}" "$venv" \
    || fail "uv found no Python 3.11 and could not fetch one, for the reason above; install Python 3.11, or name one: make PYTHON=/path setup"
install() {
    "$uv" pip install --python "$venv/bin/python" --no-deps "$@"
}
echo "setup: installing $lock into $venv" >&2
# The lock is complete, so nothing is resolved; our own package comes last, without a download.
install --require-hashes --build-constraints "$lock" -r "$lock" && install --quiet --offline --no-build-isolation -e . \
    || fail "uv could not install $lock, for the reason above; run this again when that is mended: it goes on"
echo "$sum" >"$stamp"
