#include "experiments/append/append_log.h"

#include <fmt/format.h>

#include <cstring>
#include <optional>
#include <utility>

#include "instance/log/entry.h"
#include "instance/log/lsn.h"
#include "instance/log/ring_directory.h"

namespace islands::experiments {

using log::EntryKind;

absl::Status AppendLogJudge::Take(const log::StreamId& stream, const log::Record& record) {
  const std::string lsn = log::ToString(log::Lsn::FromValue(record.lsn));
  const uint64_t before = std::exchange(last_[stream], record.lsn);
  if (record.lsn <= before) {
    return absl::DataLossError(fmt::format("record {} of {} follows {}", lsn, log::RingName(stream),
                                           log::ToString(log::Lsn::FromValue(before))));
  }
  const absl::StatusOr<log::Entry> entry = log::DecodeEntry(record);
  if (!entry.ok()) return entry.status();
  const bool done = entry->kind == EntryKind::kDone;
  const Element id = done ? Element() : Element::Of(entry->transaction);
  if (!done && (log::Commits(entry->kind) || entry->kind == EntryKind::kPrepare)) {
    Trace& trace = traces_[id];
    trace.stays.insert(stream.island);
    trace.committed |= log::Commits(entry->kind);
  }
  TakeRows(stream.island, done, id, entry->changes);
  return absl::OkStatus();
}

// Wherever a row begins: it says its count twice, and names nobody or all of its elements.
void AppendLogJudge::TakeRows(uint32_t island, bool done, const Element& id,
                              std::span<const std::byte> changes) {
  for (; changes.size() >= row_bytes_; changes = changes.subspan(1)) {
    uint64_t count = 0;
    std::memcpy(&count, changes.data(), sizeof(count));
    if (count == 0 || count > kMostElements) continue;
    const std::optional<AppendRow> row = ReadAppendRow(changes.first(row_bytes_));
    // A record with an id may restore what others have made.
    if (!row || (!done && row->last != id)) continue;
    Trace& trace = traces_[row->last];
    ++trace.rows[{island, row->life, row->count}];
    if (!done) continue;
    trace.stays.insert(island);
    trace.committed = true;
  }
}

std::vector<std::string> AppendLogJudge::Judge(const std::vector<RecordedHistory>& histories,
                                               uint64_t* answered) const {
  std::map<uint32_t, uint32_t> islands;  // by their first sites
  for (const RecordedHistory& history : histories) {
    if (!history.attempts.empty()) islands[history.first_site] = history.island;
  }
  std::vector<std::string> faults;
  for (const RecordedHistory& history : histories) {
    for (const RecordedAttempt& attempt : history.attempts) {
      const std::string fault = FindFault(attempt, islands);
      *answered += attempt.fate == RecordedAttempt::kCommitted || attempt.fate == RecordedAttempt::kAborted;
      if (!fault.empty()) faults.push_back(fmt::format("{} {}", attempt.id.id().ToString(), fault));
    }
  }
  return faults;
}

std::string AppendLogJudge::FindFault(const RecordedAttempt& attempt,
                                      const std::map<uint32_t, uint32_t>& islands) const {
  static const Trace kNone;
  const auto found = traces_.find(attempt.id);
  const Trace& trace = found == traces_.end() ? kNone : found->second;
  if (attempt.fate == RecordedAttempt::kAborted) {
    // What of it was undone at once is in one record with its undo.
    const bool commits = trace.committed && trace.rows.empty();
    return commits ? "was answered as aborted, and the log says that it has committed" : "";
  }
  if (attempt.fate != RecordedAttempt::kCommitted) return "";
  std::map<Made, uint64_t> made;
  for (const RecordedLook& look : attempt.looks) {
    if (!look.appends) continue;
    const auto island = islands.find(SiteOfLife(look.before.life));
    if (island == islands.end()) return fmt::format("appended to row {} of no island", look.key);
    ++made[{island->second, look.before.life, look.before.count + 1}];
  }
  if (!made.empty() && !trace.committed) return "was answered as committed, and the log does not say so";
  for (const auto& [row, times] : made) {
    const uint32_t island = std::get<0>(row);
    const auto in_log = trace.rows.find(row);
    if (in_log == trace.rows.end() || in_log->second < times)
      return fmt::format("was answered as committed, and the log of island {} lacks a row of it", island);
    if (!trace.stays.contains(island))
      return fmt::format("was answered as committed, and the log of island {} does not say so", island);
  }
  return "";
}

}  // namespace islands::experiments
