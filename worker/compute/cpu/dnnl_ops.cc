#include "worker/compute/cpu/dnnl_ops.h"

#include <array>
#include <cstdlib>
#include <map>
#include <new>
#include <optional>
#include <unordered_map>
#include <utility>

#include "common/base/status.h"
#include "oneapi/dnnl/dnnl.hpp"

// A function of libgomp, with which oneDNN is linked. It is declared here since
// clang has no omp.h on Debian.
extern "C" void omp_set_num_threads(int count);

namespace weir {
namespace {

using Arguments = std::unordered_map<int, dnnl::memory>;
using dnnl::memory;

constexpr auto kF32 = memory::data_type::f32;
using Tag = memory::format_tag;

enum Operation : int64_t {
  kMatMul,
  kConvForward,
  kConvBackwardData,
  kConvBackwardKernel
};
// The operation, whether there is a bias, and the fields of the shape. The
// fields that an operation does not have stay 0.
using Key = std::array<int64_t, 10>;

struct Free {
  void operator()(void* p) const { std::free(p); }
};

// A primitive with its arguments. Their data handles are those of the last
// call, so each call sets all of them before it runs the primitive.
struct Entry {
  dnnl::primitive primitive;
  Arguments arguments;
  size_t scratch_bytes = 0;
  // Present where oneDNN wants the kernel in a layout of its own. The caller's
  // kernel is then the source of the reorder, and its gradient the destination.
  std::optional<dnnl::reorder> reorder;
  memory plain_kernel;
};

}  // namespace

struct DnnlOps::State {
  explicit State(int threads)
      : threads(threads), engine(dnnl::engine::kind::cpu, 0), stream(engine) {}

  void Run(Entry* entry) { entry->primitive.execute(stream, entry->arguments); }

  void Set(Entry* entry, int argument, const float* data) {
    // oneDNN has no handle for constant memory; it does not write its inputs.
    entry->arguments.at(argument).set_data_handle(const_cast<float*>(data));
  }

  void Reorder(Entry* entry, memory& from, memory& to) {
    entry->reorder->execute(stream, from, to);
  }

  memory Unbound(const memory::desc& desc) {
    return memory(desc, engine, nullptr);
  }

  // I1: adds the scratch argument of `pd`, and lets the one scratch memory grow
  // to its size. Primitives run one after another, so they can share it.
  void AddScratch(const dnnl::primitive_desc_base& pd, Entry* entry) {
    const memory::desc desc = pd.scratchpad_desc();
    entry->arguments.emplace(DNNL_ARG_SCRATCHPAD, Unbound(desc));
    entry->scratch_bytes = desc.get_size();
    if (entry->scratch_bytes > scratch_bytes) {
      // Whole pages. The address changes here, which is why Find() sets it anew
      // for every call.
      const size_t bytes = (entry->scratch_bytes + 4095) / 4096 * 4096;
      scratch.reset(std::aligned_alloc(4096, bytes));
      if (scratch == nullptr) {
        throw std::bad_alloc();
      }
      scratch_bytes = bytes;
    }
  }

  // Binds the kernel argument: directly where oneDNN takes it as it is, else
  // through a buffer of the entry's own and a reorder.
  void AddKernel(int argument, const memory::desc& plain,
                 const memory::desc& wanted, bool is_output, Entry* entry) {
    entry->plain_kernel = Unbound(plain);
    if (wanted == plain) {
      entry->arguments.emplace(argument, entry->plain_kernel);
      return;
    }
    memory blocked(wanted, engine);
    // A gradient comes out in oneDNN's layout, a kernel goes in with ours.
    if (is_output) {
      entry->reorder = dnnl::reorder({engine, wanted, engine, plain});
    } else {
      entry->reorder = dnnl::reorder({engine, plain, engine, wanted});
    }
    entry->arguments.emplace(argument, blocked);
  }

  // Runs `f`, whose exceptions become a Status.
  template <typename F>
  absl::Status Guard(const char* what, F f) {
    // I2: another thread than the last one may be calling, or somebody else may
    // have set the count of this thread.
    omp_set_num_threads(threads);
    try {
      f();
      return absl::OkStatus();
    } catch (const dnnl::error& e) {
      return absl::InternalError(absl::StrCat("oneDNN ", what, ": ", e.what(),
                                              " (status ",
                                              static_cast<int>(e.status), ")"));
    } catch (const std::bad_alloc&) {
      return absl::ResourceExhaustedError(
          absl::StrCat("oneDNN ", what, ": out of memory"));
    }
  }

  // I1: makes the entry of a key once; the map's nodes never move.
  template <typename Make>
  Entry* Find(const Key& key, Make make) {
    auto it = entries.find(key);
    if (it == entries.end()) {
      it = entries.emplace(key, make()).first;
    }
    Entry* entry = &it->second;
    entry->arguments.at(DNNL_ARG_SCRATCHPAD).set_data_handle(scratch.get());
    return entry;
  }

  Entry MakeMatMul(const MatMulShape& shape, bool bias);
  Entry MakeForward(const Conv2dShape& shape, bool bias);
  Entry MakeBackwardData(const Conv2dShape& shape);
  Entry MakeBackwardKernel(const Conv2dShape& shape, bool bias);

  const int threads;
  dnnl::engine engine;
  dnnl::stream stream;
  std::map<Key, Entry> entries;
  std::unique_ptr<void, Free> scratch;
  size_t scratch_bytes = 0;
};

namespace {

// I1: by default oneDNN would allocate the scratch of every primitive itself.
dnnl::primitive_attr UserScratch() {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attributes;
}

Key KeyOf(Operation operation, bool bias, const Conv2dShape& s) {
  return {operation, bias,      s.batch,  s.channels, s.height,
          s.width,   s.filters, s.kernel, s.stride,   s.padding};
}

// The memory layouts and the geometry of a convolution. oneDNN names extents in
// the order batch, channels, height, width; the tag says how they lie in
// memory.
struct Conv {
  explicit Conv(const Conv2dShape& s)
      : x({s.batch, s.channels, s.height, s.width}, kF32, Tag::nhwc),
        y({s.batch, s.filters, s.out_height(), s.out_width()}, kF32, Tag::nhwc),
        bias({s.filters}, kF32, Tag::x),
        kernel({s.filters, s.channels, s.kernel, s.kernel}, kF32, Tag::oihw),
        any_kernel(kernel.dims(), kF32, Tag::any),
        strides({s.stride, s.stride}),
        padding({s.padding, s.padding}) {}

  dnnl::convolution_forward::primitive_desc Forward(
      bool with_bias, const dnnl::engine& engine) const {
    const auto kind = dnnl::prop_kind::forward_training;
    const auto algorithm = dnnl::algorithm::convolution_direct;
    if (with_bias) {
      return {
          {kind, algorithm, x, any_kernel, bias, y, strides, padding, padding},
          UserScratch(),
          engine};
    }
    return {{kind, algorithm, x, any_kernel, y, strides, padding, padding},
            UserScratch(),
            engine};
  }

  memory::desc x, y, bias, kernel, any_kernel;
  memory::dims strides, padding;
};

}  // namespace

Entry DnnlOps::State::MakeMatMul(const MatMulShape& s, bool bias) {
  const memory::desc a({s.m, s.k}, kF32, s.transpose_a ? Tag::ba : Tag::ab);
  const memory::desc b({s.k, s.n}, kF32, s.transpose_b ? Tag::ba : Tag::ab);
  const memory::desc c({s.m, s.n}, kF32, Tag::ab);
  // oneDNN adds a bias with one row to every row of the product.
  const memory::desc row({1, s.n}, kF32, Tag::ab);
  dnnl::matmul::desc desc(a, b, c);
  if (bias) {
    desc = dnnl::matmul::desc(a, b, row, c);
  }
  const dnnl::matmul::primitive_desc pd(desc, UserScratch(), engine);
  Entry entry;
  entry.primitive = dnnl::matmul(pd);
  entry.arguments.emplace(DNNL_ARG_SRC, Unbound(a));
  entry.arguments.emplace(DNNL_ARG_WEIGHTS, Unbound(b));
  entry.arguments.emplace(DNNL_ARG_DST, Unbound(c));
  if (bias) {
    entry.arguments.emplace(DNNL_ARG_BIAS, Unbound(row));
  }
  AddScratch(pd, &entry);
  return entry;
}

Entry DnnlOps::State::MakeForward(const Conv2dShape& shape, bool bias) {
  const Conv conv(shape);
  const auto pd = conv.Forward(bias, engine);
  Entry entry;
  entry.primitive = dnnl::convolution_forward(pd);
  entry.arguments.emplace(DNNL_ARG_SRC, Unbound(conv.x));
  entry.arguments.emplace(DNNL_ARG_DST, Unbound(conv.y));
  if (bias) {
    entry.arguments.emplace(DNNL_ARG_BIAS, Unbound(conv.bias));
  }
  AddKernel(DNNL_ARG_WEIGHTS, conv.kernel, pd.weights_desc(), false, &entry);
  AddScratch(pd, &entry);
  return entry;
}

Entry DnnlOps::State::MakeBackwardData(const Conv2dShape& shape) {
  const Conv conv(shape);
  // oneDNN wants the forward pass as a hint; its bias does not matter here.
  const dnnl::convolution_backward_data::primitive_desc pd(
      {dnnl::algorithm::convolution_direct, conv.x, conv.any_kernel, conv.y,
       conv.strides, conv.padding, conv.padding},
      UserScratch(), engine, conv.Forward(false, engine));
  Entry entry;
  entry.primitive = dnnl::convolution_backward_data(pd);
  entry.arguments.emplace(DNNL_ARG_DIFF_SRC, Unbound(conv.x));
  entry.arguments.emplace(DNNL_ARG_DIFF_DST, Unbound(conv.y));
  AddKernel(DNNL_ARG_WEIGHTS, conv.kernel, pd.weights_desc(), false, &entry);
  AddScratch(pd, &entry);
  return entry;
}

Entry DnnlOps::State::MakeBackwardKernel(const Conv2dShape& shape, bool bias) {
  const Conv conv(shape);
  using Backward = dnnl::convolution_backward_weights;
  const auto algorithm = dnnl::algorithm::convolution_direct;
  Backward::desc desc(algorithm, conv.x, conv.any_kernel, conv.y, conv.strides,
                      conv.padding, conv.padding);
  if (bias) {
    desc = Backward::desc(algorithm, conv.x, conv.any_kernel, conv.bias, conv.y,
                          conv.strides, conv.padding, conv.padding);
  }
  const Backward::primitive_desc pd(desc, UserScratch(), engine,
                                    conv.Forward(bias, engine));
  Entry entry;
  entry.primitive = Backward(pd);
  entry.arguments.emplace(DNNL_ARG_SRC, Unbound(conv.x));
  entry.arguments.emplace(DNNL_ARG_DIFF_DST, Unbound(conv.y));
  if (bias) {
    entry.arguments.emplace(DNNL_ARG_DIFF_BIAS, Unbound(conv.bias));
  }
  AddKernel(DNNL_ARG_DIFF_WEIGHTS, conv.kernel, pd.diff_weights_desc(), true,
            &entry);
  AddScratch(pd, &entry);
  return entry;
}

DnnlOps::DnnlOps(std::unique_ptr<State> state) : state_(std::move(state)) {}
DnnlOps::~DnnlOps() = default;

absl::StatusOr<std::unique_ptr<DnnlOps>> DnnlOps::Create(int threads) {
  try {
    return std::unique_ptr<DnnlOps>(
        new DnnlOps(std::make_unique<State>(threads)));
  } catch (const dnnl::error& e) {
    return absl::InternalError(absl::StrCat("oneDNN engine: ", e.what()));
  }
}

absl::Status DnnlOps::MatMul(const MatMulShape& shape, const float* a,
                             const float* b, const float* bias, float* c) {
  return state_->Guard("matmul", [&] {
    const bool with_bias = bias != nullptr;
    // The layout of both operands is part of the primitive, so it is of the
    // key.
    const Key key = {kMatMul, with_bias,         shape.m,          shape.n,
                     shape.k, shape.transpose_a, shape.transpose_b};
    Entry* entry =
        state_->Find(key, [&] { return state_->MakeMatMul(shape, with_bias); });
    state_->Set(entry, DNNL_ARG_SRC, a);
    state_->Set(entry, DNNL_ARG_WEIGHTS, b);
    state_->Set(entry, DNNL_ARG_DST, c);
    if (with_bias) {
      state_->Set(entry, DNNL_ARG_BIAS, bias);
    }
    state_->Run(entry);
  });
}

absl::Status DnnlOps::Conv2dForward(const Conv2dShape& shape, const float* x,
                                    const float* kernel, const float* bias,
                                    float* y) {
  return state_->Guard("convolution", [&] {
    const bool with_bias = bias != nullptr;
    Entry* entry = state_->Find(KeyOf(kConvForward, with_bias, shape), [&] {
      return state_->MakeForward(shape, with_bias);
    });
    entry->plain_kernel.set_data_handle(const_cast<float*>(kernel));
    if (entry->reorder) {
      state_->Reorder(entry, entry->plain_kernel,
                      entry->arguments.at(DNNL_ARG_WEIGHTS));
    }
    state_->Set(entry, DNNL_ARG_SRC, x);
    state_->Set(entry, DNNL_ARG_DST, y);
    if (with_bias) {
      state_->Set(entry, DNNL_ARG_BIAS, bias);
    }
    state_->Run(entry);
  });
}

absl::Status DnnlOps::Conv2dBackwardData(const Conv2dShape& shape,
                                         const float* dy, const float* kernel,
                                         float* dx) {
  return state_->Guard("convolution backward data", [&] {
    Entry* entry = state_->Find(KeyOf(kConvBackwardData, false, shape), [&] {
      return state_->MakeBackwardData(shape);
    });
    entry->plain_kernel.set_data_handle(const_cast<float*>(kernel));
    if (entry->reorder) {
      state_->Reorder(entry, entry->plain_kernel,
                      entry->arguments.at(DNNL_ARG_WEIGHTS));
    }
    state_->Set(entry, DNNL_ARG_DIFF_DST, dy);
    state_->Set(entry, DNNL_ARG_DIFF_SRC, dx);
    state_->Run(entry);
  });
}

absl::Status DnnlOps::Conv2dBackwardKernel(const Conv2dShape& shape,
                                           const float* x, const float* dy,
                                           float* dkernel, float* dbias) {
  return state_->Guard("convolution backward kernel", [&] {
    const bool with_bias = dbias != nullptr;
    Entry* entry = state_->Find(
        KeyOf(kConvBackwardKernel, with_bias, shape),
        [&] { return state_->MakeBackwardKernel(shape, with_bias); });
    // The plain kernel shares its handle with the primitive's argument where
    // oneDNN takes our layout, so this sets both.
    entry->plain_kernel.set_data_handle(dkernel);
    state_->Set(entry, DNNL_ARG_SRC, x);
    state_->Set(entry, DNNL_ARG_DIFF_DST, dy);
    if (with_bias) {
      state_->Set(entry, DNNL_ARG_DIFF_BIAS, dbias);
    }
    state_->Run(entry);
    if (entry->reorder) {
      state_->Reorder(entry, entry->arguments.at(DNNL_ARG_DIFF_WEIGHTS),
                      entry->plain_kernel);
    }
  });
}

}  // namespace weir
