// SPDX-License-Identifier: Apache-2.0
// For a build without the headers of libcurl.
#include "core/base/error.hpp"
#include "session/hub/transport.hpp"

namespace eng::hub {

std::unique_ptr<Transport> open_transport(double, std::function<bool()>) {
  throw Error(Exit::environment, "this engine was built without libcurl, and cannot download or use stores on s3://",
              "apt-get install libcurl4-openssl-dev, and build it again; or use `hf download` of the package "
              "huggingface_hub, or a folder as checkpoint.second");
}

}  // namespace eng::hub
