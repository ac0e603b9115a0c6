#include "worker/data/formats/digits.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <utility>

#include "common/math/random.h"

namespace weir {
namespace {

constexpr uint64_t kLabelDomain = 0x6c6162656cULL;  // "label"
constexpr uint64_t kImageDomain = 0x696d616765ULL;  // "image"

struct Point {
  float x = 0.0f;
  float y = 0.0f;
  bool operator==(const Point&) const = default;
};

// Control points in the unit box, y downwards. A point given twice is a corner.
using Stroke = std::span<const Point>;
// One way to write a digit; unused strokes are empty.
using Glyph = std::array<Stroke, 3>;

constexpr Point kZero[] = {{.5f, 0},    {.2f, .15f}, {.08f, .5f},
                           {.2f, .87f}, {.5f, 1},    {.8f, .87f},
                           {.92f, .5f}, {.8f, .15f}, {.5f, 0}};
constexpr Point kOneStem[] = {{.52f, 0}, {.5f, .5f}, {.48f, 1}};
constexpr Point kOneFlag[] = {
    {.25f, .22f}, {.53f, 0}, {.53f, 0}, {.51f, .5f}, {.5f, 1}};
constexpr Point kOneBase[] = {{.22f, 1}, {.78f, 1}};
constexpr Point kTwo[] = {{.13f, .25f}, {.35f, .02f}, {.7f, .04f}, {.85f, .28f},
                          {.6f, .6f},   {.12f, 1},    {.12f, 1},   {.9f, .97f}};
constexpr Point kTwoLoop[] = {{.15f, .2f}, {.5f, 0},     {.82f, .22f},
                              {.6f, .65f}, {.25f, .98f}, {.1f, .85f},
                              {.35f, .8f}, {.65f, .97f}, {.92f, .9f}};
constexpr Point kThree[] = {{.14f, .12f}, {.5f, 0},    {.82f, .2f},
                            {.4f, .46f},  {.4f, .46f}, {.88f, .72f},
                            {.55f, 1},    {.1f, .86f}};
constexpr Point kThreeFlat[] = {{.15f, .02f}, {.82f, .02f}, {.82f, .02f},
                                {.42f, .4f},  {.42f, .4f},  {.88f, .68f},
                                {.55f, 1},    {.1f, .88f}};
constexpr Point kFourOpen[] = {
    {.22f, 0}, {.12f, .58f}, {.12f, .58f}, {.9f, .56f}};
constexpr Point kFourOpenStem[] = {{.72f, .2f}, {.66f, 1}};
constexpr Point kFourClosed[] = {
    {.65f, 0}, {.08f, .65f}, {.08f, .65f}, {.94f, .65f}};
constexpr Point kFourClosedStem[] = {{.65f, 0}, {.64f, 1}};
constexpr Point kFive[] = {{.82f, .02f}, {.25f, .02f}, {.25f, .02f},
                           {.2f, .43f},  {.2f, .43f},  {.62f, .4f},
                           {.88f, .68f}, {.6f, .98f},  {.12f, .9f}};
constexpr Point kFiveRound[] = {{.3f, .05f}, {.18f, .45f}, {.18f, .45f},
                                {.7f, .42f}, {.84f, .72f}, {.5f, 1},
                                {.12f, .92f}};
constexpr Point kFiveTop[] = {{.3f, .05f}, {.88f, .03f}};
constexpr Point kSix[] = {{.72f, 0},    {.3f, .3f},   {.12f, .7f}, {.45f, 1},
                          {.84f, .76f}, {.52f, .52f}, {.17f, .7f}};
constexpr Point kSixStraight[] = {{.5f, 0},    {.22f, .45f}, {.2f, .85f},
                                  {.5f, 1},    {.75f, .78f}, {.5f, .6f},
                                  {.22f, .78f}};
constexpr Point kSeven[] = {
    {.1f, .04f}, {.88f, .03f}, {.88f, .03f}, {.58f, .5f}, {.4f, 1}};
constexpr Point kSevenHook[] = {{.1f, .25f},  {.12f, .04f}, {.12f, .04f},
                                {.88f, .06f}, {.88f, .06f}, {.5f, .55f},
                                {.42f, 1}};
constexpr Point kSevenBar[] = {{.3f, .52f}, {.82f, .48f}};
constexpr Point kEight[] = {{.5f, .47f}, {.18f, .25f}, {.5f, 0},
                            {.8f, .22f}, {.5f, .47f},  {.14f, .77f},
                            {.5f, 1},    {.86f, .76f}, {.5f, .47f}};
constexpr Point kEightS[] = {{.82f, .1f},  {.4f, .02f}, {.2f, .25f},
                             {.75f, .65f}, {.6f, .98f}, {.2f, .88f},
                             {.35f, .6f},  {.78f, .3f}, {.82f, .1f}};
constexpr Point kNine[] = {{.8f, .28f}, {.5f, .02f}, {.18f, .28f}, {.45f, .53f},
                           {.8f, .28f}, {.8f, .28f}, {.76f, .65f}, {.6f, 1}};
constexpr Point kNineHook[] = {{.78f, .25f}, {.5f, 0},     {.2f, .25f},
                               {.45f, .5f},  {.78f, .25f}, {.82f, .7f},
                               {.55f, 1},    {.2f, .9f}};

constexpr int kVariants = 3;
const Glyph kGlyphs[10][kVariants] = {
    {{kZero}, {kZero}, {kZero}},
    {{kOneStem}, {kOneFlag}, {kOneFlag, kOneBase}},
    {{kTwo}, {kTwo}, {kTwoLoop}},
    {{kThree}, {kThree}, {kThreeFlat}},
    {{kFourOpen, kFourOpenStem},
     {kFourClosed, kFourClosedStem},
     {kFourOpen, kFourOpenStem}},
    {{kFive}, {kFive}, {kFiveRound, kFiveTop}},
    {{kSix}, {kSix}, {kSixStraight}},
    {{kSeven}, {kSeven, kSevenBar}, {kSevenHook}},
    {{kEight}, {kEight}, {kEightS}},
    {{kNine}, {kNine}, {kNineHook}},
};

// How far apart two samples of a class may be. Chosen so that a network with
// one hidden layer reaches 97.5 to 99% on unseen samples after 10,000, and a
// linear classifier stays well below.
constexpr float kJitter = 0.042f;      // control points, part of the box
constexpr float kHeight[] = {16, 21};  // pixels
constexpr float kAspect[] = {0.52f, 0.85f};
constexpr float kShift = 2.0f;             // pixels
constexpr float kSlant = 0.25f;            // dx per dy
constexpr float kHalfTurn = 0.07f;         // tangent of half the rotation
constexpr float kRadius[] = {0.7f, 1.7f};  // half the pen's width, pixels
constexpr float kInk[] = {0.7f, 1.0f};
constexpr float kNoiseMax = 0.12f;

// The random part of a sample that is drawn once: box -> pixels.
struct Pose {
  float xx, xy, yx, yy, x0, y0;
  Point Map(Point p) const {
    const float x = p.x - 0.5f;
    const float y = p.y - 0.5f;
    return {xx * x + xy * y + x0, yx * x + yy * y + y0};
  }
};

Pose DrawPose(RandomStream& random) {
  const float height = random.NextFloat(kHeight[0], kHeight[1]);
  const float width = height * random.NextFloat(kAspect[0], kAspect[1]);
  const float slant = random.NextFloat(-0.5f * kSlant, kSlant);
  // I1: a rotation without sin and cos, whose last bits differ between
  // libraries; t is the tangent of half the angle.
  const float t = random.NextFloat(-kHalfTurn, kHalfTurn);
  const float cosine = (1.0f - t * t) / (1.0f + t * t);
  const float sine = 2.0f * t / (1.0f + t * t);
  const float center = 0.5f * (kDigitSide - 1);
  Pose pose;
  // Rotation * shear * scale.
  pose.xx = cosine * width;
  pose.xy = -cosine * slant * height - sine * height;
  pose.yx = sine * width;
  pose.yy = -sine * slant * height + cosine * height;
  pose.x0 = center + random.NextFloat(-kShift, kShift);
  pose.y0 = center + random.NextFloat(-kShift, kShift);
  return pose;
}

// Squared distances from pixel centres to the nearest ink, up to `reach`.
class DistanceField {
 public:
  explicit DistanceField(float reach) : reach_(reach) {
    squared_.fill(reach * reach);
  }

  void AddSegment(Point a, Point b) {
    const float dx = b.x - a.x;
    const float dy = b.y - a.y;
    const float length2 = std::max(dx * dx + dy * dy, 1e-6f);
    const int left = Clamp(std::min(a.x, b.x) - reach_);
    const int right = Clamp(std::max(a.x, b.x) + reach_ + 1.0f);
    const int top = Clamp(std::min(a.y, b.y) - reach_);
    const int bottom = Clamp(std::max(a.y, b.y) + reach_ + 1.0f);
    for (int row = top; row <= bottom; ++row) {
      float* const line = &squared_[size_t{kDigitSide} * row];
      const float py = static_cast<float>(row) - a.y;
      for (int column = left; column <= right; ++column) {
        const float px = static_cast<float>(column) - a.x;
        const float t = std::clamp((px * dx + py * dy) / length2, 0.0f, 1.0f);
        const float ex = px - t * dx;
        const float ey = py - t * dy;
        line[column] = std::min(line[column], ex * ex + ey * ey);
      }
    }
  }

  float Distance(int pixel) const { return std::sqrt(squared_[pixel]); }

 private:
  static int Clamp(float position) {
    return static_cast<int>(
        std::clamp(position, 0.0f, static_cast<float>(kDigitSide - 1)));
  }

  const float reach_;
  std::array<float, kDigitPixels> squared_;
};

// Draws the Catmull-Rom spline through the jittered control points.
void DrawStroke(Stroke stroke, const Pose& pose, RandomStream& random,
                DistanceField& field) {
  constexpr int kPointsMax = 16;
  constexpr int kPieces = 4;
  std::array<Point, kPointsMax> at;
  const int count = static_cast<int>(stroke.size());
  for (int i = 0; i < count; ++i) {
    if (i > 0 && stroke[i] == stroke[i - 1]) {
      at[i] = at[i - 1];  // a corner stays one
      continue;
    }
    // The difference of two uniform numbers: mostly small, and never over 1.
    const float jx = random.NextFloat() - random.NextFloat();
    const float jy = random.NextFloat() - random.NextFloat();
    at[i] = pose.Map(
        {stroke[i].x + 2.0f * kJitter * jx, stroke[i].y + 2.0f * kJitter * jy});
  }
  // Each piece goes from p1 to p2, with the direction of p0 to p2 at its begin
  // and of p1 to p3 at its end.
  for (int i = 0; i + 1 < count; ++i) {
    if (at[i] == at[i + 1]) {
      continue;  // a corner: the pieces on both sides end here
    }
    const Point p0 = at[std::max(i - 1, 0)];
    const Point p1 = at[i];
    const Point p2 = at[i + 1];
    const Point p3 = at[std::min(i + 2, count - 1)];
    Point from = p1;
    for (int piece = 1; piece <= kPieces; ++piece) {
      const float t = static_cast<float>(piece) / kPieces;
      const float w0 = ((2.0f - t) * t - 1.0f) * t;
      const float w1 = (3.0f * t - 5.0f) * t * t + 2.0f;
      const float w2 = ((4.0f - 3.0f * t) * t + 1.0f) * t;
      const float w3 = (t - 1.0f) * t * t;
      const Point to = {0.5f * (w0 * p0.x + w1 * p1.x + w2 * p2.x + w3 * p3.x),
                        0.5f * (w0 * p0.y + w1 * p1.y + w2 * p2.y + w3 * p3.y)};
      field.AddSegment(from, to);
      from = to;
    }
  }
}

uint64_t StreamKey(uint64_t seed, uint64_t domain, uint32_t stream) {
  return MixKey(MixKey(seed, domain), stream);
}

}  // namespace

int DigitLabel(uint64_t seed, uint32_t stream, uint64_t index) {
  // I2: ten samples share one stream, and are one permutation of the digits.
  RandomStream random(
      MixKey(StreamKey(seed, kLabelDomain, stream), index / 10));
  std::array<int, 10> order = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
  for (uint32_t i = 9; i > 0; --i) {
    std::swap(order[i], order[random.NextBelow(i + 1)]);
  }
  return order[index % 10];
}

int RenderDigit(uint64_t seed, uint32_t stream, uint64_t index,
                uint8_t* pixels) {
  const int label = DigitLabel(seed, stream, index);
  RandomStream random(MixKey(StreamKey(seed, kImageDomain, stream), index));
  const Glyph& glyph = kGlyphs[label][random.NextBelow(kVariants)];
  const Pose pose = DrawPose(random);
  const float radius = random.NextFloat(kRadius[0], kRadius[1]);
  const float ink = random.NextFloat(kInk[0], kInk[1]);
  const float noise = random.NextFloat(0.0f, kNoiseMax);

  DistanceField field(radius + 1.0f);
  for (const Stroke stroke : glyph) {
    if (!stroke.empty()) {
      DrawStroke(stroke, pose, random, field);
    }
  }
  uint32_t word = 0;
  for (int i = 0; i < kDigitPixels; ++i) {
    // One byte of noise for each pixel, from a word for four.
    word >>= 8;
    if (i % 4 == 0) {
      word = random.Next32();
    }
    // The edge of the pen is one pixel wide, so it is anti-aliased.
    const float cover =
        std::clamp(radius + 0.5f - field.Distance(i), 0.0f, 1.0f);
    const float grain = static_cast<float>(word & 255u) / 127.5f - 1.0f;
    const float value = std::clamp(ink * cover + noise * grain, 0.0f, 1.0f);
    pixels[i] = static_cast<uint8_t>(value * 255.0f + 0.5f);
  }
  return label;
}

}  // namespace weir
