// SPDX-License-Identifier: Apache-2.0
extern "C" {
extern const char *const test_plugin_dir, *const test_command, *const test_source_dir;
const char* const test_plugin_dir = BUILD_ROOT "/plugins";
const char* const test_command = BUILD_ROOT "/tools/engine";
const char* const test_source_dir = SOURCE_ROOT;
}
