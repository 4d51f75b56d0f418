/*
 * Two-phase commit with presumed abort, as coordinator.cc and participant.cc do it, for one transaction: one
 * coordinator, N participants (each a writer or a reader), and a network and machines as bad as the budgets
 * below allow. check.py says which budgets are verified; README.md what is abstracted.
 *
 * Every event is one d_step, so a state of the search is a state between two events, as in the C++ machines.
 *
 * Messages are flags, not queues. A message is NONE, FRESH (will be delivered unless its link breaks) or LATE
 * (may be delivered, at any time, or never). With DUPLICATES a delivered message stays LATE: it may come again,
 * any number of times, in any order. That is more than any transport of ours can do, order included.
 *
 * With EARLY any participants may have been sent PREPARE along with their operations.
 *
 * The participants are alike, so their records are kept sorted (Canonical): one state stands for up to N!.
 *
 * Progress: timers that are needed fire only when nothing else can happen, and there may be only MAX_ROUNDS of
 * such rounds in a row; who still waits then has waited in vain. Timers that were not needed have a budget.
 */
#ifndef N
#define N 3          /* participants */
#endif
#ifndef CRASHES
#define CRASHES 2    /* of anybody; a crash restarts at once with what was durable */
#endif
#ifndef BREAKS
#define BREAKS 0     /* of links between islands that stay alive */
#endif
#ifndef TIMERS
#define TIMERS 0     /* that fire although an answer is under way */
#endif
#ifndef DUPLICATES
#define DUPLICATES 1
#endif
#ifndef EARLY
#define EARLY 0
#endif
#define MAX_ROUNDS 3

/* Messages. */
#define NONE  0
#define FRESH 1
#define LATE  2

/* The link that the coordinator's worker has dialled, as either side sees it: both speak on it. */
#define UP     0
#define BROKEN 1     /* not noticed yet: what is sent may get lost, or come late */
#define DOWN   2     /* noticed: nothing is sent */

/* Outcomes and votes. */
#define COMMITTED 1
#define ABORTED   2
#define UNKNOWN   3
#define YES  1
#define NO   2
#define READ 3

/* The coordinator's machine; DONE: there is none. */
#define EXECUTING  0
#define VOTING     1
#define FORCING    2
#define COMMITTING 3
#define ONE_PHASE  4
#define INQUIRING  5
#define DONE       6

/* A participant's machine. IDLE, GONE: there is none (yet, any more). */
#define IDLE       0
#define ACTIVE     1
#define PREPARING  2
#define PREPARED   3
#define PCOMMITTING 4
#define DECIDING   5
#define DECIDED_C  6
#define DECIDED_A  7
#define GONE       8

typedef Pair {
  /* The participant's island. */
  unsigned machine : 4;
  unsigned writes : 1;            /* holds changes once it has executed */
  unsigned executed : 1;          /* ever */
  unsigned same_life : 1;         /* its boot epoch is the one the coordinator's messages name */
  unsigned prepare_durable : 1;
  unsigned commit_durable : 1;
  unsigned decides : 1;           /* its commit record is a one-phase one */
  unsigned nobody_asks : 1;
  unsigned said_yes : 1;
  unsigned unlocked : 1;          /* has died since it executed, and before all had: what it read is not locked */
  unsigned final : 2;             /* of its changes; survives everything, for the properties only */
  /* What the coordinator's machine knows of it. */
  unsigned replied : 1;
  unsigned asked : 1;
  unsigned vote : 2;
  unsigned acknowledged : 1;
  unsigned decider : 1;
  /* The link, as the coordinator's island sees it, and as the participant's does. */
  unsigned down : 2;
  unsigned back : 2;
  /* Messages to the participant. */
  unsigned execute : 2;
  unsigned prepare : 2;
  unsigned prepare_early : 2;
  unsigned one_phase : 2;
  unsigned decide_commit : 2;
  unsigned decide_abort : 2;
  unsigned confirm : 2;
  unsigned told_committed : 2;    /* the answer to its inquiry; pending says nothing and is left out */
  unsigned told_aborted : 2;
  unsigned ask_decider : 2;
  /* Messages to the coordinator. */
  unsigned execute_reply : 2;
  unsigned vote_yes : 2;
  unsigned vote_no : 2;
  unsigned vote_read : 2;
  unsigned acknowledge : 2;
  unsigned inquiry : 2;
  unsigned reply_committed : 2;   /* to the one-phase request */
  unsigned reply_aborted : 2;
  unsigned reply_unknown : 2;
  unsigned says_committed : 2;    /* the decider's answer to an inquiry */
  unsigned says_aborted : 2;
  unsigned says_unknown : 2
}

Pair p[N];
unsigned coordinator : 3 = EXECUTING;
unsigned local_wrote : 1;
unsigned commit_durable : 1;       /* the coordinator's commit record, with the YES voters */
unsigned coordinator_restarted : 1;
unsigned answer : 2;               /* to the client; survives everything */
unsigned local_final : 2;
unsigned crashes : 2 = CRASHES;
unsigned breaks : 2 = BREAKS;
unsigned timers : 2 = TIMERS;
unsigned rounds : 2;

hidden byte j;
hidden byte count;
hidden byte waiting;
hidden byte unasked;
hidden byte any_yes;
hidden byte any_commit;
hidden byte any_abort;
hidden byte busy;

#define ANY(message) (p[i].message != NONE)
#define HAS_MACHINE(x) (p[x].machine != IDLE && p[x].machine != GONE)

/* ---- the network ---- */

inline Send(message, link) {
  if
  :: link == UP -> message = FRESH
  :: link == BROKEN && message == NONE -> message = LATE
  :: else
  fi
}

inline Take(message) { message = (DUPLICATES -> LATE : NONE) }

inline Delay(message) { message = (message == FRESH -> LATE : message) }

inline Break(x) {
  if
  :: p[x].down == UP || p[x].back == UP ->
    p[x].down = (p[x].down == UP -> BROKEN : p[x].down);
    p[x].back = (p[x].back == UP -> BROKEN : p[x].back);
    Delay(p[x].execute); Delay(p[x].prepare); Delay(p[x].one_phase); Delay(p[x].decide_commit);
    Delay(p[x].prepare_early);
    Delay(p[x].decide_abort); Delay(p[x].confirm); Delay(p[x].told_committed); Delay(p[x].told_aborted);
    Delay(p[x].ask_decider); Delay(p[x].execute_reply); Delay(p[x].vote_yes); Delay(p[x].vote_no);
    Delay(p[x].vote_read); Delay(p[x].acknowledge); Delay(p[x].inquiry); Delay(p[x].reply_committed);
    Delay(p[x].reply_aborted); Delay(p[x].reply_unknown); Delay(p[x].says_committed);
    Delay(p[x].says_aborted); Delay(p[x].says_unknown)
  :: else
  fi
}

/* ---- the coordinator's machine ---- */

inline Answer(outcome) { answer = (answer == 0 -> outcome : answer) }

inline CoordinatorAbort() {
  assert(coordinator == EXECUTING || coordinator == VOTING);
  for (j : 0 .. N - 1) {
    if
    :: p[j].vote != NO && p[j].vote != READ -> Send(p[j].decide_abort, p[j].down)
    :: else
    fi
  }
  local_final = ABORTED;
  Answer(ABORTED);
  coordinator = DONE
}

inline SendDecisions() {
  for (j : 0 .. N - 1) {
    if
    :: p[j].vote == YES && !p[j].acknowledged -> Send(p[j].decide_commit, p[j].down)
    :: else
    fi
  }
}

inline CountVotes() {
  waiting = 0; unasked = 0; any_yes = 0;
  for (j : 0 .. N - 1) {
    if
    :: !p[j].asked -> unasked = 1
    :: p[j].asked && p[j].vote == 0 -> waiting = 1
    :: else
    fi;
    if :: p[j].vote == YES -> any_yes = 1 :: else fi
  }
  if
  :: waiting
  :: !waiting && unasked && any_yes ->      /* a supposed reader said YES: both phases after all */
    for (j : 0 .. N - 1) {
      if :: !p[j].asked -> p[j].asked = 1; Send(p[j].prepare, p[j].down) :: else fi
    }
  :: !waiting && unasked && !any_yes ->
    for (j : 0 .. N - 1) {
      if :: !p[j].asked -> p[j].decider = 1; Send(p[j].one_phase, p[j].down) :: else fi
    }
    local_final = COMMITTED;
    coordinator = ONE_PHASE
  :: !waiting && !unasked && (local_wrote || any_yes) ->
    CheckLocked();
    coordinator = FORCING;
#ifdef DECIDE_BEFORE_DURABLE
    SendDecisions();
#endif
  :: !waiting && !unasked && !local_wrote && !any_yes ->
    CheckLocked();
    local_final = COMMITTED;
    Answer(COMMITTED);
    coordinator = DONE
  fi
}

/* What everybody has executed stays locked until now: a commit stands for that. */
inline CheckLocked() {
  for (j : 0 .. N - 1) { assert(!p[j].unlocked) }
}

/* A later life of one that was asked early has nothing locked that was only read. */
inline LookForLaterLives() {
  waiting = 0;
#ifndef COUNTS_EARLIER_LIVES
  for (j : 0 .. N - 1) { if :: p[j].asked && !p[j].same_life -> waiting = 1 :: else fi }
#endif
}

inline RequestCommit() {
  LookForLaterLives();
  if
  :: waiting -> CoordinatorAbort()
  :: else -> BeginVoting()
  fi
}

inline BeginVoting() {
  coordinator = VOTING;
  count = local_wrote;
  for (j : 0 .. N - 1) { count = count + p[j].writes }
  for (j : 0 .. N - 1) {
    if
    :: p[j].asked && (p[j].writes || p[j].vote != 0)   /* has voted, or will */
    :: count == 1 && !local_wrote && p[j].writes && !p[j].asked   /* decides alone, after the readers */
    :: else -> p[j].asked = 1; Send(p[j].prepare, p[j].down)
    fi
  }
  CountVotes()
}

inline TakeVote(kind) {
  if
  :: coordinator == VOTING && p[i].vote == 0 && (p[i].asked || kind == NO) ->
    p[i].vote = kind;
    if
    :: kind == NO -> CoordinatorAbort()
    :: else -> CountVotes()
    fi
  :: coordinator == EXECUTING && p[i].vote == 0 && p[i].asked ->
    p[i].vote = kind;
    if :: kind != YES -> CoordinatorAbort() :: else fi
  :: else
  fi
}

inline CommitRecordDurable() {
  commit_durable = 1;
  any_yes = 0;
  for (j : 0 .. N - 1) { if :: p[j].vote == YES -> any_yes = 1 :: else fi }
  SendDecisions();
  local_final = COMMITTED;
  Answer(COMMITTED);
#ifdef PREMATURE_FORGET
  coordinator = DONE
#else
  coordinator = (any_yes -> COMMITTING : DONE)
#endif
}

inline TakeAcknowledge() {
  if
  :: coordinator == COMMITTING && p[i].vote == YES ->
    p[i].acknowledged = 1;
    waiting = 0;
    for (j : 0 .. N - 1) { if :: p[j].vote == YES && !p[j].acknowledged -> waiting = 1 :: else fi }
    if :: !waiting -> coordinator = DONE :: else fi
  :: else
  fi
}

inline Learn(outcome) {
  if
  :: p[i].decider ->
    Answer(outcome);
    if :: outcome != UNKNOWN -> Send(p[i].confirm, p[i].down) :: else fi;
    coordinator = DONE
  :: else
  fi
}

/* OnePhaseReply; without a machine it is confirmed by whoever finds no entry for it, but not in a later life. */
inline TakeReply(outcome) {
  if
  :: coordinator == ONE_PHASE || coordinator == INQUIRING -> Learn(outcome)
  :: coordinator == DONE && !coordinator_restarted -> Send(p[i].confirm, p[i].down)
  :: else
  fi
}

inline TakeDeciderSays(outcome) {
  if :: coordinator == INQUIRING -> Learn(outcome) :: else fi
}

inline PeerLost() {
  if
  :: coordinator == EXECUTING || (coordinator == VOTING && p[i].vote == 0) -> CoordinatorAbort()
#ifdef PRESUME_ONE_PHASE
  :: coordinator == ONE_PHASE && p[i].decider -> Learn(COMMITTED)
#else
  :: coordinator == ONE_PHASE && p[i].decider -> coordinator = INQUIRING
#endif
  :: else
  fi
}

inline PeerUp() {
  if
  :: (coordinator == EXECUTING || (coordinator == VOTING && p[i].vote == 0)) && !p[i].same_life ->
    CoordinatorAbort()
  :: coordinator == COMMITTING && p[i].vote == YES && !p[i].acknowledged ->
    Send(p[i].decide_commit, p[i].down)
  :: (coordinator == ONE_PHASE || coordinator == INQUIRING) && p[i].decider ->
    coordinator = INQUIRING;
    Send(p[i].ask_decider, p[i].down)
  :: else
  fi
}

inline CoordinatorTimeout() {
  if
  :: coordinator == EXECUTING || coordinator == VOTING -> CoordinatorAbort()
  :: coordinator == COMMITTING -> SendDecisions()
  :: coordinator == ONE_PHASE || coordinator == INQUIRING ->
    Answer(UNKNOWN);
    coordinator = INQUIRING;
    for (j : 0 .. N - 1) { if :: p[j].decider -> Send(p[j].ask_decider, p[j].down) :: else fi }
  :: else
  fi
}

inline TakeInquiry() {
  if
  :: coordinator == DONE -> Send(p[i].told_aborted, p[i].down)    /* presumed */
  :: coordinator == COMMITTING -> Send(p[i].told_committed, p[i].down)
  :: else                                                          /* pending */
  fi
}

/* ---- a participant's machine ---- */

inline Commit() {
  assert(p[i].final != ABORTED);
  p[i].final = (p[i].writes -> COMMITTED : 0)
}

/* `word`: the coordinator has said so. */
inline Abort(x, word) {
  assert(p[x].final != COMMITTED);
  assert(!p[x].said_yes || word);
  p[x].final = (p[x].writes -> ABORTED : 0);
  p[x].machine = GONE
}

inline TakeExecute() {
  if
  :: p[i].machine == IDLE && p[i].same_life ->
    p[i].machine = ACTIVE;
    p[i].executed = 1;
    Send(p[i].execute_reply, p[i].back)
  :: else
  fi
}

inline ReleaseReader() {
  for (j : 0 .. N - 1) { assert(p[j].executed) }
  Send(p[i].vote_read, p[i].back);
  p[i].machine = GONE
}

inline TakePrepare() {
  if
  :: HAS_MACHINE(i) && p[i].same_life ->
    if
    :: p[i].machine == ACTIVE && p[i].writes -> p[i].machine = PREPARING
    :: p[i].machine == ACTIVE && !p[i].writes -> ReleaseReader()
    :: p[i].machine == PREPARED -> Send(p[i].vote_yes, p[i].back)
    :: else
    fi
#ifdef VOTE_YES_AFTER_RESTART
  :: !HAS_MACHINE(i) -> Send(p[i].vote_yes, p[i].back)
#endif
  :: else -> Send(p[i].vote_no, p[i].back)
  fi
}

/* It executes, and votes then; or it has read only, and is asked again. */
inline TakePrepareEarly() {
  if
  :: HAS_MACHINE(i) && p[i].same_life ->
    if
    :: p[i].machine == ACTIVE && p[i].writes -> p[i].machine = PREPARING
#ifdef READ_VOTES_EARLY
    :: p[i].machine == ACTIVE && !p[i].writes -> ReleaseReader()
#endif
    :: p[i].machine == PREPARED -> Send(p[i].vote_yes, p[i].back)
    :: else
    fi
  :: else -> Send(p[i].vote_no, p[i].back)
  fi
}

inline TakeOnePhase() {
  if
  :: HAS_MACHINE(i) && p[i].same_life ->
    if
    :: p[i].machine == ACTIVE -> p[i].machine = DECIDING; p[i].decides = 1
    :: p[i].machine == DECIDED_C -> Send(p[i].reply_committed, p[i].back)
    :: p[i].machine == DECIDED_A -> Send(p[i].reply_aborted, p[i].back)
    :: else
    fi
  :: !HAS_MACHINE(i) && p[i].same_life -> Send(p[i].reply_aborted, p[i].back)
  :: !p[i].same_life -> Send(p[i].reply_unknown, p[i].back)
  fi
}

inline TakeDecideCommit() {
  if
  :: p[i].machine == PREPARED ->
    p[i].machine = PCOMMITTING;
#ifdef ACKNOWLEDGE_BEFORE_DURABLE
    Send(p[i].acknowledge, p[i].back);
#endif
  :: !HAS_MACHINE(i) -> Send(p[i].acknowledge, p[i].back)
  :: else
  fi
}

inline TakeDecideAbort() {
  if
  :: p[i].machine == ACTIVE || p[i].machine == PREPARING || p[i].machine == PREPARED -> Abort(i, 1)
  :: else
  fi
}

inline TakeAskDecider() {
  if
  :: !HAS_MACHINE(i) && p[i].same_life -> Send(p[i].says_aborted, p[i].back)
  :: !HAS_MACHINE(i) && !p[i].same_life -> Send(p[i].says_unknown, p[i].back)
  :: p[i].machine == DECIDED_C -> Send(p[i].says_committed, p[i].back)
  :: p[i].machine == DECIDED_A -> Send(p[i].says_aborted, p[i].back)
  :: else                                                          /* pending */
  fi
}

inline RecordDurable() {
  if
  :: p[i].machine == PREPARING ->
    p[i].prepare_durable = 1;
    p[i].said_yes = 1;
    p[i].machine = PREPARED;
    Send(p[i].vote_yes, p[i].back)
  :: p[i].machine == PCOMMITTING ->
    p[i].commit_durable = 1;
    Commit();
    p[i].machine = GONE;
    Send(p[i].acknowledge, p[i].back)
  :: p[i].machine == DECIDING ->
    p[i].commit_durable = 1;
    Commit();
    if
    :: p[i].nobody_asks -> p[i].machine = GONE
    :: else -> p[i].machine = DECIDED_C; Send(p[i].reply_committed, p[i].back)
    fi
  fi
}

inline CoordinatorLost() {
  if
  :: p[i].machine == ACTIVE || p[i].machine == PREPARING -> Abort(i, 0)
  :: else
  fi
}

/* Connected again, to the same life of the coordinator or to a later one. */
inline CoordinatorUp() {
  if
  :: p[i].machine == PREPARED -> Send(p[i].inquiry, p[i].back)
  :: coordinator_restarted && (p[i].machine == ACTIVE || p[i].machine == PREPARING) -> Abort(i, 0)
  :: coordinator_restarted && p[i].machine == DECIDING -> p[i].nobody_asks = 1
  :: coordinator_restarted && (p[i].machine == DECIDED_C || p[i].machine == DECIDED_A) -> p[i].machine = GONE
  :: !coordinator_restarted && p[i].machine == DECIDED_C -> Send(p[i].reply_committed, p[i].back)
  :: !coordinator_restarted && p[i].machine == DECIDED_A -> Send(p[i].reply_aborted, p[i].back)
  :: else
  fi
}

/* Its own failure, or a deadline before it has voted. */
inline AbortLocally(x) {
  if
  :: p[x].machine == ACTIVE -> Abort(x, 0)
  :: p[x].machine == PREPARING -> Send(p[x].vote_no, p[x].back); Abort(x, 0)
  :: else
  fi
}

inline InquiryDue(x) {
  if
#ifdef ABORT_IN_DOUBT
  :: p[x].machine == PREPARED -> Abort(x, 0)
#endif
#ifndef NEVER_ASK
  :: p[x].machine == PREPARED -> Send(p[x].inquiry, p[x].back)
#endif
  :: p[x].machine == DECIDED_C -> Send(p[x].reply_committed, p[x].back)
  :: p[x].machine == DECIDED_A -> Send(p[x].reply_aborted, p[x].back)
  :: else
  fi
}

/* ---- crashes ---- */

/* `lucky`: what was being forced, and what was written without being forced, has reached the disk. */
inline CrashParticipant(lucky) {
  crashes--;
  p[i].unlocked = (coordinator == EXECUTING && HAS_MACHINE(i) -> 1 : p[i].unlocked);
  Break(i);
  p[i].back = DOWN;
  p[i].same_life = 0;
  p[i].nobody_asks = 0;
  if
  :: p[i].machine == PREPARING && lucky -> p[i].prepare_durable = 1; p[i].said_yes = 1
  :: (p[i].machine == PCOMMITTING || p[i].machine == DECIDING) && lucky -> p[i].commit_durable = 1
  :: else
  fi;
  if
  :: p[i].commit_durable ->
    Commit();
    /* A decider that was confirmed has noted it, unforced. */
    p[i].machine = (p[i].decides && !(lucky && p[i].machine == GONE) -> DECIDED_C : GONE)
  :: !p[i].commit_durable && p[i].prepare_durable ->
    /* One that has aborted has noted it, unforced: it may have to ask again, and must hear the same. */
    p[i].machine = (lucky && p[i].machine == GONE -> GONE : PREPARED)
  :: else ->
    p[i].final = (p[i].writes -> ABORTED : 0);
    p[i].machine = GONE
  fi
}

inline CrashCoordinator(lucky) {
  crashes--;
  coordinator_restarted = 1;
  if
  :: coordinator == FORCING && lucky -> commit_durable = 1
  :: else
  fi;
  any_yes = 0;
  for (j : 0 .. N - 1) {
    Break(j);
    p[j].down = DOWN;
    p[j].replied = 0; p[j].asked = 0; p[j].acknowledged = 0; p[j].decider = 0;
    p[j].vote = (commit_durable && p[j].vote == YES -> YES : 0);
    if :: p[j].vote == YES -> any_yes = 1 :: else fi
  }
  if
  :: commit_durable ->
    local_final = COMMITTED;
    coordinator = (any_yes && !(lucky && coordinator == DONE) -> COMMITTING : DONE)
  :: else ->
    local_final = (local_final == 0 -> ABORTED : local_final);
    coordinator = DONE
  fi
}

/* ---- the properties ---- */

#define FINISHED (coordinator == DONE && !busy)

inline CheckEnd() {
  busy = 0;
  for (j : 0 .. N - 1) { if :: HAS_MACHINE(j) -> busy = 1 :: else fi }
  if
  :: FINISHED ->
    for (j : 0 .. N - 1) {
      assert(!p[j].writes || (answer != COMMITTED && !commit_durable) || p[j].final == COMMITTED)
    }
  :: else
  fi
}

inline CheckAtomicity() {
  any_commit = (local_wrote && local_final == COMMITTED) || commit_durable || answer == COMMITTED;
  any_abort = (local_wrote && local_final == ABORTED) || answer == ABORTED;
  for (j : 0 .. N - 1) {
    any_commit = any_commit || (p[j].writes && p[j].final == COMMITTED);
    any_abort = any_abort || (p[j].writes && p[j].final == ABORTED)
  }
  assert(!(any_commit && any_abort));
#ifdef REACH
  assert(!(REACH));    /* check.py asks whether this can be reached at all */
#endif
}

/* Forgets what can have no effect any more, and sorts the participants. */
inline Canonical() {
  for (j : 0 .. N - 1) {
    if
    :: coordinator != EXECUTING && coordinator != VOTING ->
      p[j].execute_reply = NONE; p[j].vote_yes = NONE; p[j].vote_no = NONE; p[j].vote_read = NONE;
      p[j].replied = 0; p[j].asked = 0; p[j].unlocked = 0;
      p[j].vote = (p[j].vote == YES && (commit_durable || coordinator == FORCING) -> YES : 0);
      p[j].acknowledged = (coordinator == COMMITTING -> p[j].acknowledged : 0);
      p[j].decider = (coordinator == DONE -> 0 : p[j].decider);
      p[j].says_committed = (coordinator == ONE_PHASE || coordinator == INQUIRING -> p[j].says_committed : 0);
      p[j].says_aborted = (coordinator == ONE_PHASE || coordinator == INQUIRING -> p[j].says_aborted : 0);
      p[j].says_unknown = (coordinator == ONE_PHASE || coordinator == INQUIRING -> p[j].says_unknown : 0)
    :: else
    fi;
    if
    :: p[j].vote != 0 -> p[j].vote_yes = NONE; p[j].vote_no = NONE; p[j].vote_read = NONE
    :: else
    fi;
    p[j].execute_reply = (p[j].replied -> NONE : p[j].execute_reply);
    if
    :: coordinator == DONE && p[j].machine == GONE && crashes == 0 ->
      p[j].one_phase = NONE; p[j].ask_decider = NONE;
      p[j].reply_committed = NONE; p[j].reply_aborted = NONE; p[j].reply_unknown = NONE;
      p[j].down = UP; p[j].back = UP
    :: else
    fi;
    if
    :: coordinator == DONE && (!commit_durable || crashes == 0) -> p[j].acknowledge = NONE; p[j].vote = 0
    :: else
    fi;
    if
    :: p[j].machine == GONE && crashes == 0 ->
      p[j].decide_abort = NONE; p[j].confirm = NONE; p[j].told_committed = NONE; p[j].told_aborted = NONE;
      p[j].execute = NONE; p[j].inquiry = NONE;
      p[j].prepare = (coordinator == EXECUTING || coordinator == VOTING -> p[j].prepare : NONE);
      p[j].prepare_early = (coordinator == EXECUTING || coordinator == VOTING -> p[j].prepare_early : NONE);
      p[j].decide_commit = (coordinator == COMMITTING -> p[j].decide_commit : NONE)
    :: else
    fi
  }
  c_code {
    int a, b;
    struct Pair swap;
    for (a = 0; a < N; a++)
      for (b = 0; b + 1 < N - a; b++)
        if (memcmp(&now.p[b], &now.p[b + 1], sizeof(swap)) > 0) {
          swap = now.p[b]; now.p[b] = now.p[b + 1]; now.p[b + 1] = swap;
        }
  }
}

inline After() { CheckAtomicity(); CheckEnd(); Canonical() }
inline Fault() { rounds = 0 }

/* ---- what can happen ---- */

#define ON(message, effect) :: d_step { ANY(message) -> Take(p[i].message); effect; After() }

/* Everything between the coordinator and one participant. */
proctype Between(byte i) {
end:
  do
  /* At the participant's island. */
  :: d_step { ANY(execute) -> p[i].execute = NONE; TakeExecute(); After() }
  ON(prepare, TakePrepare())
  ON(prepare_early, TakePrepareEarly())
  ON(one_phase, TakeOnePhase())
  ON(decide_commit, TakeDecideCommit())
  ON(decide_abort, TakeDecideAbort())
  :: d_step {
    ANY(confirm) -> Take(p[i].confirm);
    p[i].machine = (p[i].machine == DECIDED_C || p[i].machine == DECIDED_A -> GONE : p[i].machine);
    After()
  }
  :: d_step {
    ANY(told_committed) -> Take(p[i].told_committed);
    p[i].machine = (p[i].machine == PREPARED -> PCOMMITTING : p[i].machine);
    After()
  }
  :: d_step {
    ANY(told_aborted) -> Take(p[i].told_aborted);
    if :: p[i].machine == PREPARED -> Abort(i, 1) :: else fi;
    After()
  }
  ON(ask_decider, TakeAskDecider())
  :: d_step {
    p[i].machine == PREPARING || p[i].machine == PCOMMITTING || p[i].machine == DECIDING ->
    RecordDurable(); After()
  }
  :: d_step { p[i].machine == ACTIVE || p[i].machine == PREPARING -> AbortLocally(i); After() }
  :: d_step { p[i].back == BROKEN -> p[i].back = DOWN; CoordinatorLost(); After() }
  :: d_step { p[i].down == DOWN && p[i].back == DOWN -> p[i].back = UP; CoordinatorUp(); After() }
  /* At the coordinator's island. */
  :: d_step {
    ANY(execute_reply) -> Take(p[i].execute_reply);
    p[i].replied = (coordinator == EXECUTING);
    After()
  }
  ON(vote_yes, TakeVote(YES))
  ON(vote_no, TakeVote(NO))
  ON(vote_read, TakeVote(READ))
  ON(acknowledge, TakeAcknowledge())
  ON(inquiry, TakeInquiry())
  ON(reply_committed, TakeReply(COMMITTED))
  ON(reply_aborted, TakeReply(ABORTED))
  ON(reply_unknown, TakeReply(UNKNOWN))
  ON(says_committed, TakeDeciderSays(COMMITTED))
  ON(says_aborted, TakeDeciderSays(ABORTED))
  ON(says_unknown, TakeDeciderSays(UNKNOWN))
  :: d_step { p[i].down == BROKEN -> p[i].down = DOWN; PeerLost(); After() }
  :: d_step { p[i].down == DOWN && p[i].back == UP -> p[i].down = UP; PeerUp(); After() }
  /* Faults. */
  :: d_step { crashes > 0 -> Fault(); CrashParticipant(0); After() }
  :: d_step { crashes > 0 -> Fault(); CrashParticipant(1); After() }
  :: d_step { breaks > 0 && p[i].down == UP -> Fault(); breaks--; Break(i); After() }
  :: d_step { timers > 0 && HAS_MACHINE(i) -> Fault(); timers--; InquiryDue(i); After() }
  od
}

inline AllReplied() {
  waiting = 0;
  for (j : 0 .. N - 1) { if :: !p[j].replied -> waiting = 1 :: else fi }
}

#define REPLIED(x) (x >= N || p[x % N].replied)

/* Everything else at the coordinator's island. */
proctype AtCoordinator() {
end:
  do
#ifdef PREPARE_TOO_EARLY
  :: d_step { coordinator == EXECUTING && (p[0].replied || REPLIED(1) || REPLIED(2)) -> RequestCommit(); After() }
#else
  :: d_step {
    coordinator == EXECUTING && REPLIED(0) && REPLIED(1) && REPLIED(2) -> RequestCommit(); After()
  }
#endif
  :: d_step { coordinator == EXECUTING || coordinator == VOTING -> CoordinatorAbort(); After() }
  :: d_step { coordinator == FORCING -> CommitRecordDurable(); After() }
  :: d_step { crashes > 0 -> Fault(); CrashCoordinator(0); After() }
  :: d_step { crashes > 0 -> Fault(); CrashCoordinator(1); After() }
  :: d_step {
    timers > 0 && coordinator >= COMMITTING && coordinator <= INQUIRING ->
    Fault(); timers--; CoordinatorTimeout(); After()
  }
  od
}

#define STILL(x) (x >= N || (p[x % N].down == UP && p[x % N].back == UP && \
  p[x % N].machine != PREPARING && p[x % N].machine != PCOMMITTING && p[x % N].machine != DECIDING && \
  p[x % N].execute != FRESH && p[x % N].prepare != FRESH && p[x % N].one_phase != FRESH && \
  p[x % N].prepare_early != FRESH && \
  p[x % N].decide_commit != FRESH && p[x % N].decide_abort != FRESH && p[x % N].confirm != FRESH && \
  p[x % N].told_committed != FRESH && p[x % N].told_aborted != FRESH && p[x % N].ask_decider != FRESH && \
  p[x % N].execute_reply != FRESH && p[x % N].vote_yes != FRESH && p[x % N].vote_no != FRESH && \
  p[x % N].vote_read != FRESH && p[x % N].acknowledge != FRESH && p[x % N].inquiry != FRESH && \
  p[x % N].reply_committed != FRESH && p[x % N].reply_aborted != FRESH && p[x % N].reply_unknown != FRESH && \
  p[x % N].says_committed != FRESH && p[x % N].says_aborted != FRESH && p[x % N].says_unknown != FRESH))
#define OVER(x) (x >= N || !HAS_MACHINE(x % N))

/* When nothing else moves, those who wait do something about it. */
proctype Clock() {
  byte i;
end:
  do
  :: d_step {
    coordinator != FORCING && STILL(0) && STILL(1) && STILL(2) &&
    !(coordinator == DONE && OVER(0) && OVER(1) && OVER(2)) ->
    assert(rounds < MAX_ROUNDS);
    rounds++;
    CoordinatorTimeout();
    for (i : 0 .. N - 1) { InquiryDue(i); AbortLocally(i) }
    i = 0;
    After()
  }
  od
}

init {
  atomic {
    byte k;
    for (k : 0 .. N - 1) {
      p[k].same_life = 1;
      p[k].execute = FRESH;
      if :: p[k].writes = 0 :: p[k].writes = 1 fi;
      if
      :: EARLY -> p[k].asked = 1; p[k].prepare_early = FRESH
      :: skip
      fi
    }
    k = 0;
    if :: local_wrote = 0 :: local_wrote = 1 fi;
    c_code {
      int a, b;
      struct Pair swap;
      for (a = 0; a < N; a++)
        for (b = 0; b + 1 < N - a; b++)
          if (memcmp(&now.p[b], &now.p[b + 1], sizeof(swap)) > 0) {
            swap = now.p[b]; now.p[b] = now.p[b + 1]; now.p[b + 1] = swap;
          }
    };
    run AtCoordinator();
    run Clock();
    for (k : 0 .. N - 1) { run Between(k) }
  }
}
