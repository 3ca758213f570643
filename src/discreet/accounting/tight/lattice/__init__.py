"""What do many steps cost together? Measures on a lattice, composed, with certified errors."""
