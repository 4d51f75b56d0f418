// Every metric an island or a gateway serves, in one table: the exporter takes names, types and help from it,
// and the page dashboards/METRICS.md is printed from it (`islandd --metrics-page`).
//
// Names: prefix islands_, base units, _total on counters (design.md section 8). The last ones are the HTTP
// library's own.
//
// Thread safety: constants.
//
// Invariant: every metric served is in the table, with the labels it has there (metrics_test.cc and the
// gateway's, and deploy/e2e/test_metrics.py on real islands and gateways).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace islands::server {

enum class Metric : uint8_t {
  kTransactions,
  kTransactionLatency,
  kAborts,
  kInFlight,
  kSessions,
  kLongestWait,
  kClientsWaiting,
  kClientsMoved,
  kStaySeconds,
  kWatched,
  kExperimentInfo,
  kWorkerSeconds,
  kWorkSeconds,
  kReadyQueueLength,
  kMessages,
  kMessageBytes,
  kPeerQueueBytes,
  kPeerLinksConnected,
  kPeerLinksExpected,
  kHandshakesRefused,
  kPeerUnresponsive,
  kTwoPhase,
  kInDoubt,
  kInDoubtOldest,
  kParticipantBranches,
  kCoordinated,
  kLostShares,
  kLockWaits,
  kLockWaitSeconds,
  kLatchWaits,
  kLatchWaitSeconds,
  kLocksHeld,
  kLocksInherited,
  kLockWaiters,
  kLockEscalations,
  kDeadlockProbes,
  kDeadlockProbeVictims,
  kPoolResidentBytes,
  kPoolCapacityBytes,
  kDataBytes,
  kPagesRead,
  kPagesReadAlone,
  kPagesEvicted,
  kPageMisses,
  kPagesWritten,
  kPageLooks,
  kPageWaits,
  kPageWaitSeconds,
  kMemoryNodeBytes,
  kLogBytes,
  kLogRingUsedBytes,
  kLogRingCapacityBytes,
  kLogRoomWaits,
  kLogRoomWaitSeconds,
  kLogEpoch,
  kAnswersWaiting,
  kAnswersOverdue,
  kCheckpoints,
  kCheckpointAge,
  kCleanerPagesWritten,
  kCleanerFailed,
  kLogDiskFull,
  kRecoverySeconds,
  kRecoveryRecords,
  kRecoveryUndone,
  kIslandInfo,
  kBuildInfo,
  kWorkerPlacementInfo,
  kBootEpoch,
  kRestarts,
  kStartTime,
  kGatewayCalls,
  kGatewayTransactions,
  kGatewayFailures,
  kGatewayFull,
  kGatewayLatency,
  kGatewayIslandWait,
  kGatewayOpen,
  kGatewayLimit,
  kGatewayMessages,
  kGatewayMessageBytes,
  kGatewayReachable,
  kGatewayConnections,
  kGatewayCpu,
  kGatewayStartTime,
  kExposerBytes,
  kExposerScrapes,
  kExposerLatencies,
};

struct MetricDescriptor {
  Metric id;
  std::string_view section;  // of the page
  std::string_view name;
  std::string_view type;  // counter, gauge, histogram, summary
  // Besides `island`, which all of an island's have: names separated by blanks, each with its values where
  // they are always the same ("direction=sent|received"); "*" = others that depend on what runs.
  std::string_view labels;
  std::string_view meaning;
  bool ours = true;
};

// This section's are served where there is a log: durability lazy or sync.
inline constexpr std::string_view kLogSection = "Log and checkpoints";
// This section's are served by the gateway, all others by islands; those of the library by both.
inline constexpr std::string_view kGatewaySection = "The gateway";

std::span<const MetricDescriptor> AllMetrics();
const MetricDescriptor& DescriptorOf(Metric metric);

// The page, as Markdown.
std::string MetricsPage();

}  // namespace islands::server
