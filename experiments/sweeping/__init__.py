"""What `islands sweep` is made of; experiments/sweep.py is the program.

    tree.py         YAML that knows lines and columns
    machine.py      what a file's words mean on this machine: `machine`, SE, CG, FG, $cores
    sweep_file.py   a sweep file, checked
    plan.py         its points and runs, in which order, on which deployments
    cluster.py      one deployment, up and down, and a run on it
    results.py      the result directory: what is done, what is left, on which build and machine
    runner.py       carries out what is left
    table.py        medians and spreads as text and JSON
"""
