"""Observation of a training: its steps, callbacks, metrics file and progress bar. They see public and released values only."""
