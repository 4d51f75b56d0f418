// What runs beside a cluster for watching it, as people and programs see it.
//
// Thread safety: pure functions.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "proto/control.pb.h"

namespace islands::deploy {

// The part of `status` about `--observe`: an object, or some lines of text.
nlohmann::ordered_json ObservationJson(const control::v1::Observation& observation);
std::string ObservationText(const control::v1::Observation& observation);

}  // namespace islands::deploy
