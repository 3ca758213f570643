"""What makes private models better, and a demonstration."""
