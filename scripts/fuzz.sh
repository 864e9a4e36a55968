#!/usr/bin/env bash
# Runs every fuzz target of the tree for the given time each (default 10s), as
# many at once as there are cores. New targets are found by themselves.
set -euo pipefail

export FUZZTIME=${1:-10s}

fuzz() {
  go test -run '^$' -fuzz "^$2\$" -fuzztime "$FUZZTIME" -fuzzminimizetime 100x -parallel 1 "./$1" 2>&1
}

# only_time_ran_out: Go's fuzzer at times takes the end of its own fuzztime for a
# failure (golang/go#75804). It then names no input and nothing else went wrong.
only_time_ran_out() {
  grep -qx '    context deadline exceeded' <<<"$1" && ! grep -qE 'Failing input|panic|fuzzing process|_test\.go:' <<<"$1"
}

# one DIR TARGET: prints what went on only when it is over, so that targets that
# run at once do not mix their lines.
one() {
  local out status=0
  out=$(fuzz "$1" "$2") || status=$?
  if [ "$status" -ne 0 ] && only_time_ran_out "$out"; then
    status=0
    out=$(fuzz "$1" "$2") || status=$?
  fi
  echo "fuzz $1 $2"
  if [ "$status" -ne 0 ]; then echo "$out"; else echo "$out" | tail -n 3; fi
  return "$status"
}
export -f one fuzz only_time_ran_out

targets=$(git ls-files -co --exclude-standard '*_test.go' | sort -u | xargs grep -oE '^func Fuzz[A-Za-z0-9_]*' |
  sed -E 's|/?[^/]*_test.go:func | |')
[ -n "$targets" ] || { echo 'no fuzz target found' >&2; exit 1; }
# Compile each package once, not once for each of its targets at the same time.
echo "$targets" | cut -d ' ' -f 1 | sort -u | while read -r dir; do
  go test -c -fuzz . -o /dev/null "./$dir"
done
echo "$targets" | xargs -P "$(nproc)" -L 1 bash -c 'one "$0" "$1"'
echo "$(echo "$targets" | wc -l) fuzz targets, $FUZZTIME each"
