"""Requests and answers over one connection, in frames (docs/formats/wire.md).

`server` accepts connections, `session` is the server's side of one, `client` the other side. Both
are made of `receive` (bytes to frames, pure), `output` (frames to bytes, gathered into one write a
turn) and `handshake` (who may talk to whom, pure); `limits` bounds them. What the requests mean is
not known here: handlers are given by whoever makes a server.

The promises: the frames of a connection keep their order; each request has one last answer, or the
connection is lost; memory is bounded whatever the peer does; and whoever added something hears
`Unknown` when nobody can tell, never a guess.
"""
