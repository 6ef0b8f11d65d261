"""Sources that several recipes cite, as their pages name them."""

TRAMER_BONEH = "Tramèr and Boneh 2021, “Differentially private learning needs better features (or much more data)”, Table 1"
BU = "Bu et al., “On the convergence and calibration of deep learning with differential privacy”"
HUANG = "Huang et al., “Enhancing DP-SGD through non-monotonous adaptive scaling gradient weight”"
ZHU = "Zhu and Blaschko, “Improving differentially private SGD via randomly sparsified gradients”"
YU = "Yu et al. 2020, “Improve the gradient perturbation approach for differentially private optimization”"
