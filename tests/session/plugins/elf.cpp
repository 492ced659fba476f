// SPDX-License-Identifier: Apache-2.0
#include <elf.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <fstream>
#include <iterator>

#include "session/plugins/elf_audit.hpp"

using Catch::Matchers::Contains;

namespace {

std::string file(const std::string& name) {
  std::ifstream in(std::string(FIXTURES) + "/fixture_" + name + ".eng.so", std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

eng::ElfFile read(const std::string& text) {
  return eng::read_elf(text);
}

eng::ElfAudit audit(const std::string& text) {
  return eng::audit_elf([&](void* out, uint64_t offset, uint64_t size) {
    const uint64_t n = std::min<uint64_t>(size, text.size() - std::min<uint64_t>(offset, text.size()));
    if (n) std::memcpy(out, text.data() + offset, n);
    return n;
  });
}

// A copy with every `from` replaced by a text of its length.
std::string with(std::string text, const std::string& from, const std::string& to) {
  REQUIRE(from.size() == to.size());
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) text.replace(at, to.size(), to);
  return text;
}

}  // namespace

TEST_CASE("the audit tells libraries, versions, segments and constructors") {
  const std::string good = file("good");
  const eng::ElfAudit one = audit(good);
  CHECK(one.problem == "");
  CHECK(std::count(one.needed.begin(), one.needed.end(), "libc.so.6") == 1);
  CHECK(one.too_new.empty());
  CHECK(one.segments.empty());
  CHECK(one.constructors >= 1);
  CHECK(audit(file("foreign")).constructors > one.constructors);
  const auto omp = audit(with(good, "libc.so.6", "libomp.so")).needed;
  CHECK(std::count(omp.begin(), omp.end(), "libomp.so") == 1);
  const auto late = audit(with(good, "GLIBC_2.2.5", "GLIBC_2.999")).too_new;
  REQUIRE(late.size() == 1);
  CHECK_THAT(late[0], Contains("it needs GLIBC_2.999 of libc.so.6, this system has glibc 2."));
  // The segment that is loaded first becomes writable and executable.
  Elf64_Ehdr head;
  std::memcpy(&head, good.data(), sizeof(head));
  for (uint64_t k = 0; k < head.e_phnum; ++k) {
    std::string text = good;
    Elf64_Phdr segment;
    char* const at = text.data() + head.e_phoff + k * sizeof(segment);
    std::memcpy(&segment, at, sizeof(segment));
    segment.p_flags |= PF_W | PF_X;
    std::memcpy(at, &segment, sizeof(segment));
    CHECK(audit(text).segments.size() == (segment.p_type == PT_LOAD || segment.p_type == PT_GNU_STACK));
  }
  CHECK(audit("").problem == "not an ELF file");
  for (size_t size = 0; size < good.size(); size += 61) CHECK(audit(good.substr(0, size)).problem != "");
}

TEST_CASE("the reader finds the description") {
  const eng::ElfFile elf = read(file("good"));
  REQUIRE(elf.problem == "");
  CHECK_THAT(elf.description, Catch::Matchers::StartsWith("[plugin]\n") && Catch::Matchers::EndsWith("'counter'\n"));
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
    audit(text);
    refused += !read(text).problem.empty();
  }
  CHECK(refused > 200);  // most bytes of the section table do not matter to the reader
  CHECK(refused < 3800);
}
