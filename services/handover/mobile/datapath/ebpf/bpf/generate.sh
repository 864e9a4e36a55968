#!/bin/sh
# Compiles datapath.c to the object that is embedded. The result depends on the
# compiler alone: the object in the repository is that of Debian 12's clang 14
# (apt-get install clang llvm libbpf-dev), and a test compares when it is there.
set -eu
cd "$(dirname "$0")"
out=${1:-datapath.o}
clang -O2 -g -Wall -Werror -target bpfel -mcpu=v3 -fdebug-compilation-dir=. \
	-I"/usr/include/$(uname -m)-linux-gnu" -c datapath.c -o "$out"
llvm-strip --strip-debug "$out"
