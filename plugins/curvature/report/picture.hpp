// SPDX-License-Identifier: Apache-2.0
// Pictures by cairo. It is in a file of its own, cairo.curvature.so beside the plugin, which is loaded when a picture
// is drawn: everything else works where libcairo is not installed, and a process that draws nothing does not grow.
#pragma once

#include <cstddef>
#include <string>

#include "scene.hpp"

namespace curvature::report {

enum class Medium { png, pdf };

struct CairoLibrary {
  const char* version;
  // Draws the scene and gives the bytes of the file. NULL, or what went wrong.
  const char* (*draw)(const Scene& scene, Medium medium,
                      void (*take)(void* sink, const unsigned char* data, size_t size), void* sink);
};

struct Picture {
  std::string bytes;  // "": there is none
  std::string why;    // why not, and what to change
};

// The scene as a PNG of `pixels_per_unit`, or as a PDF whose letters are text. In the colours of the light page, on
// white, without the title. Equal scenes give equal bytes with the same cairo: the font is inside cairo.curvature.so,
// so those of the machine do not matter. `library`: cairo.curvature.so; "": beside this code.
Picture picture(const Scene& scene, Medium medium, const std::string& library = "");

}  // namespace curvature::report
