/*
 * Transactions over the box's epochs: what a cut leaves of them. N islands with one row each, two
 * distributed transactions and one on a single island, two-phase commit in which no message waits for a
 * disk, kills of islands, losses of power, and recoveries that lose power again.
 *
 * A step of an island - take a message, read G, append, send - is one event here; epochs.pml shows that
 * holds make it look so to the logger. A round of the logger is two events: everything in the rings is on
 * disk; then EPOCH says so. Between them EPOCH may or may not have reached the disk when power is lost. Of
 * what is in the rings, but not below the tails of such a round, any part may be on disk after a loss
 * (ANY_PART).
 *
 * Messages are the states of those who have sent them: they come at any time, and those of a dead process
 * too. Rows have one lock each, for readers too. Any transaction may abort at any time before it is
 * decided.
 *
 * Answers: `lazy` needs no event of its own, it is given with COMMIT. `sync` answers are given as soon as
 * they may be.
 */
#ifndef N
#define N 2          /* islands */
#endif
#ifndef T
#define T 2          /* transactions */
#endif
#ifndef RAISES
#define RAISES 2     /* of G, over all lives of the box */
#endif
#ifndef KILLS
#define KILLS 0      /* of islands; the next life begins at once */
#endif
#ifndef LOSSES
#define LOSSES 1     /* of power */
#endif
#ifndef ANY_PART
#define ANY_PART 1   /* of what is only in the rings may be on disk after a loss; 0: all of it is */
#endif

/* Transaction 0 runs on all islands, 1 on the last two, backwards; 2 on the last one. */
#define HOME(t) ((t) == 0 -> 0 : N - 1)
#define MAY_VISIT(t, i) ((t) == 0 || (i) == N - 1 || ((t) == 1 && (i) == N - 2))
#define BIT(x) (1 << (x))
#define MAX(a, b) ((a) > (b) -> (a) : (b))
#define NOBODY 3

/* A record: where it is. RING survives its island. */
#define NOWHERE 0
#define RING    1
#define DISK    2

/* A branch. ENDED: a reader that has voted, or whose transaction is decided. */
#define NONE      0
#define LOCKED    1
#define PREPARED  2
#define COMMITTED 3
#define ABORTED   4
#define ENDED     5

/* A transaction, as its coordinator sees it. DONE: committed and forgotten, inquiries hear "aborted". */
#define IDLE       0
#define RUNNING    1
#define VOTING     2
#define COMMITTING 3
#define DONE       4
#define GONE       5       /* aborted */

/* The box. */
#define UP       0
#define LOSING   1         /* the disk's contents are being settled */
#define DARK     2
#define CUT_MADE 3         /* in MANIFEST; nothing is opened yet */

typedef Record { unsigned epoch : 4; unsigned place : 2 };
typedef Branch {
  unsigned state : 3;
  unsigned writes : 1;
  Record prepare;          /* with its changes */
  Record commit            /* of a participant */
};
typedef Transaction {
  unsigned state : 3;
  unsigned wait : 4;       /* its answer waits for this epoch; 0: nobody waits */
  unsigned answered : 1;   /* in mode sync */
  unsigned sources : 3;    /* whose changes it may have read or overwritten */
#ifdef COMMIT_READS_G_EARLY
  unsigned begun : 4;
#endif
  Record commit;           /* the coordinator's, with its own changes */
  Record end
};
typedef Cut { unsigned last : 4; unsigned next : 4 };

Transaction t[T];
Branch b[T * N];           /* of transaction x on island i: b[x * N + i] */
unsigned G : 4 = 1;
unsigned epoch : 4;        /* EPOCH, and what the board says */
unsigned round : 4;        /* what EPOCH is about to say */
byte commits[N];           /* the highest epoch of a COMMIT of each island, in its memory */
unsigned box : 2 = UP;
Cut cut[2];                /* MANIFEST */
unsigned raises : 3 = RAISES;
unsigned kills : 2 = KILLS;
unsigned losses : 2 = LOSSES;

hidden byte k;
hidden byte n;
hidden byte m;
hidden byte some_commit;
hidden byte some_abort;
hidden byte limit;

#define B(x, i) b[(x) * N + (i)]
#define ABSENT(record) (record.place == NOWHERE)
/* Between the epochs of a cut: such a record never counts again. */
#define VOID(e) ((cut[0].last < (e) && (e) < cut[0].next) || (cut[1].last < (e) && (e) < cut[1].next))
#define COUNTS(record) (record.place != NOWHERE && !VOID(record.epoch))
#define IS_COMMITTED(x) (t[x].state == COMMITTING || t[x].state == DONE)

/* ---- properties ---- */

inline CheckOne(x) {
  some_commit = IS_COMMITTED(x);
  some_abort = (t[x].state == GONE);
  for (k : 0 .. N - 1) {
    some_commit = some_commit || B(x, k).state == COMMITTED;
    some_abort = some_abort || (B(x, k).state == ABORTED && B(x, k).writes)
  }
  assert(!(some_commit && some_abort));
  /* Answered is there, and so is what it has read, and what any survivor has. */
  assert(!t[x].answered || t[x].state != GONE);
  for (k : 0 .. T - 1) {
    assert(!(t[x].sources & BIT(k)) || !(some_commit || t[x].answered) || t[k].state != GONE)
  }
  k = 0
}

inline Check() {
  CheckOne(0);
#if T > 1
  CheckOne(1);
#endif
#if T > 2
  CheckOne(2);
#endif
#ifdef REACH
  assert(!(REACH))
#endif
}

inline Order(first, second) {
  assert(ABSENT(first) || ABSENT(second) || first.epoch <= second.epoch)
}

/* ---- islands ---- */

#define LOCK_HOLDER(x, i) (B(x, i).state == LOCKED || B(x, i).state == PREPARED)
#if T == 1
#define FREE(i) (!LOCK_HOLDER(0, i))
#elif T == 2
#define FREE(i) (!LOCK_HOLDER(0, i) && !LOCK_HOLDER(1, i))
#else
#define FREE(i) (!LOCK_HOLDER(0, i) && !LOCK_HOLDER(1, i) && !LOCK_HOLDER(2, i))
#endif

inline Append(record) { record.epoch = G; record.place = RING }

/* One more COMMIT on island i, before its locks go. */
inline NoteCommit(i) { commits[i] = G }

inline Answer(x) {
  if
  :: t[x].wait && t[x].wait <= epoch + 1 -> t[x].answered = 1; t[x].wait = 0     /* it waits for wait - 1 */
  :: else
  fi
}

inline Wait(x, until) { t[x].wait = MAX(t[x].wait, (until) + 1) }

inline Execute(x, i, kind) {
#ifdef COMMIT_READS_G_EARLY
  if :: t[x].state == IDLE -> t[x].begun = G :: else fi;
#endif
  t[x].state = RUNNING;
  B(x, i).state = LOCKED;
  B(x, i).writes = kind;
  for (k : 0 .. T - 1) {
    if
    :: k != x && B(k, i).state == COMMITTED && B(k, i).writes -> t[x].sources = t[x].sources | BIT(k)
    :: else
    fi
  }
  k = 0
}

/* Votes carry the highest epoch of a COMMIT of their island. */
inline Vote(x, i) {
  if
  :: B(x, i).writes ->
    B(x, i).state = PREPARED;
#ifndef YES_BEFORE_PREPARE
    Append(B(x, i).prepare)
#endif
  :: else ->
    B(x, i).state = ENDED;
#ifndef READ_VOTES_WITHOUT_EPOCH
    Wait(x, commits[i])
#endif
  fi
}

/* All of its branches have voted, or do not exist. */
inline CountVotes(x) {
  some_abort = 0; some_commit = B(x, HOME(x)).writes; m = 0;
  for (k : 0 .. N - 1) {
    if
    :: k == HOME(x) || B(x, k).state == NONE || B(x, k).state == ENDED
    :: B(x, k).state == PREPARED -> some_commit = 1; m = 1
    :: else -> some_abort = 1
    fi
  }
  k = 0
}

inline Decide(x) {
  CountVotes(x);
  if
  :: some_abort
  :: !some_abort && some_commit ->
    Append(t[x].commit);
#ifdef COMMIT_READS_G_EARLY
    t[x].commit.epoch = t[x].begun;
#endif
    t[x].state = (m -> COMMITTING : DONE);
    for (k : 0 .. N - 1) { Order(B(x, k).prepare, t[x].commit) }
    NoteCommit(HOME(x));
    if :: B(x, HOME(x)).state == LOCKED -> B(x, HOME(x)).state = COMMITTED :: else fi;
    Wait(x, t[x].commit.epoch)
  :: !some_abort && !some_commit ->
    t[x].state = DONE;
    if
    :: B(x, HOME(x)).state == LOCKED -> B(x, HOME(x)).state = ENDED; Wait(x, commits[HOME(x)])
    :: else
    fi
  fi;
#ifdef ANSWERS_AT_COMMIT
  if :: IS_COMMITTED(x) -> t[x].answered = 1; t[x].wait = 0 :: else fi;
#endif
  if :: IS_COMMITTED(x) -> Answer(x) :: else fi;
  k = 0; m = 0
}

inline Abort(x) {
  t[x].state = GONE; t[x].wait = 0; t[x].sources = 0;
  if :: B(x, HOME(x)).state == LOCKED -> B(x, HOME(x)).state = ABORTED :: else fi
}

inline Forget(record) { record.epoch = 0; record.place = NOWHERE }

/* Found again by a recovery, its PREPARE would only be aborted again. */
inline AbortBranch(x, i) {
  B(x, i).state = ABORTED;
  Forget(B(x, i).prepare)
}

inline CommitBranch(x, i) {
  Append(B(x, i).commit);
  Order(t[x].commit, B(x, i).commit);
  B(x, i).state = COMMITTED;
  NoteCommit(i)
}

/* All have acknowledged. */
inline End(x) {
  CountVotes(x);
  if
  :: !m ->
    Append(t[x].end);
#ifdef END_READS_G_EARLY
    t[x].end.epoch = t[x].commit.epoch;
#endif
    t[x].state = DONE;
    for (k : 0 .. N - 1) { Order(B(x, k).commit, t[x].end) }
  :: else
  fi;
  k = 0; m = 0
}

/* What a life starts with: redo, undo, branches in doubt. */
inline RecoverBranch(x, i) {
  if
  :: B(x, i).state == NONE
  :: B(x, i).state != NONE && i != HOME(x) ->
    B(x, i).state = (COUNTS(B(x, i).commit) -> COMMITTED : (COUNTS(B(x, i).prepare) -> PREPARED : ABORTED))
  :: B(x, i).state != NONE && i == HOME(x) ->
    B(x, i).state = (B(x, i).writes && COUNTS(t[x].commit) -> COMMITTED : ABORTED)
  fi;
#ifndef NEXT_LIFE_FORGETS_COMMITS
  if :: COUNTS(B(x, i).commit) -> commits[i] = MAX(commits[i], B(x, i).commit.epoch) :: else fi;
  if :: i == HOME(x) && COUNTS(t[x].commit) -> commits[i] = MAX(commits[i], t[x].commit.epoch) :: else fi
#endif
}

/* A coordinator's. A transaction that has only read leaves nothing; who has heard its answer remembers it. */
inline RecoverTransaction(x) {
  t[x].wait = 0;
  some_commit = 0;
  for (k : 0 .. N - 1) { some_commit = some_commit || B(x, k).writes }
  k = 0;
  if
  :: t[x].state == IDLE
  :: t[x].state != IDLE && COUNTS(t[x].commit) -> t[x].state = (COUNTS(t[x].end) -> DONE : COMMITTING)
  :: t[x].answered && !some_commit
  :: else -> t[x].state = GONE; t[x].sources = (t[x].answered -> t[x].sources : 0)
  fi
}

inline Kill(i) {
  kills--;
  commits[i] = 0;
  for (n : 0 .. T - 1) {
    if
    :: B(n, i).state == LOCKED || B(n, i).state == PREPARED -> RecoverBranch(n, i)
    :: else
    fi;
    if
    :: i == HOME(n) && (t[n].state == RUNNING || t[n].state == VOTING) -> t[n].state = GONE; t[n].sources = 0
    :: else
    fi;
    if :: i == HOME(n) -> t[n].wait = 0 :: else fi;
#ifndef NEXT_LIFE_FORGETS_COMMITS
    if :: COUNTS(B(n, i).commit) -> commits[i] = MAX(commits[i], B(n, i).commit.epoch) :: else fi;
    if :: i == HOME(n) && COUNTS(t[n].commit) -> commits[i] = MAX(commits[i], t[n].commit.epoch) :: else fi
#endif
  }
  n = 0
}

proctype Island(byte x; byte i) {
end:
  do
  :: d_step { box == UP && MAY_VISIT(x, i) && t[x].state <= RUNNING && B(x, i).state == NONE && FREE(i) ->
       Execute(x, i, 0) }
  :: d_step { box == UP && MAY_VISIT(x, i) && t[x].state <= RUNNING && B(x, i).state == NONE && FREE(i) ->
       Execute(x, i, 1) }
  :: d_step { box == UP && i != HOME(x) && t[x].state == VOTING && B(x, i).state == LOCKED ->
       Vote(x, i); Check() }
#ifdef YES_BEFORE_PREPARE
  :: d_step { box == UP && B(x, i).state == PREPARED && ABSENT(B(x, i).prepare) -> Append(B(x, i).prepare) }
#endif
  :: d_step { box == UP && i != HOME(x) && t[x].state == COMMITTING && B(x, i).state == PREPARED ->
       CommitBranch(x, i); Check() }
  /* Presumed abort: of a transaction that it has forgotten a coordinator says that it was aborted. */
  :: d_step { box == UP && i != HOME(x) && (t[x].state == GONE || t[x].state == DONE) &&
       LOCK_HOLDER(x, i) -> AbortBranch(x, i); Check() }
  od
}

proctype Coordinator(byte x) {
end:
  do
  :: d_step { box == UP && t[x].state == RUNNING -> t[x].state = VOTING }
  :: d_step { box == UP && t[x].state == VOTING -> Decide(x); Check() }
  :: d_step { box == UP && t[x].state == COMMITTING -> End(x); Check() }
  :: d_step { box == UP && t[x].state == VOTING -> Abort(x); Check() }
  od
}

/* ---- the box ---- */

inline ToDisk(record) { record.place = (record.place == RING -> DISK : record.place) }

inline AllToDisk() {
  for (k : 0 .. T * N - 1) { ToDisk(b[k].prepare); ToDisk(b[k].commit) }
  for (k : 0 .. T - 1) { ToDisk(t[k].commit); ToDisk(t[k].end) }
  k = 0
}

inline NewEpoch() {
  epoch = round; round = 0;
  for (n : 0 .. T - 1) { if :: IS_COMMITTED(n) -> Answer(n) :: else fi }
  n = 0
}

/* Not below a tail that a round has read: it may be on disk all the same. It is beyond EPOCH, though, so
 * without ANY_PART everything is on disk: the cut has the more to drop, and the states are fewer. */
inline Settle(record) {
  if
  :: record.place == RING -> assert(ANY_PART || record.epoch > MAX(epoch, round)); record.place = DISK
#if ANY_PART
  :: record.place == RING -> record.place = NOWHERE; record.epoch = 0
#endif
  :: record.place != RING
  fi
}

#ifdef CUT_AT_ISLANDS_MINIMUM
#define CUT_AT limit
inline Claim(record) { if :: record.place == DISK -> n = MAX(n, record.epoch) :: else fi }
/* The lowest of what islands claim: each the highest epoch on its disk, if it has any. */
inline Claims() {
  limit = 15;
  for (m : 0 .. N - 1) {
    n = 0;
    for (k : 0 .. T - 1) {
      Claim(B(k, m).prepare); Claim(B(k, m).commit);
      if :: m == HOME(k) -> Claim(t[k].commit); Claim(t[k].end) :: else fi
    }
    if :: n > 0 && n < limit -> limit = n :: else fi
  }
  if :: limit == 15 -> limit = epoch :: else fi;
  k = 0; n = 0; m = 0
}
#else
#define CUT_AT epoch
inline Claims() { skip }
#endif

/* Everything beyond the cut goes, for good; epochs go on above all that there were. */
inline MakeCut() {
  Claims();
  if
  :: cut[0].next == 0 -> cut[0].last = CUT_AT; cut[0].next = G + 1
  :: else -> cut[1].last = CUT_AT; cut[1].next = G + 1
  fi
}

#ifdef EPOCHS_COME_AGAIN
#define NEXT_G (epoch + 1)
#else
#define NEXT_G (G + 1)
#endif

/* What is void will not count again: forget it, so that states with and without it are one. */
#ifdef CUT_NOT_RECORDED
inline ForgetVoid(record) { skip }
#else
inline ForgetVoid(record) {
  if :: record.place != NOWHERE && VOID(record.epoch) -> Forget(record) :: else fi
}
#endif

inline Recover() {
  for (n : 0 .. N - 1) { commits[n] = 0 }
  for (n : 0 .. T - 1) {
    for (m : 0 .. N - 1) { RecoverBranch(n, m) }
    RecoverTransaction(n);
    for (m : 0 .. N - 1) { ForgetVoid(B(n, m).prepare); ForgetVoid(B(n, m).commit) }
    ForgetVoid(t[n].commit); ForgetVoid(t[n].end)
  }
  n = 0; m = 0;
  G = NEXT_G;
#ifdef CUT_NOT_RECORDED
  cut[0].last = 0; cut[0].next = 0; cut[1].last = 0; cut[1].next = 0;
#endif
  box = UP
}

proctype Box() {
end:
  do
  :: d_step { box == UP && raises > 0 -> raises--; G++ }
  :: d_step { box == UP && round == 0 && G - 1 > epoch -> round = G - 1; AllToDisk() }
  :: d_step { box == UP && round != 0 -> NewEpoch(); Check() }
  :: d_step { box == UP && kills > 0 -> Kill(0); Check() }
  :: d_step { box == UP && kills > 0 -> Kill(1); Check() }
#if N > 2
  :: d_step { box == UP && kills > 0 -> Kill(2); Check() }
#endif
  :: d_step { box != LOSING && losses > 0 -> losses--; box = LOSING }
  :: atomic { box == LOSING ->
       for (k : 0 .. T * N - 1) { Settle(b[k].prepare); Settle(b[k].commit) }
       for (k : 0 .. T - 1) { Settle(t[k].commit); Settle(t[k].end) }
       k = 0;
       if
       :: round -> epoch = round
       :: true
       fi;
       round = 0; box = DARK }
  :: d_step { box == DARK -> MakeCut(); box = CUT_MADE; Check() }
  :: d_step { box == CUT_MADE -> Recover(); Check() }
  od
}

init {
  atomic {
    byte x;
    byte i;
    run Box();
    for (x : 0 .. T - 1) {
      run Coordinator(x);
      for (i : 0 .. N - 1) { run Island(x, i) }
    }
    x = 0; i = 0
  }
}
