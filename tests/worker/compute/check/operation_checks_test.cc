// Shows that the checks can fail: the CPU backend, broken one way at a time.
#include "worker/compute/check/operation_checks.h"

#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/compute/cpu/cpu_backend.h"
#include "worker/compute/cpu/dnnl_ops.h"

namespace weir {
namespace {

using testing::HasSubstr;

enum class Fault {
  kNone,
  kWritesBehind,
  kWritesBefore,
  kWritesInput,
  kLeavesLast,
  kReadsBehind,
  kReports,
  kNoMemory,
  kForgetsAddress,
};

class Faulty : public CpuBackend {
 public:
  explicit Faulty(Fault fault, float factor = 1.0f)
      : CpuBackend(DnnlOps::Create(1).value()),
        fault_(fault),
        factor_(factor) {}

  absl::StatusOr<float*> Allocate(int64_t elements) override {
    if (fault_ == Fault::kNoMemory) {
      return absl::ResourceExhaustedError("it is full");
    }
    return CpuBackend::Allocate(elements);
  }

  absl::Status TakeStatus() override {
    return fault_ == Fault::kReports ? absl::InternalError("it is on fire")
                                     : CpuBackend::TakeStatus();
  }

  void Run(const Operation& operation) override {
    std::visit([this](const auto& o) { RunBroken(o); }, operation);
  }

  std::set<float> first_terms;

 private:
  template <class Op>
  void RunBroken(const Op& o) {
    CpuBackend::Run(o);
  }

  void RunBroken(op::Add o) {
    if (fault_ == Fault::kLeavesLast) {
      --o.count;
    }
    CpuBackend::Run(o);
    if (fault_ == Fault::kWritesBehind) {
      o.y[o.count] = 0.0f;
    } else if (fault_ == Fault::kWritesBefore) {
      o.y[-1] = 0.0f;
    } else if (fault_ == Fault::kWritesInput) {
      const_cast<float*>(o.a)[0] = 5.0f;
    }
  }

  void RunBroken(const op::MatMul& o) {
    CpuBackend::Run(o);
    const bool odd = reinterpret_cast<uintptr_t>(o.c) / 64 % 2 == 1;
    for (int64_t i = 0; i < o.shape.m * o.shape.n; ++i) {
      o.c[i] *= fault_ == Fault::kForgetsAddress && odd ? 1.000001f : factor_;
    }
  }

  void RunBroken(const op::Conv2dForward& o) {
    CpuBackend::Run(o);
    for (int64_t i = 0; i < o.shape.y_elements(); ++i) {
      o.y[i] *= factor_;
    }
  }

  void RunBroken(const op::SumRows& o) {
    first_terms.insert(o.x[0]);
    CpuBackend::Run(o);
    for (int64_t j = 0; j < o.width; ++j) {
      o.sums[j] *= factor_;
    }
    if (fault_ == Fault::kReadsBehind) {
      o.sums[0] += o.x[o.rows * o.width];
    }
  }

  const Fault fault_;
  const float factor_;
};

std::vector<CheckResult> RunNamed(const std::string& name, Backend* backend,
                                  CheckOptions options = {}) {
  for (const OperationCheck& check : OperationChecks()) {
    if (check.name == name) {
      return RunCheck(check, backend, options);
    }
  }
  ADD_FAILURE() << "no check '" << name << "'";
  return {};
}

// "" when all is well.
std::string FirstFailure(const std::string& name, Fault fault,
                         float factor = 1.0f, CheckOptions options = {}) {
  Faulty backend(fault, factor);
  for (const CheckResult& result : RunNamed(name, &backend, options)) {
    if (!result.ok) {
      return result.detail;
    }
  }
  return "";
}

std::string WithFactor(const std::string& name, float factor,
                       Precision precision) {
  return FirstFailure(name, Fault::kNone, factor, {.precision = precision});
}

TEST(OperationChecksTest, NamesAreUniqueAndEveryCheckSaysSomething) {
  std::set<std::string> names;
  Faulty sound(Fault::kNone);
  for (const OperationCheck& check : OperationChecks()) {
    EXPECT_TRUE(names.insert(check.name).second) << check.name;
  }
  EXPECT_GE(names.size(), 20u);
  for (const CheckResult& result : RunNamed("add", &sound)) {
    EXPECT_TRUE(result.ok);
    EXPECT_EQ(result.operation, "add");
    EXPECT_NE(result.shape, "");
    EXPECT_NE(result.detail, "");
  }
}

TEST(OperationChecksTest, FindsWhatIsWrittenOutside) {
  EXPECT_THAT(FirstFailure("add", Fault::kWritesBehind),
              HasSubstr("outside a buffer of 1 floats, at element 1"));
  EXPECT_THAT(FirstFailure("add", Fault::kWritesBefore),
              HasSubstr("outside a buffer of 1 floats, at element -1"));
  EXPECT_NE(FirstFailure("add", Fault::kWritesInput), "");
}

TEST(OperationChecksTest, FindsWhatIsLeftOutOrReadOutside) {
  EXPECT_THAT(FirstFailure("add", Fault::kLeavesLast), HasSubstr("is nan"));
  EXPECT_THAT(FirstFailure("sum rows", Fault::kReadsBehind),
              HasSubstr("is nan"));
}

TEST(OperationChecksTest, BoundsProductsByPrecisionAndAllElseByFp32) {
  EXPECT_EQ(WithFactor("conv2d", 1.000004f, Precision::kFp32), "");
  EXPECT_NE(WithFactor("conv2d", 1.00002f, Precision::kFp32), "");
  EXPECT_EQ(WithFactor("conv2d", 1.0005f, Precision::kTf32), "");
  EXPECT_NE(WithFactor("conv2d", 1.002f, Precision::kTf32), "");
  EXPECT_EQ(WithFactor("conv2d", 1.01f, Precision::kBf16), "");
  EXPECT_NE(WithFactor("conv2d", 1.03f, Precision::kBf16), "");
  EXPECT_NE(WithFactor("sum rows", 1.00002f, Precision::kBf16), "");
}

TEST(OperationChecksTest, FindsBitsThatDependOnTheAddress) {
  EXPECT_THAT(
      FirstFailure("same bits wherever buffers lie", Fault::kForgetsAddress),
      HasSubstr("matmul"));
}

TEST(OperationChecksTest, SaysWhatTheBackendReports) {
  EXPECT_THAT(FirstFailure("add", Fault::kReports), HasSubstr("it is on fire"));
  EXPECT_THAT(FirstFailure("add", Fault::kNoMemory), HasSubstr("it is full"));
}

TEST(OperationChecksTest, RedrawsInputsBySeed) {
  const auto terms = [](uint64_t seed) {
    Faulty backend(Fault::kNone);
    RunNamed("sum rows", &backend, {.seed = seed});
    return backend.first_terms;
  };
  EXPECT_EQ(terms(1), terms(1));
  EXPECT_NE(terms(1), terms(2));
}

}  // namespace
}  // namespace weir
