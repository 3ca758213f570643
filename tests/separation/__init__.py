"""Is every claim of the separation proof true?"""
