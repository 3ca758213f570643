"""How do commands show what they found?"""
