// Rung 7: a fused layer. A row-parallel layer: every rank has some columns of the weights and the inputs that
// belong to them, so that its product is one part of a sum over the ranks. One kernel makes the product, adds
// the parts of all ranks and the residual, and normalises the row (RMSNorm): no sum goes through memory, and
// nothing is launched in between. It is held against the same in four steps, made by one thread.
//
// For bf16 and f16 the library has all but the product in one call: Communicator::all_reduce_rms_norm.
#include <cmath>

#include "ladder/run.hpp"

constexpr int kHidden = 96, kColumns = 16, kTokens = 8, kRanks = 3;
constexpr float kEpsilon = 1e-5f;

// Where a rank's numbers lie. The stream is the residual and then the sum with it.
constexpr int kStream = 0, kOutput = kStream + kTokens * kHidden, kGain = kOutput + kTokens * kHidden,
              kWeights = kGain + kHidden, kInput = kWeights + kHidden * kColumns,
              kSquares = kInput + kTokens * kColumns, kEnd = kSquares + 32;  // squares: one a thread

struct FusedLayer {
  struct Plus {
    NEARLIGHT_DEVICE_FN float operator()(float a, float b) const { return a + b; }
  };
  template <class Channel>
  NEARLIGHT_DEVICE_FN void operator()(Channel& ch, float* data) const {
    const int lane = ch.coop().thread_rank(), width = ch.coop().size();
    for (int token = 0; token < kTokens; ++token) {
      const float* const input = data + kInput + token * kColumns;
      float* const stream = data + kStream + token * kHidden;
      float* const output = data + kOutput + token * kHidden;
      // An element leaves as soon as it is there, while the others are still being multiplied.
      for (int row = lane; row < kHidden; row += width) {
        float part = 0;
        for (int i = 0; i < kColumns; ++i) part += data[kWeights + row * kColumns + i] * input[i];
        output[row] = part;
        ch.bcast(static_cast<unsigned>(row), part);
      }
      float squares = 0;
      for (int row = lane; row < kHidden; row += width) {
        float sum = 0;
        if (!ch.recv_reduce(static_cast<unsigned>(row), output[row], Plus{}, sum)) break;
        stream[row] += sum;
        squares += stream[row] * stream[row];
      }
      data[kSquares + lane] = squares;
      ch.coop().sync();
      float all = 0;
      for (int i = 0; i < width; ++i) all += data[kSquares + i];
      const float scale = 1 / sqrtf(all / kHidden + kEpsilon);
      for (int row = lane; row < kHidden; row += width) output[row] = stream[row] * scale * data[kGain + row];
      ch.advance_epoch();  // a sync as well: all have read the squares
    }
  }
};

// Small whole numbers, whose sums and squares are exact in whatever order they are added.
void fill(std::vector<float>& data, int first, int end, int seed) {
  for (int i = first; i < end; ++i, ++seed)
    data[static_cast<std::size_t>(i)] = static_cast<float>((seed * 7 + seed / 5) % 5 - 2);
}

int main() {
  // The residual and the gain are the same on all ranks, weights and inputs are not.
  std::vector<std::vector<float>> inputs(kRanks, std::vector<float>(kEnd));
  for (int rank = 0; rank < kRanks; ++rank) {
    auto& mine = inputs[static_cast<std::size_t>(rank)];
    fill(mine, kStream, kOutput, 11);
    fill(mine, kGain, kSquares, 1000 + 97 * rank);
    fill(mine, kGain, kWeights, 500);
  }
  // Step 1 and 2: the products, and their sum over the ranks, on top of (3) the residual.
  std::vector<float> right(inputs[0].begin(), inputs[0].begin() + kGain);
  for (const auto& mine : inputs) {
    for (int at = 0; at < kTokens * kHidden; ++at) {
      const int token = at / kHidden, row = at % kHidden;
      const float *weights = &mine[kWeights], *input = &mine[kInput];
      for (int i = 0; i < kColumns; ++i)
        right[static_cast<std::size_t>(at)] += weights[row * kColumns + i] * input[token * kColumns + i];
    }
  }
  for (int token = 0; token < kTokens; ++token) {  // step 4: the norm
    const float* const stream = &right[static_cast<std::size_t>(kStream + token * kHidden)];
    float squares = 0;
    for (int row = 0; row < kHidden; ++row) squares += stream[row] * stream[row];
    const float scale = 1 / sqrtf(squares / kHidden + kEpsilon);
    for (int row = 0; row < kHidden; ++row)
      right[static_cast<std::size_t>(kOutput + token * kHidden + row)] =
          stream[row] * scale * inputs[0][static_cast<std::size_t>(kGain + row)];
  }
  const auto ranks = ladder::run<nearlight::device::LL>({.nranks = kRanks, .shape = {.slots = kHidden}},
                                                        inputs, FusedLayer{});
  return ladder::expect("fused layer", ranks, std::vector(kRanks, right));
}
