"""What `islands advise` is made of; experiments/advise.py is the program.

    model.py      from a few measured anchors of a layout to its throughput under any multisite percentage and skew
    trials.py     the short runs: calibration, and validation of what was predicted
    advice.py     ranking, confidence, errors and regret; as text and as JSON
"""
