// SPDX-License-Identifier: Apache-2.0
// The plugin's formulas against the committed answers of cuDNN. Neither cuDNN nor CUDA is needed.
#include <catch2/catch.hpp>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "engine/base.h"
#include "engine/ops.h"
#include "plugins/common/error.hpp"
#include "plugins/cuda/attention_choice.hpp"

namespace sdpa = cuda::sdpa;

namespace {

const std::map<std::string, uint32_t> archs = {{"A100", 80}, {"H100", 90}, {"H200", 90}, {"B200", 100}};

// One call of the op as a plan makes it.
struct Question {
  eng_device_info info{};
  eng_desc in[6] = {}, out[3] = {};
  eng_attr attrs[3] = {{"heads", 0, 0}, {"kv_heads", 0, 0}, {"scale", 0, 0.125}};
  eng_call call{};
  bool backward;
  Question(const sdpa::Shape& s, uint32_t arch, const cuda::AttentionOptions& options) : backward(s.backward) {
    info.struct_size = sizeof info, info.arch = arch;
    cuda::put(options, info);
    const auto tensor = [&](int64_t heads) {
      eng_desc d{};
      d.dtype = s.type, d.ndim = 3;
      d.dims[0] = s.batch, d.dims[1] = s.length, d.dims[2] = heads * s.size;
      return d;
    };
    attrs[0].i = s.heads, attrs[1].i = s.kv_heads;
    if (backward) in[0] = tensor(s.heads);
    in[backward] = tensor(s.heads), in[backward + 1] = in[backward + 2] = tensor(s.kv_heads);
    call = {sizeof call, 1, backward ? 6u : 3u, backward ? 3u : 2u, in, out, attrs, 3, 0, &info};
  }
  cuda::AttentionChoice choose() const { return cuda::choose_attention(call, backward); }
  std::string error() const {
    try {
      choose();
    } catch (const common::Error& e) {
      return e.text;
    }
    return "";
  }
};

const sdpa::Shape seven_b = {8, 2048, 32, 32, 128, ENG_BF16, true};

}  // namespace

TEST_CASE("cudnn: the formulas give the committed answers") {
  size_t tables = 0;
  for (const auto& entry : std::filesystem::directory_iterator(ANSWERS)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with("answers-")) continue;
    const uint64_t version = sdpa::known_version(name.substr(8, name.size() - 12));
    INFO(name);
    REQUIRE(version != 0);
    ++tables;
    std::ifstream file(entry.path());
    size_t lines = 0, refused = 0, elsewhere = 0;
    for (std::string line; std::getline(file, line);) {
      if (line.starts_with("#")) continue;
      std::istringstream words(line);
      std::string gpu, type, pass, bytes;
      sdpa::Shape s{};
      words >> gpu >> s.batch >> s.length >> s.heads >> s.kv_heads >> s.size >> type >> pass >> bytes;
      s.type = type == "f16" ? ENG_F16 : ENG_BF16, s.backward = pass == "backward";
      const sdpa::Answer answer = sdpa::answer(s, archs.at(gpu), version);
      INFO(line << ", formula: " << answer.refused << answer.bytes);
      CHECK((answer.refused.empty() ? std::to_string(answer.bytes) : "refused") == bytes);
      ++lines, refused += bytes == "refused";
      const sdpa::Answer other = sdpa::answer(s, archs.at(gpu) == 90 ? 80 : 90, version);
      elsewhere += (other.refused.empty() ? std::to_string(other.bytes) : "refused") != bytes;
    }
    CHECK(lines > 200);
    CHECK(refused > 15);
    CHECK(elsewhere > lines / 2);  // a formula of another architecture would be noticed
  }
  CHECK(tables == std::size(sdpa::known_versions));
}

TEST_CASE("cudnn: a choice depends on the option, the type and the cap") {
  cuda::AttentionOptions o;
  sdpa::Shape forward = seven_b;
  forward.backward = false;
  CHECK(Question(forward, 90, o).choose().cudnn);
  CHECK(Question(forward, 90, o).choose().bytes == 256);
  CHECK_FALSE(Question(forward, 89, o).choose().cudnn);
  CHECK_FALSE(Question(seven_b, 90, o).choose().cudnn);  // 2 GiB of scores
  CHECK(Question(seven_b, 100, o).choose().cudnn);
  CHECK(Question(seven_b, 90, o).choose().name == "attention backward 8 2048 32 32 128 bf16");
  o.cap = uint64_t{3} << 30;
  CHECK(Question(seven_b, 90, o).choose().bytes == 2149581056);
  for (const auto who : {cuda::AttentionOptions::own, cuda::AttentionOptions::own_wgmma}) {
    o.who = who;
    CHECK_FALSE(Question(forward, 90, o).choose().cudnn);
  }
  o.who = cuda::AttentionOptions::auto_;
  Question negative(forward, 90, o);
  negative.attrs[2].f = -0.125;
  CHECK_FALSE(negative.choose().cudnn);
  negative.attrs[2].f = 0.125;
  CHECK(negative.choose().cudnn);
  forward.type = ENG_F32;
  CHECK_FALSE(Question(forward, 90, o).choose().cudnn);
}

namespace {

std::vector<std::string> notes;
const std::string name = "attention backward 8 2048 32 32 128 bf16";

// The one that computes the call, with a cuDNN that is `version`, or that refuses if that is empty; or an error, after
// "error: ".
std::string computed(const cuda::AttentionChoice& choice, cuda::Served& run, const std::string& version,
                     bool own_can = true) {
  const auto make = [&] {
    if (version.empty()) throw common::Error{ENG_UNAVAILABLE, cuda::refusal(choice, 92801, "wants 1,256 bytes")};
    return version;
  };
  try {
    return cuda::made_by_cudnn(choice, own_can, run, make, [](const std::string& note) { notes.push_back(note); })
               ? version
               : "own";
  } catch (const common::Error& e) {
    CHECK(e.status == ENG_UNAVAILABLE);
    return "error: " + e.text;
  }
}

const std::string refused =
    "the plan counts on cuDNN 9.19.0 and 1,000 bytes of scratch, and the installed cuDNN 9.28.1 wants 1,256 bytes";
const std::string install = "install cuDNN 9.19.0 (pip install nvidia-cudnn-cu13==9.19.0.*; ";

}  // namespace

TEST_CASE("cudnn: where the installed one refuses, the own kernel computes, and does so from then on") {
  notes.clear();
  const cuda::AttentionChoice choice = {name, true, false, 1000, 91900, seven_b};
  cuda::Served run;
  CHECK(computed(choice, run, "") == "own");
  CHECK(run == cuda::Served{{"attention backward 8 2048 32 32 128 bf16", "own"}});
  REQUIRE(notes.size() == 1);
  CHECK(notes[0].find(refused + "; ") != std::string::npos);
  CHECK(notes[0].find(install) != std::string::npos);
  CHECK(computed(choice, run, "cuDNN 9.19.0") == "own");  // a resume finds one that would
  CHECK(notes.size() == 1);
  cuda::Served another;
  const std::string cannot = computed(choice, another, "", false);  // the own kernel would refuse it, too
  CHECK(cannot.starts_with("error: " + refused + ": " + install));
}

TEST_CASE("cudnn: what it has computed it must go on computing, and where it is demanded there is no other") {
  notes.clear();
  cuda::AttentionChoice choice = {name, true, false, 1000, 91900, seven_b};
  cuda::Served run;
  CHECK(computed(choice, run, "cuDNN 9.19.0") == "cuDNN 9.19.0");
  CHECK(computed(choice, run, "cuDNN 9.19.0") == "cuDNN 9.19.0");
  CHECK(notes.empty());
  CHECK(computed(choice, run, "cuDNN 9.20.0") == "cuDNN 9.20.0");
  CHECK(notes == std::vector<std::string>{
                     "attention was computed by cuDNN 9.19.0 so far, now it is by cuDNN 9.20.0: the last bits may "
                     "change"});
  const std::string lost = computed(choice, run, "");
  CHECK(lost.starts_with("error: cuDNN 9.20.0 computes this on the first rank or did so far, and here " + refused));
  CHECK(lost.ends_with("or set [device] attention = \"own\", which changes the last bits"));
  choice.strict = true;
  cuda::Served own = {{"attention backward 8 2048 32 32 128 bf16", "own"}};
  CHECK(computed(choice, own, "").starts_with("error: " + refused + ": " + install));
  CHECK(computed(choice, own, "cuDNN 9.19.0") == "cuDNN 9.19.0");
  choice.strict = false;
  own[name] = "own wgmma";
  CHECK(computed(choice, own, "cuDNN 9.19.0") == "own");
  CHECK(own[name] == "own wgmma");
}

TEST_CASE("tune: one NaN among the results of a kernel keeps it from being taken") {
  uint16_t right[] = {0x3f80, 0xc000, 0x3f00}, got[] = {0x3f80, 0xbff0, 0x3f00};  // 1, -2, 0.5; -1.875
  const auto apart = [&] { return cuda::distance({got, ENG_BF16}, {right, ENG_BF16}, 3); };
  CHECK(apart() == 0.0625);
  got[0] = 0x7fc0;
  CHECK(std::isnan(apart()));
  got[0] = 0x3f80, got[2] = 0x7fc0;
  CHECK(std::isnan(apart()));
  CHECK(cuda::distance({right, ENG_BF16}, {right, ENG_BF16}, 3) == 0);
}

TEST_CASE("cudnn: demanded where it cannot, the error names the edits that help") {
  cuda::AttentionOptions o;
  o.who = cuda::AttentionOptions::cudnn;
  const std::string text = Question(seven_b, 90, o).error();
  for (const std::string part : {"cuDNN 9.19.0 needs 2,149,581,056 bytes",
                                 "attention_workspace allows 536,870,912 bytes", "train.micro_batch = 1 fits",
                                 "with cuDNN 9.27.0 installed, [device] cudnn = \"9.27.0\" needs 270,598,400 bytes;",
                                 "[device] attention_workspace = 2149581056 allows it", "attention = \"auto\""}) {
    INFO(text << "\nlacks: " << part);
    CHECK(text.find(part) != std::string::npos);
  }
  o.version = 92700;
  CHECK(Question(seven_b, 90, o).choose().bytes == 270598400);
  sdpa::Shape odd = seven_b;
  odd.size = 20;
  CHECK(Question(odd, 90, o).error().find("multiple of 8, not 20") != std::string::npos);
  odd.size = 128, odd.type = ENG_F32;
  CHECK(Question(odd, 90, o).error().find("takes bf16 and f16") != std::string::npos);
  CHECK(Question(seven_b, 120, o).error().find("not for sm_120") != std::string::npos);
}
