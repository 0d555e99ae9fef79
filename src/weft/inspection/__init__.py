"""What people ask of a running cluster: rows of what there is, why something waits, a timeline. It changes nothing."""
