#include "common/base/printable.h"

#include <cstdint>

#include "absl/strings/str_format.h"

namespace weir {
namespace {

constexpr char kCut[] = "...";
constexpr size_t kCutBytes = sizeof(kCut) - 1;

// How many bytes the character at the begin of `text` has, 0 if it is no UTF-8.
// REQUIRES: text is not empty.
size_t CharacterBytes(absl::string_view text, uint32_t* character) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  size_t bytes = 1;
  uint32_t least = 0;
  *character = byte(0);
  if (byte(0) >= 0x80) {
    if ((byte(0) & 0xe0) == 0xc0) {
      bytes = 2;
      least = 0x80;
      *character = byte(0) & 0x1fu;
    } else if ((byte(0) & 0xf0) == 0xe0) {
      bytes = 3;
      least = 0x800;
      *character = byte(0) & 0x0fu;
    } else if ((byte(0) & 0xf8) == 0xf0) {
      bytes = 4;
      least = 0x10000;
      *character = byte(0) & 0x07u;
    } else {
      return 0;
    }
  }
  for (size_t i = 1; i < bytes; ++i) {
    if (i >= text.size() || (byte(i) & 0xc0) != 0x80) {
      return 0;
    }
    *character = *character << 6 | (byte(i) & 0x3fu);
  }
  // A longer spelling than needed could hide a character from a search.
  const bool surrogate = *character >= 0xd800 && *character <= 0xdfff;
  return *character < least || *character > 0x10ffff || surrogate ? 0 : bytes;
}

// Control characters, separators of lines, and marks of direction.
bool MustEscape(uint32_t character) {
  return character < 0x20 || (character >= 0x7f && character < 0xa0) ||
         character == 0x061c || character == 0x200e || character == 0x200f ||
         (character >= 0x2028 && character <= 0x202e) ||
         (character >= 0x2066 && character <= 0x2069);
}

std::string Escaped(absl::string_view bytes) {
  if (bytes == "\n") {
    return "\\n";
  }
  if (bytes == "\r") {
    return "\\r";
  }
  if (bytes == "\t") {
    return "\\t";
  }
  std::string escaped;
  for (const char byte : bytes) {
    escaped += absl::StrFormat("\\x%02x", static_cast<uint8_t>(byte));
  }
  return escaped;
}

}  // namespace

std::string Printable(absl::string_view text, size_t bytes_max) {
  std::string printable;
  size_t room_for_cut = 0;  // where "..." may replace the rest
  while (!text.empty()) {
    uint32_t character = 0;
    size_t bytes = CharacterBytes(text, &character);
    const bool escape = bytes == 0 || MustEscape(character);
    bytes = bytes == 0 ? 1 : bytes;
    const absl::string_view next = text.substr(0, bytes);
    printable += escape ? Escaped(next) : std::string(next);
    if (printable.size() > bytes_max) {
      printable.resize(room_for_cut);
      printable += kCut;
      break;
    }
    if (printable.size() + kCutBytes <= bytes_max) {
      room_for_cut = printable.size();
    }
    text.remove_prefix(bytes);
  }
  return printable;
}

}  // namespace weir
