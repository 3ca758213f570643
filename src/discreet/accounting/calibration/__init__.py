"""What must a plan be, for a given (epsilon, delta)? Searches whose answer is on the safe side."""
