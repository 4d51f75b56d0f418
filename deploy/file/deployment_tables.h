// The `data.tables` part of a deployment file.
//
// Thread safety: pure functions.
#pragma once

#include <vector>

#include "deploy/file/yaml_reader.h"
#include "proto/control.pb.h"

namespace islands::deploy {

// The tables under `data`, whatever could be read of them; everything wrong goes to `complaints`.
std::vector<control::v1::TableSpec> ReadTables(const MapReader& data, Positions* positions,
                                               Complaints* complaints);

// What a file without `data.tables` has: the microbenchmark's table of the paper, 240,000 rows of 250 bytes.
control::v1::TableSpec DefaultTable();

}  // namespace islands::deploy
