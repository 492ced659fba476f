// SPDX-License-Identifier: Apache-2.0
#include "session/hub/listing.hpp"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <cctype>
#include <set>

#include "core/base/error.hpp"
#include "core/base/text.hpp"
#include "session/json.hpp"

namespace eng::hub {
namespace {

// Read of a model's folder: weights, their index, config.json, tokenizers, templates, adapters.
constexpr const char* of_models[] = {"model.safetensors",
                                     "model-*-of-*.safetensors",
                                     "model.safetensors.index.json",
                                     "adapter_model.safetensors",
                                     "adapter_config.json",
                                     "config.json",
                                     "generation_config.json",
                                     "tokenizer.json",
                                     "tokenizer_config.json",
                                     "tokenizer.model",
                                     "*.tiktoken",
                                     "tiktoken.model",
                                     "vocab.json",
                                     "merges.txt",
                                     "added_tokens.json",
                                     "special_tokens_map.json",
                                     "chat_template.jinja",
                                     "chat_template.json"};
constexpr const char* of_data[] = {"*.parquet", "*.arrow",     "*.feather",  "*.json",     "*.jsonl",   "*.ndjson",
                                   "*.csv",     "*.tsv",       "*.txt",      "*.jsonl.gz", "*.json.gz", "*.csv.gz",
                                   "*.txt.gz",  "*.jsonl.zst", "*.json.zst", "*.csv.zst",  "*.txt.zst"};
constexpr const char* not_data[] = {"dataset_infos.json", "*/dataset_infos.json", "requirements.txt", ".*", "*/.*"};

bool is_hex(const std::string& text, size_t digits) {
  return text.size() == digits &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isxdigit(c) && !std::isupper(c); });
}

std::optional<uint64_t> size_in(const Json& json) {
  const Json& size = json.get("size");
  if (size.is_null()) return std::nullopt;
  if (!size.is_unsigned() || size.whole() > largest_file)
    throw JsonError(fmt::format("the size {} is not possible", printable(size.dump(-1, true), 40)));
  return size.whole();
}

File file_of(const Json& json) {
  File out{json.at("rfilename").text(), size_in(json), "", ""};
  const Json& lfs = json.get("lfs");
  if (lfs.is_object()) {
    out.sha256 = lfs.contains("sha256") ? lfs.text_at("sha256") : lfs.text_at("oid");
    if (!is_hex(out.sha256, 64)) throw JsonError("its lfs has no sha256 of 64 hexadecimal digits");
    const auto size = size_in(lfs);
    if (size && out.size && *size != *out.size) throw JsonError("it has two sizes");
    if (size) out.size = size;
  } else if (json.contains("blobId")) {
    out.git_sha1 = json.text_at("blobId");
    if (!is_hex(out.git_sha1, 40)) throw JsonError("its blobId is not 40 hexadecimal digits");
  }
  return out;
}

bool matches(const std::string& path, std::string pattern) {
  if (pattern.ends_with('/')) pattern += '*';  // a folder: all that is in it
  return ::fnmatch(pattern.c_str(), path.c_str(), 0) == 0;
}

template <class Patterns>
bool any(const std::string& path, const Patterns& patterns) {
  return std::any_of(std::begin(patterns), std::end(patterns), [&](const auto& p) { return matches(path, p); });
}

bool is_read(const std::string& path, Kind kind) {
  if (kind == Kind::data) return any(path, of_data) && !any(path, not_data);
  return path.find('/') == path.npos && any(path, of_models);
}

[[noreturn]] void nothing_chosen(const Listing& listing, Kind kind, const Choice& choice) {
  std::string some;
  bool pickle = false;
  for (size_t k = 0; k < listing.files.size(); ++k) {
    const std::string& path = listing.files[k].path;
    pickle = pickle || path == "pytorch_model.bin" || path == "pytorch_model.bin.index.json";
    if (k < 20) some += fmt::format("\n  {}", printable(path, 120));
    if (k == 20) some += fmt::format("\n  and {} more", listing.files.size() - k);
  }
  const bool asked = !choice.include.empty() || !choice.exclude.empty();
  throw Error(Exit::data,
              asked ? "--include and --exclude leave no file of the repository"
                    : fmt::format("the repository has no file that the engine reads as {}",
                                  kind == Kind::model ? "a model" : "data"),
              fmt::format("{}it has:{}",
                          asked    ? ""
                          : pickle ? "its weights are a pickle, which is left out unless it is asked for: --include "
                                     "'*.json' 'pytorch_model*.bin'; "
                                   : "--include PATTERN takes others; ",
                          some.empty() ? " nothing" : some));
}

}  // namespace

std::string File::content() const {
  return !sha256.empty() ? "sha256:" + sha256 : !git_sha1.empty() && size ? "git-sha1:" + git_sha1 : "";
}

Listing parse_listing(std::string_view text, const std::string& where) {
  Listing out;
  std::string about;
  try {
    const Json json = Json::parse(text);
    if (!json.is_object()) throw JsonError("it is no object");
    out.commit = json.text_at("sha");
    if (!is_hex(out.commit, 40) && !is_hex(out.commit, 64)) throw JsonError("it names no commit (`sha`)");
    std::set<std::string> seen;
    for (const Json& one : json.at("siblings").list()) {
      about = one.is_object() ? printable(one.text_at("rfilename"), 120) : "";
      out.files.push_back(file_of(one));
      if (!seen.insert(out.files.back().path).second) throw JsonError("it is listed twice");
    }
  } catch (const JsonError& e) {
    throw Error(Exit::data,
                fmt::format("{} does not answer as a hub: {}{}", where,
                            about.empty() ? "" : "file `" + about + "`: ", printable(e.what(), 300)),
                "HF_ENDPOINT must name a Hugging Face hub or a mirror of one");
  }
  if (out.files.size() >= most_files)
    throw Error(Exit::data,
                fmt::format("{} lists {} files; such a long list may be incomplete", where, out.files.size()),
                "download this repository with `hf download`");
  return out;
}

std::vector<File> chosen(const Listing& listing, Kind kind, const Choice& choice) {
  std::vector<File> out;
  for (const File& file : listing.files) {
    if (choice.include.empty() ? !is_read(file.path, kind) : !any(file.path, choice.include)) continue;
    if (any(file.path, choice.exclude)) continue;
    if (const std::string why = unfit(file.path); !why.empty())
      throw Error(
          Exit::data,
          fmt::format("the hub lists a file whose name {}: `{}`; nothing is downloaded", why, printable(file.path)),
          "no honest repository has such a name; --exclude PATTERN leaves it out");
    out.push_back(file);
  }
  if (out.empty()) nothing_chosen(listing, kind, choice);
  return out;
}

}  // namespace eng::hub
