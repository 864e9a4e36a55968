#!/usr/bin/env bash
# Runs the live suites, one package at a time: those of the parts that were changed last come
# first. Arguments: packages; without any, all packages with live tests.
#
# What fails is run once more, alone, when its package is over; it is printed as UNSTEADY if
# it passes then. More than ten failures, a panic, a data race or a time-out fail at once. No
# package is begun after LIVETIME minutes; those that are left out are printed, and are no
# failure. In CI the tests of .ci/unreliable are left out.
set -euo pipefail
cd "$(dirname "$0")/.."

: "${LIVETIME:=35}" "${GOTESTSUM:?}"
module=$(sed -n 's/^module //p' go.mod)
out=out/live
rm -rf "$out"
mkdir -p "$out"

# A package has live tests if its tests use the lab or mark themselves as live. Experiments
# are no tests, and api/conformance is run by make test-api.
packages() {
  go list -f '{{.ImportPath}} {{join .TestImports " "}} {{join .XTestImports " "}} ' work |
    grep -E " $module/(lab|lab/testbed|internal/live|internal/nettest) " | cut -d ' ' -f 1 |
    sed "s|^$module/||" | grep -vE '^(lab/experiment|api/conformance)$'
}

# changed prints each package after the time of the last commit to its topmost folder.
changed() {
  while read -r package; do
    echo "$(git log -1 --format=%ct -- "${package%%/*}" 2>/dev/null || echo 0) $package"
  done
}

# skip prints the flag that leaves out the unreliable tests of a package.
skip() {
  local tests
  [ "${CI:-}" = true ] || return 0
  tests=$(awk -v package="$1." 'index($1, package "Test") == 1 { print substr($1, length(package) + 1) }' .ci/unreliable | paste -sd '|')
  [ -z "$tests" ] || echo "-skip=^($tests)\$"
}

# unsteady prints the tests of a package that failed and passed when they were run again. Of
# a test that failed twice the package has failed.
unsteady() {
  [ -f "$out/$1.rerun" ] || return 0
  sed -n "s|^$module/\([^ ]*\.Test[^/ ]*\): 2 runs, 1 failures\$|\1|p" "$out/$1.rerun"
}

if [ "$#" -gt 0 ]; then list=("${@#./}"); else mapfile -t list < <(packages | changed | sort -rn -s -k 1,1 | cut -d ' ' -f 2); fi
began=$SECONDS failed=() left=() unsteady=0
for package in "${list[@]}"; do
  if [ $((SECONDS - began)) -ge $((LIVETIME * 60)) ]; then left+=("$package"); continue; fi
  name=${package//\//-}
  echo "== $package, $(((SECONDS - began) / 60)) minutes after the start"
  go run "$GOTESTSUM" --format testname --hide-summary skipped --jsonfile "$out/$name.json" \
    --rerun-fails=1 --rerun-fails-max-failures=10 --rerun-fails-run-root-test --rerun-fails-abort-on-data-race \
    --rerun-fails-report="$out/$name.rerun" --packages "./$package" -- \
    -count=1 -vet=off -p 1 -parallel 3 -timeout 15m $(skip "$package") || failed+=("$package")
  unsteady=$((unsteady + $(unsteady "$name" | wc -l)))
  if [ "$unsteady" -gt 10 ]; then failed+=('more than ten tests at first'); break; fi
done

echo "== ${#list[@]} packages in $(((SECONDS - began) / 60)) minutes"
scripts/skips.sh "$out"/*.json || failed+=('the check of skipped tests')
for package in "${list[@]}"; do
  for test in $(unsteady "${package//\//-}"); do
    echo "UNSTEADY: $test"
    echo "$(date -u +%F) $(git rev-parse --short HEAD) $test" >>out/unsteady.txt
  done
done
for package in "${left[@]}"; do echo "LEFT OUT for time: $package"; done
if [ "${#failed[@]}" -gt 0 ]; then
  printf 'FAILED: %s\n' "${failed[@]}" >&2
  exit 1
fi
