#include "server/ps/table/row_slab.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "common/base/check.h"

namespace weir {
namespace {

constexpr uint32_t kMinRowsPerChunk = 8;

size_t RowBytes(int row_floats) {
  const size_t bytes =
      sizeof(RowHeader) + sizeof(float) * static_cast<size_t>(row_floats);
  return (bytes + alignof(RowHeader) - 1) / alignof(RowHeader) *
         alignof(RowHeader);
}

}  // namespace

RowSlab::RowSlab(Arena* arena, int row_floats, size_t chunk_bytes)
    : arena_(arena),
      row_bytes_(RowBytes(row_floats)),
      shift_(
          std::bit_width(static_cast<uint32_t>(std::clamp<size_t>(
              chunk_bytes / row_bytes_, kMinRowsPerChunk, kMaxRowsPerChunk))) -
          1),
      mask_((uint32_t{1} << shift_) - 1) {}

RowSlab::~RowSlab() {
  for (char* chunk : chunks_) {
    arena_->Free(chunk, chunk_memory());
  }
}

int64_t RowSlab::chunk_bytes() const {
  return static_cast<int64_t>(chunk_memory() + sizeof(Chunk) + sizeof(char*) +
                              sizeof(uint32_t));
}

void RowSlab::AddChunk(void* memory) {
  const uint32_t chunk = static_cast<uint32_t>(chunks_.size());
  // Row numbers have 32 bits; the largest stands for none.
  WEIR_CHECK(chunk < (uint32_t{1} << (31 - shift_)));
  if (memory == nullptr) {
    memory = arena_->Allocate(chunk_memory());
  }
  chunks_.push_back(static_cast<char*>(memory));
  if (states_.size() < chunks_.size()) {
    states_.emplace_back();
  }
  for (uint32_t i = 0; i < rows_per_chunk(); ++i) {
    Free((chunk << shift_) + i);
  }
}

uint32_t RowSlab::Allocate() {
  while (true) {
    // From one chunk until it is full, so that the others can empty and go
    // back. A chunk without a free row, full or released, leaves the list here.
    const uint32_t chunk = with_free_.back();
    Chunk& state = states_[chunk];
    if (state.free_count == 0) {
      state.listed = false;
      with_free_.pop_back();
      continue;
    }
    --state.free_count;
    --free_rows_;
    for (uint32_t word = 0;; ++word) {
      if (state.free[word] != 0) {
        const uint32_t bit =
            static_cast<uint32_t>(std::countr_zero(state.free[word]));
        state.free[word] &= state.free[word] - 1;
        return (chunk << shift_) + word * 64 + bit;
      }
    }
  }
}

void RowSlab::Free(uint32_t row) {
  const uint32_t chunk = row >> shift_;
  const uint32_t place = row & mask_;
  Chunk& state = states_[chunk];
  state.free[place / 64] |= uint64_t{1} << (place % 64);
  ++state.free_count;
  ++free_rows_;
  if (!state.listed) {
    state.listed = true;
    with_free_.push_back(chunk);
  }
}

bool RowSlab::ReleaseChunk(
    const std::function<void(uint32_t from, uint32_t to)>& moved) {
  if (chunks_.empty() || free_rows_ < rows_per_chunk()) {
    return false;
  }
  // Its free rows are taken away first, so that Allocate finds places in the
  // other chunks only.
  const uint32_t last = static_cast<uint32_t>(chunks_.size()) - 1;
  Chunk& state = states_[last];
  const auto was_free = state.free;
  free_rows_ -= state.free_count;
  state.free_count = 0;
  state.free = {};
  for (uint32_t i = 0; i < rows_per_chunk(); ++i) {
    if ((was_free[i / 64] >> (i % 64) & 1) != 0) {
      continue;
    }
    // I1: here alone a row moves, and `moved` tells the index.
    const uint32_t from = (last << shift_) + i;
    const uint32_t to = Allocate();
    std::memcpy(At(to), At(from), row_bytes_);
    moved(from, to);
  }
  arena_->Free(chunks_.back(), chunk_memory());
  chunks_.pop_back();
  return true;
}

}  // namespace weir
