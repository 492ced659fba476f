// SPDX-License-Identifier: Apache-2.0
// eng.tier/1: memory that keeps what it is given.
#include <sys/mman.h>
#include <unistd.h>

#include <thread>

#include "session/planning/offload.hpp"
#include "tools/engine/plugin_test/kinds.hpp"

namespace eng::plugin_test {
namespace {

class OwnArena {
 public:
  OwnArena(Tier& tier, uint64_t bytes) : tier_(tier), bytes_(bytes), at_(tier.alloc(bytes)) {}
  ~OwnArena() { tier_.free(at_, bytes_); }
  OwnArena(const OwnArena&) = delete;
  OwnArena& operator=(const OwnArena&) = delete;
  void* at() const { return at_; }

 private:
  Tier& tier_;
  uint64_t bytes_;
  void* at_;
};

std::string check_memory(Tier& tier, Random& random) {
  for (const uint64_t bytes : {uint64_t{4096}, uint64_t{1} << 20, uint64_t{12345} * 4096}) {
    const OwnArena one(tier, bytes), two(tier, bytes);
    auto* a = static_cast<uint8_t*>(one.at());
    if (reinterpret_cast<uintptr_t>(a) % 4096) throw Broken("its memory is not aligned to 4,096 bytes");
    std::vector<unsigned char> pages((bytes + 4095) / 4096);
    if (::mincore(a, bytes, pages.data()) == 0 &&
        std::any_of(pages.begin(), pages.end(), [](unsigned char p) { return !(p & 1); }))
      throw Broken(fmt::format("an arena of {} bytes is not resident: touch every page", bytes));
    if (std::any_of(a, a + bytes, [](uint8_t b) { return b != 0; })) throw Broken("its memory is not zero at first");
    std::memset(two.at(), 0xFF, bytes);
    for (int k = 0; k < 100; ++k) a[random() % bytes] = 1;
    const auto* b = static_cast<const uint8_t*>(two.at());
    if (std::any_of(b, b + bytes, [](uint8_t x) { return x != 0xFF; })) throw Broken("two arenas share bytes");
  }
  return "zero, aligned, resident, apart";
}

std::string check_storage(Tier& tier, Random& random) {
  constexpr uint64_t bytes = uint64_t{3} << 20;
  const OwnArena arena(tier, bytes);
  std::vector<uint8_t> truth(bytes, 0), some(bytes);
  Bytes memory(bytes);
  for (int k = 0; k < 120; ++k) {
    const bool aligned = chance(random, 0.6);
    uint64_t n = 1 + random() % (chance(random, 0.2) ? bytes / 2 : 9000), first = random() % (bytes - n + 1);
    if (aligned) first = first / 4096 * 4096;
    const uint64_t at = aligned ? 0 : random() % 64;
    n = std::min(n, bytes - std::max(first, at));
    if (chance(random, 0.5)) {
      for (uint64_t b = 0; b < n; ++b) memory.data()[at + b] = truth[first + b] = static_cast<uint8_t>(random());
      tier.write(arena.at(), first, memory.data() + at, n, "a value");
    } else {
      std::memset(memory.data(), 0xA5, bytes);
      tier.read(arena.at(), first, memory.data() + at, n, "a value");
      if (std::memcmp(memory.data() + at, truth.data() + first, n) != 0)
        throw Broken(fmt::format(
            "{} bytes from byte {} on are not those that were written (what was never written is 0)", n, first));
      const auto beside = [&](uint64_t p) { return memory.data()[p] != 0xA5; };
      if ((at && beside(at - 1)) || (at + n < bytes && beside(at + n)))
        throw Broken(fmt::format("a read of {} bytes from byte {} on writes beside its memory", n, first));
    }
    if (const std::string where = memory.touched(); !where.empty())
      throw Broken("it wrote " + where + " of the memory");
  }
  return "120 reads and writes of any length and alignment";
}

// One read and one write may be at work at the same time, even in one page.
std::string check_both(Tier& tier) {
  constexpr uint64_t bytes = uint64_t{1} << 20, half = 4096 * 20 + 100;
  const OwnArena arena(tier, bytes);
  Bytes low(half, 1), high(half, 0), back(half, 0);
  tier.write(arena.at(), 0, low.data(), half, "a value");
  std::string wrong;
  std::thread writer([&] {
    try {
      for (uint8_t k = 1; k <= 40; ++k) {
        std::memset(high.data(), k, half);
        tier.write(arena.at(), half, high.data(), half, "a value");
      }
    } catch (const std::exception& e) {
      wrong = e.what();
    }
  });
  std::string read;
  try {
    for (int k = 0; k < 40; ++k) {
      tier.read(arena.at(), 0, back.data(), half, "a value");
      if (!(back == low)) read = "bytes that nobody writes change while others of the same page are written";
    }
  } catch (const std::exception& e) {
    read = e.what();
  }
  writer.join();
  if (!wrong.empty() || !read.empty()) throw Broken(wrong + read);
  tier.read(arena.at(), half, back.data(), half, "a value");
  if (!(back == high)) throw Broken("what was written beside a read is lost");
  return "one reader and one writer";
}

}  // namespace

void test_tier(const Subject& s, Sheet& sheet) {
  std::unique_ptr<Tier> tier;
  eng_tier_info info{};
  Section section;
  const bool made = sheet.check("describe, create", [&] {
    wake(s);
    section = s.section();
    const auto table = s.table<eng_tier>();
    const Watched options(section);
    eng_tier_info again{};
    info.struct_size = again.struct_size = sizeof info;
    Sink sink;
    check_made(table.describe(options.get(), &info, sink.get()), sink, options.misuse());
    check_made(table.describe(options.get(), &again, sink.get()), sink, options.misuse());
    if (std::memcmp(&info, &again, sizeof info) != 0) throw Broken("describe gives two answers for the same options");
    info = describe_tier(s.registry, s.one.name, section);
    for (uint64_t bytes : {uint64_t{0}, uint64_t{1} << 20, uint64_t{1} << 40})
      tier_host_bytes(s.registry, s.one.name, section, bytes);
    void* self = nullptr;
    check_made(table.create(options.get(), 0, &self, sink.get()), sink, options.misuse());
    table.destroy(self);
    tier =
        std::make_unique<Tier>(s.registry, Offload::Tier{s.one.name, !(info.flags & ENG_TIER_HOST_MEMORY)}, section, 0);
    return info.flags & ENG_TIER_HOST_MEMORY ? "memory of the host" : "storage";
  });
  if (!made) return;
  Random random = s.random("tier");
  if (info.flags & ENG_TIER_HOST_MEMORY) {
    sheet.check("arenas", [&] { return check_memory(*tier, random); });
  } else {
    sheet.check("reads give what was written", [&] { return check_storage(*tier, random); });
    sheet.check("a read beside a write", [&] { return check_both(*tier); });
  }
}

}  // namespace eng::plugin_test
