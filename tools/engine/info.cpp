// SPDX-License-Identifier: Apache-2.0
// engine config, doctor.
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <fstream>
#include <sstream>

#include "core/base/error.hpp"
#include "core/base/text.hpp"
#include "engine/model.h"
#include "session/config/config_text.hpp"
#include "session/config/schemas.hpp"
#include "session/file.hpp"
#include "session/plugins/listing.hpp"
#include "session/ranks/groups.hpp"
#include "session/ranks/room.hpp"
#include "session/run/host_rate.hpp"
#include "session/run/waiting.hpp"
#include "session/version.hpp"
#include "tools/engine/command.hpp"

namespace eng {
namespace {

// The lines of a text from a plugin, under that of the device.
std::string below(const std::string& text) {
  std::string out, line;
  std::istringstream lines(printable_lines(text));
  while (std::getline(lines, line)) out += "          " + line + "\n";
  return out;
}

// The plugin's facts about this machine.
std::string inspected(const eng_device& table, const Section& section) {
  if (!table.inspect) return "";
  std::string text(65536, '\0');
  uint64_t size = 0;
  Options options(section);
  Sink sink;
  sink.check(table.inspect(options.get(), text.data(), text.size(), &size, sink.get()), Exit::environment, "inspect");
  return below(text.substr(0, std::min<uint64_t>(size, text.size())));
}

void doctor(const Common& common) {
  std::ifstream cpu("/proc/cpuinfo");
  std::string text;
  while (std::getline(cpu, text))
    if (text.rfind("model name", 0) == 0) break;
  print_out("engine {}  ABI {}.{}\n", version, ENG_ABI_MAJOR, ENG_ABI_MINOR);
  print_out("cpu     {}\n", text.size() > 13 ? text.substr(13) : "unknown");
  auto registry = scan_plugins(common);
  for (const std::string& name : registry->names(ENG_DEVICE_KIND)) put_out(device_here(*registry, name));
  const Room room = room_here();
  print_out("host    memory {}\n", format_bytes(static_cast<double>(room.memory)));
  if (const double rate = measured_host_rate(room.cores, std::min(most_measured, room.memory / 8)); rate > 0)
    print_out("        host.memory_bandwidth = \"{:.0f}MB\": measured, by {} threads that update parameters\n",
              rate / 1e6, room.cores);
  if (const CpuQuota quota = cpu_quota(); quota.processors > 0)
    print_out("quota   {:.4g} processors: {}\n", quota.processors, quota.limit);
  print_out("threads wait for each other {}\n", waiting());
  rlimit limit{};
  getrlimit(RLIMIT_MEMLOCK, &limit);
  print_out("limits  memlock {}",
            limit.rlim_cur == RLIM_INFINITY ? "unlimited" : format_bytes(static_cast<double>(limit.rlim_cur)));
  getrlimit(RLIMIT_NOFILE, &limit);
  print_out(", open files {}\n", limit.rlim_cur);
  std::error_code error;
  // A ring of no entries: a system that permits io_uring refuses the number, others refuse the call.
  const bool ring = ::syscall(SYS_io_uring_setup, 0, nullptr) >= 0 || (errno != ENOSYS && errno != EPERM);
  print_out("io      {}\n", ring ? "io_uring" : "no io_uring: tiers on disks have one request at a time");
  print_out("disk    {} free here\n", format_bytes(static_cast<double>(std::filesystem::space(".", error).available)));
  put_out(print_plugins(*registry, true));
}

}  // namespace

std::string device_here(Registry& registry, const std::string& name) {
  std::string out;
  try {
    Config config = Config::parse("[model]\nplugin = \"llama\"\n[device]\nplugin = \"" + name + "\"\n", "doctor", ".",
                                  {}, schemas_of(registry));
    Kernels kernels(registry, name, config.section("device"));
    const eng_device_info& i = kernels.info();
    out = fmt::format("device  {}: {}, parallel {}, memory {}{}{}{}\n", name, for_terminal(i.name), i.parallel,
                      format_bytes(static_cast<double>(i.total_bytes)), kernels.host_memory() ? "" : " of its own",
                      i.flags & ENG_DEVICE_ASYNC ? ", queues" : "", i.flags & ENG_DEVICE_GRAPHS ? ", graphs" : "");
    out += inspected(registry.table<eng_device>(ENG_DEVICE_KIND, name), config.section("device"));
  } catch (const Error& e) {
    out += fmt::format("device  {}: {}\n", name, for_terminal(e.what())) + below(e.help());
  }
  return out;
}

void add_config(CLI::App& app, Common& common) {
  auto* command =
      app.add_subcommand("config", "print the resolved configuration or all keys; convert another trainer's");
  command->require_subcommand(1);
  auto target = std::make_shared<std::string>();
  auto rest = std::make_shared<std::vector<std::string>>();
  auto* show = command->add_subcommand("show", "print every value and where it comes from");
  show->add_option("config", *target, "a configuration file or a run directory")->required();
  add_overrides(*show, *rest);
  show->callback([&common, target, rest] { put_out(resolved_text(load_config(common, *target, *rest).config)); });
  auto* schema = command->add_subcommand("schema", "print every key with its type, range and default");
  schema->add_option("names", *rest, "sections or plugins; all by default");
  schema->callback([&common, rest] {
    auto registry = scan_plugins(common);
    const SchemaSource plugins = schemas_of(*registry);
    for (const std::string& name : *rest)
      if (schema_text(plugins, {name}).empty()) {
        std::vector<std::string> sections;
        for (const SectionSchema& section : section_schemas()) sections.push_back(section.name);
        throw Error(Exit::usage, fmt::format("there is no section or plugin named `{}` that has keys", name),
                    fmt::format("sections are: {}", fmt::join(sections, ", ")));
      }
    put_out(schema_text(plugins, *rest));
  });
  add_config_convert(*command, common);
}

void add_doctor(CLI::App& app, Common& common) {
  app.add_subcommand("doctor", "print what the engine finds on this machine")->callback([&common] { doctor(common); });
}

}  // namespace eng
