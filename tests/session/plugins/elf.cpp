// SPDX-License-Identifier: Apache-2.0
#include <elf.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <fstream>
#include <iterator>

#include "session/plugins/plugin_file.hpp"

using Catch::Matchers::Contains;

namespace {

std::string file(const std::string& name) {
  std::ifstream in(std::string(FIXTURES) + "/fixture_" + name + ".eng.so", std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

eng::ElfFile read(const std::string& text) {
  return eng::read_elf(text);
}

}  // namespace

TEST_CASE("the reader finds the description") {
  const eng::ElfFile elf = read(file("good"));
  REQUIRE(elf.problem == "");
  CHECK_THAT(elf.description, Catch::Matchers::StartsWith("draft = '") && Catch::Matchers::EndsWith("'counter'\n"));
}

TEST_CASE("a foreign file is refused") {
  CHECK(read("").problem == "not an ELF file");
  CHECK(read("#!/bin/sh\necho this is no library\n").problem == "not an ELF file");
  std::string good = file("good");
  Elf64_Ehdr head;
  std::memcpy(&head, good.data(), sizeof(head));
  const auto with = [&](auto change) {
    Elf64_Ehdr h = head;
    change(h);
    std::string text = good;
    std::memcpy(text.data(), &h, sizeof(h));
    return read(text).problem;
  };
  CHECK(with([](auto&) {}) == "");
  CHECK_THAT(with([](auto& h) { h.e_machine = EM_RISCV; }), Contains("built for ELF machine 243, this is"));
  CHECK_THAT(with([](auto& h) { h.e_type = ET_EXEC; }), Contains("not a shared object"));
  CHECK_THAT(with([](auto& h) { h.e_ident[EI_CLASS] = ELFCLASS32; }), Contains("not a 64-bit"));
  CHECK_THAT(with([](auto& h) { h.e_shoff = ~0ull; }), Contains("truncated"));
  CHECK_THAT(with([](auto& h) { h.e_shnum = 0xffff; }), Contains("malformed"));
  CHECK_THAT(with([](auto& h) { h.e_shstrndx = 0xfff0; }), Contains("no section names"));
}

TEST_CASE("every truncation is refused and none crashes") {
  const std::string good = file("good");
  for (size_t size = 0; size < good.size(); size += size < 256 ? 1 : 61) {
    INFO(size);
    CHECK(read(good.substr(0, size)).problem != "");
  }
}

TEST_CASE("damaged tables are refused or do not matter, and none crashes") {
  const std::string good = file("good");
  Elf64_Ehdr head;
  std::memcpy(&head, good.data(), sizeof(head));
  uint64_t state = 1;
  const auto next = [&] { return state = state * 6364136223846793005ull + 1442695040888963407ull; };
  size_t refused = 0;
  for (int round = 0; round < 4000; ++round) {
    std::string text = good;
    for (int k = 0; k < 3; ++k) {
      // Header and section table: the bytes that steer the reader.
      const uint64_t n = (next() >> 33) % (sizeof(head) + head.e_shnum * sizeof(Elf64_Shdr));
      const uint64_t where = n < sizeof(head) ? n : head.e_shoff + n - sizeof(head);
      text[where] = static_cast<char>(next() >> 40);
    }
    refused += !read(text).problem.empty();
  }
  CHECK(refused > 200);  // most bytes of the section table do not matter to the reader
  CHECK(refused < 3800);
}
