#include "client/cc/parameters/table_client.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "proto/wire/id_list.h"
#include "proto/wire/value_encoding.h"

namespace weir {
namespace {

constexpr std::chrono::milliseconds kWaitStep{100};
constexpr std::chrono::milliseconds kLookupTimeout{2000};
// Pieces asked for ahead, so that the ps gathers one while another travels and
// a third is decoded here.
constexpr int kInFlightMax = 4;
// Names of lists that are remembered for each shard. It bounds this side's
// memory only: the shard bounds its own by bytes, and says when it has
// forgotten a list.
constexpr size_t kKnownMax = 4096;

}  // namespace

absl::StatusOr<std::unique_ptr<TableClient>> TableClient::Create(
    Options options) {
  if (options.transport == nullptr || options.addresses.empty() ||
      options.piece_bytes < 1 ||
      options.piece_bytes > static_cast<int64_t>(kRowBytesMax)) {
    return absl::InvalidArgumentError(
        absl::StrCat("a table client of ", options.addresses.size(),
                     " shards, pieces of ", options.piece_bytes, " bytes"));
  }
  std::unique_ptr<TableClient> client(new TableClient(std::move(options)));
  for (int s = 0; s < static_cast<int>(client->shards_.size()); ++s) {
    for (const Kind kind : {Kind::kLookup, Kind::kUpdate}) {
      client->shards_[static_cast<size_t>(s)]
          ->lanes[static_cast<size_t>(kind)]
          .thread =
          std::thread([raw = client.get(), s, kind] { raw->Run(s, kind); });
    }
  }
  return client;
}

TableClient::TableClient(Options options) : options_(std::move(options)) {
  for (const std::string& address : options_.addresses) {
    shards_.push_back(std::make_unique<Shard>(options_.lost_after));
    shards_.back()->link = options_.transport->ConnectData(address);
  }
}

TableClient::~TableClient() {
  {
    MutexLock lock(&mutex_);
    stop_ = true;
    // A thread may be blocked in its stream, wait for work, or sleep before
    // another try: each is woken in its own way.
    for (const std::unique_ptr<Shard>& shard : shards_) {
      if (shard->stream != nullptr) {
        shard->stream->Cancel();
      }
      for (Lane& lane : shard->lanes) {
        lane.wake.NotifyAll();
      }
    }
    stopping_.NotifyAll();
  }
  for (const std::unique_ptr<Shard>& shard : shards_) {
    for (Lane& lane : shard->lanes) {
      lane.thread.join();
    }
  }
}

// ----------------------------------------------------------- cutting lists

absl::Status TableClient::Check(int table,
                                std::span<const uint64_t> ids) const {
  if (table < 0 || table >= static_cast<int>(options_.tables.size())) {
    return absl::InvalidArgumentError(absl::StrCat(
        "table ", table, " of ", options_.tables.size(), " tables"));
  }
  for (size_t i = 1; i < ids.size(); ++i) {
    if (ids[i] <= ids[i - 1]) {
      return absl::InvalidArgumentError(absl::StrCat(
          "table '", options_.tables[static_cast<size_t>(table)].name(),
          "': ids must ascend, each once; ", ids[i - 1], " is before ",
          ids[i]));
    }
  }
  return absl::OkStatus();
}

std::vector<std::vector<TableClient::Piece>> TableClient::Cut(
    std::span<const RowList> lists, RowUse use) const {
  std::vector<std::vector<Piece>> pieces =
      CutRows(lists, options_.tables, static_cast<int>(shards_.size()),
              options_.piece_bytes, use);
  for (std::vector<Piece>& of_shard : pieces) {
    if (of_shard.empty()) {
      // A lookup asks every shard for its version, and an update moves the
      // mark of every shard, also if it has none of the rows.
      of_shard.emplace_back();
    }
  }
  return pieces;
}

IdList TableClient::ListOf(int shard, const Part& part) {
  IdList list;
  list.set_table(static_cast<uint32_t>(part.table));
  list.set_count(static_cast<uint32_t>(part.ids.size()));
  list.set_name(part.name);
  // I2: the name is enough where the shard has the list. Should it have
  // forgotten, its answer says unknown_list, and the list is sent after all.
  bool known = false;
  {
    MutexLock lock(&mutex_);
    known = shards_[static_cast<size_t>(shard)]->known.contains(
        {part.name, static_cast<uint32_t>(part.table)});
  }
  if (!known) {
    list.set_deltas(EncodeIds(part.ids));
  }
  return list;
}

void TableClient::Remember(int shard, const Part& part) {
  MutexLock lock(&mutex_);
  auto& known = shards_[static_cast<size_t>(shard)]->known;
  if (known.size() >= kKnownMax) {
    known.clear();  // costs one list each, the next time
  }
  known.insert({part.name, static_cast<uint32_t>(part.table)});
}

// ----------------------------------------------------------------- threads

void TableClient::Start(Kind kind) {
  const int64_t now_ns = options_.clock->NowNs();
  for (const std::unique_ptr<Shard>& shard : shards_) {
    Lane& lane = shard->lanes[static_cast<size_t>(kind)];
    lane.busy = true;
    lane.status = absl::OkStatus();
    // The time until now was no silence of the ps: nothing was asked. An update
    // needs no watch, since its call ends by itself.
    if (kind == Kind::kLookup) {
      shard->watch.Heard(now_ns);
      shard->lost = false;
    }
    lane.wake.NotifyAll();
  }
}

void TableClient::Run(int s, Kind kind) {
  Lane& lane =
      shards_[static_cast<size_t>(s)]->lanes[static_cast<size_t>(kind)];
  while (true) {
    {
      MutexLock lock(&mutex_);
      while (!lane.busy && !stop_) {
        lane.wake.Wait(&mutex_);
      }
      if (stop_) {
        return;
      }
    }
    absl::Status status = kind == Kind::kLookup ? RunLookup(s) : RunUpdate(s);
    MutexLock lock(&mutex_);
    lane.status = std::move(status);
    lane.busy = false;
    changed_.NotifyAll();
  }
}

absl::Status TableClient::Wait(Kind kind) {
  const auto lane = static_cast<size_t>(kind);
  while (true) {
    bool busy = false;
    {
      MutexLock lock(&mutex_);
      for (const std::unique_ptr<Shard>& shard : shards_) {
        busy = busy || shard->lanes[lane].busy;
        // The caller waits here anyway, so it watches for lost shards; the
        // threads may be blocked in Receive.
        if (kind == Kind::kLookup && shard->lanes[lane].busy) {
          Look(shard.get());
        }
      }
      if (busy) {
        changed_.WaitFor(&mutex_, kWaitStep);
      } else {
        for (const std::unique_ptr<Shard>& shard : shards_) {
          WEIR_RETURN_IF_ERROR(shard->lanes[lane].status);
        }
        return absl::OkStatus();
      }
    }
    // Without the lock: on_wait may take ChiefClient's, which comes before this
    // one in the order of locks, or run Python.
    if (options_.on_wait) {
      WEIR_RETURN_IF_ERROR(options_.on_wait());
    }
  }
}

void TableClient::Interrupt(const absl::Status& status) {
  MutexLock lock(&mutex_);
  interrupted_ = status;
  // Only lookups end: they wait for values. An update must be settled on every
  // shard, or its contribution would be torn.
  for (const std::unique_ptr<Shard>& shard : shards_) {
    if (shard->lanes[static_cast<size_t>(Kind::kLookup)].busy &&
        shard->stream != nullptr) {
      shard->stream->Cancel();
    }
  }
  stopping_.NotifyAll();
}

// ----------------------------------------------------------------- lookups

absl::Status TableClient::StartLookup(const Want& want, bool train,
                                      std::span<const Wanted> wanted) {
  std::vector<RowList> lists;
  for (const Wanted& list : wanted) {
    WEIR_RETURN_IF_ERROR(Check(list.table, list.ids));
    lists.push_back({list.table, list.ids});
  }
  std::vector<std::vector<Piece>> pieces = Cut(lists, RowUse::kLookup);
  MutexLock lock(&mutex_);
  WEIR_RETURN_IF_ERROR(interrupted_);
  want_ = want;
  want_.set_timeout_ms(static_cast<uint32_t>(kLookupTimeout.count()));
  train_ = train;
  wanted_.assign(wanted.begin(), wanted.end());
  lookup_pieces_ = std::move(pieces);
  Start(Kind::kLookup);
  return absl::OkStatus();
}

absl::StatusOr<TableClient::Versions> TableClient::WaitLookup() {
  WEIR_RETURN_IF_ERROR(Wait(Kind::kLookup));
  Versions versions;
  MutexLock lock(&mutex_);
  for (const std::unique_ptr<Shard>& shard : shards_) {
    versions.push_back(shard->version);
  }
  return versions;
}

absl::Status TableClient::RunLookup(int s) {
  Shard& shard = *shards_[static_cast<size_t>(s)];
  std::vector<Piece>& pieces = lookup_pieces_[static_cast<size_t>(s)];
  {
    MutexLock lock(&mutex_);
    shard.version = ~uint64_t{0};  // Take keeps the smallest of the pieces
  }
  RetryPolicy retry(options_.lost_after);
  while (true) {
    std::shared_ptr<PullRowsStream> stream;
    {
      MutexLock lock(&mutex_);
      WEIR_RETURN_IF_ERROR(interrupted_);
      stream = shard.stream;
    }
    if (stream == nullptr) {
      stream = shard.link->OpenPullRows();  // may ask the ps: no lock is held
      MutexLock lock(&mutex_);
      WEIR_RETURN_IF_ERROR(interrupted_);
      if (stop_) {
        return absl::CancelledError("the table client ends");
      }
      shard.stream = stream;
    }
    absl::Status status;
    int in_flight = 0;
    size_t left = 0;
    for (const Piece& piece : pieces) {
      if (!piece.done) {
        ++left;  // rows that came before the stream broke are not asked again
      }
    }
    while (status.ok() && left > 0) {
      for (size_t i = 0;
           i < pieces.size() && in_flight < kInFlightMax && status.ok(); ++i) {
        if (!pieces[i].done && !pieces[i].sent) {
          status = Ask(s, &pieces[i], static_cast<uint32_t>(i));
          ++in_flight;
        }
      }
      RowChunk header;
      Payload payload;
      if (status.ok()) {
        status = stream->Receive(&header, &payload);
      }
      if (status.ok()) {
        retry.OnAnswer();
        --in_flight;
        status = CheckIncarnation(s, header.incarnation());
      }
      if (status.ok()) {
        status = Take(s, header, payload);
      }
      if (status.ok() && pieces[header.request()].done) {
        --left;
      }
    }
    if (status.ok()) {
      return absl::OkStatus();
    }
    {
      MutexLock lock(&mutex_);
      shard.stream = nullptr;
    }
    for (Piece& piece : pieces) {
      piece.sent = false;  // the answer went with the stream: ask again
    }
    WEIR_RETURN_IF_ERROR(BeforeRetry(s, status, &retry));
  }
}

absl::Status TableClient::Ask(int s, Piece* piece, uint32_t request) {
  PullRowsChunk chunk;
  *chunk.mutable_sender() = options_.sender;
  *chunk.mutable_want() = want_;
  chunk.set_train(train_);
  chunk.set_request(request);
  chunk.mutable_want()->set_encoding(piece->encoding);
  for (const Part& part : piece->parts) {
    *chunk.add_list() = ListOf(s, part);
  }
  piece->sent = true;
  return shards_[static_cast<size_t>(s)]->stream->Send(chunk, {}, nullptr);
}

absl::Status TableClient::Take(int s, const RowChunk& header,
                               const Payload& payload) {
  Shard& shard = *shards_[static_cast<size_t>(s)];
  std::vector<Piece>& pieces = lookup_pieces_[static_cast<size_t>(s)];
  // The number comes from the ps; an answer to nothing must not write rows.
  if (header.request() >= pieces.size() || !pieces[header.request()].sent) {
    return absl::InternalError(absl::StrCat(
        "answered request ", header.request(), " of ", pieces.size()));
  }
  Piece& piece = pieces[header.request()];
  piece.sent = false;
  {
    MutexLock lock(&mutex_);
    shard.watch.Heard(options_.clock->NowNs());
    if (header.unknown_list()) {
      for (const Part& part : piece.parts) {
        // I2: the shard does not keep it any more.
        shard.known.erase({part.name, static_cast<uint32_t>(part.table)});
      }
    }
  }
  if (header.not_yet() || header.unknown_list()) {
    return absl::OkStatus();  // asked again
  }
  const auto floats = static_cast<size_t>(piece.floats);
  if (payload.bytes() != EncodedBytes(header.encoding(), floats)) {
    return absl::InternalError(absl::StrCat("answered with ", payload.bytes(),
                                            " bytes for ", floats, " floats"));
  }
  std::vector<float> decoded;
  // If a list's rows of one shard lie side by side, they are decoded there.
  const bool in_place =
      piece.parts.size() == 1 && piece.parts[0].places.empty();
  float* rows = nullptr;
  if (in_place) {
    const Part& only = piece.parts[0];
    rows = wanted_[only.wanted].rows +
           only.first * static_cast<size_t>(dim(only.table));
  } else {
    decoded.resize(floats);
    rows = decoded.data();
  }
  if (floats > 0) {
    WEIR_RETURN_IF_ERROR(
        DecodeFloats(payload, header.encoding(), floats, rows));
  }
  for (const Part& part : piece.parts) {
    const auto width = static_cast<size_t>(dim(part.table));
    for (size_t i = 0; !in_place && i < part.ids.size(); ++i, rows += width) {
      std::memcpy(wanted_[part.wanted].rows + part.PlaceOf(i) * width, rows,
                  width * sizeof(float));
    }
    Remember(s, part);
  }
  piece.done = true;
  MutexLock lock(&mutex_);
  // The oldest counts: a gradient is as stale as its stalest row.
  shard.version = std::min(shard.version, header.version());
  counters_.bytes_received += payload.bytes();
  return absl::OkStatus();
}

ClientCounters TableClient::counters() const {
  MutexLock lock(&mutex_);
  return counters_;
}

}  // namespace weir
