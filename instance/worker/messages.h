// One object of every message that workers exchange: the inbox parses into its own again and again, the
// outbox builds in its own, so that protobuf keeps their memory.
//
// Thread safety: each belongs to one worker.
#pragma once

#include "proto/data.pb.h"

namespace islands::instance {

struct Messages {
  data::v1::ExecuteRequest execute;
  data::v1::ExecuteReply execute_reply;
  data::v1::PrepareRequest prepare;
  data::v1::Vote vote;
  data::v1::Decision decision;
  data::v1::Acknowledge acknowledge;
  data::v1::CommitOnePhase one_phase;
  data::v1::OnePhaseReply one_phase_reply;
  data::v1::OnePhaseConfirm confirm;
  data::v1::Inquiry inquiry;
  data::v1::InquiryReply inquiry_reply;
  data::v1::DecisionRequest decision_request;
  data::v1::DecisionReply decision_reply;
  data::v1::Probe probe;
  data::v1::Clients clients;
};

}  // namespace islands::instance
