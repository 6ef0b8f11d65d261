"""Published data sets that only papers use; `privet train --data NAME` finds them by the entry points `privet.data_sets`."""
