"""Small models of many kinds, each trained privately and compared with torch, record by record.

A catalogue file lists models of one kind; `harness` trains them through `PrivateRun` and judges.
`python -m tests.architectures` prints the verdicts as a table.
"""
