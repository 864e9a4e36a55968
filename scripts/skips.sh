#!/usr/bin/env bash
# Lists the tests that were skipped, and fails in CI if .ci/skips does not have one of them.
# Arguments: files that gotestsum has written by --jsonfile. Live tests that -short leaves
# out do not count.
set -euo pipefail
cd "$(dirname "$0")/.."

command -v jq >/dev/null || { [ "${CI:-}" != true ] || { echo 'jq is missing; make deps installs it' >&2; exit 1; }; exit 0; }

module=$(sed -n 's/^module //p' go.mod)
names() { jq -r "select(.Test != null and $1) | .Package + \".\" + .Test" "${files[@]}" | sed "s|^$module/||" | sort -u; }
files=("$@")
skipped=$(comm -23 <(names '.Action == "skip"') <(names '.Action == "output" and (.Output | contains("left out by -short"))'))

# listed NAME reports whether .ci/skips has the test or one that it is a part of.
listed() {
  local name=$1
  until grep -qE "^${name//./\\.}[[:space:]]" .ci/skips; do
    [[ ${name##*.} == */* ]] || return 1
    name=${name%/*}
  done
}

unlisted=0
for name in $skipped; do
  if listed "$name"; then
    echo "skipped: $name"
  else
    unlisted=$((unlisted + 1))
    echo "SKIPPED: $name: $(jq -r --arg name "$module/$name" 'select(.Action == "output" and .Package + "." + .Test == $name) | .Output' "${files[@]}" | grep -vE '^(=== |--- )' | tr -d '\n')"
  fi
done
if [ "$unlisted" -gt 0 ] && [ "${CI:-}" = true ]; then
  echo "$unlisted tests were skipped that .ci/skips does not list: run them, or list them with the reason" >&2
  exit 1
fi
