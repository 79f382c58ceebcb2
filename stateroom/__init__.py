"""Stateroom's SDK: the contract, the client and the pool attach that an executor imports.

Importing this package loads nothing heavy: `stateroom.client` loads grpc, `stateroom.attach` loads
torch, `stateroom.residency` loads the standard library only.
"""
