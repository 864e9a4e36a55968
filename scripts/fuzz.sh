#!/usr/bin/env bash
# Runs every fuzz target of the tree for the given time each (default 10s),
# three at once for every two cores, because a fuzzer and its worker wait for each
# other. New targets are found by themselves.
set -euo pipefail

export FUZZTIME=${1:-10s}
BINARIES=$(mktemp -d)
CORPUS=$(go env GOCACHE)/fuzz/$(sed -n 's/^module //p' go.mod)
export BINARIES CORPUS
trap 'rm -rf "$BINARIES"' EXIT

# one DIR TARGET: prints what went on only when it is over, so that targets that
# run at once do not mix their lines. The end comes by SIGINT, which the fuzzer
# takes for success: the end of its own -fuzztime it reports as a failure now and
# then (golang/go#75804). The coordinator alone gets it, and stops its worker.
one() {
  local out status=0
  out=$(cd "$1" && timeout --foreground --preserve-status -s INT -k 60s "$FUZZTIME" \
    "$BINARIES/${1//\//-}.test" -test.run '^$' -test.fuzz "^$2\$" -test.fuzzcachedir "$CORPUS/$1" \
    -test.fuzzminimizetime 100x -test.parallel 1 2>&1) || status=$?
  echo "fuzz $1 $2"
  if [ "$status" -ne 0 ]; then echo "$out"; else echo "$out" | tail -n 2; fi
  return "$status"
}
export -f one

targets=$(git ls-files -co --exclude-standard '*_test.go' | sort -u | xargs grep -oE '^func Fuzz[A-Za-z0-9_]*' |
  sed -E 's|/?[^/]*_test.go:func | |')
[ -n "$targets" ] || { echo 'no fuzz target found' >&2; exit 1; }
echo "$targets" | cut -d ' ' -f 1 | sort -u | while read -r dir; do
  go test -c -fuzz . -o "$BINARIES/${dir//\//-}.test" "./$dir"
done
echo "$targets" | xargs -P "$((($(nproc) * 3 + 1) / 2))" -L 1 bash -c 'one "$0" "$1"'
echo "$(echo "$targets" | wc -l) fuzz targets, $FUZZTIME each"
