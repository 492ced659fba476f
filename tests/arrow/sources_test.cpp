// SPDX-License-Identifier: Apache-2.0
// The sources text, chat and pairs read the same from Parquet and Arrow as from JSON Lines.
#include <catch2/catch.hpp>
#include <filesystem>

#include "harness.hpp"
#include "tests/data/harness.hpp"

using data_test::Folder;
using data_test::Sample;
using data_test::Settings;
using data_test::Source;

namespace arrow_sources_test {
namespace {

struct Sources {
  Folder folder;
  Sources() { data_test::host_formats = &arrow_test::formats; }
  ~Sources() { data_test::host_formats = nullptr; }

  // All samples of a golden, or the error.
  std::pair<std::vector<Sample>, std::string> samples(const std::string& name, Settings settings) const {
    settings.paths = {arrow_test::golden + name};
    Source source(folder, settings);
    std::vector<Sample> out;
    if (source.error().empty())
      for (uint64_t i = 0; i < source.samples(0); ++i) out.push_back(source.read(0, i));
    return {out, source.error()};
  }
  void same(const std::string& a, const std::string& b, const Settings& settings) const {
    CAPTURE(a, b);
    const auto wanted = samples(a, settings);
    CHECK(wanted.second == "");
    CHECK(wanted.first.size() > 3);
    CHECK(samples(b, settings) == wanted);
  }
};

}  // namespace

TEST_CASE_METHOD(Sources, "the source text gives the ids of the JSON Lines") {
  for (const std::string tokenizer : {"bytes", "gpt2"}) {
    Settings settings{
        .strings = {{"tokenizer",
                     tokenizer == "bytes" ? tokenizer : std::string(ENGINE_SOURCE_DIR) + "/tests/data/golden/gpt2"}},
        .numbers = {{"validation", 0}},
        .length = 16,
        .vocabulary = 1000};
    for (const std::string name : {"texts-zstd.parquet", "texts-dictionary.parquet", "texts-stream-lz4.arrow", "saved"})
      same("texts.jsonl", name, settings);
    settings.numbers["pack"] = 1;
    same("texts.jsonl", "saved", settings);
  }
}

TEST_CASE_METHOD(Sources, "the source chat gives the ids, masks and weights of the JSON Lines") {
  folder.write("t.jinja",
               "{{ tools | tojson if tools else '' }}{% for m in messages %}{{ m.role + ': ' + m.content + '\n' }}"
               "{% endfor %}{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}");
  const Settings settings{.strings = {{"chat_template", "t.jinja"}},
                          .numbers = {{"validation", 0}, {"weights", 1}},
                          .length = 400,
                          .source = "chat"};
  same("chats.jsonl", "chats.parquet", settings);
}

TEST_CASE_METHOD(Sources, "the source pairs gives the ids of the JSON Lines") {
  same("pairs.jsonl", "pairs.parquet",
       {.strings = {}, .numbers = {{"validation", 0}, {"eot", 1}}, .length = 12, .source = "pairs"});
}

}  // namespace arrow_sources_test
