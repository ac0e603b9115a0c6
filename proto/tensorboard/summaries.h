// The values of TensorBoard's events, as its plug-ins want them.
//
// Place: board.h.
//
// Threads: safe.
// Source: TensorBoard's plug-ins scalars, histograms, text, hparams and
//   custom_scalars.
#ifndef PROTO_TENSORBOARD_SUMMARIES_H_
#define PROTO_TENSORBOARD_SUMMARIES_H_

#include <map>
#include <string>
#include <vector>

#include "google/protobuf/message.h"
#include "google/protobuf/struct.pb.h"
#include "proto/chief.pb.h"
#include "proto/tensorboard.pb.h"

namespace weir {

using Hparams = std::map<std::string, google::protobuf::Value>;

// `first`: no value of this tag is in the file yet.
void AddScalar(const std::string& tag, float value, bool first,
               tensorboard::Summary* summary);
// Nothing is added for a histogram of no numbers.
void AddHistogram(const std::string& tag, const Histogram& histogram,
                  bool first, tensorboard::Summary* summary);
void AddText(const std::string& tag, const std::string& markdown,
             tensorboard::Summary* summary);
void AddHparams(const Hparams& hparams, double start_seconds,
                tensorboard::Summary* summary);
void AddEnd(bool success, double end_seconds, tensorboard::Summary* summary);
// One chart for each title, with the tags that its expression matches.
void AddLayout(const std::vector<std::pair<std::string, std::string>>& charts,
               tensorboard::Summary* summary);

// Adds every number, word and truth value of a message that is set, under its
// path: "optimizer.adam.beta1". Lists are left out.
void AddFields(const google::protobuf::Message& message,
               const std::string& path, Hparams* hparams);

}  // namespace weir

#endif  // PROTO_TENSORBOARD_SUMMARIES_H_
