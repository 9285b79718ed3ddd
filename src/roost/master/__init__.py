"""`roost master`: keeps ledgers whole while nodes come and go. One is elected, others wait.

`absence` says who is gone, `audit` what is lacking, `garbage` what may be deleted, `scrub` what of
a replica is bad: these decide. `auditing`, `collecting` and `scrubbing` do it, as long as `service`
holds the election; `process` is all of it as a program. The protocol, and why it is safe, is in
docs/protocols/master.md.
"""
