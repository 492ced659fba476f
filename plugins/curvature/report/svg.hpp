// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "scene.hpp"

namespace curvature::report {

// An <svg> element; page.css has its colours. "" of a scene without marks.
std::string svg(const Scene& scene);

// The scene as a file of its own, for papers: in millimetres, in the colours of the light page, on white. Texts stay
// texts, in DejaVu Sans or the viewer's sans serif font.
std::string svg_file(const Scene& scene);

}  // namespace curvature::report
