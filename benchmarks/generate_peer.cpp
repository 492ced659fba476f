// SPDX-License-Identifier: Apache-2.0
// generate_peer MODEL.gguf THREADS LENGTH TOKENS < PROMPTS: llama.cpp reads the ids of a prompt, one a line, of at most
// LENGTH, and continues them greedily with TOKENS new ones. The first line has the version; then there is a line for
// each prompt: tokens per second of both, and the new ids. The model is read once, and the memory of the sequence is
// emptied before each prompt.
//
// With llama.cpp's sources and its libraries, which a build with -DGGML_NATIVE=ON makes for this processor:
//   g++ -O2 -std=c++17 -I llama.cpp/include -I llama.cpp/ggml/include benchmarks/generate_peer.cpp LIBRARIES -o peer
#include <llama.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

int main(int count, char** words) {
  if (count != 5) return 2;
  const int threads = std::atoi(words[2]), prompt = std::atoi(words[3]), tokens = std::atoi(words[4]);
  llama_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
  llama_backend_init();
  llama_model_params how = llama_model_default_params();
  how.n_gpu_layers = 0;
  llama_model* const model = llama_model_load_from_file(words[1], how);
  if (!model) return 1;
  llama_context_params params = llama_context_default_params();
  params.n_ctx = static_cast<uint32_t>(prompt + tokens + 64);
  params.n_batch = params.n_ubatch = 512;
  params.n_threads = params.n_threads_batch = threads;
  llama_context* const context = llama_init_from_model(model, params);
  if (!context) return 1;
  const int vocabulary = llama_vocab_n_tokens(llama_model_get_vocab(model));
  const auto next = [&] {
    const float* logits = llama_get_logits_ith(context, -1);
    return static_cast<llama_token>(std::max_element(logits, logits + vocabulary) - logits);
  };
  const auto read = [&](std::vector<llama_token>& ids) {
    if (llama_decode(context, llama_batch_get_one(ids.data(), static_cast<int32_t>(ids.size()))) != 0) std::exit(1);
    llama_synchronize(context);
  };
  const auto now = [] { return std::chrono::steady_clock::now(); };
  const auto seconds = [&](auto from) { return std::chrono::duration<double>(now() - from).count(); };
  std::printf("ggml %s, %s\n", ggml_version(), llama_print_system_info());
  std::fflush(stdout);
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream in(line);
    std::vector<llama_token> ids, one(1), made;
    for (llama_token id; in >> id;) ids.push_back(id);
    llama_memory_clear(llama_get_memory(context), true);
    const auto begin = now();
    for (size_t at = 0; at < ids.size(); at += 512) {
      std::vector<llama_token> part(ids.begin() + static_cast<std::ptrdiff_t>(at),
                                    ids.begin() + static_cast<std::ptrdiff_t>(std::min(ids.size(), at + 512)));
      read(part);
    }
    const double reading = seconds(begin);
    const auto middle = now();
    for (int k = 0; k < tokens; ++k) {
      one[0] = next();
      made.push_back(one[0]);
      if (k + 1 < tokens) read(one);
    }
    std::printf("%.2f %.2f", static_cast<double>(ids.size()) / reading, tokens / seconds(middle));
    for (const llama_token id : made) std::printf(" %d", id);
    std::printf("\n");
    std::fflush(stdout);
  }
}
