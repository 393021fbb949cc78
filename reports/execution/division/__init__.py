"""Divide a partition that is too large for a worker into slices, with exactly the findings of the whole.

Operations are in a dataset in the order of their completion; a *chunk* is a run of consecutive ones that a worker can
hold. Every slice below is an ordinary `Operations` with a `View`, and the rules are those for whole partitions: a table
lists for each rule how it may be divided (`highwater.reports.rules.partition`). Each slice yields a subset of the
findings, together the slices yield all of them, and `highwater.reports.rules.merge` reports each once, in an order that
does not depend on the slices.

1. *Survey* (`survey`), chunk by chunk: its offsets and values, and the few rows that other chunks need. These rows are
   carried over to all later chunks: the last read and send of each process, and the proof of the largest offset of each
   kind in each leader epoch. The maximum is associative, so carrying over parts gives the same as the whole.
2. *Spans of offsets* (`spans`): each read is restricted to its records in the span, and is also part of a span that it
   passed without a record; where it began and which read it continues is derived before. A value that is observed in
   two spans, or sent without an acknowledged offset, comes with all its observations to every span that has it. A
   finding counts in the span of its offset, so it counts once, and everything that concerns it is in that span.
3. *Times* (`times`): a chunk, the rows carried over to it, and the few rows of other chunks invoked in its window.
   Reads and sends of one process are judged in their own chunk, bounds in the window of their invocation.
4. *Columns* (`times`): rules that need all operations read only the first and last record of each, and only the columns
   that they name; if these columns have no values, they are skipped.
"""
