#include "worker/compute/cpu/dnnl_ops.h"

#include <array>
#include <cstdlib>
#include <initializer_list>
#include <map>
#include <new>
#include <optional>
#include <unordered_map>
#include <utility>

#include "absl/strings/str_cat.h"
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
  // A convolution's: which argument its kernel is, and the kernel as the caller
  // has it. Where oneDNN wants a layout of its own there is a reorder, from the
  // caller's kernel or, for a gradient, to it.
  int kernel_argument = 0;
  memory plain_kernel;
  std::optional<dnnl::reorder> reorder;
};

}  // namespace

struct DnnlOps::State {
  explicit State(int threads)
      : threads(threads), engine(dnnl::engine::kind::cpu, 0), stream(engine) {}

  memory Unbound(const memory::desc& desc) {
    return memory(desc, engine, nullptr);
  }

  // I1: adds the scratch argument of `pd`, and lets the one scratch memory grow
  // to its size. Primitives run one after another, so they can share it.
  void AddScratch(const dnnl::primitive_desc_base& pd, Entry* entry) {
    const memory::desc desc = pd.scratchpad_desc();
    entry->arguments.emplace(DNNL_ARG_SCRATCHPAD, Unbound(desc));
    if (desc.get_size() > scratch_bytes) {
      // Whole pages. The address changes here, which is why Run() sets it anew
      // for every call.
      const size_t bytes = (desc.get_size() + 4095) / 4096 * 4096;
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
                 const memory::desc& wanted, Entry* entry) {
    entry->kernel_argument = argument;
    entry->plain_kernel = Unbound(plain);
    if (wanted == plain) {
      entry->arguments.emplace(argument, entry->plain_kernel);
      return;
    }
    memory blocked(wanted, engine);
    // A gradient comes out in oneDNN's layout, a kernel goes in with ours.
    if (argument == DNNL_ARG_DIFF_WEIGHTS) {
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

  // Runs the primitive of `key`, with these arguments but for those that are
  // null, and with this kernel if it has one. I1: makes it once.
  template <typename Make>
  absl::Status Run(const char* what, const Key& key, Make make,
                   std::initializer_list<std::pair<int, const float*>> data,
                   const float* kernel) {
    return Guard(what, [&] {
      auto it = entries.find(key);
      if (it == entries.end()) {
        it = entries.emplace(key, make()).first;
      }
      Entry& entry = it->second;
      entry.arguments.at(DNNL_ARG_SCRATCHPAD).set_data_handle(scratch.get());
      for (const auto& [argument, values] : data) {
        if (values != nullptr) {
          Bind(values, entry.arguments.at(argument));
        }
      }
      Execute(kernel, &entry);
    });
  }

  // oneDNN has no handle for constant memory; it does not write its inputs.
  static void Bind(const float* data, memory& to) {
    to.set_data_handle(const_cast<float*>(data));
  }

  void Execute(const float* kernel, Entry* entry) {
    if (kernel != nullptr) {
      // The plain kernel shares its handle with the primitive's argument where
      // oneDNN takes our layout, so this sets both.
      Bind(kernel, entry->plain_kernel);
    }
    const bool is_output = entry->kernel_argument == DNNL_ARG_DIFF_WEIGHTS;
    if (entry->reorder && !is_output) {
      entry->reorder->execute(stream, entry->plain_kernel,
                              entry->arguments.at(entry->kernel_argument));
    }
    entry->primitive.execute(stream, entry->arguments);
    if (entry->reorder && is_output) {
      entry->reorder->execute(stream,
                              entry->arguments.at(entry->kernel_argument),
                              entry->plain_kernel);
    }
  }

  // Makes the entry of a primitive whose arguments are `used`, but for those
  // that have no dimensions.
  Entry MakeEntry(const dnnl::primitive& primitive,
                  const dnnl::primitive_desc_base& pd,
                  std::initializer_list<std::pair<int, memory::desc>> used) {
    Entry entry;
    entry.primitive = primitive;
    for (const auto& [argument, desc] : used) {
      if (!desc.is_zero()) {
        entry.arguments.emplace(argument, Unbound(desc));
      }
    }
    AddScratch(pd, &entry);
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
// memory. A bias that is not there has a descriptor without dimensions.
struct Conv {
  Conv(const Conv2dShape& s, bool with_bias)
      : x({s.batch, s.channels, s.height, s.width}, kF32, Tag::nhwc),
        y({s.batch, s.filters, s.out_height(), s.out_width()}, kF32, Tag::nhwc),
        kernel({s.filters, s.channels, s.kernel, s.kernel}, kF32, Tag::oihw),
        any_kernel(kernel.dims(), kF32, Tag::any),
        strides({s.stride, s.stride}),
        padding({s.padding, s.padding}) {
    if (with_bias) {
      bias = memory::desc({s.filters}, kF32, Tag::x);
    }
  }

  dnnl::convolution_forward::primitive_desc Forward(
      const dnnl::engine& engine) const {
    return {{dnnl::prop_kind::forward_training, kAlgorithm, x, any_kernel, bias,
             y, strides, padding, padding},
            UserScratch(),
            engine};
  }

  static constexpr auto kAlgorithm = dnnl::algorithm::convolution_direct;
  memory::desc x, y, bias, kernel, any_kernel;
  memory::dims strides, padding;
};

}  // namespace

Entry DnnlOps::State::MakeMatMul(const MatMulShape& s, bool bias) {
  const memory::desc a({s.m, s.k}, kF32, s.transpose_a ? Tag::ba : Tag::ab);
  const memory::desc b({s.k, s.n}, kF32, s.transpose_b ? Tag::ba : Tag::ab);
  const memory::desc c({s.m, s.n}, kF32, Tag::ab);
  // oneDNN adds a bias with one row to every row of the product.
  memory::desc row;
  if (bias) {
    row = memory::desc({1, s.n}, kF32, Tag::ab);
  }
  const dnnl::matmul::primitive_desc pd({a, b, row, c}, UserScratch(), engine);
  return MakeEntry(dnnl::matmul(pd), pd,
                   {{DNNL_ARG_SRC, a},
                    {DNNL_ARG_WEIGHTS, b},
                    {DNNL_ARG_DST, c},
                    {DNNL_ARG_BIAS, row}});
}

Entry DnnlOps::State::MakeForward(const Conv2dShape& shape, bool bias) {
  const Conv conv(shape, bias);
  const auto pd = conv.Forward(engine);
  Entry entry = MakeEntry(dnnl::convolution_forward(pd), pd,
                          {{DNNL_ARG_SRC, conv.x},
                           {DNNL_ARG_DST, conv.y},
                           {DNNL_ARG_BIAS, conv.bias}});
  AddKernel(DNNL_ARG_WEIGHTS, conv.kernel, pd.weights_desc(), &entry);
  return entry;
}

Entry DnnlOps::State::MakeBackwardData(const Conv2dShape& shape) {
  const Conv conv(shape, false);
  // oneDNN wants the forward pass as a hint; its bias does not matter here.
  const dnnl::convolution_backward_data::primitive_desc pd(
      {conv.kAlgorithm, conv.x, conv.any_kernel, conv.y, conv.strides,
       conv.padding, conv.padding},
      UserScratch(), engine, conv.Forward(engine));
  Entry entry =
      MakeEntry(dnnl::convolution_backward_data(pd), pd,
                {{DNNL_ARG_DIFF_SRC, conv.x}, {DNNL_ARG_DIFF_DST, conv.y}});
  AddKernel(DNNL_ARG_WEIGHTS, conv.kernel, pd.weights_desc(), &entry);
  return entry;
}

Entry DnnlOps::State::MakeBackwardKernel(const Conv2dShape& shape, bool bias) {
  const Conv conv(shape, bias);
  const dnnl::convolution_backward_weights::primitive_desc pd(
      {conv.kAlgorithm, conv.x, conv.any_kernel, conv.bias, conv.y,
       conv.strides, conv.padding, conv.padding},
      UserScratch(), engine, conv.Forward(engine));
  Entry entry = MakeEntry(dnnl::convolution_backward_weights(pd), pd,
                          {{DNNL_ARG_SRC, conv.x},
                           {DNNL_ARG_DIFF_DST, conv.y},
                           {DNNL_ARG_DIFF_BIAS, conv.bias}});
  AddKernel(DNNL_ARG_DIFF_WEIGHTS, conv.kernel, pd.diff_weights_desc(), &entry);
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

absl::Status DnnlOps::Run(const op::MatMul& o) {
  const MatMulShape& s = o.shape;
  const bool bias = o.bias != nullptr;
  // The layout of both operands is part of the primitive, so it is of the key.
  return state_->Run(
      o.kName, {kMatMul, bias, s.m, s.n, s.k, s.transpose_a, s.transpose_b},
      [&] { return state_->MakeMatMul(s, bias); },
      {{DNNL_ARG_SRC, o.a},
       {DNNL_ARG_WEIGHTS, o.b},
       {DNNL_ARG_DST, o.c},
       {DNNL_ARG_BIAS, o.bias}},
      nullptr);
}

absl::Status DnnlOps::Run(const op::Conv2dForward& o) {
  const bool bias = o.bias != nullptr;
  return state_->Run(
      o.kName, KeyOf(kConvForward, bias, o.shape),
      [&] { return state_->MakeForward(o.shape, bias); },
      {{DNNL_ARG_SRC, o.x}, {DNNL_ARG_DST, o.y}, {DNNL_ARG_BIAS, o.bias}},
      o.kernel);
}

absl::Status DnnlOps::Run(const op::Conv2dBackwardData& o) {
  return state_->Run(
      o.kName, KeyOf(kConvBackwardData, false, o.shape),
      [&] { return state_->MakeBackwardData(o.shape); },
      {{DNNL_ARG_DIFF_DST, o.dy}, {DNNL_ARG_DIFF_SRC, o.dx}}, o.kernel);
}

absl::Status DnnlOps::Run(const op::Conv2dBackwardKernel& o) {
  const bool bias = o.dbias != nullptr;
  return state_->Run(
      o.kName, KeyOf(kConvBackwardKernel, bias, o.shape),
      [&] { return state_->MakeBackwardKernel(o.shape, bias); },
      {{DNNL_ARG_SRC, o.x},
       {DNNL_ARG_DIFF_DST, o.dy},
       {DNNL_ARG_DIFF_BIAS, o.dbias}},
      o.dkernel);
}

}  // namespace weir
