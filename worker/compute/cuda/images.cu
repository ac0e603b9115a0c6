// Pooling, transposes, and images unfolded for convolutions.
#include <cfloat>
#include <cmath>
#include <cstdint>

#include "worker/compute/cuda/device.h"

namespace weir::cuda {
namespace {

// Where all indices fit, kernels compute them in 32 bits: a 64-bit division
// takes a GPU several times as long, and PlaceOf has some.
constexpr int64_t kIndex32Max = int64_t{1} << 31;

// The window of output row or column `out`, clipped to the image.
struct Window {
  int begin;
  int end;
};

__device__ inline Window ClipWindow(const PoolShape& s, int64_t out,
                                    int64_t extent) {
  const int64_t begin = out * s.stride - s.padding;
  const int64_t end = begin + s.size;
  return {static_cast<int>(begin > 0 ? begin : 0),
          static_cast<int>(end < extent ? end : extent)};
}

// The output rows or columns whose windows hold row or column `in`.
__device__ inline Window WindowsOver(const PoolShape& s, int64_t in,
                                     int64_t extent_out) {
  const int64_t first = in + s.padding - s.size + 1;
  const int64_t begin = first > 0 ? (first + s.stride - 1) / s.stride : 0;
  const int64_t end = (in + s.padding) / s.stride + 1;
  return {static_cast<int>(begin),
          static_cast<int>(end < extent_out ? end : extent_out)};
}

// Where an element lies in [batch, height, width, channels / kWide].
template <class Index>
struct Place {
  Index batch, row, column, channel;
};

template <class Index>
__device__ inline Place<Index> PlaceOf(Index i, Index height, Index width,
                                       Index channels) {
  Place<Index> place;
  place.channel = i % channels;
  i /= channels;
  place.column = i % width;
  i /= width;
  place.row = i % height;
  place.batch = i / height;
  return place;
}

// The first largest of a window, NaN being larger than all, and where it is.
template <int kWide>
struct Maximum {
  float value[kWide];
  int64_t pixel[kWide];
};

template <int kWide>
__device__ inline Maximum<kWide> MaximumOver(const PoolShape& s,
                                             const Window& h, const Window& w,
                                             const float* image) {
  Maximum<kWide> best = {};
  bool first = true;
  for (int i = h.begin; i < h.end; ++i) {
    for (int j = w.begin; j < w.end; ++j) {
      const int64_t pixel = i * s.width + j;
      const Vector<kWide> x = Load<kWide>(image + pixel * s.channels);
      for (int c = 0; c < kWide; ++c) {
        const bool larger = first || x.v[c] > best.value[c] || x.v[c] != x.v[c];
        best.value[c] = larger ? x.v[c] : best.value[c];
        best.pixel[c] = larger ? pixel : best.pixel[c];
      }
      first = false;
    }
  }
  return best;
}

// A thread for each output pixel and kWide channels, which lie side by side: a
// warp reads whole lines.
template <class Index, int kWide>
__global__ void PoolForwardKernel(PoolKind kind, PoolShape s, Index count,
                                  const float* x, float* y) {
  const auto wide_channels = static_cast<Index>(s.channels / kWide);
  const float factor = 1.0f / static_cast<float>(s.size * s.size);
  for (Index o = ThreadIndex<Index>(); o < count; o += ThreadCount<Index>()) {
    const Place<Index> out =
        PlaceOf(o, static_cast<Index>(s.out_height()),
                static_cast<Index>(s.out_width()), wide_channels);
    const Window h = ClipWindow(s, out.row, s.height);
    const Window w = ClipWindow(s, out.column, s.width);
    const float* image = x +
                         int64_t{out.batch} * s.height * s.width * s.channels +
                         int64_t{out.channel} * kWide;
    Vector<kWide> result = {};
    if (kind == PoolKind::kMax) {
      const Maximum<kWide> best = MaximumOver<kWide>(s, h, w, image);
      for (int c = 0; c < kWide; ++c) {
        result.v[c] = best.value[c];
      }
    } else {
      for (int i = h.begin; i < h.end; ++i) {
        for (int j = w.begin; j < w.end; ++j) {
          const Vector<kWide> value =
              Load<kWide>(image + (i * s.width + j) * s.channels);
          for (int c = 0; c < kWide; ++c) {
            result.v[c] += value.v[c];
          }
        }
      }
      for (int c = 0; c < kWide; ++c) {
        result.v[c] *= factor;
      }
    }
    Store(result, y + int64_t{o} * kWide);
  }
}

// kWide bytes that are read and written together.
template <int kWide>
struct Places {
  uint8_t v[kWide];
};

template <int kWide>
__device__ inline Places<kWide> LoadPlaces(const uint8_t* p) {
  Places<kWide> places;
  if constexpr (kWide == 4) {
    const uint32_t all = *reinterpret_cast<const uint32_t*>(p);
    for (int c = 0; c < 4; ++c) {
      places.v[c] = static_cast<uint8_t>(all >> (8 * c));
    }
  } else {
    places.v[0] = *p;
  }
  return places;
}

template <int kWide>
__device__ inline void StorePlaces(const Places<kWide>& places, uint8_t* p) {
  if constexpr (kWide == 4) {
    uint32_t all = 0;
    for (int c = 0; c < 4; ++c) {
      all |= static_cast<uint32_t>(places.v[c]) << (8 * c);
    }
    *reinterpret_cast<uint32_t*>(p) = all;
  } else {
    *p = places.v[0];
  }
}

// Where in its window each maximum is: row * size + column.
template <class Index, int kWide>
__global__ void MaximumPlacesKernel(PoolShape s, Index count, const float* x,
                                    uint8_t* places) {
  const auto wide_channels = static_cast<Index>(s.channels / kWide);
  for (Index o = ThreadIndex<Index>(); o < count; o += ThreadCount<Index>()) {
    const Place<Index> out =
        PlaceOf(o, static_cast<Index>(s.out_height()),
                static_cast<Index>(s.out_width()), wide_channels);
    const float* image = x +
                         int64_t{out.batch} * s.height * s.width * s.channels +
                         int64_t{out.channel} * kWide;
    const Maximum<kWide> best =
        MaximumOver<kWide>(s, ClipWindow(s, out.row, s.height),
                           ClipWindow(s, out.column, s.width), image);
    const int64_t row0 = int64_t{out.row} * s.stride - s.padding;
    const int64_t column0 = int64_t{out.column} * s.stride - s.padding;
    Places<kWide> found;
    for (int c = 0; c < kWide; ++c) {
      const auto pixel = static_cast<int>(best.pixel[c]);
      const int row = pixel / static_cast<int>(s.width);
      found.v[c] = static_cast<uint8_t>((row - row0) * s.size +
                                        (pixel - row * s.width - column0));
    }
    StorePlaces(found, places + int64_t{o} * kWide);
  }
}

// Every input element gathers from the windows over it. So no two threads write
// one element, and each sum has one order: I1 of kernels.h. Without `places` a
// maximum is looked for again in every window.
template <class Index, int kWide>
__global__ void PoolBackwardKernel(PoolKind kind, PoolShape s, Index count,
                                   const float* x, const float* dy,
                                   const uint8_t* places, float* dx) {
  const auto wide_channels = static_cast<Index>(s.channels / kWide);
  const float factor = 1.0f / static_cast<float>(s.size * s.size);
  for (Index n = ThreadIndex<Index>(); n < count; n += ThreadCount<Index>()) {
    const Place<Index> in = PlaceOf(n, static_cast<Index>(s.height),
                                    static_cast<Index>(s.width), wide_channels);
    const int64_t channel = int64_t{in.channel} * kWide;
    const int64_t pixel = int64_t{in.row} * s.width + in.column;
    const float* image =
        x + int64_t{in.batch} * s.height * s.width * s.channels + channel;
    const Window rows = WindowsOver(s, in.row, s.out_height());
    const Window columns = WindowsOver(s, in.column, s.out_width());
    Vector<kWide> sum = {};
    for (int i = rows.begin; i < rows.end; ++i) {
      for (int j = columns.begin; j < columns.end; ++j) {
        const int64_t out =
            ((int64_t{in.batch} * s.out_height() + i) * s.out_width() + j) *
                s.channels +
            channel;
        const Vector<kWide> g = Load<kWide>(dy + out);
        if (kind == PoolKind::kAverage) {
          for (int c = 0; c < kWide; ++c) {
            sum.v[c] += factor * g.v[c];
          }
        } else if (places != nullptr) {
          const auto own = static_cast<uint8_t>(
              (in.row - (i * s.stride - s.padding)) * s.size +
              (in.column - (j * s.stride - s.padding)));
          const Places<kWide> place = LoadPlaces<kWide>(places + out);
          for (int c = 0; c < kWide; ++c) {
            sum.v[c] += place.v[c] == own ? g.v[c] : 0.0f;
          }
        } else {
          const Maximum<kWide> best = MaximumOver<kWide>(
              s, ClipWindow(s, i, s.height), ClipWindow(s, j, s.width), image);
          for (int c = 0; c < kWide; ++c) {
            sum.v[c] += best.pixel[c] == pixel ? g.v[c] : 0.0f;
          }
        }
      }
    }
    Store(sum, dx + int64_t{n} * kWide);
  }
}

// Calls launch(count of vectors in the index's type, integral_constant of the
// width) for `elements` in vectors of 4 where `wide`, else of 1.
template <class LaunchKernel>
void Choose(int64_t elements, bool wide, LaunchKernel launch) {
  constexpr std::integral_constant<int, 4> kFour;
  constexpr std::integral_constant<int, 1> kOne;
  const int64_t count = elements / (wide ? 4 : 1);
  // An index goes past `count` by up to one stride before its loop ends.
  if (count < kIndex32Max - kBlocksMax * kThreads) {
    const auto count32 = static_cast<int32_t>(count);
    wide ? launch(count32, kFour) : launch(count32, kOne);
  } else {
    wide ? launch(count, kFour) : launch(count, kOne);
  }
}

// A block transposes tiles of 32 x 32 through shared memory, so that it reads
// and writes whole lines. Its 8 rows of threads each take 4 rows of a tile.
constexpr int kTile = 32;
constexpr int kTileRows = 8;

template <class Out>
__global__ void TransposeKernel(int64_t tiles, int64_t rows, int64_t columns,
                                const float* x, Out* y) {
  // One float more in a row: a column then lies in 32 different banks.
  __shared__ float tile[kTile][kTile + 1];
  const int64_t tiles_across = (columns + kTile - 1) / kTile;
  const int64_t tiles_down = (rows + kTile - 1) / kTile;
  for (int64_t t = blockIdx.x; t < tiles; t += gridDim.x) {
    const int64_t image = t / (tiles_across * tiles_down) * rows * columns;
    const int64_t row0 = t / tiles_across % tiles_down * kTile;
    const int64_t column0 = t % tiles_across * kTile;
    const int64_t column = column0 + threadIdx.x;
    for (int i = threadIdx.y; i < kTile; i += kTileRows) {
      if (row0 + i < rows && column < columns) {
        tile[i][threadIdx.x] = x[image + (row0 + i) * columns + column];
      }
    }
    __syncthreads();
    const int64_t row = row0 + threadIdx.x;
    for (int i = threadIdx.y; i < kTile; i += kTileRows) {
      if (column0 + i < columns && row < rows) {
        Store(Vector<1>{{tile[threadIdx.x][i]}},
              y + image + (column0 + i) * rows + row);
      }
    }
    __syncthreads();
  }
}

// With so few rows or columns most of a tile would be empty. Then neighbours in
// y lie in a few lines of x.
constexpr int64_t kNarrow = 8;

template <class Index, class Out>
__global__ void TransposeNarrowKernel(Index count, Index rows, Index columns,
                                      const float* x, Out* y) {
  for (Index o = ThreadIndex<Index>(); o < count; o += ThreadCount<Index>()) {
    const Index row = o % rows;
    const Index across = o / rows;
    const Index column = across % columns;
    const Index image = across / columns;
    Store(Vector<1>{{x[(int64_t{image} * rows + row) * columns + column]}},
          y + o);
  }
}

template <class Out>
void LaunchTranspose(cudaStream_t stream, int64_t batch, int64_t rows,
                     int64_t columns, const float* x, Out* y) {
  if (std::min(rows, columns) <= kNarrow && batch * rows * columns > 0) {
    return Choose(batch * rows * columns, false, [&](auto count, auto) {
      using Index = decltype(count);
      Launch(stream, BlocksFor(count), dim3(kThreads),
             TransposeNarrowKernel<Index, Out>, count, static_cast<Index>(rows),
             static_cast<Index>(columns), x, y);
    });
  }
  const int64_t tiles = batch * CeilDiv(rows, kTile) * CeilDiv(columns, kTile);
  if (tiles > 0) {
    Launch(stream,
           dim3(static_cast<unsigned>(std::min<int64_t>(tiles, kBlocksMax))),
           dim3(kTile, kTileRows), TransposeKernel<Out>, tiles, rows, columns,
           x, y);
  }
}

// A thread for each kWide elements of the columns.
template <class Index, int kWide, class Out>
__global__ void ImageToColumnsKernel(Conv2dShape s, Index count, const float* x,
                                     Out* columns) {
  const auto wide_channels = static_cast<Index>(s.channels / kWide);
  const auto kernel = static_cast<Index>(s.kernel);
  for (Index n = ThreadIndex<Index>(); n < count; n += ThreadCount<Index>()) {
    // [batch, out row, out column, kernel row, kernel column, channel]
    const Place<Index> in_window = PlaceOf(n, kernel, kernel, wide_channels);
    const Place<Index> out =
        PlaceOf(in_window.batch, static_cast<Index>(s.out_height()),
                static_cast<Index>(s.out_width()), Index{1});
    const int64_t row = int64_t{out.row} * s.stride - s.padding + in_window.row;
    const int64_t column =
        int64_t{out.column} * s.stride - s.padding + in_window.column;
    Vector<kWide> value = {};
    if (row >= 0 && row < s.height && column >= 0 && column < s.width) {
      value = Load<kWide>(
          x +
          ((int64_t{out.batch} * s.height + row) * s.width + column) *
              s.channels +
          int64_t{in_window.channel} * kWide);
    }
    Store(value, columns + int64_t{n} * kWide);
  }
}

template <class Out>
void LaunchImageToColumns(cudaStream_t stream, const Conv2dShape& s,
                          const float* x, Out* columns) {
  const bool wide = s.channels % 4 == 0 && Aligned16(x) && Aligned16(columns);
  const int64_t elements = s.batch * s.out_height() * s.out_width() * s.kernel *
                           s.kernel * s.channels;
  Choose(elements, wide, [&](auto count, auto width) {
    Launch(stream, BlocksFor(count), dim3(kThreads),
           ImageToColumnsKernel<decltype(count), decltype(width)::value, Out>,
           s, count, x, columns);
  });
}

// Every pixel gathers its places in the columns, kernel row by kernel row: no
// atomics, and one order (I1 of kernels.h).
template <class Index, int kWide>
__global__ void ColumnsToImageKernel(Conv2dShape s, Index count,
                                     const float* columns, float* dx) {
  const auto wide_channels = static_cast<Index>(s.channels / kWide);
  for (Index n = ThreadIndex<Index>(); n < count; n += ThreadCount<Index>()) {
    const Place<Index> in = PlaceOf(n, static_cast<Index>(s.height),
                                    static_cast<Index>(s.width), wide_channels);
    Vector<kWide> sum = {};
    for (int64_t i = 0; i < s.kernel; ++i) {
      // The window at output row `row / stride` holds this pixel at kernel row
      // i, if the stride divides it and there is such an output.
      const int64_t row = in.row + s.padding - i;
      if (row < 0 || row % s.stride != 0 || row / s.stride >= s.out_height()) {
        continue;
      }
      for (int64_t j = 0; j < s.kernel; ++j) {
        const int64_t column = in.column + s.padding - j;
        if (column < 0 || column % s.stride != 0 ||
            column / s.stride >= s.out_width()) {
          continue;
        }
        const int64_t out =
            (int64_t{in.batch} * s.out_height() + row / s.stride) *
                s.out_width() +
            column / s.stride;
        const Vector<kWide> value = Load<kWide>(
            columns + ((out * s.kernel + i) * s.kernel + j) * s.channels +
            int64_t{in.channel} * kWide);
        for (int c = 0; c < kWide; ++c) {
          sum.v[c] += value.v[c];
        }
      }
    }
    Store(sum, dx + int64_t{n} * kWide);
  }
}

}  // namespace

void Enqueue(cudaStream_t stream, const op::PoolForward& o) {
  const PoolShape& s = o.shape;
  const bool wide = s.channels % 4 == 0 && Aligned16(o.x) && Aligned16(o.y);
  Choose(s.y_elements(), wide, [&](auto count, auto width) {
    Launch(stream, BlocksFor(count), dim3(kThreads),
           PoolForwardKernel<decltype(count), decltype(width)::value>, o.kind,
           s, count, o.x, o.y);
  });
}

int64_t PoolPlacesBytes(const op::PoolBackward& o) {
  // A place is a byte.
  const bool kept = o.kind == PoolKind::kMax && o.shape.size <= 16;
  return kept ? o.shape.y_elements() : 0;
}

void Enqueue(cudaStream_t stream, const op::PoolBackward& o, uint8_t* places) {
  const PoolShape& s = o.shape;
  const bool wide = s.channels % 4 == 0 && Aligned16(o.x) && Aligned16(o.dy) &&
                    Aligned16(o.dx);
  if (PoolPlacesBytes(o) == 0) {
    places = nullptr;
  } else {
    Choose(s.y_elements(), wide, [&](auto count, auto width) {
      Launch(stream, BlocksFor(count), dim3(kThreads),
             MaximumPlacesKernel<decltype(count), decltype(width)::value>, s,
             count, o.x, places);
    });
  }
  Choose(s.x_elements(), wide, [&](auto count, auto width) {
    Launch(stream, BlocksFor(count), dim3(kThreads),
           PoolBackwardKernel<decltype(count), decltype(width)::value>, o.kind,
           s, count, o.x, o.dy, places, o.dx);
  });
}

void Enqueue(cudaStream_t stream, const op::Transpose& o) {
  LaunchTranspose(stream, o.batch, o.rows, o.columns, o.x, o.y);
}

void TransposeToBf16(cudaStream_t stream, int64_t batch, int64_t rows,
                     int64_t columns, const float* x, Bf16* y) {
  LaunchTranspose(stream, batch, rows, columns, x, y);
}

void ImageToColumns(cudaStream_t stream, const Conv2dShape& shape,
                    const float* x, float* columns) {
  LaunchImageToColumns(stream, shape, x, columns);
}

void ImageToColumnsBf16(cudaStream_t stream, const Conv2dShape& shape,
                        const float* x, Bf16* columns) {
  LaunchImageToColumns(stream, shape, x, columns);
}

void ColumnsToImage(cudaStream_t stream, const Conv2dShape& s,
                    const float* columns, float* dx) {
  const bool wide = s.channels % 4 == 0 && Aligned16(columns) && Aligned16(dx);
  Choose(s.x_elements(), wide, [&](auto count, auto width) {
    Launch(stream, BlocksFor(count), dim3(kThreads),
           ColumnsToImageKernel<decltype(count), decltype(width)::value>, s,
           count, columns, dx);
  });
}

}  // namespace weir::cuda
