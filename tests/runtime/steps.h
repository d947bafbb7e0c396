// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <initializer_list>
#include <memory>
#include <string>

#include "runtime/training_step.h"
#include "tests/runtime/programs.h"

namespace reprise::runtime {

inline at::Tensor numbers(std::initializer_list<double> all) {
  return at::tensor(all, at::kDouble);
}
inline at::Tensor parameter(std::initializer_list<double> all) {
  return numbers(all).requires_grad_();
}

#define EXPECT_NUMBERS(actual, ...) EXPECT_TRUE(at::equal(actual, numbers(__VA_ARGS__))) << (actual)

inline Tangent dense(std::initializer_list<std::int64_t> strides) { return std::vector(strides); }

// Expects a dense gradient for each of the outputs, in one dimension.
inline std::shared_ptr<Prepared> prepare(const ProgramBuilder& build, const std::string& plan) {
  auto prepared = std::make_shared<Prepared>();
  prepared->schedule = std::make_shared<Schedule>(build.schedule(plan));
  prepared->expected.tangents.assign(prepared->schedule->program->tangents.size(), dense({1}));
  return prepared;
}

template <class Function>
std::string error_of(const Function& function) {
  try {
    function();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "none";
}

inline bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace reprise::runtime
