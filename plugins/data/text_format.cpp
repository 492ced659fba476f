// SPDX-License-Identifier: Apache-2.0
#include "text_format.hpp"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <utility>

#include "csv.hpp"
#include "failure.hpp"
#include "notes.hpp"
#include "script.hpp"
#include "sniff.hpp"

namespace text_data {
namespace {

using Kind = Content::Kind;

constexpr const char* packed_endings[] = {".gz", ".gzip", ".zst", ".zstd"};

std::string lower(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

bool ends_with(const std::string& text, std::string_view ending) {
  return text.size() > ending.size() && std::string_view(text).substr(text.size() - ending.size()) == ending;
}

// The path without the ending of gzip or zstd.
std::string unpacked(const std::string& path) {
  for (const std::string_view ending : packed_endings)
    if (ends_with(lower(path), ending)) return path.substr(0, path.size() - ending.size());
  return path;
}

// The file that a command makes of `path`, which is another one.
std::string output(const std::string& path, std::string_view ending) {
  const std::filesystem::path in(path);
  std::filesystem::path out = in;
  if (ending.substr(0, 1) == "~")
    out.replace_filename(in.stem().string() + std::string(ending.substr(1)) + in.extension().string());
  else
    out.replace_extension(ending);
  return out == in ? path + ".out" : out.string();
}

std::string with(std::string text, std::string_view what, const std::string& value) {
  for (std::size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += value.size())
    text.replace(at, what.size(), value);
  return text;
}

// Lines for a shell.
std::string command(const Content& content, const std::string& path, std::string_view around) {
  std::string in = path, lines;
  if (!around.empty()) {
    in = unpacked(path) == path ? path + ".out" : unpacked(path);
    lines = "\n  " + std::string(around) + " -dc < " + shell_word(path) + " > " + shell_word(in);
  }
  const std::string out = shell_word(output(in, content.ending)), file = shell_word(in);
  const std::string line(content.command);
  if (line == "export-dataset") return lines + "\n  " + export_dataset() + " " + file + " --out " + out;
  if (line.find('{') == std::string::npos || line.find("jq") == 0)
    return lines + "\n  " + line + " < " + file + " > " + out;
  const std::string folder = shell_word(std::filesystem::path(in).parent_path().string());
  return lines + "\n  " + with(with(line, "{}", file), "{dir}", folder) + (content.ending.empty() ? "" : " > " + out);
}

[[noreturn]] void refuse_text(const InputFile& file, const std::string& text, eng_status status) {
  throw Failure(status, "[data] " + file.path() + " " + text);
}

}  // namespace

std::string bare_name(const std::string& path) {
  return lower(unpacked(std::filesystem::path(path).filename().string()));
}

std::string refusal(const Content& content, const std::string& path, const std::string& around) {
  std::string text = "is " + std::string(content.what);
  if (!around.empty()) text += ", inside " + around;
  if (!content.advice.empty()) text += ". " + std::string(content.advice);
  if (!content.command.empty()) text += ":" + command(content, path, around);
  return text;
}

std::string TextFormat::key(const std::string& path) const {
  if (!is_ours() || is_verbatim()) return "text";
  return is_lines() ? "json lines" : name == "csv" && csv_separator(path) == '\t' ? "tsv" : name;
}

TextFormat text_format(const InputFile& file, const Reading& reading) {
  TextFormat out;
  if (reading.format == "bytes") {
    out.name = "bytes";
    return out;
  }
  bool whole = false;
  std::string head = file.head(Packed::no, &whole);
  Content content = sniff(head, whole);
  std::string around;
  if (content.kind == Kind::gzip || content.kind == Kind::zstd) {
    out.packed = content.kind == Kind::gzip ? Packed::gzip : Packed::zstd;
    around = content.kind == Kind::gzip ? "gzip" : "zstd";
    head = file.head(out.packed, &whole);
    content = sniff(head, whole);
  } else if (file.size() == 0 && unpacked(file.path()) != file.path()) {
    throw Failure(ENG_DATA_LOSS, "[data] " + file.path() + " is damaged: it is cut short, to 0 bytes");
  }
  if (reading.format == "auto")
    out.by_plugin = claiming_format(unpacked(file.path()), head);
  else if (own_format(reading.format) == nullptr)
    out.by_plugin = plugin_format(reading.format);
  if (!out.is_ours()) {
    out.name = out.by_plugin.name;
    return out;
  }
  const std::string name = bare_name(file.path());
  const bool by_name = ends_with(name, ".jsonl") || ends_with(name, ".ndjson");
  const bool lines = reading.format == "jsonl" || (reading.format == "auto" && by_name);
  const bool as_text = reading.format == "text", any = reading.format == "auto";
  const bool table = any && (ends_with(name, ".csv") || ends_with(name, ".tsv"));
  const std::string forced = "o train on it as it is, set [data] format = \"text\"";
  switch (content.kind) {
    case Kind::text:
      break;
    case Kind::json_lines:
      if (as_text || !any) break;
      if (!lines && !ends_with(name, ".json"))
        note(file.path() + " is read as JSON Lines, which its first lines are; t" + forced);
      out.name = "jsonl";
      return out;
    case Kind::json:
    case Kind::page:
      if (as_text || reading.format == "json" || reading.format == "csv") break;
      if (content.rows && any) {
        if (!lines && !ends_with(name, ".json"))
          note(file.path() + " is read as an array of rows in JSON, which it is; t" + forced);
        out.name = "json";
        out.mark = content.mark;
        return out;
      }
      refuse_text(
          file,
          refusal(content, file.path(), around) + (lines ? "" : (content.command.empty() ? ". T" : "\nT") + forced),
          ENG_INVALID);
    case Kind::gzip:
    case Kind::zstd:
    case Kind::tokens:
    case Kind::other:
      refuse_text(file, refusal(content, file.path(), around), ENG_UNSUPPORTED);
  }
  if (lines) {
    out.name = "jsonl";
    return out;
  }
  out.mark = content.mark;
  if (as_text) return out;
  if (!any || table) {
    out.name = table ? "csv" : reading.format;
    return out;
  }
  if (ends_with(name, ".json"))
    refuse_text(
        file,
        "is JSON by its name: its quotes and braces would be trained on as text. If each line is a JSON object, "
        "set [data] format = \"jsonl\" (and field), and \"json\" for one array of objects; t" +
            forced + "; otherwise write its texts into a file of JSON Lines, {\"text\": ...} on each line",
        ENG_INVALID);
  return out;
}

}  // namespace text_data
