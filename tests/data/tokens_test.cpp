// SPDX-License-Identifier: Apache-2.0
// Files of tokens: nanoGPT's, llm.c's, Megatron's; what is wrong with them is said with its place.
#include <catch2/catch.hpp>
#include <cstring>
#include <filesystem>

#include "harness.hpp"

using namespace data_test;
using Catch::Contains;
namespace fs = std::filesystem;

namespace {

template <class T>
std::string bytes(const std::vector<T>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

const std::vector<int32_t> ids = {5, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 899, 7, 9, 3, 2, 3};

template <class T>
std::string as() {
  return bytes(std::vector<T>(ids.begin(), ids.end()));
}

std::string llmc(int32_t magic, int32_t version, int32_t count, const std::string& tokens) {
  std::vector<int32_t> header(256);
  header[0] = magic;
  header[1] = version;
  header[2] = count;
  return bytes(header) + tokens;
}

struct Index {
  uint64_t version = 1;
  uint8_t code = 8;
  std::vector<int32_t> lengths = {4, 0, 13};
  std::vector<int64_t> pointers = {0, 8, 8};
  std::vector<int64_t> documents = {0, 1, 3};
  uint64_t sequences = 3, bounds = 3;
  std::string text() const {
    return std::string("MMIDIDX\0\0", 9) + bytes(std::vector{version}) + static_cast<char>(code) +
           bytes(std::vector{sequences, bounds}) + bytes(lengths) + bytes(pointers) + bytes(documents);
  }
};

struct Tokens {
  Folder folder;
  Settings settings(const std::string& path, int64_t length = static_cast<int64_t>(ids.size()) - 1) const {
    return {.paths = {path}, .numbers = {{"validation", 0}}, .length = length, .vocabulary = 900, .source = "tokens"};
  }
  void accept(const std::string& path) {
    CAPTURE(path);
    Source source(folder, settings(path));
    REQUIRE(source.error() == "");
    CHECK(source.tokens() == ids);
    CHECK(source.info().files == 1);
    CHECK(source.info().tokens == ids.size());
    CHECK(source.info().vocabulary == 900);
  }
  void refuse(const std::string& path, const std::vector<std::string>& words, int64_t vocabulary = 900) {
    CAPTURE(path);
    Settings given = settings(path);
    given.vocabulary = vocabulary;
    Source source(folder, given);
    CHECK((source.status() == ENG_DATA_LOSS || source.status() == ENG_INVALID || source.status() == ENG_UNSUPPORTED));
    for (const std::string& word : words) CHECK_THAT(source.error(), Contains(word));
  }
  void refuse(const Index& index, const std::vector<std::string>& words) {
    folder.write("m.bin", as<uint16_t>());
    folder.write("m.idx", index.text());
    refuse("m.bin", words);
  }
};

}  // namespace

TEST_CASE_METHOD(Tokens, "every format gives its tokens") {
  folder.write("train.bin", as<uint16_t>());
  accept("train.bin");
  folder.write("gpt2.bin", llmc(20240520, 1, 17, as<uint16_t>()));
  accept("gpt2.bin");
  folder.write("llama3.bin", llmc(20240801, 7, 17, as<uint32_t>()));
  accept("llama3.bin");
  folder.write("m.bin", as<uint16_t>());
  folder.write("m.idx", Index().text());
  accept("m.bin");
  accept("m.idx");
  accept("m.*");  // both name one
  Index wide;
  wide.code = 4;
  wide.pointers = {0, 16, 16};
  folder.write("w.bin", as<int32_t>());
  folder.write("w.idx", wide.text() + std::string(3, '\0'));  // with modes
  accept("w.bin");
  wide.code = 5;
  wide.pointers = {0, 32, 32};
  folder.write("w.bin", as<int64_t>());
  folder.write("w.idx", wide.text());
  accept("w.bin");
}

TEST_CASE_METHOD(Tokens, "files are one stream, whatever their widths") {
  folder.write("a.bin", as<uint16_t>());
  folder.write("b.bin", llmc(20240801, 7, 17, as<uint32_t>()));
  Source source(folder, settings("*.bin", 33));
  std::vector<int32_t> twice = ids;
  twice.insert(twice.end(), ids.begin(), ids.end());
  CHECK(source.tokens() == twice);
  CHECK(source.info().files == 2);
}

TEST_CASE_METHOD(Tokens, "an id that the model does not have is named with its place") {
  folder.write("train.bin", as<uint16_t>());
  refuse("train.bin", {"train.bin", "token 11", "byte 22", "is 899", "vocabulary is 899"}, 899);
  folder.write("l.bin", llmc(20240801, 7, 17, as<uint32_t>()));
  refuse("l.bin", {"token 11", "byte 1068", "is 899"}, 899);
  Index index;
  index.code = 3;
  std::string negative = as<int16_t>();
  negative[30] = negative[31] = '\xff';
  folder.write("m.bin", negative);
  folder.write("m.idx", index.text());
  refuse("m.bin", {"token 15", "byte 30", "is -1"});
  // Behind the first piece that is read, too.
  std::string large(3 << 20, '\0');
  large[(2 << 20) + 9] = '\x7f';
  folder.write("large.bin", large);
  refuse("large.bin", {"token 1048580", "byte 2097160", "is 32512"});
}

TEST_CASE_METHOD(Tokens, "of many files that are wrong, the first is told, whichever is read first") {
  std::string wrong = as<uint16_t>();
  wrong[0] = wrong[1] = '\x7f';
  for (int k = 10; k < 40; ++k) folder.write("part" + std::to_string(k) + ".bin", as<uint16_t>());
  folder.write("part21.bin", std::string(4 << 20, '\0') + wrong);  // the longest
  for (const char* name : {"part22.bin", "part23.bin", "part39.bin"}) folder.write(name, wrong);
  for (int trial = 0; trial < 20; ++trial) refuse("part*.bin", {"part21.bin", "token 2097152", "is 32639"});
}

TEST_CASE_METHOD(Tokens, "headers that are wrong") {
  folder.write("odd.bin", "abc");
  refuse("odd.bin", {"odd number of bytes"});
  folder.write("other.dat", as<uint16_t>());
  refuse("other.dat", {"is not a file of tokens", "[data] dtype"});
  folder.write("l.bin", llmc(20240520, 2, 17, as<uint16_t>()));
  refuse("l.bin", {"version 2", "version 1"});
  for (const int32_t count : {18, 16, -1, 0x7fffffff}) {
    folder.write("l.bin", llmc(20240520, 1, count, as<uint16_t>()));
    refuse("l.bin", {"says " + std::to_string(count), "room for 17"});
  }
  folder.write("l.bin", llmc(20240520, 1, 17, as<uint16_t>()).substr(0, 500));
  refuse("l.bin", {"room for 0"});
  folder.write("l.bin", llmc(20240522, 1, 17, as<uint16_t>()));
  refuse("l.bin", {"multiple-choice"});
}

TEST_CASE_METHOD(Tokens, "an index of Megatron's that is wrong") {
  Index index;
  index.lengths[0] = -4;
  refuse(index, {"sequence 0", "length of -4", "byte 34"});
  index = Index();
  index.pointers[2] = 6;
  refuse(index, {"sequence 2", "begins at byte 6", "ends at 8"});
  index = Index();
  index.pointers[1] = -8;
  refuse(index, {"sequence 1", "-8"});
  index = Index();
  index.lengths[2] = 14;
  refuse(index, {"sequence 2", "ends at byte 36", "has 34"});
  index = Index();
  index.lengths[2] = 12;
  refuse(index, {"accounts for 32 bytes", "has 34"});
  index = Index();
  index.lengths[2] = 0x7fffffff;
  refuse(index, {"sequence 2"});
  for (const uint64_t huge : {uint64_t{4}, uint64_t{1} << 40, ~uint64_t{0}, ~uint64_t{0} / 12}) {
    index = Index();
    index.sequences = huge;
    refuse(index, {"sequences", "do not hold"});
    index = Index();
    index.bounds = huge;
    refuse(index, {"document bounds", "do not hold"});
  }
  index = Index();
  index.version = 2;
  refuse(index, {"version 2"});
  for (const uint8_t code : {0, 6, 7, 9, 255}) {
    index = Index();
    index.code = code;
    refuse(index, {"type code is " + std::to_string(code)});
  }
  for (const std::vector<int64_t>& documents :
       {std::vector<int64_t>{1, 2, 3}, {0, 3, 1}, {0, 1, 2}, {0, 1, 4}, {0, -1, 3}}) {
    index = Index();
    index.documents = documents;
    refuse(index, {"document"});
  }
  const std::string good = Index().text();
  for (std::size_t size = 0; size < good.size(); ++size) {
    folder.write("m.idx", good.substr(0, size));
    refuse("m.idx", {"m.idx"});
  }
  fs::remove(folder.path() / "m.bin");
  folder.write("m.idx", good);
  Source missing(folder, settings("m.idx"));
  CHECK(missing.status() == ENG_DATA_LOSS);
  CHECK_THAT(missing.error(), Contains("m.bin"));
}

TEST_CASE_METHOD(Tokens, "a file of tokens that is cut short during the run") {
  std::string large;
  while (large.size() < 4u << 20) large += as<uint16_t>();
  folder.write("large.bin", large);
  Source source(folder, settings("large.bin", 1000));
  source.read(0, 0);
  fs::resize_file(folder.path() / "large.bin", 100);
  for (uint64_t position = 1; position < 50; ++position) CHECK(source.try_read(0, position) == ENG_DATA_LOSS);
  CHECK_THAT(source.error(), Contains("large.bin") && Contains("changed"));
}
