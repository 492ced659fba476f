// SPDX-License-Identifier: Apache-2.0
#include "session/failure.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <new>

#include "session/held_folder.hpp"
#include "session/report/problems.hpp"

namespace eng {

Failure failure(std::exception_ptr reason) try { std::rethrow_exception(reason); } catch (const ConfigError& e) {
  return {static_cast<int>(e.exit()), tell(e), e.help()};
} catch (const Error& e) {  // it may contain a plugin's text, which may be any bytes
  return {static_cast<int>(e.exit()), printable_lines(name_held(e.what())), printable_lines(name_held(e.help()))};
} catch (const std::bad_alloc&) {
  return {static_cast<int>(Exit::host_memory), "out of host memory", ""};
} catch (const std::filesystem::filesystem_error& e) {  // a name that is too long, a folder that may not be read, ...
  return {static_cast<int>(Exit::disk),
          printable_lines(fmt::format("cannot use {}: {}", name_held(e.path1().string()), e.code().message())), ""};
} catch (const std::exception& e) {
  return {static_cast<int>(Exit::bug), e.what(),
          "this is a bug in engine: please report it with the command line and the configuration"};
}

}  // namespace eng
