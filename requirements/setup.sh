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
fail() {
    echo "setup: $1" >&2
    exit 1
}
{ mkdir -p "$venv" && [ -w "$venv" ]; } 2>/dev/null || fail "$venv may not be written; name another place: make VENV=/path setup"
[ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
log=$venv/setup.log total=$(grep -c '==' "$lock")
pip() {
    PYTHONUNBUFFERED=1 "$venv/bin/python" -m pip install --disable-pip-version-check --no-deps "$@" 2>> "$log" \
        && : > "$venv/.installed"
}
# A line that is rewritten on a terminal, a line now and then in a log.
show() {
    count=0
    while read -r word next _; do
        case "$word $next" in
            Collecting\ * | Processing\ *) count=$((count + 1)) text="downloading $count of $total packages" ;;
            Requirement\ *) count=$((count + 1)) text="$count of $total packages are here" ;;
            "Installing collected") count=$total text="unpacking the packages, which takes as long again" ;;
            *) continue ;;
        esac
        if [ -t 2 ]; then
            printf '\rsetup: %-60s' "$text" >&2
        elif [ $((count % 25)) = 0 ] || [ "$count" = "$total" ]; then
            echo "setup: $text" >&2
        fi
    done
    [ ! -t 2 ] || echo >&2
}
echo "setup: installing $lock into $venv, which takes minutes" >&2
: > "$log"
# The lock is complete, so pip need not resolve anything; our own package comes last, without a download.
rm -f "$venv/.installed"
pip --require-hashes -r "$lock" | show
[ -e "$venv/.installed" ] && rm "$venv/.installed" && pip --no-build-isolation -e . >> "$log" || true
if [ ! -e "$venv/.installed" ]; then
    ! grep -qE 'NewConnectionError|ConnectTimeout|ProxyError|name resolution' "$log" \
        || fail "no network: pip cannot reach the package index; run this again when it can"
    fail "pip failed: $(grep -E '^ *(ERROR|error)' "$log" | tail -n 1); all it said is in $log"
fi
rm -f "$venv/.installed"
echo "$sum" > "$stamp"
