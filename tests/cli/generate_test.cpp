// SPDX-License-Identifier: Apache-2.0
// engine generate.
#include <algorithm>
#include <regex>
#include <sstream>

#include "harness.hpp"

using namespace cli;

TEST_CASE("a run continues a text", "[cli]") {
  Scratch scratch;
  scratch.config();
  const Result trained = engine(scratch, {"run", "config.toml", "--out", "run"});
  INFO(trained.err);
  REQUIRE(trained.exit == 0);
  auto generate = [&](Args more) {
    Args args = {"generate", "run", "The "};
    args.insert(args.end(), more.begin(), more.end());
    const Result result = engine(scratch, args);
    INFO(result.err);
    REQUIRE(result.exit == 0);
    return result;
  };

  SECTION("the same text for the same seed, another one for another") {
    const Result once = generate({"--tokens", "40", "--seed", "5"});
    CHECK(once.out.size() == 41);  // bytes are tokens; a newline ends the text
    CHECK(
        std::regex_search(once.err, std::regex(R"(^prompt 4 tokens, [\d.]+ tokens/s; generated 40 tokens, [\d.]+ )")));
    CHECK(generate({"--tokens", "40", "--seed", "5"}).out == once.out);
    CHECK(generate({"--tokens", "40", "--seed", "6"}).out != once.out);
    CHECK(generate({"--tokens", "10", "--seed", "5"}).out == once.out.substr(0, 10) + "\n");
  }
  SECTION("the likeliest tokens") {
    const std::string greedy = generate({"--tokens", "40", "--temperature", "0"}).out;
    CHECK(generate({"--tokens", "40", "--top-k", "1", "--seed", "9"}).out == greedy);
    CHECK(generate({"--tokens", "40", "--top-p", "1e-9", "--seed", "9"}).out == greedy);
    // A long prompt takes the way of whole chunks: one token less of prompt, one more to generate.
    std::string longer = read(scratch / "text.txt").substr(0, 150);
    const Result next = engine(scratch, {"generate", "run", longer, "--tokens", "8", "--temperature", "0"});
    REQUIRE(next.exit == 0);
    const Result after =
        engine(scratch, {"generate", "run", longer + next.out.substr(0, 1), "--tokens", "7", "--temperature", "0"});
    CHECK(next.out == next.out.substr(0, 1) + after.out);
  }
  SECTION("ids, and texts to stop at") {
    const std::string text = generate({"--tokens", "40", "--temperature", "0"}).out;
    std::string ids;
    for (const char c : text.substr(0, 40))
      ids += (ids.empty() ? "" : " ") + std::to_string(static_cast<unsigned char>(c));
    const Result as_ids = generate({"--tokens", "40", "--temperature", "0", "--ids"});
    CHECK(as_ids.out == ids + "\n");
    CHECK(has(as_ids.err, "prompt ids: 84 104 101 32\n"));
    const std::string stop = text.substr(9, 4), kept = text.substr(0, text.find(stop));
    const Result stopped = generate({"--tokens", "40", "--temperature", "0", "--stop", "never", "--stop", stop});
    CHECK(stopped.out == kept + "\n");
    CHECK(has(stopped.err, "generated " + std::to_string(kept.size() + 4) + " tokens"));
    // Text that begins as a stop text does and goes on otherwise is shown.
    CHECK(generate({"--tokens", "40", "--temperature", "0", "--stop", text.substr(0, 40) + "?"}).out == text);
  }
  SECTION("several prompts: each gets its own text") {
    const std::vector<std::string> prompts = {"The ", "x", read(scratch / "text.txt").substr(0, 90),
                                              "A longer prompt "};
    std::string json;
    for (const std::string& prompt : prompts)
      json += (json.empty() ? Json(prompt) : Json{{"prompt", prompt}, {"id", 3}}).dump() + "\n";
    scratch.write("prompts.txt", "The \r\nx\nA longer prompt");
    scratch.write("prompts.jsonl", json);
    for (const char* batch : {"1", "3"}) {
      const Result all = engine(scratch, {"generate", "run", "--prompts", "prompts.jsonl", "--batch", batch, "--tokens",
                                          "20", "--temperature", "0"});
      INFO(all.err);
      REQUIRE(all.exit == 0);
      CHECK(has(all.err, "4 prompts of " + std::to_string(4 + 1 + 90 + 16) + " tokens, generated 80 tokens"));
      std::istringstream lines(all.out);
      std::string line;
      for (const std::string& prompt : prompts) {
        REQUIRE(static_cast<bool>(std::getline(lines, line)));
        const Json one = Json::parse(line);
        CHECK(one.at("prompt") == prompt);
        CHECK(one.at("end") == "tokens");
        const Result alone = engine(scratch, {"generate", "run", prompt, "--tokens", "20", "--temperature", "0"});
        // JSON has no place for bytes that are no UTF-8.
        const std::string legible = Json(alone.out).dump(-1, ' ', false, Json::error_handler_t::replace);
        CHECK(one.at("text").get<std::string>() + "\n" == Json::parse(legible));
      }
      CHECK_FALSE(static_cast<bool>(std::getline(lines, line)));
    }
    const Result limited =
        engine(scratch, {"generate", "run", "--prompts", "prompts.txt", "--max-length", "18", "--ids"});
    INFO(limited.err);
    REQUIRE(limited.exit == 0);
    const Json first = Json::parse(limited.out.substr(0, limited.out.find('\n')));
    CHECK(first.at("end") == "length");
    CHECK(first.at("prompt_ids") == Json({84, 104, 101, 32}));
    CHECK(first.at("ids").size() == 14);
  }
  SECTION("another tokenizer") {
    CHECK(generate({"--tokens", "9", "--tokenizer", "bytes"}).out == generate({"--tokens", "9"}).out);
    const Result none = engine(scratch, {"generate", "run", "The ", "--tokenizer", "nowhere"});
    CHECK(none.exit == 4);
    CHECK(has(none.err, "nowhere"));
  }
  SECTION("up to max-length") {
    CHECK(generate({"--max-length", "20"}).out.size() == 16 + 1);
    CHECK(generate({"--max-length", "5"}).out.size() == 1 + 1);
  }
  SECTION("impossible requests are refused") {
    auto refused = [&](Args args, int exit, const char* text) {
      args.insert(args.begin(), "generate");
      const Result result = engine(scratch, args);
      INFO(result.err);
      CHECK(result.exit == exit);
      CHECK(has(result.err, text));
      CHECK(result.out.empty());
    };
    refused({"run"}, 2, "prompt is required");
    scratch.write("empty.txt", "one\n\ntwo\n");
    scratch.write("wrong.jsonl", "{\"text\": \"one\"}\n");
    scratch.write("long.txt", "x\n" + std::string(2048, 'x') + "\n");
    refused({"run", "The ", "--prompts", "empty.txt"}, 2, "there is a prompt, and --prompts");
    refused({"run", "--prompts", "nowhere.txt"}, 2, "nowhere.txt");
    refused({"run", "--prompts", "empty.txt"}, 2, "empty.txt:2 is empty");
    refused({"run", "--prompts", "wrong.jsonl"}, 2, "wrong.jsonl:1 is neither a JSON text nor an object");
    refused({"run", "--prompts", "long.txt"}, 2, "prompt 2 of long.txt: the prompt has 2048 tokens");
    refused({"run", "--prompts", "long.txt", "--batch", "0"}, 2, "--batch 0 is below 1");
    refused({"run", ""}, 2, "the prompt is empty");
    refused({"run", "The ", "--max-length", "4"}, 2,
            "the prompt has 4 tokens, which leaves no room for new ones within --max-length 4");
    refused({"run", "The ", "--max-length", "4096"}, 2,
            "--max-length 4096 is more than the 2048 positions of the model");
    refused({"run", std::string(2048, 'x')}, 2, "the prompt has 2048 tokens, which leaves no room");
    refused({"run", "The ", "--temperature", "-1"}, 2, "--temperature -1 is below 0");
    refused({"run", "The ", "--top-p", "1.5"}, 2, "--top-p 1.5");
    refused({"run", "The ", "--top-k", "-2"}, 2, "--top-k -2");
    refused({"run", "The ", "--tokens", "0"}, 2, "--tokens 0");
    refused({"run", "The ", "--stop", ""}, 2, "--stop is empty");
    refused({"run", "The ", "--system", "Be short."}, 2, "give --chat too");
    refused({"run", "The ", "--chat"}, 2, "run has no chat template");
    refused({"someone/model-7b", "The "}, 2, "engine model get someone/model-7b");
    refused({"config.toml", "The "}, 2, "config.toml is not a directory");
    refused({"checkpoints", "The "}, 2, "checkpoints");
    refused({"run/checkpoints/step-00000008", "The "}, 2, "is one checkpoint; a run is needed here");
    fs::remove_all(scratch / "run" / "checkpoints");
    refused({"run", "The "}, 9, "run has no usable checkpoint");
  }
}

TEST_CASE("every id that config.json and generation_config.json end a text with ends it, and does not count", "[cli]") {
  Scratch scratch;
  const fs::path folder = fs::path(ENGINE_SOURCE_DIR) / "tests" / "models" / "hf";
  const Json expected = Json::parse(read(folder / "expected.json"));
  fs::copy(folder / "single", scratch / "hf");
  const std::vector<int> ids = expected.at("greedy").at("single");
  const auto made = [&](const std::string& err) {
    std::smatch found;
    return std::regex_search(err, found, std::regex("generated (\\d+) tokens")) ? std::stoul(found[1]) : 999;
  };
  const Args args = {"generate", "hf", expected.at("prompt"), "--tokenizer", "bytes",
                     "--tokens", "40", "--temperature",       "0",           "--ids"};
  for (const Json& eos : {Json(ids[12]), Json({250, ids[12]})}) {
    scratch.write("hf/generation_config.json", Json{{"eos_token_id", eos}}.dump());
    const Result result = engine(scratch, args);
    INFO(result.err);
    REQUIRE(result.exit == 0);
    const auto end = static_cast<size_t>(std::find(ids.begin(), ids.end(), ids[12]) - ids.begin());
    std::string kept;
    for (size_t i = 0; i < end; ++i) kept += (i ? " " : "") + std::to_string(ids[i]);
    CHECK(result.out == kept + "\n");
    CHECK(made(result.err) == end);
  }
  fs::remove(scratch / "hf" / "generation_config.json");
  Json config = Json::parse(read(scratch / "hf" / "config.json"));
  config["eos_token_id"] = {ids[0]};
  scratch.write("hf/config.json", config.dump());
  const Result none = engine(scratch, args);
  INFO(none.err);
  CHECK(none.out == "\n");
  CHECK(made(none.err) == 0);
}

TEST_CASE("a chat is written as Jinja writes its template", "[cli][.slow]") {
  Scratch scratch;
  fs::copy(fs::path(ENGINE_SOURCE_DIR) / "tests" / "models" / "hf" / "single", scratch / "hf");
  Json config = Json::parse(read(scratch / "hf" / "config.json"));
  config["max_position_embeddings"] = 1024;
  scratch.write("hf/config.json", config.dump());
  const Json golden =
      Json::parse(read(fs::path(ENGINE_SOURCE_DIR) / "tests" / "cli" / "chat.json"));  // tools/goldens/chat.py
  const auto prompt = [&](const Json& text, bool system, bool file = false) {
    Json tokenizer = {{"bos_token", "<s>"}, {"eos_token", {{"content", "</s>"}}}};
    if (!file) tokenizer["chat_template"] = text;
    if (file) scratch.write("hf/chat_template.jinja", text.get<std::string>() + "\n");
    scratch.write("hf/tokenizer_config.json", tokenizer.dump());
    Args args = {"generate", "hf", golden.at("message"), "--chat", "--tokenizer", "bytes", "--tokens", "1", "--ids"};
    if (system) args.emplace_back("--system"), args.push_back(golden.at("system").get<std::string>());
    const Result result = engine(scratch, args);
    fs::remove(scratch / "hf" / "chat_template.jinja");
    const std::string head = "prompt ids: ";
    const size_t at = result.err.find(head);
    if (at == std::string::npos) return result.err;
    CHECK(result.exit == 0);
    std::istringstream ids(result.err.substr(at + head.size(), result.err.find('\n', at) - at - head.size()));
    std::string out;
    for (int id = 0; ids >> id;) out += static_cast<char>(id);
    return out;
  };
  for (const Json& one : golden.at("templates")) {
    INFO(one.at("name"));
    for (const bool system : {false, true}) {
      const Json& wanted = one.at(system ? "system" : "user");
      if (wanted.is_null())
        CHECK(has(prompt(one.at("template"), system), "the template refuses: "));
      else
        CHECK(prompt(one.at("template"), system) == wanted);
    }
  }
  const Json& chatml = golden.at("templates")[0];
  CHECK(prompt(chatml.at("template"), true, true) == chatml.at("system"));
  CHECK(prompt(Json::array({{{"name", "default"}, {"template", chatml.at("template")}}}), false) == chatml.at("user"));
  // Any other one is run as well, and named where it cannot be.
  std::string other = chatml.at("template"), wanted = chatml.at("user");
  other.replace(other.find("im_end"), 6, "im_ent"), wanted.replace(wanted.find("im_end"), 6, "im_ent");
  CHECK(prompt(other, false) == wanted);
  CHECK(has(prompt("{% import 'x' as y %}", false), "tokenizer_config.json: chat_template"));
}

TEST_CASE("a Hugging Face directory continues as transformers does", "[cli]") {
  Scratch scratch;
  const fs::path folder = fs::path(ENGINE_SOURCE_DIR) / "tests" / "models" / "hf";
  const Json expected = Json::parse(read(folder / "expected.json"));
  const std::string prompt = expected.at("prompt");
  for (const auto& [name, ids] : expected.at("greedy").items()) {
    std::string text;
    for (const int id : ids) text += static_cast<char>(id);
    const Result result = engine(scratch, {"generate", (folder / name).string(), prompt, "--tokenizer", "bytes",
                                           "--tokens", "40", "--temperature", "0"});
    INFO(name << ": " << result.err);
    CHECK(result.exit == 0);
    CHECK(result.out == text + "\n");
  }
  CHECK(expected.at("greedy").at("single") != expected.at("greedy").at("tied"));

  SECTION("its own tokenizer is the default") {
    fs::copy(folder / "single", scratch / "hf");
    const Result without = engine(scratch, {"generate", "hf", prompt});
    CHECK(without.exit == 2);
    CHECK(has(without.err, "hf has no tokenizer for the prompt\nhelp: give one: --tokenizer"));
    fs::copy(fs::path(ENGINE_SOURCE_DIR) / "tests" / "data" / "golden" / "gpt2" / "tokenizer.json", scratch / "hf");
    const Result larger = engine(scratch, {"generate", "hf", prompt});
    CHECK(larger.exit == 2);
    CHECK(has(larger.err, "for a part of the prompt, the model has 256 ids"));
    CHECK(engine(scratch, {"generate", "hf", "x", "--tokens", "4"}).exit == 0);
  }
}
