// TATP's seven transactions. What one batch can ask is asked in one batch: a transaction on a subscriber of
// another island pays a round trip for each.
//
//   GetSubscriberData      1                       UpdateLocation         2: number, row
//   GetNewDestination      1                       InsertCallForwarding   3: number, facilities and slot, row
//   GetAccessData          1                       DeleteCallForwarding   3: number, row, facility
//   UpdateSubscriberData   2: facility, row        ... and fewer if something is not found
#include <fmt/format.h>

#include <cstddef>

#include "experiments/tatp/tatp.h"

namespace islands::experiments {
namespace {

using absl::StatusCode;
using instance::Batch;
using instance::RowView;
using instance::Transaction;

absl::Status Broken(uint64_t s_id, const char* what) {
  return absl::FailedPreconditionError(
      fmt::format("tatp: subscriber {}: {}; load the workload again", s_id, what));
}

// What the index, asked by operation 0, knows of a number.
absl::Status TakeSubscriber(const Batch& batch, const TatpNumber& number, uint64_t* s_id) {
  if (batch.code(0) == StatusCode::kOk && batch.scanned_rows(0) == 1) {
    *s_id = SubscriberOfKey(batch.scanned_key(0, 0));
    return absl::OkStatus();
  }
  return Broken(SubscriberOfNumber(number), "its number is not in index 'by_number' exactly once");
}

bool Contains(const Batch& batch, size_t scan, uint8_t sf_type) {
  for (size_t n = 0; n < batch.scanned_rows(scan); ++n) {
    if (batch.scanned_key(scan, n).back() == std::byte{sf_type}) return true;
  }
  return false;
}

bool EndsAfter(const Batch& batch, size_t scan, uint8_t end_time) {
  for (size_t n = 0; n < batch.scanned_rows(scan); ++n) {
    if (RowOf<CallForwardingRow>(batch.scanned_row(scan, n)).end_time > end_time) return true;
  }
  return false;
}

constexpr uint32_t kSubscriberChanges = offsetof(SubscriberRow, changes);
constexpr uint32_t kFacilityChanges = offsetof(SpecialFacilityRow, changes);

}  // namespace

runtime::Task<absl::Status> TatpWorkload::Run(Transaction& transaction,
                                              const instance::Request& request) const {
  const auto& tatp = static_cast<const TatpRequest&>(request);
  tatp.successful = false;
  switch (tatp.transaction) {
    case TatpTransaction::kGetSubscriberData:
      return GetSubscriberData(transaction, tatp);
    case TatpTransaction::kGetNewDestination:
      return GetNewDestination(transaction, tatp);
    case TatpTransaction::kGetAccessData:
      return GetAccessData(transaction, tatp);
    case TatpTransaction::kUpdateSubscriberData:
      return UpdateSubscriberData(transaction, tatp);
    case TatpTransaction::kUpdateLocation:
      return UpdateLocation(transaction, tatp);
    case TatpTransaction::kInsertCallForwarding:
      return InsertCallForwarding(transaction, tatp);
    case TatpTransaction::kDeleteCallForwarding:
      break;
  }
  return DeleteCallForwarding(transaction, tatp);
}

// By its number, which names the site (tatp_rows.h).
void TatpWorkload::AddLookUp(const TatpNumber& number, Batch& batch) const {
  const NumberRange range(number);
  batch.IndexScan(tables_.subscriber, tables_.by_number, TatpKey(SubscriberOfNumber(number)), range.Begin(),
                  range.End());
}

TatpWorkload::Result TatpWorkload::GetSubscriberData(Transaction& transaction,
                                                     const TatpRequest& request) const {
  Batch& batch = transaction.batch();
  batch.Read(tables_.subscriber, TatpKey(request.s_id));
  absl::Status status = co_await transaction.Execute(batch);
  if (!status.ok()) co_return status;
  if (batch.code(0) != StatusCode::kOk) co_return Broken(request.s_id, "its row is missing");
  request.successful = true;
  co_return absl::OkStatus();
}

// Where does a call go that comes in at start_time and lasts until end_time?
TatpWorkload::Result TatpWorkload::GetNewDestination(Transaction& transaction,
                                                     const TatpRequest& request) const {
  Batch& batch = transaction.batch();
  batch.Read(tables_.special_facility, TatpKey(request.s_id, request.type));
  const auto beyond = static_cast<uint8_t>(request.start_time + 1);
  batch.Scan(tables_.call_forwarding, TatpKey(request.s_id, request.type, 0),
             TatpKey(request.s_id, request.type, beyond));
  absl::Status status = co_await transaction.Execute(batch);
  if (!status.ok()) co_return status;
  if (batch.code(0) != StatusCode::kOk) co_return absl::OkStatus();
  const bool active = RowOf<SpecialFacilityRow>(batch.row(0)).is_active != 0;
  request.successful = active && EndsAfter(batch, 1, request.end_time);
  co_return absl::OkStatus();
}

TatpWorkload::Result TatpWorkload::GetAccessData(Transaction& transaction, const TatpRequest& request) const {
  Batch& batch = transaction.batch();
  batch.Read(tables_.access_info, TatpKey(request.s_id, request.type));
  absl::Status status = co_await transaction.Execute(batch);
  if (!status.ok()) co_return status;
  request.successful = batch.code(0) == StatusCode::kOk;
  co_return absl::OkStatus();
}

// The facility first: without it the subscriber's row stays as it is.
TatpWorkload::Result TatpWorkload::UpdateSubscriberData(Transaction& transaction,
                                                        const TatpRequest& request) const {
  Batch& batch = transaction.batch();
  const TatpKey facility(request.s_id, request.type);
  batch.Write(tables_.special_facility, facility, offsetof(SpecialFacilityRow, data_a),
              BytesOf(request.data_a));
  batch.Add(tables_.special_facility, facility, kFacilityChanges, 1);
  absl::Status status = co_await transaction.Execute(batch);
  if (!status.ok()) co_return status;
  if (batch.code(0) != StatusCode::kOk) co_return absl::OkStatus();
  batch.Clear();
  const TatpKey subscriber(request.s_id);
  batch.Write(tables_.subscriber, subscriber, offsetof(SubscriberRow, bit), BytesOf(request.bit_1));
  batch.Add(tables_.subscriber, subscriber, kSubscriberChanges, -1);
  batch.LastElsewhere();
  status = co_await transaction.Execute(batch);
  if (!status.ok()) co_return status;
  if (batch.code(0) != StatusCode::kOk) co_return Broken(request.s_id, "its row is missing");
  request.successful = true;
  co_return absl::OkStatus();
}

// The row that the index gave is written back changed, not added to: two that read the same row would show in
// the audited sum.
TatpWorkload::Result TatpWorkload::UpdateLocation(Transaction& transaction,
                                                  const TatpRequest& request) const {
  Batch& batch = transaction.batch();
  AddLookUp(request.sub_nbr, batch);
  absl::Status status = co_await transaction.Execute(batch);
  if (!status.ok()) co_return status;
  uint64_t s_id = 0;
  status = TakeSubscriber(batch, request.sub_nbr, &s_id);
  if (!status.ok()) co_return status;
  SubscriberRow row = RowOf<SubscriberRow>(batch.scanned_row(0, 0));
  row.changes += 1;
  row.vlr_location = request.vlr_location;
  batch.Clear();
  constexpr size_t kWritten = sizeof(row.changes) + sizeof(row.vlr_location);
  const RowView written = BytesOf(row).subspan(kSubscriberChanges, kWritten);
  batch.Write(tables_.subscriber, TatpKey(s_id), kSubscriberChanges, written);
  batch.LastElsewhere();
  status = co_await transaction.Execute(batch);
  if (!status.ok()) co_return status;
  if (batch.code(0) != StatusCode::kOk) co_return Broken(s_id, "its row is missing");
  request.successful = true;
  co_return absl::OkStatus();
}

// As TATP has it, all facilities of the subscriber are looked at. The slot is locked before it is known
// whether it is free, so that the insert cannot fail.
TatpWorkload::Result TatpWorkload::InsertCallForwarding(Transaction& transaction,
                                                        const TatpRequest& request) const {
  Batch& batch = transaction.batch();
  AddLookUp(request.sub_nbr, batch);
  absl::Status status = co_await transaction.Execute(batch);
  if (!status.ok()) co_return status;
  uint64_t s_id = 0;
  status = TakeSubscriber(batch, request.sub_nbr, &s_id);
  if (!status.ok()) co_return status;
  batch.Clear();
  const TatpKey slot(s_id, request.type, request.start_time);
  batch.Scan(tables_.special_facility, TatpKey(s_id, 0), TatpKey(s_id, 0xff));
  batch.ReadForUpdate(tables_.call_forwarding, slot);
  status = co_await transaction.Execute(batch);
  if (!status.ok()) co_return status;
  if (!Contains(batch, 0, request.type) || batch.code(1) == StatusCode::kOk) co_return absl::OkStatus();
  batch.Clear();
  const CallForwardingRow row = {.end_time = request.end_time, .numberx = request.numberx};
  batch.Insert(tables_.call_forwarding, slot, BytesOf(row));
  batch.Add(tables_.special_facility, TatpKey(s_id, request.type), kFacilityChanges, -1);
  batch.LastElsewhere();
  status = co_await transaction.Execute(batch);
  if (!status.ok()) co_return status;
  if (batch.code(0) != StatusCode::kOk || batch.code(1) != StatusCode::kOk) {
    co_return Broken(s_id, "a row that was locked came or went");
  }
  request.successful = true;
  co_return absl::OkStatus();
}

TatpWorkload::Result TatpWorkload::DeleteCallForwarding(Transaction& transaction,
                                                        const TatpRequest& request) const {
  Batch& batch = transaction.batch();
  AddLookUp(request.sub_nbr, batch);
  absl::Status status = co_await transaction.Execute(batch);
  if (!status.ok()) co_return status;
  uint64_t s_id = 0;
  status = TakeSubscriber(batch, request.sub_nbr, &s_id);
  if (!status.ok()) co_return status;
  batch.Clear();
  batch.Delete(tables_.call_forwarding, TatpKey(s_id, request.type, request.start_time));
  status = co_await transaction.Execute(batch);
  if (!status.ok()) co_return status;
  if (batch.code(0) != StatusCode::kOk) co_return absl::OkStatus();
  batch.Clear();
  batch.Add(tables_.special_facility, TatpKey(s_id, request.type), kFacilityChanges, 1);
  batch.LastElsewhere();
  status = co_await transaction.Execute(batch);
  if (!status.ok()) co_return status;
  if (batch.code(0) != StatusCode::kOk) co_return Broken(s_id, "a forwarding had no special facility");
  request.successful = true;
  co_return absl::OkStatus();
}

}  // namespace islands::experiments
