// The members of the family in optimizer.h, each in a file of its own, which
// begins with its equations; for the factory alone.
//
// REQUIRES, everywhere: the spec's defaults are filled in and its fields are
// checked (proto/job/field_rules.h).
#ifndef SERVER_PS_OPTIMIZER_MEMBERS_H_
#define SERVER_PS_OPTIMIZER_MEMBERS_H_

#include <memory>

#include "server/ps/optimizer/optimizer.h"

namespace weir {

std::unique_ptr<Optimizer> MakeAdadelta(const Adadelta& spec);
std::unique_ptr<Optimizer> MakeAdagrad(const Adagrad& spec);
std::unique_ptr<Optimizer> MakeAdam(const Adam& spec);
std::unique_ptr<Optimizer> MakeAdamW(const AdamW& spec);
std::unique_ptr<Optimizer> MakeFtrl(const Ftrl& spec);
std::unique_ptr<Optimizer> MakeRmsProp(const RmsProp& spec);
std::unique_ptr<Optimizer> MakeSgd(const Sgd& spec);

}  // namespace weir

#endif  // SERVER_PS_OPTIMIZER_MEMBERS_H_
