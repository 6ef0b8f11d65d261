"""From the gradients of single uses of a parameter to those of the parameter."""
