"""Couplings: losses, models and data sets that try to let one record move what others contribute.

scenes      what a case is, and where cases are registered
harness     runs a case on two neighbouring data sets, and judges by how much the sums moved
cases_*     the cases, by kind
"""
