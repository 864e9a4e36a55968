#!/usr/bin/env bash
# Puts the Go that go.mod names into .go, beside whatever the system has. It comes from
# GO_DL (default https://go.dev/dl), or else as the module golang.org/toolchain from
# GOPROXY (default https://proxy.golang.org), which a build needs anyway. What does not
# match scripts/go.pins is refused.
set -euo pipefail
cd "$(dirname "$0")/.."

version=$(awk '$1 == "go" { print $2; exit }' go.mod)
reasons=()

give_up() {
  local why
  why=$(printf '%s; ' "${reasons[@]}")
  echo "Go $version is missing and could not be fetched (${why%; }): install it from https://go.dev/dl/, or name a mirror, as in: make GO_DL=URL demo, or make GOPROXY=URL demo" >&2
  exit 1
}

pin() { awk -v what="$1" '$1 == what { print $2 }' scripts/go.pins; }

# fetch URL FILE; a server that stalls or sends without end is given up.
fetch() {
  local said
  said=$(curl -fsSL --connect-timeout 20 --speed-limit 1000 --speed-time 30 --max-time 1800 --max-filesize 300000000 -o "$2" "$1" 2>&1) && return
  said=${said#*curl: }
  reasons+=("$1: ${said%%$'\n'*}")
  return 1
}

from_archive() {
  local file=$new/go.tar.gz url=${GO_DL:-https://go.dev/dl}
  url=${url%/}/$1.tar.gz
  fetch "$url" "$file" || return 1
  if ! echo "$(pin "$1.tar.gz")  $file" | sha256sum --check --status; then
    reasons+=("$url: its SHA-256 is not the one in scripts/go.pins")
    return 1
  fi
  tar -C "$new" -xzf "$file"
}

# from_module NAME PROXY; the module is the archive, but for the names of its go.mod files
# and the modes of its programs.
from_module() {
  local module=golang.org/toolchain@v0.0.1-$1 url=${2%/}/golang.org/toolchain/@v/v0.0.1-$1.zip folder=$new/module
  if ! command -v unzip >/dev/null && { [ "$(id -u)" -ne 0 ] || ! scripts/deps.sh unzip; }; then
    reasons+=("$url: needs unzip")
    return 1
  fi
  fetch "$url" "$new/module.zip" || return 1
  rm -rf "$folder" "$new/go"
  if ! unzip -q "$new/module.zip" -d "$folder" || [ "$(hash_of "$folder")" != "$(pin "$module")" ]; then
    reasons+=("$url: its hash is not the one in scripts/go.pins")
    return 1
  fi
  find "$folder" -name _go.mod -print0 | while read -r -d '' file; do mv "$file" "${file%_go.mod}go.mod"; done
  chmod -R a+rX,u+w "$folder" && chmod a+x "$folder/$module"/bin/* "$folder/$module"/pkg/tool/*/* && mv "$folder/$module" "$new/go"
}

# hash_of FOLDER: the h1 of golang.org/x/mod/sumdb/dirhash.
hash_of() {
  local hex
  hex=$(cd "$1" && find . -type f -printf '%P\0' | LC_ALL=C sort -z | xargs -0 sha256sum | sha256sum | cut -d ' ' -f 1)
  echo "h1:$(printf '%b' "$(sed 's/../\\x&/g' <<<"$hex")" | base64)"
}

case "$(uname -sm)" in
  'Linux x86_64') name=go$version.linux-amd64 ;;
  'Linux aarch64') name=go$version.linux-arm64 ;;
  *) name=go$version.$(uname -sm | tr ' ' -) ;;
esac
if [ -z "$(pin "$name.tar.gz")" ]; then
  reasons+=("scripts/go.pins has no checksum for $name")
  give_up
fi
if ! command -v curl >/dev/null; then
  reasons+=('curl is missing')
  give_up
fi

new=$(mktemp -d .go-XXXXXX)
trap 'rm -rf "$new"' EXIT
chmod 0755 "$new"
echo "fetching Go $version into .go" >&2
if ! from_archive "$name"; then
  found=
  for proxy in $(tr ',|' '  ' <<<"${GOPROXY:-https://proxy.golang.org}"); do
    [[ $proxy == *://* ]] || continue
    from_module "$name" "$proxy" && found=yes && break
  done
  [ -n "$found" ] || give_up
fi
rm -rf .go
mv "$new/go" .go
