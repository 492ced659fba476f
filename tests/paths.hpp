// SPDX-License-Identifier: Apache-2.0
// The folders of the build and the sources, kept out of the tests' command lines so that a compiler cache serves any
// clone.
#pragma once

extern "C" {
extern const char *const test_plugin_dir, *const test_command, *const test_source_dir;
}
#define ENGINE_PLUGIN_DIR test_plugin_dir
#define ENGINE_COMMAND test_command
#define ENGINE_SOURCE_DIR test_source_dir
