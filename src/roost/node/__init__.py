"""A storage node: keeps ledgers, and never acknowledges what a crash could take back.

`store` is the node itself, to be used in-process; `service` offers it over the network and
`process` runs it as a program. What decides is pure: `ledgers` (may this be added, what is in
memory), `table` (what a checkpoint says), `index` (where an entry stands), `space` (what has to be
flushed, and when to refuse). What acts: `flush` and `reading` work on a ledger's files, `recovery`
puts everything together after a stop of any kind.
"""
