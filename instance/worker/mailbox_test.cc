#include "instance/worker/mailbox.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <string>
#include <thread>

namespace islands::instance {
namespace {

TEST(Mailbox, Drain_WakeupsFirstThenFunctionsInOrder) {
  Mailbox mailbox([] {});
  std::vector<std::string> seen;
  mailbox.Post([&] { seen.push_back("one"); });
  mailbox.PostWakeup({.worker = 0, .wake_token = 7});
  mailbox.Post([&] {
    seen.push_back("two");
    mailbox.Post([&] { seen.push_back("later"); });
  });
  const auto wake = [&](const locks::Wakeup& wakeup) { seen.push_back(std::to_string(wakeup.wake_token)); };
  EXPECT_EQ(mailbox.Drain(wake), 3u);
  EXPECT_THAT(seen, testing::ElementsAre("7", "one", "two"));
  EXPECT_EQ(mailbox.Drain(wake), 1u);
  EXPECT_EQ(mailbox.Drain(wake), 0u);
}

TEST(Mailbox, Sleep_NotWhileThereIsMail) {
  Mailbox mailbox([] {});
  bool waited = false;
  mailbox.PostWakeup({});
  mailbox.Sleep([&] { waited = true; });
  EXPECT_FALSE(waited);
  mailbox.Drain([](const locks::Wakeup&) {});
  mailbox.Sleep([&] { waited = true; });
  EXPECT_TRUE(waited);
}

TEST(Mailbox, Post_WakesOnlyWhoSleeps) {
  int woken = 0;
  Mailbox mailbox([&] { ++woken; });
  mailbox.Post([] {});
  EXPECT_EQ(woken, 0);
  mailbox.Drain([](const locks::Wakeup&) {});
  mailbox.Sleep([&] { mailbox.Post([] {}); });
  EXPECT_EQ(woken, 1);
}

// The worker sleeps whenever it finds nothing, without a limit: one post that is not seen, and it never ends.
TEST(MailboxStress, Sleep_NothingWaitsUnseen) {
  constexpr int kPosts = 20'000;
  std::mutex mutex;
  std::condition_variable woken;
  bool wake = false;
  Mailbox mailbox([&] {
    const std::unique_lock lock(mutex);
    wake = true;
    woken.notify_one();
  });
  const auto post = [&] {
    for (int i = 0; i < kPosts; ++i) i % 2 == 0 ? mailbox.Post([] {}) : mailbox.PostWakeup({});
  };
  std::thread first(post), second(post);
  for (size_t seen = 0; seen < 2 * kPosts;) {
    const size_t drained = mailbox.Drain([](const locks::Wakeup&) {});
    seen += drained;
    if (drained != 0 || seen == 2 * kPosts) continue;
    mailbox.Sleep([&] {
      std::unique_lock lock(mutex);
      woken.wait(lock, [&] { return wake; });
      wake = false;
    });
  }
  first.join(), second.join();
}

}  // namespace
}  // namespace islands::instance
