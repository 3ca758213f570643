"""What does a run show of itself? Released and public values only."""
