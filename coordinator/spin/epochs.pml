/*
 * How the box counts its epochs: the race of workers, who stamp and append, with the logger, who says up
 * to which epoch everything is on disk. Each access to shared memory is a step of its own, and any process
 * may be killed between two of them. cut.pml has the transactions and restarts that stand on it.
 *
 * Two workers, each the only one of its island, run transactions of either kind:
 *   RUN   runs through: one redo-only record, its commit; one epoch for its changes and its COMMIT
 *   LONG  publishes its change with the before-image, waits for something, and then appends COMMIT
 * A transaction may read what the other worker has last released (a lock, a message: the model does not
 * care). A RUN reads before it changes anything: it is alone. With LOOKS_AGAIN it is one of several workers of
 * its island, and reads after its change too: then it looks at G again, and if its epoch is over, publishes
 * its change with the before-image and commits in the new one.
 *
 * Memory: holds, G's raise and the second read of G in the hold loop are sequentially consistent, tails
 * and the release of a hold are release stores. Every other read of G may be stale: it gives the newest
 * value, or the oldest that the worker's knowledge allows (what it has seen itself, or may infer from what
 * it has read).
 *
 * Power may be lost in any state, so nobody needs to lose it: Check asks in every state what a recovery
 * would find, with EPOCH as it was synced last and as it was written last. At the end everything must be
 * durable: a G above MAX_G, when nobody is left who could stamp, lets the logger get there.
 */
#ifndef TRANSACTIONS
#define TRANSACTIONS 2     /* of worker 0 */
#endif
#ifndef OTHERS
#define OTHERS 1           /* of worker 1 */
#endif
#ifndef MAX_G
#define MAX_G 2            /* as far as G goes while somebody may still stamp */
#endif
#ifndef KILLS
#define KILLS 0            /* of islands */
#endif
#ifndef LOGGER_KILLS
#define LOGGER_KILLS 0
#endif
#ifndef OVERFLOWS
#define OVERFLOWS 0        /* of the counter in an LSN: a worker raises G before it stamps */
#endif
#ifndef LONGS
#define LONGS 1            /* 0: only RUN */
#endif

#define ALL (TRANSACTIONS + OTHERS)
#define INFINITY 15
#define OTHER(w) (1 - (w))
#define SHARE(x) ((x) -> OTHERS : TRANSACTIONS)
#define FROM(x) ((x) -> TRANSACTIONS : 0)       /* its transactions: t[FROM(x)] to t[TO(x)] */
#define TO(x) ((x) -> ALL - 1 : TRANSACTIONS - 1)
#define BIT(x) (1 << (x))
#define MAX(a, b) ((a) > (b) -> (a) : (b))

/* A record: where it is. RING survives its island, WRITTEN its logger too, SYNCED everything. */
#define NOWHERE 0
#define RING    1
#define SEEN    2          /* below the tail that this round of the logger has read */
#define WRITTEN 3
#define SYNCED  4

/* A worker's step. */
#define IDLE    0
#define LOCK    1          /* waits for the lock on what it reads, or for the message */
#define HOLD    2          /* reads G for its hold */
#define STORE   3          /* stores it */
#define AGAIN   4          /* reads G again */
#define STAMP   5
#define COMMIT  6
#define PUBLISH 7
#define RELEASE 8
#define DEAD    9
#define LOOK    10         /* at G again, before a RUN commits */

/* The logger's step. */
#define ASLEEP      0      /* between rounds */
#define HOLDS       1      /* of worker 0, then of worker 1 */
#define TAILS       3      /* and then it writes what is below them */
#define SYNC        5
#define EPOCH       6
#define EPOCH_SYNC  7      /* and then the board */
#define DRAINED     8      /* has written a dead island's ring, up to its end */
#define LOGGER_DEAD 9

typedef Record { unsigned epoch : 4; unsigned place : 3 };
typedef Transaction {
  Record change;           /* a RUN has none */
  Record commit;
  unsigned source : 3      /* the transaction it has read from, + 1 */
};
typedef Worker {
  unsigned step : 4;
  unsigned current : 2;    /* how many transactions have begun and ended */
  unsigned is_long : 1;    /* the current one is LONG */
  unsigned committing : 1; /* and its change is published */
  unsigned hold : 4;       /* on the board */
  unsigned value : 4;      /* a register: what it has read for its hold */
  unsigned known : 4;      /* no read of G gives less */
  unsigned released : 3;   /* its last transaction whose locks are free, + 1 */
  unsigned earlier : 4     /* the highest epoch of its earlier lives */
};

Transaction t[ALL];
Worker w[2];
/* Worker 0's page in memory: whose changes it holds. Worker 1's is like it, and left out. */
unsigned page : TRANSACTIONS;
unsigned page_lsn : 4;
unsigned G : 4 = 1;
unsigned durable : 4;          /* on the board: answers up to it go out */
unsigned promised : 4;         /* the highest that it ever was */
unsigned epoch_written : 4;    /* the file EPOCH */
unsigned epoch_synced : 4;
unsigned logger : 4 = ASLEEP;
unsigned round_g : 4;          /* the logger's registers */
unsigned lowest : 4;
#ifdef TRUSTS_WHAT_IS_WRITTEN
unsigned wrote : 2;            /* islands whose log this logger has written to since it synced it */
#endif
unsigned drains : 1;
unsigned kills : 2 = KILLS;
unsigned logger_kills : 2 = LOGGER_KILLS;
unsigned overflows : 2 = OVERFLOWS;

hidden byte k;
hidden byte e;
hidden byte found;

#define ID(x) (FROM(x) + w[x].current)
#define NOW(x) t[ID(x)]
#define AFTER_HOLD(x) (w[x].committing -> COMMIT : STAMP)
#define NEXT(x) (w[x].hold == INFINITY -> HOLD : AFTER_HOLD(x))
#define FINISHED(x) (w[x].step == IDLE && w[x].current == SHARE(x))

/* ---- what a recovery would find if power were lost now ---- */

#define COUNTS(record, cut) (record.place == SYNCED && record.epoch <= (cut))

#define MAY_GO_HOME (page_lsn && page_lsn <= durable)
#ifdef PAGE_BEFORE_EPOCH        /* on disk on its own island is not enough */
#undef MAY_GO_HOME
#define MAY_GO_HOME (ON_DISK(0) && ON_DISK(TRANSACTIONS - 1))
#define ON_DISK(n) ((t[n].commit.epoch == 0 || t[n].commit.place == SYNCED) && \
                    (t[n].change.epoch == 0 || t[n].change.place == SYNCED))
#endif
#ifdef PAGE_BEFORE_EPOCH_SYNCED
#undef MAY_GO_HOME
#define MAY_GO_HOME (page_lsn && page_lsn <= epoch_written)
#endif

inline CheckCut(cut) {
  for (k : 0 .. ALL - 1) {
    /* The cut lacks nothing: whatever was ever published up to it is on disk; so is what was answered. */
    assert(t[k].commit.place == NOWHERE || t[k].commit.epoch > cut || t[k].commit.place == SYNCED);
    assert(t[k].change.place == NOWHERE || t[k].change.epoch > cut || t[k].change.place == SYNCED);
    assert(t[k].commit.place == NOWHERE || t[k].commit.epoch > promised || COUNTS(t[k].commit, cut));
    /* What a survivor has read survives. */
    if
    :: COUNTS(t[k].commit, cut) && t[k].source -> assert(COUNTS(t[t[k].source - 1].commit, cut))
    :: else
    fi
  }
  /* What may be written home is committed, or can be undone. (What once counts counts for ever.) */
  for (k : 0 .. TRANSACTIONS - 1) {
    assert(!MAY_GO_HOME || !(page & BIT(k)) || COUNTS(t[k].commit, cut) || COUNTS(t[k].change, cut))
  }
  k = 0
}

inline Check() {
  CheckCut(epoch_synced);
  if :: epoch_written != epoch_synced -> CheckCut(epoch_written) :: else fi;
#ifdef REACH
  assert(!(REACH))
#endif
}

/* ---- workers ---- */

/* A step that reads G into e: fresh, or as stale as it may be. */
#define READS_G(condition, action) \
  :: d_step { condition -> e = MAX(G, w[x].known); action } \
  :: d_step { condition && w[x].known < G -> e = w[x].known; action }

#ifdef LOOKS_AGAIN
#define AFTER_READING LOOK
#else
#define AFTER_READING PUBLISH
#endif

/* The lock is granted: whatever the other has released last may be read now. */
inline Lock(x) {
  if
  :: w[OTHER(x)].released ->
    NOW(x).source = w[OTHER(x)].released;
    w[x].known = MAX(w[x].known, t[NOW(x).source - 1].commit.epoch)
  :: else
  fi;
  w[x].step = (NOW(x).commit.epoch -> AFTER_READING : NEXT(x))
}

inline Begin(x, kind) {
  w[x].is_long = kind;
#if defined(READS_AFTER_FIRST_CHANGE) || defined(LOOKS_AGAIN)
  w[x].step = NEXT(x)
#else
  if :: kind -> w[x].step = NEXT(x) :: else -> Lock(x) fi
#endif
}

inline Store(x) {
  w[x].hold = w[x].value;
#ifdef NO_SECOND_READ
  w[x].known = w[x].value; w[x].value = 0; w[x].step = AFTER_HOLD(x)
#else
  w[x].step = AGAIN
#endif
}

/* With what was read into e. */
inline Stamp(x, record) {
  assert(e > w[x].earlier);
  record.epoch = e;
  w[x].known = e
}

/* A worker's order. */
#define AFTER_SUSPENDING LOCK
#define AFTER_RUN PUBLISH
#define AFTER_COMMIT PUBLISH
#ifdef LOOKS_AGAIN
#undef AFTER_RUN
#define AFTER_RUN LOCK
#endif
/* Planted. */
#ifdef G_BEFORE_THE_LOCK
#undef AFTER_SUSPENDING
#define AFTER_SUSPENDING HOLD
#undef AFTER_COMMIT
#define AFTER_COMMIT LOCK
#endif
#ifdef READS_AFTER_FIRST_CHANGE
#undef AFTER_RUN
#define AFTER_RUN LOCK
#endif
#ifdef TWO_EPOCHS
#undef AFTER_RUN
#define AFTER_RUN COMMIT
#endif
#ifdef HOLD_RELEASED_EARLY
#undef AFTER_RUN
#define AFTER_RUN RELEASE
#undef AFTER_COMMIT
#define AFTER_COMMIT RELEASE
#endif

/* The counter is full: the next epoch, of the box first, then in the LSN. */
inline Overflow(x) {
  overflows--;
#ifdef OVERFLOWS_ALONE
  w[x].known = G + 1
#else
  G++;
  w[x].known = G
#endif
}

inline Touch(x) {
  if :: x == 0 -> page_lsn = e; page = page | BIT(ID(x)); Check() :: else fi
}

/* A change to the page. A RUN's has the epoch that its COMMIT will have: they are one record. */
inline Change(x) {
  if
  :: w[x].is_long -> Stamp(x, NOW(x).change); w[x].step = PUBLISH
  :: else -> Stamp(x, NOW(x).commit); w[x].step = AFTER_RUN
  fi;
  Touch(x)
}

/* With what was read into e: the epoch of the record is not over, or the record says less. */
inline Look(x) {
  w[x].known = e;
  if
  :: e == NOW(x).commit.epoch
  :: else -> NOW(x).change.epoch = NOW(x).commit.epoch; NOW(x).commit.epoch = 0; w[x].is_long = 1
  fi;
  w[x].step = PUBLISH
}

inline Commit(x) {
  Stamp(x, NOW(x).commit);
  w[x].step = AFTER_COMMIT
}

/* The end of a step: it suspends, or the transaction has ended. */
inline EndOfStep(x) {
  if
  :: w[x].is_long && !w[x].committing -> w[x].committing = 1; w[x].step = AFTER_SUSPENDING
  :: else -> w[x].is_long = 0; w[x].committing = 0; w[x].current++; w[x].step = IDLE
  fi
}

/* Append, and the tail; the locks go at once. */
inline Publish(x) {
  if
  :: w[x].is_long && !w[x].committing -> NOW(x).change.place = RING
  :: else -> NOW(x).commit.place = RING; w[x].released = ID(x) + 1
  fi;
#ifdef HOLD_RELEASED_EARLY
  if
  :: NOW(x).commit.place == RING -> EndOfStep(x)
  :: else -> w[x].step = RELEASE
  fi
#else
  w[x].step = RELEASE
#endif
}

inline Released(x) {
#ifdef HOLD_RELEASED_EARLY
  if
  :: NOW(x).commit.epoch -> w[x].step = PUBLISH
  :: else -> EndOfStep(x)
  fi
#else
  EndOfStep(x)
#endif
}

inline Kill(x) {
  kills--;
  for (k : FROM(x) .. TO(x)) {
    if :: t[k].commit.place == NOWHERE -> t[k].commit.epoch = 0 :: else fi;
    if :: t[k].change.place == NOWHERE -> t[k].change.epoch = 0 :: else fi;
    if :: t[k].commit.place == NOWHERE -> t[k].source = 0 :: else fi;
    w[x].earlier = MAX(w[x].earlier, MAX(t[k].commit.epoch, t[k].change.epoch))
  }
  k = 0;
  /* What ran is over; what has published its commit has ended. */
  if :: w[x].step != IDLE -> w[x].current++ :: else fi;
  w[x].is_long = 0; w[x].committing = 0; w[x].value = 0; w[x].known = 0;
  if :: x == 0 -> page = 0; page_lsn = 0 :: else fi;
  w[x].step = DEAD
}

/* The next life: it redoes what its log holds. */
inline NextLife(x) {
  for (k : FROM(x) .. TO(x)) {
    assert(t[k].commit.place == NOWHERE || t[k].commit.place >= WRITTEN);
    assert(t[k].change.place == NOWHERE || t[k].change.place >= WRITTEN);
    if
    :: x == 0 && t[k].commit.place != NOWHERE ->
      page = page | BIT(k);
      page_lsn = MAX(page_lsn, t[k].commit.epoch)
    :: else
    fi
  }
  k = 0;
  w[x].step = IDLE
}

#ifdef STARTS_BEFORE_DRAINED
#define MAY_START(x) (w[x].step == DEAD)
#else
#define MAY_START(x) (w[x].step == DEAD && w[x].known > 0)   /* the logger has told it the new G */
#endif

proctype Work(byte x) {
end:
  do
  :: d_step { w[x].step == IDLE && w[x].current < SHARE(x) -> Begin(x, 0) }
#if LONGS
  :: d_step { w[x].step == IDLE && w[x].current < SHARE(x) -> Begin(x, 1) }
#endif
  :: d_step { w[x].step == LOCK -> Lock(x) }
  /* do hold = G while (G != hold), once after infinity. */
  READS_G(w[x].step == HOLD, w[x].value = e; w[x].step = STORE)
  :: d_step { w[x].step == STORE -> Store(x) }
  :: d_step { w[x].step == AGAIN && G == w[x].value ->
       w[x].known = G; w[x].value = 0; w[x].step = AFTER_HOLD(x) }
  :: d_step { w[x].step == AGAIN && G != w[x].value -> w[x].value = G; w[x].step = STORE }
  :: d_step { overflows > 0 && (w[x].step == STAMP || w[x].step == COMMIT) -> Overflow(x) }
  READS_G(w[x].step == STAMP, Change(x))
  READS_G(w[x].step == COMMIT, Commit(x))
  READS_G(w[x].step == LOOK, Look(x))
  :: d_step { w[x].step == PUBLISH -> Publish(x); Check() }
  /* What a step ends with: hold is G if more follows at once, else infinity. */
  :: d_step { w[x].step == RELEASE -> w[x].hold = INFINITY; Released(x) }
  READS_G(w[x].step == RELEASE && w[x].current < SHARE(x) - 1,
          w[x].hold = e; w[x].known = e; Released(x))
  :: d_step { kills > 0 && x == 0 && w[x].step != DEAD && !FINISHED(x) -> Kill(x) }
  :: d_step { MAY_START(x) -> NextLife(x); Check() }
  od
}

/* ---- the logger ---- */

#define UNCOVERED(n) ((t[n].commit.place != NOWHERE && t[n].commit.epoch > durable) || \
                      (t[n].change.place != NOWHERE && t[n].change.epoch > durable))

inline Uncovered() {
  found = 0;
  for (k : 0 .. ALL - 1) { if :: UNCOVERED(k) -> found = 1 :: else fi }
  k = 0
}

inline Move(record, from, to) { record.place = (record.place == from -> to : record.place) }

inline MoveAll(x, from, to) {
  for (k : FROM(x) .. TO(x)) {
    Move(t[k].commit, from, to);
    Move(t[k].change, from, to)
  }
  k = 0
}

#ifdef TRUSTS_WHAT_IS_WRITTEN
inline WriteRing(x) {
  for (k : FROM(x) .. TO(x)) {
    if :: t[k].commit.place == SEEN || t[k].change.place == SEEN -> wrote = wrote | BIT(x) :: else fi
  }
  MoveAll(x, SEEN, WRITTEN)
}
inline Sync(x) {
  if :: wrote & BIT(x) -> MoveAll(x, WRITTEN, SYNCED); wrote = wrote & ~BIT(x) :: else fi
}
#else
inline WriteRing(x) { MoveAll(x, SEEN, WRITTEN) }
inline Sync(x) { MoveAll(x, WRITTEN, SYNCED) }
#endif

/* EPOCH never falls. A worker about to store an old hold must not lower it. */
inline Compute() {
  round_g = (round_g < lowest -> round_g : lowest) - 1;
#ifndef EPOCH_MAY_FALL
  round_g = MAX(round_g, epoch_written);
#endif
  lowest = 0
}

inline ForgetRound() {
  round_g = 0; lowest = 0; drains = 0;
  MoveAll(0, SEEN, RING);
  MoveAll(1, SEEN, RING)
}

inline Answer(epoch) { promised = MAX(promised, epoch) }

/* A round's order. */
#define FIRST HOLDS
#define AFTER_WRITE SYNC
#define AFTER_SYNC EPOCH
#define AFTER_EPOCH ASLEEP
/* Planted. */
#ifdef TAILS_BEFORE_HOLDS
#undef FIRST
#define FIRST TAILS
#endif
#ifdef EPOCH_BEFORE_SYNC
#undef AFTER_WRITE
#define AFTER_WRITE EPOCH
#undef AFTER_EPOCH
#define AFTER_EPOCH SYNC
#undef AFTER_SYNC
#define AFTER_SYNC ASLEEP
#endif

/* Both halves of the board are read: write what is below the tails. */
inline Write() {
  Compute(); WriteRing(0); WriteRing(1);
  logger = AFTER_WRITE
}

proctype Logger() {
end:
  do
  /* G goes up while something published is not covered. */
  :: d_step { logger == ASLEEP && (G < MAX_G || (FINISHED(0) && FINISHED(1) && G == durable + 1)) ->
       Uncovered();
       if :: found -> G++ :: else fi; found = 0 }
  :: d_step { logger == ASLEEP && G > durable + 1 ->
       Uncovered();
       if :: found -> round_g = G; lowest = INFINITY; logger = FIRST :: else fi; found = 0 }
  :: d_step { logger == HOLDS -> lowest = (w[0].hold < lowest -> w[0].hold : lowest); logger++ }
  :: d_step { logger == HOLDS + 1 -> lowest = (w[1].hold < lowest -> w[1].hold : lowest);
#ifdef G_AFTER_HOLDS
       round_g = G;
#endif
#ifdef TAILS_BEFORE_HOLDS
       Write()
#else
       logger = TAILS
#endif
       }
  :: d_step { logger == TAILS -> MoveAll(0, RING, SEEN); logger++ }
  :: d_step { logger == TAILS + 1 -> MoveAll(1, RING, SEEN);
#ifdef TAILS_BEFORE_HOLDS
       logger = HOLDS
#else
       Write()
#endif
       }
  :: d_step { logger == SYNC -> Sync(0); Sync(1); logger = AFTER_SYNC; Check() }
  :: d_step { logger == EPOCH && round_g == durable -> round_g = 0; logger = ASLEEP }
  :: d_step { logger == EPOCH && round_g != durable -> epoch_written = round_g; logger = EPOCH_SYNC;
#ifdef ANSWERS_BEFORE_EPOCH_SYNCED
       Answer(epoch_written);
#endif
       Check() }
  :: d_step { logger == EPOCH_SYNC -> epoch_synced = round_g; durable = round_g; Answer(durable);
       round_g = 0; logger = AFTER_EPOCH; Check() }
  /* An island that has died: its ring to the end, then its hold, then a new G for its next life. */
  :: d_step { logger == ASLEEP && w[0].step == DEAD && w[0].known == 0 -> MoveAll(0, RING, WRITTEN);
       drains = 0; logger = DRAINED }
  :: d_step { logger == ASLEEP && w[1].step == DEAD && w[1].known == 0 -> MoveAll(1, RING, WRITTEN);
       drains = 1; logger = DRAINED }
  :: d_step { logger == DRAINED -> w[drains].hold = INFINITY;
#ifndef SAME_G_AFTER_KILL
       G++;
#endif
       w[drains].known = G; drains = 0; logger = ASLEEP }
  :: d_step { logger_kills > 0 && logger != LOGGER_DEAD ->
       logger_kills--; ForgetRound(); logger = LOGGER_DEAD }
  :: d_step { logger == LOGGER_DEAD -> logger = ASLEEP;
#ifdef TRUSTS_WHAT_IS_WRITTEN
       wrote = 0;
#endif
#ifdef PUBLISHES_WHAT_IT_FINDS
       durable = epoch_written; Answer(durable);
#endif
       Check() }
  od
}

/* When nothing can happen any more, everything published is durable and answered. */
proctype End() {
end:
  do
  :: timeout ->
    d_step {
      for (k : 0 .. ALL - 1) { assert(t[k].commit.place == NOWHERE || t[k].commit.epoch <= durable) }
      k = 0
    };
    break
  od
}

init {
  atomic {
    w[0].hold = INFINITY;
    w[1].hold = INFINITY;
    w[0].known = G;
    w[1].known = G;
    run Logger();
    run End();
    run Work(0);
    run Work(1)
  }
}
