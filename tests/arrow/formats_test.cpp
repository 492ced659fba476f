// SPDX-License-Identifier: Apache-2.0
// Files of Parquet and Arrow, which tools/goldens/arrow.py made with pyarrow, beside the same rows as JSON Lines.
#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>

#include "harness.hpp"

using namespace arrow_test;
using Catch::Contains;
using nlohmann::json;

namespace arrow_formats_test {
namespace {

std::vector<json> rows_of(const std::string& name) {
  std::vector<json> out;
  std::istringstream lines(file(name));
  for (std::string line; std::getline(lines, line);) out.push_back(json::parse(line));
  return out;
}

std::vector<std::string> texts_of(const std::string& name) {
  std::vector<std::string> out;
  for (const json& row : rows_of(name)) out.push_back(row.at("text"));
  return out;
}

std::vector<std::string> goldens(const std::string& begin) {
  std::vector<std::string> out;
  for (const auto& entry : std::filesystem::directory_iterator(golden))
    if (const std::string name = entry.path().filename().string();
        name.starts_with(begin) && entry.path().extension() != ".jsonl" && entry.is_regular_file())
      out.push_back(name);
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace

TEST_CASE("texts of every codec, encoding and type are those of the JSON Lines") {
  const std::vector<std::string> wanted = texts_of("texts.jsonl"), files = goldens("texts-");
  REQUIRE(wanted.size() == 40);
  CHECK(files.size() == 20);
  for (const std::string& name : files) {
    CAPTURE(name);
    const Read found = read(file(name));
    CHECK(found.error == "");
    CHECK(found.texts == wanted);
    if (!name.ends_with(".parquet") && !name.starts_with("texts-stream")) continue;
    // A stream is read in one direction, as from a compressed file; Parquet cannot be.
    const Read forward = read(file(name), {.seeks = false});
    if (name.starts_with("texts-stream")) {
      CHECK(forward.texts == wanted);
    } else {
      CHECK(forward.status == ENG_UNSUPPORTED);
      CHECK_THAT(forward.error, Contains("must be decompressed first"));
    }
  }
  CHECK(read(file("nested.parquet"), {.field = "data.text"}).texts == wanted);
  CHECK_THAT(read(file("texts-feather.feather"), {.seeks = false}).error, Contains("must be decompressed first"));
}

TEST_CASE("whole rows are the objects of the JSON Lines") {
  for (const std::string name : {"everything.arrow", "chats.parquet", "pairs.parquet", "texts-zstd.parquet"}) {
    CAPTURE(name);
    const Read found = read(file(name), {.field = ""});
    REQUIRE(found.error == "");
    const std::string lines =
        (name.starts_with("texts") ? "texts" : std::filesystem::path(name).stem().string()) + ".jsonl";
    const std::vector<json> wanted = rows_of(lines);
    REQUIRE(found.texts.size() == wanted.size());
    for (std::size_t i = 0; i < wanted.size(); ++i) CHECK(json::parse(found.texts[i]) == wanted[i]);
  }
  const Read nan = read(file("nan.parquet"), {.field = ""});
  CHECK(nan.status == ENG_INVALID);
  CHECK_THAT(nan.error, Contains("row group 1 of 1, row 2 of it (row 2 of the file): column \"score\" holds nan"));
  CHECK(read(file("nan.parquet")).texts.size() == 2);
}

// A column for each kind of values, encoding and codec, in pages of both versions.
TEST_CASE("every encoding and codec of Parquet gives the values that were written") {
  const std::vector<json> wanted = rows_of("encodings.jsonl");
  for (const std::string name : {"encodings-1.parquet", "encodings-2.parquet"}) {
    CAPTURE(name);
    const Read rows = read(file(name), {.field = ""});
    REQUIRE(rows.error == "");
    REQUIRE(rows.texts.size() == wanted.size());
    std::size_t compared = 0;
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      const json row = json::parse(rows.texts[i]);
      for (const auto& [column, value] : row.items()) {
        CAPTURE(i, column);
        CHECK(value == wanted[i].at(column.substr(0, column.find('-'))));
        ++compared;
      }
    }
    CHECK(compared == 12 * 6 * 28);
    std::vector<std::string> texts;
    for (const json& row : wanted)
      if (row["text"].is_string()) texts.push_back(row["text"]);
    for (const std::string codec : {"none", "snappy", "gzip", "brotli", "zstd", "lz4"})
      for (const std::string encoding : {"dictionary", "plain", "delta_length_byte_array", "delta_byte_array"}) {
        CAPTURE(encoding, codec);
        const Read found = read(file(name), {.field = "text-" + encoding + "-" + codec, .missing = "skip"});
        CHECK(found.error == "");
        CHECK(found.texts == texts);
        CHECK(found.left_out == 1);
      }
  }
}

TEST_CASE("a row without a text is named by its row group, or left out and counted") {
  const Read stop = read(file("nulls.parquet"));
  CHECK(stop.status == ENG_INVALID);
  CHECK_THAT(stop.error,
             Contains("row group 2 of 3, row 3 of it (row 18 of the file): \"text\" is null. With [data] missing"));
  CHECK(stop.texts.size() == 17);
  const Read skip = read(file("nulls.parquet"), {.missing = "skip"});
  CHECK(skip.error == "");
  CHECK(skip.left_out == 2);
  CHECK(skip.texts.size() == 38);
}

TEST_CASE("a column that is not there or no text is refused with those that are") {
  const Read none = read(file("texts-none.parquet"), {.field = "body"});
  CHECK(none.status == ENG_INVALID);
  CHECK_THAT(none.error, Contains("no column \"body\"; there are \"id\", \"text\", \"score\": set [data] field"));
  CHECK_THAT(read(file("texts-none.parquet"), {.field = "id"}).error, Contains("column \"id\" is int64, not text"));
  CHECK_THAT(read(file("texts-none.parquet"), {.field = "text.a"}).error,
             Contains("\"text\" is string, and has no field \"a\""));
  CHECK_THAT(read(file("nested.parquet"), {.field = "data"}).error, Contains("column \"data\" is struct<"));
  CHECK_THAT(read(file("nested.parquet"), {.field = "data.body"}).error, Contains("has no field \"body\""));
  CHECK_THAT(read(file("chats.parquet")).error, Contains("no column \"text\"") && Contains("plugin = \"chat\""));
  CHECK_THAT(read(file("pairs.parquet")).error, Contains("no column \"text\"") && Contains("plugin = \"pairs\""));
  CHECK_THAT(read(file("chats.parquet"), {.field = "messages"}).error,
             Contains("not text") && Contains("plugin = \"chat\""));
}

TEST_CASE("an interrupted reading goes on at each row group and record batch") {
  for (const std::string& name : goldens("")) {
    if (name.ends_with("nan.parquet") || name.ends_with(".jsonl") || name.ends_with(".txt")) continue;
    CAPTURE(name);
    const Read whole = read(file(name), {.field = "", .missing = "skip"});
    REQUIRE(whole.error == "");
    if (name.starts_with("texts")) CHECK(whole.parts.size() == 2);  // of three, the first one needs no word
    for (std::size_t k = 0; k < whole.parts.size(); ++k) {
      const auto [part, before] = whole.parts[k];
      CHECK(part == k + 1);
      const Read rest = read(file(name), {.field = "", .missing = "skip", .first_part = part});
      CHECK(rest.error == "");
      CHECK(rest.texts == std::vector(whole.texts.begin() + static_cast<std::ptrdiff_t>(before), whole.texts.end()));
    }
  }
  // Rows are counted from the beginning of the file, and a rest may have no text at all.
  const Read nulls = read(file("nulls.parquet"), {.first_part = 1});
  CHECK_THAT(nulls.error, Contains("row group 2 of 3, row 3 of it (row 18 of the file): \"text\" is null"));
}

TEST_CASE("a source that stops or fails is obeyed, and its own error stays") {
  for (const std::string name : {"texts-none.parquet", "texts-stream-zstd.arrow", "texts-feather.feather"}) {
    CAPTURE(name);
    const Read enough = read(file(name), {.most = 20});
    CHECK(enough.status == ENG_UNAVAILABLE);
    CHECK(enough.error == "enough");
    CHECK(enough.texts.size() == 20);
    const Read gone = read(file(name), {.breaks = 600});
    CHECK(gone.status == ENG_UNAVAILABLE);
    CHECK(gone.error == "the disk is gone");
  }
}

// Every beginning of a small file is refused, with one exception: what follows the mark that ends a stream says
// nothing.
TEST_CASE("a file that is cut short is refused") {
  for (const std::string name :
       {"nulls.parquet", "texts-gzip.parquet", "texts-file-view.arrow", "texts-stream-plain.arrow"}) {
    CAPTURE(name);
    const std::string whole = file(name);
    const std::string format = name.ends_with(".parquet") ? "parquet" : "arrow";
    for (std::size_t size = 0; size < whole.size(); size += size < 600 ? 7 : 61) {
      CAPTURE(size);
      const Read found = read(format, whole.substr(0, size), {.missing = "skip"});
      CHECK(found.status != ENG_OK);
      CHECK_FALSE(found.error.empty());
      CHECK(found.error.size() < 700);
    }
  }
  const std::string stream = file("texts-stream-plain.arrow");  // without the mark alone, all batches are there
  const Read cut = read(stream.substr(0, stream.size() - 8));
  CHECK(cut.status == ENG_DATA_LOSS);
  CHECK_THAT(cut.error, Contains("ends without the mark that ends a stream of Arrow, after 40 rows"));
}

namespace {

// Bytes at random places are changed: the file is read or refused, and nothing else happens.
void damage(const std::vector<std::string>& files, int rounds) {
  std::mt19937 random(7);
  std::size_t refused = 0, tried = 0;
  for (const std::string& name : files) {
    const std::string whole = file(name);
    const std::string format = name.ends_with(".parquet") ? "parquet" : "arrow";
    for (int round = 0; round < rounds; ++round) {
      std::string bytes = whole;
      for (unsigned k = random() % 3 + 1; k > 0; --k) {
        // Half of them in the last or the first 600 bytes, which say where the rest is.
        const std::size_t part = std::min<std::size_t>(bytes.size(), 600);
        const std::size_t at = round % 4 == 0   ? bytes.size() - 1 - random() % part
                               : round % 4 == 1 ? random() % part
                                                : random() % bytes.size();
        const auto any = static_cast<char>(random()), bit = static_cast<char>(1u << random() % 8);
        bytes[at] = round % 3 == 0 ? '\xff' : round % 3 == 1 ? static_cast<char>(bytes[at] ^ bit) : any;
      }
      for (const std::string field : {"text", ""}) {
        const Read found = read(format, bytes, {.field = field, .missing = "skip"});
        CAPTURE(name, round, field);
        CHECK((found.status == ENG_OK || !found.error.empty()));
        refused += found.status != ENG_OK;
        ++tried;
      }
    }
  }
  CHECK(tried == 2 * files.size() * static_cast<std::size_t>(rounds));
  CHECK(refused > tried / 4);
}

}  // namespace

TEST_CASE("damaged files are read or refused") {
  std::vector<std::string> files = goldens("");
  std::erase_if(files, [](const std::string& name) {
    return (!name.ends_with(".parquet") && !name.ends_with(".arrow") && !name.ends_with(".feather")) ||
           name.starts_with("encodings");
  });
  CHECK(files.size() > 25);
  damage(files, 60);
}

TEST_CASE("damaged files of every encoding and codec are read or refused", "[.slow]") {
  damage({"encodings-1.parquet", "encodings-2.parquet"}, 1000);
}

}  // namespace arrow_formats_test
