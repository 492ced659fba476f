// SPDX-License-Identifier: Apache-2.0
// Formats of other plugins, as the source `text` reads by them; and its own, which others may use.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <utility>

#include "harness.hpp"
#include "tokenizer_harness.hpp"

using namespace data_test;
using Catch::Contains;

namespace {

// A format of texts that end in '|'. It claims files of the name *.bar, and puts pieces of three bytes.
struct Bars {
  std::string identity = "org.example.bars 1";
  std::string fails;   // the text of an error after the first document
  bool ends = true;    // the last document
  bool stops = true;   // where the source wants no more
  uint64_t after = 0;  // calls of put after one that failed
  uint64_t size = 0;   // as it was told
  bool seeks = false;  // as it was offered
};
Bars bars;

eng_status make_bars(const eng_options*, void** self, eng_error*) {
  *self = nullptr;
  return ENG_OK;
}

eng_status read_bars(void*, const eng_documents_in* in, const eng_documents_out* out, eng_documents_seen* seen,
                     eng_error* error) {
  std::string all(1 << 20, '\0');
  uint64_t got = 0;
  bars.size = in->size, bars.seeks = in->seek != nullptr;
  if (in->seek) {  // to the end and back
    if (in->seek(in, in->size + 1, nullptr) != ENG_OUT_OF_RANGE || in->seek(in, in->size, error) != ENG_OK) return 1;
    if (in->read(in, all.data(), 1, &got, error) != ENG_OK || got != 0 || in->seek(in, 0, error) != ENG_OK) return 1;
  }
  eng_status failed = in->read(in, all.data(), all.size(), &got, error);
  if (failed != ENG_OK) return failed;
  for (uint64_t at = 0; at < got; ++at) {
    const uint64_t end = std::min<uint64_t>(all.find('|', at), got);
    if (end == at) ++seen->left_out;
    for (; at < end; at += 3) {
      const uint64_t n = std::min<uint64_t>(3, end - at);
      if (failed != ENG_OK) ++bars.after;
      const eng_status now = out->put(out, all.data() + at, n, at + n < end || !bars.ends ? ENG_TEXT_MORE : 0, error);
      if (failed == ENG_OK) failed = now;
      if (failed != ENG_OK && bars.stops) return failed;
    }
    at = end;
    if (bars.fails.empty()) continue;
    error->set(error, ENG_DATA_LOSS, bars.fails.data(), bars.fails.size());
    return ENG_DATA_LOSS;
  }
  return failed;
}

const eng_documents bars_table = {sizeof(eng_documents), 0, make_bars, [](void*) {}, read_bars};

eng_status give_bars(eng_format* out) {
  *out = {sizeof(*out), 0, "bars", &bars_table, nullptr, bars.identity.c_str()};
  return ENG_OK;
}

const eng_formats bars_formats = {
    sizeof(eng_formats), 0,
    [](const eng_formats*, const char* name, eng_format* out, eng_error* error) -> eng_status {
      if (std::strcmp(name, "bars") == 0) return give_bars(out);
      const std::string text = "no plugin provides it; there are: bars";
      error->set(error, ENG_NOT_FOUND, text.data(), text.size());
      return ENG_NOT_FOUND;
    },
    [](const eng_formats*, const char* name, const void*, uint64_t, eng_format* out, eng_error* error) -> eng_status {
      const std::string file = name, text = "several do";
      if (file.ends_with(".two")) error->set(error, ENG_INVALID, text.data(), text.size());
      return file.ends_with(".bar") ? give_bars(out) : file.ends_with(".two") ? ENG_INVALID : ENG_NOT_FOUND;
    }};

struct Formats {
  Folder folder;
  Settings settings{.paths = {"*"}, .strings = {{"separator", "/"}}, .numbers = {{"validation", 0}}, .length = 1};
  Formats() {
    bars = Bars();
    host_formats = &bars_formats;
    logged();
  }
  ~Formats() { host_formats = nullptr; }

  // The stream of bytes, or the error.
  std::string text() {
    settings.length = 1;
    Source once(folder, settings);
    if (once.status() != ENG_OK) return once.error();
    settings.length = static_cast<int64_t>(once.info().tokens) - 1;
    return Source(folder, settings).text();
  }
};

}  // namespace

TEST_CASE_METHOD(Formats, "a format that claims a file gives its documents") {
  folder.write("a.bar", "one|seven||eleven");
  folder.write("b.txt", "plain | text");
  CHECK(text() == "one/seven/eleven/plain | text");
  CHECK(bars.size == 17);
  CHECK(bars.seeks);
  CHECK_THAT(logged(), Contains("rows that the format leaves out: 1"));
  settings.strings["format"] = "text";
  CHECK(text() == "one|seven||eleven/plain | text");
  settings.strings["format"] = "bars";
  CHECK(text() == "one/seven/eleven/plain / text");
  host_formats = nullptr;
  CHECK_THAT(text(), Contains("format = \"bars\": there are auto, text, jsonl, json, csv and bytes"));
  settings.strings["format"] = "auto";
  CHECK(text() == "one|seven||eleven/plain | text");
}

TEST_CASE_METHOD(Formats, "a compressed file is read as what it holds, without seek") {
  folder.write("a.bar.gz", gzip("one|seven"));
  folder.write("b.bar.zst", zstd("two|three"));
  CHECK(text() == "one/seven/two/three");
  CHECK(bars.size == 0);
  CHECK_FALSE(bars.seeks);
}

TEST_CASE_METHOD(Formats, "an error names file and format, and says what the format says") {
  const std::string path = folder.write("a.bar", "one|two");
  bars.fails = "row 2 is cut short: copy the file again";
  CHECK_THAT(text(), Contains("[data] " + path + ", read by the format bars: row 2 is cut short: copy"));
  bars.fails.clear();
  bars.ends = false;
  CHECK_THAT(text(), Contains("bars: it returned inside of document 1"));
  settings.strings["format"] = "bar";
  CHECK_THAT(text(), Contains("format = \"bar\": no plugin provides it; there are: bars"));
  settings.strings["format"] = "auto";
  folder.write("a.two", "text");
  settings.paths = {"a.two"};
  CHECK_THAT(text(), Contains("a.two: several do"));
}

TEST_CASE_METHOD(Formats, "texts of a format that are not UTF-8 are refused or read with U+FFFD") {
  folder.write("a.bar", "caf\xc3\xa9|\xe4\xb8\xad|ab\xff|c");
  CHECK_THAT(text(), Contains("document 3 of the file is not text in UTF-8: 1 bytes are not"));
  settings.strings["errors"] = "replace";
  CHECK(text() == "caf\xc3\xa9/\xe4\xb8\xad/ab\xff/c");
  settings.strings["errors"] = "stop";
  folder.write("a.bar", std::string("a\0b|c", 5));
  CHECK(text() == std::string("a\0b/c", 5));
}

TEST_CASE_METHOD(Formats, "a source that stops is obeyed, and its own error is reported") {
  folder.write("a.bar", std::string(1000, 'x') + "|y");
  settings.numbers["memory"] = 500;
  for (const bool stops : {true, false}) {
    bars.stops = stops;
    bars.after = 0;
    CHECK_THAT(text(), Contains("more than the 500 bytes of [data] memory"));
    CHECK((bars.after == 0) == stops);
  }
}

TEST_CASE_METHOD(Formats, "tokens are made anew when the identity of the format changes, and not otherwise") {
  folder.write("a.bar", "Hello, world!|It's one");
  folder.write("b.txt", "and two");
  settings.strings["tokenizer"] = golden + "gpt2";
  settings.vocabulary = 1000;
  const auto built = [&] {
    const Opening with(folder, settings);
    eng_data_built out{};
    out.struct_size = sizeof(out);
    REQUIRE(table("text").build(&with.options, &with.request, nullptr, &out, nullptr) == ENG_OK);
    CHECK(out.documents == (settings.paths[0] == "*.txt" ? 1u : 3u));
    return std::pair(std::string(out.path), out.reused != 0);
  };
  const auto first = built();
  CHECK_FALSE(first.second);
  CHECK(built() == std::pair(first.first, true));
  bars.identity = "org.example.bars 2";
  const auto second = built();
  CHECK_FALSE(second.second);
  CHECK(second.first != first.first);
  settings.paths = {"*.txt"};  // no file of the format: its identity does not count
  const auto plain = built();
  bars.identity = "org.example.bars 3";
  CHECK(built() == std::pair(plain.first, true));
}

TEST_CASE_METHOD(Formats, "the source's own formats are tables, too") {
  const auto* lines = static_cast<const eng_documents*>(plugin().get_interface(ENG_DOCUMENTS_KIND, "jsonl"));
  REQUIRE(lines != nullptr);
  CHECK(plugin().get_interface(ENG_DOCUMENTS_KIND, "bars") == nullptr);
  settings.strings["field"] = "body";
  const Opening with(folder, settings);
  struct Memory {
    std::string content, out;
  } memory{"{\"body\": \"one\"}\n{\"body\": \"\"}\n{\"body\": \"two\"}\n", {}};
  const eng_documents_in in = {
      sizeof(in),
      0,
      &memory,
      "a.jsonl",
      0,
      [](const eng_documents_in* self, void* to, uint64_t capacity, uint64_t* got, eng_error*) -> eng_status {
        std::string& rest = static_cast<Memory*>(self->data)->content;
        *got = std::min<uint64_t>(capacity, rest.size());
        std::memcpy(to, rest.data(), *got);
        rest.erase(0, *got);
        return ENG_OK;
      },
      nullptr,
      0};
  const eng_documents_out out = {
      sizeof(out), 0, &memory,
      [](const eng_documents_out* self, const char* text, uint64_t size, uint32_t, eng_error*) -> eng_status {
        static_cast<Memory*>(self->data)->out.append(text, size).append("|");
        return ENG_OK;
      },
      nullptr};
  eng_documents_seen seen{};
  seen.struct_size = sizeof(seen);
  void* self = nullptr;
  REQUIRE(lines->create(&with.options, &self, nullptr) == ENG_OK);
  CHECK(lines->read(self, &in, &out, &seen, nullptr) == ENG_OK);
  lines->destroy(self);
  CHECK(memory.out == "one||two|");
}
