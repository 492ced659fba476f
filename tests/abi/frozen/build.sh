#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# build.sh HEADERS OUT: compiles the plugins beside it. HEADERS: the folder that holds engine/. The binaries in
# x86_64/1.0 are from the headers of 2026-11-28, those in x86_64/draft-9 from the last ones before the freeze, both by
# gcc 12.2. They are never built again: a newer ABI adds a folder.
set -e
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$2"
for source in halving squares letters; do
  cc -std=c11 -Os -Wall -Wextra -Werror -fPIC -fvisibility=hidden -fno-asynchronous-unwind-tables -I "$1" "$here/$source.c" \
    -shared -s -Wl,--version-script="$here/../../../abi/plugin.map" -Wl,-z,noseparate-code -Wl,--build-id=none \
    -o "$2/$source.eng.so"
  chmod 644 "$2/$source.eng.so"
done
