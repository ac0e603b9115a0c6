#include "server/chief/page/page_files.h"

#include <cstddef>

#include "server/chief/page/page_bytes.h"

namespace weir {
namespace {

constexpr absl::string_view kHtml = "text/html; charset=utf-8";
constexpr absl::string_view kCss = "text/css; charset=utf-8";
constexpr absl::string_view kJs = "text/javascript; charset=utf-8";
constexpr absl::string_view kSvg = "image/svg+xml";

// A literal without the 0 at its end; its length needs no search.
template <size_t size>
constexpr absl::string_view Text(const char (&literal)[size]) {
  return absl::string_view(literal, size - 1);
}

constexpr PageFile kFiles[] = {
    {"/", kHtml, Text(kPageHtml)},
    {"/page.css", kCss, Text(kPageCss)},
    {"/uplot.css", kCss, Text(kUPlotMinCss)},
    {"/values.js", kJs, Text(kValuesJs)},
    {"/dom.js", kJs, Text(kDomJs)},
    {"/heat.js", kJs, Text(kHeatJs)},
    {"/charts.js", kJs, Text(kChartsJs)},
    {"/workers.js", kJs, Text(kWorkersJs)},
    {"/feed.js", kJs, Text(kFeedJs)},
    {"/sections.js", kJs, Text(kSectionsJs)},
    {"/uplot.js", kJs, Text(kUPlotIifeMinJs)},
    {"/page.js", kJs, Text(kPageJs)},
    {"/icon.svg", kSvg, Text(kIconSvg)},
};

}  // namespace

std::span<const PageFile> PageFiles() { return kFiles; }

}  // namespace weir
