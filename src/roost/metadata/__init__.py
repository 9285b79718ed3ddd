"""Small, rare, decisive documents: a store of keys that all processes of a cluster agree on.

`store` is the contract, in the words of `operations`; `local`, `remote` and `etcd` keep it, and
so does the simulator's store. Leases, elections and views are made once, for all of them.
"""
