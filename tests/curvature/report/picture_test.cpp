// SPDX-License-Identifier: Apache-2.0
// The pictures by cairo, where this build has it.
#include <catch2/catch.hpp>

#include <zlib.h>

#include <unistd.h>
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <regex>
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

struct Png {
  uint32_t width = 0, height = 0;
  std::string pixels;  // as filtered lines
};

// Checks the signature, each chunk's CRC, and that the pixels are there.
Png read_png(const std::string& bytes) {
  REQUIRE(bytes.substr(0, 8) == "\x89PNG\r\n\x1a\n");
  Png out;
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

const char* const names[] = {"phase", "umap", "response", "response_perplexity", "response_auc"};

// The contents of the streams of a PDF.
std::string streams(const std::string& pdf) {
  std::string out;
  for (size_t at = pdf.find("\nstream\n"); at != std::string::npos; at = pdf.find("\nstream\n", at + 1)) {
    const size_t begin = at + 8, end = pdf.find("endstream", begin);
    REQUIRE(end != std::string::npos);
    std::string plain(4'000'000, 0);
    uLongf size = plain.size();
    if (uncompress(reinterpret_cast<Bytef*>(plain.data()), &size, reinterpret_cast<const Bytef*>(pdf.data() + begin),
                   end - begin) == Z_OK)
      out += plain.substr(0, size);
  }
  return out;
}

// The texts of a PDF by cairo, each on a line: (text)Tj, or [(te)-1(xt)]TJ where letters are moved.
std::string text_of(const std::string& pdf) {
  std::string out;
  bool inside = false;
  const std::string all = streams(pdf);
  for (size_t k = 0; k < all.size(); ++k) {
    if (inside && all[k] == '\\')
      out += all[++k];
    else if (all[k] == '(' || all[k] == ')')
      inside = all[k] == '(';
    else if (inside)
      out += all[k];
    else if (all.compare(k, 2, "Tj") == 0 || all.compare(k, 2, "TJ") == 0)
      out += '\n';
  }
  return out;
}

}  // namespace

TEST_CASE("each picture is a PNG of a column's width at 305 pixels to the inch") {
  if (!std::filesystem::exists(library)) {
    WARN("this build has no cairo");
    return;
  }
  Results results = sample_results(3);
  const auto before = files_of(results, library);
  CHECK(before.note.empty());
  for (const std::string name : names) {
    INFO(name);
    const Png png = read_png(bytes_of(before, name + ".png"));
    CHECK(png.width == 1020);
    CHECK(png.height > 600);
    CHECK(png.height < 1100);
    bool seen[256] = {};
    for (const unsigned char c : png.pixels) seen[c] = true;
    CHECK(std::count(seen, seen + 256, true) > 50);  // not blank
    CHECK(file_of(results, name + ".png", library) == bytes_of(before, name + ".png"));
  }

  results.tensors[5].measures.magnitude *= 2;
  const auto moved = files_of(results, library);
  for (const std::string ending : {".png", ".pdf", ".svg"}) {
    CHECK(bytes_of(moved, "phase" + ending) != bytes_of(before, "phase" + ending));
    CHECK(bytes_of(moved, "umap" + ending) == bytes_of(before, "umap" + ending));
  }
  results.response_map.responses[3].perplexity_change.mean *= 2;
  CHECK(file_of(results, "response.pdf", library) != bytes_of(before, "response.pdf"));
  results.embedding.method = "pca";
  const auto pca = files_of(results, library);
  CHECK(bytes_of(pca, "umap.png").empty());
  CHECK(read_png(bytes_of(pca, "pca.png")).width == 1020);
}

TEST_CASE("each picture is a PDF of a column's width, with its axes as text") {
  if (!std::filesystem::exists(library)) return;
  const Results results = sample_results(3);
  const auto files = files_of(results, library);
  for (const std::string name : names) {
    INFO(name);
    const std::string pdf = bytes_of(files, name + ".pdf");
    CHECK(pdf.rfind("%PDF-1.", 0) == 0);
    CHECK(pdf.find("%%EOF") != std::string::npos);
    std::smatch box;
    REQUIRE(std::regex_search(pdf, box, std::regex("/MediaBox \\[ 0 0 ([0-9.]+) ([0-9.]+) \\]")));
    CHECK(std::stod(box[1]) == Approx(85 / 25.4 * 72).margin(0.01));  // 8.5 cm
    CHECK(std::stod(box[2]) < 85 / 25.4 * 72);
    CHECK(pdf.find("DejaVuSans") != std::string::npos);
    CHECK(pdf.find("CreationDate") == std::string::npos);
    CHECK(file_of(results, name + ".pdf", library) == pdf);
  }
  const auto has = [&](const char* name, const char* text) {
    INFO(text_of(bytes_of(files, name)));
    CHECK(text_of(bytes_of(files, name)).find(text) != std::string::npos);
  };
  has("phase.pdf", "log10 of mean |H| (H in nats)");
  has("phase.pdf", "sparsity of the units (share of |x| <= threshold)");
  has("umap.pdf", "UMAP 2");
  has("response.pdf", "change of perplexity");
  has("response.pdf", "spread of the noise, in ");
  has("response_auc.pdf", "AUC");
}

TEST_CASE("the letters of a picture do not depend on the fonts of the machine") {
  if (!std::filesystem::exists(library)) return;
  const Results results = sample_results(2);
  const auto before = files_of(results, library);
  setenv("FONTCONFIG_FILE", "/dev/null", 1);
  setenv("FONTCONFIG_PATH", "/dev/null", 1);
  for (const char* name : {"phase.png", "phase.pdf"}) CHECK(file_of(results, name, library) == bytes_of(before, name));
  unsetenv("FONTCONFIG_FILE"), unsetenv("FONTCONFIG_PATH");
}

TEST_CASE("without cairo PNG and PDF are left out, and the note says why") {
  const Results results = sample_results(2);
  const auto files = files_of(results, "/nowhere/cairo.curvature.so");
  CHECK(bytes_of(files, "phase.png").empty());
  CHECK(bytes_of(files, "phase.pdf").empty());
  CHECK(!bytes_of(files, "phase.svg").empty());
  CHECK(!bytes_of(files, "report.html").empty());
  CHECK(files.note ==
        "left out: phase.png, phase.pdf, umap.png, umap.pdf, response.png, response.pdf, response_perplexity.png, "
        "response_perplexity.pdf, response_auc.png, response_auc.pdf: this build of the engine has no cairo "
        "(/nowhere/cairo.curvature.so is missing); build it with libcairo2-dev and fonts-dejavu-core");

  const auto other = std::filesystem::temp_directory_path() / ("curvature-cairo-" + std::to_string(getpid()) + ".so");
  std::ofstream(other) << "no library";
  const auto broken = files_of(results, other.string());
  std::filesystem::remove(other);
  CHECK(bytes_of(broken, "phase.png").empty());
  CHECK(broken.note.find("left out: phase.png, ") == 0);
  CHECK(broken.note.find(": the cairo library cannot be loaded: ") != std::string::npos);
  CHECK(broken.note.find("apt-get install libcairo2") != std::string::npos);
}
