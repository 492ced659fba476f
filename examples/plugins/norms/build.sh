#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds build/norms.eng.so with rustc alone. The engine's bindings come with its headers.
set -eu
umask 022 # a plugin that others could write is refused
cd "$(dirname "$0")"
# pkg-config writes a space in a path as `\ `.
ln -sfn "$(pkg-config --variable=rustdir engine-abi | sed 's/\\ / /g')" engine-abi
mkdir -p build
"${RUSTC:-rustc}" --edition 2021 -O -C panic=abort --crate-type rlib --crate-name engine_abi engine-abi/src/lib.rs \
  -o build/libengine_abi.rlib
"${RUSTC:-rustc}" --edition 2021 -O -C panic=abort -D warnings --crate-type cdylib --crate-name norms src/lib.rs \
  --extern engine_abi=build/libengine_abi.rlib -C link-args='-Wl,-z,now -Wl,-z,nodelete' -o build/norms.eng.so
