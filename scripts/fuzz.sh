#!/usr/bin/env bash
# Runs every fuzz target of the tree for the given time each (default 10s), as
# many at once as there are cores. New targets are found by themselves.
set -euo pipefail

export FUZZTIME=${1:-10s}

# one DIR TARGET: prints what went on only when it is over, so that targets that
# run at once do not mix their lines.
one() {
  local out status=0
  out=$(go test -run '^$' -fuzz "^$2\$" -fuzztime "$FUZZTIME" -fuzzminimizetime 100x -parallel 1 "./$1" 2>&1) || status=$?
  echo "fuzz $1 $2"
  if [ "$status" -ne 0 ]; then echo "$out"; else echo "$out" | tail -n 3; fi
  return "$status"
}
export -f one

targets=$(git ls-files -co --exclude-standard '*_test.go' | sort -u | xargs grep -oE '^func Fuzz[A-Za-z0-9_]*' |
  sed -E 's|/?[^/]*_test.go:func | |')
[ -n "$targets" ] || { echo 'no fuzz target found' >&2; exit 1; }
# Compile each package once, not once for each of its targets at the same time.
echo "$targets" | cut -d ' ' -f 1 | sort -u | while read -r dir; do
  go test -c -fuzz . -o /dev/null "./$dir"
done
echo "$targets" | xargs -P "$(nproc)" -L 1 bash -c 'one "$0" "$1"'
echo "$(echo "$targets" | wc -l) fuzz targets, $FUZZTIME each"
