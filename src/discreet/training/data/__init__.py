"""Which rows are in a batch?"""
