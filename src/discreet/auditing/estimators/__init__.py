"""Which lower bound on epsilon follows from what an attack guessed?"""
