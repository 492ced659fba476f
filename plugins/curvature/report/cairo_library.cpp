// SPDX-License-Identifier: Apache-2.0
// The only file that knows cairo, FreeType and the font, DejaVu Sans, whose bytes are part of the library.
#include <cairo-ft.h>
#include <cairo-pdf.h>

#include <cmath>
#include <memory>

#include "picture.hpp"

__asm__(
    ".pushsection .rodata\n"
    ".hidden curvature_font\n.globl curvature_font\n.hidden curvature_font_end\n.globl curvature_font_end\n"
    "curvature_font:\n.incbin \"" CURVATURE_FONT
    "\"\ncurvature_font_end:\n"
    ".popsection\n");
extern "C" const unsigned char curvature_font[], curvature_font_end[];

namespace curvature::report {
namespace {

constexpr double pi = 3.14159265358979323846;

void ink(cairo_t* to, int number, double opacity) {
  const unsigned rgb = charts::colours[number].light;
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
  cairo_text_extents_t size;
  cairo_text_extents(to, text.c_str(), &size);
  const double left = side == Side::begin ? 0 : side == Side::middle ? size.x_advance / 2 : size.x_advance;
  cairo_move_to(to, at.x - left, at.y);
  ink(to, number, 1), cairo_show_text(to, text.c_str());
}

// Kept for ever, as cairo keeps letters of it. NULL if FreeType refuses it.
cairo_font_face_t* font() {
  static cairo_font_face_t* const face = []() -> cairo_font_face_t* {
    static FT_Library library;
    static FT_Face read;
    if (FT_Init_FreeType(&library) ||
        FT_New_Memory_Face(library, curvature_font, static_cast<FT_Long>(curvature_font_end - curvature_font), 0,
                           &read))
      return nullptr;
    return cairo_ft_font_face_create_for_ft_face(read, FT_LOAD_DEFAULT);
  }();
  return face;
}

void draw_mark(cairo_t* to, const Mark& mark) {
  const auto& places = mark.places;
  cairo_new_path(to);  // a text leaves a point behind
  switch (mark.kind) {
    case Mark::Kind::line:
      return draw_line(to, mark);
    case Mark::Kind::dot:
      return draw_dot(to, mark);
    case Mark::Kind::text:
      return draw_text(to, mark.text, places[0], mark.side, mark.ink);
    case Mark::Kind::area:
      cairo_rectangle(to, places[0].x, places[0].y, places[1].x - places[0].x, places[1].y - places[0].y);
      ink(to, mark.ink, mark.strength), cairo_fill(to);
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

const char* draw(const Scene& scene, Medium medium, void (*take)(void*, const unsigned char*, size_t), void* to) {
  Sink sink{take, to};
  const bool pdf = medium == Medium::pdf;
  const double scale = pdf ? points_per_unit : pixels_per_unit;
  const std::unique_ptr<cairo_surface_t, void (*)(cairo_surface_t*)> surface(
      pdf ? cairo_pdf_surface_create_for_stream(write, &sink, scene.width * scale, scene.height * scale)
          : cairo_image_surface_create(CAIRO_FORMAT_RGB24, static_cast<int>(std::ceil(scene.width * scale)),
                                       static_cast<int>(std::ceil(scene.height * scale))),
      cairo_surface_destroy);
  if (pdf) {
    cairo_pdf_surface_set_metadata(surface.get(), CAIRO_PDF_METADATA_TITLE, scene.title.c_str());
    cairo_pdf_surface_set_metadata(surface.get(), CAIRO_PDF_METADATA_CREATE_DATE, "");  // equal scenes, equal bytes
  }
  const std::unique_ptr<cairo_t, void (*)(cairo_t*)> context(cairo_create(surface.get()), cairo_destroy);
  cairo_t* const on = context.get();
  if (!font()) return "FreeType cannot read the font inside cairo.curvature.so";
  const std::unique_ptr<cairo_font_options_t, void (*)(cairo_font_options_t*)> options(cairo_font_options_create(),
                                                                                       cairo_font_options_destroy);
  cairo_font_options_set_hint_style(options.get(), CAIRO_HINT_STYLE_NONE);
  cairo_font_options_set_hint_metrics(options.get(), CAIRO_HINT_METRICS_OFF);  // texts are as wide in each medium
  cairo_font_options_set_antialias(options.get(), CAIRO_ANTIALIAS_GRAY);
  cairo_set_font_options(on, options.get());
  cairo_set_font_face(on, font()), cairo_set_font_size(on, letter_height);
  cairo_scale(on, scale, scale);
  cairo_set_source_rgb(on, 1, 1, 1), cairo_paint(on);
  for (const Mark& mark : scene.marks) draw_mark(on, mark);
  if (pdf) cairo_show_page(on), cairo_surface_finish(surface.get());
  if (const auto status = cairo_status(on)) return cairo_status_to_string(status);
  const auto status =
      pdf ? cairo_surface_status(surface.get()) : cairo_surface_write_to_png_stream(surface.get(), write, &sink);
  return status ? cairo_status_to_string(status) : nullptr;
}

}  // namespace
}  // namespace curvature::report

extern "C" __attribute__((visibility("default"))) const curvature::report::CairoLibrary engine_curvature_cairo;
const curvature::report::CairoLibrary engine_curvature_cairo = {CAIRO_VERSION_STRING, curvature::report::draw};
