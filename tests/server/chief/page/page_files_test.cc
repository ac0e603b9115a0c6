#include "server/chief/page/page_files.h"

#include <cstddef>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

// A file of the tree, which Bazel puts below the working directory.
std::string Read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << path;
  return std::string(std::istreambuf_iterator<char>(file), {});
}

std::map<std::string, PageFile> FilesByPath() {
  std::map<std::string, PageFile> files;
  for (const PageFile& file : PageFiles()) {
    EXPECT_TRUE(files.emplace(file.path, file).second) << file.path;
  }
  return files;
}

std::string SourceOf(absl::string_view path) {
  if (path == "/") return "server/chief/page/page.html";
  if (path == "/uplot.js") return "third_party/uplot/uPlot.iife.min.js";
  if (path == "/uplot.css") return "third_party/uplot/uPlot.min.css";
  return absl::StrCat("server/chief/page", path);
}

TEST(PageFilesTest, HoldTheBytesOfTheTree) {
  for (const PageFile& file : PageFiles()) {
    EXPECT_TRUE(file.bytes == Read(SourceOf(file.path))) << file.path;
  }
}

// What an address of the page or of one of its scripts means, is there.
TEST(PageFilesTest, HaveAllThatThePageNames) {
  const std::regex reference(R"re((?:src=|href=|from )"(?:\./)?([^"#]+)")re");
  const std::map<std::string, PageFile> files = FilesByPath();
  size_t found = 0;
  for (const auto& [path, file] : files) {
    if (path == "/uplot.js") continue;
    const std::string text(file.bytes);
    for (std::sregex_iterator it(text.begin(), text.end(), reference), end;
         it != end; ++it) {
      const std::string name = (*it)[1];
      if (name == "report") continue;  // of the chief
      EXPECT_TRUE(files.count("/" + name)) << path << " names " << name;
      ++found;
    }
  }
  EXPECT_GT(found, 20u);
}

// Which the Content-Security-Policy of the admin port would refuse.
TEST(PageFilesTest, HaveNoScriptAndNoStyleInsideThePage) {
  const std::string page(FilesByPath().at("/").bytes);
  EXPECT_FALSE(absl::StrContains(page, "<style"));
  EXPECT_FALSE(absl::StrContains(page, " style="));
  EXPECT_FALSE(absl::StrContains(page, "<script>"));
  EXPECT_FALSE(absl::StrContains(page, "javascript:"));
  EXPECT_FALSE(std::regex_search(page, std::regex(R"( on[a-z]+=)")));
}

// What comes from a report may only be text, never HTML.
TEST(PageFilesTest, MakeNoHtmlOfTexts) {
  for (const PageFile& file : PageFiles()) {
    if (file.path == "/uplot.js") continue;
    for (const char* way : {"innerHTML", "outerHTML", "insertAdjacentHTML",
                            "document.write", "eval("}) {
      EXPECT_FALSE(absl::StrContains(file.bytes, way))
          << file.path << " has " << way;
    }
  }
}

TEST(PageFilesTest, SayWhatTheyAre) {
  const std::map<std::string, PageFile> files = FilesByPath();
  EXPECT_EQ(files.at("/").content_type, "text/html; charset=utf-8");
  EXPECT_EQ(files.at("/page.css").content_type, "text/css; charset=utf-8");
  EXPECT_EQ(files.at("/page.js").content_type,
            "text/javascript; charset=utf-8");
  EXPECT_EQ(files.at("/icon.svg").content_type, "image/svg+xml");
}

}  // namespace
}  // namespace weir
