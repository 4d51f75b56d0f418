// MANIFEST: what must be known of a box before its log can be read. Which epochs never count, because power
// was lost, and how to see that it was lost again.
//
//   file     offset   bytes
//                 0       8  magic "ISLBOXM1": its format is the one below
//                 8       8  cluster: as in segments
//                16      16  id of the ring directory; zeros: the log was closed, and all of it is in EPOCH
//                32      16  boot id of the kernel under which its rings were made
//                48       4  islands
//                52       4  cuts
//                56       4  CRC-32C of the whole file with this field zero
//                60       4  bytes of the path at the end
//                64  8 each  for every island: the highest life (boot epoch) that was started, 0: none
//                    16 each  cuts, oldest first: C, the epoch that was durable, and S, the one with which
//                             the box went on
//                             path of the ring directory, absolute; empty where the log was closed. It is
//                             for people, and to find rings that the deployment's file does not name any more
//
// A cut (C, S) says: the epochs strictly between never count, at any recovery, of any island. While power is
// not lost, what is beyond EPOCH counts too: it is in log files, or in the rings.
//
// So that it can be seen from outside whether rings are missing, they come and go in this order: the rings
// of a life are made, all of its island's workers; the life is written here; the rings of the earlier life,
// which had been drained before the later one was begun, are removed; the life's process starts. Then of
// every island the rings of the life that is named here are there, and all that counts is in them, or in the
// files.
//
// It is replaced whole. It is there before EPOCH is, and goes never.
//
// Thread safety: plain values and functions; one writer, who has the deployment's lock.
//
// Invariants:
//  1. Of cuts, C < S - 1, and the next one's C is at least this one's S - 1.
//  2. What ReadBoxManifest returns survives a loss of power.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "instance/log/box_id.h"
#include "instance/log/epoch_file.h"
#include "instance/log/ring.h"
#include "runtime/file_system.h"
#include "runtime/planted_bug.h"

namespace islands::log {

inline constexpr char kManifestName[] = "MANIFEST";

struct EpochCut {
  uint64_t durable = 0;  // C
  uint64_t next = 0;     // S
  bool Drops(uint64_t epoch) const {
    const uint64_t late = runtime::Planted(runtime::PlantedBug::kCutTooLate) ? 1 : 0;
    return epoch > durable + late && epoch < next;
  }
  friend bool operator==(const EpochCut&, const EpochCut&) = default;
};

struct BoxManifest {
  uint64_t cluster = 0;
  BoxId ring_directory{};
  BoxId boot{};
  std::vector<uint64_t> lives;  // by island
  std::vector<EpochCut> cuts;
  std::string ring_path;
  friend bool operator==(const BoxManifest&, const BoxManifest&) = default;
};

std::vector<std::byte> EncodeBoxManifest(const BoxManifest& manifest);
// DATA_LOSS: it is damaged; says how.
absl::StatusOr<BoxManifest> DecodeBoxManifest(std::span<const std::byte> bytes);

// NOT_FOUND: this log was never begun. DATA_LOSS: it is damaged, or gone from a log that was begun.
// FAILED_PRECONDITION: the log is of other data.
absl::StatusOr<BoxManifest> ReadBoxManifest(runtime::FileSystem& files, const std::string& log_directory,
                                            uint64_t cluster, size_t islands);
// Makes the directory. After OK it survives; after an error the old one may be there or this one, whole.
absl::Status WriteBoxManifest(runtime::FileSystem& files, const std::string& log_directory,
                              const BoxManifest& manifest);

// Whether all that was appended is still there: nothing was lost if the log was closed; or the kernel is the
// one under which the rings were made, and the ring directory too, and all rings of the lives named here are
// in `whole`. Otherwise it is as after a loss of power, for all islands. `ring_directory`: zeros, if there is
// none.
bool SameBoot(const BoxManifest& manifest, const BoxId& boot, const BoxId& ring_directory,
              std::span<const StreamId> whole, std::span<const uint32_t> workers_per_island);

// Not the same boot: what is beyond EPOCH counts no more. Before anything of the log is opened the manifest
// is written with it.
void Cut(BoxManifest* manifest, const EpochBlock& epoch);
// Logger::Options::first_epoch.
uint64_t FirstEpoch(const BoxManifest& manifest);

}  // namespace islands::log
