// Attacks on a chief.
#include <cstdint>

#include "proto/wire/grpc_status.h"
#include "tests/security/attacks.h"

namespace weir {
namespace {

// A chief that was restarted says the same to workers that it does not know.
constexpr absl::StatusCode kNoGrant = absl::StatusCode::kUnavailable;
constexpr absl::StatusCode kNoMethod = absl::StatusCode::kUnimplemented;

constexpr char kRegister[] = "/weir.Chief/Register";

// A method that there once was.
absl::Status StopsTheJob(const Attacker& attacker) {
  return attacker.Call("/weir.Chief/RequestStop", Stop());
}

// What is refused of a job might tell what the job is.
absl::Status AsksWhatTheJobIs(const Attacker& attacker) {
  RegisterRequest request = attacker.Registration();
  request.clear_job_spec();
  request.clear_variable();
  return attacker.Call(kRegister, request);
}

absl::Status TakesAnothersPlace(const Attacker& attacker) {
  RegisterRequest request = attacker.Registration();
  request.set_rank(0);
  return attacker.Call(kRegister, request);
}

// For the patterns of parameter groups, which once needed stack for each byte.
absl::Status NamesALongVariable(const Attacker& attacker) {
  RegisterRequest request = attacker.Registration();
  request.mutable_variable(0)->set_name(std::string(200000, 'a'));
  return attacker.Call(kRegister, request);
}

// Sends a heartbeat as worker 0 without its capability.
absl::Status SpeaksAsAnother(const Attacker& attacker, Progress progress) {
  progress.set_slot(0);
  progress.set_generation(1);
  progress.set_capability_high(attacker.sender.capability_high());
  progress.set_capability_low(attacker.sender.capability_low());
  return attacker.Call("/weir.Chief/Heartbeat", progress);
}

absl::Status SaysThatAnotherIsDone(const Attacker& attacker) {
  Progress progress;
  progress.set_next_sequence(UINT64_MAX);
  progress.set_out_of_work(true);
  return SpeaksAsAnother(attacker, progress);
}

absl::Status SaysThatAnotherFailed(const Attacker& attacker) {
  Progress progress;
  progress.set_error("disk on fire");
  progress.set_error_code(3);
  return SpeaksAsAnother(attacker, progress);
}

// 3 million reports of steps that are far ahead, in its own name.
absl::Status ReportsWithoutEnd(const Attacker& attacker) {
  const auto stub = Chief::NewStub(attacker.Connect(attacker.chief));
  grpc::ClientContext context;
  SetDeadline(&context);
  const auto stream = stub->Heartbeat(&context);
  Progress progress;
  progress.set_slot(attacker.sender.slot());
  progress.set_generation(attacker.sender.generation());
  progress.set_capability_high(attacker.sender.capability_high());
  progress.set_capability_low(attacker.sender.capability_low());
  const uint64_t last = attacker.spec.train().steps() - 1;
  for (uint64_t i = 0; i < 20; ++i) {
    progress.clear_report();
    for (uint64_t j = 0; j < 150000; ++j) {
      ContributionReport* const report = progress.add_report();
      report->set_contribution(last - i * 150000 - j);
      report->set_rows(1);
    }
    if (!stream->Write(progress)) {
      break;
    }
  }
  stream->WritesDone();
  Command command;
  while (stream->Read(&command)) {
  }
  return FromGrpcStatus(stream->Finish());
}

const Attack kAttacks[] = {
    // reader, worker, admin, anyone in insecure mode
    {"StopsTheJob", StopsTheJob, {kNoMethod, kNoMethod, kNoMethod, kNoMethod}},
    {"AsksWhatTheJobIs",
     AsksWhatTheJobIs,
     {kRefused, kInvalid, kRefused, kInvalid}},
    // Left out: where nobody proves anything, anyone may be any worker.
    {"TakesAnothersPlace",
     TakesAnothersPlace,
     {kRefused, kRefused, kRefused, std::nullopt}},
    {"NamesALongVariable",
     NamesALongVariable,
     {kRefused, kInvalid, kRefused, kInvalid}},
    {"SaysThatAnotherIsDone",
     SaysThatAnotherIsDone,
     {kRefused, kNoGrant, kRefused, kNoGrant}},
    {"SaysThatAnotherFailed",
     SaysThatAnotherFailed,
     {kRefused, kNoGrant, kRefused, kNoGrant}},
    {"ReportsWithoutEnd", ReportsWithoutEnd, {kRefused, kOk, kRefused, kOk}},
};

}  // namespace

std::span<const Attack> AttacksOnChief() { return kAttacks; }

}  // namespace weir
