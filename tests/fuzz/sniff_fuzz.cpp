// SPDX-License-Identifier: Apache-2.0
// Any bytes as a file of [data] paths: what it is, is said in the same way each time; a refusal has a text; and a text
// is judged the same whether it comes at once or in pieces. The first byte chooses the size of the pieces. Compile with
// the parts of plugins/data that read text.
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "plugins/data/failure.hpp"
#include "plugins/data/sniff.hpp"
#include "plugins/data/text_check.hpp"
#include "plugins/data/text_format.hpp"

namespace {

using text_data::Content;

void require(bool holds) {
  if (!holds) std::abort();
}

void sniff(std::string_view bytes) {
  for (const bool whole : {true, false}) {
    const Content one = text_data::sniff(bytes, whole), two = text_data::sniff(bytes, whole);
    require(one.kind == two.kind && one.what == two.what && one.mark <= bytes.size());
    if (one.kind == Content::text) continue;
    require(!one.what.empty());
    for (const char* around : {"", "gzip"})
      require(text_data::refusal(one, "/a b/c.txt.gz", around).find(one.what) != std::string::npos);
    // Nothing that a table knows is lost among ids, but what is told by two bytes.
    if (text_data::sniff_among_ids(bytes, whole).kind != one.kind)
      require(one.kind == Content::other || !text_data::is_plain_text(bytes));
  }
}

std::string check(std::string_view bytes, std::size_t piece) {
  const std::string path = "input";
  text_data::TextCheck check(path, false);
  try {
    for (std::size_t at = 0; at < bytes.size(); at += piece) check.feed(bytes.substr(at, piece));
    check.finish();
  } catch (const text_data::Failure& failure) {
    return failure.text;
  }
  return std::to_string(check.wrong());
}

// [data] as far as formats read it.
const eng_options options = [] {
  eng_options table{};
  table.struct_size = sizeof(table);
  table.get_string = [](const eng_options*, const char* key, const char** out, eng_error*) -> eng_status {
    *out = std::string_view(key) == "field" ? "text" : "stop";
    return ENG_OK;
  };
  return table;
}();

// The documents of the file, or why there are none.
std::string read(const std::string& path, const char* format) {
  text_data::Reading reading;
  reading.format = format;
  reading.options = &options;
  text_data::Seen seen;
  std::string out;
  try {
    const text_data::InputFile file(path);
    const text_data::TextFormat found = text_data::text_format(file, reading);
    text_data::each_document(
        file, reading, found,
        {[&] { out += "<"; }, [&](std::string_view text) { out += text.substr(0, 1 << 16); }, [&] { out += ">"; }},
        seen);
  } catch (const text_data::Failure& failure) {
    require(!failure.text.empty() && failure.text.size() < 3000);
    return failure.text;
  }
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  static const std::string path = "/tmp/engine-fuzz-sniff-" + std::to_string(getpid());
  if (size < 1) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data + 1), size - 1);
  sniff(bytes);
  require(check(bytes, bytes.size() + 1) == check(bytes, data[0] % 16 + 1));
  std::FILE* file = std::fopen(path.c_str(), "wb");
  require(file && std::fwrite(bytes.data(), 1, bytes.size(), file) == bytes.size() && std::fclose(file) == 0);
  for (const char* format : {"auto", "text", "jsonl"}) require(read(path, format) == read(path, format));
  require(bytes.empty() || read(path, "bytes") == "<" + std::string(bytes.substr(0, 1 << 16)) + ">");
  std::remove(path.c_str());
  return 0;
}
