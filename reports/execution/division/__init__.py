"""A partition that is too large for a worker, divided so that the findings are exactly those of the undivided.

Operations stand in a dataset in the order of their completion; a *chunk* is a run of them that a worker can hold. Every
slice below is an ordinary `Operations` with a `View`, and the rules are those that check whole partitions: a table
lists for each rule how it may be divided (`highwater.reports.rules.partition`). Each finding of the whole partition is
found in some slice, no slice finds another, and `highwater.reports.rules.merge` reports each once, in an order that
does not depend on the slices.

1. *Survey* (`survey`), chunk by chunk: which offsets and values it tells, and which few rows others must know of. Those
   are carried on to all later chunks: what each process read and wrote last, and who proved the largest offset of
   each kind in each leader epoch. The maximum is associative, so what is carried from the parts is what is carried
   from the whole.
2. *Spans of offsets* (`spans`): each read is cut to its records in the span, and comes also where it passed over it
   without a record there; where it began and what it went on from was worked out before it was cut. A value that is
   told in two spans, or sent without a told offset, comes whole to every span that has it. A finding counts where its
   offset is; so it counts once, and all that bears on it is there.
3. *Times* (`times`): a chunk, what was carried to it, and the few rows of later chunks that were invoked in its time.
   Reads and sends of one process are judged where they stand, bounds where they were invoked.
4. *Columns* (`columns`): what must see all operations reads no records but the first and the last of each, and only
   the columns that it names; of a history that tells nothing in them, nothing.
"""
