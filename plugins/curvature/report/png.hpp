// SPDX-License-Identifier: Apache-2.0
// Pictures by cairo. It is in a file of its own, cairo.curvature.so beside the plugin, which is loaded when a picture
// is drawn: everything else works where libcairo is not installed.
#pragma once

#include <cstddef>
#include <string>

#include "scene.hpp"

namespace curvature::report {

struct CairoLibrary {
  const char* version;
  // Draws the scene and gives the bytes of a PNG of `scale` pixels for each of the scene. NULL, or what went wrong.
  const char* (*png)(const Scene& scene, double scale, void (*take)(void* sink, const unsigned char* data, size_t size),
                     void* sink);
};

struct Png {
  std::string bytes;  // "": there is none
  std::string why;    // why not, and what to change
};

// The scene as a PNG, in the colours of the light page. Equal scenes give equal bytes with the same cairo: its letters
// are cairo's own, so the fonts of the machine do not matter. `library`: cairo.curvature.so; "": beside this code.
Png png(const Scene& scene, const std::string& library = "");

}  // namespace curvature::report
