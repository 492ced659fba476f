// SPDX-License-Identifier: Apache-2.0
#include "session/config/failure.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <new>
#include <system_error>

#include "session/config/problem_text.hpp"
#include "session/held_folder.hpp"

namespace eng {

namespace {

// These say that the name is wrong, all others that its file system is.
Exit exit_of(const std::filesystem::filesystem_error& e) {
  for (const std::errc wrong :
       {std::errc::no_such_file_or_directory, std::errc::not_a_directory, std::errc::permission_denied,
        std::errc::filename_too_long, std::errc::too_many_symbolic_link_levels})
    if (e.code() == wrong) return Exit::usage;
  return Exit::disk;
}

// Refusals of the system outside of files: a thread, a process, more of its memory, a full standard output.
Failure of_system(const std::system_error& e) {
  const std::string what = for_terminal(e.what());
  const auto is = [&](std::errc code) { return e.code() == code; };
  if (is(std::errc::not_enough_memory)) return {static_cast<int>(Exit::host_memory), "out of host memory", ""};
  if (is(std::errc::resource_unavailable_try_again))
    return {
        static_cast<int>(Exit::environment), "the system makes no more threads for this process: " + what,
        "raise the limits of processes and of memory (`ulimit -u`, `ulimit -v`, those of the control group), or lower "
        "device.threads"};
  for (const std::errc full : {std::errc::no_space_on_device, std::errc::io_error, std::errc::file_too_large,
                               std::errc::bad_file_descriptor, std::errc::broken_pipe})
    if (is(full)) return {static_cast<int>(Exit::disk), what, ""};
  return {static_cast<int>(Exit::environment), what, ""};
}

}  // namespace

std::string for_terminal(const std::string& text) {
  std::string out;
  for (const char c : printable_lines(name_held(text))) {
    if (!out.empty() && out.back() == '\n' && c != ' ' && c != '\n') out += "  ";
    out += c;
  }
  return out;
}

Failure failure(std::exception_ptr reason) try { std::rethrow_exception(reason); } catch (const ConfigError& e) {
  return {static_cast<int>(e.exit()), tell(e), e.help()};
} catch (const Error& e) {  // it may contain a plugin's text, which may be any bytes
  return {static_cast<int>(e.exit()), for_terminal(e.what()), for_terminal(e.help())};
} catch (const std::bad_alloc&) {
  return {static_cast<int>(Exit::host_memory), "out of host memory", ""};
} catch (const std::filesystem::filesystem_error& e) {
  return {static_cast<int>(exit_of(e)),
          for_terminal(fmt::format("cannot use {}: {}", e.path1().string(), e.code().message())), ""};
} catch (const std::system_error& e) {
  return of_system(e);
} catch (const std::exception& e) {
  return {static_cast<int>(Exit::bug), for_terminal(e.what()),
          "this is a bug in engine: please report it with the command line and the configuration"};
}

}  // namespace eng
