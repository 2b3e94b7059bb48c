"""Tables, figures and numbers of the paper, from evidence alone."""

FIGURES = (
    *("cells", "learning_curves", "roc", "auroc_per_label", "parity", "throughput"),
    *("step_parity", "prices", "indifference", "samples", "labels", "seeds", "cost", "reliability"),
)
