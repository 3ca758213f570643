"""Does one record touch another? Proved in every pass, from the operations and not from the
numbers.
"""
