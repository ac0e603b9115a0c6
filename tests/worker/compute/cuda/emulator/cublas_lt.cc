// cuBLASLt's matrix product over the emulated machine: sums in double, rounded
// once. Column-major, as the real one; what it refuses is CUBLAS_STATUS_
// INVALID_VALUE, what this emulator leaves out is NOT_SUPPORTED.
#include <cublasLt.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

#include "tests/worker/compute/cuda/emulator/scheduler.h"

struct cublasLtContext {
  int device = 0;
};

namespace weir_emulator {
namespace {

constexpr uint32_t kAlignmentMax = 256;
// The workspace of a product that may have one. It is overwritten with garbage.
constexpr size_t kWorkspaceBytes = 4096;

struct Product {
  cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
  cudaDataType_t scale = CUDA_R_32F;
  cublasOperation_t trans_a = CUBLAS_OP_N;
  cublasOperation_t trans_b = CUBLAS_OP_N;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const void* bias = nullptr;
  int32_t bias_type = -1;  // that of D
};

struct Layout {
  cudaDataType type = CUDA_R_32F;
  uint64_t rows = 0;
  uint64_t columns = 0;
  int64_t ld = 0;
  int32_t batches = 1;
  int64_t stride = 0;  // elements from one matrix of the batch to the next

  int64_t ElementBytes() const { return type == CUDA_R_32F ? 4 : 2; }
  int64_t Elements() const {  // from the first to behind the last
    return (batches - 1) * stride + (static_cast<int64_t>(columns) - 1) * ld +
           static_cast<int64_t>(rows);
  }
};

struct Preference {
  uint64_t workspace_bytes = 0;
  uint32_t alignment[4] = {kAlignmentMax, kAlignmentMax, kAlignmentMax,
                           kAlignmentMax};  // of A, B, C, D
};

struct Algorithm {
  uint64_t magic = 0;
  uint64_t workspace_bytes = 0;
  uint32_t alignment[4] = {1, 1, 1, 1};
};
constexpr uint64_t kMagic = 0x7765697262656d75u;

static_assert(sizeof(Product) <= sizeof(cublasLtMatmulDescOpaque_t));
static_assert(sizeof(Layout) <= sizeof(cublasLtMatrixLayoutOpaque_t));
static_assert(sizeof(Preference) <= sizeof(cublasLtMatmulPreferenceOpaque_t));
static_assert(sizeof(Algorithm) <= sizeof(cublasLtMatmulAlgo_t));

// The opaque structures hold ours by their bytes.
template <class T, class Opaque>
T Load(const Opaque* opaque) {
  T value;
  std::memcpy(static_cast<void*>(&value), opaque, sizeof(T));
  return value;
}
template <class T, class Opaque>
void Store(const T& value, Opaque* opaque) {
  std::memcpy(static_cast<void*>(opaque), &value, sizeof(T));
}
template <class T>
cublasStatus_t Set(T& field, const void* from, size_t bytes) {
  if (from == nullptr || bytes != sizeof(T)) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  std::memcpy(&field, from, sizeof(T));
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t Status(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return CUBLAS_STATUS_SUCCESS;
    case cudaErrorMemoryAllocation:
      return CUBLAS_STATUS_ALLOC_FAILED;
    default:
      return CUBLAS_STATUS_EXECUTION_FAILED;
  }
}

// An injected failure of `function`, else what `body` says.
template <class Body>
cublasStatus_t Guard(const char* function, Body body) {
  cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
  const cudaError_t error = Call(function, [&](Machine& machine) {
    status = body(machine);
    return cudaSuccess;
  });
  return error != cudaSuccess ? Status(error) : status;
}

// ------------------------------------------------------------- arithmetic

uint32_t RoundBits(float x, int dropped) {
  const auto bits = std::bit_cast<uint32_t>(x);
  const uint32_t last = bits >> dropped & 1u;
  const uint32_t rounded = bits + ((1u << (dropped - 1)) - 1) + last;
  const bool finite = (bits & 0x7f800000u) != 0x7f800000u;
  return (finite ? rounded : bits) & ~((1u << dropped) - 1);
}
float ToTf32(float x) { return std::bit_cast<float>(RoundBits(x, 13)); }
uint16_t ToBf16(float x) {
  if (x != x) {
    return 0x7fff;
  }
  return static_cast<uint16_t>(RoundBits(x, 16) >> 16);
}

float Element(const void* data, cudaDataType type, int64_t index) {
  if (type == CUDA_R_32F) {
    return static_cast<const float*>(data)[index];
  }
  const uint32_t high = static_cast<const uint16_t*>(data)[index];
  return std::bit_cast<float>(high << 16);
}

// One product, checked; everything that the operation needs later.
struct Job {
  Product product;
  float alpha = 1;
  float beta = 0;
  const void* a = nullptr;
  const void* b = nullptr;
  const void* c = nullptr;
  void* d = nullptr;
  Layout a_layout, b_layout, c_layout, d_layout;
  void* workspace = nullptr;
  size_t workspace_bytes = 0;  // that are overwritten

  // op(X) of a batch as [rows, columns], row-major.
  std::vector<double> Gather(const void* x, const Layout& layout, bool trans,
                             int64_t batch) const {
    const auto rows = static_cast<int64_t>(layout.rows);
    const auto columns = static_cast<int64_t>(layout.columns);
    std::vector<double> out(static_cast<size_t>(rows * columns));
    for (int64_t j = 0; j < columns; ++j) {
      for (int64_t i = 0; i < rows; ++i) {
        float value =
            Element(x, layout.type, batch * layout.stride + j * layout.ld + i);
        if (product.compute == CUBLAS_COMPUTE_32F_FAST_TF32) {
          value = ToTf32(value);
        }
        out[static_cast<size_t>(trans ? j * rows + i : i * columns + j)] =
            value;
      }
    }
    return out;
  }

  // Column j of D, from sums [m].
  void StoreColumn(int64_t batch, int64_t j,
                   const std::vector<double>& sums) const {
    const auto bias_type = product.bias_type < 0
                               ? d_layout.type
                               : static_cast<cudaDataType>(product.bias_type);
    for (int64_t i = 0; i < static_cast<int64_t>(d_layout.rows); ++i) {
      double value = alpha * sums[static_cast<size_t>(i)];
      if (beta != 0) {
        value += static_cast<double>(beta) *
                 Element(c, c_layout.type,
                         batch * c_layout.stride + j * c_layout.ld + i);
      }
      if (product.epilogue == CUBLASLT_EPILOGUE_BIAS) {
        value += Element(product.bias, bias_type, i);
      }
      const int64_t at = batch * d_layout.stride + j * d_layout.ld + i;
      if (d_layout.type == CUDA_R_32F) {
        static_cast<float*>(d)[at] = static_cast<float>(value);
      } else {
        static_cast<uint16_t*>(d)[at] = ToBf16(static_cast<float>(value));
      }
    }
  }

  void Run() const {
    if (workspace_bytes != 0) {
      std::memset(workspace, 0xff, workspace_bytes);
    }
    const bool trans_a = product.trans_a != CUBLAS_OP_N;
    const bool trans_b = product.trans_b != CUBLAS_OP_N;
    const size_t m = d_layout.rows;
    const size_t n = d_layout.columns;
    const size_t k = trans_a ? a_layout.rows : a_layout.columns;
    for (int64_t batch = 0; batch < d_layout.batches; ++batch) {
      // op(A) as [k, m] and op(B) as [n, k], so that inner loops are dense.
      const auto at = Gather(a, a_layout, !trans_a, batch);
      const auto bt = Gather(b, b_layout, !trans_b, batch);
      std::vector<double> sums(m);
      for (size_t j = 0; j < n; ++j) {
        std::fill(sums.begin(), sums.end(), 0.0);
        for (size_t p = 0; p < k; ++p) {
          const double factor = bt[j * k + p];
          const double* const row = &at[p * m];
          for (size_t i = 0; i < m; ++i) {
            sums[i] += factor * row[i];
          }
        }
        StoreColumn(batch, static_cast<int64_t>(j), sums);
      }
    }
  }
};

// ----------------------------------------------------------------- checks

bool Good(const Layout& layout) {
  return layout.rows > 0 && layout.columns > 0 && layout.batches > 0 &&
         layout.ld >= static_cast<int64_t>(layout.rows);
}

cublasStatus_t CheckShapes(const Job& job) {
  const Layout& a = job.a_layout;
  const Layout& b = job.b_layout;
  const Layout& c = job.c_layout;
  const Layout& d = job.d_layout;
  const bool trans_a = job.product.trans_a != CUBLAS_OP_N;
  const bool trans_b = job.product.trans_b != CUBLAS_OP_N;
  const uint64_t k = trans_a ? a.rows : a.columns;
  const bool shapes = Good(a) && Good(b) && Good(c) && Good(d) &&
                      (trans_a ? a.columns : a.rows) == d.rows &&
                      (trans_b ? b.columns : b.rows) == k &&
                      (trans_b ? b.rows : b.columns) == d.columns &&
                      c.rows == d.rows && c.columns == d.columns;
  const bool batches = a.batches == d.batches && b.batches == d.batches &&
                       c.batches == d.batches;
  if (!shapes || !batches) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  const auto known = [](cudaDataType type) {
    return type == CUDA_R_32F || type == CUDA_R_16BF;
  };
  const bool types = known(a.type) && a.type == b.type && known(c.type) &&
                     c.type == d.type &&
                     (a.type == CUDA_R_16BF || d.type == CUDA_R_32F);
  const bool compute = job.product.compute == CUBLAS_COMPUTE_32F ||
                       (job.product.compute == CUBLAS_COMPUTE_32F_FAST_TF32 &&
                        a.type == CUDA_R_32F);
  const bool epilogue = job.product.epilogue == CUBLASLT_EPILOGUE_DEFAULT ||
                        job.product.epilogue == CUBLASLT_EPILOGUE_BIAS;
  const bool bias = job.product.bias_type < 0 ||
                    job.product.bias_type == d.type ||
                    job.product.bias_type == CUDA_R_32F;
  return types && compute && epilogue && bias && job.product.scale == CUDA_R_32F
             ? CUBLAS_STATUS_SUCCESS
             : CUBLAS_STATUS_NOT_SUPPORTED;
}

bool Aligned(const void* pointer, uint64_t alignment) {
  return reinterpret_cast<uintptr_t>(pointer) % alignment == 0;
}

cublasStatus_t CheckPointers(const Job& job, const Algorithm& algorithm,
                             size_t workspace_bytes) {
  const void* const pointers[4] = {job.a, job.b, job.c, job.d};
  const Layout* const layouts[4] = {&job.a_layout, &job.b_layout, &job.c_layout,
                                    &job.d_layout};
  for (int i = 0; i < 4; ++i) {
    const auto element = static_cast<uint64_t>(layouts[i]->ElementBytes());
    if (pointers[i] == nullptr || !Aligned(pointers[i], element) ||
        !Aligned(pointers[i], algorithm.alignment[i])) {
      return CUBLAS_STATUS_INVALID_VALUE;
    }
  }
  const bool in_place = job.c == job.d && job.beta != 0;
  if (in_place && (job.c_layout.ld != job.d_layout.ld ||
                   job.c_layout.stride != job.d_layout.stride)) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  const bool bias = job.product.epilogue == CUBLASLT_EPILOGUE_BIAS;
  if ((bias && job.product.bias == nullptr) ||
      workspace_bytes < algorithm.workspace_bytes ||
      (workspace_bytes != 0 && job.workspace == nullptr) ||
      !Aligned(job.workspace, algorithm.workspace_bytes != 0 ? 16 : 1)) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  return CUBLAS_STATUS_SUCCESS;
}

void CheckMemory(const Machine& machine, const Job& job, int device) {
  const auto check = [&](const char* what, const void* x, const Layout& l) {
    machine.CheckReach(what, x, l.Elements() * l.ElementBytes(), device);
  };
  check("cublasLtMatmul: A", job.a, job.a_layout);
  check("cublasLtMatmul: B", job.b, job.b_layout);
  if (job.beta != 0) {
    check("cublasLtMatmul: C", job.c, job.c_layout);
  }
  check("cublasLtMatmul: D", job.d, job.d_layout);
  if (job.product.epilogue == CUBLASLT_EPILOGUE_BIAS) {
    const bool narrow =
        job.product.bias_type == CUDA_R_16BF ||
        (job.product.bias_type < 0 && job.d_layout.type == CUDA_R_16BF);
    machine.CheckReach(
        "cublasLtMatmul: bias", job.product.bias,
        static_cast<int64_t>(job.d_layout.rows) * (narrow ? 2 : 4), device);
  }
  if (job.workspace_bytes != 0) {
    machine.CheckReach("cublasLtMatmul: workspace", job.workspace,
                       static_cast<int64_t>(job.workspace_bytes), device);
  }
}

}  // namespace
}  // namespace weir_emulator

using weir_emulator::Algorithm;
using weir_emulator::Guard;
using weir_emulator::Job;
using weir_emulator::Layout;
using weir_emulator::Load;
using weir_emulator::Machine;
using weir_emulator::Preference;
using weir_emulator::Product;
using weir_emulator::Set;
using weir_emulator::Store;

// NOLINTBEGIN(readability-identifier-naming): cuBLASLt's names.
extern "C" {

size_t cublasLtGetVersion() { return CUBLAS_VERSION; }

const char* cublasLtGetStatusName(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS:
      return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_NOT_INITIALIZED:
      return "CUBLAS_STATUS_NOT_INITIALIZED";
    case CUBLAS_STATUS_ALLOC_FAILED:
      return "CUBLAS_STATUS_ALLOC_FAILED";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_EXECUTION_FAILED:
      return "CUBLAS_STATUS_EXECUTION_FAILED";
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "CUBLAS_STATUS_NOT_SUPPORTED";
    default:
      return "CUBLAS_STATUS_INTERNAL_ERROR";
  }
}

const char* cublasLtGetStatusString(cublasStatus_t status) {
  return cublasLtGetStatusName(status);
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  return Guard(__func__, [=](Machine&) {
    *handle = new cublasLtContext{weir_emulator::CurrentDevice()};
    return CUBLAS_STATUS_SUCCESS;
  });
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* desc,
                                        cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  Product product;
  product.compute = compute;
  product.scale = scale;
  *desc = new cublasLtMatmulDescOpaque_t();
  Store(product, *desc);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) {
  delete desc;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(
    cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute,
    const void* from, size_t bytes) {
  if (desc == nullptr) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  auto product = Load<Product>(desc);
  int32_t pointer_mode = CUBLASLT_POINTER_MODE_HOST;
  cublasStatus_t status = CUBLAS_STATUS_NOT_SUPPORTED;
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      status = Set(product.trans_a, from, bytes);
      break;
    case CUBLASLT_MATMUL_DESC_TRANSB:
      status = Set(product.trans_b, from, bytes);
      break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      status = Set(product.epilogue, from, bytes);
      break;
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      status = Set(product.bias, from, bytes);
      break;
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
      status = Set(product.bias_type, from, bytes);
      break;
    case CUBLASLT_MATMUL_DESC_POINTER_MODE:
      status = Set(pointer_mode, from, bytes);
      break;
    default:
      break;
  }
  if (pointer_mode != CUBLASLT_POINTER_MODE_HOST) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  Store(product, desc);
  return status;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout,
                                          cudaDataType type, uint64_t rows,
                                          uint64_t columns, int64_t ld) {
  *layout = new cublasLtMatrixLayoutOpaque_t();
  Store(Layout{type, rows, columns, ld}, *layout);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  delete layout;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(
    cublasLtMatrixLayout_t opaque, cublasLtMatrixLayoutAttribute_t attribute,
    const void* from, size_t bytes) {
  if (opaque == nullptr) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  auto layout = Load<Layout>(opaque);
  int32_t order = CUBLASLT_ORDER_COL;
  cublasStatus_t status = CUBLAS_STATUS_NOT_SUPPORTED;
  switch (attribute) {
    case CUBLASLT_MATRIX_LAYOUT_TYPE:
      status = Set(layout.type, from, bytes);
      break;
    case CUBLASLT_MATRIX_LAYOUT_ORDER:
      status = Set(order, from, bytes);
      break;
    case CUBLASLT_MATRIX_LAYOUT_ROWS:
      status = Set(layout.rows, from, bytes);
      break;
    case CUBLASLT_MATRIX_LAYOUT_COLS:
      status = Set(layout.columns, from, bytes);
      break;
    case CUBLASLT_MATRIX_LAYOUT_LD:
      status = Set(layout.ld, from, bytes);
      break;
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
      status = Set(layout.batches, from, bytes);
      break;
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
      status = Set(layout.stride, from, bytes);
      break;
    default:
      break;
  }
  if (order != CUBLASLT_ORDER_COL) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  Store(layout, opaque);
  return status;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(
    cublasLtMatmulPreference_t* preference) {
  *preference = new cublasLtMatmulPreferenceOpaque_t();
  Store(Preference(), *preference);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(
    cublasLtMatmulPreference_t preference) {
  delete preference;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(
    cublasLtMatmulPreference_t opaque,
    cublasLtMatmulPreferenceAttributes_t attribute, const void* from,
    size_t bytes) {
  if (opaque == nullptr) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  auto preference = Load<Preference>(opaque);
  cublasStatus_t status = CUBLAS_STATUS_NOT_SUPPORTED;
  switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
      status = Set(preference.workspace_bytes, from, bytes);
      break;
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
      status = Set(preference.alignment[0], from, bytes);
      break;
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
      status = Set(preference.alignment[1], from, bytes);
      break;
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
      status = Set(preference.alignment[2], from, bytes);
      break;
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
      status = Set(preference.alignment[3], from, bytes);
      break;
    default:
      break;
  }
  for (const uint32_t alignment : preference.alignment) {
    if (!std::has_single_bit(alignment)) {
      return CUBLAS_STATUS_INVALID_VALUE;
    }
  }
  Store(preference, opaque);
  return status;
}

// The caller's promise goes into the algorithm, which cublasLtMatmul holds it
// to.
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(
    cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
    cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
    cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
    cublasLtMatmulPreference_t opaque, int requested,
    cublasLtMatmulHeuristicResult_t results[], int* returned) {
  return Guard(__func__, [=](Machine&) {
    if (handle == nullptr || desc == nullptr || a == nullptr || b == nullptr ||
        c == nullptr || d == nullptr || opaque == nullptr || requested < 1 ||
        results == nullptr || returned == nullptr) {
      return CUBLAS_STATUS_INVALID_VALUE;
    }
    *returned = 0;
    Job job;
    job.product = Load<Product>(desc);
    job.a_layout = Load<Layout>(a);
    job.b_layout = Load<Layout>(b);
    job.c_layout = Load<Layout>(c);
    job.d_layout = Load<Layout>(d);
    const cublasStatus_t status = weir_emulator::CheckShapes(job);
    if (status != CUBLAS_STATUS_SUCCESS) {
      return status;
    }
    const auto preference = Load<Preference>(opaque);
    Algorithm algorithm;
    algorithm.magic = weir_emulator::kMagic;
    if (preference.workspace_bytes >= weir_emulator::kWorkspaceBytes) {
      algorithm.workspace_bytes = weir_emulator::kWorkspaceBytes;
    }
    std::copy_n(preference.alignment, 4, algorithm.alignment);
    results[0] = {};
    Store(algorithm, &results[0].algo);
    results[0].workspaceSize = algorithm.workspace_bytes;
    results[0].state = CUBLAS_STATUS_SUCCESS;
    results[0].wavesCount = 1;
    *returned = 1;
    return CUBLAS_STATUS_SUCCESS;
  });
}

cublasStatus_t cublasLtMatmul(
    cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void* alpha,
    const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
    cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
    cublasLtMatrixLayout_t c_layout, void* d, cublasLtMatrixLayout_t d_layout,
    const cublasLtMatmulAlgo_t* algo, void* workspace, size_t workspace_bytes,
    cudaStream_t handle_of_stream) {
  return Guard(__func__, [=](Machine& machine) {
    if (handle == nullptr || desc == nullptr || alpha == nullptr ||
        beta == nullptr || a_layout == nullptr || b_layout == nullptr ||
        c_layout == nullptr || d_layout == nullptr) {
      return CUBLAS_STATUS_INVALID_VALUE;
    }
    Job job;
    job.product = Load<Product>(desc);
    std::memcpy(&job.alpha, alpha, sizeof(float));
    std::memcpy(&job.beta, beta, sizeof(float));
    job.a = a;
    job.b = b;
    job.c = c;
    job.d = d;
    job.a_layout = Load<Layout>(a_layout);
    job.b_layout = Load<Layout>(b_layout);
    job.c_layout = Load<Layout>(c_layout);
    job.d_layout = Load<Layout>(d_layout);
    job.workspace = workspace;
    Algorithm algorithm;  // null: chosen for what is passed
    if (algo != nullptr) {
      algorithm = Load<Algorithm>(algo);
      if (algorithm.magic != weir_emulator::kMagic) {
        return CUBLAS_STATUS_INVALID_VALUE;
      }
    }
    job.workspace_bytes = algorithm.workspace_bytes;
    cublasStatus_t status = weir_emulator::CheckShapes(job);
    if (status == CUBLAS_STATUS_SUCCESS) {
      status = weir_emulator::CheckPointers(job, algorithm, workspace_bytes);
    }
    if (status != CUBLAS_STATUS_SUCCESS) {
      return status;
    }
    CUstream_st* const stream = machine.Find(handle_of_stream, handle->device);
    if (stream == nullptr || stream->device != handle->device) {
      return CUBLAS_STATUS_INVALID_VALUE;
    }
    weir_emulator::CheckMemory(machine, job, handle->device);
    return weir_emulator::Status(machine.Enqueue(stream, [job] { job.Run(); }));
  });
}

}  // extern "C"
// NOLINTEND(readability-identifier-naming)
