#include "server/ps/rows/row_lookup.h"

#include <bit>
#include <utility>

#include "common/base/exhausted.h"
#include "common/base/status.h"
#include "common/trace/trace.h"
#include "proto/wire/value_encoding.h"

namespace weir {
namespace {

// The size of a buffer for that many floats. An arena uses freed memory for the
// same size only, so that the sizes which peers may ask for must be few.
int64_t BufferFloats(int64_t floats) {
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(floats)));
}

absl::StatusOr<BlockRef> MakeBuffer(Arena* arena, int64_t floats,
                                    const AnswerBudget::Room& room) {
  return OrExhausted([&]() -> absl::StatusOr<BlockRef> {
    return BlockRef::Make(arena, BufferFloats(floats), room);
  });
}

}  // namespace

int64_t RowLookup::bytes() const {
  int64_t bytes = 0;
  for (const Ids& list : ids) {
    bytes += BytesOf(list);
  }
  return bytes;
}

int64_t RowLookup::answer_bytes() const {
  if (floats == 0) {
    return 0;
  }
  return static_cast<int64_t>(
      EncodedBytes(request.want().encoding(), static_cast<size_t>(floats)));
}

RowLookup MakeLookup(const Declaration& declaration,
                     const PullRowsChunk& request, std::vector<Ids> ids,
                     PullRowsDone done) {
  // It keeps the decoded ids, not their encoded lists as well.
  RowLookup lookup;
  *lookup.request.mutable_sender() = request.sender();
  *lookup.request.mutable_want() = request.want();
  lookup.request.set_train(request.train());
  lookup.request.set_request(request.request());
  lookup.ids = std::move(ids);
  lookup.done = std::move(done);
  for (size_t i = 0; i < lookup.ids.size(); ++i) {
    const uint32_t t = request.list(static_cast<int>(i)).table();
    lookup.request.add_list()->set_table(t);
    lookup.floats += static_cast<int64_t>(lookup.ids[i]->size()) *
                     declaration.table(static_cast<int>(t)).dim();
  }
  return lookup;
}

absl::StatusOr<BlockRef> CopyRows(const RowSources& sources,
                                  const RowLookup& lookup,
                                  const RowReading& reading) {
  const TraceSpan span("read rows");
  if (lookup.floats == 0) {
    return BlockRef();
  }
  const PullRowsChunk& request = lookup.request;
  // Only what leaves as it is needs memory that clients on this host map, and
  // holds its room.
  const bool leaves = request.want().encoding() == F32;
  Arena* const arena = leaves ? sources.arena : Arena::Heap();
  WEIR_ASSIGN_OR_RETURN(
      BlockRef rows,
      MakeBuffer(arena, lookup.floats, leaves ? reading.room : nullptr));
  float* out = rows.data();
  for (size_t i = 0; i < lookup.ids.size(); ++i) {
    const size_t t = request.list(static_cast<int>(i)).table();
    Table& table = *sources.tables[t];
    const std::vector<uint64_t>& ids = *lookup.ids[i];
    // A repeated step trains from the version before: it must not touch the
    // rows of this one.
    Table::Mode mode = Table::Mode::kRead;
    if (request.train() && reading.from == Readable::kNow) {
      mode = Table::Mode::kTrain;
    }
    // The ids were checked, so this cannot fail.
    (void)table.Lookup(ids, mode, out);
    const int dim = table.options().dim;
    if (reading.from == Readable::kPrevious) {
      sources.before[t].Overwrite(ids, dim, out);
    }
    sources.looked_up[t].fetch_add(ids.size(), std::memory_order_relaxed);
    out += ids.size() * static_cast<size_t>(dim);
  }
  return rows;
}

absl::StatusOr<BlockRef> EncodeRows(const RowSources& sources,
                                    const RowLookup& lookup,
                                    const RowReading& reading, BlockRef rows) {
  const Encoding encoding = lookup.request.want().encoding();
  if (encoding == F32 || !rows) {
    return rows;
  }
  const int64_t floats =
      (lookup.answer_bytes() + 3) / static_cast<int64_t>(sizeof(float));
  WEIR_ASSIGN_OR_RETURN(BlockRef encoded,
                        MakeBuffer(sources.arena, floats, reading.room));
  EncodeFloats(rows.data(), static_cast<size_t>(lookup.floats), encoding,
               reinterpret_cast<char*>(encoded.data()));
  return encoded;
}

}  // namespace weir
