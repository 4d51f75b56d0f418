"""The sections of experiments/bench.py.

    context.py      what a section works with: deployments, runs, programs, the progress line
    section.py      a section's result: a table, its bars, its notes; as text and as JSON
    peers.py        the other engines
    engines.py      the engines of experiments/bench_engines.py beside islands
    throughput.py   sections that measure running islands
    logs.py         what keeping costs, by durability
    disks.py        logs in memory and on a disk, beside LMDB and the disk alone
    larger.py       data ten times the pool, beside the disk alone and engines with as little memory
    memory_group.py a limit to the memory of processes
    restarts.py     how fast logs are repeated; what moving checkpoints on costs
    parts.py        sections that ask programs of build/release/bench

One thread measures one thing at a time.
"""
