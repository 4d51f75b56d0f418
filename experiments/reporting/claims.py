"""What five papers say, figure by figure, decided on a machine's results: in direction and in size (sizes.py).

Each function yields the claims about one figure: the paper's sentence in our words and, in short, in its own, where it
stands, and its number. The machines of "OLTP on Hardware Islands" had 4 sockets of 6 cores and 8 sockets of 10; here
1ISL stands for shared-everything, one island per core for fine-grained and one per socket for coarse-grained
shared-nothing, whatever the machine. To add a figure, write its function and enter it in FIGURES.
"""

from collections.abc import Callable, Iterator

from reporting import claims_cuts, claims_growth, claims_hardware, claims_others, claims_parts
from reporting.evidence import Claim
from reporting.results import Figure, Sweep

FIGURES: dict[str, Callable[[Sweep, Figure], Iterator[Claim]]] = {
    "fig02": claims_hardware.fig02, "tab01": claims_hardware.tab01, "fig03": claims_hardware.fig03,
    "fig04": claims_cuts.fig04, "fig06": claims_hardware.fig06, "fig07": claims_cuts.fig07,
    "fig05": claims_parts.fig05, "fig08": claims_hardware.fig08, "fig11": claims_parts.fig11,
    "fig09": claims_cuts.fig09, "fig10": claims_cuts.fig10, "fig12": claims_growth.fig12, "fig13": claims_growth.fig13,
    "fig14": claims_growth.fig14,
    "shoremt": claims_others.shoremt, "shoremt_fig4": claims_others.shoremt_fig4,
    "shoremt_fig5": claims_others.shoremt_fig5, "hstore_fig2": claims_others.hstore_fig2,
    "lockmgr_mpl": claims_others.lockmgr_mpl, "hstore": claims_others.hstore,
    "hstore_fig3": claims_others.hstore_fig3, "horikawa": claims_others.horikawa,
    "horikawa_fig4": claims_others.horikawa_fig4}

# Those whose claims compare one durability with another; all others are decided with each of them apart.
ACROSS_DURABILITIES: dict[str, Callable[[Sweep, Figure], Iterator[Claim]]] = {"logging": claims_cuts.logging}

MESSAGES = ("Two-phase commit here: with every other island a read exchanges 4 messages (operations and their answer, "
            "prepare and vote), an update 6 (decision and acknowledgement, too). In the paper updates exchange twice "
            "as many messages as reads (section 7.1.3).")
BUSY = ("Busy is by each worker's own clock: it has work, and waits for nothing. What stops its thread altogether, as "
        "garbage collection stopped H-Store's, does not show here, but in throughput (hstore).")
ONE_CORE = ("An island with one worker takes neither locks nor latches while it is alone, so one core (where SE and FG "
            "are the same) is faster than the first of several. Claims about growth begin with several islands.")
CLIENTS = ("Clients are of the whole deployment: as many as its slots, and each goes to the island of its next "
           "transaction's first row, which costs a part of a message. Hot rows are neighbours: rank r of Zipf's law is "
           "the r-th key. Without skew (s = 0) rows are drawn at less cost than with some, so the first step down is "
           "not the skew's.")
ESTIMATE = ("Dotted: section 4's estimate, the straight line between what is measured at both ends. The paper's figure "
            "is a drawing.")
HALVES = ("With twice the cores each island has half of the data, more of which is in its cache: growth may be more "
          "than linear.")
DRIFT = (" In a run of so many seconds hot rows move by as many times the rows per second: see above how long runs "
         "were. The paper speaks of skew that moves, and measures none.")
POOL = ("The last two sizes are larger than the buffer pool. What does not fit is read from the disk of this machine; "
        "the paper's were two that turn, so its drop was steeper.")
DRAWING = "The paper's figure is a drawing; what is plotted here was measured."
# What a reader of a figure has to know.
REMARKS = {"fig04": DRAWING, "fig05": ESTIMATE, "fig09": MESSAGES, "fig10": MESSAGES, "fig12": ONE_CORE,
           "fig13": CLIENTS, "fig14": POOL, "drift": CLIENTS + DRIFT, "hstore": HALVES, "hstore_fig3": BUSY}


def claims_of(sweep: Sweep) -> list[Claim]:
    """The claims of all figures that the sweep has, in its order; with every durability that a figure has."""
    found = []
    for figure in sweep.figures:
        if figure.name in ACROSS_DURABILITIES:
            for number, claim in enumerate(ACROSS_DURABILITIES[figure.name](sweep, figure), 1):
                claim.id, claim.durability = f"{figure.name}.{number}", ", ".join(figure.durabilities())
                found.append(claim)
            continue
        durabilities = figure.durabilities()
        for durability in durabilities or [""]:
            part = sweep.under(durability) if durability else sweep
            of_part = f"{figure.name}.{durability}" if len(durabilities) > 1 else figure.name
            claims = FIGURES[figure.name](part, figure.under(durability)) if figure.name in FIGURES else []
            for number, claim in enumerate(claims, 1):
                claim.id, claim.durability = f"{of_part}.{number}", durability
                if len(durabilities) > 1:
                    claim.where = {**claim.where, "durability": durability}
                found.append(claim)
    return found
