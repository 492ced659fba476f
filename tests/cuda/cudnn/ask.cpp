// SPDX-License-Identifier: Apache-2.0
// Asks the loaded cuDNN what it would do on described GPUs. Each line of the input is "GPU B T heads kv_heads D type
// pass", such as "H100 8 2048 32 8 128 bf16 backward"; each line of the output is that, and the bytes of workspace or
// "refused". With --why, the reason or the engine follows. Words before the lines: [--why] [--quadratic], which leaves
// the engine of linear scratch aside.
#include <cstring>
#include <iostream>
#include <sstream>
#include <vector>

#include "described.hpp"
#include "engine/base.h"
#include "plugins/cuda/errors.hpp"

int main(int count, char** words) {
  bool why = false, quadratic = false;
  for (int k = 1; k < count; ++k) (std::strcmp(words[k], "--why") == 0 ? why : quadratic) = true;
  const uint64_t version = cuda::sdpa::loaded_version();
  std::cout << "# cuDNN " << cuda::sdpa::version_text(version) << "\n";
  std::string line;
  while (std::getline(std::cin, line)) {
    std::istringstream in(line);
    std::string name, type, pass;
    cuda::sdpa::Shape s{};
    in >> name >> s.batch >> s.length >> s.heads >> s.kv_heads >> s.size >> type >> pass;
    s.type = type == "f16" ? ENG_F16 : ENG_BF16, s.backward = pass == "backward";
    const cudnn_test::Gpu* gpu = nullptr;
    for (const cudnn_test::Gpu& g : cudnn_test::gpus)
      if (name == g.name) gpu = &g;
    if (!in || !gpu) return std::cerr << "cannot read: " << line << "\n", 2;
    std::string answer, note;
    try {
      const bool linear = !quadratic && cuda::sdpa::linear(s, gpu->arch, version);
      const cuda::sdpa::Graph graph(s, 0.125, cudnn_test::place(*gpu), linear);
      // It is bound as the plugin binds it: the tensors of the op, in their order, are what cuDNN expects.
      std::vector<void*> addresses;
      for (uintptr_t k = 1; k <= (s.backward ? 9 : 5); ++k) addresses.push_back(reinterpret_cast<void*>(k << 40));
      const cuda::sdpa::Pack pack(graph, addresses, reinterpret_cast<void*>(uintptr_t{10} << 40));
      answer = std::to_string(graph.workspace()), note = graph.engine();
    } catch (const cuda::Error& e) {
      if (e.status != ENG_UNSUPPORTED) return std::cerr << line << ": " << e.text << "\n", 1;
      answer = "refused", note = e.text;
    }
    std::cout << line << " " << answer << (why ? "  " + note : "") << std::endl;
  }
}
