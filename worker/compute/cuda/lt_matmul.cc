#include "worker/compute/cuda/lt_matmul.h"

#include <initializer_list>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"

namespace weir::cuda {
namespace {

absl::Status LtStatus(cublasStatus_t status, const MatMulShape& s,
                      const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) {
    return absl::OkStatus();
  }
  return absl::InternalError(absl::StrCat(
      "cuBLASLt ", what, " of a product of [", s.m, ", ", s.k, "] and [", s.k,
      ", ", s.n, "]: ", cublasLtGetStatusString(status)));
}

// The largest power of two up to 256 that divides all addresses. 256 is what
// cudaMalloc gives, and more makes no algorithm possible.
int64_t CommonAlignment(const void* a, const void* b, const void* c) {
  const uintptr_t bits = reinterpret_cast<uintptr_t>(a) |
                         reinterpret_cast<uintptr_t>(b) |
                         reinterpret_cast<uintptr_t>(c) | uintptr_t{256};
  return static_cast<int64_t>(bits & (~bits + 1));
}

}  // namespace

// cuBLASLt is column-major: what is C in row-major order is C^T there, and C^T
// = op(B)^T op(A)^T. So its first operand is our B and its second our A, each
// as it lies in memory: nothing is transposed or copied.
struct LtMatMul::Plan {
  ~Plan() {
    cublasLtMatmulDescDestroy(product);
    for (cublasLtMatrixLayout_t layout : {first, second, result}) {
      cublasLtMatrixLayoutDestroy(layout);
    }
  }

  cublasLtMatmulDesc_t product = nullptr;
  cublasLtMatrixLayout_t first = nullptr;
  cublasLtMatrixLayout_t second = nullptr;
  cublasLtMatrixLayout_t result = nullptr;
  cublasLtMatmulAlgo_t algorithm = {};
};

namespace {

template <class T>
cublasStatus_t Set(cublasLtMatmulDesc_t product,
                   cublasLtMatmulDescAttributes_t attribute, const T& value) {
  return cublasLtMatmulDescSetAttribute(product, attribute, &value,
                                        sizeof(value));
}

template <class T>
cublasStatus_t Set(cublasLtMatmulPreference_t preference,
                   cublasLtMatmulPreferenceAttributes_t attribute,
                   const T& value) {
  return cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value,
                                              sizeof(value));
}

// The layout of a row-major [rows, columns] matrix, or of a [columns, rows] one
// where it lies transposed in memory. cuBLASLt reads it as the transpose.
cublasStatus_t MakeLayout(cublasLtMatrixLayout_t* layout, cudaDataType_t type,
                          int64_t rows, int64_t columns, bool transposed) {
  if (transposed) {
    std::swap(rows, columns);
  }
  return cublasLtMatrixLayoutCreate(layout, type,
                                    static_cast<uint64_t>(columns),
                                    static_cast<uint64_t>(rows), columns);
}

cublasOperation_t Operation(bool transpose) {
  return transpose ? CUBLAS_OP_T : CUBLAS_OP_N;
}

// One bit for each yes or no that a plan depends on.
int64_t Flags(std::initializer_list<bool> answers) {
  int64_t flags = 0;
  for (const bool answer : answers) {
    flags = 2 * flags + static_cast<int64_t>(answer);
  }
  return flags;
}

}  // namespace

LtMatMul::LtMatMul(bool tf32) : tf32_(tf32) {}

LtMatMul::~LtMatMul() {
  plans_.clear();
  if (handle_ != nullptr) {
    cublasLtDestroy(handle_);
  }
}

absl::StatusOr<std::unique_ptr<LtMatMul>> LtMatMul::Create(bool tf32) {
  std::unique_ptr<LtMatMul> result(new LtMatMul(tf32));
  const cublasStatus_t status = cublasLtCreate(&result->handle_);
  if (status != CUBLAS_STATUS_SUCCESS) {
    return absl::InternalError(
        absl::StrCat("cublasLtCreate: ", cublasLtGetStatusString(status)));
  }
  WEIR_RETURN_IF_ERROR(result->workspace_.Reserve(kWorkspaceBytes).status());
  return result;
}

absl::StatusOr<LtMatMul::Plan*> LtMatMul::FindPlan(const MatMulShape& s,
                                                   const Inputs& inputs,
                                                   const float* bias,
                                                   const float* c) {
  // The alignment is part of the key: an algorithm that loads 16 bytes at a
  // time would fault on memory that is aligned to less.
  const int64_t alignment = CommonAlignment(inputs.a, inputs.b, c);
  const int64_t flags =
      Flags({s.transpose_a, s.transpose_b, inputs.bf16, bias != nullptr});
  const Key key = {s.m, s.n, s.k, flags, alignment};
  const auto it = plans_.find(key);
  if (it != plans_.end()) {
    return it->second.get();
  }
  auto plan = std::make_unique<Plan>();
  WEIR_RETURN_IF_ERROR(Describe(s, inputs, bias, plan.get()));
  WEIR_RETURN_IF_ERROR(Choose(s, alignment, plan.get()));
  return plans_.emplace(key, std::move(plan)).first->second.get();
}

absl::Status LtMatMul::Describe(const MatMulShape& s, const Inputs& inputs,
                                const float* bias, Plan* plan) const {
  const auto check = [&](cublasStatus_t status) {
    return LtStatus(status, s, "plan");
  };
  // Sums are float32 for factors of any type. TF32 is a way to multiply float32
  // factors, so it does not apply to bfloat16.
  cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
  cudaDataType_t type = CUDA_R_32F;
  if (inputs.bf16) {
    type = CUDA_R_16BF;
  } else if (tf32_) {
    compute = CUBLAS_COMPUTE_32F_FAST_TF32;
  }
  WEIR_RETURN_IF_ERROR(
      check(cublasLtMatmulDescCreate(&plan->product, compute, CUDA_R_32F)));
  WEIR_RETURN_IF_ERROR(check(Set(plan->product, CUBLASLT_MATMUL_DESC_TRANSA,
                                 Operation(s.transpose_b))));
  WEIR_RETURN_IF_ERROR(check(Set(plan->product, CUBLASLT_MATMUL_DESC_TRANSB,
                                 Operation(s.transpose_a))));
  if (bias != nullptr) {
    // Run() sets the pointer again, since its calls may have other biases. Here
    // it makes the advice one for a product with a bias.
    WEIR_RETURN_IF_ERROR(check(Set(plan->product, CUBLASLT_MATMUL_DESC_EPILOGUE,
                                   CUBLASLT_EPILOGUE_BIAS)));
    WEIR_RETURN_IF_ERROR(
        check(Set(plan->product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias)));
  }
  WEIR_RETURN_IF_ERROR(
      check(MakeLayout(&plan->first, type, s.k, s.n, s.transpose_b)));
  WEIR_RETURN_IF_ERROR(
      check(MakeLayout(&plan->second, type, s.m, s.k, s.transpose_a)));
  return check(MakeLayout(&plan->result, CUDA_R_32F, s.m, s.n, false));
}

absl::Status LtMatMul::Choose(const MatMulShape& s, int64_t alignment,
                              Plan* plan) const {
  const auto check = [&](cublasStatus_t status) {
    return LtStatus(status, s, "plan");
  };
  cublasLtMatmulPreference_t preference = nullptr;
  WEIR_RETURN_IF_ERROR(check(cublasLtMatmulPreferenceCreate(&preference)));
  const std::unique_ptr<cublasLtMatmulPreferenceOpaque_t,
                        decltype(&cublasLtMatmulPreferenceDestroy)>
      owner(preference, &cublasLtMatmulPreferenceDestroy);
  WEIR_RETURN_IF_ERROR(
      check(Set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                static_cast<uint64_t>(kWorkspaceBytes))));
  for (const auto attribute : {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
                               CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                               CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
                               CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
    WEIR_RETURN_IF_ERROR(
        check(Set(preference, attribute, static_cast<uint32_t>(alignment))));
  }
  cublasLtMatmulHeuristicResult_t advice = {};
  int found = 0;
  WEIR_RETURN_IF_ERROR(check(cublasLtMatmulAlgoGetHeuristic(
      handle_, plan->product, plan->first, plan->second, plan->result,
      plan->result, preference, 1, &advice, &found)));
  if (found == 0) {
    return check(CUBLAS_STATUS_NOT_SUPPORTED);
  }
  plan->algorithm = advice.algo;
  return absl::OkStatus();
}

absl::Status LtMatMul::Run(cudaStream_t stream, const MatMulShape& shape,
                           const Inputs& inputs, const float* bias, float* c,
                           bool accumulate) {
  WEIR_ASSIGN_OR_RETURN(Plan* const plan, FindPlan(shape, inputs, bias, c));
  if (bias != nullptr) {
    WEIR_RETURN_IF_ERROR(
        LtStatus(Set(plan->product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias),
                 shape, "bias"));
  }
  const float alpha = 1.0f;
  const auto beta = static_cast<float>(accumulate);
  // I1: the one workspace, whatever the algorithm needs of it. It has its size
  // since Create(), so this allocates nothing.
  WEIR_ASSIGN_OR_RETURN(void* const workspace,
                        workspace_.Reserve(kWorkspaceBytes));
  return LtStatus(
      cublasLtMatmul(handle_, plan->product, &alpha, inputs.b, plan->first,
                     inputs.a, plan->second, &beta, c, plan->result, c,
                     plan->result, &plan->algorithm, workspace, kWorkspaceBytes,
                     stream),
      shape, "run");
}

}  // namespace weir::cuda
