"""One node's write-ahead log: what is appended is durable, in order, before anybody hears of it."""
