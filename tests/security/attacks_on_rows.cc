// Attacks on the rows of a ps.
#include <algorithm>
#include <numeric>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/wire/grpc_status.h"
#include "proto/wire/id_list.h"
#include "proto/wire/wire_version.h"
#include "tests/security/attacks.h"
#include "tests/server/ps/table/id_of_hash.h"
#include "tests/support/wait_until.h"

namespace weir {
namespace {

constexpr uint32_t kTable = 1;
// As many rows of 16 numbers as one request may have.
constexpr uint64_t kRows = kRowBytesMax / (16 * sizeof(float));

using PullRowsStream = grpc::ClientReaderWriter<PullRowsChunk, RowChunk>;

IdList ListOf(const std::vector<uint64_t>& ids) {
  IdList list;
  list.set_table(kTable);
  list.set_count(static_cast<uint32_t>(ids.size()));
  list.set_deltas(EncodeIds(ids));
  return list;
}

// `count` ids from `begin` on, far above those of the job.
IdList ManyIds(uint64_t begin, uint64_t count) {
  std::vector<uint64_t> ids(count);
  std::iota(ids.begin(), ids.end(), (uint64_t{1} << 40) + begin);
  return ListOf(ids);
}

PullRowsChunk LookupOf(const Sender& sender, const IdList& list) {
  PullRowsChunk request;
  *request.mutable_sender() = sender;
  request.mutable_want()->set_latest(true);
  *request.add_list() = list;
  return request;
}

// Ids whose hashes begin with the same 40 bits.
absl::Status CrowdsTheIndex(const Attacker& attacker) {
  std::vector<uint64_t> ids;
  for (uint64_t i = 0; i < 700; ++i) {
    ids.push_back(IdOfHash((uint64_t{0x123456789a} << 24) | (i * 20011)));
  }
  std::sort(ids.begin(), ids.end());
  PullRowsChunk request = LookupOf(attacker.sender, ListOf(ids));
  request.set_train(true);
  return attacker.Call("/weir.ParameterServer/PullRows", request);
}

// Asks for 180 MiB of rows and reads none; gathered must be only a few.
absl::Status ReadsNoRows(const Attacker& attacker) {
  constexpr int kRequests = 60;
  const auto stub = ParameterServer::NewStub(attacker.Connect(attacker.ps));
  const auto waiting = [&] {
    grpc::ClientContext context;
    SetDeadline(&context);
    PsStatus status;
    (void)stub->GetStatus(&context, {}, &status);
    return status.waits_parked();
  };
  const absl::Status allowed =
      attacker.Call("/weir.ParameterServer/PullRows",
                    LookupOf(attacker.AsReader(), ManyIds(0, 1)));
  if (!allowed.ok()) {
    return allowed;
  }
  // What an attacker before this one left, but for what the workers wait for.
  WaitUntil([&] { return waiting() < kRequests / 4; });
  grpc::ClientContext context;
  SetDeadline(&context);
  const auto stream = stub->PullRows(&context);
  PullRowsChunk request = LookupOf(attacker.AsReader(), ManyIds(0, kRows));
  request.mutable_want()->set_timeout_ms(1000);
  for (int i = 0; i < kRequests; ++i) {
    if (!stream->Write(request)) {
      return FromGrpcStatus(stream->Finish());
    }
  }
  const bool bounded = WaitUntil([&] { return waiting() >= kRequests / 2; });
  context.TryCancel();
  (void)stream->Finish();
  return bounded ? absl::OkStatus()
                 : absl::ResourceExhaustedError("the rows were gathered");
}

// One push of 120 MiB.
absl::Status PushesWithoutEnd(const Attacker& attacker) {
  const auto stub = ParameterServer::NewStub(attacker.Connect(attacker.ps));
  grpc::ClientContext context;
  SetDeadline(&context);
  PushRowsReply reply;
  const auto stream = stub->PushRows(&context, &reply);
  PushRowsChunk chunk;
  *chunk.mutable_sender() = attacker.sender;
  // Of a step that is far ahead: it is neither late nor a duplicate.
  chunk.mutable_push()->set_base_version(uint64_t{1} << 40);
  chunk.set_payload(std::string(kRowBytesMax, '\0'));
  for (uint64_t i = 0; i < 40; ++i) {
    chunk.clear_list();
    *chunk.add_list() = ManyIds(i * kRows, kRows);
    if (!stream->Write(chunk)) {
      break;
    }
  }
  // Without `last` what came is dropped: a bound ends the stream, or its end.
  stream->WritesDone();
  const absl::Status status = FromGrpcStatus(stream->Finish());
  if (absl::IsInvalidArgument(status) &&
      !absl::StrContains(status.message(), "bytes")) {
    return absl::UnknownError(status.message());
  }
  return status;
}

// Bounds whose product with the bytes of a row is over 2^64.
absl::Status ShrinksToOverflow(const Attacker& attacker) {
  absl::Status status;
  for (const uint64_t rows_max : {(uint64_t{1} << 63) - 1, uint64_t{1} << 62,
                                  uint64_t{1} << 58, UINT64_MAX}) {
    ShrinkRequest request;
    *request.mutable_sender() = attacker.AsReader();
    request.set_rows_max(rows_max);
    ShrinkReply reply;
    status = attacker.Call("/weir.ParameterServer/Shrink", request, &reply);
    if (!status.ok()) {
      return status;
    }
    if (reply.rows() > 0) {
      return absl::DataLossError(absl::StrCat(reply.rows(), " rows dropped"));
    }
  }
  return status;
}

// Many at once; the ps answers others meanwhile, and all of them.
absl::Status AsksForHotIds(const Attacker& attacker) {
  GetStatusRequest request;
  request.set_hot_ids(1000);
  absl::Status status;
  for (int i = 0; i < 20 && status.ok(); ++i) {
    status = attacker.Call("/weir.ParameterServer/GetStatus", request);
  }
  return status;
}

// Gives a name of its own choice to a list and says it again, as it would to
// lead the update of a worker that had said the same name into other rows.
// NOT_FOUND: the ps does not keep it.
absl::Status NamesAList(const Attacker& attacker) {
  const auto stub = ParameterServer::NewStub(attacker.Connect(attacker.ps));
  grpc::ClientContext context;
  SetDeadline(&context);
  const auto stream = stub->PullRows(&context);
  PullRowsChunk request = LookupOf(attacker.sender, ManyIds(0, 10));
  request.mutable_list(0)->set_name(77);
  RowChunk answer;
  if (stream->Write(request) && stream->Read(&answer)) {
    request.mutable_list(0)->clear_deltas();
    if (stream->Write(request) && stream->Read(&answer)) {
      stream->WritesDone();
      const absl::Status status = FromGrpcStatus(stream->Finish());
      return answer.unknown_list() ? absl::NotFoundError("not kept") : status;
    }
  }
  return FromGrpcStatus(stream->Finish());
}

const Attack kAttacks[] = {
    // reader, worker, admin, anyone in insecure mode
    {"CrowdsTheIndex", CrowdsTheIndex, {kDenied, kOk, kRefused, kOk}},
    {"ReadsNoRows", ReadsNoRows, {kOk, kOk, kRefused, kOk}},
    {"PushesWithoutEnd",
     PushesWithoutEnd,
     {kRefused, kInvalid, kRefused, kInvalid}},
    {"ShrinksToOverflow", ShrinksToOverflow, {kRefused, kRefused, kOk, kOk}},
    {"AsksForHotIds", AsksForHotIds, {kRefused, kRefused, kOk, kOk}},
    // A worker has lists of its own.
    {"NamesAList",
     NamesAList,
     {absl::StatusCode::kNotFound, kOk, kRefused, kOk}},
};

}  // namespace

std::span<const Attack> AttacksOnRows() { return kAttacks; }

}  // namespace weir
