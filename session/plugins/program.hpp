// SPDX-License-Identifier: Apache-2.0
// The file of this program, beside which the rest of the installation lies.
#pragma once

#include <filesystem>
#include <string>

namespace eng {

constexpr const char* own_link = "/proc/self/exe";

// Its file, also where /proc is not mounted (some chroots and build sandboxes); empty if it cannot be known.
// `link`: where the kernel names it.
std::filesystem::path program_file(const std::filesystem::path& link = own_link);

// The path of this code, if that is libengine.so in another program; "": it is the program.
std::filesystem::path library_file();

// A script of tools/ as one types it: that of the installation or of the tree in which this was built.
std::string script(const std::string& name);

}  // namespace eng
