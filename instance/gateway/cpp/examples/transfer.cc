// Moves money between accounts on different islands, from several threads, and looks whether any was lost.
//
//     transfer_client unix:run/gateway.sock [SECONDS]
//     transfer_client HOST:PORT SECONDS AUTHORITY.pem CERTIFICATE.pem KEY.pem
//
// Wants a table `accounts` with one integer as key and rows of any length. Islands and gateway may be killed
// meanwhile: a transfer happens as a whole or not at all, so the total stays what it was, whatever nobody
// knows the outcome of.
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "islands/client.h"

namespace {

constexpr int kAccounts = 100;
constexpr int64_t kFirstBalance = 1000;
constexpr int kThreads = 4;
constexpr int kPatientAttempts = 100;  // half a minute, for who was killed last to be back

using Clock = std::chrono::steady_clock;

// A balance is a row of eight bytes, a signed little-endian integer, which is what Add works on.
std::string RowOf(int64_t balance) {
  std::string row(sizeof(balance), '\0');
  for (size_t i = 0; i < row.size(); ++i)
    row[i] = static_cast<char>(static_cast<uint64_t>(balance) >> (8 * i));
  return row;
}
int64_t BalanceIn(const std::string& row) {
  uint64_t balance = 0;
  for (size_t i = 0; i < sizeof(balance) && i < row.size(); ++i)
    balance |= uint64_t{static_cast<unsigned char>(row[i])} << (8 * i);
  return static_cast<int64_t>(balance);
}

// Spread over all of the table, so that most transfers touch two islands.
absl::StatusOr<std::vector<int64_t>> KeysOf(islands::Client& db) {
  const absl::StatusOr<std::vector<islands::Table>> tables = db.Tables();
  if (!tables.ok()) return tables.status();
  for (const islands::Table& table : *tables) {
    if (table.name != "accounts") continue;
    std::vector<int64_t> keys;
    for (int i = 0; i < kAccounts; ++i)
      keys.push_back(table.range_begin + i * ((table.range_end - table.range_begin) / kAccounts));
    return keys;
  }
  return absl::NotFoundError("there is no table `accounts`; name it in the deployment file");
}

absl::Status Open(islands::Client& db, const std::vector<int64_t>& keys) {
  islands::Batch batch;
  for (const int64_t key : keys) batch.Put("accounts", key, RowOf(kFirstBalance));
  return db.Run([&](islands::Transaction& t) { return t.Execute(batch); }, {.attempts = kPatientAttempts})
      .status();
}

absl::StatusOr<int64_t> Total(islands::Transaction& t) {
  const absl::StatusOr<std::vector<islands::Row>> rows = t.Scan("accounts");
  if (!rows.ok()) return rows.status();
  int64_t total = 0;
  for (const islands::Row& row : *rows) total += BalanceIn(row.value);
  return total;
}

struct Counts {
  uint64_t done = 0, poor = 0, unknown = 0, failed = 0;
};

// Whether there was so much; if not, nothing has changed.
absl::StatusOr<bool> Transfer(islands::Transaction& t, int64_t from, int64_t to, int64_t amount) {
  const absl::StatusOr<std::optional<int64_t>> left = t.Add("accounts", from, -amount);
  if (!left.ok()) return left.status();
  if (!left->has_value() || **left < 0) {
    if (absl::Status status = t.Rollback(); !status.ok()) return status;
    return false;
  }
  if (const auto sum = t.Add("accounts", to, amount); !sum.ok()) return sum.status();
  return true;  // Run commits
}

void MoveMoney(islands::Client& db, const std::vector<int64_t>& keys, Clock::time_point until,
               Counts* counts) {
  std::mt19937_64 random{std::random_device{}()};
  while (Clock::now() < until) {
    const size_t from = random() % keys.size();
    const size_t to = (from + 1 + random() % (keys.size() - 1)) % keys.size();
    const auto amount = static_cast<int64_t>(1 + random() % 10);
    const absl::StatusOr<bool> moved =
        db.Run([&](islands::Transaction& t) { return Transfer(t, keys[from], keys[to], amount); });
    if (moved.ok())
      ++(*moved ? counts->done : counts->poor);
    else if (absl::IsUnknown(moved.status()))
      ++counts->unknown;  // the money is in one account or the other
    else
      ++counts->failed;
  }
}

absl::StatusOr<bool> Main(const std::string& address, double seconds,
                          const islands::ConnectOptions& options) {
  absl::StatusOr<islands::Client> db = islands::Client::Connect(address, options);
  if (!db.ok()) return db.status();
  const absl::StatusOr<std::vector<int64_t>> keys = KeysOf(*db);
  if (!keys.ok()) return keys.status();
  if (absl::Status status = Open(*db, *keys); !status.ok()) return status;
  std::cout << kAccounts << " accounts, " << kAccounts * kFirstBalance << " in all" << std::endl;

  std::array<Counts, kThreads> counts;
  const Clock::time_point until =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  std::vector<std::thread> threads;
  for (Counts& each : counts) threads.emplace_back([&] { MoveMoney(*db, *keys, until, &each); });
  for (std::thread& thread : threads) thread.join();

  const absl::StatusOr<int64_t> total = db->Run(Total, {.attempts = kPatientAttempts});
  if (!total.ok()) return total.status();
  Counts sum;
  for (const Counts& each : counts)
    sum.done += each.done, sum.poor += each.poor, sum.unknown += each.unknown, sum.failed += each.failed;
  std::cout << sum.done << " transfers, " << sum.unknown << " of unknown outcome, " << sum.failed
            << " failed; total " << *total << ", was " << kAccounts * kFirstBalance << std::endl;
  return *total == kAccounts * kFirstBalance;
}

std::string ReadFile(const char* path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2 && argc != 3 && argc != 6) {
    std::cerr << "usage: " << argv[0] << " ADDRESS [SECONDS [AUTHORITY.pem CERTIFICATE.pem KEY.pem]]\n";
    return 2;
  }
  islands::ConnectOptions options;
  if (argc == 6) options.tls = islands::Tls{ReadFile(argv[3]), ReadFile(argv[4]), ReadFile(argv[5])};
  const absl::StatusOr<bool> same = Main(argv[1], argc > 2 ? std::atof(argv[2]) : 5, options);
  if (!same.ok()) std::cerr << same.status() << "\n";
  return same.ok() && *same ? 0 : 1;
}
