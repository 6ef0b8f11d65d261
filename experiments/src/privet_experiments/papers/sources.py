"""Papers that several recipes cite, with the short names that the pages use."""

__all__ = ["GEP_AUTHORS", "OVERVIEW", "SOURCES", "TRAMER_BONEH"]

TRAMER_BONEH = "Tramèr and Boneh 2021, Table 1"
BU, HUANG, ZHU, YU = "Bu et al.", "Huang et al.", "Zhu and Blaschko", "Yu et al. 2020"
GEP_AUTHORS = "Yu et al. 2021"
OVERVIEW = "Matthews, Foster and Sunray 2023"
# Short name → full citation.
SOURCES = {
    BU: f"{BU}: “On the convergence and calibration of deep learning with differential privacy”.",
    HUANG: f"{HUANG}: “Enhancing DP-SGD through non-monotonous adaptive scaling gradient weight”.",
    ZHU: f"{ZHU}: “Improving differentially private SGD via randomly sparsified gradients”.",
    YU: f"{YU}: “Improve the gradient perturbation approach for differentially private optimization”.",
    GEP_AUTHORS: f"{GEP_AUTHORS}: “Do not let privacy overbill utility: gradient embedding perturbation for private learning”.",
    OVERVIEW: f"{OVERVIEW}: “Differentially private stochastic gradient descent”, slides of an overview.",
    TRAMER_BONEH: (
        "Tramèr and Boneh 2021: “Differentially private learning needs better features (or much more data)”; its main results, "
        "at (3, 1e-5), are also in the README of the authors' repository, ftramer/Handcrafted-DP."
    ),
}
