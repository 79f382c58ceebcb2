"""Pure slot ledger of one rank: an order in, a tuple of effects out. No clock, no I/O, no grpc."""
