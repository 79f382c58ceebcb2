"""Pure admission core: an event in, a tuple of effects out. No clock, no I/O, no grpc."""
