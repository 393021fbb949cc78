"""Reports why an invariant is broken: what happened to the broken offset, group or transaction, across nodes."""
