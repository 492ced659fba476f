// SPDX-License-Identifier: Apache-2.0
// Devices that are described: cards, sizes, and what a plan for them is.
#include "session/cards/card.hpp"

#include <catch2/catch.hpp>
#include <fstream>
#include <nlohmann/json.hpp>

#include "engine/ops_attention.h"
#include "session/cards/derived.hpp"
#include "session/planning/fit/search.hpp"
#include "session/planning/fits.hpp"
#include "session/report/context.hpp"
#include "tests/session/report/planned.hpp"

using Catch::Contains;

namespace cards_test {

using namespace planned;

namespace {

struct Folder {
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "cards-XXXXXX").string();
    REQUIRE(mkdtemp(name.data()));
    path = name;
  }
  ~Folder() { std::filesystem::remove_all(path); }
  std::filesystem::path path;
};

std::filesystem::path card_file(const std::string& text) {
  static const Folder folder;
  const std::filesystem::path file = folder.path / "mine.toml";
  std::ofstream(file) << text;
  return file;
}

const std::string mine =
    "plugin = 'reference'\nmemory = '2GiB'\nreserve = '100MiB'\ncommunicator = '50MiB'\nworkspace = '1MiB'\n"
    "peak_f32 = 1e12\nmemory_bandwidth = '100GB'\npcie = '10GB'\n";

eng::Setup planned_for(const std::string& device, uint32_t ranks = 1, Words more = {}) {
  more.push_back("device.describe=" + device);
  return eng::make_plan_only(config_of("tiny", "none", more), plugins(), {0, ranks, 0, 1});
}

}  // namespace

TEST_CASE("the cards of the engine can be read") {
  const auto names = eng::card_names();
  CHECK(names.size() >= 11);
  for (const std::string& name : names) {
    INFO(name);
    const eng::Card card = eng::find_card(name, ".", "x");
    CHECK(card.plugin == "cuda");
    CHECK(card.memory > uint64_t{20} << 30);
    CHECK(card.reserve + card.communicator + card.workspace < card.memory / 8);
    CHECK(card.peak_f32 > 1e13);
    CHECK(card.memory_bandwidth > 5e11);
    CHECK(card.pcie > 1e10);
    CHECK(card.assumes("reserve"));
    CHECK(card.assumes("communicator"));
    // Less than the number in the name says: the rest is the driver's.
    CHECK(card.memory < uint64_t{190} << 30);
    // A card that is here does not state its peaks in f16 and fp8: they are found as these are.
    eng_device_info here{};
    here.arch = card.arch, here.peak_bf16 = card.peak_bf16;
    CHECK(eng::derived_fp8("cuda", here) == Approx(card.peak_fp8).epsilon(0.02));
    if (card.peak_bf16 > 0) CHECK(eng::derived_f16("cuda", here) == card.peak_f16);
  }
  CHECK(eng::find_card("A800-80G", ".", "x").memory == eng::parse_bytes("79.14GiB"));
  CHECK(eng::find_card("24GiB", ".", "x").memory == uint64_t{24} << 30);
}

TEST_CASE("people's words for a card are its name") {
  for (const auto& [word, name] : std::vector<std::pair<std::string, std::string>>{{"4090", "rtx4090"},
                                                                                   {"3090", "rtx3090"},
                                                                                   {"5090", "rtx5090"},
                                                                                   {"RTX 4090", "rtx4090"},
                                                                                   {"GeForce RTX 3090", "rtx3090"},
                                                                                   {"h100", "h100-80g"},
                                                                                   {"H200", "h200"},
                                                                                   {"b200", "b200"},
                                                                                   {"a800", "a800-80g"},
                                                                                   {"v100", "v100-32g"},
                                                                                   {"l40s", "l40s"},
                                                                                   {"A100 80GB", "a100-80g"},
                                                                                   {"NVIDIA A100-40GB", "a100-40g"}})
    CHECK(eng::card_meant(word) == name);
  for (const char* other : {"a100", "24GiB", "4080", "1073741824", "./4090.toml", ""})
    CHECK(eng::card_meant(other) == other);
}

TEST_CASE("a card that is older than the kernels of its device is refused") {
  const auto refused = [](const std::string& device, const std::string& what) {
    INFO(device);
    const eng::Config config = config_of("tiny", "none", {"device.describe=" + device});
    for (const bool fit : {false, true}) try {
        fit ? void(eng::find_fit(config, plugins(), {})) : void(eng::make_plan_only(config, plugins()));
        FAIL("it was planned for");
      } catch (const eng::Error& e) {
        CHECK(e.exit() == eng::Exit::environment);
        CHECK_THAT(e.what(), Contains(what));
        CHECK_THAT(e.help(), Contains("a100-40g") && Contains("rtx3090") && !Contains("v100"));
      }
  };
  refused("v100-32g", "v100-32g has compute capability 7.0: the kernels of device cuda need compute capability 8.0");
  const std::string turing = "memory = '8GiB'\nreserve = 0\nworkspace = 1\nplugin = 'cuda'\narch = ";
  refused(card_file(turing + "79\n").string(), "has compute capability 7.9");
  CHECK_NOTHROW(planned_for(card_file(turing + "80\n").string()));
  CHECK_NOTHROW(planned_for(card_file(mine + "arch = 1\n").string()));  // another device has its own numbers
  for (const std::string& name : eng::card_names())
    if (name != "v100-32g") CHECK_NOTHROW(planned_for(name));
  // The plugin, which need not be installed, refuses the same.
  std::ifstream file(std::string(ENGINE_SOURCE_DIR) + "/plugins/cuda/device.cpp");
  const std::string source{std::istreambuf_iterator<char>(file), {}}, condition = "arch_of(device->properties) < ";
  REQUIRE(source.find(condition) != std::string::npos);
  CHECK(std::stoul(source.substr(source.find(condition) + condition.size())) == eng::cuda_least_arch);
}

// Each figure in a card's file stands below a comment that says where it is from, or is one of `assumed`.
TEST_CASE("every figure of a card has a source, or is said to be assumed") {
  for (const std::string& name : eng::card_names()) {
    const eng::Card card = eng::find_card(name, ".", "x");
    std::ifstream file(std::string(ENGINE_SOURCE_DIR) + "/session/cards/" + name + ".toml");
    REQUIRE(file);
    std::string comment;
    size_t figures = 0;
    bool ends = true;  // the comment: the next one begins anew
    for (std::string line; std::getline(file, line);) {
      const std::string key = line.substr(0, line.find(' '));
      if (line.starts_with("#")) {
        comment = (ends ? "" : comment) + line;
        ends = false;
        continue;
      }
      ends = true;
      if (key.empty() || key == "plugin" || key == "arch" || key == "assumed") continue;
      INFO(name << ": " << line << ", " << comment);
      ++figures;
      const bool sourced = comment.find("out-of-memory") != std::string::npos ||
                           comment.find("data sheet") != std::string::npos ||
                           comment.find("white paper") != std::string::npos ||
                           comment.find("reference architecture") != std::string::npos ||
                           comment.find("NCCL, src/graph") != std::string::npos ||
                           comment.find("this engine's own limit") != std::string::npos;
      CHECK((sourced || card.assumes(key)));
    }
    CHECK(figures >= 8);
  }
}

TEST_CASE("a described device is refused in words") {
  const auto refused = [](const std::string& text, const std::string& what, const std::string& help) {
    INFO(text);
    try {
      eng::find_card(text, "/tmp", "--fit");
      FAIL("it was taken");
    } catch (const eng::Error& e) {
      CHECK(e.exit() == eng::Exit::usage);
      CHECK_THAT(e.what(), Contains(what));
      CHECK_THAT(e.help(), Contains(help));
    }
  };
  refused("a800-81g", "--fit = \"a800-81g\": there is no such card", "did you mean `a800-80g`?");
  refused("a100", "--fit = \"a100\": there are several such cards", "say which: a100-40g or a100-80g");
  refused("4090", "there is no such card", "did you mean `rtx4090`?");
  refused("4096", "fewer than 1 MiB need a unit", "24GiB");
  refused("1048575", "fewer than 1 MiB need a unit", "rtx4090");
  CHECK(eng::find_card("1048576", ".", "x").memory == 1048576);
  CHECK(eng::find_card("512KiB", ".", "x").memory == 524288);
  refused("0", "nothing fits into a device without memory", "24GiB");
  refused("0GiB", "nothing fits into a device without memory", "24GiB");
  refused("-1", "there is no such card", "rtx4090");
  refused("24gigs", "there is no such card", "or give bytes");
  refused("", "there is no such card", "or give bytes");
  CHECK_THROWS_WITH(eng::find_card("./no-such.toml", "/tmp", "--fit"), Contains("/tmp/no-such.toml"));
  const std::string keys = "docs/plan.md";
  refused(card_file("memory = 1\n").string(), "'plugin' is missing", keys);
  refused(card_file(mine + "colour = 'red'\n").string(), "unknown key 'colour'", keys);
  refused(card_file(mine + "assumed = ['link']\n").string(), "'assumed' names 'link', which the card does not", keys);
  refused(card_file(mine + "link = -1\n").string(), "'link' must be at least", keys);
  refused(card_file("plugin = ").string(), "mine.toml:1:", keys);
  refused(card_file("plugin = 'x'\nmemory = '1GiB'\nreserve = '1GiB'\nworkspace = 1\n").string(), "all of 'memory'",
          keys);
}

TEST_CASE("the plan for a described device is the plan for the device that is here") {
  for (const uint32_t ranks : {1u, 4u}) {
    const eng::Setup here = eng::make_plan_only(config_of("tiny", "none"), plugins(), {0, ranks, 0, 1});
    for (const std::string& device : {std::string("2GiB"), card_file(mine).string()}) {
      INFO(device << ", " << ranks << " ranks");
      const eng::Setup described = planned_for(device, ranks);
      CHECK(eng::plan_dump(described.plan) == eng::plan_dump(here.plan));
      REQUIRE(described.plan.arenas.size() == here.plan.arenas.size());
      for (size_t a = 0; a < here.plan.arenas.size(); ++a) {
        CHECK(described.plan.arenas[a].device == here.plan.arenas[a].device);
        CHECK(described.plan.arenas[a].persistent == here.plan.arenas[a].persistent);
        CHECK(described.plan.arenas[a].transient == here.plan.arenas[a].transient);
        CHECK(described.plan.arenas[a].workspace == here.plan.arenas[a].workspace);
      }
      CHECK(eng::planned_peak(described) == eng::planned_peak(here));
      CHECK(eng::available(described).device == uint64_t{2} << 30);
    }
  }
}

TEST_CASE("a card whose plugin is not asked is planned with one workspace of its cap") {
  const eng::Setup here = eng::make_plan_only(config_of("tiny", "none"), plugins());
  const eng::Setup card = planned_for("a800-80g");
  CHECK_FALSE(card.kernels);
  REQUIRE(card.plan.arenas.size() == 2);
  CHECK(card.plan.arenas[0].device == "cuda");
  CHECK(card.plan.arenas[1].kind == "pinned");
  CHECK(card.plan.arenas[0].workspace == card.target.card->workspace);
  // The layout is the same but for the scratch of kernels, and for the batch, which comes by way of the host.
  CHECK(card.plan.parameters == here.plan.parameters);
  CHECK(card.plan.flops_per_step == here.plan.flops_per_step);
  CHECK(card.plan.arenas[0].total() > here.plan.arenas[0].total());
  CHECK(card.plan.arenas[0].total() < here.plan.arenas[0].total() + card.target.card->workspace + (1u << 20));
  // The reserve counts, with several ranks that of the communicator too.
  const auto device = [](const eng::Setup& s) { return eng::peak_of(s.plan, eng::beside(s)).device; };
  CHECK(device(card) == card.plan.arenas[0].total() + card.target.card->reserve);
  const eng::Setup two = planned_for("a800-80g", 2);
  CHECK(device(two) == two.plan.arenas[0].total() + two.target.card->reserve + two.target.card->communicator);
  // Nothing can run on it.
  CHECK_THROWS_WITH(eng::make_setup(config_of("tiny", "none", {"device.describe=a800-80g"}), plugins()),
                    Contains("described, not present"));
  CHECK_THROWS_WITH(eng::make_evaluation(config_of("tiny", "none", {"device.describe=1GiB"}), plugins()),
                    Contains("described, not present"));
}

TEST_CASE("the peak time of a token is that of 6 FLOPs per parameter that multiplies, and of attention") {
  const eng::Setup f32 = planned_for("a800-80g"), bf16 = planned_for("a800-80g", 1, {"precision.plugin=bf16"});
  double multiplied = 0, kept_f32 = 0;
  for (const eng::Parameter& p : bf16.model.params) {
    if (p.name == "model.embed_tokens.weight") continue;
    multiplied += static_cast<double>(eng::count(p.desc));
    if (p.flags & ENG_PARAM_FP32) kept_f32 += static_cast<double>(eng::count(p.desc));
  }
  // tiny: 5 layers of 128, not tied; sequences of 16
  const double attention = 6.0 * 5 * 128 * 16;
  CHECK(eng::seconds_at_peak(f32.model, f32.target) == Approx((6 * multiplied + attention) / 19.5e12));
  CHECK(eng::seconds_at_peak(bf16.model, bf16.target) ==
        Approx((6 * (multiplied - kept_f32) + attention) / 312e12 + 6 * kept_f32 / 19.5e12));
  eng::Target unknown = bf16.target;
  unknown.info.peak_bf16 = 0;
  CHECK(eng::seconds_at_peak(bf16.model, unknown) == 0);
  // With a window of 4, queries see 1 + 2 + 3 + 13 * 4 keys in the place of 1 + 2 + ... + 16.
  eng::Model windowed = f32.model;
  for (auto& [number, tmpl] : windowed.templates)
    for (eng::Node& node : tmpl.graph.nodes)
      if (node.op->id == std::string(ENG_OP_ATTENTION))
        node.op = &eng::op(ENG_OP_ATTENTION_WINDOW), node.attrs.list.push_back({"window", 4, 0});
  CHECK(eng::seconds_at_peak(windowed, f32.target) == Approx((6 * multiplied + attention * 58 / 136) / 19.5e12));
}

TEST_CASE("maps of 8 bits count at the peak of fp8, and attention does not") {
  const Words fp8 = {"precision.plugin=bf16", "transforms=[{plugin=\"fp8\"}]"};
  const eng::Config config = config_of("tiny", "none", fp8);
  const eng::Setup here = eng::make_plan_only(config, plugins());
  const eng::Target h100 = planned_for("h100-80g", 1, {"precision.plugin=bf16"}).target;
  double maps = 0, others = 0;
  for (const eng::Parameter& p : here.model.params) {
    if (p.name == "model.embed_tokens.weight") continue;
    const bool map = p.name.find("_proj.weight") != std::string::npos;
    (map ? maps : others) += static_cast<double>(eng::count(p.desc));
  }
  const double attention = 6.0 * 5 * 128 * 16;
  CHECK(eng::seconds_at_peak(here.model, h100) == Approx(6 * maps / 1979e12 + (6 * others + attention) / 989e12));
  eng::Target older = h100;  // it states no peak
  older.peak_fp8 = 0;
  CHECK(eng::seconds_at_peak(here.model, older) == Approx((6 * (maps + others) + attention) / 989e12));
  CHECK(eng::machine_of(config.section("comm"), h100).fp8 == Approx(eng::reached.flops * 1979e12));

  // Forward and backward: three products for each map and token.
  eng::Machine machine;
  machine.flops = 1e9, machine.bf16 = 2e9;
  const double plain = eng::step_times(here.plan, machine).step;
  machine.fp8 = 4e9;
  const double tokens = static_cast<double>(here.model.micro_batch * here.model.sequence_length);
  CHECK(plain - eng::step_times(here.plan, machine).step == Approx(6 * maps * tokens / 4e9));
  eng::ReportContext context = eng::report_context(here, config);
  context.machine = machine;
  CHECK_THAT(eng::plan_text(here.plan, context), Contains(", 4e+09 in fp8"));
  context.machine.fp8 = 0;
  CHECK_THAT(eng::plan_text(here.plan, context), Contains(", products in fp8 as those in bf16"));
}

TEST_CASE("a report says what fits where, and what bounds a step") {
  const Words more = {"host.memory=64GiB", "device.describe=rtx4090"};
  const eng::Config config = config_of("tiny", "zero2", more);
  eng::Setup setup = eng::make_plan_only(config, plugins(), {0, 4, 0, 4});
  eng::ReportContext context = eng::report_context(setup, config);
  const auto has = [&](const std::string& part) { CHECK_THAT(eng::plan_text(setup.plan, context), Contains(part)); };
  has("described device  rtx4090");
  has("the most scratch of a kernel: an upper bound");
  has("assumed, not measured: its driver's context, libraries, the communicator");
  has("of 23.5 GiB: fits");
  has("of 64.0 GiB: fits");
  has("4 on a node");
  has("estimated, bound by ");
  auto json = nlohmann::json::parse(eng::plan_json(setup.plan, context));
  CHECK(json["fits"] == true);
  CHECK(json["described"]["card"] == "rtx4090");
  CHECK(json["described"]["workspace_is_upper_bound"] == true);
  CHECK(json["step_seconds_estimate"].get<double>() > 0);
  CHECK(json["step_bound"].is_string());
  has("; mfu ");
  CHECK(json["described"]["reserve_is_assumed"] == true);
  // A card that measured its own.
  const eng::Setup measured = planned_for(card_file(mine + "assumed = ['pcie']\n").string());
  CHECK_FALSE(eng::report_context(measured, config).assumed);
  // Too little in either place.
  context.host_total = eng::peak_of(setup.plan, context).hosts - 1;
  CHECK(nlohmann::json::parse(eng::plan_json(setup.plan, context))["fits"] == false);
  has("DOES NOT FIT");
  CHECK(eng::excess(eng::peak_of(setup.plan, context), {context.device_total, context.host_total}).host);
  context.host_total = 0, context.device_total = eng::peak_of(setup.plan, context).device - 1;
  CHECK(nlohmann::json::parse(eng::plan_json(setup.plan, context))["fits"] == false);
}

TEST_CASE("disks beside a card are counted, and can bound its step") {
  eng::PluginSearch search;
  for (const char* file : {"cpu/reference", "llama/llama", "optim/optim", "precision/precision", "zero/zero",
                           "offload/host", "offload/nvme"})
    search.extra.push_back(std::string(ENGINE_PLUGIN_DIR) + "/" + file + ".eng.so");
  search.environment = false;
  const auto tiers = eng::find_plugins(search);
  const std::string card = card_file(mine).string();
  const auto on_disks = [&](const Words& more) {
    Words words = {"device.describe=" + card, "offload.optimizer=nvme", "offload.nvme_paths=[\"/no/such/disk\"]"};
    words.insert(words.end(), more.begin(), more.end());
    return config_of("tiny", "none", words, *tiers);
  };
  const eng::Config config = on_disks({"offload.nvme_read_bandwidth=1GB", "offload.nvme_write_bandwidth=500MB"});
  const eng::Setup setup = eng::make_plan_only(config, *tiers);
  eng::ReportContext context = eng::report_context(setup, config);
  CHECK(context.machine.storage_read == 1e9);
  CHECK(context.machine.storage_write == 5e8);
  uint64_t stored = 0;
  for (const eng::Arena& arena : setup.plan.arenas)
    if (arena.kind == "storage") stored += arena.total();
  // Moments and masters: on the disk; and what is on its way in memory of the host.
  CHECK(stored >= 12u * static_cast<uint64_t>(setup.plan.parameters));
  CHECK(setup.plan.arenas[setup.plan.first_memory()].device == "host");
  const eng::Peak peak = eng::peak_of(setup.plan, context);
  CHECK(peak.storage == stored);
  CHECK(context.storage_total == 0);  // nobody knows that disk
  CHECK(nlohmann::json::parse(eng::plan_json(setup.plan, context))["ranks"][0]["nvme_bytes"] == stored);
  context.storage_total = stored - 1;
  CHECK(nlohmann::json::parse(eng::plan_json(setup.plan, context))["fits"] == false);
  CHECK(eng::excess(peak, {0, 0, 0, stored - 1}).storage);
  CHECK_FALSE(eng::excess(peak, {0, 0, 0, stored}).storage);
  eng::Machine slow = context.machine;
  slow.storage_read = slow.storage_write = 1e6;
  const eng::StepTimes times = eng::step_times(setup.plan, slow);
  CHECK(times.bound() == eng::BoundBy::storage);
  CHECK(times.step >= static_cast<double>(stored) / 1e6);
  CHECK(eng::machine_of(config.section("comm"), setup.target).storage_read == eng::assumed_storage_read);
}

TEST_CASE("an estimate adds up on one queue") {
  const eng::Setup setup = planned_for(card_file(mine).string());
  const eng::Config config = config_of("tiny", "none", {"device.describe=" + card_file(mine).string()});
  const eng::Machine machine = eng::machine_of(config.section("comm"), setup.target);
  CHECK(machine.flops == Approx(eng::reached.flops * 1e12));
  CHECK(machine.memory_bandwidth == Approx(eng::reached.memory * 1e11));
  const eng::StepTimes times = eng::step_times(setup.plan, machine);
  CHECK(times.step == Approx(times.flops + times.memory + times.launches));
  CHECK(times.step >= setup.plan.flops_per_step / machine.flops);
  CHECK(times.exposed == 0);
  // A resource that is slow enough is the bound.
  eng::Machine slow = machine;
  slow.memory_bandwidth = 1e6;
  CHECK(eng::step_times(setup.plan, slow).bound() == eng::BoundBy::memory);
  slow = machine, slow.flops = 1e6;
  CHECK(eng::step_times(setup.plan, slow).bound() == eng::BoundBy::compute);
  slow = machine, slow.launch = 1;
  CHECK(eng::step_times(setup.plan, slow).bound() == eng::BoundBy::launches);
}

TEST_CASE("the memory of a host limits a device that uses it") {
  const auto limit = [](Words more) {
    return eng::available(eng::make_plan_only(config_of("tiny", "none", std::move(more)), plugins())).device;
  };
  CHECK(limit({"host.memory=1GiB"}) == uint64_t{1} << 30);
  CHECK(limit({"host.memory=1GiB", "device.describe=2GiB"}) == uint64_t{1} << 30);
  CHECK(limit({"host.memory=3GiB", "device.describe=2GiB"}) == uint64_t{2} << 30);
}

}  // namespace cards_test
