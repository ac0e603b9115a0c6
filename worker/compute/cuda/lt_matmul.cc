#include "worker/compute/cuda/lt_matmul.h"

#include <algorithm>
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

// The largest power of two up to 256 that divides all addresses.
int64_t CommonAlignment(const void* a, const void* b, const void* c) {
  const uintptr_t bits = reinterpret_cast<uintptr_t>(a) |
                         reinterpret_cast<uintptr_t>(b) |
                         reinterpret_cast<uintptr_t>(c) | uintptr_t{256};
  return static_cast<int64_t>(bits & (~bits + 1));
}

}  // namespace

// cuBLASLt is column-major: C row-major is C^T there, and C^T = op(B)^T
// op(A)^T. So its first operand is our B, its second our A, each as it lies in
// memory.
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

// The layout of a row-major [rows, columns] matrix, as its transpose.
cublasStatus_t MakeLayout(cublasLtMatrixLayout_t* layout, cudaDataType_t type,
                          int64_t rows, int64_t columns) {
  return cublasLtMatrixLayoutCreate(layout, type,
                                    static_cast<uint64_t>(columns),
                                    static_cast<uint64_t>(rows), columns);
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
  const int64_t alignment = CommonAlignment(inputs.a, inputs.b, c);
  const int64_t flags = (s.transpose_a ? 1 : 0) | (s.transpose_b ? 2 : 0) |
                        (inputs.bf16 ? 4 : 0) | (bias != nullptr ? 8 : 0);
  const Key key = {s.m, s.n, s.k, flags, alignment};
  const auto it = plans_.find(key);
  if (it != plans_.end()) {
    return it->second.get();
  }
  auto plan = std::make_unique<Plan>();
  const auto check = [&](cublasStatus_t status) {
    return LtStatus(status, s, "plan");
  };
  WEIR_RETURN_IF_ERROR(check(cublasLtMatmulDescCreate(
      &plan->product,
      tf32_ && !inputs.bf16 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F,
      CUDA_R_32F)));
  const auto operation = [](bool transpose) {
    return transpose ? CUBLAS_OP_T : CUBLAS_OP_N;
  };
  WEIR_RETURN_IF_ERROR(check(Set(plan->product, CUBLASLT_MATMUL_DESC_TRANSA,
                                 operation(s.transpose_b))));
  WEIR_RETURN_IF_ERROR(check(Set(plan->product, CUBLASLT_MATMUL_DESC_TRANSB,
                                 operation(s.transpose_a))));
  if (bias != nullptr) {
    WEIR_RETURN_IF_ERROR(check(Set(plan->product, CUBLASLT_MATMUL_DESC_EPILOGUE,
                                   CUBLASLT_EPILOGUE_BIAS)));
    WEIR_RETURN_IF_ERROR(
        check(Set(plan->product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias)));
  }
  const cudaDataType_t type = inputs.bf16 ? CUDA_R_16BF : CUDA_R_32F;
  WEIR_RETURN_IF_ERROR(check(s.transpose_b
                                 ? MakeLayout(&plan->first, type, s.n, s.k)
                                 : MakeLayout(&plan->first, type, s.k, s.n)));
  WEIR_RETURN_IF_ERROR(check(s.transpose_a
                                 ? MakeLayout(&plan->second, type, s.k, s.m)
                                 : MakeLayout(&plan->second, type, s.m, s.k)));
  WEIR_RETURN_IF_ERROR(check(MakeLayout(&plan->result, CUDA_R_32F, s.m, s.n)));

  cublasLtMatmulPreference_t preference = nullptr;
  WEIR_RETURN_IF_ERROR(check(cublasLtMatmulPreferenceCreate(&preference)));
  cublasStatus_t status =
      Set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
          static_cast<uint64_t>(kWorkspaceBytes));
  for (const auto attribute : {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
                               CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                               CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
                               CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
    if (status == CUBLAS_STATUS_SUCCESS) {
      status = Set(preference, attribute, static_cast<uint32_t>(alignment));
    }
  }
  cublasLtMatmulHeuristicResult_t advice = {};
  int found = 0;
  if (status == CUBLAS_STATUS_SUCCESS) {
    status = cublasLtMatmulAlgoGetHeuristic(
        handle_, plan->product, plan->first, plan->second, plan->result,
        plan->result, preference, 1, &advice, &found);
  }
  cublasLtMatmulPreferenceDestroy(preference);
  WEIR_RETURN_IF_ERROR(check(status));
  if (found == 0) {
    return check(CUBLAS_STATUS_NOT_SUPPORTED);
  }
  plan->algorithm = advice.algo;
  Plan* const raw = plan.get();
  plans_.emplace(key, std::move(plan));
  return raw;
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
  const float beta = accumulate ? 1.0f : 0.0f;
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
