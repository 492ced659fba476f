// SPDX-License-Identifier: Apache-2.0
// The pictures by cairo, where this build has it.
#include <catch2/catch.hpp>

#include <zlib.h>

#include <unistd.h>
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "sample.hpp"

using namespace curvature;

namespace {

const std::string library = std::string(ENGINE_PLUGIN_DIR) + "/curvature/cairo.curvature.so";

uint32_t number(const std::string& bytes, size_t at) {
  REQUIRE(at + 4 <= bytes.size());
  uint32_t out = 0;
  for (size_t k = 0; k < 4; ++k) out = out << 8 | static_cast<unsigned char>(bytes[at + k]);
  return out;
}

struct Picture {
  uint32_t width = 0, height = 0;
  std::string pixels;  // as filtered lines
};

// Checks the signature, each chunk's CRC, and that the pixels are there.
Picture read_png(const std::string& bytes) {
  REQUIRE(bytes.substr(0, 8) == "\x89PNG\r\n\x1a\n");
  Picture out;
  std::string packed, last;
  for (size_t at = 8; at < bytes.size();) {
    const uint32_t size = number(bytes, at);
    last = bytes.substr(at + 4, 4);
    REQUIRE(at + 12 + size <= bytes.size());
    const auto* body = reinterpret_cast<const Bytef*>(bytes.data() + at + 4);
    REQUIRE(crc32(0, body, size + 4) == number(bytes, at + 8 + size));
    if (last == "IHDR") {
      out.width = number(bytes, at + 8), out.height = number(bytes, at + 12);
      REQUIRE(bytes.substr(at + 16, 2) == std::string("\x08\x02"));  // 8 bits; red, green, blue
    }
    if (last == "IDAT") packed += bytes.substr(at + 8, size);
    at += 12 + size;
  }
  REQUIRE(last == "IEND");
  uLongf size = static_cast<uLongf>(out.height) * (1 + 3 * static_cast<uLongf>(out.width));
  const uLongf expected = size;
  out.pixels.resize(size);
  REQUIRE(uncompress(reinterpret_cast<Bytef*>(out.pixels.data()), &size, reinterpret_cast<const Bytef*>(packed.data()),
                     packed.size()) == Z_OK);
  REQUIRE(size == expected);
  return out;
}

}  // namespace

TEST_CASE("phase.png and umap.png are pictures of the results") {
  if (!std::filesystem::exists(library)) {
    WARN("this build has no cairo");
    return;
  }
  Results results = sample_results(3);
  const auto before = files_of(results, library);
  CHECK(before.note.empty());
  for (const char* name : {"phase.png", "umap.png"}) {
    INFO(name);
    const Picture picture = read_png(bytes_of(before, name));
    CHECK(picture.width == 1120);
    CHECK(picture.height == 880);
    bool seen[256] = {};
    for (const unsigned char c : picture.pixels) seen[c] = true;
    CHECK(std::count(seen, seen + 256, true) > 50);  // not blank
  }
  CHECK(file_of(results, "phase.png", library) == bytes_of(before, "phase.png"));
  CHECK(file_of(results, "umap.png", library) == bytes_of(before, "umap.png"));

  results.tensors[5].measures.magnitude *= 2;
  const auto moved = files_of(results, library);
  CHECK(bytes_of(moved, "phase.png") != bytes_of(before, "phase.png"));
  CHECK(bytes_of(moved, "umap.png") == bytes_of(before, "umap.png"));
  results.embedding.points[0].x += 0.5;
  CHECK(file_of(results, "umap.png", library) != bytes_of(before, "umap.png"));

  results.embedding.method = "pca";
  const auto pca = files_of(results, library);
  CHECK(bytes_of(pca, "umap.png").empty());
  CHECK(read_png(bytes_of(pca, "pca.png")).width == 1120);
}

TEST_CASE("the letters of a picture do not depend on the fonts of the machine") {
  if (!std::filesystem::exists(library)) return;
  const Results results = sample_results(2);
  const auto before = files_of(results, library);
  setenv("FONTCONFIG_FILE", "/dev/null", 1);
  setenv("FONTCONFIG_PATH", "/dev/null", 1);
  CHECK(file_of(results, "phase.png", library) == bytes_of(before, "phase.png"));
  unsetenv("FONTCONFIG_FILE"), unsetenv("FONTCONFIG_PATH");
}

TEST_CASE("without cairo the pictures are left out, and the note says why") {
  const Results results = sample_results(2);
  const auto files = files_of(results, "/nowhere/cairo.curvature.so");
  CHECK(bytes_of(files, "phase.png").empty());
  CHECK(!bytes_of(files, "report.html").empty());
  CHECK(
      files.note ==
      "phase.png is left out: this build of the engine has no cairo (/nowhere/cairo.curvature.so is missing); build it "
      "with libcairo2-dev\numap.png is left out: this build of the engine has no cairo (/nowhere/cairo.curvature.so is "
      "missing); build it with libcairo2-dev");

  const auto other = std::filesystem::temp_directory_path() / ("curvature-cairo-" + std::to_string(getpid()) + ".so");
  std::ofstream(other) << "no library";
  const auto broken = files_of(results, other.string());
  std::filesystem::remove(other);
  CHECK(bytes_of(broken, "phase.png").empty());
  CHECK(broken.note.find("phase.png is left out: the cairo library cannot be loaded: ") == 0);
  CHECK(broken.note.find("apt-get install libcairo2") != std::string::npos);
}
