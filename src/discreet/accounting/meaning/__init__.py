"""What does a guarantee mean: for an attacker, in a word, for several units at once?"""
