#!/bin/bash
# Builds a Debian package from a compiled sluice.
# usage: build-deb.sh BINARY VERSION FOLDER
set -euo pipefail

if [ $# -ne 3 ]; then
	echo "usage: $0 BINARY VERSION FOLDER" >&2
	exit 2
fi
binary=$(realpath "$1") out=$3
here=$(dirname "$(realpath "$0")")
command -v dpkg-deb >/dev/null || { echo "$0: dpkg-deb is missing: apt-get install dpkg" >&2; exit 1; }

# Debian versions begin with a digit and have no dash without a revision.
version=${2#v}
version=${version//-/+}
[[ $version =~ ^[0-9]+\. ]] || version="0~$version"
architecture=$(dpkg --print-architecture)

mkdir -p "$out"
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
chmod 0755 "$root"

install -D -m 0755 "$binary" "$root/usr/bin/sluice"
for unit in "$here"/systemd/*.service; do
	install -D -m 0644 "$unit" "$root/lib/systemd/system/$(basename "$unit")"
done
install -D -m 0644 -t "$root/etc/default" "$here"/default/*
install -D -m 0644 "$here/debian/sysctl.conf" "$root/usr/share/doc/sluice/examples/sysctl.conf"
install -m 0644 "$here/debian/copyright" "$root/usr/share/doc/sluice/copyright"
gzip -9n <"$here/../CHANGELOG.md" >"$root/usr/share/doc/sluice/changelog.gz"

mkdir -p "$root/etc/sluice" "$root/usr/share/man/man1" "$root/DEBIAN"
chmod 0750 "$root/etc/sluice"
install -d -m 2750 "$root/etc/sluice/pki"
(cd "$root" && printf '/%s\n' etc/default/*) >"$root/DEBIAN/conffiles"
for kind in controller agent mobile; do
	env -i "$binary" config example "$kind" |
		sed 's|^data_dir: .*|data_dir: /var/lib/sluice|; s|^state_dir: .*|state_dir: /var/lib/sluice/mobile|' >"$root/etc/sluice/$kind.yaml"
	chmod 0640 "$root/etc/sluice/$kind.yaml"
	echo "/etc/sluice/$kind.yaml" >>"$root/DEBIAN/conffiles"
done

install -d "$root/usr/share/bash-completion/completions" "$root/usr/share/zsh/vendor-completions" "$root/usr/share/fish/vendor_completions.d"
"$binary" completion bash >"$root/usr/share/bash-completion/completions/sluice"
"$binary" completion zsh >"$root/usr/share/zsh/vendor-completions/_sluice"
"$binary" completion fish >"$root/usr/share/fish/vendor_completions.d/sluice.fish"
"$binary" docs man | gzip -9n >"$root/usr/share/man/man1/sluice.1.gz"

for script in postinst prerm postrm; do
	install -m 0755 "$here/debian/$script" "$root/DEBIAN/$script"
done
cat >"$root/DEBIAN/control" <<CONTROL
Package: sluice
Version: $version
Architecture: $architecture
Maintainer: The Sluice Authors <sluice-net@users.noreply.github.com>
Homepage: https://github.com/sluice-net/sluice
Section: net
Priority: optional
Installed-Size: $(du -ks "$root" | cut -f1)
Depends: adduser
Recommends: openvswitch-switch
Suggests: ethtool, iproute2
Description: moves data over OpenFlow networks
 One program with an OpenFlow controller, the agents that carry data over long
 links many times faster than one connection can, the daemons of mobile devices
 and switches, and the commands to look after them.
CONTROL
(cd "$root" && find . -type f ! -path './DEBIAN/*' -printf '%P\0' | sort -z | xargs -0 md5sum) >"$root/DEBIAN/md5sums"

package="$out/sluice_${version}_${architecture}.deb"
dpkg-deb --root-owner-group --build "$root" "$package" >/dev/null
echo "$package"
