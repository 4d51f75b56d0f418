"""Dashboard "Islands: island": what one island, or a few, do with their cores, locks, memory, log and messages."""

from grafana_foundation_sdk.builders.dashboard import Dashboard

from panels import (BUSY, COMMITTED, FULL, LATENCY, QUARTER, RESTARTS, RUNS, SIXTH, THIRD, WORKED, Board, board,
                    buckets, cells, graph, lag, number, quantile, query, rate, ratio, row, select, share, total,
                    variable)

MEASURED = rate("islands_work_measured_seconds_total")
SCOPE = 'scope=~"$scope"'


def figures(made: Dashboard) -> None:
    made.with_panel(number("Committed", "Transactions that began here and committed, per second.", "ops",
                           total(COMMITTED)))
    made.with_panel(number("Busy", "Part of the workers' time spent executing or messaging.", "percentunit",
                           ratio(BUSY, WORKED)))
    made.with_panel(number("Latency, 99 %", "Of committed transactions of the chosen scopes.", "s",
                           f"histogram_quantile(0.99, {total(rate(LATENCY + '_bucket', SCOPE), 'le')})"))
    made.with_panel(number("In flight", "Transactions that a run keeps open here, all workers.", "none",
                           total(select("islands_transactions_in_flight"))))
    made.with_panel(number("Running for", "Since the youngest of the islands was started.", "s",
                           f"time() - max({select('islands_start_time_seconds')})"))
    made.with_panel(number("Remote memory", "Part of the buffer pool that lies on NUMA nodes of other islands.",
                           # Not the remote part: on a machine with one node there is no series of it.
                           "percentunit", "1 - " + ratio(select("islands_memory_node_bytes", 'locality="local"'),
                                                         select("islands_memory_node_bytes")),
                           steps=[(0.01, "orange"), (0.1, "red")], width=SIXTH))


def transactions(made: Dashboard) -> None:
    made.with_row(row("Transactions"))
    made.with_panel(buckets(
        "Latency", "How many transactions ended how fast, of the chosen scopes.",
        f"sum by (le) (increase({select(LATENCY + '_bucket', SCOPE)}[$__rate_interval]))"))
    made.with_panel(graph("Latency, by scope", "From a transaction's first attempt to its committed answer.", "s",
                          query(quantile(0.5, LATENCY, "scope"), "median {{scope}}"),
                          query(quantile(0.99, LATENCY, "scope"), "99 % {{scope}}"), height=9))
    made.with_panel(graph(
        "Where transactions are", "Mean of those that are watched, one in 61: running, and waiting for a slot (queue), "
        "their turn, locks, other islands (remote, votes), the disk, or to try again. Together the latency.", "s",
        query(f"{total(rate('islands_transaction_stay_seconds_total', SCOPE), 'stay')} / on () group_left () "
              f"({total(rate('islands_transactions_watched_total', SCOPE))} > 0)", "{{stay}}"),
        stacked=True, width=FULL))
    made.with_panel(graph("Ended, by scope and outcome", "Transactions that began here.", "ops",
                          query(total(rate("islands_transactions_total", SCOPE), "scope", "outcome"),
                                "{{scope}} {{outcome}}"), width=THIRD, height=10))
    made.with_panel(graph("Mean latency, by scope", "Sum of latencies by their number.", "s",
                          query(ratio(rate(LATENCY + "_sum"), rate(LATENCY + "_count"), "scope"), "{{scope}}"),
                          width=THIRD, height=10))
    made.with_panel(graph("Aborts by reason", "Attempts, also those that were repeated and then committed.", "ops",
                          query(total(rate("islands_aborts_total"), "reason"), "{{reason}}"),
                          width=THIRD, height=10, stacked=True))


def cores(made: Dashboard) -> None:
    # cpus, where the kernel lets a worker run, comes from another metric: one series for each worker.
    busy = f"({ratio(BUSY, WORKED, 'job', 'island', 'worker')})"
    placed = f"max by (job, island, worker, cpus) ({select('islands_worker_placement_info')})"
    made.with_row(row("Cores"))
    made.with_panel(cells(
        "Busy, by core", "Part of each worker's time spent executing or messaging: green is idle, red is busy.",
        "percentunit", query(f"{busy} * on (job, island, worker) group_left (cpus) {placed}",
                             "island {{island}} worker {{worker}} on cpu {{cpus}}")))
    made.with_panel(graph(
        "Workers' time, by activity", "Executing: procedures, operations, commits. Messaging: polling and sending. "
        "Waiting: nothing to do, but transactions are open. Idle: none is open.", "percentunit",
        query(share(WORKED, WORKED, "activity", "job"), "{{activity}}"), stacked=True, top=1, height=9))
    made.with_panel(graph(
        "Busy time, by kind of work", "Of the rounds that are measured, about one in 64. Executing: procedures and "
        "operations. Searching: ways down trees. Latching: waiting for latches. Building, reading: of messages.",
        "percentunit", query(share(MEASURED, MEASURED, "work", "job"), "{{work}}"), stacked=True, top=1, width=FULL))
    made.with_panel(graph("Ready to resume", "Coroutines queued on each worker.", "none",
                          query(select("islands_ready_queue_length"), "island {{island}} worker {{worker}}"),
                          width=THIRD))
    made.with_panel(graph("In flight", "Transactions that a run keeps open on each worker, and those of clients "
                          "outside that are open there.", "none",
                          query(select("islands_transactions_in_flight"), "island {{island}} worker {{worker}}"),
                          query(select("islands_sessions_open"), "clients, island {{island}} worker {{worker}}"),
                          width=THIRD))
    made.with_panel(graph("Clients that wait", "Of the whole deployment, or of a rate: transactions that are due and "
                          "have no slot yet.", "none",
                          query(select("islands_clients_waiting"), "island {{island}} worker {{worker}}"),
                          width=THIRD))
    made.with_panel(graph("Clients that move", "Of the whole deployment, to the islands where their next transactions "
                          "begin.", "cps", query(total(rate("islands_clients_moved_total"), "job", "island"),
                                                 "island {{island}}")))
    made.with_panel(graph(
        "Longest wait for an answer", "Of a transaction that began on the worker, since it was started; grows while "
        "one waits.", "s", query(select("islands_transaction_longest_wait_seconds"),
                                 "island {{island}} worker {{worker}}")))


def locks(made: Dashboard) -> None:
    made.with_row(row("Locks"))
    made.with_panel(graph("Lock waits", "Lock requests that had to wait.", "cps",
                          query(total(rate("islands_lock_waits_total"), "job", "island"), "island {{island}}"),
                          width=QUARTER))
    made.with_panel(graph("Mean lock wait", "Time waited by the number of waits.", "s",
                          query(ratio(rate("islands_lock_wait_seconds_total"), rate("islands_lock_waits_total"),
                                      "job", "island"), "island {{island}}"), width=QUARTER))
    made.with_panel(graph(
        "Time waited for latches", "Of all workers, by where a latch was wanted and where it had been taken: the lock "
        "and the section that holds it. 1 s per second is one core that does nothing else.", "s",
        query(total(rate("islands_latch_wait_seconds_total"), "site", "holder"), "{{site}} {{holder}}"),
        stacked=True))
    made.with_panel(graph(
        "Latch waits", "Times a latch was taken, or somebody else was faster.", "cps",
        query(total(rate("islands_latch_waits_total"), "site", "holder"), "{{site}} {{holder}}"), stacked=True))
    made.with_panel(graph(
        "Locks", "Held by open transactions; inherited from one transaction to the next; waited for.", "none",
        query(select("islands_locks_held"), "island {{island}} held"),
        query(select("islands_locks_inherited"), "island {{island}} inherited"),
        query(select("islands_lock_waiters"), "island {{island}} waiting"), width=QUARTER))
    made.with_panel(graph(
        "Deadlock probes and escalations", "Probes look for deadlocks over several islands, victims are what they "
        "found. Escalation: a lock on the table in place of many on its keys.", "cps",
        query(total(rate("islands_deadlock_probes_total"), "job", "island"), "island {{island}} probes"),
        query(total(rate("islands_deadlock_probe_victims_total"), "job", "island"), "island {{island}} victims"),
        query(total(rate("islands_lock_escalations_total"), "job", "island"), "island {{island}} escalations"),
        width=QUARTER))


def two_phase(made: Dashboard) -> None:
    made.with_row(row("Two-phase commit"))
    made.with_panel(graph(
        "Phases", "Messages of two-phase commit that were sent from here, as coordinator and as participant.", "cps",
        query(total(rate("islands_two_phase_total"), "phase"), "{{phase}}")))
    made.with_panel(graph(
        "Open", "Coordinated: began here, touched others, not forgotten yet. Branches: parts of transactions that "
        "others began; in doubt: prepared, decision unknown.", "none",
        query(total(select("islands_coordinated_transactions"), "job", "island"), "island {{island}} coordinated"),
        query(total(select("islands_participant_branches"), "job", "island"), "island {{island}} branches"),
        query(total(select("islands_in_doubt"), "job", "island"), "island {{island}} in doubt"), width=QUARTER))
    made.with_panel(graph(
        "Inquiries", "Asked because an answer is missing. In doubt while inquiries go on: a coordinator is away.",
        "cps", query(total(rate("islands_two_phase_total", 'phase="inquiry_sent"'), "job", "island"),
                     "island {{island}}"), width=QUARTER))


def memory(made: Dashboard) -> None:
    made.with_row(row("Memory"))
    made.with_panel(graph("Buffer pool", "Memory that holds pages, memory that may, and all pages there are.", "bytes",
                          query(select("islands_buffer_pool_resident_bytes"), "island {{island}} resident"),
                          query(select("islands_buffer_pool_capacity_bytes"), "island {{island}} capacity"),
                          query(total(select("islands_data_bytes"), "job", "island"), "island {{island}} data"),
                          width=THIRD))
    made.with_panel(graph(
        "Pages from disk", "Where data are larger than the pool: pages read, those of them for which a worker stood "
        "still, pages evicted, and transactions that waited for pages.", "cps",
        query(total(rate("islands_pages_read_total"), "job", "island"), "island {{island}} read"),
        query(total(rate("islands_pages_read_alone_total"), "job", "island"), "island {{island}} read alone"),
        query(total(rate("islands_pages_evicted_total"), "job", "island"), "island {{island}} evicted"),
        query(total(rate("islands_page_waits_total"), "job", "island"), "island {{island}} waits"), width=THIRD))
    made.with_panel(graph(
        "Rows found in memory", "Of the rows that operations look for by key in a paged pool: those for which no page "
        "had to be read. Empty where all data are in memory.", "percentunit",
        query("1 - " + ratio(rate("islands_page_misses_total"), rate("islands_page_looks_total"), "job", "island"),
              "island {{island}}"), width=THIRD, top=1))
    made.with_panel(graph(
        "Misses, by site", "Rows for which an operation waited for a page of this site: which part of the data does "
        "not fit.", "cps", query(total(rate("islands_page_misses_total"), "job", "island", "site") + " > 0",
                             "island {{island}} site {{site}}"), width=THIRD))
    made.with_panel(graph(
        "Pages read and written, by site", "From and to data files.", "cps",
        query(total(rate("islands_pages_read_total"), "job", "island", "site") + " > 0",
              "island {{island}} site {{site}} read"),
        query(total(rate("islands_pages_written_total"), "job", "island", "site") + " > 0",
              "island {{island}} site {{site}} written"), width=THIRD))
    made.with_panel(graph(
        "Time waited for pages", "Of all transactions together: in a second, at most as many seconds as run at once.",
        "s",
        query(total(rate("islands_page_wait_seconds_total"), "job", "island"), "island {{island}}"), width=THIRD))
    made.with_panel(graph(
        "Local and remote memory", "Buffer pool on the island's own NUMA nodes, and on others, as the kernel says.",
        "bytes",
        query(total(select("islands_memory_node_bytes"), "job", "island", "locality"),
              "island {{island}} {{locality}}"), width=THIRD, stacked=True))
    made.with_panel(graph("Memory by NUMA node", "Buffer pool on each node, as the kernel says.", "bytes",
                          query(total(select("islands_memory_node_bytes"), "job", "island", "node"),
                                "island {{island}} node {{node}}"), width=THIRD, stacked=True))


def log(made: Dashboard) -> None:
    made.with_row(row("Log and checkpoints"))
    made.with_panel(graph("Log appended", "Bytes of records, by all workers of an island. Empty, as all of this row, "
                          "where durability is none.", "Bps",
                          query(total(rate("islands_log_bytes_total"), "job", "island"), "island {{island}}"),
                          width=THIRD))
    made.with_panel(graph(
        "Ring in use", "Part of each worker's ring that is not durable yet. Full: operations wait for room, and the "
        "disk does not keep up.", "percentunit",
        query(ratio(select("islands_log_ring_used_bytes"), select("islands_log_ring_capacity_bytes"), "job", "island",
                    "worker"), "island {{island}} worker {{worker}}"), width=THIRD, top=1))
    made.with_panel(graph(
        "Epochs behind", "To be durable: between the current epoch and the durable one, a few while the disk keeps up. "
        "To be repeated: from the checkpoint on, by the island's next start.", "none",
        query(lag("current", "durable"), "island {{island}} to be durable"),
        query(lag("durable", "checkpoint"), "island {{island}} to be repeated"), width=THIRD))
    made.with_panel(graph(
        "Answers waiting", "Transactions that have ended and whose answer waits for the disk: durability sync.", "none",
        query(select("islands_answers_waiting"), "island {{island}} worker {{worker}}"), width=THIRD))
    made.with_panel(graph(
        "Checkpoint age", "For so long commits have been made that the checkpoint does not cover: the next start "
        "repeats them.", "s", query(select("islands_checkpoint_age_seconds"), "island {{island}}"), width=THIRD))
    made.with_panel(graph(
        "Waits that the disk is to blame for", "Room: an operation paused because the ring was full. Overdue: an "
        "answer that waited for the disk until its deadline, and ended as unknown.", "cps",
        query(total(rate("islands_log_room_waits_total"), "job", "island"), "island {{island}} room"),
        query(total(rate("islands_answers_overdue_total"), "job", "island"), "island {{island}} overdue"),
        width=THIRD))
    made.with_panel(graph(
        "Pages written", "Changed pages written to data files, and checkpoints that moved on. Failed: writing has "
        "ended with an error, and the log grows. Disk full: the log's, and nothing can be changed.", "cps",
        query(total(rate("islands_cleaner_pages_written_total"), "job", "island"), "island {{island}} pages"),
        query(total(rate("islands_checkpoints_total"), "job", "island"), "island {{island}} checkpoints"),
        query(select("islands_cleaner_failed"), "island {{island}} failed"),
        query(select("islands_log_disk_full"), "island {{island}} disk full")))
    made.with_panel(graph(
        "Last start", "What reading data files and log took when the island was started.", "s",
        query(select("islands_recovery_seconds"), "island {{island}}")))


def messages(made: Dashboard) -> None:
    made.with_row(row("Messages"))
    made.with_panel(graph("Messages, by peer", "Sent and received.", "cps",
                          query(total(rate("islands_messages_total"), "island", "peer", "direction"),
                                "{{island}} {{direction}}, peer {{peer}}"), width=THIRD))
    made.with_panel(graph("Bytes, by peer", "Sent and received, frame headers included.", "Bps",
                          query(total(rate("islands_message_bytes_total"), "island", "peer", "direction"),
                                "{{island}} {{direction}}, peer {{peer}}"), width=THIRD))
    made.with_panel(graph("Waiting to be sent, by peer", "Bytes queued because the socket is full.", "bytes",
                          query(select("islands_peer_queue_bytes"), "{{island}} to {{peer}}"), width=THIRD))


def island() -> Board:
    scopes = variable("scope", "Scope", 'label_values(islands_transactions_total{job=~"$job"}, scope)',
                      "What transactions touched: one site, several sites of one island, several islands")
    made = board("islands-island", "Islands: island", "One island, or a few: its latencies, cores, locks, two-phase "
                 "commit, memory, log and messages.", [scopes])
    for part in (figures, transactions, cores, locks, two_phase, memory, log, messages):
        part(made)
    return made, [RUNS, RESTARTS]
