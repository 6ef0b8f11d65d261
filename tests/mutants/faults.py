"""All faults that the suite must detect: an operation joins by an entry in the table of its family."""

import faults_accounting
import faults_apart
import faults_convex
import faults_convolution
import faults_correlated
import faults_federated
import faults_integrations
import faults_isolation
import faults_layers
import faults_ledger
import faults_linear
import faults_mechanism
import faults_passes
import faults_projection
import faults_recurrent
import faults_sklearn
import faults_tables
import faults_tape
import faults_training
import faults_units

MUTANTS = [
    *faults_mechanism.MUTANTS,
    *faults_ledger.MUTANTS,
    *faults_accounting.MUTANTS,
    *faults_isolation.MUTANTS,
    *faults_integrations.MUTANTS,
    *faults_passes.MUTANTS,
    *faults_apart.MUTANTS,
    *faults_linear.MUTANTS,
    *faults_convolution.MUTANTS,
    *faults_correlated.MUTANTS,
    *faults_convex.MUTANTS,
    *faults_federated.MUTANTS,
    *faults_layers.MUTANTS,
    *faults_projection.MUTANTS,
    *faults_recurrent.MUTANTS,
    *faults_tape.MUTANTS,
    *faults_training.MUTANTS,
    *faults_units.MUTANTS,
    *faults_sklearn.MUTANTS,
    *faults_tables.MUTANTS,
]
