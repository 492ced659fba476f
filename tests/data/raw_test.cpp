// SPDX-License-Identifier: Apache-2.0
// Files of ids without a header: the width of the ids is stated or proved, or the file is refused. NumPy's, and NeMo's.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <filesystem>

#include "harness.hpp"

using namespace data_test;
using namespace std::literals;
using Catch::Contains;

namespace {

template <class T, class From>
std::string as(const std::vector<From>& values) {
  const std::vector<T> cast(values.begin(), values.end());
  return std::string(reinterpret_cast<const char*>(cast.data()), cast.size() * sizeof(T));
}

// Ids below `limit`, of no pattern.
std::vector<int32_t> some(std::size_t n, uint32_t limit, uint32_t seed = 1) {
  std::vector<int32_t> out;
  for (uint32_t x = seed; out.size() < n; x = x * 1664525u + 1013904223u)
    out.push_back(static_cast<int32_t>((x >> 8) % limit));
  return out;
}

std::string numpy(const std::string& descr, const std::string& shape, const std::string& data, char version = 1) {
  std::string header = "{'descr': " + descr + ", 'fortran_order': False, 'shape': " + shape + ", }";
  header += std::string(63 - (header.size() + (version == 1 ? 10 : 12)) % 64, ' ') + "\n";
  const auto size = static_cast<uint32_t>(header.size());
  const std::string length = version == 1 ? as<uint16_t>(std::vector{size}) : as<uint32_t>(std::vector{size});
  return "\x93NUMPY" + std::string(1, version) + '\0' + length + header + data;
}

std::string nemo(int32_t version, std::size_t count, int32_t width, const std::string& data) {
  std::vector<int32_t> header(256);
  header[0] = 278895051, header[1] = version, header[2] = static_cast<int32_t>(count), header[3] = width;
  return as<int32_t>(header) + data;
}

struct Raw {
  Folder folder;

  Settings settings(const std::string& name, int64_t vocabulary, const std::string& dtype) {
    return {.paths = {name},
            .strings = {{"dtype", dtype}},
            .numbers = {{"validation", 0}},
            .length = 1,
            .vocabulary = vocabulary,
            .source = "tokens"};
  }
  void accept(const std::string& bytes, const std::vector<int32_t>& ids, int64_t vocabulary,
              const std::string& name = "a.bin", const std::string& dtype = "auto") {
    CAPTURE(name, vocabulary, dtype);
    folder.write(name, bytes);
    Settings given = settings(name, vocabulary, dtype);
    given.length = static_cast<int64_t>(ids.size()) - 1;
    Source source(folder, given);
    REQUIRE(source.error() == "");
    CHECK(source.tokens() == ids);
    std::filesystem::remove(folder.path() / name);
  }
  void refuse(const std::string& bytes, const std::vector<std::string>& words, int64_t vocabulary,
              const std::string& name = "a.bin", const std::string& dtype = "auto") {
    CAPTURE(name, vocabulary, dtype);
    folder.write(name, bytes);
    Source source(folder, settings(name, vocabulary, dtype));
    CHECK(source.status() != ENG_OK);
    CHECK_THAT(source.error(), Contains((folder.path() / name).string()));
    for (const std::string& word : words) CHECK_THAT(source.error(), Contains(word));
    std::filesystem::remove(folder.path() / name);
  }
};

}  // namespace

TEST_CASE_METHOD(Raw, "ids of every width are read as what they are") {
  for (const std::size_t n : {12u, 5000u, 700000u})
    for (const uint32_t limit : {4u, 65u, 50257u, 65536u}) {
      const std::vector<int32_t> ids = some(n, limit);
      accept(as<uint16_t>(ids), ids, limit);
      accept(as<uint32_t>(ids), ids, limit);
      accept(as<int64_t>(ids), ids, limit);
      accept(as<uint32_t>(ids), ids, 128256, "A.BIN");  // a model of a larger vocabulary
      accept(as<uint64_t>(ids), ids, 128256);
      if (n > 5000) break;
    }
  for (const uint32_t limit : {100000u, 128256u, 200000u, 256000u}) {
    const std::vector<int32_t> ids = some(3000, limit);
    accept(as<uint32_t>(ids), ids, limit);
    accept(as<int64_t>(ids), ids, limit);
  }
  // Zeros, which fill up rows, say nothing.
  std::vector<int32_t> padded = some(40, 50257);
  for (std::size_t i = 0; i < 20; ++i) padded.insert(padded.begin() + long(2 * i), 50, 0);
  accept(as<uint16_t>(padded), padded, 50257);
  accept(as<uint32_t>(padded), padded, 50257);
  logged();
  accept(as<uint32_t>(some(100, 300)), some(100, 300), 300, "told.bin");
  CHECK_THAT(logged(), Contains("told.bin is read as ids of type uint32") && Contains("[data] dtype"));
}

TEST_CASE_METHOD(Raw, "an id beyond the vocabulary is found at the width that the file has") {
  std::vector<int32_t> ids = some(5000, 50257);
  ids[4321] = 100000;  // 1 and 34464, as two ids of 16 bits
  refuse(as<uint32_t>(ids), {"token 4321, at byte 17284, is 100000", "read as uint32", "[data] dtype"}, 50257);
  refuse(as<int64_t>(ids), {"token 4321, at byte 34568, is 100000", "read as uint64"}, 50257);
  refuse(as<uint32_t>(some(5000, 128256)), {"out of range: the model's vocabulary is 50257", "read as uint32"}, 50257);
  refuse(as<uint16_t>(some(5000, 60000)), {"out of range", "read as uint16", "[data] dtype"}, 50257);
  refuse(as<uint8_t>(some(5000, 256)), {"out of range", "read as uint16"}, 256);
  refuse(as<float>(some(5000, 256)), {"zeros in its even 16-bit numbers", "float32"}, 50257);
}

TEST_CASE_METHOD(Raw, "a type that is stated is taken, for a file of any name") {
  const std::vector<int32_t> ids = some(1000, 250);
  for (const char* name : {"a.bin", "a.dat", "a", "ids.npy"}) {
    accept(as<uint8_t>(ids), ids, 256, name, "uint8");
    accept(as<uint16_t>(ids), ids, 256, name, "uint16");
    accept(as<int16_t>(ids), ids, 256, name, "int16");
    accept(as<uint32_t>(ids), ids, 256, name, "uint32");
    accept(as<int32_t>(ids), ids, 256, name, "int32");
    accept(as<uint64_t>(ids), ids, 256, name, "uint64");
    accept(as<int64_t>(ids), ids, 256, name, "int64");
  }
  std::vector<int32_t> flags;  // zeros between others, and meant so
  for (const int32_t id : ids) flags.insert(flags.end(), {id, 0});
  accept(as<uint16_t>(flags), flags, 256, "a.bin", "uint16");
  accept(std::string(2000, '\0'), std::vector<int32_t>(1000), 256, "a.bin", "uint16");
  refuse(as<uint16_t>(some(999, 250)), {"is no multiple of the 4 bytes of each uint32"}, 256, "a.bin", "uint32");
}

TEST_CASE_METHOD(Raw, "a file of ids of which nothing is known is refused") {
  const std::vector<int32_t> ids = some(5000, 50257);
  const std::string wide = as<uint32_t>(ids);
  refuse(wide.substr(0, wide.size() - 2), {"no multiple of 4", "dtype = \"uint16\""}, 50257);
  refuse(wide.substr(0, wide.size() - 1), {"odd number of bytes"}, 50257);
  refuse("header" + wide, {"zeros in its even 16-bit numbers"}, 50257);
  refuse(wide.substr(4), {"no multiple of the 8 bytes of each int64"}, 50257, "a.bin", "int64");
  std::string swapped = wide;
  for (std::size_t i = 0; i < swapped.size(); i += 4)
    std::reverse(swapped.begin() + long(i), swapped.begin() + long(i + 4));
  refuse(swapped, {"big-endian", "numpy.fromfile"}, 50257);
  refuse(as<uint16_t>(ids), {"cannot hold those of a vocabulary of 128256", "dtype"}, 128256);
  accept(as<uint16_t>(ids), ids, 128256, "a.bin", "uint16");
  refuse(as<uint16_t>(ids), {"is not a file of tokens", "[data] dtype"}, 50257, "a.dat");
  refuse(std::string(4096, '\0'), {"each of its 2048 ids is 0"}, 50257);
  refuse(as<uint16_t>(std::vector<int32_t>(100, 77)), {"each of its 100 ids is 77"}, 50257);
}

TEST_CASE_METHOD(Raw, "what is no file of ids is named") {
  const std::string text = "Some text that has the name of a file of tokens. It is quite long, for a text.";
  refuse(text, {"is text, not a file of tokens: set [data] plugin = \"text\""}, 50257);
  refuse("Text with \xc3\xa9 and \xe4\xb8\xad\xe6\x96\x87, cut in a character \xe4\xb8", {"is text"}, 50257);
  refuse("{\"text\": \"one\"}\n{\"text\": \"two\"}\n", {"is JSON Lines, not a file of tokens", "plugin = \"text\""},
         50257);
  refuse("<!doctype html><html></html>", {"is a web page (HTML)"}, 50257);
  refuse("version https://git-lfs.github.com/spec/v1\noid sha256:4d\nsize 9\n",
         {"is a Git LFS pointer", "git lfs pull"}, 50257);
  refuse(gzip(as<uint16_t>(some(50, 9))), {"is compressed by gzip", "gzip -dc < "}, 50257, "a.bin.gz");
  refuse("\x28\xb5\x2f\xfd\x24\x01"s, {"is compressed by zstd", "zstd -dc < "}, 50257);
  refuse("PK\3\4\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x10\0\0\0archive/data.pkl"s, {"is a file of PyTorch"},
         50257, "pytorch_model.bin");
  refuse("\x80\4\x95\x0b\0\0\0\0\0\0\0]\x94."s, {"pickled Python objects"}, 50257);
  refuse("PAR1\x15\4\x15"s, {"a Parquet file"}, 50257, "train.parquet");
  refuse("TNTIDX\0\0\1\0"s, {"fairseq"}, 50257, "a.idx");
  // These bytes can also be ids, if that is said.
  accept("\x80\4\x95\x0b\0\0\0\0\0\0"s, {1152, 2965, 0, 0, 0}, 50257, "a.bin", "uint16");
}

TEST_CASE_METHOD(Raw, "arrays of NumPy") {
  const std::vector<int32_t> ids = some(1000, 120);
  for (const char* name : {"a.npy", "a.bin", "a"}) {
    accept(numpy("'|u1'", "(1000,)", as<uint8_t>(ids)), ids, 256, name);
    accept(numpy("'|i1'", "(1000,)", as<int8_t>(ids)), ids, 256, name);
    accept(numpy("'<u2'", "(1000,)", as<uint16_t>(ids)), ids, 256, name);
    accept(numpy("'<i4'", "(1000,)", as<int32_t>(ids), 2), ids, 256, name);
    accept(numpy("'<i8'", "(1000,)", as<int64_t>(ids), 3), ids, 256, name);
    accept(numpy("'<u8'", "(1000,)", as<int64_t>(ids)), ids, 256, name, "int64");
  }
  refuse(numpy("'<i4'", "(1000,)", as<int32_t>(ids)), {"as its header says", "remove dtype"}, 256, "a.npy", "uint16");
  refuse(numpy("'<i4'", "(1000,)", as<int32_t>(some(1000, 300))), {"out of range: the model's vocabulary is 256"}, 256,
         "a.npy");
  refuse(numpy("'<f4'", "(1000,)", as<float>(ids)), {"of type '<f4'", "astype"}, 256, "a.npy");
  refuse(numpy("'>i4'", "(1000,)", as<int32_t>(ids)), {"of type '>i4'", "astype"}, 256, "a.npy");
  refuse(numpy("'|O'", "(1000,)", as<int32_t>(ids)), {"of type '|O'", "astype"}, 256, "a.npy");
  refuse(numpy("[('a', '<i4')]", "(1000,)", as<int32_t>(ids)), {"a NumPy array of type"}, 256, "a.npy");
  refuse(numpy("'<i4'", "(10, 100)", as<int32_t>(ids)), {"of 2 dimensions", ".reshape(-1)"}, 256, "a.npy");
  refuse(numpy("'<i4'", "()", as<int32_t>(ids)), {"of 0 dimensions"}, 256, "a.npy");
  refuse(numpy("'<i4'", "(1001,)", as<int32_t>(ids)), {"says 1001 ids, but the file has room for 1000"}, 256, "a.npy");
  const std::string good = numpy("'<u2'", "(1000,)", as<uint16_t>(ids));
  for (const std::size_t size : {6u, 9u, 10u, 40u, 127u, 128u, 1000u}) refuse(good.substr(0, size), {}, 256, "a.npy");
}

TEST_CASE_METHOD(Raw, "NeMo's files say how wide their ids are") {
  const std::vector<int32_t> narrow = some(1000, 50257), wide = some(1000, 128256);
  accept(nemo(1, 1000, 2, as<uint16_t>(narrow)), narrow, 50257);
  accept(nemo(1, 1000, 4, as<uint32_t>(wide)), wide, 128256);
  refuse(nemo(1, 1000, 4, as<uint32_t>(wide)), {"out of range"}, 50257);
  refuse(nemo(2, 1000, 4, as<uint32_t>(wide)), {"NeMo's version 2", "version 1"}, 128256);
  refuse(nemo(1, 1000, 3, as<uint32_t>(wide)), {"3 bytes per token"}, 128256);
  refuse(nemo(1, 999, 4, as<uint32_t>(wide)), {"says 999 tokens, but the file has room for 1000"}, 128256);
  refuse(nemo(1, 1000, 4, as<uint32_t>(wide)), {"holds ids of 4 bytes, as its header says"}, 128256, "a.bin", "uint16");
}
