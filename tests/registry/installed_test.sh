#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# installed_test.sh BUILD LIFECYCLE: installs everything, builds a plugin from the installed tree alone, loads it; moves
# the tree and trains with the command in it.
set -euo pipefail
build=$1 lifecycle=$(realpath "$2") source=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

DESTDIR="$work/root" meson install -C "$build" --no-rebuild --tags devel,runtime > "$work/log" 2>&1 || { cat "$work/log"; exit 1; }
pc=$(find "$work/root" -name engine-abi.pc)
[[ -n $pc ]] || { echo "engine-abi.pc was not installed"; exit 1; }
# The files name folders relative to themselves: no prefix, whatever that of the build is.
! grep "=/" "$pc" "${pc%/*}/engine-embed.pc" || { echo "a file for pkg-config names an absolute folder"; exit 1; }
mv "$work/root" "$work/moved first"
export PKG_CONFIG_PATH="${pc/"$work/root"/"$work/moved first"}"
PKG_CONFIG_PATH=${PKG_CONFIG_PATH%/*}
# pkg-config writes a space in a path as `\ `, for a shell to read again.
variable() { pkg-config --variable="$1" engine-abi | sed 's/\\ / /g'; }
for header in "$source"/../abi/engine/*.h; do
  cmp "$header" "$(variable includedir)/engine/${header##*/}"
done
[[ -e $(variable plugindir)/cpu.eng.so ]] || { echo "plugindir of engine-abi.pc is $(variable plugindir): no plugins there"; exit 1; }
[[ $(variable abi) == 1.0 && " $(variable frozen) " == *" tokenizer "* && $(variable frozen_since) == 2026-11-28 ]] ||
  { echo "engine-abi.pc does not say what is frozen"; exit 1; }
[[ -x $(variable command) && -e $(variable rustdir)/src/abi.rs ]] || { echo "command or rustdir of engine-abi.pc is wrong"; exit 1; }

# Outside of the source tree, with nothing but what pkg-config says.
mkdir -m 755 "$work/author" && cd "$work/author"
cp "$source/registry/fixture.c" "$source/registry/fixture.h" .
script=$(variable version_script)
eval "flags=($(pkg-config --cflags engine-abi))"
${CC:-cc} -std=c99 -Wall -Wextra -Werror -fPIC -fvisibility=hidden "${flags[@]}" \
  -D'FIXTURE_ID="org.example.installed"' fixture.c -shared -Wl,--version-script="$script" -o tiny.eng.so
chmod 755 tiny.eng.so
"$lifecycle" "$PWD" | tee out
grep -q "^org.example.installed 1.2.3$" out

# A program around libengine.so, which it finds without LD_LIBRARY_PATH. Sanitizers would have to be linked into it first.
eval "flags=($(pkg-config --cflags --libs engine-embed))"
if ! nm -D "$(pkg-config --variable=libdir engine-embed | sed 's/\\ / /g')/libengine.so" | grep -q " U __.san_"; then
  ${CC:-cc} -std=c99 "$source/../examples/embed/train.c" "${flags[@]}" -o train
  status=0
  env -u LD_LIBRARY_PATH ./train 2> said || status=$?
  grep -q "^usage: train" said && [[ $status == 2 ]] || { echo "a program linked by engine-embed.pc does not start"; cat said; exit 1; }
fi

# The twin: without the header's folder the same plugin does not build.
if ${CC:-cc} -std=c99 -fsyntax-only fixture.c 2> /dev/null; then
  echo "the plugin builds without the installed headers: the test proves nothing"
  exit 1
fi

# From wherever the tree was moved, the command finds every plugin that was installed with it.
mv "$work/moved first" "$work/moved"
engine=$(find "$work/moved" -path '*/bin/engine')
moved() { env -i HOME="$work" PATH=/usr/bin:/bin "$engine" "$@"; }
moved doctor > doctor
count=0
while read -r plugin; do
  grep -qF "  $plugin: used" doctor || { echo "engine doctor does not use $plugin"; cat doctor; exit 1; }
  count=$((count + 1))
done < <(find "$work/moved" -name '*.eng.so')
[[ $count -ge 8 ]] || { echo "$count plugins were installed"; exit 1; }
printf 'the quick brown fox jumps over the lazy dog\n%.0s' {1..100} > text.txt
moved init tiny -o tiny.toml 2> /dev/null
moved run tiny.toml 'data.paths=["text.txt"]' train.steps=2 train.sequence_length=32 train.micro_batch=2 --out run 2> log ||
  { cat log; exit 1; }
grep -q "^done " log
