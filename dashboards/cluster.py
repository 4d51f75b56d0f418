"""Dashboard "Islands: cluster": all islands of a deployment side by side, and what they send each other."""

from grafana_foundation_sdk.builders.dashboard import Dashboard

from panels import (BUSY, COMMITTED, ENDED, LATENCY, QUARTER, RESTARTS, RUNS, THIRD, WORKED, Board, board, graph,
                    labels, lag, matrix, number, quantile, query, rate, ratio, row, select, share, spread, states,
                    total)


def figures(made: Dashboard) -> None:
    made.with_panel(number("Committed", "Transactions committed per second, all islands.", "ops", total(COMMITTED)))
    made.with_panel(number(
        "Distributed", "Part of the committed transactions that touched several islands.", "percentunit",
        ratio(rate("islands_transactions_total", 'outcome="committed"', 'scope="distributed"'), COMMITTED)))
    made.with_panel(number(
        "Aborted", "Part of the attempts that aborted; a transaction that is retried counts each time.",
        "percentunit", ratio(rate("islands_transactions_total", 'outcome="aborted"'), ENDED),
        steps=[(0.05, "orange"), (0.2, "red")]))
    made.with_panel(number(
        "Imbalance", "(max - min) / avg of what the islands commit: 0 if all commit alike.", "percentunit",
        spread(COMMITTED), steps=[(0.25, "orange"), (0.5, "red")]))
    made.with_panel(number("Busy", "Part of the workers' time spent executing or messaging.", "percentunit",
                           ratio(BUSY, WORKED)))
    made.with_panel(number("Islands up", "Islands whose metrics Prometheus could read.", "none",
                           total(select("up"))))


def throughput(made: Dashboard) -> None:
    made.with_row(row("Throughput"))
    made.with_panel(graph("Committed, by scope", "Local: one site. Multisite: several sites of one island. "
                          "Distributed: several islands.", "ops", query(total(COMMITTED, "scope"), "{{scope}}"),
                          stacked=True))
    made.with_panel(graph("Committed, by island", "Each transaction counts at the island where it began.", "ops",
                          query(total(COMMITTED, "job", "island"), "island {{island}}")))
    made.with_panel(graph(
        "Imbalance", "(max - min) / avg over islands, of commits and of busy time. Commits that are even while busy "
        "time is not: some islands work for others.", "percentunit",
        query(spread(COMMITTED), "commits, {{job}}"), query(spread(BUSY), "busy time, {{job}}"), width=THIRD))
    made.with_panel(graph("Busy, by island", "Part of each island's workers' time spent executing or messaging.",
                          "percentunit", query(ratio(BUSY, WORKED, "job", "island"), "island {{island}}"),
                          width=THIRD, top=1))
    made.with_panel(graph(
        "Workers' time, by activity", "Of all workers. Waiting: nothing to do, but transactions are open, for example "
        "until another island answers. Idle: no transaction is open.", "percentunit",
        query(share(WORKED, WORKED, "activity", "job"), "{{activity}}"), width=THIRD, stacked=True, top=1))
    made.with_panel(graph("Latency, by scope", "From a transaction's first attempt to its committed answer.", "s",
                          query(quantile(0.5, LATENCY, "scope"), "median {{scope}}"),
                          query(quantile(0.99, LATENCY, "scope"), "99 % {{scope}}")))
    made.with_panel(graph(
        "Outcomes other than committed", "Unknown: the island where it began cannot tell the client how it ended.",
        "ops", query(total(rate("islands_transactions_total", 'outcome!="committed"'), "scope", "outcome"),
              "{{outcome}} {{scope}}")))


def clients(made: Dashboard) -> None:
    latency, wait = "islands_gateway_latency_seconds", "islands_gateway_island_wait_seconds"
    answered = rate(latency + "_count")
    made.with_row(row("Clients, through the gateway"))
    made.with_panel(graph(
        "Clients' transactions, by outcome", "Unknown: an island was lost that may have committed it. Aborted: also "
        "what was refused. Empty, like all of this row, without a gateway.", "ops",
        query(total(rate("islands_gateway_transactions_total"), "outcome"), "{{outcome}}"), stacked=True))
    made.with_panel(graph(
        "Latency of calls", "In the gateway, from the request to the answer; of Transact, of each request.", "s",
        query(quantile(0.5, latency, "method"), "median {{method}}"),
        query(quantile(0.99, latency, "method"), "99 % {{method}}")))
    made.with_panel(graph(
        "Mean time of a request", "Islands: from when it was sent to them to when their reply was read. Gateway: the "
        "rest, its own work and what waits for it.", "s",
        query(ratio(rate(wait + "_sum"), answered), "islands"),
        query(f"({total(rate(latency + '_sum'))} - {total(rate(wait + '_sum'))}) / ({total(answered)} > 0)", "gateway"),
        stacked=True))
    made.with_panel(graph(
        "Islands' part of latency", "What islands had of the time of a request.", "s",
        query(quantile(0.5, wait, "method"), "median {{method}}"),
        query(quantile(0.99, wait, "method"), "99 % {{method}}")))
    made.with_panel(graph("Calls, by method", "A call of ExecuteMany is many transactions, one of Transact is one in "
                          "several requests.", "ops",
                          query(total(rate("islands_gateway_calls_total"), "method"), "{{method}}"), width=THIRD,
                          height=10, stacked=True))
    made.with_panel(graph("Calls, by code", "What gRPC said at their end.", "ops",
                          query(total(rate("islands_gateway_calls_total"), "code"), "{{code}}"), width=THIRD,
                          height=10, stacked=True))
    made.with_panel(graph(
        "Failures, by reason", "Transactions that clients were told are aborted or unknown. Too many: as many as may "
        "be were open; they are among those refused.", "ops",
        query(total(rate("islands_gateway_failures_total"), "reason"), "{{reason}}"),
        query(total(rate("islands_gateway_full_total")), "too many"), width=THIRD, height=10))
    made.with_panel(graph(
        "Open at the gateway", "Transactions of clients that are open or under way, and how many may be.", "none",
        query(total(select("islands_gateway_transactions_open"), "job"), "open, {{job}}"),
        query(total(select("islands_gateway_transactions_limit"), "job"), "limit, {{job}}"), width=QUARTER))
    made.with_panel(graph(
        "Gateway's processor time", "Processors that it keeps busy.", "none",
        query(total(rate("islands_gateway_cpu_seconds_total"), "job"), "{{job}}"), width=QUARTER))
    made.with_panel(graph(
        "Requests, by island", "Sent by the gateway, to the island of each transaction's first key.", "cps",
        query(total(rate("islands_gateway_messages_total", 'direction="sent"'), "island"), "island {{island}}"),
        width=QUARTER))
    made.with_panel(graph(
        "Bytes between gateway and islands", "What clients send and get, but for gRPC's part.", "Bps",
        query(total(rate("islands_gateway_message_bytes_total"), "direction"), "{{direction}}"), width=QUARTER))
    made.with_panel(states(
        "Gateway", "Whether Prometheus could read the gateway's metrics.",
        'up{job=~"$job", gateway!=""}', "gateway of {{job}}", {0: ("down", "red"), 1: ("up", "green")}, width=THIRD))
    made.with_panel(states(
        "Islands that the gateway reaches", "Whether its links to all workers of an island are up.",
        select("islands_gateway_island_reachable"), "island {{island}}",
        {0: ("out of reach", "red"), 1: ("reached", "green")}, width=THIRD))
    made.with_panel(graph(
        "Connections of clients", "New ones of the Unix-domain socket. Refused: of another user.", "cps",
        query(total(rate("islands_gateway_connections_total"), "result"), "{{result}}"), width=THIRD))


def messages(made: Dashboard) -> None:
    sent = 'direction="sent"'
    made.with_row(row("Messages between islands"))
    made.with_panel(matrix("Messages per second, from (down) to (across)", "Sent by one island to another, now.", "cps",
                           total(rate("islands_messages_total", sent), "island", "peer"), "island", "peer"))
    made.with_panel(matrix("Bytes per second, from (down) to (across)", "Frame headers included, now.", "Bps",
                           total(rate("islands_message_bytes_total", sent), "island", "peer"), "island", "peer"))
    made.with_panel(graph("Messages sent, by island", "To all other islands.", "cps",
                          query(total(rate("islands_messages_total", sent), "job", "island"),
                                "island {{island}}"), width=THIRD))
    made.with_panel(graph(
        "Messages per transaction", "Messages sent by all islands for each committed transaction.", "short",
        query(ratio(rate("islands_messages_total", sent), COMMITTED, "job"), "{{job}}"), width=THIRD))
    made.with_panel(graph("Waiting to be sent", "Bytes queued because a socket is full, by the island that sends. A "
                          "full queue holds back new transactions.", "bytes",
                          query(total(select("islands_peer_queue_bytes"), "job", "island"), "island {{island}}"),
                          width=THIRD))


def trouble(made: Dashboard) -> None:
    made.with_row(row("Aborts and states"))
    made.with_panel(graph("Aborts by reason", "Attempts, also those that were repeated and then committed.", "ops",
                          query(total(rate("islands_aborts_total"), "reason"), "{{reason}}"), stacked=True))
    made.with_panel(states(
        "Island states", "Whether Prometheus could read the island's metrics; a killed island is down until its "
        "supervisor has restarted it.", select("up"), "island {{island}}", {0: ("down", "red"), 1: ("up", "green")}))
    made.with_panel(graph(
        "Restarts", "By the supervisor, since `islands up`: each restart is a step.", "none",
        query(total(select("islands_restarts_total"), "job", "island"), "island {{island}}"), width=QUARTER))
    made.with_panel(graph(
        "In doubt", "Branches that are prepared and do not know the decision yet; at a restart they keep their locks.",
        "none", query(total(select("islands_in_doubt"), "job", "island"), "island {{island}}"), width=QUARTER))
    made.with_panel(graph(
        "Links missing", "Connections between workers and other islands that should be there and are not.", "none",
        query(total(select("islands_peer_links_expected"), "job", "island") + " - "
              + total(select("islands_peer_links_connected"), "job", "island"), "island {{island}}"), width=QUARTER))
    made.with_panel(graph("Handshakes refused", "Connections of other islands that an island turned away.", "cps",
                          query(total(rate("islands_handshakes_refused_total"), "job", "island"),
                                "island {{island}}"), width=QUARTER))
    made.with_panel(graph("Buffer pool in use", "Resident pages of what may be resident.", "percentunit",
                          query(ratio(select("islands_buffer_pool_resident_bytes"),
                                      select("islands_buffer_pool_capacity_bytes"), "job", "island"),
                                "island {{island}}"), top=1))
    made.with_panel(graph(
        "Durable behind current", "Epochs of the log that are not on disk yet, as each island sees it: a few, while "
        "the disk keeps up. Empty where durability is none.", "none",
        query(lag("current", "durable"), "island {{island}}")))
    made.with_panel(labels("Islands", "What each island is.", select("islands_island_info"),
                           ["job", "deployment", "island", "layout", "placement", "transport", "durability",
                            "workers"]))
    made.with_panel(labels("Builds", "What each island was built from: all islands should say the same.",
                           select("islands_build_info"), ["job", "island", "version", "commit", "compiler"]))


def cluster() -> Board:
    made = board("islands-cluster", "Islands: cluster", "Every island of a deployment side by side: what it commits, "
                 "how busy and how balanced it is, what it sends to whom.")
    for part in (figures, throughput, clients, messages, trouble):
        part(made)
    return made, [RUNS, RESTARTS]
