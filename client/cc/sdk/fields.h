// The fields of the public structs by name, for everything that moves them in
// or out.
//
// Place: declaration.cc sets the fields of protos with these names, and the
//   Python extension reads them from dictionaries with these keys. A field that
//   is added to a struct is added here and to its proto, and nowhere else.
//
// Threads: safe.
#ifndef CLIENT_CC_SDK_FIELDS_H_
#define CLIENT_CC_SDK_FIELDS_H_

#include "client/cc/weir.h"

namespace weir::sdk {

// The names of each Kind's values, in their order: the fields of the oneof in
// OptimizerSpec and TableOptimizer.
inline constexpr const char* kOptimizerNames[] = {
    "sgd", "adagrad", "rmsprop", "adadelta", "adam", "adamw"};
inline constexpr const char* kRowOptimizerNames[] = {
    "sgd", "adagrad", "rowwise_adagrad", "adam", "ftrl"};

// Calls visit(name, &member) with the members of a struct that are numbers or
// flags. Which of them an optimizer has depends on its kind.

template <typename Visit>
void ForEachField(Optimizer* optimizer, const Visit& visit) {
  visit("learning_rate", &optimizer->learning_rate);
  visit("weight_decay", &optimizer->weight_decay);
  visit("momentum", &optimizer->momentum);
  visit("dampening", &optimizer->dampening);
  visit("nesterov", &optimizer->nesterov);
  visit("lr_decay", &optimizer->lr_decay);
  visit("initial_accumulator", &optimizer->initial_accumulator);
  visit("alpha", &optimizer->alpha);
  visit("centered", &optimizer->centered);
  visit("rho", &optimizer->rho);
  visit("beta1", &optimizer->beta1);
  visit("beta2", &optimizer->beta2);
  visit("amsgrad", &optimizer->amsgrad);
  visit("epsilon", &optimizer->epsilon);
}

template <typename Visit>
void ForEachField(RowOptimizer* optimizer, const Visit& visit) {
  visit("learning_rate", &optimizer->learning_rate);
  visit("initial_accumulator", &optimizer->initial_accumulator);
  visit("epsilon", &optimizer->epsilon);
  visit("beta1", &optimizer->beta1);
  visit("beta2", &optimizer->beta2);
  visit("per_row_step", &optimizer->per_row_step);
  visit("learning_rate_power", &optimizer->learning_rate_power);
  visit("l1", &optimizer->l1);
  visit("l2", &optimizer->l2);
  visit("l2_shrinkage", &optimizer->l2_shrinkage);
  visit("beta", &optimizer->beta);
  visit("l21", &optimizer->l21);
}

template <typename Visit>
void ForEachField(GroupSettings* settings, const Visit& visit) {
  visit("learning_rate", &settings->learning_rate);
  visit("weight_decay", &settings->weight_decay);
  visit("momentum", &settings->momentum);
}

}  // namespace weir::sdk

#endif  // CLIENT_CC_SDK_FIELDS_H_
