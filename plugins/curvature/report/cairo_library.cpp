// SPDX-License-Identifier: Apache-2.0
// The only file that knows cairo.
#include <cairo.h>

#include <memory>

#include "png.hpp"

namespace curvature::report {
namespace {

constexpr double pi = 3.14159265358979323846;

void ink(cairo_t* to, int number, double opacity) {
  const unsigned rgb = light_colours[number];
  cairo_set_source_rgba(to, (rgb >> 16) / 255.0, (rgb >> 8 & 255) / 255.0, (rgb & 255) / 255.0, opacity);
}

void outline(cairo_t* to, const Mark& mark) {
  const auto [x, y] = mark.places.front();
  const double r = mark.width;
  switch (mark.form) {
    case Form::circle:
      cairo_arc(to, x, y, r, 0, 2 * pi);
      break;
    case Form::square:
      cairo_rectangle(to, x - r, y - r, 2 * r, 2 * r);
      break;
    case Form::triangle:
      cairo_move_to(to, x, y - 1.2 * r), cairo_line_to(to, x + 1.2 * r, y + r), cairo_line_to(to, x - 1.2 * r, y + r);
      cairo_close_path(to);
      break;
    case Form::diamond:
      cairo_move_to(to, x, y - 1.3 * r), cairo_line_to(to, x + 1.3 * r, y);
      cairo_line_to(to, x, y + 1.3 * r), cairo_line_to(to, x - 1.3 * r, y);
      cairo_close_path(to);
      break;
    case Form::cross:
      cairo_move_to(to, x - r, y - r), cairo_line_to(to, x + r, y + r);
      cairo_move_to(to, x - r, y + r), cairo_line_to(to, x + r, y - r);
  }
}

void draw_dot(cairo_t* to, const Mark& mark) {
  outline(to, mark);
  ink(to, mark.ink, mark.faint ? 0.4 : 0.8);
  if (mark.form == Form::cross) {
    cairo_set_line_width(to, 1.5), cairo_stroke(to);
    return;
  }
  cairo_fill_preserve(to);
  cairo_set_source_rgb(to, 1, 1, 1), cairo_set_line_width(to, 0.6), cairo_stroke(to);
}

void draw_line(cairo_t* to, const Mark& mark) {
  constexpr double dashes[] = {5, 4};
  for (const auto& [x, y] : mark.places) cairo_line_to(to, x, y);
  cairo_set_dash(to, dashes, mark.dashed ? 2 : 0, 0);
  cairo_set_line_width(to, mark.width);
  ink(to, mark.ink, mark.faint ? 0.4 : 1), cairo_stroke(to);
  cairo_set_dash(to, dashes, 0, 0);
}

void draw_text(cairo_t* to, const std::string& text, Place at, Side side, int number) {
  std::string shown;  // cairo's own letters are those of ASCII
  for (const char c : text) shown += c >= ' ' && c <= '~' ? c : '?';
  cairo_text_extents_t size;
  cairo_text_extents(to, shown.c_str(), &size);
  const double left = side == Side::begin ? 0 : side == Side::middle ? size.x_advance / 2 : size.x_advance;
  cairo_move_to(to, at.x - left, at.y);
  ink(to, number, 1), cairo_show_text(to, shown.c_str());
}

void draw(cairo_t* to, const Scene& scene) {
  cairo_set_source_rgb(to, 1, 1, 1), cairo_paint(to);
  cairo_set_line_cap(to, CAIRO_LINE_CAP_BUTT);
  cairo_select_font_face(to, "@cairo:", CAIRO_FONT_SLANT_NORMAL, CAIRO_FONT_WEIGHT_NORMAL);
  cairo_set_font_size(to, 13);
  draw_text(to, scene.title, {8, 18}, Side::begin, ink_text);
  cairo_translate(to, 0, 20);  // the page has the title outside of the picture
  cairo_set_font_size(to, 11);
  for (const Mark& mark : scene.marks) {
    const auto& places = mark.places;
    cairo_new_path(to);  // a text leaves a point behind
    switch (mark.kind) {
      case Mark::Kind::line:
        draw_line(to, mark);
        break;
      case Mark::Kind::dot:
        draw_dot(to, mark);
        break;
      case Mark::Kind::text:
        draw_text(to, mark.text, places[0], mark.side, mark.ink);
        break;
      case Mark::Kind::area:
        cairo_rectangle(to, places[0].x, places[0].y, places[1].x - places[0].x, places[1].y - places[0].y);
        ink(to, mark.ink, 0.1), cairo_fill(to);
    }
  }
}

struct Sink {
  void (*take)(void*, const unsigned char*, size_t);
  void* to;
};

cairo_status_t write(void* sink, const unsigned char* data, unsigned size) {
  const auto& [take, to] = *static_cast<const Sink*>(sink);
  take(to, data, size);
  return CAIRO_STATUS_SUCCESS;
}

const char* make_png(const Scene& scene, double scale, void (*take)(void*, const unsigned char*, size_t), void* to) {
  const std::unique_ptr<cairo_surface_t, void (*)(cairo_surface_t*)> surface(
      cairo_image_surface_create(CAIRO_FORMAT_RGB24, static_cast<int>(scene.width * scale),
                                 static_cast<int>((scene.height + 20) * scale)),
      cairo_surface_destroy);
  const std::unique_ptr<cairo_t, void (*)(cairo_t*)> context(cairo_create(surface.get()), cairo_destroy);
  cairo_scale(context.get(), scale, scale);
  draw(context.get(), scene);
  if (const auto status = cairo_status(context.get())) return cairo_status_to_string(status);
  Sink sink{take, to};
  const auto status = cairo_surface_write_to_png_stream(surface.get(), write, &sink);
  return status ? cairo_status_to_string(status) : nullptr;
}

}  // namespace
}  // namespace curvature::report

extern "C" __attribute__((visibility("default"))) const curvature::report::CairoLibrary engine_curvature_cairo;
const curvature::report::CairoLibrary engine_curvature_cairo = {CAIRO_VERSION_STRING, curvature::report::make_png};
