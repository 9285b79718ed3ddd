"""Replicated ledgers: which nodes an entry goes to, when it is durable, and who ends a ledger.

`append`, `recover` and `read` each decide for one client of one ledger; `placement` chooses nodes,
`repair` plans copies, and `quorum` is the arithmetic under all of them. `client` carries out what
they decide, over the connections of `nodes`. The protocol, and why it is safe, is in
docs/protocols/ledger.md.
"""
