"""Networks that only papers use; `privet.models.build` finds them by the entry points `privet.networks`."""
