// SPDX-License-Identifier: Apache-2.0
// engine config convert.
#include "session/convert/convert.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include "core/base/error.hpp"
#include "core/base/text.hpp"
#include "session/config/schemas.hpp"
#include "session/config/source.hpp"
#include "tools/engine/command.hpp"

namespace eng {
namespace {

// At most one byte more than may be converted; also from a pipe.
std::string read_foreign(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text(max_config_bytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!file.is_open() || file.bad())
    throw Error(
        Exit::usage, fmt::format("{}: {}", printable(path), std::strerror(errno)),
        "a DeepSpeed JSON file, or Hugging Face's training arguments as JSON or YAML; a launch line alone is given "
        "with --args");
  text.resize(static_cast<std::size_t>(file.gcount()));
  return text;
}

// "a,b" are two keys.
std::vector<std::string> keys_of(const std::vector<std::string>& given) {
  std::vector<std::string> out;
  for (const std::string& word : given)
    for (std::size_t start = 0; start <= word.size();) {
      const std::size_t end = std::min(word.find(',', start), word.size());
      if (end > start) out.push_back(word.substr(start, end - start));
      start = end + 1;
    }
  return out;
}

void convert_file(const Common& common, const std::string& file, const std::string& arguments,
                  const std::vector<std::string>& ignored, const std::string& out) {
  if (file.empty() && arguments.empty())
    throw Error(Exit::usage, "a file or --args is needed",
                "engine config convert ds_config.json --args \"deepspeed --num_gpus 4 train.py ...\"");
  auto registry = scan_plugins(common);
  SchemaSource plugins = schemas_of(*registry);
  plugins.model_of = [&](const auto& directory, const auto& plugin) {
    return read_model_source(directory, plugin, plugins);
  };
  const Converted made =
      convert_run({file, file.empty() ? "" : read_foreign(file), arguments, read_foreign, keys_of(ignored)}, plugins);
  for (const std::string& note : made.notes) print_err("note: {}\n", note);
  if (put_text(made.text, out)) print_err("wrote {0}; then:  engine check {0}\n", out);
}

}  // namespace

void add_config_convert(CLI::App& config, Common& common) {
  auto* command = config.add_subcommand(
      "convert", "write a configuration from a DeepSpeed file, a launch line, or Hugging Face's training arguments");
  auto file = std::make_shared<std::string>(), arguments = std::make_shared<std::string>(),
       out = std::make_shared<std::string>();
  auto ignored = std::make_shared<std::vector<std::string>>();
  command->add_option("file", *file, "DeepSpeed's file, or arguments of another trainer as JSON or YAML");
  command->add_option("--args", *arguments,
                      "the launch line, in quotes, or only its flags: number of ranks, model, ...");
  command->add_option("--ignore", *ignored, "a key that is not read, as if it were not there; may be repeated")
      ->allow_extra_args(false);
  command->add_option("-o", *out, "file to write; stdout by default");
  command->callback(
      [&common, file, arguments, ignored, out] { convert_file(common, *file, *arguments, *ignored, *out); });
}

}  // namespace eng
