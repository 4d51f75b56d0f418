/*
 * How participants in doubt end when nothing is kept (durability `none`): the coordinator's word, or, once it
 * is proven dead, what the fellows know (participant.h, "orphaned"). One transaction, one coordinator, N
 * participants that all write. two_phase_commit.pml has the rest of the protocol, for islands with a log;
 * this one begins where every PREPARE is under way.
 *
 * Islands stall for as long as they like (a step that may come need not), links break, islands die and come
 * back without any memory. Nothing here knows a clock. A message is under way until it is taken or its link
 * breaks; what a dead island has sent may still arrive.
 *
 * Properties, in every state: among the islands that have not died - participants, the coordinator's own
 * changes, its answer to the client - nobody has committed while another has aborted; a commit is
 * acknowledged only by a life that has applied it. At the end nobody alive is in doubt.
 */
#ifndef N
#define N 3
#endif
#ifndef CRASHES
#define CRASHES 2
#endif
#ifndef BREAKS
#define BREAKS 1
#endif

/* A participant. DEAD: of the life that took part; a later one knows nothing. */
#define ACTIVE    0
#define PREPARED  1
#define ORPHANED  2
#define COMMITTED 3
#define ABORTED   4
#define DEAD      5

/* The coordinator; CDEAD as above. */
#define VOTING     0
#define COMMITTING 1
#define CABORTED   2
#define CDONE      3
#define CDEAD      4

/* A reply to a fellow. */
#define NONE     0
#define KNOWS    1
#define NOTHING  2
#define IN_DOUBT 3

typedef Side {
  unsigned state : 3;
  unsigned back : 1;           /* a later life is there */
  unsigned down : 1;           /* its link from the coordinator is broken */
  unsigned prepare : 1;        /* messages under way, from and to the coordinator */
  unsigned vote : 1;
  unsigned commit : 1;
  unsigned abort : 1;
  unsigned inquiry : 1;
  unsigned ack : 1;
  unsigned lost : 1;           /* the other answer to a commit: it is not here */
  /* What the coordinator knows. */
  unsigned yes : 1;
  unsigned ended : 1;          /* acknowledged, or known to be gone */
  /* Of its fellows, while orphaned: bit masks. */
  unsigned gone : N;
  unsigned nothing : N;
  unsigned doubt : N;
  unsigned asked : N;          /* questions under way to them */
}
typedef Row { unsigned kind : 2; unsigned gone : N }
typedef Replies { Row from[N] }

Side p[N];
Replies reply[N];              /* reply[i].from[j]: under way from j to i */
unsigned coordinator : 3;
unsigned answer : 2;           /* to the client: 1 committed, 2 aborted */
unsigned crashes : 2 = CRASHES;
unsigned breaks : 2 = BREAKS;

hidden byte k;
hidden byte n;
hidden byte some_commit;
hidden byte some_abort;
hidden byte waits;

#define BIT(x) (1 << (x))
#define ALIVE(x) (p[x].state != DEAD)
#define FROM_COORDINATOR(x) (p[x].prepare || p[x].commit || p[x].abort)

inline Check() {
  some_commit = (coordinator != CDEAD && answer == 1);
  some_abort = (coordinator != CDEAD && answer == 2);
  for (k : 0 .. N - 1) {
    some_commit = some_commit || p[k].state == COMMITTED;
    some_abort = some_abort || p[k].state == ABORTED
  }
  assert(!(some_commit && some_abort));
#ifdef REACH
  assert(!(REACH));
#endif
}

inline Say(x, message) {
  if :: !p[x].down -> message = 1 :: else fi
}

/* ---- the coordinator ---- */

inline CountVotes() {
  waits = 0;
  for (k : 0 .. N - 1) { if :: !p[k].yes -> waits = 1 :: else fi }
  if
  :: !waits -> coordinator = COMMITTING; answer = 1
  :: else
  fi
}

inline AbortAll() {
  coordinator = CABORTED;
  answer = 2;
  for (k : 0 .. N - 1) { Say(k, p[k].abort) }
}

inline CountEnds() {
  waits = 0;
  for (k : 0 .. N - 1) { if :: !p[k].ended -> waits = 1 :: else fi }
  if :: !waits -> coordinator = CDONE :: else fi
}

/* A participant is known to have died: proven, and its link read to its end. */
inline Gone(x) {
  if
  :: coordinator == VOTING -> AbortAll()
  :: coordinator == COMMITTING -> p[x].ended = 1; CountEnds()
  :: else
  fi
}

/* ---- participants ---- */

inline CrashSide(x) {
  crashes--;
  p[x].state = DEAD;
  p[x].prepare = 0; p[x].gone = 0; p[x].nothing = 0; p[x].doubt = 0; p[x].asked = 0;
  for (k : 0 .. N - 1) {
    reply[x].from[k].kind = NONE; reply[x].from[k].gone = 0
  }
  k = 0
}

#ifdef ABORTS_AT_ONCE
#define ORPHAN ABORTED
#else
#define ORPHAN ORPHANED
#endif

/* Nobody alive knows of a commit, and none can hear of one. */
#define OTHERS(x) (((1 << N) - 1) & ~BIT(x))
#define SETTLED(x) ((p[x].gone | p[x].nothing | p[x].doubt) == OTHERS(x))

inline AbortIfNobodyKnows(who) {
  if :: p[who].state == ORPHANED && SETTLED(who) -> p[who].state = ABORTED :: else fi
}

inline TakeReply(me, other) {
  if
  :: p[me].state != ORPHANED
  :: else ->
    if
    :: reply[me].from[other].kind == KNOWS -> p[me].state = COMMITTED
    :: reply[me].from[other].kind == NOTHING -> p[me].nothing = p[me].nothing | BIT(other)
    :: reply[me].from[other].kind == IN_DOUBT ->
#ifdef IGNORE_GONE
      p[me].doubt = p[me].doubt | BIT(other)
#else
      if
      :: (p[me].gone & ~(reply[me].from[other].gone)) == 0 -> p[me].doubt = p[me].doubt | BIT(other)
      :: else
      fi
#endif
    fi;
    AbortIfNobodyKnows(me)
  fi;
  reply[me].from[other].kind = NONE;
  reply[me].from[other].gone = 0
}

/* A question waits until there is something to say: asking again and again is the same. */
#ifdef ANSWERS_EARLY
#define HAS_AN_ANSWER(other) (p[other].state != ACTIVE)
#else
#define HAS_AN_ANSWER(other) (p[other].state != ACTIVE && p[other].state != PREPARED)
#endif

inline TakeQuestion(asker, other) {
  p[asker].asked = p[asker].asked & ~BIT(other);
  if
  :: p[other].state == COMMITTED ->
#ifdef FORGETS_COMMITS
    reply[asker].from[other].kind = NOTHING
#else
    reply[asker].from[other].kind = KNOWS
#endif
  :: p[other].state == ABORTED -> reply[asker].from[other].kind = NOTHING
  :: p[other].state == ORPHANED || p[other].state == PREPARED ->
    reply[asker].from[other].kind = IN_DOUBT;
    reply[asker].from[other].gone = p[other].gone
  :: else                       /* a life that was not meant */
  fi
}

inline FellowGone(me, other) {
  p[me].gone = p[me].gone | BIT(other);
#ifndef KEEPS_OLD_ANSWERS
  p[me].doubt = 0;
#endif
  AbortIfNobodyKnows(me)
}

#ifdef NOT_READ_TO_THE_END
#define READ_TO_THE_END(condition) 1
#else
#define READ_TO_THE_END(condition) (condition)
#endif

proctype Participant(byte x) {
end:
  do
  :: d_step { p[x].prepare && p[x].state == ACTIVE ->
       p[x].prepare = 0; p[x].state = PREPARED; Say(x, p[x].vote); Check() }
  :: d_step { p[x].prepare && p[x].state != ACTIVE -> p[x].prepare = 0 }
  /* Before its vote: a failure of its own, or the loss of the coordinator's link. */
  :: d_step { p[x].state == ACTIVE -> p[x].state = ABORTED; Check() }
  :: d_step { p[x].abort && ALIVE(x) -> p[x].abort = 0;
       if :: p[x].state == PREPARED || p[x].state == ACTIVE -> p[x].state = ABORTED :: else fi; Check() }
  :: d_step { p[x].commit && ALIVE(x) -> p[x].commit = 0;
       if
       :: p[x].state == PREPARED -> p[x].state = COMMITTED; Say(x, p[x].ack)
       :: p[x].state == COMMITTED -> Say(x, p[x].ack)
#ifdef ACKNOWLEDGES_UNAPPLIED
       :: else -> assert(p[x].state == COMMITTED); Say(x, p[x].ack)
#else
       :: else -> Say(x, p[x].lost)
#endif
       fi; Check() }
  /* A later life has lost it, and says so; or it has no ear for an earlier life's messages. */
  :: d_step { p[x].commit && !ALIVE(x) -> p[x].commit = 0;
       if
       :: p[x].back ->
#ifdef ACKNOWLEDGES_UNAPPLIED
         assert(p[x].state == COMMITTED);
#endif
         Say(x, p[x].lost)
       :: else
       fi }
  :: d_step { p[x].abort && !ALIVE(x) -> p[x].abort = 0 }
  :: d_step { p[x].state == PREPARED && !p[x].inquiry && !p[x].down &&
       (coordinator == CABORTED || coordinator == CDONE) -> p[x].inquiry = 1 }
#ifdef GIVES_UP_BY_A_CLOCK
  :: d_step { p[x].state == PREPARED -> p[x].state = ABORTED; Check() }
#endif
  :: d_step { p[x].state == PREPARED && coordinator == CDEAD && READ_TO_THE_END(!FROM_COORDINATOR(x)) ->
       p[x].state = ORPHAN; AbortIfNobodyKnows(x); Check() }
  /* Fellows. */
  :: d_step { p[x].state == ORPHANED ->
       for (n : 0 .. N - 1) {
         if
         :: n != x && !((p[x].gone | p[x].nothing | p[x].doubt | p[x].asked) & BIT(n)) &&
            reply[x].from[n].kind == NONE -> p[x].asked = p[x].asked | BIT(n)
         :: else
         fi
       }
       n = 0 }
  :: d_step { reply[x].from[0].kind != NONE -> TakeReply(x, 0); Check() }
  :: d_step { reply[x].from[1].kind != NONE -> TakeReply(x, 1); Check() }
#if N > 2
  :: d_step { reply[x].from[2].kind != NONE -> TakeReply(x, 2); Check() }
#endif
  :: d_step { (p[0].asked & BIT(x)) && HAS_AN_ANSWER(x) -> TakeQuestion(0, x) }
  :: d_step { (p[1].asked & BIT(x)) && HAS_AN_ANSWER(x) -> TakeQuestion(1, x) }
#if N > 2
  :: d_step { (p[2].asked & BIT(x)) && HAS_AN_ANSWER(x) -> TakeQuestion(2, x) }
#endif
  :: d_step { p[x].state == ORPHANED && x != 0 && !ALIVE(0) && !(p[x].gone & BIT(0)) &&
       READ_TO_THE_END(reply[x].from[0].kind == NONE) -> FellowGone(x, 0); Check() }
  :: d_step { p[x].state == ORPHANED && x != 1 && !ALIVE(1) && !(p[x].gone & BIT(1)) &&
       READ_TO_THE_END(reply[x].from[1].kind == NONE) -> FellowGone(x, 1); Check() }
#if N > 2
  :: d_step { p[x].state == ORPHANED && x != 2 && !ALIVE(2) && !(p[x].gone & BIT(2)) &&
       READ_TO_THE_END(reply[x].from[2].kind == NONE) -> FellowGone(x, 2); Check() }
#endif
  /* At the coordinator. */
  :: d_step { p[x].vote -> p[x].vote = 0;
       if
       :: coordinator == VOTING -> p[x].yes = 1; CountVotes();
       :: else
       fi; Check() }
  /* Its word, again and again until it is acknowledged. */
  :: d_step { coordinator == COMMITTING && !p[x].ended && !p[x].commit && !p[x].down -> p[x].commit = 1 }
  :: d_step { p[x].ack -> p[x].ack = 0;
       if :: coordinator == COMMITTING -> p[x].ended = 1; CountEnds() :: else fi }
  :: d_step { p[x].lost -> p[x].lost = 0;
       if :: coordinator == COMMITTING -> p[x].ended = 1; CountEnds() :: else fi }
  :: d_step { p[x].inquiry -> p[x].inquiry = 0; Say(x, p[x].abort) }   /* presumed */
  :: d_step { !ALIVE(x) && !p[x].vote && !p[x].ack && coordinator <= COMMITTING && !p[x].ended ->
       Gone(x); Check() }
  /* Faults. */
  :: d_step { crashes > 0 && ALIVE(x) -> CrashSide(x) }
  :: d_step { !ALIVE(x) && !p[x].back -> p[x].back = 1 }
  :: d_step { breaks > 0 && !p[x].down -> breaks--; p[x].down = 1;
       p[x].prepare = 0; p[x].commit = 0; p[x].abort = 0; p[x].vote = 0; p[x].ack = 0; p[x].lost = 0;
       p[x].inquiry = 0;
       if :: p[x].state == ACTIVE -> p[x].state = ABORTED :: else fi;
       if :: coordinator == VOTING && !p[x].yes -> AbortAll() :: else fi; Check() }
  :: d_step { p[x].down && coordinator != CDEAD -> p[x].down = 0 }
  /* A link between fellows breaks. */
  :: d_step { breaks > 0 && reply[x].from[0].kind != NONE -> breaks--; reply[x].from[0].kind = NONE;
       reply[x].from[0].gone = 0 }
  :: d_step { breaks > 0 && reply[x].from[1].kind != NONE -> breaks--; reply[x].from[1].kind = NONE;
       reply[x].from[1].gone = 0 }
#if N > 2
  :: d_step { breaks > 0 && reply[x].from[2].kind != NONE -> breaks--; reply[x].from[2].kind = NONE;
       reply[x].from[2].gone = 0 }
#endif
  od
}

proctype Coordinator() {
end:
  do
  :: d_step { coordinator == VOTING -> AbortAll(); Check() }     /* a deadline, or a NO */
  :: d_step { crashes > 0 && coordinator != CDEAD -> crashes--; coordinator = CDEAD;
       for (k : 0 .. N - 1) { p[k].vote = 0; p[k].ack = 0; p[k].lost = 0; p[k].inquiry = 0 }
       k = 0 }
  od
}

/* When nothing can happen any more, nobody alive may be in doubt. */
proctype End() {
end:
  do
  :: timeout ->
    d_step {
      for (n : 0 .. N - 1) {
        assert(p[n].state != PREPARED && p[n].state != ORPHANED)
      }
      n = 0
    };
    break
  od
}

init {
  atomic {
    byte i;
    for (i : 0 .. N - 1) { p[i].prepare = 1 }
    i = 0;
    run Coordinator();
    run End();
    for (i : 0 .. N - 1) { run Participant(i) }
  }
}
