#include "instance/server/metric_descriptors.h"

#include <fmt/format.h>

#include <array>

namespace islands::server {
namespace {

constexpr std::string_view kRuns = "Transactions";
constexpr std::string_view kWorkers = "Workers";
constexpr std::string_view kPeers = "Messages and links";
constexpr std::string_view kCommit = "Two-phase commit";
constexpr std::string_view kLocks = "Locks";
constexpr std::string_view kMemory = "Memory";
constexpr std::string_view kIsland = "The island itself";
constexpr std::string_view kLibrary = "The metrics endpoint";

// Of histograms: those that ask islands.
constexpr std::string_view kGatewayMethods = "method=Execute|ExecuteMany|Transact|AskOutcome|Call";

constexpr std::string_view kCounter = "counter";
constexpr std::string_view kGauge = "gauge";

constexpr std::array kMetrics = {
    MetricDescriptor{Metric::kTransactions, kRuns, "islands_transactions_total", kCounter,
                     "worker scope=local|multisite|distributed outcome=committed|aborted|unknown",
                     "Transactions begun here that have ended, by what they touched (one site, several sites "
                     "of this island, several islands) and how they ended. aborted counts attempts: one that "
                     "is retried counts each time. unknown: the decision was made elsewhere and could not be "
                     "learned in time"},
    MetricDescriptor{Metric::kTransactionLatency, kRuns, "islands_transaction_latency_seconds", "histogram",
                     "scope=local|multisite|distributed",
                     "Time from a transaction's first attempt to its committed answer"},
    MetricDescriptor{
        Metric::kAborts, kRuns, "islands_aborts_total", kCounter,
        "worker reason=procedure|deadlock|lock_timeout|deadline|peer_lost|peer_restarted|vote_no|"
        "storage|refused|peer_unresponsive|contradiction|condition|client_gone",
        "Aborted attempts, by reason"},
    MetricDescriptor{Metric::kInFlight, kRuns, "islands_transactions_in_flight", kGauge, "worker",
                     "Transactions a run keeps in flight here (its MPL); 0 without a run"},
    MetricDescriptor{Metric::kSessions, kRuns, "islands_sessions_open", kGauge, "worker",
                     "Transactions of clients outside that are open here, through a gateway"},
    MetricDescriptor{Metric::kLongestWait, kRuns, "islands_transaction_longest_wait_seconds", kGauge,
                     "worker",
                     "Longest that a transaction begun here waited for its answer, or has been waiting by "
                     "now, since the worker has started"},
    MetricDescriptor{
        Metric::kClientsWaiting, kRuns, "islands_clients_waiting", kGauge, "worker",
        "Transactions of a run's clients that are due and wait for a slot: of clients of the whole "
        "deployment, and of a rate; an island's own never wait"},
    MetricDescriptor{Metric::kClientsMoved, kRuns, "islands_clients_moved_total", kCounter, "worker",
                     "Clients of the whole deployment that went to another island, where their next "
                     "transactions begin"},
    MetricDescriptor{
        Metric::kStaySeconds, kRuns, "islands_transaction_stay_seconds_total", kCounter,
        "scope=local|multisite|distributed "
        "stay=queue|running|turn|lock|remote|votes|disk|retry",
        "Where committed transactions have been from when they were due to their answers, of one "
        "in 61, which is watched: together their latency. Queue: no slot had begun it: none was free, or the "
        "worker slept; turn: others had the core; remote: results of other islands; disk: room in the log, "
        "and with durability sync EPOCH; retry: pauses after a deadlock"},
    MetricDescriptor{Metric::kWatched, kRuns, "islands_transactions_watched_total", kCounter,
                     "scope=local|multisite|distributed",
                     "Committed transactions that islands_transaction_stay_seconds_total tells of"},
    MetricDescriptor{Metric::kExperimentInfo, kRuns, "islands_experiment_info", kGauge,
                     "run_id workload mpl seed *",
                     "The run that is going on: constant 1, described by its labels, among them every "
                     "parameter of the workload by its name; absent without a run"},

    MetricDescriptor{Metric::kWorkerSeconds, kWorkers, "islands_worker_seconds_total", kCounter,
                     "worker activity=executing|messaging|waiting|idle",
                     "Time of a worker by what it did: executing procedures, operations and commits; "
                     "messaging: polling, two-phase commit with the branches it ends, sending; waiting: "
                     "nothing to do, but "
                     "transactions are open here; idle: nothing is open. Together they are the time passed; "
                     "busy is executing and messaging. A worker that sleeps brings them up to date every "
                     "0.1 s"},
    MetricDescriptor{
        Metric::kWorkSeconds, kWorkers, "islands_work_measured_seconds_total", kCounter,
        "worker work=executing|searching|locking|latching|logging|building|reading|committing|"
        "cleaning|managing",
        "What executing and messaging consist of, in the rounds of the worker's loop that are "
        "measured, about one in 64: the parts of their sum are the parts of the busy time. "
        "Executing: procedures and operations; searching: ways down trees; latching: waiting for "
        "latches; building and reading: of messages; managing: the loop itself"},
    MetricDescriptor{Metric::kReadyQueueLength, kWorkers, "islands_ready_queue_length", kGauge, "worker",
                     "Transactions and branches that could go on when the worker's last round began"},

    MetricDescriptor{Metric::kMessages, kPeers, "islands_messages_total", kCounter,
                     "peer direction=sent|received", "Messages exchanged with another island"},
    MetricDescriptor{Metric::kMessageBytes, kPeers, "islands_message_bytes_total", kCounter,
                     "peer direction=sent|received",
                     "Bytes of messages exchanged with another island, frame headers included"},
    MetricDescriptor{Metric::kPeerQueueBytes, kPeers, "islands_peer_queue_bytes", kGauge, "peer",
                     "Bytes that wait to be taken by another island, at most 0.1 s ago"},
    MetricDescriptor{Metric::kPeerLinksConnected, kPeers, "islands_peer_links_connected", kGauge, "",
                     "Links dialled to other islands that are up"},
    MetricDescriptor{Metric::kPeerLinksExpected, kPeers, "islands_peer_links_expected", kGauge, "",
                     "Links dialled to other islands there should be"},
    MetricDescriptor{Metric::kHandshakesRefused, kPeers, "islands_handshakes_refused_total", kCounter, "",
                     "Links refused: of another cluster, another user, or not speaking the protocol"},
    MetricDescriptor{Metric::kPeerUnresponsive, kPeers, "islands_peer_unresponsive", kGauge, "peer",
                     "1 while a worker of another island, to which links are up, has not moved for half a "
                     "second or more: nothing new is begun with it. It may go on at any moment"},

    MetricDescriptor{
        Metric::kTwoPhase, kCommit, "islands_two_phase_total", kCounter,
        "worker phase=prepare_sent|one_phase_sent|voted_yes|voted_read|voted_no|commit_sent|"
        "abort_sent|acknowledged|inquiry_sent|fellow_asked",
        "Messages of two-phase commit, counted where they are sent. By the coordinator: "
        "prepare_sent, one_phase_sent (the only writer decides alone), commit_sent, abort_sent. "
        "By a participant: voted_yes, voted_read (it has written nothing), voted_no, "
        "acknowledged (a commit), fellow_asked (the coordinator has died; what do others know?). By "
        "either: inquiry_sent (an answer is missing)"},
    MetricDescriptor{Metric::kInDoubt, kCommit, "islands_in_doubt", kGauge, "worker",
                     "Branches that have voted yes and do not know the decision; they keep their locks"},
    MetricDescriptor{Metric::kInDoubtOldest, kCommit, "islands_in_doubt_oldest_seconds", kGauge, "worker",
                     "For how long the oldest of those branches has been in doubt; `islands txn FILE list "
                     "--in-doubt` names them. 0 if there is none"},
    MetricDescriptor{Metric::kParticipantBranches, kCommit, "islands_participant_branches", kGauge, "worker",
                     "Open branches of transactions begun on other islands"},
    MetricDescriptor{Metric::kCoordinated, kCommit, "islands_coordinated_transactions", kGauge, "worker",
                     "Transactions begun here with branches on other islands, until all of them have "
                     "acknowledged"},
    MetricDescriptor{Metric::kLostShares, kCommit, "islands_lost_shares_total", kCounter, "worker",
                     "Committed transactions begun here that have lost a part: an island died before it had "
                     "committed what it had voted for, and kept nothing"},

    MetricDescriptor{Metric::kLockWaits, kLocks, "islands_lock_waits_total", kCounter, "worker",
                     "Waits for a lock that have begun"},
    MetricDescriptor{Metric::kLockWaitSeconds, kLocks, "islands_lock_wait_seconds_total", kCounter, "worker",
                     "Time spent in waits for a lock that have ended; those of several transactions add up"},
    MetricDescriptor{
        Metric::kLatchWaits, kLocks, "islands_latch_waits_total", kCounter, "site holder",
        "Times a worker found a latch taken, or somebody else faster, by where in the code it "
        "wanted the latch, and where who had it had taken it; holder is unknown where that is not "
        "known. A pair that has never waited is absent; others are those for which there was no room"},
    MetricDescriptor{Metric::kLatchWaitSeconds, kLocks, "islands_latch_wait_seconds_total", kCounter,
                     "site holder", "Time waited then"},
    MetricDescriptor{Metric::kLocksHeld, kLocks, "islands_locks_held", kGauge, "",
                     "Locks held by open transactions. An island with one worker takes them only when it has "
                     "to wait for something"},
    MetricDescriptor{Metric::kLocksInherited, kLocks, "islands_locks_inherited", kGauge, "",
                     "Locks on whole sites that workers keep for their next transaction; nobody waits for "
                     "them"},
    MetricDescriptor{Metric::kLockWaiters, kLocks, "islands_lock_waiters", kGauge, "",
                     "Transactions that wait for a lock now"},
    MetricDescriptor{Metric::kLockEscalations, kLocks, "islands_lock_escalations_total", kCounter, "",
                     "Times the locks of a transaction on many rows became one on their site"},
    MetricDescriptor{Metric::kDeadlockProbes, kLocks, "islands_deadlock_probes_total", kCounter, "worker",
                     "Probes for deadlocks over several islands handed to another island or worker"},
    MetricDescriptor{Metric::kDeadlockProbeVictims, kLocks, "islands_deadlock_probe_victims_total", kCounter,
                     "worker", "Transactions begun here that a probe found in a deadlock, and aborted"},

    MetricDescriptor{Metric::kPoolResidentBytes, kMemory, "islands_buffer_pool_resident_bytes", kGauge, "",
                     "Buffer pool memory that holds pages"},
    MetricDescriptor{Metric::kPoolCapacityBytes, kMemory, "islands_buffer_pool_capacity_bytes", kGauge, "",
                     "Buffer pool memory that may hold pages"},
    MetricDescriptor{Metric::kDataBytes, kMemory, "islands_data_bytes", kGauge, "site",
                     "Pages that a site has, in memory or not; site: its number, or replicated"},
    MetricDescriptor{Metric::kPagesRead, kMemory, "islands_pages_read_total", kCounter, "site",
                     "Pages read from data files because they were not in memory; 0, as misses, looks and "
                     "evictions are, in "
                     "an island that is not paged (storage.mode). site as above"},
    MetricDescriptor{Metric::kPagesReadAlone, kMemory, "islands_pages_read_alone_total", kCounter, "site",
                     "Those of them that nobody had looked ahead for: the worker waited for the disk"},
    MetricDescriptor{Metric::kPagesEvicted, kMemory, "islands_pages_evicted_total", kCounter, "site",
                     "Pages whose memory others got; what they hold is in data files"},
    MetricDescriptor{Metric::kPageMisses, kMemory, "islands_page_misses_total", kCounter, "site",
                     "Rows for which an operation had to wait: a page on the way to them was not in memory"},
    MetricDescriptor{
        Metric::kPagesWritten, kMemory, "islands_pages_written_total", kCounter, "site",
        "Changed pages written to data files, by the cleaner, also where all data are in memory"},
    MetricDescriptor{
        Metric::kPageLooks, kMemory, "islands_page_looks_total", kCounter, "",
        "Rows that operations looked for by key in a paged pool, scans apart; without the misses: "
        "hits of the buffer pool"},
    MetricDescriptor{Metric::kPageWaits, kMemory, "islands_page_waits_total", kCounter, "worker",
                     "Times a transaction waited for pages, and others had the worker"},
    MetricDescriptor{Metric::kPageWaitSeconds, kMemory, "islands_page_wait_seconds_total", kCounter, "worker",
                     "Time of these waits; those of several transactions add up"},
    MetricDescriptor{
        Metric::kMemoryNodeBytes, kMemory, "islands_memory_node_bytes", kGauge, "node locality",
        "Buffer pool memory by NUMA node, as the kernel placed it; locality: local on the nodes of "
        "the island's plan, remote on others; at most 10 s old, absent where the kernel does not "
        "tell"},

    MetricDescriptor{Metric::kLogBytes, kLogSection, "islands_log_bytes_total", kCounter, "worker",
                     "Bytes of records that the worker has appended to the log, its ring"},
    MetricDescriptor{Metric::kLogRingUsedBytes, kLogSection, "islands_log_ring_used_bytes", kGauge, "worker",
                     "Bytes in the worker's ring that the logger has not made durable yet"},
    MetricDescriptor{Metric::kLogRingCapacityBytes, kLogSection, "islands_log_ring_capacity_bytes", kGauge,
                     "worker", "Bytes that the worker's ring may hold"},
    MetricDescriptor{Metric::kLogRoomWaits, kLogSection, "islands_log_room_waits_total", kCounter, "worker",
                     "Times an operation paused because the ring, or a paged pool, had no room for it: the "
                     "disk does not keep "
                     "up. One that waits for long counts with every look, 0.1 ms after the last"},
    MetricDescriptor{Metric::kLogRoomWaitSeconds, kLogSection, "islands_log_room_wait_seconds_total",
                     kCounter, "worker", "Time of these pauses; those of several transactions add up"},
    MetricDescriptor{
        Metric::kLogEpoch, kLogSection, "islands_log_epoch", kGauge, "kind=current|durable|commit|checkpoint",
        "Epochs of the log. Of the whole box: current, which new records get; durable, up to which "
        "everything "
        "is on disk, on all islands. Of the island: commit, of its last commit; checkpoint, from which on "
        "its next start repeats the log, 0 before the first load. Current goes on only while something "
        "waits to be durable: at most once a millisecond with durability sync, once a second with lazy"},
    MetricDescriptor{
        Metric::kAnswersWaiting, kLogSection, "islands_answers_waiting", kGauge, "worker",
        "Transactions that have ended and whose answer waits for the disk, with durability sync"},
    MetricDescriptor{
        Metric::kAnswersOverdue, kLogSection, "islands_answers_overdue_total", kCounter, "worker",
        "Answers that waited for the disk until the transaction's deadline, and ended as unknown"},
    MetricDescriptor{Metric::kCheckpoints, kLogSection, "islands_checkpoints_total", kCounter, "",
                     "Times the island's checkpoint has moved on: a start repeats the log from there"},
    MetricDescriptor{
        Metric::kCheckpointAge, kLogSection, "islands_checkpoint_age_seconds", kGauge, "",
        "Time since the checkpoint has moved on, or the island has begun with it, or nothing was "
        "committed that it does not cover: so much of the log the next start repeats. 0 before "
        "the first load"},
    MetricDescriptor{Metric::kCleanerPagesWritten, kLogSection, "islands_cleaner_pages_written_total",
                     kCounter, "", "Changed pages written to the island's data files"},
    MetricDescriptor{Metric::kCleanerFailed, kLogSection, "islands_cleaner_failed", kGauge, "",
                     "1 once an error of the disk has ended the writing of changed pages: from then on the "
                     "log grows, until the island starts again"},
    MetricDescriptor{Metric::kLogDiskFull, kLogSection, "islands_log_disk_full", kGauge, "",
                     "1 while the log's disk is full: nothing can be changed, until there is room"},
    MetricDescriptor{Metric::kRecoverySeconds, kLogSection, "islands_recovery_seconds", kGauge, "",
                     "What reading data files and log took when the island started; 0 where it had none yet"},
    MetricDescriptor{Metric::kRecoveryRecords, kLogSection, "islands_recovery_records", kGauge, "",
                     "Records of the log that were repeated then"},
    MetricDescriptor{Metric::kRecoveryUndone, kLogSection, "islands_recovery_transactions_undone", kGauge, "",
                     "Transactions that had not ended, and were undone then"},

    MetricDescriptor{Metric::kIslandInfo, kIsland, "islands_island_info", kGauge,
                     "deployment layout placement transport durability latching=auto|always islands workers "
                     "memory_policy",
                     "What this island is: constant 1, described by its labels. layout, placement, islands: "
                     "of the deployment; workers: of this island; memory_policy: as the kernel names it"},
    MetricDescriptor{Metric::kBuildInfo, kIsland, "islands_build_info", kGauge, "version commit compiler",
                     "What islandd was built from and with: constant 1, described by its labels"},
    MetricDescriptor{Metric::kWorkerPlacementInfo, kIsland, "islands_worker_placement_info", kGauge,
                     "worker cpus", "CPUs the kernel lets a worker run on: constant 1"},
    MetricDescriptor{Metric::kBootEpoch, kIsland, "islands_boot_epoch", kGauge, "",
                     "Grows with every start of the island, over the deployment's whole life"},
    MetricDescriptor{Metric::kRestarts, kIsland, "islands_restarts_total", kCounter, "",
                     "Times the supervisor has restarted the island since `islands up`"},
    MetricDescriptor{Metric::kStartTime, kIsland, "islands_start_time_seconds", kGauge, "",
                     "When the island's process began to serve metrics, in seconds since 1970"},

    MetricDescriptor{
        Metric::kGatewayCalls, kGatewaySection, "islands_gateway_calls_total", kCounter, "method code",
        "Calls of clients that have ended, by method and gRPC code; each code appears with its first call, "
        "OK is always there. A call of Transact is one transaction, one of ExecuteMany many, and is OK if "
        "only transactions in it failed"},
    MetricDescriptor{Metric::kGatewayTransactions, kGatewaySection, "islands_gateway_transactions_total",
                     kCounter, "outcome=committed|aborted|unknown|rolled_back",
                     "Transactions of clients that have ended, as their clients were told. aborted: also "
                     "those that were refused and never began. unknown: an island was lost that may have "
                     "committed it. rolled_back: by the client, or because it was gone"},
    MetricDescriptor{
        Metric::kGatewayFailures, kGatewaySection, "islands_gateway_failures_total", kCounter,
        "reason=procedure|deadlock|lock_timeout|deadline|peer_lost|peer_restarted|vote_no|storage|"
        "refused|peer_unresponsive|contradiction|condition|client_gone|invalid|unknown|other",
        "Those that ended as aborted or unknown, by the reason that their clients were told"},
    MetricDescriptor{Metric::kGatewayFull, kGatewaySection, "islands_gateway_full_total", kCounter, "",
                     "Transactions refused because as many as may be were open"},
    MetricDescriptor{
        Metric::kGatewayLatency, kGatewaySection, "islands_gateway_latency_seconds", "histogram",
        kGatewayMethods,
        "Time from a call's request, read, to its answer, ready to be sent; of Transact, of each "
        "request of the stream. What gRPC needs to read and write is not in it"},
    MetricDescriptor{Metric::kGatewayIslandWait, kGatewaySection, "islands_gateway_island_wait_seconds",
                     "histogram", kGatewayMethods,
                     "The part of it that was the island's: from when the request was written to the link to "
                     "when the reply was read; of ExecuteMany, from the first to the last. The rest is the "
                     "gateway's own"},
    MetricDescriptor{Metric::kGatewayOpen, kGatewaySection, "islands_gateway_transactions_open", kGauge, "",
                     "Transactions of clients that are open or under way now"},
    MetricDescriptor{Metric::kGatewayLimit, kGatewaySection, "islands_gateway_transactions_limit", kGauge, "",
                     "How many may be; more are refused"},
    MetricDescriptor{Metric::kGatewayMessages, kGatewaySection, "islands_gateway_messages_total", kCounter,
                     "island direction=sent|received",
                     "Requests sent to an island, and replies received from it"},
    MetricDescriptor{Metric::kGatewayMessageBytes, kGatewaySection, "islands_gateway_message_bytes_total",
                     kCounter, "island direction=sent|received",
                     "Their bytes, without frame headers: what clients sent and got, but for gRPC's part"},
    MetricDescriptor{Metric::kGatewayReachable, kGatewaySection, "islands_gateway_island_reachable", kGauge,
                     "island", "1 while links to all workers of an island are up"},
    MetricDescriptor{Metric::kGatewayConnections, kGatewaySection, "islands_gateway_connections_total",
                     kCounter, "result=admitted|refused",
                     "Connections of clients to the Unix-domain socket. refused: of another user. Those over "
                     "TCP, gRPC's own, are not counted"},
    MetricDescriptor{Metric::kGatewayCpu, kGatewaySection, "islands_gateway_cpu_seconds_total", kCounter, "",
                     "Processor time of the gateway's process, all threads"},
    MetricDescriptor{Metric::kGatewayStartTime, kGatewaySection, "islands_gateway_start_time_seconds", kGauge,
                     "", "When the gateway's process began to serve metrics, in seconds since 1970"},

    MetricDescriptor{Metric::kExposerBytes, kLibrary, "exposer_transferred_bytes_total", kCounter, "",
                     "Bytes sent to whoever scrapes", false},
    MetricDescriptor{Metric::kExposerScrapes, kLibrary, "exposer_scrapes_total", kCounter, "",
                     "Times the metrics were scraped", false},
    MetricDescriptor{Metric::kExposerLatencies, kLibrary, "exposer_request_latencies", "summary", "quantile",
                     "What a scrape took here, in microseconds", false},
};

constexpr bool InOrder() {
  for (size_t i = 0; i < kMetrics.size(); ++i) {
    if (static_cast<size_t>(kMetrics[i].id) != i) return false;
  }
  return kMetrics.size() == static_cast<size_t>(Metric::kExposerLatencies) + 1;
}
static_assert(InOrder(), "the table has one entry per Metric, in the same order");

constexpr std::string_view kIntroduction =
    R"(# Metrics

Everything an island, or the gateway, serves on `http://localhost:PORT/metrics`. All metrics of islands have
the label `island`; `worker` is a number within the island, `peer` another island's. Those of "The gateway"
are the gateway's, where `island` is one that it asks; those of the last section are both's, and have no label
of ours. Counters begin at 0 with the process, only `islands_restarts_total` goes on. Those of "Log and
checkpoints" are absent where nothing is kept (durability `none`).

This page is printed by `islandd --metrics-page`; a test fails when it differs from the code, or when an
island or a gateway serves something else.
)";

// "a b=x|y *" as "`a`, `b` = `x`, `y`; others".
std::string LabelsForPeople(std::string_view labels) {
  std::string text;
  while (!labels.empty()) {
    const size_t blank = labels.find(' ');
    const std::string_view label = labels.substr(0, blank);
    labels.remove_prefix(blank == std::string_view::npos ? labels.size() : blank + 1);
    const size_t equals = label.find('=');
    if (!text.empty()) text += "; ";
    text += label == "*" ? "parameters" : fmt::format("`{}`", label.substr(0, equals));
    if (equals == std::string_view::npos) continue;
    std::string values(label.substr(equals + 1));
    for (size_t at = 0; (at = values.find('|', at)) != std::string::npos; at += 4) {
      values.replace(at, 1, "`, `");
    }
    text += fmt::format(": `{}`", values);
  }
  return text;
}

}  // namespace

std::span<const MetricDescriptor> AllMetrics() { return kMetrics; }

const MetricDescriptor& DescriptorOf(Metric metric) { return kMetrics[static_cast<size_t>(metric)]; }

std::string MetricsPage() {
  std::string page(kIntroduction);
  std::string_view section;
  for (const MetricDescriptor& metric : kMetrics) {
    if (metric.section != section) {
      section = metric.section;
      page +=
          fmt::format("\n## {}\n\n| name | type | labels | meaning |\n| --- | --- | --- | --- |\n", section);
    }
    page += fmt::format("| `{}` | {} | {} | {} |\n", metric.name, metric.type, LabelsForPeople(metric.labels),
                        metric.meaning);
  }
  return page;
}

}  // namespace islands::server
